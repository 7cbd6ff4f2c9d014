"""Runs in MindSpore's interpreter: python mindspore_child.py TASK FOLDER. FOLDER/task.json says what to do; what comes out lies
in FOLDER as out.json and .npz, and test_mindspore.py compares it. A file, since MindSpore reads the source of what it compiles.
"""
import dataclasses
import inspect
import json
import sys
import zlib
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

import mindspore as ms  # noqa: E402
from mindspore import ops  # noqa: E402

import lamina  # noqa: E402
from lamina import mindspore as lm  # noqa: E402
from lamina.mindspore import cells  # noqa: E402
from lamina.mindspore.files import load_weights  # noqa: E402
from lamina.mindspore.names import slots_of  # noqa: E402
from lamina.mindspore.training import AdamW  # noqa: E402
from mindspore_fused_child import fused_task  # noqa: E402
from mindspore_training_child import continued_task, training_task  # noqa: E402


def tensor(values, dtype=None):
    return ms.Tensor(np.asarray(values, dtype))


def answer(call, *args, **options):
    """What a call gives, or its error's one line."""
    try:
        return call(*args, **options)
    except lm.Error as error:
        return str(error)


def packed(model, values, front):
    """By HuggingFace's names and in its packing; `values` is what to take of a parameter."""
    return {front + name: np.concatenate([values(p) for p in parameters], axis=-1)
            for name, parameters in slots_of(model).items()}


def clear(step, model, folder):
    load_weights(model, folder)
    for state in (*step.graph.moments, *step.graph.squares):
        state.set_data(tensor(np.zeros(state.shape), np.float32))
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


def batches_of(folder, parts):
    """ids, targets and mask of each step; and the ids and the mask of the first micro-batch."""
    tokens = dict(np.load(folder / "tokens.npz"))
    arrays = tokens["tokens"], tokens["targets"], mask_of(tokens)
    joined = [values.reshape(-1, parts * values.shape[1], values.shape[2]) for values in arrays]
    return list(zip(*joined)), (arrays[0][0], arrays[2][0])


def one_run(step, model, folder, run):
    """What parity_support.run_torch gives."""
    batches, first = batches_of(folder, step.accumulate)
    clear(step, model, folder / "model")
    out = {"logits": model(*map(tensor, first)).asnumpy()}
    out.update(gradients(step, model, batches[0], run))
    clear(step, model, folder / "model")
    step.lr = lambda number: run["rates"][number - 1]
    results = [step(*batch) for batch in batches]
    out.update(packed(model, lambda p: p.asnumpy(), "param."))
    out["loss"] = np.array([result.loss for result in results])
    out["grad_norm"] = np.array([result.grad_norm for result in results])
    return out


def exponential_error():
    """The relative error of MindSpore's softmax, in the mean of squares: its exponential is a short polynomial."""
    x = np.random.default_rng(0).normal(0.0, 2.0, (256, 16)).astype(np.float32)
    truth = np.exp(x.astype(np.float64))
    truth /= truth.sum(-1, keepdims=True)
    return float(np.sqrt(np.square(ops.Softmax(-1)(tensor(x)).asnumpy() / truth - 1.0).mean()))


def skips(step, model, batch):
    """A NaN in one weight: every step is skipped and changes no bit."""
    before = [p.asnumpy().copy() for p in (*step.graph.moments, *step.graph.squares)]
    weight = model.model.layer[1].mlp.fc.weight
    spoilt = weight.asnumpy().copy()
    spoilt[0, 0] = np.nan
    weight.set_data(tensor(spoilt))
    weights = [p.asnumpy().copy() for p in step.graph.weights]
    step.lr, step.max_skips = 1e-3, 2
    said = [answer(lambda: step(*batch).finite) for _ in range(2)]
    state = [p.asnumpy() for p in (*step.graph.moments, *step.graph.squares)]
    same = all(a.tobytes() == b.tobytes() for a, b in zip(before + weights, state + [p.asnumpy() for p in step.graph.weights]))
    return {"first": said[0], "second": said[1], "same": same, "updates": step.updates}


