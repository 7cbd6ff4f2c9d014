"""A model from and to a folder of HuggingFace's or Lamina's: config.json and model.safetensors, its shards and their index, or
model.ckpt; tensors under HuggingFace's names or, as `lamina convert --to mindspore` writes them, Lamina's. What is loaded is
complete and exact, or there is an error with a table. Weights become fp32, which loses nothing of fp16 and bf16; numpy has no
bf16, so that travels as words of 16 bits."""
import json
import os
import re
import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from mindspore import Tensor
from safetensors import SafetensorError, safe_open

from .ckpt import CkptFile
from .config import GPT2Config, json_text, read_json
from .errors import Error, quoted, shown
from .names import FRONT, HEAD, KINDS, Matcher, is_training_state, match_exactly, parameters_of, slot_shape, slots_of

WEIGHTS, INDEX, CKPT = "model.safetensors", "model.safetensors.index.json", "model.ckpt"
TORCH_FILES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
SIZES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I32": "<i4", "I64": "<i8"}
TYPES = {"fp32": ("F32", "float32"), "fp16": ("F16", "float16"), "bf16": ("BF16", "bfloat16")}
FOREIGN = {b"<": "an HTML page, not a model file", b"PK": "a zip file, as PyTorch writes", b"\x80": "a pickle, as older PyTorch writes"}


@dataclass
class LoadReport:
    used: int = 0
    wanted: int = 0
    removed: list = field(default_factory=list)  # what wrappers had put into the names
    ignored: list = field(default_factory=list)  # constant buffers of older files
    warnings: list = field(default_factory=list)

    def __str__(self):
        return f"{self.used} of {self.wanted} tensors, {self.wanted - self.used} left over"


class WeightFile:
    """The library checks the file and gives names, types and shapes; data are read where they lie."""

    def __init__(self, path):
        self.path = path
        try:
            with safe_open(path, framework="np") as file:
                slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118, it is no dict
                self.tensors = [(name, str(part.get_dtype()), list(part.get_shape())) for name, part in slices.items()]
        except FileNotFoundError:
            raise Error("io", f"no weights: {path}: expected a safetensors file, got nothing there") from None
        except (SafetensorError, OSError) as error:
            raise Error("invalid", f"bad safetensors file: {path}: {foreign(path) or error}") from None
        with open(path, "rb") as file:
            (self.front,) = struct.unpack("<Q", file.read(8))
            self.header = json.loads(file.read(self.front))
        self.tensors.sort(key=lambda tensor: self.header[tensor[0]]["data_offsets"])  # the library gives them by name

    def words(self, name):
        """A flat view of a tensor's elements; bf16 as words of 16 bits."""
        kind = np.dtype(SIZES[self.header[name]["dtype"]])
        begin, end = self.header[name]["data_offsets"]
        if begin == end:
            return np.empty(0, kind)
        raw = np.memmap(self.path, np.uint8, "r", 8 + self.front + begin, end - begin)
        return raw.view(kind)


def floats(file, name):
    words = file.words(name)
    if words.dtype == np.uint16:
        return (words.astype(np.uint32) << 16).view(np.float32)
    return words.astype(np.float32)


def foreign(path):
    """What a person may take for weights, named for what it is; None for anything else."""
    with open(path, "rb") as file:
        start = file.read(1024).lstrip()
    pointer = re.match(rb"version https://git-lfs.*?\nsize (\d+)", start, re.DOTALL)
    if pointer:
        return f"expected a safetensors file, got a Git LFS pointer to one of {int(pointer[1])} bytes: git lfs pull fetches it"
    return next((f"expected a safetensors file, got {text}" for magic, text in FOREIGN.items() if start.startswith(magic)), None)


def fail(path, problems):
    """The first few problems of each kind in the one line, all of them in the table."""
    shown, text = [], f"cannot load weights: {path}"
    for kind in KINDS:
        shown += [f"{kind} {line}" for other, line in problems if other == kind][:3]
    hidden = len(problems) - len(shown)
    text += ": " + "; ".join(shown) + (f"; and {hidden} more" if hidden else "")
    raise Error("invalid", text, [f"{kind:10} {line}" for kind, line in problems])


def open_weights(path):
    """The files that hold the weights of a folder, or of a file or index that is named."""
    path = Path(path)
    if path.is_dir():
        if (path / WEIGHTS).exists():
            return [WeightFile(path / WEIGHTS)]
        if not (path / INDEX).exists() and not (path / CKPT).exists():
            other = next((name for name in TORCH_FILES if (path / name).exists()), None)
            hint = f" but {other} (lamina convert {path} OUT --to mindspore makes a folder of it)" if other else ""
            raise Error("io", f"no weights: {path}: expected {WEIGHTS}, {INDEX} or {CKPT}, got none of them{hint}")
        path = path / (INDEX if (path / INDEX).exists() else CKPT)
    if path.name.endswith(".index.json"):
        return open_index(path)
    return [CkptFile(path) if path.suffix == ".ckpt" else WeightFile(path)]


