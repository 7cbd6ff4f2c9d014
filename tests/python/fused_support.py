"""The library of fused layers called as MindSpore calls it, by its C interface, and what its cells are in PyTorch, in any type.
As a program: the bits of all results for the threads that the environment asks for."""
import ctypes
import hashlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
GUARD = 64  # elements around every result, which no call may touch
ATTENTION = ("gamma", "beta", "q.weight", "q.bias", "k.weight", "k.bias", "v.weight", "v.bias", "proj.weight", "proj.bias")
MLP = ("gamma", "beta", "fc.weight", "fc.bias", "proj.weight", "proj.bias")


def library_path():
    build = Path(os.environ.get("LAMINA_BUILD_DIR", ROOT / "build" / "release"))
    return Path(os.environ.get("LAMINA_MINDSPORE_OPS", build.resolve() / "python" / "fused" / "liblamina_mindspore_ops.so"))


def invoke(name, arrays, count=None, dtypes=None):
    """What the entry returns."""
    n = len(arrays)
    data = (ctypes.c_void_p * n)(*[a.ctypes.data for a in arrays])
    ranks = (ctypes.c_int * n)(*[a.ndim for a in arrays])
    shapes = [(ctypes.c_int64 * a.ndim)(*a.shape) for a in arrays]
    pointers = (ctypes.POINTER(ctypes.c_int64) * n)(*[ctypes.cast(s, ctypes.POINTER(ctypes.c_int64)) for s in shapes])
    words = (ctypes.c_char_p * n)(*[word.encode() for word in dtypes or [str(a.dtype) for a in arrays]])
    entry = getattr(ctypes.CDLL(str(library_path())), "lamina_" + name)
    return entry(ctypes.c_int(n if count is None else count), data, ranks, pointers, words, None, None)


def run(name, inputs, outputs):
    """Results by (shape, dtype), each between guards."""
    whole = [np.full(int(np.prod(shape)) + 2 * GUARD, 77, dtype) for shape, dtype in outputs]
    parts = [a[GUARD:-GUARD].reshape(shape) for a, (shape, _) in zip(whole, outputs)]
    code = invoke(name, [*inputs, *parts])
    assert code == 0, (name, code)
    assert all((a[:GUARD] == 77).all() and (a[-GUARD:] == 77).all() for a in whole), f"{name} wrote beside its results"
    return parts


@dataclass
class Case:
    """One layer on B rows of T places."""
    B: int
    T: int
    C: int
    heads: int
    inner: int
    seed: int = 0
    mask: str = "none"  # padded, documents
    attn_pdrop: float = 0.0
    resid_pdrop: float = 0.0
    scale: float = 0.3
    eps: float = 1e-5
    tanh: bool = True

    def parameters(self, names):
        draw = np.random.default_rng([self.seed, len(names)])
        sizes = {"fc": (self.C, self.inner), "proj": (self.C if names is ATTENTION else self.inner, self.C)}
        out = {}
        for name in names:
            shape = sizes.get(name.split(".")[0], (self.C, self.C))
            shape = shape if name.endswith("weight") else shape[-1:]
            out[name] = (draw.normal(0.0, 0.3, shape) + (name == "gamma")).astype(np.float32)
        return out

    def stream(self, which):
        return np.random.default_rng([self.seed, 7, which]).normal(size=(self.B * self.T, self.C)).astype(np.float32)

    def visible(self):
        """(1 or B, T, T): causal, and with a mask, rows that are padded on the left, on the right or whole, or cut in two."""
        causal = np.tril(np.ones((self.T, self.T), bool))
        if self.mask == "none":
            return causal[None]
        place, out = np.arange(self.T), []
        for row in range(self.B):
            cut = (row + 1) * self.T // (self.B + 1)
            same = (place < cut)[:, None] == (place < cut) if self.mask == "documents" else np.ones_like(causal)
            kept = [place >= cut, place < cut, place < 0][row % 3] if self.mask == "padded" else place >= 0
            out.append(causal & same & kept & kept[:, None])
        return np.array(out)

    def settings(self):
        attention = [self.scale, self.eps, self.attn_pdrop, self.resid_pdrop, 1.0]
        return np.array([attention] * self.heads), np.array([self.eps, self.tanh, self.resid_pdrop, 1.0])

    def words(self):
        return np.array([self.seed * 77 - 5, 123456789 - self.seed], np.int32)


