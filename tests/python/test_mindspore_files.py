"""What `lamina.mindspore` reads and writes: configs and precision maps are accepted and refused as the program does it, in its
words; folders load exactly or not at all; weights go round without a changed bit."""
import json

import cli_support as cli
import numpy as np
import pytest
import tiny
import torch
from mindspore_support import needs_mindspore, run_children
from safetensors.torch import load_file, save_file
from test_cases import cases, has, manifest  # noqa: F401, fixtures
from transformers import GPT2LMHeadModel

pytestmark = needs_mindspore

CONFIGS = {
    "plain": {}, "sizes": {"n_head": 3}, "none": {"n_layer": 0}, "large": {"n_embd": 1 << 25}, "text": {"n_layer": "2"},
    "fraction": {"n_layer": 2.5}, "flag": {"scale_attn_weights": 1}, "activation": {"activation_function": "gelu_fancy"},
    "tanh": {"activation_function": "gelu_fast"}, "epsilon": {"layer_norm_epsilon": 0}, "dropout": {"attn_pdrop": -0.1},
    "dropouts": {"resid_pdrop": 1.1}, "range": {"initializer_range": -1}, "inner": {"n_inner": 0}, "other": {"model_type": "llama"},
    "cross": {"add_cross_attention": True}, "pruned": {"pruned_heads": {"0": [1]}}, "alias": {"n_ctx": 15}, "hidden": {"hidden_size": 16},
    "unknown": {"rope_theta": 1e4}, "harmless": {"use_cache": True, "torch_dtype": "bfloat16"}, "id": {"eos_token_id": 97},
    "negative": {"eos_token_id": -1}, "ids": {"bos_token_id": [5]}, "null": {"bos_token_id": None},
    "quantized": {"quantization_config": {"bits": 4}}, "upcast": {"reorder_and_upcast_attn": True},
}
MAPS = {
    "all": {"*": "bf16"}, "narrow": {"*": "bf16", "layer.0": "fp32", "layer.0-1.attention.{q,k}": "fp16", "head": "fp32"},
    "theirs": {"transformer.h.0.attn.c_attn.weight": "fp16", "wte": "fp16", "lm_head": "bf16"}, "mlp": {"mlp.fc": "fp16"},
    "star": {"layer.*.mlp": "bf16", "attention.core": "bf16"}, "norm": {"h.0.ln_1": "bf16"}, "beyond": {"layer.2": "bf16"},
    "nonsense": {"attention.z": "bf16"}, "empty": {"": "bf16"}, "number": {"layer": "bf16"}, "backwards": {"layer.1-0": "bf16"},
    "both": {"layer.0.mlp": "bf16", "layer.0.mlp.{fc,proj}": "fp16"}, "braces": {"attention.{q,*}": "bf16"},
    "word": {"*": "int8"}, "dots": {"layer.0..q": "bf16"}, "zero": {"layer.00.mlp": "bf16"},
}
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def write_stored(folder, dtype, tied):
    """Tiny with weights stored in a type, among them numbers that rounding twice would change."""
    tiny.write(folder, tie_word_embeddings=tied, dtype=str(dtype).removeprefix("torch."), a_key_of_mine=[1, 2])
    weights = {name: torch.from_numpy(values).to(dtype) for name, values in tiny.weights().items()}
    if not tied:
        weights["lm_head.weight"] = torch.from_numpy(tiny.tensor(77, (97, 16), 0, 0.5)).to(dtype)
    special = torch.tensor([0.0, -0.0, torch.finfo(dtype).tiny, torch.finfo(dtype).smallest_normal / 4, torch.finfo(dtype).max])
    weights["transformer.ln_f.bias"][:5] = special.to(dtype)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.fixture(scope="module")
def results(tmp_path_factory, cases, manifest):  # noqa: F811
    folder = tmp_path_factory.mktemp("files")
    for name, changes in CONFIGS.items():
        cli.write_config(folder / f"c_{name}.json", **changes)
    for name, rules in MAPS.items():
        cli.write_json(folder / f"m_{name}.json", rules)
    cli.write_config(folder / "config.json")
    for tied in (True, False):
        for name, dtype in DTYPES.items():
            write_stored(folder / f"{'tied' if tied else 'untied'}_{name}", dtype, tied)
    tiny.write(folder / "lone_head")
    weights = load_file(folder / "lone_head" / "model.safetensors")
    weights["lm_head.weight"] = weights.pop("transformer.wte.weight")
    save_file(weights, folder / "lone_head" / "model.safetensors")
    for name in ("lfs", "html"):
        cli.write_config(cases / "C5" / name / "config.json")
    task = dict(pynative=True, configs=[f"c_{name}.json" for name in CONFIGS], maps=[f"m_{name}.json" for name in MAPS],
                round_trips=["tied", "untied"], loads=[str(folder / "lone_head"), *(str(cases / entry["path"]) for entry in models(manifest))])
    (answer,) = run_children([("files", folder, task)])
    return folder, answer


