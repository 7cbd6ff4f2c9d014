"""`lamina lint-migration`: what it prints, and that what its rules say of both sides is what the pinned wheels do."""
import functools
import inspect
import json
import math
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from cli_support import ROOT, fails, lamina, ok, ok_json
from mindspore_support import needs_mindspore, run_child
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.pytorch_utils import Conv1D

LARGE = 50257 * 768
EXACT, TANH = 0.8413447, 0.8411920  # GELU at 1


@functools.cache
def rules():
    return ok_json("lint-migration", "--rules")


def lint(*paths, code):
    done = lamina("lint-migration", *paths, "--json")
    assert done.returncode == code, done.stderr.decode()
    return json.loads(done.stdout)


# ---- the command

def test_the_page_holds_the_table():
    page = (ROOT / "docs" / "differences.md").read_text(encoding="utf-8")
    assert page[page.index("| rule |"):] == ok("lint-migration", "--rules"), "docs/differences.md: lamina lint-migration --rules has changed"


def test_a_folder_is_a_config_settings_and_weights(tmp_path):
    tiny.write(tmp_path / "m")
    config = json.loads((tmp_path / "m" / "config.json").read_text())
    (tmp_path / "m" / "config.json").write_text(json.dumps(dict(config, attn_pdrop=0.1, activation_function="gelu")))
    (tmp_path / "m" / "generation_config.json").write_text('{"do_sample": true, "top_k": 5}')
    out = lint(tmp_path / "m", code=0)
    assert [Path(name).name for name in out["files"]] == ["config.json", "generation_config.json", "model.safetensors"]
    found = {(f["rule"], f["where"].get("key", f["where"].get("tensor"))): f for f in out["findings"]}
    assert found["dropout-positional", "attn_pdrop"]["mindspore"] == "nn.Dropout(p=0.1); keep_prob=0.9 for the primitive ops.Dropout"
    assert found["dropout-positional", "attn_pdrop"]["pytorch"] == "nn.Dropout(p=0.1)"
    assert found["gelu-form", "activation_function"]["mindspore"] == "nn.GELU(approximate=False)"
    assert found["layernorm-epsilon", "layer_norm_epsilon"]["mindspore"] == "nn.LayerNorm(..., epsilon=1e-05)"
    assert ("generation-settings", "top_k") in found and ("tied-head", "tie_word_embeddings") in found
    assert any(rule == "packed-qkv" and name.endswith("h.0.attn.c_attn.weight") for rule, name in found)
    assert sum(out["counts"].values()) == len(out["findings"]) and out["counts"]["error"] == 0


class Odd:
    pass


def test_notebooks_and_optimizers_of_a_folder(tmp_path):
    cells = [{"cell_type": "code", "source": ["from mindspore import nn\n", "%time x = 1"]}, {"cell_type": "code", "source": "nn.LayerNorm((4,))"}]
    (tmp_path / "a.ipynb").write_text(json.dumps({"nbformat": 4, "cells": cells}))
    out = lamina("lint-migration", tmp_path / "a.ipynb")
    assert out.returncode == 1 and b"a.ipynb: cell 2:1: error: " in out.stdout, out.stdout
    folder = Path(tiny.write(tmp_path / "model"))
    weights = [torch.nn.Parameter(torch.ones(2))]
    weights[0].grad = torch.ones(2)
    optimizer = torch.optim.AdamW(weights)
    optimizer.step()
    torch.save(optimizer.state_dict(), folder / "optimizer.pt")
    assert "optimizer-state" in {f["rule"] for f in ok_json("lint-migration", folder)["findings"]}
    torch.save(Odd(), folder / "optimizer.pt")
    out = lamina("lint-migration", folder)
    assert out.returncode == 0 and b"warning: " in out.stderr and b"Odd" in out.stderr, out.stderr