def losses_in_one(model, folder, run, parts):
    """Those of a run with each step's micro-batches as one batch."""
    load_weights(model, folder / "model")
    step = lm.TrainStep(model, lambda number: run["rates"][number - 1], run["betas"], run["eps"], run["weight_decay"], run["clip"])
    return [step(*batch).loss for batch in batches_of(folder, parts)[0]]


def parity(folder, task):
    """Runs of one graph: folder/0, folder/1, …"""
    model = lm.GPT2LMHeadModel.from_pretrained(folder / "0" / "model", task["precision"])
    step = lm.TrainStep(model, accumulate=task["accumulate"])
    for i, run in enumerate(task["runs"]):
        np.savez(folder / str(i) / "out.npz", **one_run(step, model, folder / str(i), run))
    out = {"scale": step.scale, "updates": step.updates}
    if not task["precision"]:
        out.update(exponential=exponential_error(), skips=skips(step, model, batches_of(folder / "0", step.accumulate)[0][0]))
    if step.accumulate > 1:
        out["in_one"] = losses_in_one(model, folder / "0", task["runs"][0], step.accumulate)
    return out


def large(folder, task):
    """Logits and losses of one run of a model whose gradients would fill the memory twice."""
    (run,) = task["runs"]
    model = lm.GPT2LMHeadModel.from_pretrained(folder / "model")
    step = lm.TrainStep(model, lambda number: run["rates"][number - 1], run["betas"], run["eps"], run["weight_decay"], run["clip"])
    batches, first = batches_of(folder, 1)
    logits = model(*map(tensor, first)).asnumpy()
    results = [step(*batch) for batch in batches]
    np.savez(folder / "out.npz", logits=logits, loss=[result.loss for result in results],
             grad_norm=[result.grad_norm for result in results])
    return {"exponential": exponential_error()}


def tiny_losses(model, task):
    loss = lm.LanguageModelLoss(model)
    one = tensor(1.0, np.float32)
    out = {}
    for name, case in task["losses"].items():
        arguments = [tensor(case[key], np.int32) for key in ("ids", "targets", "mask") if key in case]
        arguments.insert(2, one)
        out[name] = [float(value.asnumpy()) for value in loss(*arguments)[1:]]
    return out


def mask_forms(model, ids, mask):
    """Logits with every form of the same mask."""
    square = np.tril(np.ones((ids.shape[1],) * 2, bool)) & mask[:, None, :].astype(bool)
    added = np.where(mask, 0.0, -10000.0)
    forms = {"int": mask, "bool": mask.astype(bool), "ones": mask.astype(np.float32), "added": added.astype(np.float32),
             "lowest": np.where(mask, 0.0, np.finfo(np.float16).min).astype(np.float16), "four": mask[:, None, None, :],
             "square": square[:, None], "three": square, "added_square": np.where(square, 0.0, -1e30).astype(np.float32)}
    return {"form_" + name: model(tensor(ids, np.int32), tensor(form)).asnumpy() for name, form in forms.items()}


def masked_row(dtype=ms.float32):
    """Case N4: five places of which place 2 sees nothing, forward and backward; and without it."""
    rng = np.random.default_rng(3)
    q, k, v = (tensor(rng.normal(size=(1, 2, 5, 8)), np.float32) for _ in range(3))
    core = cells.Core(lm.GPT2Config(n_embd=16, n_head=2), 0, dtype)
    visible = np.tril(np.ones((1, 5, 5), np.int32))
    whole = lm.AttentionMask(8)(5, None)
    visible[0, 2] = 0
    masked = lm.AttentionMask(8)(5, tensor(visible))
    out = {"masked": core(q, k, v, masked[:3]).asnumpy(), "whole": core(q, k, v, whole[:3]).asnumpy()}
    grads = ops.grad(lambda q, k, v: core(q, k, v, masked[:3])[:, :, 2].sum(), (0, 1, 2))(q, k, v)
    return {**out, **{f"grad_{name}": grad.asnumpy() for name, grad in zip("qkv", grads)}}


