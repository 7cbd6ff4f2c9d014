"""One training step as one graph: loss, gradients, the norm of all of them, clipping and the update."""
from mindspore import ParameterTuple, Tensor, nn, ops
from mindspore import dtype as mstype

IGNORED = -100


class LanguageModelLoss(nn.Cell):
    """The sum of the losses of all valid targets over their number; 0 where there is none. A target is what follows the id
    at its place; one below 0 does not count, nor does one at a place that is padding."""

    def __init__(self, model):
        super().__init__(auto_prefix=False)
        self.model = model

    def construct(self, ids, targets, scale, attention_mask=None, position_ids=None):
        """Loss times `scale`, loss, number of valid targets."""
        total, count = self.total(ids, targets, attention_mask, position_ids)
        loss = total / ops.maximum(count, Tensor(1.0, mstype.float32))
        return loss * scale, loss, count

    def total(self, ids, targets, attention_mask, position_ids):
        """The sum of the losses of all valid targets, and their number."""
        logits, rows = self.model.rows(ids, attention_mask, position_ids)
        valid = valid_targets(targets, rows)
        targets = ops.where(valid, targets, IGNORED).astype(mstype.int32)
        count = valid.astype(mstype.float32).sum()
        return ops.cross_entropy(logits, targets.reshape((-1,)), ignore_index=IGNORED, reduction="sum"), count


def valid_targets(targets, rows):
    """Which targets count; `rows`: which places are no padding, or None."""
    valid = targets >= 0
    if rows is not None:
        valid = ops.logical_and(valid, rows.reshape((-1, targets.shape[1])) > 0.0)
    return valid


def squares(gradient):
    """Σ g². Each row by a product with itself: ops.L2Loss adds everything in one fp32 number and is 9 % off for a table of
    38.6 million elements. So does the CPU's ReduceSum where the last axis has size 1: 1e-4 off for 50257 rows of uneven size."""
    width = gradient.shape[-1]
    dots = ops.bmm(gradient.reshape((-1, 1, width)), gradient.reshape((-1, width, 1)))
    return dots.reshape((-1,)).sum()


class Update(nn.Cell):
    """The end of a step: norm, clip and update. Its optimizer is MindSpore's fused Adam with decay, which corrects no bias:
    `rate`, `epsilon` and `decay` are such that the update is AdamW's (see AdamW). All settings are inputs: another value is no
    new graph.

    A step that is not finite, or has no target, is the update with a rate of 0 and betas of 1, which changes no bit. It is not
    left out by an `if`: a graph with one goes on with the old memory of a parameter after set_data, so that loading weights
    between steps would be lost (seen on the CPU backend of 2.10)."""

    def __init__(self, model):
        super().__init__(auto_prefix=False)
        self.weights = ParameterTuple(model.trainable_params())
        self.moments = self.weights.clone("adam_m", init="zeros")
        self.squares = self.weights.clone("adam_v", init="zeros")
        self.decays = [len(p.shape) > 1 for p in self.weights]
        self.update = ops.AdamWeightDecay()
        self.scaled = ops.MulNoNan()  # 0 where the factor is 0, also of NaN
        self.one, self.zero = Tensor(1.0, mstype.float32), Tensor(0.0, mstype.float32)

    def apply(self, gradients, loss, count, scale, clip, rate, beta1, beta2, epsilon, decay):
        parts = []
        for i in range(len(gradients)):
            parts.append(squares(gradients[i]))
        parts = ops.stack(parts)
        norm = ops.sqrt(parts.sum()) / scale
        finite = ops.logical_and(ops.isfinite(norm), ops.isfinite(loss))
        acts = ops.logical_and(finite, count > 0.0)
        factor = ops.where(acts, ops.minimum(clip / (norm + 1e-6), self.one) / scale, self.zero)
        rate = ops.where(acts, rate, self.zero)
        beta1, beta2 = ops.where(acts, beta1, self.one), ops.where(acts, beta2, self.one)
        for i in range(len(gradients)):
            loss = ops.depend(loss, self.update(
                self.weights[i], self.moments[i], self.squares[i], rate, beta1, beta2, epsilon,
                decay if self.decays[i] else self.zero, self.scaled(gradients[i], factor)))
        return loss, norm, count, parts


class WholeStep(Update):
    """The graph of a step over one batch."""

    def __init__(self, model):
        super().__init__(model)
        self.gradient = ops.value_and_grad(LanguageModelLoss(model), None, self.weights, has_aux=True)
        self.model = model  # so that set_train reaches it

    def construct(self, ids, targets, scale, clip, rate, beta1, beta2, epsilon, decay, attention_mask=None, position_ids=None):
        (_, loss, count), gradients = self.gradient(ids, targets, scale, attention_mask, position_ids)
        return self.apply(gradients, loss, count, scale, clip, rate, beta1, beta2, epsilon, decay)
