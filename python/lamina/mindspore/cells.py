"""GPT-2 as closed layer cells for MindSpore: from residual stream to residual stream, in graph mode and PyNative, on any of its
devices. No cell asks at run time what it could know when it is made, and none has a branch for a cache.

The residual stream is (B*T, C) and fp32, as are weights, LayerNorm, scores, softmax and logits, whatever the precision: that
is of the operands of products. Weights of products are (in, out), as in HuggingFace's GPT-2. MindSpore's defaults that differ
from GPT-2 are written out: epsilon (1e-7 there), the form of GELU, initial values, what a dropout's argument counts.
"""
import math
import zlib

import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore import dtype as mstype

from .precision import LayerPrecisionManager


class Init:
    """Initial values: normal with the config's deviation, by seed and name, whatever else is drawn."""

    def __init__(self, config, seed):
        self.deviation, self.seed = config.initializer_range, seed
        self.residual = self.deviation / math.sqrt(2.0 * config.n_layer)  # of what is added to the residual stream

    def normal(self, name, shape, residual=False):
        draw = np.random.default_rng([self.seed, zlib.crc32(name.encode())])
        scale = self.residual if residual else self.deviation
        return Parameter(Tensor((scale * draw.standard_normal(shape)).astype(np.float32)), name=name.split(".")[-1])


def zeros(size, name):
    return Parameter(Tensor(np.zeros(size, np.float32)), name=name)


class Dense(nn.Cell):
    """y = x·W + b with W (in, out). Operands of the product in `dtype`; the sum comes back in it and is widened."""

    def __init__(self, inputs, outputs, part, precision, init, residual=False):
        super().__init__()
        self.weight = init.normal(part + ".weight", (inputs, outputs), residual)
        self.bias = zeros(outputs, "bias")
        self.dtype = precision.of(part)
        self.product, self.add = ops.MatMul(), ops.BiasAdd()

    def construct(self, x):
        if self.dtype == mstype.float32:
            return self.add(self.product(x, self.weight), self.bias)
        y = self.product(x.astype(self.dtype), self.weight.astype(self.dtype))
        return self.add(y.astype(mstype.float32), self.bias)


class Dropout(nn.Cell):
    """Drops the share p, in training only. nn.Dropout draws for p = 0 and refuses p = 1."""

    def __init__(self, p):
        super().__init__()
        self.p = p
        self.some = nn.Dropout(p=p) if 0.0 < p < 1.0 else None

    def construct(self, x):
        if self.p == 0.0 or not self.training:
            return x
        return ops.zeros_like(x) if self.some is None else self.some(x)


def layernorm(config):
    return nn.LayerNorm((config.n_embd,), epsilon=config.layer_norm_epsilon)


class Core(nn.Cell):
    """Attention between its projections: softmax(q·kT / factor)·v over heads, by plain operators."""

    def __init__(self, config, index, dtype):
        super().__init__()
        self.dtype = dtype
        self.factor = scale_of(config, index)
        self.score_dtype = mstype.float32 if config.reorder_and_upcast_attn else dtype
        self.scores, self.values = ops.BatchMatMul(transpose_b=True), ops.BatchMatMul()
        self.softmax = ops.Softmax(-1)
        self.dropout = Dropout(config.attn_pdrop)

    def cast(self, x, dtype):
        return x if dtype == mstype.float32 else x.astype(dtype)

    def construct(self, q, k, v, mask):
        bias, _, rows = mask
        scores = self.scores(self.cast(q * self.factor, self.score_dtype), self.cast(k, self.score_dtype))
        scores = scores if self.score_dtype == mstype.float32 else scores.astype(mstype.float32)
        weights = self.dropout(self.softmax(scores + bias))
        out = self.values(self.cast(weights, self.dtype), self.cast(v, self.dtype))
        out = out if self.dtype == mstype.float32 else out.astype(mstype.float32)
        return out if rows is None else out * rows


