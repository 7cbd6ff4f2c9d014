"""config.json of HuggingFace's GPT-2. Every key that changes a number is honoured or refused by name, keys known to change
none are accepted, any other is a warning: what src/io/hf_config.cc accepts and says, in Python."""
import json
import math
import os
from dataclasses import dataclass, field, fields
from typing import Optional

from .errors import Error, quoted, shown

MAX_SIZE = 1 << 24
ALIASES = {"n_positions": ("max_position_embeddings", "n_ctx"), "n_embd": ("hidden_size",), "n_layer": ("num_hidden_layers",),
           "n_head": ("num_attention_heads",)}  # names of other models that GPT2Config takes for its own
TANH = ("gelu_new", "gelu_pytorch_tanh", "gelu_fast")

# Descriptions, classification heads, settings of generation, ways of running.
NO_EFFECT = frozenset("""
_attn_implementation _attn_implementation_autoset _commit_hash _from_model_config _name_or_path _num_labels architectures
attn_implementation bad_words_ids begin_suppress_tokens chunk_size_feed_forward cls_token_id decoder_start_token_id
diversity_penalty do_sample dtype early_stopping encoder_no_repeat_ngram_size experimental_attn_implementation
exponential_decay_length_penalty finetuning_task forced_bos_token_id forced_eos_token_id gradient_checkpointing id2label
is_decoder label2id length_penalty max_length max_new_tokens min_length model_type name_or_path no_repeat_ngram_size
num_beam_groups num_beams num_labels num_return_sequences output_attentions output_hidden_states output_past output_scores
pad_token_id predict_special_tokens prefix problem_type remove_invalid_values repetition_penalty return_dict
return_dict_in_generate sep_token_id summary_activation summary_first_dropout summary_proj_to_labels summary_type
summary_use_proj suppress_tokens task_specific_params temperature tf_legacy_loss tokenizer_class top_k top_p torch_dtype
torchscript transformers_version typical_p unk_token_id use_bfloat16 use_cache use_return_dict
""".split())


def json_text(value):
    if isinstance(value, str):
        return quoted(value, 60)
    if isinstance(value, (list, dict)):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)} entries"
    return json.dumps(value, default=repr)


def key_text(key):
    return key if key and key.isascii() and key.replace("_", "a").isalnum() else quoted(key, 60)


KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def fits(kind, value):
    """Whether it is of this kind: no truth value is a number."""
    number = isinstance(value, (int, float) if kind is float else kind)
    return number and (kind is bool or not isinstance(value, bool))


class Reader:
    """Reads one key after the other and remembers which were asked for."""

    def __init__(self, root, where):
        self.root, self.where, self.known = root, where, set()

    def fail(self, code, text):
        kind = "bad model config" if code == "invalid" else "unsupported model"
        raise Error(code, f"{kind}: {self.where}: {text}")

    def refuse(self, key, expected, value):
        self.fail("invalid", f"{key}, expected {expected}, got {json_text(value)}")

    def check(self, key, kind, value):
        if not fits(kind, value):
            self.refuse(key, KINDS[kind], value)
        return float(value) if kind is float else value

    def read(self, key, kind, default):
        self.known.add(key)
        return self.check(key, kind, self.root[key]) if key in self.root else default

    def size(self, key, default):
        size = self.read(key, int, default)
        for other in ALIASES.get(key, ()):
            self.known.add(other)
            if self.root.get(other) is None:
                continue
            value = self.check(other, int, self.root[other])
            if key in self.root and value != size:
                self.fail("invalid", f"{other} contradicts {key}, expected {size}, got {value}")
            size = value
        return size


def refuse_other_models(reader, warnings):
    kind = reader.read("model_type", str, "gpt2")
    if kind != "gpt2":
        reader.fail("unsupported", f'model_type, expected "gpt2", got {quoted(kind, 60)}')
    if "model_type" not in reader.root:
        warnings.append(f'{reader.where}: no model_type, "gpt2" is assumed')
    for key in ("add_cross_attention", "is_encoder_decoder"):
        if reader.read(key, bool, False):
            reader.fail("unsupported", f"{key}, expected false, got true")
    for key in ("pruned_heads", "quantization_config"):
        reader.known.add(key)
        value = reader.root.get(key)
        if value is not None and value != [] and value != {}:
            reader.fail("unsupported", f"{key}, expected none, got {json_text(value)}")


def read_token_id(reader, key, vocabulary, warnings):
    """An id that the vocabulary lacks can never occur: it is none, and said where the file states it."""
    reader.known.add(key)
    value = reader.root.get(key, 50256)
    if value is None:
        return None
    if isinstance(value, list) and len(value) == 1:
        key, value = f"{key}[0]", value[0]
    value = reader.check(key, int, value)
    if value < 0:
        reader.refuse(key, "an id from 0 on or null", value)
    if value < vocabulary:
        return value
    key = key.split("[")[0]
    if key in reader.root:
        warnings.append(f"{reader.where}: {key} {value} is not below vocab_size {vocabulary}: taken as none")
    return None


