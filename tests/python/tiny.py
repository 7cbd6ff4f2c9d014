"""Tiny, the small model of the tests (tests/common/tiny.h), as a HuggingFace folder made from numbers."""
import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

CONFIG = dict(
    model_type="gpt2",
    architectures=["GPT2LMHeadModel"],
    n_layer=2,
    n_head=2,
    n_embd=16,
    n_positions=16,
    vocab_size=97,
    activation_function="gelu_new",
    layer_norm_epsilon=1e-5,
    resid_pdrop=0.0,
    embd_pdrop=0.0,
    attn_pdrop=0.0,
    bos_token_id=96,
    eos_token_id=96,
)
PROMPT = [5, 17, 80, 3, 41, 0, 95, 62, 23, 7, 7, 88]
PROMPT_LOSS = 4.388856175
GREEDY = {
    (3, 91): [55, 44, 41, 35, 44, 27, 40, 3],
    (3, 7): [40, 40, 61, 55, 91, 91, 91, 91],
    (47, 30, 79, 88, 91): [35, 30, 40, 30, 3, 64, 54, 87],
}


def words(stream, count):
    """The 24 top bits of SplitMix64 at counters (stream << 32) + 1 and on."""
    with np.errstate(over="ignore"):
        z = ((np.uint64(stream) << np.uint64(32)) + np.arange(1, count + 1, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return ((z ^ (z >> np.uint64(31))) >> np.uint64(40)).astype(np.int64)


def tensor(stream, shape, centre, scale):
    part = (words(stream, int(np.prod(shape))) - 2**23) / 2.0**23
    return (centre + scale * part).astype(np.float32).reshape(shape)


def weights():
    c = 16
    out = {
        "wte.weight": tensor(0, (97, c), 0, 0.5),
        "wpe.weight": tensor(1, (16, c), 0, 0.125),
        "ln_f.weight": tensor(2, (c,), 1, 0.25),
        "ln_f.bias": tensor(3, (c,), 0, 0.25),
    }
    inner = [
        ("ln_1.weight", (c,), 1, 0.25),
        ("ln_1.bias", (c,), 0, 0.25),
        ("attn.c_attn.weight", (c, 3 * c), 0, 0.5),
        ("attn.c_attn.bias", (3 * c,), 0, 0.25),
        ("attn.c_proj.weight", (c, c), 0, 0.25),
        ("attn.c_proj.bias", (c,), 0, 0.125),
        ("ln_2.weight", (c,), 1, 0.25),
        ("ln_2.bias", (c,), 0, 0.25),
        ("mlp.c_fc.weight", (c, 4 * c), 0, 0.5),
        ("mlp.c_fc.bias", (4 * c,), 0, 0.25),
        ("mlp.c_proj.weight", (4 * c, c), 0, 0.25),
        ("mlp.c_proj.bias", (c,), 0, 0.125),
    ]
    for layer in range(2):
        for j, (name, *rest) in enumerate(inner):
            out[f"h.{layer}.{name}"] = tensor(16 * (layer + 1) + j, *rest)
    return {"transformer." + name: values for name, values in out.items()}


def write(folder, **config):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    save_file(weights(), folder / "model.safetensors", metadata={"format": "pt"})
    return str(folder)


def tokens(count):
    return (words(2000, count) % 97).astype(np.int32)
