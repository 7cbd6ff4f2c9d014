"""GPT-2 of layer cells: the stream behind its last layer, and with the head."""
from mindspore import nn, ops
from mindspore import dtype as mstype

from .cells import Dropout, Embedding, GPT2Layer, init_of, layernorm, precision_of
from .files import LoadReport, config_beside, load_weights, save_folder
from .fused import FusedGPT2Layer
from .masks import AttentionMask


class GPT2Model(nn.Cell):
    """Ids (B, T) to the normed residual stream (B, T, C). `fused`: its layers are FusedGPT2Layer."""

    def __init__(self, config, precision=None, seed=0, fused=False):
        super().__init__()
        precision, init = precision_of(precision, config), init_of(seed, config)
        self.config, self.precision = config, precision
        self.mask = AttentionMask(config.n_positions)
        self.embedding = Embedding(config, precision, init)
        self.dropout = Dropout(config.embd_pdrop)
        kind = FusedGPT2Layer if fused else GPT2Layer
        self.layer = nn.CellList([kind(config, i, precision, init) for i in range(config.n_layer)])
        self.ln_f = layernorm(config)

    def stream(self, ids, attention_mask=None, position_ids=None):
        """(B*T, C), and which places are no padding (B*T) or None."""
        seq = ids.shape[1]
        bias, hidden, rows, positions = self.mask(seq, attention_mask)
        x = self.embedding(ids, positions if position_ids is None else position_ids)
        x = self.dropout(x.reshape((-1, self.ln_f.normalized_shape[0])))
        for layer in self.layer:
            x = layer(x, (bias, hidden, rows), seq)
        return self.ln_f(x), rows

    def construct(self, ids, attention_mask=None, position_ids=None):
        return self.stream(ids, attention_mask, position_ids)[0].reshape((*ids.shape, -1))


class GPT2LMHeadModel(nn.Cell):
    """Ids (B, T) to logits (B, T, V), fp32. Parameters have Lamina's names. `fused`: its layers are FusedGPT2Layer."""

    def __init__(self, config, precision=None, seed=0, fused=False):
        super().__init__(auto_prefix=False)
        precision, init = precision_of(precision, config), init_of(seed, config)
        self.config, self.precision, self.fused = config, precision, fused
        self.model = GPT2Model(config, precision, init, fused)
        self.tied = config.tie_word_embeddings
        if not self.tied:
            self.head = init.normal("head.weight", (config.vocab_size, config.n_embd))
            self.head.name = "head.weight"
        self.dtype = precision.of("head")
        self.product = ops.MatMul(transpose_b=True)
        self.report = LoadReport()

    @classmethod
    def from_pretrained(cls, path, precision=None, fused=False):
        """`path`: a HuggingFace folder, a run folder or a checkpoint of Lamina's, or a file of weights beside a config.json.
        `report` says what was found."""
        model = cls(config_beside(path), precision, fused=fused)
        model.report = load_weights(model, path)
        model.report.warnings[:0] = model.config.warnings
        return model

    def save_pretrained(self, folder, dtype="fp32"):
        """A folder that HuggingFace and Lamina load as it is. `dtype` fp16 or bf16 rounds the weights."""
        save_folder(self, folder, dtype)

    def rows(self, ids, attention_mask=None, position_ids=None):
        """Logits (B*T, V), and which places are no padding (B, 1, T, 1) or None."""
        x, rows = self.model.stream(ids, attention_mask, position_ids)
        table = self.model.embedding.token if self.tied else self.head
        if self.dtype == mstype.float32:
            return self.product(x, table), rows
        return self.product(x.astype(self.dtype), table.astype(self.dtype)).astype(mstype.float32), rows

    def construct(self, ids, attention_mask=None, position_ids=None):
        return self.rows(ids, attention_mask, position_ids)[0].reshape((*ids.shape, -1))
