"""GPT2Layer by Lamina's kernels, on MindSpore's CPU backend: one custom operator each way for the attention cell and for the
MLP cell (python/fused/cells.h has their inputs and outputs). fp32; parameters are those of GPT2Layer, by name, shape and value.

Operators come from liblamina_mindspore_ops.so beside this file, or from the library that LAMINA_MINDSPORE_OPS names. It has threads of
its own: LAMINA_THREADS of them, else one for each processor."""
import os
from pathlib import Path

import numpy as np
from mindspore import Tensor, nn, ops
from mindspore import dtype as mstype

from .cells import GPT2Layer, precision_of, scale_of
from .errors import Error

LIBRARY = "liblamina_mindspore_ops.so"
VARIABLE = "LAMINA_MINDSPORE_OPS"


def library():
    """The path of the library, as MindSpore takes it: without a colon, which it would cut there."""
    named = os.environ.get(VARIABLE)
    path = Path(named) if named else Path(__file__).with_name(LIBRARY)
    if not path.is_file():
        raise Error("io", f"the fused layer's library is missing: {path}, expected the one of Lamina's wheel or that {VARIABLE} names")
    path = str(path.resolve())
    if ":" in path:
        raise Error("unsupported", f"the fused layer's library lies where MindSpore cannot load it: {path}, expected a path without ':'")
    return path


def operator(name, shapes, dtypes, bprop=None):
    return ops.Custom(f"{library()}:lamina_{name}", shapes, dtypes, func_type="aot", bprop=bprop)


def check(what, shape, expected, dtype, expected_dtype=mstype.float32):
    if list(shape) != list(expected) or dtype != expected_dtype:
        raise Error("invalid", f"bad input of a fused layer: {what}, expected {expected_dtype} {tuple(expected)}, got {dtype} {tuple(shape)}")


def attention_operator(heads):
    """Its forward operator, which knows its backward one. Shapes are checked where MindSpore infers them."""
    def kept(x):
        rows, width = x
        return rows * (4 * width + heads + 2)

    def shapes(x, *others):
        return x, [kept(x)], [x[0] // others[10][3], others[10][3]]

    def dtypes(x, *others):
        return x, x, mstype.int32

    backward = operator("attention_backward", lambda dy, x, *others: (x, *others[:2], *pairs(others[2:6])),
                        lambda dy, *others: (dy,) * 11)

    def bprop(x, gamma, beta, wq, bq, wk, bk, wv, bv, wp, bp, hidden, seed, settings, out, dout):
        grads = backward(dout[0], x, gamma, beta, wq, wk, wv, wp, out[1], out[2], seed, settings)
        return (*grads, hidden, seed, settings)

    return operator("attention_forward", shapes, dtypes, bprop)


def pairs(weights):
    """The shapes of weights and their biases."""
    return [shape for weight in weights for shape in (weight, weight[1:])]


def mlp_operator():
    def shapes(x, gamma, beta, fc, *others):
        return x, [x[0] * (fc[1] + 2)]

    backward = operator("mlp_backward", lambda dy, x, *others: (x, *others[:2], *pairs(others[2:4])), lambda dy, *others: (dy,) * 7)

    def bprop(x, gamma, beta, wf, bf, wp, bp, seed, settings, out, dout):
        grads = backward(dout[0], x, gamma, beta, wf, wp, out[1], seed, settings)
        return (*grads, seed, settings)

    return operator("mlp_forward", shapes, lambda x, *others: (x, x), bprop)


class FusedGPT2Layer(GPT2Layer):
    def __init__(self, config, index=0, precision=None, seed=0):
        super().__init__(config, index, precision, seed)
        self.attend, self.feed = attention_operator(config.n_head), mlp_operator()
        self.attention_settings = Tensor([config.n_head, scale_of(config, index), config.layer_norm_epsilon, 0, 0, 0], mstype.float64)
        self.mlp_settings = Tensor([config.layer_norm_epsilon, float(config.tanh), 0, 0], mstype.float64)
        self.zero = Tensor([0, 0], mstype.int32)

    def construct(self, x, mask, seq):
        a, m = self.attention, self.mlp
        x = self.attend(x, self.ln_1.gamma, self.ln_1.beta, a.q.weight, a.q.bias, a.k.weight, a.k.bias, a.v.weight, a.v.bias,
                        a.proj.weight, a.proj.bias, mask[1], self.zero, self.attention_settings)[0]
        return self.feed(x, self.ln_2.gamma, self.ln_2.beta, m.fc.weight, m.fc.bias, m.proj.weight, m.proj.bias, self.zero,
                         self.mlp_settings)[0]
