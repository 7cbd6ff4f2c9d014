"""`lamina convert` on what other programs really write, and what they make of what it writes: transformers, torch, MindSpore."""
import collections
import json
import os
import shutil
import signal
import subprocess

import cli_support as cli
import numpy as np
import pytest
import tiny
import torch
from mindspore_support import mindspore_python, needs_mindspore
from safetensors.torch import load_file, save_file, save_model
from torch import nn
from transformers import GPT2LMHeadModel

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
CONTAINERS = {"hf": "model.safetensors", "torch": "pytorch_model.bin", "mindspore": "model.safetensors",
              "mindspore-ckpt": "model.ckpt"}


def account(folder):
    return json.loads((folder / "conversion.json").read_text())


def stored(folder, dtype=torch.float32, tied=True):
    """Tiny as a HuggingFace folder with weights of a type."""
    tiny.write(folder, tie_word_embeddings=tied, dtype=str(dtype).removeprefix("torch."))
    weights = {name: torch.from_numpy(values).to(dtype) for name, values in tiny.weights().items()}
    if not tied:
        weights["lm_head.weight"] = torch.from_numpy(tiny.tensor(4, (97, 16), 0, 0.5)).to(dtype)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return weights


def logits(folder, dtype="auto"):
    model = GPT2LMHeadModel.from_pretrained(folder, dtype=dtype).eval()
    with torch.no_grad():
        return model(torch.tensor([tiny.PROMPT])).logits


@pytest.mark.tiny
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_round_trips_keep_every_byte_and_logit(dtype, tied, tmp_path):
    weights = stored(tmp_path / "a", DTYPES[dtype], tied)
    expected = logits(tmp_path / "a")
    for target in CONTAINERS:
        cli.ok("convert", tmp_path / "a", tmp_path / target, "--to", target)
        cli.ok("convert", tmp_path / target, tmp_path / f"{target}.back", "--to", "hf")
        back = load_file(tmp_path / f"{target}.back" / "model.safetensors")
        assert back.keys() == weights.keys()
        for name, values in weights.items():
            assert back[name].dtype == values.dtype
            assert torch.equal(back[name].view(torch.uint8), values.view(torch.uint8)), (target, name)
        assert torch.equal(logits(tmp_path / f"{target}.back"), expected), target
    state = torch.load(tmp_path / "torch" / "pytorch_model.bin", weights_only=True)
    assert all(torch.equal(state[name], values) for name, values in weights.items())


@pytest.mark.full
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_full_round_trips_of_gpt2(dtype, tied, tmp_path):
    torch.manual_seed(0)
    config = GPT2LMHeadModel.config_class(tie_word_embeddings=tied)
    GPT2LMHeadModel(config).to(DTYPES[dtype]).save_pretrained(tmp_path / "a")
    expected = logits(tmp_path / "a")
    weights = load_file(tmp_path / "a" / "model.safetensors")
    for target in CONTAINERS:
        cli.ok("convert", tmp_path / "a", tmp_path / "there", "--to", target)
        cli.ok("convert", tmp_path / "there", tmp_path / "back", "--to", "hf")
        back = load_file(tmp_path / "back" / "model.safetensors")
        assert back.keys() == weights.keys()
        assert all(torch.equal(back[name].view(torch.uint8), values.view(torch.uint8)) for name, values in weights.items()), target
        assert torch.equal(logits(tmp_path / "back"), expected), target
        for folder in ("there", "back"):
            shutil.rmtree(tmp_path / folder)


class Block(nn.Module):
    def __init__(self, width, bias):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, bias=bias)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(width, 3 * width, bias=bias), "c_proj": nn.Linear(width, width, bias=bias)})
        self.ln_2 = nn.LayerNorm(width, bias=bias)
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width, bias=bias), "c_proj": nn.Linear(4 * width, width, bias=bias)})

    def forward(self, x, heads):
        b, t, c = x.shape
        q, k, v = self.attn["c_attn"](self.ln_1(x)).split(c, dim=2)
        q, k, v = (y.view(b, t, heads, c // heads).transpose(1, 2) for y in (q, k, v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn["c_proj"](y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp["c_proj"](nn.functional.gelu(self.mlp["c_fc"](self.ln_2(x))))


class OtherGPT(nn.Module):
    """A GPT-2 as training scripts write it: nn.Linear, exact GELU, a tied head under two names, biases or none."""

    def __init__(self, bias=True, layers=2, width=16, heads=2, positions=16, vocabulary=97):
        super().__init__()
        self.heads = heads
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(vocabulary, width), "wpe": nn.Embedding(positions, width),
            "h": nn.ModuleList([Block(width, bias) for _ in range(layers)]), "ln_f": nn.LayerNorm(width, bias=bias)})
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        self.args = dict(n_layer=layers, n_head=heads, n_embd=width, block_size=positions, bias=bias, vocab_size=vocabulary, dropout=0.0)

    def forward(self, ids):
        x = self.transformer.wte(ids) + self.transformer.wpe(torch.arange(ids.shape[1]))
        for block in self.transformer.h:
            x = block(x, self.heads)
        return self.lm_head(self.transformer.ln_f(x))

    def optimizer(self):
        parameters = list(self.parameters())
        matrices, vectors = [p for p in parameters if p.dim() > 1], [p for p in parameters if p.dim() == 1]
        return torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}], lr=1e-2)


