"""Which tensor of a HuggingFace GPT-2 is which parameter of the cells, and whether a file's names are exactly a GPT-2's: what
src/io/model_names.cc decides. A front common to all names and the parts that wrappers put in are taken off; every parameter has
one source, every tensor one use, and nothing is matched by its ending alone. Lamina's own names, as `lamina convert --to
mindspore` writes them, are taken as they are."""
import re
from collections import Counter

from .errors import quoted

WRAPPERS = ("module", "_module", "_orig_mod", "_forward_module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
HEAD, FRONT = "lm_head.weight", "transformer."
EXACT = ("F32", "F16", "BF16")
STATE_ROOTS = ("optimizer", "optimizer_state_dict", "lr_scheduler", "scheduler", "scaler", "opt_param_scheduler", "rng_state",
               "adam_m", "adam_v", "moment1", "moment2", "exp_avg", "exp_avg_sq", "max_exp_avg_sq")
STATE_NAMES = ("global_step", "learning_rate", "beta1_power", "beta2_power", "state_step", "scale_sense", "current_iterator_step",
               "last_overflow_iterator_step", "epoch_num", "step_num", "best_val_loss")
KINDS = ("doubled", "layers", "missing", "extra", "misshapen", "mistyped")
MOST_PARTS = 5  # "h.0.attn.c_attn.weight"


def norm_slots(front, norm):
    return {f"{front}.weight": [norm.gamma], f"{front}.bias": [norm.beta]}


def dense_slots(front, *cells):
    return {f"{front}.weight": [cell.weight for cell in cells], f"{front}.bias": [cell.bias for cell in cells]}


def slots_of(model):
    """HuggingFace's name, without a front, to the parameters that lie side by side in the tensor: c_attn holds three. In the
    order of the state dict. Found by the place in the model, so that whatever holds the model may rename its parameters."""
    body = model.model
    slots = {"wte.weight": [body.embedding.token], "wpe.weight": [body.embedding.position]}
    for i, layer in enumerate(body.layer):
        attention, mlp = layer.attention, layer.mlp
        slots.update(norm_slots(f"h.{i}.ln_1", layer.ln_1))
        slots.update(dense_slots(f"h.{i}.attn.c_attn", attention.q, attention.k, attention.v))
        slots.update(dense_slots(f"h.{i}.attn.c_proj", attention.proj))
        slots.update(norm_slots(f"h.{i}.ln_2", layer.ln_2))
        slots.update(dense_slots(f"h.{i}.mlp.c_fc", mlp.fc))
        slots.update(dense_slots(f"h.{i}.mlp.c_proj", mlp.proj))
    slots.update(norm_slots("ln_f", body.ln_f))
    if not model.tied:
        slots[HEAD] = [model.head]
    return slots


def parameters_of(model):
    """Lamina's name, which is that of the parameter unless something that holds the model has changed it, to the parameter."""
    body = model.model
    out = {"embedding.token": body.embedding.token, "embedding.position": body.embedding.position}
    for i, layer in enumerate(body.layer):
        attention, mlp = layer.attention, layer.mlp
        cells = {"ln_1": layer.ln_1, "attention.q": attention.q, "attention.k": attention.k, "attention.v": attention.v,
                 "attention.proj": attention.proj, "ln_2": layer.ln_2, "mlp.fc": mlp.fc, "mlp.proj": mlp.proj}
        for name, cell in cells.items():
            parts = ("gamma", "beta") if name.startswith("ln_") else ("weight", "bias")
            out.update({f"layer.{i}.{name}.{part}": getattr(cell, part) for part in parts})
    out.update({"ln_f.gamma": body.ln_f.gamma, "ln_f.beta": body.ln_f.beta})
    if not model.tied:
        out["head.weight"] = model.head
    return out


def is_training_state(name):
    """What optimizers and loss scales put among the weights."""
    root, dot, _ = name.partition(".")
    return root in STATE_ROOTS if dot else name in STATE_NAMES


def match_exactly(tensors, wanted):
    """The problems where the tensors (name, dtype, shape) are not exactly what is wanted: name to parameter or moment."""
    problems, found = [], {name: (dtype, shape) for name, dtype, shape in tensors}
    for name, parameter in wanted.items():
        expected = [int(size) for size in parameter.shape]
        dtype, shape = found.pop(name, (None, None))
        if dtype is None:
            problems.append(("missing", f"{quoted(name)} {expected}"))
        elif shape != expected:
            problems.append(("misshapen", f"{quoted(name)} has shape {shape}, expected {expected}"))
        elif dtype not in EXACT:
            problems.append(("mistyped", f"{quoted(name)} has type {dtype}, expected F32, F16 or BF16"))
    return problems + [("extra", f"{quoted(name)} {shape} is no tensor of this model") for name, (_, shape) in found.items()]


def slot_shape(parameters):
    shape = [int(size) for size in parameters[0].shape]
    return [*shape[:-1], sum(int(p.shape[-1]) for p in parameters)]


def layer_of(name):
    found = re.match(r"h\.(0|[1-9]\d{0,8})\.(.*)", name, re.ASCII | re.DOTALL)
    return (int(found[1]), found[2]) if found else (None, name)


class Matcher:
    """`tensors`: (name, dtype, shape) of each tensor of a file. Afterwards `source` is the index of each slot's tensor,
    `tied_head` that of a head in the file of a tied model, and `problems` (kind, line) is empty where all fits."""

    def __init__(self, tensors, slots, config):
        self.tensors, self.slots, self.config = tensors, slots, config
        self.source, self.problems, self.ignored, self.removed, self.layers = {}, [], [], [], set()
        self.inner = {layer_of(name)[1] for name in slots if layer_of(name)[0] is not None}
        self.plain = [[part for i, part in enumerate(parts) if i + 1 == len(parts) or part not in WRAPPERS]
                      for parts in (name.split(".") for name, _, _ in tensors)]
        self.fronts = [self.find_front(parts) for parts in self.plain]
        counts = Counter(front for front in self.fronts if front is not None)
        self.front = max(counts, key=lambda front: (counts[front], front == FRONT), default=FRONT)
        usual = self.front == FRONT or self.front.endswith("." + FRONT)
        self.parent = self.front[:-len(FRONT)] if usual else self.front
        self.foreign = [i for i in range(len(tensors)) if self.place(i)]
        spelt = [self.other_spelling(i) for i in self.foreign]
        self.count_layers()
        if HEAD not in slots and HEAD in self.source and "wte.weight" not in self.source:  # saved once, under this one of both names
            self.source["wte.weight"] = self.source.pop(HEAD)
        self.collect(set(spelt))
        self.tied_head = self.source.pop(HEAD, None) if HEAD not in slots else None
        if self.tied_head is not None:
            self.check(self.tied_head, HEAD, slot_shape(slots["wte.weight"]))
        self.problems.sort(key=lambda problem: KINDS.index(problem[0]))

    def knows(self, name):
        layer, rest = layer_of(name)
        if layer is None:
            return name != HEAD and name in self.slots
        return rest in self.inner or rest in ("attn.bias", "attn.masked_bias")

    def find_front(self, parts):
        for i in range(max(0, len(parts) - MOST_PARTS), len(parts)):
            if self.knows(".".join(parts[i:])):
                return "".join(part + "." for part in parts[:i])
        return None

    def problem(self, kind, text):
        self.problems.append((kind, text))

    def name(self, i):
        return quoted(self.tensors[i][0])

    def place(self, i):
        """Decides what tensor i is; True for a GPT-2's name with another front."""
        text = ".".join(self.plain[i])
        if text == self.parent + HEAD:
            self.claim(HEAD, i)
            return False
        rest = text[len(self.front):] if text.startswith(self.front) else None
        layer, inner = layer_of(rest or "")
        if layer is not None:
            self.layers.add(layer)
            if layer >= self.config.n_layer:
                return False  # told by count_layers
        if rest is not None and self.knows(rest):
            if layer is not None and inner not in self.inner:
                self.place_buffer(i, inner)
            else:
                self.claim(rest, i)
            return False
        if self.fronts[i] is not None and self.fronts[i] != self.front:
            return True
        self.problem("extra", f"{self.name(i)} {self.tensors[i][2]} is no tensor of this model")
        return False

    def place_buffer(self, i, rest):
        """Constants of older files: by their exact names and shapes."""
        shape, size = self.tensors[i][2], self.config.n_positions
        expected = [1, 1, size, size] if rest == "attn.bias" else []
        if shape != expected:
            self.problem("misshapen", f"{self.name(i)} has shape {shape}, expected {expected} of this constant buffer")
        else:
            self.ignored.append(self.tensors[i][0])

    def claim(self, wanted, i):
        first = self.source.setdefault(wanted, i)
        if first != i:
            self.problem("doubled", f"{self.name(first)} and {self.name(i)} are the same tensor")
        self.note_removed(i, wanted)

    def note_removed(self, i, wanted):
        """The runs of parts that are not in the usual name, each run once: "_orig_mod.module."."""
        front = self.parent if wanted == HEAD or self.front == self.parent else self.front[:-len(FRONT)]
        strange, run = front.count("."), ""
        parts = self.tensors[i][0].split(".")
        for part in parts:
            if part in WRAPPERS and part is not parts[-1]:
                run += part + "."
            elif strange > 0:
                strange, run = strange - 1, run + part + "."
            else:
                self.removed += [run] if run and run not in self.removed else []
                run = ""

    def other_spelling(self, i):
        rest = ".".join(self.plain[i])[len(self.fronts[i]):]
        if rest in self.source:
            self.problem("doubled", f"{self.name(self.source[rest])} and {self.name(i)} are the same tensor")
        elif i == self.foreign[0]:
            self.problem("doubled", f"names of two spellings: {self.fronts.count(self.front)} of {len(self.tensors)} begin "
                                    f"with {quoted(self.front)}, others do not, as {self.name(i)}")
        return rest

    def count_layers(self):
        wanted = set(range(self.config.n_layer))
        absent, beyond = sorted(wanted - self.layers), sorted(self.layers - wanted)
        text = f"n_layer {self.config.n_layer}, the file holds {len(self.layers)} layer{'' if len(self.layers) == 1 else 's'}"
        for label, layers in (("missing", absent), ("no place for", beyond)):
            if layers:
                names = ", ".join(f"{self.front}h.{layer}.*" for layer in layers[:3])
                text += f": {label} {names}" + (f", … ({len(layers)} in all)" if len(layers) > 3 else "")
        if absent or beyond:
            self.problem("layers", text)

    def collect(self, otherwise_spelt):
        for name, parameters in self.slots.items():
            layer = layer_of(name)[0]
            shape = slot_shape(parameters)
            if name in self.source:
                self.check(self.source[name], name, shape)
            elif name == HEAD:
                self.problem("missing", f"{quoted(self.parent + HEAD)} {shape}, which tie_word_embeddings false asks for")
            elif name not in otherwise_spelt and (layer is None or layer in self.layers):
                self.problem("missing", f"{quoted(self.front + name)} {shape}")

    def check(self, i, name, shape):
        table = f" (vocab_size {self.config.vocab_size})" if name in ("wte.weight", HEAD) else ""
        if self.tensors[i][2] != shape:
            self.problem("misshapen", f"{self.name(i)} has shape {self.tensors[i][2]}, expected {shape}{table}")
        if self.tensors[i][1] not in EXACT:
            self.problem("mistyped", f"{self.name(i)} has type {self.tensors[i][1]}, expected F32, F16 or BF16")
