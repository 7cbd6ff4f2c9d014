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
"""
from ._lamina import Error, Generated, Model, StepResult, Tokenizer, Trainer, __version__

__all__ = ["Error", "Generated", "Model", "StepResult", "Tokenizer", "Trainer", "__version__"]
