"""AdamW step by step: rates, the loss scale, what an update says, and what is refused before one. What is computed is in step_graph.py."""
import math
from dataclasses import dataclass

import numpy as np
from mindspore import Tensor
from mindspore import dtype as mstype

from .accumulate import AccumulatedStep
from .errors import Error, array_of, shown
from .masks import check_mask, check_runs
from .state import load_state, save_state
from .step_graph import WholeStep

LARGEST = float(np.finfo(np.float32).max)  # what a rate is taken in
FIRST_SCALE, GOOD_STEPS_TO_GROW = 65536.0, 2000  # torch.amp.GradScaler's schedule, with 1 as the floor


class AdamW:
    """The rate, epsilon and decay of update t with which Adam without correction of bias makes torch.optim.AdamW's update:
    lr·(m/c1 / (√(v/c2) + eps) + wd·w) = lr'·(m / (√v + eps') + wd'·w). Its kernel knows the betas in fp32 and takes 1 - beta
    of those, so the corrections do too: else the first steps are off by 6e-6."""

    def __init__(self, betas, eps, weight_decay):
        self.betas = [float(np.float32(beta)) for beta in betas]
        self.eps, self.weight_decay = eps, weight_decay

    def settings(self, update, rate):
        c1, c2 = (1.0 - beta**update for beta in self.betas)
        root = math.sqrt(c2)
        values = (rate * root / c1, *self.betas, self.eps * root, self.weight_decay * c1 / root)
        return tuple(Tensor(value, mstype.float32) for value in values)


@dataclass
class StepResult:
    step: int
    loss: float
    grad_norm: float  # of the true gradient, before the clip
    tokens: int       # valid targets
    lr: float
    finite: bool      # False: the step changed nothing
    loss_scale: float


class TrainStep:
    """step(ids, targets) makes one step and returns a StepResult. Names and defaults are those of `lamina train`.

    lr: a number, or a function from the step (the first is 1) to one. clip: the largest norm of the whole gradient, 0 for none;
    it acts on the true gradient, inside the graph, and nothing comes after it. Matrices and tables decay, biases and LayerNorm
    do not. A step without a target changes nothing, nor does one whose loss or gradient is not finite; `max_skips` of these in a
    row are an error. With fp16 somewhere in the model's precision the loss is scaled, and an overflow halves the scale and does
    not count. A step puts the model into training mode. `accumulate` micro-batches make a step: its rows are cut into as many
    equal parts, whose gradients are added up."""

    def __init__(self, model, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, clip=0.0, max_skips=5, accumulate=1):
        check_settings(betas, eps, weight_decay, clip, max_skips, accumulate)
        self.model, self.lr, self.clip, self.max_skips = model, lr, clip, max_skips
        self.scaled = model.precision.needs_loss_scale
        self.scale = FIRST_SCALE if self.scaled else 1.0
        self.adamw = AdamW(betas, eps, weight_decay)
        self.accumulate = int(accumulate)
        self.graph = make_graph(model, self.accumulate)
        self.graph.set_train()
        self.steps = self.updates = self.skips = self.good = 0

    def __call__(self, ids, targets, attention_mask=None, position_ids=None):
        check_batch(ids, targets, self.model.config, self.accumulate)
        check_positions(position_ids, tuple(np.shape(ids)), self.model.config.n_positions)
        if attention_mask is not None and not isinstance(attention_mask, Tensor):
            check_mask(attention_mask, *np.shape(ids))
            if self.model.fused:
                check_runs(attention_mask)
        rate = self._rate(self.steps + 1)
        scale = self.scale
        if not self.model.training:
            self.graph.set_train()
        clip = Tensor(self.clip if self.clip > 0.0 else math.inf, mstype.float32)
        optional = () if attention_mask is None and position_ids is None else (_tensor(attention_mask), _ids(position_ids))
        loss, norm, count, parts = self.graph(_ids(ids), _ids(targets), Tensor(scale, mstype.float32), clip,
                                              *self.adamw.settings(self.updates + 1, rate), *optional)
        self.steps += 1
        loss, norm, tokens = float(loss.asnumpy()), float(norm.asnumpy()), int(count.asnumpy())
        finite = math.isfinite(loss) and math.isfinite(norm)
        if tokens > 0:
            self._after(finite, math.isfinite(loss), parts)
        return StepResult(self.steps, loss, norm, tokens, rate, finite, scale)

    def save(self, folder):
        """Weights, moments and counters as a model folder, whose model.safetensors is there whole or as it was."""
        counters = {"global_step": [self.updates], "step_num": self.steps}
        if self.scaled:
            counters.update(scale_sense=self.scale, current_iterator_step=self.good)
        save_state(folder, self.model, self.graph, counters)

    def load(self, folder):
        """What `save` or `lamina convert --to mindspore --optimizer` wrote, strictly. Settings and the rate are the caller's."""
        counters = load_state(folder, self.model, self.graph)
        self.updates, self.skips = counters["global_step"], 0
        self.steps = counters.get("step_num", self.updates)
        if self.scaled:
            self.scale, self.good = counters.get("scale_sense", FIRST_SCALE), counters.get("current_iterator_step", 0)

    def _rate(self, step):
        rate = self.lr(step) if callable(self.lr) else self.lr
        if not is_number(rate) or not 0.0 <= rate <= LARGEST:
            raise Error("invalid", f"bad value: lr of step {step}, expected a finite number from 0 to {LARGEST} or a function from "
                                   f"the step to one, got {shown(rate)}")
        return float(rate)

    def _after(self, finite, finite_loss, parts):
        """An overflow is a gradient that is not finite of a loss that is."""
        if finite:
            self.updates, self.skips, self.good = self.updates + 1, 0, self.good + 1
            if self.scaled and self.good == GOOD_STEPS_TO_GROW:
                self.scale, self.good = 2.0 * self.scale, 0
            return
        self.good = 0
        if self.scaled and finite_loss and self.scale > 1.0:
            self.scale /= 2.0
            return
        self.skips += 1
        if self.skips >= self.max_skips:
            raise Error("invalid", f"step {self.steps}: loss or gradient is not finite, expected at most {self.max_skips - 1} "
                                   f"such steps in a row, got {self.skips}; first in {self._culprit(parts.asnumpy())}")

    def _culprit(self, parts):
        bad = [w.name for w, part in zip(self.graph.weights, parts) if not math.isfinite(part)]
        return f"the gradient of {bad[0]}" if bad else "the sum of all squares" if math.isfinite(parts.sum()) else "the loss"


