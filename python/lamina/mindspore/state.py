"""The state of training in one file of MindSpore's: model.safetensors with the weights, both moments (adam_m.NAME, adam_v.NAME) and
the counters, as `lamina convert --to mindspore --optimizer` writes and reads it. Its folder is a model folder too.

    global_step   updates            scale_sense             the loss scale, where there is one
    step_num      steps              current_iterator_step   good steps since it changed
"""
from dataclasses import fields
from pathlib import Path

import numpy as np
from mindspore import Tensor

from .errors import Error, quoted
from .files import SIZES, WEIGHTS, check_values, config_beside, fail, floats, open_weights, save_config, write_tensors
from .names import match_exactly, parameters_of

COUNTERS = {"step_num": ("I64", []), "global_step": ("I32", [1]), "scale_sense": ("F32", []), "current_iterator_step": ("I32", [])}
NO_NUMBER_OF_THE_MODEL = ("resid_pdrop", "embd_pdrop", "attn_pdrop", "initializer_range", "bos_token_id", "eos_token_id", "source",
                          "warnings")


def parts_of(model, graph):
    """Name in the file to (parameter, where its values lie): weights, first and second moments. The moments of a parameter
    that is not trained are nowhere, and 0."""
    own = parameters_of(model)
    out = {name: (parameter, parameter) for name, parameter in own.items()}
    for front, moments in (("adam_m.", graph.moments), ("adam_v.", graph.squares)):
        place = {id(weight): moment for weight, moment in zip(graph.weights, moments)}
        out.update({front + name: (parameter, place.get(id(parameter))) for name, parameter in own.items()})
    return out


def save_state(folder, model, graph, counters):
    """`counters`: name to a number; the file is there whole or as it was."""
    parts = parts_of(model, graph)
    check_values({name: place[1] for name, place in parts.items() if place[1] is not None},
                 f"{folder}: step {counters['step_num']}")
    save_config(model.config, folder, "fp32")

    def values(_, place):
        return np.zeros(place[0].shape, "<f4") if place[1] is None else place[1].asnumpy().astype("<f4", copy=False)

    numbers = [(name, *COUNTERS[name], lambda name, value: np.array(value, SIZES[COUNTERS[name][0]]), counters[name])
               for name in COUNTERS if name in counters]
    tensors = [(name, "F32", [int(size) for size in place[0].shape], values, place)
               for name, place in parts.items()]
    write_tensors(Path(folder) / WEIGHTS, "ms", numbers + tensors)


def load_state(path, model, graph):
    """Puts weights and moments in their places and returns the counters; or an error, and nothing has changed."""
    check_config(path, model.config)
    entries = {tensor[0]: (file, tensor) for file in open_weights(path) for tensor in file.tensors}
    if not any(name.startswith("adam_m.") for name in entries):
        raise Error("invalid", f"no optimizer state: {path}: expected adam_m and adam_v of every parameter beside the weights, got "
                               "none: lamina convert --to mindspore --optimizer writes them")
    parts = parts_of(model, graph)
    problems = match_exactly([tensor for name, (_, tensor) in entries.items() if name not in COUNTERS],
                             {name: place[0] for name, place in parts.items()})
    if "global_step" not in entries:
        problems.append(("missing", '"global_step" [1]'))
    if problems:
        fail(path, problems)
    counters = {name: number(path, *entries[name]) for name in COUNTERS if name in entries}
    for name, (_, place) in parts.items():
        if place is not None:
            place.set_data(Tensor(np.ascontiguousarray(floats(entries[name][0], name).reshape(place.shape))))
    return counters


def number(path, file, tensor):
    name, dtype, shape = tensor
    if dtype not in ("I32", "I64", "F32") or int(np.prod(shape)) != 1:
        raise Error("invalid", f"bad state: {path}: {quoted(name)}, expected one number, got {dtype} {shape}")
    value = file.words(name)[0].item()
    if not 0 <= value < 2**63:
        raise Error("invalid", f"bad state: {path}: {quoted(name)}, expected a number from 0 on, got {value}")
    return value if name == "scale_sense" else int(value)


def check_config(path, config):
    """The file's shapes say most of it, but not the heads, nor what GELU and scores are."""
    stored = config_beside(path)
    for entry in fields(config):
        ours, theirs = getattr(config, entry.name), getattr(stored, entry.name)
        if entry.name not in NO_NUMBER_OF_THE_MODEL and ours != theirs:
            raise Error("invalid", f"state of another model: {path}: {entry.name}, expected {ours}, got {theirs}")
