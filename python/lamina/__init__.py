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
import importlib.util
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import mindspore
    from ._lamina import (Error, Generated, Model, StepResult, Tokenizer, Trainer, __version__, convert, lint_migration, load_tensors,
                          save_tensors, verify)

__all__ = ["Error", "Generated", "Model", "StepResult", "Tokenizer", "Trainer", "__version__", "convert", "lint_migration", "load_tensors",
           "save_tensors", "verify"]


if not TYPE_CHECKING:

    def __getattr__(name):
        if name not in ("mindspore", "_lamina", *__all__):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            module = importlib.import_module("." + ("mindspore" if name == "mindspore" else "_lamina"), __name__)
        except ImportError as error:  # what looks around (hasattr, help) catches an AttributeError only
            raise AttributeError(f"lamina.{name} cannot be used in this interpreter: {error}") from error
        if name not in __all__:
            return module
        globals().update({entry: getattr(module, entry) for entry in __all__})
        return globals()[name]

    def __dir__():
        return sorted({*globals(), *__all__} | ({"mindspore"} if importlib.util.find_spec("mindspore") else set()))