def dropout_shares():
    ones = tensor(np.ones(1000000), np.float32)
    out = {}
    for p in (0.0, 0.1, 1.0):
        cell = cells.Dropout(p)
        out[f"eval_{p}"] = sorted(set(cell(ones).asnumpy().tolist()))
        cell.set_train()
        values = cell(ones).asnumpy()
        out[f"train_{p}"] = {"kept": float((values != 0).mean()), "values": sorted(set(values.tolist()))}
    return out


def fused_core():
    """The fused operator's signature in the wheel, and our call of it answered by plain operators: what it documents."""
    seen = {}

    def stand_in(query, key, value, head_num, attn_mask=None, keep_prob=1.0, scalar_value=1.0, input_layout="BSH", sparse_mode=0):
        seen.update(dtype=str(query.dtype), heads=head_num, layout=input_layout, mask=list(attn_mask.shape))
        scores = ops.bmm(query.astype(ms.float32), key.astype(ms.float32).swapaxes(-1, -2)) * scalar_value
        weights = ops.softmax(ops.masked_fill(scores, attn_mask, -1e30), axis=-1)
        return ops.bmm(weights.astype(query.dtype), value)

    signature = list(inspect.signature(ops.flash_attention_score).parameters)
    config = lm.GPT2Config(n_embd=16, n_head=2, n_layer=1, attn_pdrop=0.0)
    choose = lambda word, target, **changes: type(cells.make_core(  # noqa: E731
        lm.GPT2Config(**{**vars_of(config), **changes}), 0, lm.LayerPrecisionManager({"*": word}, config, target))).__name__
    chosen = {"cpu": choose("fp16", "CPU"), "ascend": choose("bf16", "Ascend"), "fp32": choose("fp32", "Ascend"),
              "dropout": choose("bf16", "Ascend", attn_pdrop=0.1), "upcast": choose("bf16", "Ascend", reorder_and_upcast_attn=True)}
    q, k, v = (tensor(np.random.default_rng(i).normal(size=(2, 2, 5, 8)), np.float32) for i in range(3))
    mask = lm.AttentionMask(8)(5, tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 0]], np.int32))[:3]
    plain = cells.Core(config, 0, ms.float16)(q, k, v, mask).asnumpy()
    original, ops.flash_attention_score = ops.flash_attention_score, stand_in
    fused = cells.FusedCore(config, 0, ms.float16)(q, k, v, mask).asnumpy()
    ops.flash_attention_score = original
    return {"signature": signature, "chosen": chosen, "call": seen, "gap": float(np.abs(plain - fused).max()),
            "largest": float(np.abs(plain).max())}


def vars_of(config):
    return {name: value for name, value in vars(config).items() if name not in ("source", "warnings")}


def adamw_weights(case):
    """One weight through the fused kernel with AdamW's settings."""
    rule = AdamW(case["betas"], case["eps"], case["weight_decay"])
    state = [ms.Parameter(tensor([value], np.float32), name=name) for name, value in (("w", 1.0), ("m", 0.0), ("v", 0.0))]
    out = []
    for update, gradient in enumerate(case["gradients"], 1):
        ops.AdamWeightDecay()(*state, *rule.settings(update, case["lr"]), tensor([gradient], np.float32))
        out.append(float(state[0].asnumpy()[0]))
    return out


def initial():
    config = lm.GPT2Config(vocab_size=500, n_positions=64, n_embd=64, n_layer=8, n_head=4, initializer_range=0.05)
    models = [lm.GPT2LMHeadModel(config, seed=seed) for seed in (1, 1, 2)]
    values = [{p.name: p.asnumpy() for p in model.get_parameters()} for model in models]
    return {"names": list(values[0]), "deviations": {name: float(v.std()) for name, v in values[0].items()},
            "means": {name: float(v.mean()) for name, v in values[0].items()},
            "same": all((values[0][n] == values[1][n]).all() for n in values[0]),
            "other": bool((values[0]["embedding.token"] == values[2]["embedding.token"]).any())}