def train(model, optimizer, steps, first=0):
    ids = torch.from_numpy(tiny.tokens(24 * (first + steps)).astype(np.int64))[24 * first:].view(steps, 2, 12)
    for batch in ids:
        loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def saved(path, model, optimizer, legacy=False):
    """As nanoGPT's train.py saves a compiled model."""
    state = {"_orig_mod." + name: value for name, value in model.state_dict().items()}
    torch.save({"model": state, "optimizer": optimizer.state_dict(), "model_args": model.args, "iter_num": 3,
                "best_val_loss": torch.tensor(1.5), "config": {"dataset": "x", "compile": True}}, path,
               _use_new_zipfile_serialization=not legacy)


@pytest.mark.tiny
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no_bias"])
def test_a_checkpoint_of_nanogpt_becomes_a_model(bias, tmp_path):
    torch.manual_seed(0)
    model = OtherGPT(bias)
    optimizer = model.optimizer()
    train(model, optimizer, 3)
    saved(tmp_path / "ckpt.pt", model, optimizer, legacy=bias)
    said = cli.lamina("convert", tmp_path / "ckpt.pt", tmp_path / "hf", "--to", "hf")
    assert said.returncode == 0, said.stderr
    assert b"activation_function" in said.stderr and b"_orig_mod." in said.stderr
    with torch.no_grad():
        ids = torch.tensor([tiny.PROMPT])
        gap = (logits(tmp_path / "hf") - model(ids)).abs().max()
    assert gap < 1e-5
    operations = {tensor["operation"] for tensor in account(tmp_path / "hf")["tensors"]}
    assert ("zeros" in operations) == (not bias)
    # A config decides the GELU that the file is silent about, and contradicts nothing else.
    cli.write_config(tmp_path / "tanh.cfg", activation_function="gelu_new")
    cli.ok("convert", tmp_path / "ckpt.pt", tmp_path / "tanh", "--to", "hf", "--config", tmp_path / "tanh.cfg")
    assert json.loads((tmp_path / "tanh" / "config.json").read_text())["activation_function"] == "gelu_new"
    cli.write_config(tmp_path / "heads.cfg", n_head=4)
    cli.fails(1, ["n_head", "2", "4"], "convert", tmp_path / "ckpt.pt", tmp_path / "x", "--to", "hf", "--config", tmp_path / "heads.cfg")
    told = account(tmp_path / "hf")
    assert (told["used"], told["wanted"]) == (28 if bias else 15, 28)
    cli.ok("convert", tmp_path / "ckpt.pt", tmp_path / "all", "--to", "mindspore", "--optimizer")
    state = account(tmp_path / "all")["optimizer"]
    assert len(state) == 2 * 36 + 1 and ("zeros" in {tensor["operation"] for tensor in state}) == (not bias)


@pytest.mark.tiny
@pytest.mark.parametrize("way", [["mindspore-ckpt"], ["hf"], ["mindspore", "hf"]], ids="-".join)
def test_training_goes_on_in_torch_with_the_same_bits(way, tmp_path):
    """Weights, moments and the step out of a checkpoint, through other formats, into a new optimizer of torch."""
    torch.manual_seed(1)
    model = OtherGPT()
    optimizer = model.optimizer()
    train(model, optimizer, 3)
    saved(tmp_path / "ckpt.pt", model, optimizer)
    source = tmp_path / "ckpt.pt"
    for i, target in enumerate(way):
        cli.ok("convert", source, tmp_path / f"{i}", "--to", target, "--optimizer")
        source = tmp_path / f"{i}"
    cli.ok("convert", source, tmp_path / "out", "--to", "torch", "--names", "nanogpt", "--optimizer")
    other = OtherGPT()
    other.load_state_dict(torch.load(tmp_path / "out" / "pytorch_model.bin", weights_only=True), strict=False)
    theirs = other.optimizer()
    rates = [{key: group[key] for key in ("lr", "weight_decay")} for group in theirs.param_groups]
    theirs.load_state_dict(torch.load(tmp_path / "out" / "optimizer.pt", weights_only=True))
    for group, settings in zip(theirs.param_groups, rates):
        group.update(settings)
    assert train(other, theirs, 2, first=3) == train(model, optimizer, 2, first=3)
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name