def open_index(path):
    root = read_json(path)
    index = root.get("weight_map") if isinstance(root, dict) else None
    if not isinstance(index, dict):
        raise Error("invalid", f"bad index: {path}: weight_map, expected an object, got {json_text(index)}")
    for shard in index.values():
        if not isinstance(shard, str) or shard in ("", ".", "..") or set(shard) & set("/\\\0"):
            raise Error("invalid", f"bad index: {path}: shard name, expected a file name in the same folder, got "
                                   f"{json_text(shard)}")
    shards = sorted(set(index.values()))
    absent = [quoted(shard) for shard in shards if not (path.parent / shard).exists()]
    if absent:
        raise Error("invalid", f"shard missing: {path}: expected {', '.join(absent)} beside it, got none")
    files = [WeightFile(path.parent / shard) for shard in shards]
    problems = compare_with_index(files, index)
    if problems:
        fail(path, problems)
    return files


def compare_with_index(files, index):
    """What the index says against what the shards hold, both ways."""
    problems, home = [], {}  # tensor -> the shard that holds it
    for file in files:
        for name, _, _ in file.tensors:
            first = home.setdefault(name, file.path.name)
            if first != file.path.name:
                problems.append(("doubled", f"{quoted(name)} is in {first} and {file.path.name}"))
            if name not in index:
                problems.append(("extra", f"{quoted(name)} is in {file.path.name}, not in the index"))
    for name, shard in index.items():
        if home.get(name) != shard:
            other = f": it is in {home[name]}" if name in home else ""
            problems.append(("missing", f"{quoted(name)} from {shard}{other}"))
    return problems


def load_weights(model, path):
    """Every parameter of the model from the file that is its own; returns a LoadReport."""
    files = open_weights(path)
    sources, report = find_sources(model, path, files)
    for file, (stored, _, shape), parameters in sources:
        values = floats(file, stored).reshape(shape)
        sizes = np.cumsum([int(p.shape[-1]) for p in parameters])[:-1]
        for parameter, part in zip(parameters, np.split(values, sizes, axis=-1)):
            parameter.set_data(Tensor(np.ascontiguousarray(part)))
    report.warnings += strays(path, files)
    for kind in ("F16", "BF16"):
        found = [tensor[0] for _, tensor, _ in sources if tensor[1] == kind]
        if found:
            report.warnings.append(f"{path}: {len(found)} of {len(sources)} tensors {'is' if len(found) == 1 else 'are'} {kind} "
                                   f"({quoted(found[0])}{', …' if len(found) > 1 else ''}): converted to fp32 exactly")
    return report


def find_sources(model, path, files):
    """(file, tensor, the parameters that lie side by side in it) for all of the model, and a report; or an error."""
    entries = [(file, tensor) for file in files for tensor in file.tensors if not is_training_state(tensor[0])]
    state = [tensor[0] for file in files for tensor in file.tensors if is_training_state(tensor[0])]
    own = parameters_of(model)
    if 2 * sum(tensor[0] in own for _, tensor in entries) > len(entries):
        problems = match_exactly([tensor for _, tensor in entries], own)
        if problems:
            fail(path, problems)
        sources = [(file, tensor, [own[tensor[0]]]) for file, tensor in entries]
        return sources, LoadReport(len(own), len(own), ignored=state)
    slots = slots_of(model)
    match = Matcher([tensor for _, tensor in entries], slots, model.config)
    if match.problems:
        fail(path, match.problems)
    if match.tied_head is not None:
        check_tie(path, entries[match.source["wte.weight"]], entries[match.tied_head])
    sources = [(*entries[match.source[name]], parameters) for name, parameters in slots.items()]
    return sources, LoadReport(len(slots), len(slots), match.removed, match.ignored + state)


def strays(path, files):
    """Weights in a folder that nothing asked for."""
    used = {file.path.name for file in files} | {"optimizer.safetensors"}  # the moments in a checkpoint
    found = sorted(file for file in Path(path).glob("*.safetensors") if file.name not in used and file.name[0] != ".")
    return [f"{file}: not used" for file in found]


def check_tie(path, table, head):
    values = [floats(file, tensor[0]).view(np.uint32) for file, tensor in (table, head)]
    if not np.array_equal(*values):
        raise Error("invalid", f"cannot load weights: {path}: {quoted(table[1][0])} and {quoted(head[1][0])} differ, and "
                               "tie_word_embeddings true (or absent) makes them one")