def settings_refused(model):
    """What is said of settings without meaning, before anything runs."""
    wrong = [dict(eps=0.0), dict(clip=-1), dict(weight_decay=float("nan")), dict(weight_decay=1e39), dict(betas=(0.9, 1.0)), dict(betas=(0.9,)),
             dict(betas=0.9), dict(max_skips=0), dict(accumulate=1.5)]
    return [answer(lambda given=given: lm.TrainStep(model, **given)) for given in wrong]


def step_by_step(config):
    """After an evaluation a step trains again, with dropout; one without a target changes nothing and is no update; a rate
    without meaning uses up no step; masks by one row for all."""
    model = lm.GPT2LMHeadModel(dataclasses.replace(config, embd_pdrop=0.5))
    step, ids = lm.TrainStep(model, lr=1e-3), np.arange(8, dtype=np.uint16).reshape(2, 4)
    step(ids, ids)
    before = [p.asnumpy().copy() for p in step.graph.weights]
    empty = step(ids, np.full(ids.shape, -100))
    same = all(a.tobytes() == p.asnumpy().tobytes() for a, p in zip(before, step.graph.weights))
    out = {"empty": [empty.tokens, empty.finite, same, step.updates]}
    step.lr = 0.0
    model.set_train(False)
    out["losses"] = [step(ids, ids).loss for _ in range(2)]
    step.lr = lambda number: float("nan")
    out["rate"] = [answer(step, ids, ids), step.steps]
    step.lr = 1e39
    out["large_rate"] = answer(step, ids, ids)
    step.lr = 1e-3
    out["one_row"] = step(ids, ids, attention_mask=np.ones((1, 4))).tokens
    masks = (np.full((2, 4), -1000.0), np.array([[0, -10000, 0, 0]]), np.ones((2, 3)), np.array([[1.0, 0.5, 1.0, 1.0]]))
    out["masks"] = [answer(step, ids, ids, mask) for mask in masks]
    square = np.arange(16).reshape(4, 4)
    out["masks"].append(answer(step, square, square, np.tril(np.ones((4, 4)))))
    return out


def values_refused(model, folder):
    """Values of wrong types, and what cannot be saved or found: what is said of each, and what was written."""
    calls = {key: lambda key=key, value=value: lm.GPT2Config(**{key: value}) for key, value in
             dict(attn_pdrop=None, layer_norm_epsilon="1e-5", activation_function=None, scale_attn_weights=0, bos_token_id="a").items()}
    (folder / "theirs").mkdir()
    (folder / "theirs" / "config.json").write_bytes((folder / "tiny" / "config.json").read_bytes())
    (folder / "theirs" / "pytorch_model.bin").write_bytes(b"PK")
    new, file, step = folder / "new", folder / "tiny" / "config.json", lm.TrainStep(model)
    calls.update(dict=lambda: lm.GPT2Config.from_dict([]), theirs=lambda: lm.GPT2LMHeadModel.from_pretrained(folder / "theirs"),
                 dtype=lambda: model.save_pretrained(new, dtype="fp8"), file=lambda: model.save_pretrained(file),
                 state_file=lambda: step.save(file))
    said = {name: answer(call) for name, call in calls.items()}
    weight = model.model.layer[1].mlp.fc.weight
    good, spoilt = weight.asnumpy().copy(), weight.asnumpy().copy()
    for name, value, save in (("nan", np.nan, step.save), ("inf", np.inf, model.save_pretrained), ("half", 1e6, model.save_pretrained)):
        spoilt[0, 0] = value
        weight.set_data(tensor(spoilt))
        said[name] = answer(save, new, *(["fp16"] if name == "half" else []))
    weight.set_data(tensor(good))
    return {**said, "written": new.exists()}