@pytest.mark.tiny
def test_moments_of_other_optimizers_are_named(tmp_path):
    torch.manual_seed(1)
    model = OtherGPT()
    for number, (optimizer, words) in enumerate([
            (torch.optim.AdamW(model.parameters(), amsgrad=True), ["max_exp_avg_sq"]),
            (torch.optim.AdamW(list(model.parameters())[:5]), ["param_groups", "28"]),
            (torch.optim.SGD(model.parameters(), momentum=0.9), ["optimizer"])]):
        train(model, optimizer, 1)
        saved(tmp_path / f"{number}.pt", model, optimizer)
        cli.fails(1, words, "convert", tmp_path / f"{number}.pt", tmp_path / "out", "--to", "hf", "--optimizer")


@pytest.mark.tiny
def test_moments_follow_the_names_that_the_optimizer_has(tmp_path):
    """Named parameters in another order than the model's: shapes alone would fit other weights."""
    torch.manual_seed(1)
    model = OtherGPT()
    named = sorted(model.named_parameters(), key=lambda pair: pair[0].replace("h.0", "h.9"))
    optimizer = torch.optim.AdamW(named)
    train(model, optimizer, 2)
    saved(tmp_path / "ckpt.pt", model, optimizer)
    cli.ok("convert", tmp_path / "ckpt.pt", tmp_path / "out", "--to", "mindspore", "--names", "nanogpt", "--optimizer")
    state = load_file(tmp_path / "out" / "model.safetensors")
    assert [name for name, _ in named] != [name for name, _ in model.named_parameters()]
    for name, values in named:
        assert torch.equal(state["adam_m." + name], optimizer.state[values]["exp_avg"]), name
    checkpoint = torch.load(tmp_path / "ckpt.pt", weights_only=True)
    names = checkpoint["optimizer"]["param_groups"][0]["param_names"]
    names[:] = ["module." + name.replace("h.1.", "h.1._checkpoint_wrapped_module.") for name in names]
    torch.save(checkpoint, tmp_path / "wrapped.pt")
    cli.ok("convert", tmp_path / "wrapped.pt", tmp_path / "same", "--to", "mindspore", "--names", "nanogpt", "--optimizer")
    assert (tmp_path / "same" / "model.safetensors").read_bytes() == (tmp_path / "out" / "model.safetensors").read_bytes()
    names[3] = "another"
    torch.save(checkpoint, tmp_path / "other.pt")
    cli.fails(1, ["param_groups", "one of them"], "convert", tmp_path / "other.pt", tmp_path / "no", "--to", "hf", "--optimizer")


@pytest.mark.tiny
@pytest.mark.parametrize("keys", [("model_state_dict", "optimizer_state_dict"), ("state_dict", "optimizer_states")])
def test_checkpoints_of_tutorials_and_lightning(keys, tmp_path):
    weights, key = stored(tmp_path / "a"), keys[1]
    parameters = [nn.Parameter(value) for value in weights.values()]
    optimizer = torch.optim.AdamW(parameters)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    state = optimizer.state_dict()
    counts = collections.Counter({2: 1})
    torch.save({keys[0]: weights, key: [state] if key == "optimizer_states" else state, "epoch": 3,
                "lr_scheduler": {"milestones": counts}, "rng": {"state": b"\x01\xff"}}, tmp_path / "a.pt")
    cli.fails(1, ["no optimizer state", "optimizer.pt, got none"], "convert", tmp_path / "a", tmp_path / "x", "--to", "hf", "--optimizer")
    said = cli.lamina("convert", tmp_path / "a.pt", tmp_path / "b", "--to", "hf", "--config", tmp_path / "a" / "config.json")
    assert said.returncode == 0 and b"stays behind: --optimizer moves that of an Adam" in said.stderr, said.stderr
    said = cli.lamina("convert", tmp_path / "a.pt", tmp_path / "c", "--to", "mindspore", "--config", tmp_path / "a" / "config.json", "--optimizer")
    assert said.returncode == 0 and b"moments of 28 tensors, 1 updates" in said.stderr, said.stderr


