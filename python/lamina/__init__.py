"""Lamina compiles a GPT once into static programs with planned memory and runs them on CPUs.

    import lamina

    model = lamina.Model.from_pretrained("gpt2")
    logits = model.forward(ids)                 # (B, T) ids in, (B, T, V) out
    loss = model.loss(ids, targets)             # mean over targets from 0 on
    model.gradients()["transformer.wte.weight"]
    trainer = lamina.Trainer(model, lr=3e-4, clip=1.0)
    trainer.step(batch).loss                    # (B, T + 1) ids, or ids and targets
    model.save_pretrained("out")                # a folder that HuggingFace loads

Logits are a view of the model's own memory: the next call of the model overwrites it. Copy what has to last.

`lamina.mindspore` is GPT-2 for MindSpore, imported where it is first used. Names of the compiled extension are loaded with
the first of them, so that `lamina.mindspore` also works for an interpreter that the extension was not built for.
"""
import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._lamina import Error, Generated, Model, StepResult, Tokenizer, Trainer, __version__

__all__ = ["Error", "Generated", "Model", "StepResult", "Tokenizer", "Trainer", "__version__"]


def __getattr__(name):
    if name in ("mindspore", "_lamina"):
        return importlib.import_module("." + name, __name__)
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    extension = importlib.import_module("._lamina", __name__)
    globals().update({entry: getattr(extension, entry) for entry in __all__})
    return globals()[name]


def __dir__():
    return sorted({*globals(), *__all__, "mindspore"})