def behaviour(folder, task):
    """What needs no reference beside it."""
    model = lm.GPT2LMHeadModel.from_pretrained(folder / "tiny")
    ids, mask = np.array(task["forms"]["ids"]), np.array(task["forms"]["mask"])
    arrays = mask_forms(model, ids, mask)
    for row, begin in enumerate((3, 0)):
        arrays[f"alone_{row}"] = model(tensor(ids[row:row + 1, begin:], np.int32)).asnumpy()
    arrays.update({"row_" + name: value for name, value in masked_row().items()})
    arrays.update({"half_" + name: value for name, value in masked_row(ms.float16).items()})
    arrays["prompt"] = model(tensor([task["prompt"]], np.int32)).asnumpy()
    np.savez(folder / "out.npz", **arrays)
    step, short = lm.TrainStep(model, lr=0.0), np.array([[1, 2]], np.int32)
    refused = [answer(step, *batch) for batch in ((short, short + 95), (short - 2, short), (short, short[:, 1:]), (short[0], short[0]),
                                                  (np.zeros((1, 17), np.int32),) * 2, (short[:0], short[:0]), ([[1, 2], [3]],) * 2)]
    places = ([[0, -1]], [[0, 16]], [[0.0, 0.5]], [0, 1], [[0, 1], [0, 1]], [[0], [0, 1]])
    refused += [answer(step, short, short, None, position_ids) for position_ids in places]
    positions = [step(short, short, None, np.array(given)).tokens for given in ([[3, 15]], [[0, 1]])]
    settings, steps = settings_refused(model), step_by_step(model.config)
    modules = {"extension": "lamina._lamina" in sys.modules, "dir": "mindspore" in dir(lamina)}
    return {"losses": tiny_losses(model, task), "dropout": dropout_shares(), "fused": fused_core(), "initial": initial(), "positions": positions,
            "values": values_refused(model, folder), "modules": modules, "settings": settings, "steps": steps, "refused": refused, "adamw": adamw_weights(task["adamw"])}


def loaded(path):
    """What is said of a folder, and a number that tells its weights apart."""
    model = lm.GPT2LMHeadModel.from_pretrained(path)
    report = model.report
    values = packed(model, lambda p: p.asnumpy(), "")
    return [" ".join([str(report), *report.removed, *report.ignored, *report.warnings]),
            zlib.crc32(b"".join(values[name].tobytes() for name in sorted(values)))]


def round_trips(folder, task):
    for name in task["round_trips"]:
        for dtype in ("fp32", "fp16", "bf16"):
            model = lm.GPT2LMHeadModel.from_pretrained(folder / f"{name}_{dtype}")
            model.save_pretrained(folder / "saved" / f"{name}_{dtype}", dtype)
    return {name: answer(loaded, folder / name) for name in task["loads"]}


def files(folder, task):
    """Configs, precision maps and folders: what is accepted, and what is said of the rest."""
    configs = {name: answer(lambda place=name: lm.GPT2Config.from_pretrained(folder / place).warnings) for name in task["configs"]}
    config = lm.GPT2Config.from_pretrained(folder / "config.json")
    maps = {name: answer(lambda place=name: lm.LayerPrecisionManager(folder / place, config, "none").map())
            for name in task["maps"]}
    cpu = {word: answer(lambda text=word: str(lm.LayerPrecisionManager(text, config, "CPU")))
           for word in ("fp32", "mixed", "mixed-fp16", "other")}
    loads = round_trips(folder, task)
    return {"configs": configs, "maps": maps, "cpu": cpu, "loads": loads}


def main():
    name, folder = sys.argv[1], Path(sys.argv[2])
    task = json.loads((folder / "task.json").read_text())
    ms.set_context(mode=ms.PYNATIVE_MODE if task["pynative"] else ms.GRAPH_MODE)
    ms.set_device("CPU")
    out = {"parity": parity, "large": large, "behaviour": behaviour, "files": files, "fused": fused_task, "training": training_task,
           "continued": continued_task}[name](folder, task)
    (folder / "out.json").write_text(json.dumps(out))


if __name__ == "__main__":
    main()
