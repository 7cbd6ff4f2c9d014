"""GPT2Layer by Lamina's kernels, on MindSpore's CPU backend: one custom operator each way for the attention cell and for the
MLP cell (python/fused/cells.h has their inputs and outputs). fp32; parameters are those of GPT2Layer, by name, shape and value.

Operators come from liblamina_mindspore_ops.so beside this file, or from the library that LAMINA_MINDSPORE_OPS names. It has
threads of its own: LAMINA_THREADS of them, else one for each processor."""
import os
from pathlib import Path

from mindspore import Tensor, context, nn, ops
from mindspore import dtype as mstype

from .cells import GPT2Layer, precision_of, scale_of
from .errors import Error
from .precision import LAYER_PARTS

LIBRARY = "liblamina_mindspore_ops.so"
VARIABLE = "LAMINA_MINDSPORE_OPS"
MOST = 2**31 - 1


def library():
    """The path of the library, as MindSpore takes it: it cuts at a colon."""
    named = os.environ.get(VARIABLE)
    path = (Path(named) if named else Path(__file__).with_name(LIBRARY)).absolute()
    if not path.is_file():
        raise Error("io", f"the library of fused layers is missing: {path}, expected that of Lamina's wheel, or {VARIABLE} to "
                          "name another")
    if ":" in str(path):
        raise Error("unsupported", f"MindSpore cannot load the library of fused layers: {path}, expected a path without ':'")
    return str(path)


def check_shape(what, shape, expected):
    if list(shape) != list(expected):
        raise Error("invalid", f"bad input of a fused layer: {what}, expected shape {list(expected)}, got {list(shape)}")


def check_types(what, types, expected=mstype.float32):
    for dtype in types:
        if dtype.element_type() != expected:
            raise Error("invalid", f"bad input of a fused layer: {what}, expected {expected}, got {dtype.element_type()}")


def check_rows(x, width):
    if len(x) != 2 or x[1] != width or x[0] < 1:
        raise Error("invalid", f"bad input of a fused layer: x, expected shape [B*T, {width}], got {list(x)}")


