"""What lamina.mindspore's GPT2LMHeadModel computes inside MindSpore, for `lamina verify --with mindspore`. argv: JSON with the
model, the inputs (a safetensors file) and where to put the numbers. The error of its softmax is measured here: the exponential of
MindSpore's CPU backend is less exact than fp32 is."""
import json
import os
import sys

import mindspore as ms
import numpy as np
from mindspore import ops
from safetensors import safe_open
from safetensors.numpy import save_file

from lamina.mindspore import GPT2LMHeadModel, LanguageModelLoss
from lamina.mindspore.names import slots_of


def softmax_error():
    """Relative, in the mean of squares."""
    x = np.random.default_rng(0).normal(0.0, 2.0, (256, 16)).astype(np.float32)
    truth = np.exp(x.astype(np.float64))
    truth /= truth.sum(-1, keepdims=True)
    return float(np.sqrt(np.square(ops.Softmax(-1)(ms.Tensor(x)).asnumpy() / truth - 1.0).mean()))


def stream(model, ids):
    """The residual stream after each half of a layer, by the model's own cells."""
    body, (rows, seq) = model.model, ids.shape
    bias, hidden, visible, positions = body.mask(seq, None)
    mask = (bias, hidden, visible)
    x = body.embedding(ids, positions).reshape((rows * seq, -1))
    out = {"embedding": x}
    for i, layer in enumerate(body.layer):
        x = out[f"layer.{i}.attention.residual"] = x + layer.attention(layer.ln_1(x), mask, seq)
        x = out[f"layer.{i}.mlp.residual"] = x + layer.mlp(layer.ln_2(x))
    out["ln_f"] = body.ln_f(x)
    return {name: value.asnumpy().reshape(rows, seq, -1) for name, value in out.items()}


def main():
    os.dup2(2, 1)  # what MindSpore prints is for people
    task = json.loads(sys.argv[1])
    with safe_open(task["inputs"], framework="np") as file:
        tokens, targets, about = file.get_tensor("tokens"), file.get_tensor("targets"), file.metadata()
    ms.set_context(mode=ms.PYNATIVE_MODE)
    ms.set_device("CPU")
    model = GPT2LMHeadModel.from_pretrained(task["model"])
    model.set_train(False)
    ids = ms.Tensor(tokens)
    out = stream(model, ids)
    logits, again = (model(ids).asnumpy() for _ in range(2))
    weights = list(model.trainable_params())
    loss = LanguageModelLoss(model)
    gradient = ops.value_and_grad(lambda: loss(ids, ms.Tensor(targets), ms.Tensor(1.0, ms.float32))[0], None, weights)
    value, gradients = gradient()
    found = {id(weight): g.asnumpy() for weight, g in zip(weights, gradients)}
    out.update({"logits": logits, "loss": value.asnumpy().reshape(1)})
    if logits.tobytes() != again.tobytes():
        out["logits.again"] = again
    for name, parts in slots_of(model).items():
        out["grad." + name] = np.concatenate([found[id(part)] for part in parts], axis=-1)
    if not model.tied:
        out["param.lm_head.weight"] = model.head.asnumpy()
    out.update(tokens=tokens, targets=targets)
    about.update(engine=f"mindspore {ms.__version__}", unit=str(2.0**-24), softmax_error=str(softmax_error()))
    save_file({name: np.ascontiguousarray(value) for name, value in out.items()}, task["out"], metadata=about)


if __name__ == "__main__":
    main()