@dataclass
class GPT2Config:
    """Field names and defaults are those of HuggingFace's GPT2Config."""

    vocab_size: int = 50257
    n_positions: int = 1024
    n_embd: int = 768
    n_layer: int = 12
    n_head: int = 12
    n_inner: Optional[int] = None  # None: 4 * n_embd
    activation_function: str = "gelu_new"
    layer_norm_epsilon: float = 1e-5
    resid_pdrop: float = 0.1
    embd_pdrop: float = 0.1
    attn_pdrop: float = 0.1
    initializer_range: float = 0.02
    scale_attn_weights: bool = True
    scale_attn_by_inverse_layer_idx: bool = False
    reorder_and_upcast_attn: bool = False
    tie_word_embeddings: bool = True
    bos_token_id: Optional[int] = 50256
    eos_token_id: Optional[int] = 50256
    source: dict = field(default_factory=dict, repr=False, compare=False)  # config.json as it was, unknown keys too
    warnings: list = field(default_factory=list, repr=False, compare=False)

    def __post_init__(self):
        self.validate()

    @property
    def inner(self):
        return self.n_inner or 4 * self.n_embd

    @property
    def head_dim(self):
        return self.n_embd // self.n_head

    @property
    def tanh(self):
        """Whether GELU is the form with tanh, not the one with erf."""
        return self.activation_function in TANH

    def validate(self):
        def check(good, field, expected, value):
            if not good:
                raise Error("invalid", f"bad model config: {field}, expected {expected}, got {value}")

        for name in ("vocab_size", "n_positions", "n_embd", "n_layer", "n_head", "n_inner"):
            value = getattr(self, name)
            if name != "n_inner" or value is not None:
                check(fits(int, value) and 1 <= value <= MAX_SIZE, name, f"a whole number from 1 to {MAX_SIZE}", shown(value))
        for entry in fields(self)[6:16]:
            value, kind = getattr(self, entry.name), type(entry.default)
            check(fits(kind, value), entry.name, KINDS[kind], shown(value))
        for name in ("bos_token_id", "eos_token_id"):
            value = getattr(self, name)
            check(value is None or (fits(int, value) and value >= 0), name, "an id from 0 on or None", shown(value))
        if self.n_embd % self.n_head:
            raise Error("invalid", f"bad model config: n_embd {self.n_embd} is not divisible by n_head {self.n_head}")
        check(self.tanh or self.activation_function == "gelu", "activation_function",
              "gelu, gelu_new, gelu_pytorch_tanh or gelu_fast", quoted(self.activation_function, 60))
        for name in ("resid_pdrop", "embd_pdrop", "attn_pdrop"):
            check(0.0 <= getattr(self, name) <= 1.0, name, "a probability from 0 to 1", f"{getattr(self, name):g}")
        epsilon, deviation = self.layer_norm_epsilon, self.initializer_range
        check(epsilon > 0.0 and math.isfinite(epsilon), "layer_norm_epsilon", "a positive number", f"{epsilon:g}")
        check(deviation >= 0.0 and math.isfinite(deviation), "initializer_range", "a number from 0 on", f"{deviation:g}")

    @classmethod
    def from_dict(cls, root, where="config"):
        if not isinstance(root, dict):
            raise Error("invalid", f"bad model config: {where}: expected an object, got {json_text(root)}")
        reader, warnings = Reader(root, where), []
        refuse_other_models(reader, warnings)
        values = dict(
            vocab_size=reader.size("vocab_size", 50257),
            n_positions=reader.size("n_positions", 1024),
            n_embd=reader.size("n_embd", 768),
            n_layer=reader.size("n_layer", 12),
            n_head=reader.size("n_head", 12))
        reader.known.add("n_inner")
        values["n_inner"] = root.get("n_inner")
        if values["n_inner"] is not None and reader.check("n_inner", int, values["n_inner"]) < 1:
            reader.refuse("n_inner", "a number from 1 on or null", values["n_inner"])
        for entry in fields(cls)[6:16]:
            kind = type(entry.default)
            values[entry.name] = reader.read(entry.name, kind, entry.default)
        for key in ("bos_token_id", "eos_token_id"):
            values[key] = read_token_id(reader, key, values["vocab_size"], warnings)
        unknown = sorted(set(root) - reader.known - NO_EFFECT)
        warnings += [f"{where}: unknown key {quoted(key, 60)} has no effect here" for key in unknown]
        try:
            return cls(**values, source=dict(root), warnings=warnings)
        except Error as error:
            raise Error(error.code, f"{error} (in {where})") from None

    @classmethod
    def from_pretrained(cls, path):
        """`path`: a config.json, or a folder that holds one."""
        file = os.path.join(path, "config.json") if os.path.isdir(path) else str(path)
        if not os.path.exists(file):
            raise Error("io", f"no such model: {path}, expected a model folder or a config.json, got nothing there")
        return cls.from_dict(read_json(file), file)

    def to_dict(self):
        """The content of config.json: that of the file it came from with every key that matters written out."""
        own = {entry.name: getattr(self, entry.name) for entry in fields(self)[:18]}
        fixed = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_ctx": self.n_positions}
        out = {**fixed, **self.source, **own}
        for name, others in ALIASES.items():  # as they were, but of one mind
            out.update({other: own[name] for other in others if out.get(other) is not None})
        return out


def read_json(path):
    """A file of JSON in which no key comes twice."""

    def unique(pairs):
        seen = set()
        for key, _ in pairs:
            if key in seen:
                raise Error("invalid", f"bad JSON: {path}: duplicate key {quoted(key)}: expected it once, got it again")
            seen.add(key)
        return dict(pairs)

    try:
        with open(path, "rb") as file:
            return json.loads(file.read(), object_pairs_hook=unique)
    except OSError as error:
        raise Error("io", f"cannot read: {path}: expected a JSON file, got {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise Error("invalid", f"bad JSON: {path}: {error}") from None