def is_number(value):
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and abs(value) < math.inf


def make_graph(model, accumulate):
    return WholeStep(model) if accumulate == 1 else AccumulatedStep(model, accumulate)


def check_settings(betas, eps, weight_decay, clip, max_skips, accumulate):
    """The ranges of `lamina train`; eps above 0, since MindSpore's kernel divides by it where nothing was ever learnt."""
    if np.shape(array_of("bad value: betas", betas)) != (2,):
        raise Error("invalid", f"bad value: betas, expected two numbers from 0 to below 1, got {shown(betas)}")
    wanted = [("eps", eps, "a number above 0", lambda x: x > 0.0), ("clip", clip, "a number from 0 on", lambda x: x >= 0.0),
              ("weight_decay", weight_decay, f"a number from 0 to {LARGEST}", lambda x: 0.0 <= x <= LARGEST)]
    wanted += [("betas", beta, "two numbers from 0 to below 1", lambda x: 0.0 <= x < 1.0) for beta in betas]
    wanted += [(name, value, "a whole number from 1 on", lambda x: x >= 1 and x == int(x))
               for name, value in (("max_skips", max_skips), ("accumulate", accumulate))]
    for name, value, expected, fits in wanted:
        if not is_number(value) or not fits(value):
            raise Error("invalid", f"bad value: {name}, expected {expected}, got {shown(value)}")


def check_batch(ids, targets, config, accumulate):
    """What a device would answer with nonsense, or with an error of its own: ids beyond the vocabulary, too many places."""
    shape, other = (shape_of(name, values) for name, values in (("ids", ids), ("targets", targets)))
    if len(shape) != 2 or other != shape or shape[0] < 1 or not 1 <= shape[1] <= config.n_positions:
        raise Error("invalid", f"bad batch: expected ids and targets (B, T) with a row or more and T from 1 to {config.n_positions}, "
                               f"got {shape} and {other}")
    if shape[0] % accumulate:
        raise Error("invalid", f"bad batch: expected a multiple of {accumulate} rows, one part for each micro-batch, got {shape[0]}")
    check_whole("ids", ids, 0, config.vocab_size, f"an id below {config.vocab_size}")
    check_whole("targets", targets, None, config.vocab_size, f"an id below {config.vocab_size}")


def check_positions(positions, shape, n_positions):
    """Those of ids of this shape, or of one row for all of them."""
    if positions is None:
        return
    own = shape_of("position_ids", positions)
    if own not in (shape, (1, shape[1])):
        raise Error("invalid", f"bad batch: position_ids, expected shape {shape} or {(1, shape[1])}, got {own}")
    check_whole("position_ids", positions, 0, n_positions, f"a position from 0 to {n_positions - 1}")


def shape_of(name, values):
    return tuple(values.shape if isinstance(values, Tensor) else array_of(f"bad batch: {name}", values).shape)


def check_whole(name, values, least, limit, expected):
    """Whole numbers from `least` (None: any) to below `limit`, by row and place; those on a device are not fetched for this."""
    if isinstance(values, Tensor):
        return
    values = np.asarray(values)
    if values.dtype.kind not in "iu":
        raise Error("invalid", f"bad batch: {name}, expected integers, got {values.dtype}")
    bad = (values >= limit) | (False if least is None else values < least)
    if bad.any():
        row, place = (int(i[0]) for i in np.nonzero(bad))
        raise Error("invalid", f"bad batch: {name}, row {row}, place {place}, expected {expected}, got {int(values[row, place])}")


def _tensor(values):
    return values if values is None or isinstance(values, Tensor) else Tensor(np.ascontiguousarray(values))


def _ids(values):
    """Whole numbers of any type of numpy's: those of token files are uint16."""
    return _tensor(values if values is None or isinstance(values, Tensor) else np.asarray(values).astype(np.int32))