def attention_forward(case):
    """Inputs, and y, kept, key_begin."""
    hidden = ~case.visible()[:, None]
    inputs = [case.stream(0), *case.parameters(ATTENTION).values(), hidden, case.words(), case.settings()[0]]
    rows = case.B * case.T
    outputs = [((rows, case.C), np.float32), ((rows * (4 * case.C + case.heads + 2),), np.float32), ((case.B, case.T), np.int32)]
    return inputs, run("attention_forward", inputs, outputs)


def attention_backward(case, inputs, results, dy):
    x, gamma, beta, wq, _, wk, _, wv, _, wp, _, _, seed, settings = inputs
    shapes = [x.shape, *[p.shape for p in inputs[1:11]]]
    return run("attention_backward", [dy, x, gamma, beta, wq, wk, wv, wp, results[1], results[2], seed, settings],
               [(shape, np.float32) for shape in shapes])


def mlp_forward(case):
    inputs = [case.stream(0), *case.parameters(MLP).values(), case.words(), case.settings()[1]]
    rows = case.B * case.T
    return inputs, run("mlp_forward", inputs, [((rows, case.C), np.float32), ((rows * (case.inner + 2),), np.float32)])


def mlp_backward(case, inputs, results, dy):
    x, gamma, beta, fc, _, proj, _, seed, settings = inputs
    shapes = [x.shape, *[p.shape for p in inputs[1:7]]]
    return run("mlp_backward", [dy, x, gamma, beta, fc, proj, results[1], seed, settings],
               [(shape, np.float32) for shape in shapes])


def whole_case(case, cell):
    """y, dx and the gradient of each parameter, by name, of the cell "attention" or "mlp"."""
    forward, backward, names = {"attention": (attention_forward, attention_backward, ATTENTION),
                                "mlp": (mlp_forward, mlp_backward, MLP)}[cell]
    inputs, results = forward(case)
    return dict(zip(("y", "dx", *names), (results[0], *backward(case, inputs, results, case.stream(1)))))


MASK64 = (1 << 64) - 1


def mix64(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
    return z ^ (z >> 31)


def mix32(x):
    x = (x ^ (x >> 16)) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * np.uint32(0x846CA68B)
    return x ^ (x >> 16)


def dropout_factors(words, sample, site, count, p):
    """src/base/rng.h: 0 or 1 / (1 - p) for elements 0, 1, … of a sample and site."""
    key = mix64(int(words[0]) & MASK64)
    for word in (int(words[1]) & MASK64, sample, site):
        key = mix64((key + 0x9E3779B97F4A7C15 * (word + 1)) & MASK64)
    element = np.arange(count, dtype=np.uint32) + np.uint32(key & 0xFFFFFFFF)
    bits = mix32(mix32(element) ^ np.uint32(key >> 32))
    return np.where(bits < np.uint32(p * 4294967296.0), 0.0, 1.0 / (1.0 - p)) if p < 1.0 else np.zeros(count)


CASES = [Case(1, 1, 8, 2, 32), Case(2, 7, 40, 5, 160, mask="padded"), Case(3, 33, 64, 4, 100, mask="documents", tanh=False),
         Case(4, 70, 30, 3, 77, mask="padded", scale=1.0), Case(2, 70, 96, 3, 384, attn_pdrop=0.2, resid_pdrop=0.3),
         Case(1, 3, 4, 1, 6, attn_pdrop=1.0, resid_pdrop=1.0)]


if __name__ == "__main__":
    digest = hashlib.sha256()
    for made in CASES:
        for cell_name in ("attention", "mlp"):
            for values in whole_case(made, cell_name).values():
                digest.update(values.tobytes())
    sys.stdout.write(digest.hexdigest())
