"""The drivers of other engines for `bench peers` do the work that they are timed for: which parameters decay, and that the
GPT-2 written for MindSpore is GPT-2, updates included."""
import importlib.util
import json
import os
import subprocess

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from cli_support import ROOT, tiny_config
from mindspore_support import mindspore_python, needs_mindspore

PEERS = ROOT / "bench" / "peers"
OPTIONS = {"betas": [0.9, 0.99], "eps": 1e-8, "weight_decay": 0.1, "clip": 0.5}
SEQ, STEPS, RATE = 12, 4, 1e-2

# The same in MindSpore: weights from a folder, rows of ids; prints the loss of each step.
MINDSPORE = """
import importlib.util, json, sys
import mindspore as ms, numpy as np
from lamina.mindspore.files import load_weights
spec = importlib.util.spec_from_file_location("peer", sys.argv[1])
peer = importlib.util.module_from_spec(spec)
spec.loader.exec_module(peer)
task = json.loads(sys.argv[2])
ms.set_context(mode=ms.GRAPH_MODE)
ms.set_device("CPU")
step = peer.make_step(task)
step.lr = task["rate"]
load_weights(step.model, sys.argv[3])
rows = np.array(task["rows"], np.int32)
print(json.dumps([step(rows[:, :-1], rows[:, 1:]).loss for _ in range(task["steps"])]))
"""


def torch_peer():
    spec = importlib.util.spec_from_file_location("torch_peer", PEERS / "torch.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_model():
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config.from_dict(tiny_config()))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def test_matrices_and_tables_decay_in_pytorch_and_nothing_else():
    model = make_model()
    names = {id(p): name.removeprefix("transformer.") for name, p in model.named_parameters()}
    decayed, kept = torch_peer().decay_groups(model, 0.3)
    assert (decayed["weight_decay"], kept["weight_decay"]) == (0.3, 0.0)
    matrices = {"wte.weight", "wpe.weight"} | {f"h.{layer}.{name}.weight" for layer in range(2) for name in
                                               ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")}
    assert {names[id(p)] for p in decayed["params"]} == matrices
    assert {names[id(p)] for p in kept["params"]} == set(names.values()) - matrices
    assert all(name.endswith(".bias") or ".ln_" in f".{name}" for name in set(names.values()) - matrices)


def torch_losses(rows, dtype):
    model = make_model().to(dtype)
    groups = torch_peer().decay_groups(model, OPTIONS["weight_decay"])
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=OPTIONS["betas"], eps=OPTIONS["eps"])
    ids, losses = torch.tensor(rows, dtype=torch.long), []
    for _ in range(STEPS):
        logits = model(ids[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), OPTIONS["clip"])
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses)


@needs_mindspore
def test_mindspores_steps_are_pytorchs(tmp_path):
    rows = np.random.default_rng(0).integers(0, 97, (3, SEQ + 1)).astype(np.int32)
    make_model().save_pretrained(tmp_path / "model")
    script = tmp_path / "steps.py"
    script.write_text(MINDSPORE)
    task = json.dumps({**OPTIONS, "config": tiny_config(n_inner=None), "steps": STEPS, "rate": RATE, "rows": rows.tolist()})
    done = subprocess.run([mindspore_python(), script, PEERS / "mindspore.py", task, tmp_path / "model"], text=True,
                          env=dict(os.environ, PYTHONPATH=str(ROOT / "python")), capture_output=True, check=False, timeout=300,
                          cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    theirs = np.array(json.loads(done.stdout.splitlines()[-1]))
    truth, single = torch_losses(rows, torch.float64), torch_losses(rows, torch.float32)
    bound = np.maximum(2 * np.abs(single - truth), 32 * 2.0**-24 * np.abs(truth))
    assert truth[0] - truth[-1] > 0.1  # the updates do something
    assert (np.abs(theirs - truth) <= bound).all(), (theirs, truth, bound)
