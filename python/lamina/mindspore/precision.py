"""In which precision each part of a model takes the operands of its products: src/model/precision.h and `lamina train
--precision`, in Python. Parts that no pattern names are fp32; where several match a part, the one that matches fewest counts.

    embedding   head   layer.N.attention.{q,k,v,core,proj}   layer.N.mlp.{fc,proj}
"""
import os
import re

from mindspore import context
from mindspore import dtype as mstype

from .config import json_text, key_text, read_json
from .errors import Error

LAYER_PARTS = ("attention.q", "attention.k", "attention.v", "attention.core", "attention.proj", "mlp.fc", "mlp.proj")
THEIR_WORDS = {"h": "layer", "attn": "attention", "c_attn": "{q,k,v}", "c_proj": "proj", "c_fc": "fc", "wte": "embedding",
               "wpe": "embedding", "lm_head": "head"}
TYPES = {"fp32": mstype.float32, "bf16": mstype.bfloat16, "fp16": mstype.float16}
WORDS = {"fp32": {}, "mixed": {"*": "bf16", "embedding": "fp32"}, "mixed-bf16": {"*": "bf16", "embedding": "fp32"},
         "mixed-fp16": {"*": "fp16", "embedding": "fp32"}}
FRONT = "bad precision map: "


def refuse(pattern, why):
    raise Error("invalid", f"{FRONT}pattern {pattern}, expected *, embedding, head, layer.N, "
                           f"attention.{{q,k,v,core,proj}} or mlp.{{fc,proj}}, got {why}")


def alternatives(word):
    return word[1:-1].split(",") if len(word) > 1 and word[0] == "{" and word[-1] == "}" else [word]


def read_layers(pattern, word):
    """(least, most) of "3", "0-3" or "*"."""
    if word == "*":
        return 0, float("inf")
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", word, re.ASCII)
    least, most = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if least > most:
        refuse(pattern, f'layers "{word}"')
    return least, most


class Pattern:
    """A part, the beginning of one, or one without its layer; several layers are "layer.0-3", several names "{q,k}"."""

    def __init__(self, text):
        words = re.findall(r"(?:\{[^}]*\}?|[^.{])+|(?<=\.)(?=\.|$)|^(?=\.|$)", text)
        if words and words[0] == "transformer":
            del words[0]
        if len(words) > 1 and words[-1] == "weight":
            words.pop()
        words = [THEIR_WORDS.get(word, word) for word in words]
        if not words or not words[0]:
            refuse(text, "nothing")
        if any(word.startswith("ln_") for word in words):
            refuse(text, "a LayerNorm, which is always fp32")
        self.least, self.most = -1, float("inf")  # layers; -1: what is in no layer too
        if words[0] == "layer":
            if len(words) < 2:
                refuse(text, "layer without a number")
            self.least, self.most = read_layers(text, words[1])
            words = words[2:]
        self.names = [alternatives(word) for word in words]
        if any(len(names) > 1 and "*" in names for names in self.names):
            refuse(text, "* in braces")
        if not self.is_known():
            refuse(text, f'"{text}"')

    def matches(self, layer, part, names=None):
        names = self.names if names is None else names
        words = part.split(".")
        if not self.least <= layer <= self.most:
            return False
        if names == [["*"]]:
            return True
        return len(names) <= len(words) and all(word in some for word, some in zip(words, names))

    def is_known(self):
        """Whether every alternative is the beginning of some part."""
        parts = [(max(self.least, 0), part) for part in LAYER_PARTS]
        if self.least < 0:
            parts += [(-1, "embedding"), (-1, "head")]
        tries = [[*self.names[:i], [name]] for i, names in enumerate(self.names) for name in names]
        return all(any(self.matches(layer, part, names) for layer, part in parts) for names in tries)


def parts_of(n_layer):
    inner = [(layer, part) for layer in range(n_layer) for part in LAYER_PARTS]
    return [(-1, "embedding"), *inner, (-1, "head")]


