"""What the tests of the command line share: the program, small models and data made here, and what an error looks like."""
import json
import os
import struct
import subprocess
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("LAMINA_BINARY", ROOT / "build" / "release" / "lamina"))

LLMC = ROOT / "tests" / "python" / "llmc"  # what stands for llm.c's folder

VERSES = ["In the beginning was the word", "and the word was with the reader", "and the reader was content",
          "The sea is never full of ships", "nor the shore of sand", "a cat sat on the mat", "the mat was warm",
          "and the cat was content with the mat"]


def lamina(*args, env=None, stdin=None, timeout=300, cwd=None):
    """Runs the program; never raises for its exit code."""
    environment = dict(os.environ, **(env or {}))
    return subprocess.run([str(BINARY), *map(str, args)], env=environment, input=stdin, timeout=timeout, cwd=cwd,
                          capture_output=True, check=False)


def ok(*args, **options):
    """Standard output of a run that has to succeed."""
    result = lamina(*args, **options)
    assert result.returncode == 0, result.stderr.decode(errors="replace")
    return result.stdout.decode()


def ok_json(*args, **options):
    """The one JSON object that a run with --json prints."""
    lines = ok(*args, "--json", **options).splitlines()
    assert len(lines) == 1, lines
    value = json.loads(lines[0])
    assert isinstance(value, dict)
    return value


def fails(code, words, *args, **options):
    """A run that has to end with this code and one line that contains the words, letter case aside."""
    result = lamina(*args, **options)
    text = result.stderr.decode()
    assert result.returncode == code, (result.returncode, text)
    lines = text.splitlines()
    errors = [line for line in lines if line.startswith("lamina: error: ")]
    assert len(errors) == 1, text
    after = lines[lines.index(errors[0]) + 1:]
    assert len(after) <= 1 and all(line.startswith("hint: ") for line in after), text
    for word in words:
        assert str(word).lower() in errors[0].lower(), (word, errors[0])
    return errors[0]


def tiny_config(**changes):
    config = {"model_type": "gpt2", "vocab_size": 97, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2,
              "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "resid_pdrop": 0.0, "embd_pdrop": 0.0,
              "attn_pdrop": 0.0, "bos_token_id": 96, "eos_token_id": 96}
    config.update(changes)
    return config


def write_json(path, value):
    path.write_text(json.dumps(value))
    return path


def write_config(path, **changes):
    return write_json(path, tiny_config(**changes))


def write_safetensors(path, tensors):
    """tensors: {name: float32 array}."""
    header, data = {}, b""
    for name, array in tensors.items():
        raw = np.ascontiguousarray(array, dtype="<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def tiny_tensors(seed=0):
    """Weights with HuggingFace's names and shapes."""
    draw = np.random.default_rng(seed)
    C, V, T = 16, 97, 16
    shapes = {"wte.weight": (V, C), "wpe.weight": (T, C), "ln_f.weight": (C,), "ln_f.bias": (C,)}
    for layer in range(2):
        for name, shape in {"ln_1.weight": (C,), "ln_1.bias": (C,), "attn.c_attn.weight": (C, 3 * C),
                            "attn.c_attn.bias": (3 * C,), "attn.c_proj.weight": (C, C), "attn.c_proj.bias": (C,),
                            "ln_2.weight": (C,), "ln_2.bias": (C,), "mlp.c_fc.weight": (C, 4 * C),
                            "mlp.c_fc.bias": (4 * C,), "mlp.c_proj.weight": (4 * C, C), "mlp.c_proj.bias": (C,)}.items():
            shapes[f"h.{layer}.{name}"] = shape
    return {"transformer." + name: draw.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}


def write_tiny(folder, **changes):
    """A model folder without a tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    write_config(folder / "config.json", **changes)
    write_safetensors(folder / "model.safetensors", tiny_tensors())
    return folder


def write_text(path, lines=400):
    path.write_text("".join(f"{VERSES[(i * i + i // 3) % len(VERSES)]}.\n" for i in range(lines)))
    return path


def write_ids(path, count=400, vocab=97, kind="<u2"):
    ids = (np.arange(count) * 7919 + np.arange(count) ** 2) % vocab
    path.write_bytes(ids.astype(kind).tobytes())
    return path