def test_a_script_is_read_and_not_run(tmp_path):
    script, mark = tmp_path / "train.py", tmp_path / "mark"
    script.write_text(f"open({str(mark)!r}, 'w')\nfrom mindspore import nn\n\nnorm = nn.LayerNorm((4,))\n")
    out = lint(script, code=1)
    assert not mark.exists() and out["counts"]["error"] == 1
    finding = next(f for f in out["findings"] if f["severity"] == "error")
    assert finding["where"] == {"file": str(script), "line": 4} and finding["rule"] == "layernorm-epsilon"
    assert set(finding) == {"rule", "severity", "where", "what", "consequence", "pytorch", "mindspore"}
    text = lamina("lint-migration", script).stdout.decode()
    assert f"{script}:4: error: nn.LayerNorm(...): no epsilon: 1e-7 [layernorm-epsilon]" in text
    script.write_text("from mindspore import nn\nnorm = nn.LayerNorm((4,), epsilon=1e-5)\n")
    assert lint(script, code=0)["counts"]["error"] == 0


def test_our_own_scripts_have_no_errors():
    scripts = sorted((ROOT / "python" / "lamina" / "mindspore").glob("*.py"))
    assert len(scripts) >= 8 and lint(*scripts, code=0)["counts"]["error"] == 0


def test_a_checkpoint_of_torch_and_of_mindspore(tmp_path, build_dir):
    torch.save({"lm_head.weight": torch.zeros(128, 16), "transformer.wte.weight": torch.zeros(128, 16),
                "state.0.exp_avg": torch.zeros(4).half()}, tmp_path / "a.bin")
    found = {f["rule"] for f in lint(tmp_path / "a.bin", code=0)["findings"]}
    assert {"stored-head", "name-prefix", "optimizer-state", "sixteen-bit-weights"} <= found


def test_what_cannot_be_looked_at(tmp_path):
    (tmp_path / "bad.py").write_bytes(b"x = '\xff'")
    (tmp_path / "open.py").write_text("f(1,\n")
    fails(1, ["bad.py", "byte 5"], "lint-migration", tmp_path / "bad.py")
    fails(1, ["open.py", "line 1", "bracket"], "lint-migration", tmp_path / "open.py", "--json")
    fails(1, ["nothing to look at", "config.json"], "lint-migration", tmp_path)
    fails(1, ["none.py"], "lint-migration", tmp_path / "none.py")
    fails(2, ["expected paths or --rules"], "lint-migration")
    fails(2, ["contradiction"], "lint-migration", "--rules", tmp_path)


# ---- PyTorch, as the rules say

def test_arguments_of_pytorch_stand_where_the_rules_look():
    roots = {"torch": torch}
    seen = 0
    for call in rules()["calls"]:
        module, *path = call["callee"].split(".")
        if module != "torch" or path[-1] in ("scaled_dot_product_attention", "gelu"):  # built in: no signature
            continue
        target = functools.reduce(getattr, path, roots[module])
        assert list(inspect.signature(target).parameters)[call["position"]] == call["argument"].split("|")[0], call
        seen += 1
    assert seen >= 9
    assert list(inspect.signature(torch.nn.Module.load_state_dict).parameters)[1 + 1] == "strict"


def test_defaults_of_pytorch_layers():
    nn = torch.nn
    x = torch.tensor([1.0, -1.0, 2.0, -2.0]) * 1e-3
    assert nn.LayerNorm(4).eps == 1e-5 and nn.LayerNorm(4)(x)[0].item() == pytest.approx(0.2828427, abs=1e-6)
    assert nn.GELU()(torch.tensor(1.0)).item() == pytest.approx(EXACT, abs=2e-7)
    assert nn.GELU("tanh")(torch.tensor(1.0)).item() == pytest.approx(TANH, abs=2e-7)
    assert nn.Embedding(900, 400).weight.std().item() == pytest.approx(1.0, abs=0.01)
    assert nn.Linear(400, 900).weight.shape == (900, 400) and Conv1D(900, 400).weight.shape == (400, 900)
    assert nn.Linear(400, 900).bias.abs().max().item() == pytest.approx(0.05, abs=1e-3)
    kept = (nn.Dropout(0.1)(torch.ones(1000000)) != 0).float().mean().item()
    assert nn.Dropout(0.1).training and abs(kept - 0.9) <= 0.002
    visible = torch.tensor([[True, False], [True, True]])
    q = torch.randn(1, 1, 2, 4)
    out = nn.functional.scaled_dot_product_attention(q, q, torch.eye(2, 4)[None, None], visible)
    assert out[0, 0, 0, 1].item() == 0.0
    weights = nn.MultiheadAttention(4, 1, batch_first=True)(q[0], q[0], q[0], attn_mask=~visible)[1]
    assert weights[0, 0, 1].item() == 0.0
    logits, targets = torch.tensor([[1.0, 2, 3], [4, 5, 9]]), torch.tensor([1, -100])
    assert nn.functional.cross_entropy(logits, targets).item() == pytest.approx(1.4076059, abs=1e-6)