@pytest.mark.tiny
def test_a_tied_table_under_the_name_of_its_head(tmp_path):
    """safetensors.torch.save_model keeps one name of a shared tensor, and may keep this one."""
    stored(tmp_path / "a")
    save_model(GPT2LMHeadModel.from_pretrained(tmp_path / "a"), tmp_path / "a" / "model.safetensors")
    names = load_file(tmp_path / "a" / "model.safetensors").keys()
    assert "lm_head.weight" in names and "transformer.wte.weight" not in names
    cli.ok("convert", tmp_path / "a", tmp_path / "b", "--to", "hf")
    (table,) = [tensor for tensor in account(tmp_path / "b")["tensors"] if tensor["target"] == "transformer.wte.weight"]
    assert table["from"][0]["name"] == "lm_head.weight"
    cli.fails(1, ["missing", "transformer.wte.weight"], "convert", tmp_path / "a", tmp_path / "c", "--to", "hf", "--config",
              cli.write_config(tmp_path / "untied.json", tie_word_embeddings=False))


@pytest.mark.tiny
def test_names_of_a_stranger_stay_one_plain_line(tmp_path):
    weights = stored(tmp_path / "a")
    evil = "\x1b[2J\nlamina: error: forged."
    save_file({evil + name: value for name, value in weights.items()}, tmp_path / "a" / "model.safetensors")
    save_file({**weights, evil + "x": torch.ones(2)}, tmp_path / "more.safetensors")
    for arguments in ([tmp_path / "a"], [tmp_path / "more.safetensors", "--config", tmp_path / "a" / "config.json", "--allow", "*forged*"]):
        said = cli.lamina("convert", arguments[0], tmp_path / f"b{len(arguments)}", "--to", "hf", *arguments[1:])
        assert said.returncode == 0 and b"forged" in said.stderr
        assert b"\x1b" not in said.stderr and b"\nlamina: error" not in said.stderr, said.stderr


def megatron_of(weights):
    """A state as Megatron-LM nests it: rows of q, k and v of one head together."""
    def heads(values):
        rows = values.T.reshape(3, 2, 8, -1) if values.dim() == 2 else values.reshape(3, 2, 8)
        return rows.transpose(0, 1).reshape(48, *values.shape[:-1]).contiguous()

    names = {"ln_1": "input_layernorm", "attn.c_attn": "self_attention.query_key_value", "attn.c_proj": "self_attention.dense",
             "ln_2": "post_attention_layernorm", "mlp.c_fc": "mlp.dense_h_to_4h", "mlp.c_proj": "mlp.dense_4h_to_h"}
    encoder = {}
    for name, values in weights.items():
        parts = name.removeprefix("transformer.").split(".")
        if parts[0] == "h":
            inner, kind = ".".join(parts[2:-1]), parts[-1]
            value = heads(values) if inner == "attn.c_attn" else values.T.contiguous() if values.dim() == 2 else values
            encoder[f"layers.{parts[1]}.{names[inner]}.{kind}"] = value
        elif parts[0] == "ln_f":
            encoder[f"final_layernorm.{parts[1]}"] = values
    return {"embedding": {"word_embeddings": {"weight": weights["transformer.wte.weight"]},
                          "position_embeddings": {"weight": weights["transformer.wpe.weight"]}}, "encoder": encoder}


@pytest.mark.tiny
def test_a_checkpoint_of_megatron(tmp_path):
    weights = stored(tmp_path / "a")
    (tmp_path / "m").mkdir()
    cli.write_config(tmp_path / "m" / "config.json")
    state = {"model": {"language_model": megatron_of(weights)}, "checkpoint_version": 3.0, "iteration": 7}
    torch.save(state, tmp_path / "m" / "pytorch_model.bin")
    cli.ok("convert", tmp_path / "m", tmp_path / "b", "--to", "hf")
    back = load_file(tmp_path / "b" / "model.safetensors")
    assert all(torch.equal(back[name], values) for name, values in weights.items())
    for version in (1.0, None):
        torch.save({**state, "checkpoint_version": version}, tmp_path / "m" / "pytorch_model.bin")
        cli.fails(1, ["checkpoint_version", "2", "1" if version else "none"], "convert", tmp_path / "m", tmp_path / "c", "--to", "hf")