def models(manifest):  # noqa: F811
    """The cases that are folders of a model in safetensors."""
    pickles = "pytorch_model.bin"
    return [dict(entry, path=entry["path"].removesuffix("/model.safetensors")) for entry in manifest
            if entry["case"] in ("C1", "C5", "C14", "M1", "M2", "M3", "M8", "M10", "M14", "M15") and pickles not in entry["path"]]


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_means_what_it_means_to_the_program(results, name):
    folder, answer = results
    path = folder / f"c_{name}.json"
    ours, program = answer["configs"][path.name], cli.lamina("inspect", "config", path)
    said = program.stderr.decode().splitlines()
    if program.returncode:
        assert f"lamina: error: {ours}" == said[0]
    else:
        assert [f"warning: {line}" for line in ours] == said


@pytest.mark.parametrize("name", MAPS)
def test_a_precision_map_means_what_it_means_to_the_program(results, name, tmp_path):
    folder, answer = results
    ours = answer["maps"][f"m_{name}.json"]
    ids = cli.write_ids(tmp_path / "ids.bin", 40)
    program = cli.lamina("train", "--model", folder / "config.json", "--precision", folder / f"m_{name}.json", "--data", ids,
                         "--out", tmp_path / "run", "--steps", 1, "--batch", 1, "--seq", 8)
    if program.returncode:
        assert f"lamina: error: {ours}" == program.stderr.decode().splitlines()[0]
    else:
        assert ours == json.loads((tmp_path / "run" / "lamina.json").read_text())["precision_map"]


def test_the_cpu_backend_refuses_bf16_by_name(results):
    said = results[1]["cpu"]
    assert said["fp32"].startswith("fp32: embedding, layer.0-1.attention.q")
    assert said["mixed-fp16"].startswith("fp16: layer.0-1.attention.q") and said["mixed-fp16"].endswith("; fp32: embedding")
    assert "layer.0.attention.q" in said["mixed"] and "bf16" in said["mixed"] and "CPU" in said["mixed"]
    assert "precision" in said["other"] and "MAP.json" in said["other"]


def test_folders_load_exactly_or_not_at_all(results, cases, manifest):  # noqa: F811
    """Cases M1 to M15 and their relatives: every input of the manifest that is a folder."""
    said = results[1]["loads"]
    whole = said[str(cases / "M1" / "with_prefix")][1]
    others = {"M15/three_layers_config_says_three", "M8/untied_with_head"}
    assert len(said) > 25
    assert said[str(results[0] / "lone_head")][1] == whole  # a tied table, saved under the name of its head
    for entry in models(manifest):
        answer, name = said[str(cases / entry["path"])], entry["path"]
        text = answer if isinstance(answer, str) else answer[0]
        assert isinstance(answer, str) == (entry["expect"] == "error"), (name, text)
        assert [word for word in entry["names"] if not has(word, text)] == [], (name, text)
        assert "\n" not in text
        if entry["expect"] == "ok":
            assert (answer[1] == whole) == (name not in others), name


@pytest.mark.parametrize("tied", ["tied", "untied"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_weights_go_round_bit_for_bit(results, tied, dtype):
    folder = results[0]
    first, second = folder / f"{tied}_{dtype}", folder / "saved" / f"{tied}_{dtype}"
    before, after = load_file(first / "model.safetensors"), load_file(second / "model.safetensors")
    assert before.keys() == after.keys()
    for name, values in before.items():
        assert values.dtype == after[name].dtype and values.shape == after[name].shape
        assert values.numpy(force=True).tobytes() == after[name].numpy(force=True).tobytes() if dtype != "bf16" else \
            torch.equal(values.view(torch.int16), after[name].view(torch.int16)), name
    old, new = (json.loads((place / "config.json").read_text()) for place in (first, second))
    assert old.items() <= new.items() and new["a_key_of_mine"] == [1, 2]


@pytest.mark.parametrize("tied", ["tied", "untied"])
def test_transformers_and_lamina_load_what_is_saved(results, tied):
    folder = results[0]
    ids = torch.tensor([tiny.PROMPT])
    logits = []
    for place in (folder / f"{tied}_bf16", folder / "saved" / f"{tied}_bf16"):
        logits.append(GPT2LMHeadModel.from_pretrained(place, dtype=torch.float32, attn_implementation="eager")(ids).logits)
    assert torch.equal(*logits) and np.isfinite(logits[0].detach().numpy()).all()
    count = 28 if tied == "tied" else 29
    assert f"{count} tensors" in cli.ok("inspect", "checkpoint", folder / "saved" / f"{tied}_fp32")