class FusedCore(nn.Cell):
    """The same by the fused attention of Ascend, which takes 16-bit operands and draws no dropout of ours."""

    def __init__(self, config, index, dtype):
        super().__init__()
        self.dtype, self.heads = dtype, config.n_head
        self.factor = scale_of(config, index)

    def construct(self, q, k, v, mask):
        _, hidden, rows = mask
        if hidden.shape[0] != q.shape[0]:
            hidden = hidden.broadcast_to((q.shape[0], 1, q.shape[2], k.shape[2]))
        out = ops.flash_attention_score(q.astype(self.dtype), k.astype(self.dtype), v.astype(self.dtype), self.heads,
                                        attn_mask=hidden, scalar_value=self.factor, input_layout="BNSD", sparse_mode=0)
        out = out.astype(mstype.float32)
        return out if rows is None else out * rows


def scale_of(config, index):
    scale = 1.0 / math.sqrt(config.head_dim) if config.scale_attn_weights else 1.0
    return scale / (index + 1) if config.scale_attn_by_inverse_layer_idx else scale


def make_core(config, index, precision):
    """Which way attention is computed; the fused operator where the device has one and it means the same."""
    dtype = precision.of(f"layer.{index}.attention.core")
    fused = precision.device_target == "Ascend" and dtype != mstype.float32 and config.attn_pdrop == 0.0
    return FusedCore(config, index, dtype) if fused and not config.reorder_and_upcast_attn else Core(config, index, dtype)


class Attention(nn.Cell):
    def __init__(self, config, index, precision, init):
        super().__init__()
        self.heads, self.depth, self.width = config.n_head, config.head_dim, config.n_embd
        front = f"layer.{index}.attention."
        self.q, self.k, self.v = (Dense(self.width, self.width, front + name, precision, init) for name in "qkv")
        self.core = make_core(config, index, precision)
        self.proj = Dense(self.width, self.width, front + "proj", precision, init, residual=True)

    def split(self, x, seq):
        return x.reshape((-1, seq, self.heads, self.depth)).transpose((0, 2, 1, 3))

    def construct(self, x, mask, seq):
        out = self.core(self.split(self.q(x), seq), self.split(self.k(x), seq), self.split(self.v(x), seq), mask)
        return self.proj(out.transpose((0, 2, 1, 3)).reshape((-1, self.width)))


class Mlp(nn.Cell):
    def __init__(self, config, index, precision, init):
        super().__init__()
        front = f"layer.{index}.mlp."
        self.fc = Dense(config.n_embd, config.inner, front + "fc", precision, init)
        self.gelu = nn.GELU(approximate=config.tanh)
        self.proj = Dense(config.inner, config.n_embd, front + "proj", precision, init, residual=True)

    def construct(self, x):
        return self.proj(self.gelu(self.fc(x)))


class GPT2Layer(nn.Cell):
    """One layer, from residual stream to residual stream."""

    def __init__(self, config, index=0, precision=None, seed=0):
        super().__init__()
        precision, init = precision_of(precision, config), init_of(seed, config)
        self.ln_1 = layernorm(config)
        self.attention = Attention(config, index, precision, init)
        self.ln_2 = layernorm(config)
        self.mlp = Mlp(config, index, precision, init)
        self.dropout = Dropout(config.resid_pdrop)

    def construct(self, x, mask, seq):
        """x (B*T, C); mask: what AttentionMask gives without positions; seq: T."""
        x = x + self.dropout(self.attention(self.ln_1(x), mask, seq))
        return x + self.dropout(self.mlp(self.ln_2(x)))


class Embedding(nn.Cell):
    def __init__(self, config, precision, init):
        super().__init__()
        self.token = init.normal("embedding.token", (config.vocab_size, config.n_embd))
        self.position = init.normal("embedding.position", (config.n_positions, config.n_embd))
        self.dtype = precision.of("embedding")
        self.gather = ops.Gather()

    def rows(self, table, ids):
        rows = self.gather(table, ids, 0)
        return rows if self.dtype == mstype.float32 else rows.astype(self.dtype).astype(mstype.float32)

    def construct(self, ids, positions):
        return self.rows(self.token, ids) + self.rows(self.position, positions)


def precision_of(precision, config):
    return precision if isinstance(precision, LayerPrecisionManager) else LayerPrecisionManager(precision, config)


def init_of(seed, config):
    return seed if isinstance(seed, Init) else Init(config, seed)
