"""A step over several micro-batches: their gradients are added up, then comes one update. Loss and gradients are divided by the
valid targets of the whole step, which are counted first, so that the cut changes nothing but roundings."""
from mindspore import Tensor, nn, ops
from mindspore import dtype as mstype

from .step_graph import LanguageModelLoss, Update, valid_targets


class PartOfLoss(LanguageModelLoss):
    """What one micro-batch adds to the loss of a step with `number` valid targets."""

    def construct(self, ids, targets, scale, number, attention_mask=None, position_ids=None):
        loss = self.total(ids, targets, attention_mask, position_ids)[0] / number
        return loss * scale, loss


class _Begin(nn.Cell):
    """The number of valid targets of all rows; all sums become 0."""

    def __init__(self, model, sums):
        super().__init__(auto_prefix=False)
        self.mask, self.sums = model.model.mask, sums

    def construct(self, targets, attention_mask=None):
        rows = None if attention_mask is None else self.mask(targets.shape[1], attention_mask)[2]
        count = valid_targets(targets, rows).astype(mstype.float32).sum()
        for i in range(len(self.sums)):
            count = ops.depend(count, ops.assign(self.sums[i], ops.zeros_like(self.sums[i])))
        return count, ops.maximum(count, Tensor(1.0, mstype.float32))


class _Part(nn.Cell):
    """Adds the gradients of one micro-batch to the sums, and its loss to that of the micro-batches before it."""

    def __init__(self, model, weights, sums):
        super().__init__(auto_prefix=False)
        self.sums = sums
        self.gradient = ops.value_and_grad(PartOfLoss(model), None, weights, has_aux=True)
        self.model = model  # so that set_train reaches it

    def construct(self, ids, targets, scale, number, loss, attention_mask=None, position_ids=None):
        (_, part), gradients = self.gradient(ids, targets, scale, number, attention_mask, position_ids)
        loss = loss + part
        for i in range(len(gradients)):
            loss = ops.depend(loss, ops.assign_add(self.sums[i], gradients[i]))
        return loss


class _End(Update):
    def __init__(self, model):
        super().__init__(model)
        self.sums = self.weights.clone("grad_sum", init="zeros")

    def construct(self, loss, count, scale, clip, rate, beta1, beta2, epsilon, decay):
        return self.apply(self.sums, loss, count, scale, clip, rate, beta1, beta2, epsilon, decay)


class AccumulatedStep:
    """Three graphs with the arguments and results of WholeStep, over `parts` micro-batches of the rows in turn. None of them has
    a branch: a micro-batch without a target adds zeros."""

    def __init__(self, model, parts):
        self.parts, self.end = parts, _End(model)
        self.begin, self.part = _Begin(model, self.end.sums), _Part(model, self.end.weights, self.end.sums)
        self.weights, self.moments, self.squares = self.end.weights, self.end.moments, self.end.squares

    def set_train(self):
        self.part.set_train()

    def __call__(self, ids, targets, scale, clip, *settings_and_more):
        settings, more = settings_and_more[:5], settings_and_more[5:]
        size, loss = ids.shape[0] // self.parts, Tensor(0.0, mstype.float32)
        count, number = self.begin(targets, *more[:1])
        for first in range(0, ids.shape[0], size):
            rows = slice(first, first + size)
            loss = self.part(ids[rows], targets[rows], scale, number, loss, *(rows_of(x, rows, ids.shape[0]) for x in more))
        return self.end(loss, count, scale, clip, *settings)


def rows_of(values, rows, count):
    """Those of a mask or of positions; one row for all stays."""
    return values if values is None or values.shape[0] != count else values[rows]