@pytest.mark.tiny
def test_two_models_in_one_file(tmp_path):
    weights = {name: torch.from_numpy(values) for name, values in tiny.weights().items()}
    torch.save({"model": weights, "ema": weights}, tmp_path / "pytorch_model.bin")
    cli.write_config(tmp_path / "config.json")
    cli.fails(1, ["model.transformer.", "ema.transformer.", "same tensor"], "convert", tmp_path, tmp_path / "out", "--to", "hf")
    cli.ok("convert", tmp_path, tmp_path / "out", "--to", "hf", "--allow", "ema.*")
    assert len(account(tmp_path / "out")["allowed"]) == 28


def test_a_signal_takes_the_half_written_folder_away(tmp_path):
    stored(tmp_path / "a")
    config = cli.tiny_config(vocab_size=100_000, n_embd=512, n_head=8)
    (tmp_path / "big").mkdir()
    cli.write_json(tmp_path / "big" / "config.json", config)
    GPT2LMHeadModel(GPT2LMHeadModel.config_class(**config)).save_pretrained(tmp_path / "big")
    work = subprocess.Popen([str(cli.BINARY), "convert", tmp_path / "big", tmp_path / "out", "--to", "torch"],
                            stderr=subprocess.PIPE)
    while not any(entry.name.startswith(".out.") for entry in tmp_path.iterdir()):
        assert work.poll() is None, work.stderr.read()
    work.send_signal(signal.SIGTERM)
    assert work.wait(60) in (143, 0)
    assert not any(entry.name.startswith(".") for entry in tmp_path.iterdir())
    assert (tmp_path / "out").exists() == (work.returncode == 0)
    work.stderr.close()


MINDSPORE = """
import json, sys
import numpy as np
sys.path.insert(0, {source!r})
import mindspore as ms
from lamina.mindspore import GPT2Config, GPT2LMHeadModel

out = {{}}
for name in {folders!r}:
    sys.path.insert(0, name)
    sys.modules.pop("load_mindspore", None)
    from load_mindspore import load
    model = GPT2LMHeadModel(GPT2Config.from_pretrained(name))
    load(model)
    out[name] = model(ms.Tensor([{prompt!r}], ms.int32)).asnumpy().tolist()
    sys.path.pop(0)
try:
    model = GPT2LMHeadModel(GPT2Config.from_dict(dict(json.load(open(name + "/config.json")), n_layer=3)))
    load(model)
    out["more"] = "loaded"
except ValueError as error:
    out["more"] = str(error)
for form in ("ckpt", "safetensors"):
    for crc in (False, True):
        ms.save_checkpoint(GPT2LMHeadModel.from_pretrained({first!r}), f"saved_{{form}}_{{crc}}.{{form}}", format=form, crc_check=crc)
json.dump(out, open("out.json", "w"))
"""


@needs_mindspore
def test_mindspore_loads_strictly_and_saves_what_converts_back(tmp_path):
    weights = stored(tmp_path / "a")
    cli.ok("convert", tmp_path / "a", tmp_path / "mindspore-ckpt", "--to", "mindspore-ckpt")
    # With moments beside the weights, which a network leaves.
    moments = {f"{front}.{name}": torch.ones_like(values) for front in ("adam_m", "adam_v") for name, values in weights.items()}
    (tmp_path / "trained").mkdir()
    shutil.copy(tmp_path / "a" / "config.json", tmp_path / "trained")
    save_file({**weights, **moments, "global_step": torch.tensor([3], dtype=torch.int32)}, tmp_path / "trained" / "model.safetensors")
    cli.ok("convert", tmp_path / "trained", tmp_path / "mindspore", "--to", "mindspore", "--optimizer")
    script = MINDSPORE.format(source=str(cli.ROOT / "python"), prompt=tiny.PROMPT, first=str(tmp_path / "a"),
                              folders=[str(tmp_path / "mindspore"), str(tmp_path / "mindspore-ckpt")])
    (tmp_path / "run.py").write_text(script)
    done = subprocess.run([mindspore_python(), "run.py"], cwd=tmp_path, env=dict(os.environ, GLOG_v="3"), capture_output=True,
                          text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    out = json.loads((tmp_path / "out.json").read_text())
    assert "layer.2." in out.pop("more")
    expected = logits(tmp_path / "a").double().numpy()
    for name, values in out.items():
        assert np.abs(np.array(values) - expected).max() < 1e-5, name
    for saved_file in sorted(tmp_path.glob("saved_*")):
        to = tmp_path / ("from_" + saved_file.name)
        cli.ok("convert", saved_file, to, "--to", "hf", "--config", tmp_path / "a" / "config.json")
        back = load_file(to / "model.safetensors")
        assert all(torch.equal(back[name], values) for name, values in weights.items()), saved_file.name
