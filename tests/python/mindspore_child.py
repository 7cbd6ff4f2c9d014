"""Runs in MindSpore's interpreter, a task on its own: python mindspore_child.py TASK FOLDER. What a task computes lies in
FOLDER/out.npz or is printed as JSON; test_mindspore.py compares it. A file, since MindSpore reads the source of what it compiles.
"""
import json
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

import mindspore as ms  # noqa: E402

import lamina.mindspore as lm  # noqa: E402
from lamina.mindspore.files import load_weights  # noqa: E402
from lamina.mindspore.names import slots_of  # noqa: E402
from lamina.mindspore.training import AdamW  # noqa: E402


def packed(model, values, front):
    """By HuggingFace's names and in its packing; `values` is what to take of a parameter."""
    return {front + name: np.concatenate([values(p) for p in parameters], axis=-1)
            for name, parameters in slots_of(model).items()}


def clear(step, model, folder):
    load_weights(model, folder)
    for state in (*step.graph.moments, *step.graph.squares):
        state.set_data(ms.Tensor(np.zeros(state.shape, np.float32)))
    step.steps = step.updates = 0


def gradients(step, model, batch, run):
    """With a beta1 of 0 and no clip, the first moment after a step is the gradient."""
    step.adamw, step.clip = AdamW((0.0, 0.5), 1.0, 0.0), 0.0
    step(*batch)
    moments = {id(w): m for w, m in zip(step.graph.weights, step.graph.moments)}
    found = packed(model, lambda p: moments[id(p)].asnumpy().copy(), "grad.")
    step.adamw, step.clip = AdamW(run["betas"], run["eps"], run["weight_decay"]), run["clip"]
    return found


def mask_of(tokens):
    place = np.arange(tokens["tokens"].shape[-1])
    start, length = tokens["start"][..., None], tokens["length"][..., None]
    return ((place >= start) & (place < start + length)).astype(np.int32)


def one_run(step, model, folder, run):
    """What parity_support.run_torch gives."""
    tokens = dict(np.load(folder / "tokens.npz"))
    masks = mask_of(tokens)
    batches = list(zip(tokens["tokens"], tokens["targets"], masks))
    clear(step, model, folder / "model")
    out = {"logits": model(ms.Tensor(batches[0][0]), ms.Tensor(masks[0])).asnumpy()}
    out.update(gradients(step, model, batches[0], run))
    clear(step, model, folder / "model")
    step.lr = lambda number: run["rates"][number - 1]
    results = [step(*batch) for batch in batches]
    out.update(packed(model, lambda p: p.asnumpy(), "param."))
    out["loss"] = np.array([result.loss for result in results])
    out["grad_norm"] = np.array([result.grad_norm for result in results])
    return out


def parity(folder, task):
    """Runs of one graph: folder/0, folder/1, …"""
    runs = task["runs"]
    model = lm.GPT2LMHeadModel.from_pretrained(folder / "0" / "model", task.get("precision"))
    step = lm.TrainStep(model)
    for i, run in enumerate(runs):
        np.savez(folder / str(i) / "out.npz", **one_run(step, model, folder / str(i), run))


def main():
    name, folder = sys.argv[1], Path(sys.argv[2])
    task = json.loads((folder / "task.json").read_text())
    ms.set_context(mode=ms.PYNATIVE_MODE if task.get("pynative") else ms.GRAPH_MODE)
    ms.set_device("CPU")
    TASKS[name](folder, task)


TASKS = {"parity": parity}

if __name__ == "__main__":
    main()