def check_mask(hidden, rows):
    """(1 or B, 1, T, T) for rows of B·T."""
    seq = hidden[-1] if len(hidden) == 4 else 0
    if seq < 1 or rows % seq != 0 or hidden[0] not in (1, rows // seq) or list(hidden[1:]) != [1, seq, seq]:
        raise Error("invalid", f"bad input of a fused layer: what is hidden, expected shape [1 or B, 1, T, T] with B*T of "
                               f"{rows}, got {list(hidden)}")


def with_biases(weights):
    """The shapes of weights, each with its bias after it."""
    return [shape for weight in weights for shape in (weight, weight[1:])]


class Cell:
    """One cell's operators: `forward` knows `backward`. MindSpore calls `shapes` and `dtypes` where it infers them, so that what
    is wrong there is said before anything runs. PyNative keeps the answer for all cells of a process, by the shapes of the inputs:
    nothing else may decide it."""

    def __init__(self, name, gradients, bprop):
        """`gradients`: which inputs of `backward` have the shapes of its results, weights with their biases."""
        norm, weights = gradients
        path = f"{library()}:lamina_{name}_"
        self.backward = ops.Custom(path + "backward", lambda *s: (s[1], *s[norm], *with_biases(s[weights])),
                                   lambda dy, *others: (dy,) * (3 + 2 * (weights.stop - weights.start)), func_type="aot")
        self.forward = ops.Custom(path + "forward", self.shapes, self.dtypes, func_type="aot", bprop=bprop(self.backward))


class AttentionCell(Cell):
    def __init__(self, config):
        self.width = config.n_embd
        super().__init__("attention", (slice(2, 4), slice(4, 8)), self.bprop_of)

    @staticmethod
    def bprop_of(backward):
        def bprop(x, gamma, beta, wq, bq, wk, bk, wv, bv, wp, bp, hidden, seed, settings, out, dout):
            found = backward(dout[0], x, gamma, beta, wq, wk, wv, wp, out[1], out[2], seed, settings)
            return (*found, hidden, seed, settings)  # nobody reads gradients of the last three

        return bprop

    def shapes(self, x, gamma, beta, wq, bq, wk, bk, wv, bv, wp, bp, hidden, seed, settings):
        check_rows(x, self.width)
        check_mask(hidden, x[0])
        for name, weight, bias in (("q", wq, bq), ("k", wk, bk), ("v", wv, bv), ("proj", wp, bp)):
            check_shape(name + ".weight", weight, [self.width] * 2)
            check_shape(name + ".bias", bias, [self.width])
        return x, [x[0] * (4 * x[1] + settings[0] + 2)], [x[0] // hidden[3], hidden[3]]

    def dtypes(self, *types):
        check_types("x or a parameter", types[:11])
        check_types("what is hidden", types[11:12], mstype.bool_)
        return types[0], types[0], mstype.int32


class MlpCell(Cell):
    def __init__(self, config):
        self.width, self.inner = config.n_embd, config.inner
        super().__init__("mlp", (slice(2, 4), slice(4, 6)), self.bprop_of)

    @staticmethod
    def bprop_of(backward):
        def bprop(x, gamma, beta, wf, bf, wp, bp, seed, settings, out, dout):
            found = backward(dout[0], x, gamma, beta, wf, wp, out[1], seed, settings)
            return (*found, seed, settings)  # nobody reads gradients of the last two

        return bprop

    def shapes(self, x, gamma, beta, wf, bf, wp, bp, seed, settings):
        check_rows(x, self.width)
        for name, shape, expected in (("fc.weight", wf, [self.width, self.inner]), ("fc.bias", bf, [self.inner]),
                                      ("proj.weight", wp, [self.inner, self.width]), ("proj.bias", bp, [self.width])):
            check_shape(name, shape, expected)
        return x, [x[0] * (wf[1] + 2)]

    def dtypes(self, *types):
        check_types("x or a parameter", types[:7])
        return types[0], types[0]


class Seed(nn.Cell):
    """Two random words for the dropouts of one run of a layer: MindSpore's own draw, so that ms.set_seed decides."""

    def __init__(self):
        super().__init__()
        self.draw = ops.UniformInt()
        self.least, self.most = Tensor(0, mstype.int32), Tensor(MOST, mstype.int32)

    def construct(self):
        return self.draw((2,), self.least, self.most)


def check_settings(index, precision):
    """What the kernels of this layer would not do is refused when it is made."""
    target = context.get_context("device_target")
    if target != "CPU":
        raise Error("unsupported", f"fused layers run on the CPU: device target, expected CPU, got {target}; GPT2Layer runs on "
                                   "all")
    for name in LAYER_PARTS:
        part = f"layer.{index}.{name}"
        if precision.of(part) != mstype.float32:
            raise Error("unsupported", f"unsupported precision of a fused layer: {part}, expected fp32, got "
                                       f"{precision.parts[part]}; GPT2Layer has the others")


class FusedGPT2Layer(GPT2Layer):
    """GPT2Layer, each of its two cells by one operator. Masks must let each query see one run of keys that ends at itself."""

    def __init__(self, config, index=0, precision=None, seed=0):
        precision = precision_of(precision, config)
        check_settings(index, precision)
        super().__init__(config, index, precision, seed)
        self.attend, self.feed = AttentionCell(config).forward, MlpCell(config).forward
        self.drops = config.attn_pdrop > 0.0 or config.resid_pdrop > 0.0
        self.draw, self.none = Seed() if self.drops else None, Tensor([0, 0], mstype.int32)
        attention = [scale_of(config, index), config.layer_norm_epsilon, config.attn_pdrop, config.resid_pdrop]
        mlp = [config.layer_norm_epsilon, float(config.tanh), config.resid_pdrop]
        self.attention_settings = [Tensor([[*attention, training]] * config.n_head, mstype.float64) for training in (0.0, 1.0)]
        self.mlp_settings = [Tensor([*mlp, training], mstype.float64) for training in (0.0, 1.0)]

    def construct(self, x, mask, seq):
        a, m = self.attention, self.mlp
        mode = 1 if self.training and self.drops else 0
        seed = self.draw() if mode == 1 else self.none
        x = self.attend(x, self.ln_1.gamma, self.ln_1.beta, a.q.weight, a.q.bias, a.k.weight, a.k.bias, a.v.weight, a.v.bias,
                        a.proj.weight, a.proj.bias, mask[1], seed, self.attention_settings[mode])[0]
        return self.feed(x, self.ln_2.gamma, self.ln_2.beta, m.fc.weight, m.fc.bias, m.proj.weight, m.proj.bias, seed,
                         self.mlp_settings[mode])[0]