def test_defaults_of_pytorchs_optimizer_and_files(tmp_path):
    parameters = inspect.signature(torch.optim.AdamW).parameters
    assert list(parameters)[4] == "weight_decay"
    assert (parameters["eps"].default, parameters["weight_decay"].default) == (1e-8, 0.01)
    assert inspect.signature(torch.amp.GradScaler).parameters["init_scale"].default == 65536.0
    weight = torch.nn.Parameter(torch.ones(1))
    optimizer, seen = torch.optim.AdamW([weight], lr=0.1, eps=1e-8, weight_decay=0.01), []
    for gradient in (1.0, -2.0, 0.5):
        weight.grad = torch.full((1,), gradient)
        optimizer.step()
        seen.append(weight.item())
    assert seen == pytest.approx([0.89900, 0.93471, 0.94745], abs=6e-6)
    values = torch.nn.Parameter(torch.zeros(LARGE))
    values.grad = torch.from_numpy(np.random.default_rng(0).normal(size=LARGE).astype(np.float32))
    truth = math.sqrt(np.square(values.grad.numpy(), dtype=np.float64).sum())
    assert 0.99 <= torch.nn.utils.clip_grad_norm_([values], 1e30).item() / truth <= 1.00001
    missing = torch.nn.Linear(2, 2).load_state_dict({"weight": torch.ones(2, 2)}, strict=False)
    assert missing.missing_keys == ["bias"]
    torch.save({"f": print}, tmp_path / "a.pt")
    with pytest.raises(Exception, match="[Ww]eights"):
        torch.load(tmp_path / "a.pt")


def test_huggingface_shifts_labels_and_ties_the_head():
    config = GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=11, n_positions=8)
    model, ids = GPT2LMHeadModel(config).eval(), torch.arange(6)[None]
    logits, loss = model(ids).logits, model(ids, labels=ids).loss
    assert loss.item() == pytest.approx(torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:]).item(), abs=1e-6)
    assert model.lm_head.weight is model.transformer.wte.weight and config.layer_norm_epsilon == 1e-5
    assert model.transformer.wte.weight.std().item() == pytest.approx(0.02, abs=0.01)


# ---- MindSpore, as the rules say

@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    calls = [call for call in rules()["calls"] if call["callee"].startswith("mindspore.")]
    answer, failure = run_child("", tmp_path_factory.mktemp("lint"), calls, Path(__file__).with_name("lint_child.py"))
    assert answer is not None, failure
    return calls, answer


@needs_mindspore
def test_arguments_of_mindspore_stand_where_the_rules_look(wheel):
    calls, answer = wheel
    assert answer["version"] == "2.10.0" and len(calls) >= 15
    for call in calls:
        assert answer["places"][f"{call['callee']} {call['argument']}"] == call["position"], call
    assert answer["defaults"] == {
        "LayerNorm.epsilon": 1e-7, "LayerNormExt.eps": 1e-5, "GELU.approximate": True, "gelu.approximate": "none",
        "Dropout.keep_prob": 0.5, "Dropout.p": None, "AdamWeightDecay.eps": 1e-6, "AdamWeightDecay.weight_decay": 0.0,
        "AdamW.eps": 1e-8, "AdamW.weight_decay": 0.01, "cross_entropy.ignore_index": -100, "CrossEntropyLoss.ignore_index": -100,
        "CrossEntropyLoss.reduction": "mean", "load_param_into_net.strict_load": False, "load_checkpoint.crc_check": False,
        "save_checkpoint.format": "ckpt", "DynamicLossScaleManager.init_loss_scale": 2**24, "FixedLossScaleManager.loss_scale": 128.0,
        "flash_attention_score.scalar_value": 1.0}