def part_name(layer, part):
    return part if layer < 0 else f"layer.{layer}.{part}"


def read_map(precision):
    """A word of --precision, the path of a MAP.json, or the map itself."""
    where = ""
    if precision is None or isinstance(precision, str) and precision in WORDS:
        return WORDS[precision or "fp32"]
    if not isinstance(precision, dict):
        where = f"{os.fspath(precision)}: "
        if not where.endswith(".json: "):
            raise Error("invalid", "precision, expected fp32, mixed, mixed-bf16, mixed-fp16, a map or the path of a MAP.json, "
                                   f"got {json_text(os.fspath(precision))}")
        precision = read_json(os.fspath(precision))
        if not isinstance(precision, dict):
            raise Error("invalid", f"{FRONT}{where}expected an object, got {json_text(precision)}")
    for pattern, word in precision.items():
        if word not in TYPES:
            raise Error("invalid", f"{FRONT}{where}{key_text(pattern)}, expected fp32, bf16 or fp16, got {json_text(word)}")
    return precision


class LayerPrecisionManager:
    """The precision of every part of a model, from patterns. Refuses what the device's backend cannot compute."""

    def __init__(self, precision, config, device_target=None):
        self.device_target = device_target or context.get_context("device_target")
        rules = [(pattern, Pattern(pattern), word) for pattern, word in read_map(precision).items()]
        parts = parts_of(config.n_layer)
        matched = [[pattern.matches(*part) for part in parts] for _, pattern, _ in rules]
        for (text, _, _), hits in zip(rules, matched):
            if not any(hits):
                raise Error("invalid", f"{FRONT}pattern {text} matches no part, expected layers 0 to {config.n_layer - 1}")
        self.parts = {}
        for i, part in enumerate(parts):
            hits = sorted((sum(row), at) for at, row in enumerate(matched) if row[i])
            self.parts[part_name(*part)] = self._narrowest(part_name(*part), hits, rules)
        self._check_backend()

    @staticmethod
    def _narrowest(part, hits, rules):
        if not hits:
            return "fp32"
        (width, first), others = hits[0], hits[1:]
        word = rules[first][2]
        for other_width, other in others:
            if other_width == width and rules[other][2] != word:
                raise Error("invalid", f"{FRONT}{part} is {word} by {rules[first][0]} and {rules[other][2]} by "
                                       f"{rules[other][0]}, expected one of them")
        return word

    def _check_backend(self):
        """MindSpore's CPU backend has no product in bf16; rows of a table are chosen in fp32 and can be rounded."""
        for part, word in self.parts.items():
            if self.device_target == "CPU" and word == "bf16" and part != "embedding":
                raise Error("unsupported", f"unsupported precision: {part}: MindSpore's CPU backend multiplies no bf16, "
                                           "expected fp32 or fp16, got bf16")

    def of(self, part):
        """MindSpore's dtype of a part."""
        return TYPES[self.parts[part]]

    @property
    def needs_loss_scale(self):
        return "fp16" in self.parts.values()

    def ranges(self):
        """[pattern, word]: the effective map in as few patterns as say the same."""
        runs = []
        for part, word in self.parts.items():
            found = re.fullmatch(r"layer\.(\d+)\.(.*)", part)
            layer, name = (int(found[1]), found[2]) if found else (-1, part)
            run = next((r for r in runs if layer >= 0 and r[:2] == [name, word] and r[3] + 1 == layer), None)
            if run:
                run[3] = layer
            else:
                runs.append([name, word, layer, layer])
        return [[name if first < 0 else f"layer.{first}.{name}" if first == last else f"layer.{first}-{last}.{name}", word]
                for name, word, first, last in runs]

    def map(self):
        return dict(self.ranges())

    def __str__(self):
        ranges = self.ranges()
        texts = ((word, ", ".join(pattern for pattern, other in ranges if other == word)) for word in ("bf16", "fp16", "fp32"))
        return "; ".join(f"{word}: {text}" for word, text in texts if text)
