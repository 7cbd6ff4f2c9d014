"""The tasks "training" and "continued" of mindspore_child.py: the state of training in files, micro-batches, and the program
lamina.mindspore.train. The second one runs in a process of its own and goes on with what the first one saved."""
import contextlib
import io
import os
import signal
import zlib
from unittest import mock

import mindspore as ms
import numpy as np

from lamina import mindspore as lm
from lamina.mindspore import train, windows
from lamina.mindspore.ckpt import CkptFile
from lamina.mindspore.files import floats
from lamina.mindspore.names import parameters_of
from lamina.mindspore.step_graph import squares

SETTINGS = dict(lr=lambda step: 1e-2 / step, weight_decay=0.1, clip=1.0)


def sum_of(graph):
    """A number that tells weights and moments apart."""
    return zlib.crc32(b"".join(p.asnumpy().tobytes() for p in (*graph.weights, *graph.moments, *graph.squares)))


def step_of(folder, precision=None, **settings):
    return lm.TrainStep(lm.GPT2LMHeadModel.from_pretrained(folder, precision), **{**SETTINGS, **settings})


def batch(number, rows=4):
    ids = np.random.default_rng(number).integers(0, 97, (rows, 12))
    return ids[:, :-1], ids[:, 1:]


def five(step):
    first = step.steps
    return [step(*batch(first + i)).loss for i in range(1, 6)]


def said(call, *args):
    try:
        return str(call(*args))
    except lm.Error as error:
        return str(error)


def saved_and_gone_on(folder):
    """Five steps, saved over a read-only file, and five more."""
    step = step_of(folder / "tiny")
    five(step)
    (folder / "state").mkdir()
    (folder / "state" / "model.safetensors").write_bytes(b"older")
    (folder / "state" / "model.safetensors").chmod(0o400)
    step.save(folder / "state")
    saved = sum_of(step.graph)
    return {"saved": saved, "losses": five(step), "end": sum_of(step.graph), "hidden": [p.name for p in (folder / "state").glob(".*")],
            "report": str(step_of(folder / "state").model.report)}


def half_precision(folder):
    """In PyNative: an overflow in one of two micro-batches halves the scale and changes no bit; counters go with the state."""
    ms.set_context(mode=ms.PYNATIVE_MODE)
    step = step_of(folder / "tiny", "mixed-fp16", accumulate=2)
    step(*batch(1))
    before, step.scale = sum_of(step.graph), 2.0**40
    overflow = step(*batch(2))
    out = {"finite": overflow.finite, "same": sum_of(step.graph) == before, "scale": step.scale / 2.0**39, "updates": step.updates}
    step.scale = 1024.0
    step(*batch(3))
    step.save(folder / "half")
    ms.set_context(mode=ms.GRAPH_MODE)
    return {**out, "counters": counters(step), "saved": sum_of(step.graph), "rows": said(step, *batch(4, 3))}


def counters(step):
    return [step.steps, step.updates, step.scale, step.good]


def loads(folder, task):
    """What is said of each folder, and its weights: by this package and by MindSpore's own loader, into the same names."""
    out = {}
    for name in task["loads"]:
        model = lm.GPT2LMHeadModel.from_pretrained(folder / name)
        values = zlib.crc32(b"".join(p.asnumpy().tobytes() for p in parameters_of(model).values()))
        out[name] = [str(model.report), values, len(model.report.ignored)]
        form = "ckpt" if (folder / name / "model.ckpt").exists() else "safetensors"
        target = lm.GPT2LMHeadModel(model.config, seed=5)
        net = lm.TrainStep(target).graph if out[name][2] else target
        weights = ms.load_checkpoint(str(folder / name / f"model.{form}"), format=form)
        missing, left = ms.load_param_into_net(net, weights, strict_load=name != "bf16")  # strictly, types must be equal
        own = zlib.crc32(b"".join(p.asnumpy().tobytes() for p in parameters_of(target).values()))
        out[name] += [missing, sorted(left), own]
    names = list(parameters_of(lm.GPT2LMHeadModel(model.config)))
    return {"folders": out, "names": names == [p.name for p in lm.GPT2LMHeadModel(model.config).get_parameters()]}


def stopped_in(number):
    """A step that a signal comes in."""
    plain = train.Run.take_step

    def step(run):
        if run.step.steps + 1 == number:
            os.kill(os.getpid(), signal.SIGTERM)
        return plain(run)

    return mock.patch.object(train.Run, "take_step", step)


def program(*arguments):
    """Its code, and the last line that it says."""
    told, lines = io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(told), contextlib.redirect_stdout(lines):
        try:
            code = train.main([str(word) for word in arguments])
        except SystemExit as stop:
            code = stop.code
    return [code, told.getvalue().strip().splitlines()[-1]]


def norm_error():
    """Of a table's gradient: many rows, a few of them large. Its sum of squares over the one in double."""
    draw = np.random.default_rng(0)
    rows = np.exp(draw.normal(-9.0, 2.0, (50257, 1)))
    rows[:64] *= 3000.0
    gradient = (rows * draw.normal(size=(50257, 16))).astype(np.float32)
    return float(squares(ms.Tensor(gradient)).asnumpy()) / np.square(gradient.astype(np.float64)).sum() - 1.0


def training_task(folder, task):
    refused = {name: said(step_of(folder / "tiny").load, folder / name) for name in task["refused"]}
    step = step_of(folder / "tiny")
    before = sum_of(step.graph)
    refused["unchanged"] = [said(step.load, folder / name) for name in task["refused"]] and sum_of(step.graph) == before
    files = {name: said(CkptFile, folder / name) for name in task["ckpt"]}
    ids = {name: said(windows.open_ids, folder / name, 97) for name in task["ids"]}
    runs = {}
    for name, words in task["programs"].items():
        with stopped_in(4) if name == "stopped" else contextlib.nullcontext():
            runs[name] = program(*words)
    rates = {name: [train.learning_rate(train.parse_arguments(words), step) for step in range(1, 11)]
             for name, words in task["rates"].items()}
    whole = CkptFile(folder / "pieces.ckpt")
    pieces = [whole.tensors, *(floats(whole, name).tolist() for name in ("p", "scalar"))]
    return {"norm": norm_error(), "pieces": pieces, "rates": rates, "state": saved_and_gone_on(folder), "half": half_precision(folder), "loads": loads(folder, task),
            "refused": refused, "ckpt": files, "ids": ids, "programs": runs}


def continued_task(folder, task):
    step = step_of(folder / "tiny")
    step.load(folder / "state")
    out = {"saved": sum_of(step.graph), "counters": [step.steps, step.updates], "losses": five(step), "end": sum_of(step.graph)}
    half = step_of(folder / "tiny", "mixed-fp16", accumulate=2)
    half.load(folder / "half")
    runs = {name: program(*words) for name, words in task["programs"].items()}
    return {**out, "half": [counters(half), sum_of(half.graph)], "programs": runs}