def to_words(values, kind, name):
    """fp32 as the bytes of a type: to nearest, ties to even."""
    if kind == "F32":
        return values.astype("<f4")
    if kind == "F16":
        with np.errstate(over="ignore"):
            half = values.astype("<f2")
        if (np.isinf(half) & np.isfinite(values)).any():
            raise Error("invalid", f"cannot save {name}: expected values within fp16, got {np.abs(values).max():g}")
        return half
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16
    quiet = (bits >> 16) | np.where(bits & 0x7F0000, 0, 0x40).astype(np.uint32)  # a NaN stays one, and itself if it can
    return np.where(np.isnan(values), quiet, rounded).astype("<u2")


def check_values(parameters, where, kind="F32"):
    """Refuses what no file may hold, a NaN or an infinity, and what fp16 does not: before anything is written."""
    for name, parameter in parameters.items():
        values = parameter.asnumpy()
        finite = np.isfinite(values)
        if not finite.all():
            raise Error("invalid", f"cannot save {where}: {name}, expected finite numbers, got {values[~finite][0]}")
        if kind == "F16":
            to_words(values, kind, name)


def save_weights(model, path, dtype="fp32"):
    """HuggingFace's names and packing, a tensor in memory at a time; a tied head is not written. Equal weights, equal bytes."""
    kind = TYPES[dtype][0]

    def packed(name, parameters):
        values = np.concatenate([p.asnumpy() for p in parameters], axis=-1)
        return to_words(np.ascontiguousarray(values, np.float32), kind, name)

    slots = {name if name == HEAD else FRONT + name: parameters for name, parameters in slots_of(model).items()}
    write_tensors(path, "pt", [(name, kind, slot_shape(parameters), packed, parameters) for name, parameters in slots.items()])


def write_tensors(path, form, tensors):
    """tensors: (name, type, shape, call, argument); call(name, argument) makes its words when its turn comes. Entries in the
    order of the data, without gaps, as MindSpore's own reader wants them."""
    header, end = {"__metadata__": {"format": form}}, 0
    for name, kind, shape, _, _ in tensors:
        begin, end = end, end + int(np.prod(shape)) * np.dtype(SIZES[kind]).itemsize
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with Replaced(path) as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, _, _, call, argument in tensors:
            file.write(call(name, argument).tobytes())


class Replaced:
    """A file written under a hidden name, flushed to the disk and renamed: whole under its own name, or not there."""

    def __init__(self, path):
        self.path = Path(path)
        self.hidden = self.path.with_name(f".{self.path.name}.{os.getpid()}")

    def __enter__(self):
        self.file = open(self.hidden, "wb")
        return self.file

    def __exit__(self, kind, *_):
        with self.file:
            if kind is None:
                self.file.flush()
                os.fsync(self.file.fileno())
        if kind is None:
            os.replace(self.hidden, self.path)
        else:
            self.hidden.unlink()


def write_json(path, value):
    with Replaced(path) as file:
        file.write((json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


def save_folder(model, folder, dtype="fp32"):
    """config.json with every key that it had, generation_config.json and model.safetensors."""
    if not isinstance(dtype, str) or dtype not in TYPES:
        raise Error("invalid", f"bad value: dtype, expected {', '.join(TYPES)}, got {shown(dtype)}")
    check_values(parameters_of(model), folder, TYPES[dtype][0])
    save_config(model.config, folder, dtype)
    save_weights(model, Path(folder) / WEIGHTS, dtype)


def save_config(config, folder, dtype):
    folder, root = Path(folder), config.to_dict()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Error("io", f"cannot save: {folder}: expected a folder or a place for one, got {error.strerror}") from None
    names = [key for key in ("dtype", "torch_dtype") if key in root] or ["dtype"]
    write_json(folder / "config.json", {**root, **{key: TYPES[dtype][1] for key in names}})
    ids = {key: getattr(config, key) for key in ("bos_token_id", "eos_token_id") if getattr(config, key) is not None}
    if not (folder / "generation_config.json").exists():
        write_json(folder / "generation_config.json", {"do_sample": False, **ids})


def config_beside(path):
    """The config of a folder, or of the folder that a file lies in."""
    path = Path(path)
    if path.is_file() and not (path.parent / "config.json").is_file():
        raise Error("invalid", f"no config.json beside {path}: expected a model folder, got a file alone (lamina convert {path} "
                               "FOLDER --to mindspore makes a folder of it)")
    return GPT2Config.from_pretrained(path if path.is_dir() or not path.exists() else path.parent)