@needs_mindspore
def test_layers_of_mindspore(wheel):
    layers = wheel[1]["layers"]
    assert layers["layernorm"] == pytest.approx([0.6201737, -0.6201737, 1.2403473, -1.2403473], abs=1e-6)
    assert layers["layernorm_5"] == pytest.approx([0.2828427, -0.2828427, 0.5656854, -0.5656854], abs=1e-6)
    assert [layers["gelu"], layers["ops.GeLU"]] == pytest.approx([TANH] * 2, abs=2e-7)
    assert [layers["gelu_exact"], layers["ops.gelu"]] == pytest.approx([EXACT] * 2, abs=2e-7)
    assert layers["dense"] == pytest.approx([0.05, 0.05], abs=1e-3) and layers["dense_shape"] == [900, 400]
    assert layers["dense_std"] == pytest.approx(0.05 / math.sqrt(3), rel=0.01) and layers["table_std"] == pytest.approx(0.01, rel=0.01)
    assert layers["names"] == ["0.beta", "0.gamma", "1.embedding_table"]


@needs_mindspore
def test_dropout_and_modes_of_mindspore(wheel):
    """Case M12: as the share dropped, as the share kept, and what a first place without a name is."""
    dropouts = wheel[1]["dropouts"]
    for name, kept in (("p", 0.9), ("keep_prob", 0.9), ("place", 0.1), ("both", 0.9)):
        training, before, share = dropouts[name]
        assert training is False and before == 1.0 and abs(share - kept) <= 0.002, name
    assert abs(dropouts["primitive"] - 0.9) <= 0.002
    assert wheel[1]["train"] == [False, True]  # after TrainOneStepCell and value_and_grad, after Model.train


@needs_mindspore
def test_updates_and_norms_of_mindspore(wheel):
    optimizers, norms = wheel[1]["optimizers"], wheel[1]["norms"]
    assert optimizers["AdamWeightDecay"] == pytest.approx([0.68277, 0.83767, 0.90450], abs=6e-6)
    assert optimizers["AdamW"] == pytest.approx([0.89900, 0.93471, 0.94745], abs=6e-6)
    assert optimizers["decays"] == {"w": True, "dense.bias": True, "x.gamma": False, "sigbeta.w": False, "b.eta": True}
    assert optimizers["states"] == ["adam_m", "adam_v", "global_step", "learning_rate", "w"]
    assert norms["l2loss"] == pytest.approx(0.91, abs=0.01)
    assert norms["reduce_sum"] == pytest.approx(1.0, abs=1e-6) and norms["clipped"] == pytest.approx(1.0, abs=1e-6)


@needs_mindspore
def test_heads_losses_and_masks_of_mindspore(wheel):
    for name, (parameters, same) in wheel[1]["ties"].items():
        assert len(parameters) == (1 if name.startswith("assign") else 2) and same != name.startswith("parameter"), name
    losses, masks = wheel[1]["losses"], wheel[1]["masks"]
    assert [losses["cross_entropy"], losses["CrossEntropyLoss"]] == pytest.approx([1.4076059] * 2, abs=1e-6)
    assert losses["rows"] == pytest.approx([1.4076059, 0.0], abs=1e-6)  # the ignored one counts in a mean
    assert masks == {"hidden": 0.0, "fp16": ["-inf", "-10000.0"]}


@needs_mindspore
def test_files_of_mindspore(wheel):
    files = wheel[1]["files"]
    assert files["missing"] == [["bias"], []]
    assert files["prefix"] == [[], ["transformer.weight", "transformer.bias"]] and files["loaded"] == [1.0, 1.0]
    assert files["half"][0] == [["bias"], []] and files["half"][1] == float(np.float16(0.1))
    assert files["saved"] == {"one": [1], "scalar": []}  # what had no elements is gone


@needs_mindspore
def test_what_mindspore_refuses_on_cpu(wheel):
    assert wheel[1]["amp"] == {"O0": False, "O1": True, "O2": True, "O3": True, "auto": True}
    failures = wheel[1]["failures"]
    words = {"O2": "loss_scale_manager", "Model": "loss_scale_manager", "mean": "label", "bf16": "MatMul", "layer_norm": "LayerNormExt",
             "mint_layer_norm": "LayerNormExt", "mint_gelu": "GeluExt", "mint_GELU": "GeluExt", "flash": "FlashAttentionScore",
             "mint_adamw": "Adam"}
    assert failures.pop("O3") is None and failures.keys() == words.keys()
    for name, word in words.items():
        assert failures[name] is not None and word in failures[name], (name, failures[name])
