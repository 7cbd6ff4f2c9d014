"""`lamina verify` as people call it. What other programs compute comes from a GPT-2 of a few lines of numpy with a mistake in it,
from transformers and from lamina.mindspore: each mistake has to be named. Cases M5, M17 and N26."""
import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pytest
import tiny
import torch
from cli_support import fails, lamina, ok, ok_json
from mindspore_support import mindspore_python, needs_mindspore
from safetensors.numpy import load_file, save_file

H, C, D, V = 2, 16, 8, 97


@dataclass
class Program:
    """What a program may do otherwise than it should."""

    eps: float = 1e-5
    exact_gelu: bool = False
    scaled: bool = True
    by_layer: bool = False
    heads: int = H
    layers: int = 2
    masked: bool = True
    offset: int = 0
    rows: int = V  # of the table
    targets: int = 0  # shift
    qkv: tuple = (0, 1, 2)
    drop: float = 0.0
    again: bool = False


def gelu(x, exact):
    if exact:
        return torch.nn.functional.gelu(torch.from_numpy(x)).numpy()
    return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3)))


def norm(w, name, x, eps):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * w[name + ".weight"] + w[name + ".bias"]


def linear(w, name, x):
    return x @ w[name + ".weight"] + w[name + ".bias"]


def attention(w, layer, x, p):
    B, T, _ = x.shape
    parts = np.split(linear(w, f"h.{layer}.attn.c_attn", x), 3, -1)
    q, k, v = (parts[i].reshape(B, T, p.heads, -1).transpose(0, 2, 1, 3) for i in p.qkv)
    scores = q @ k.transpose(0, 1, 3, 2)
    scores /= (np.sqrt(C // p.heads) if p.scaled else 1.0) * (layer + 1 if p.by_layer else 1)
    if p.masked:
        scores = np.where(np.tril(np.ones((T, T), bool)), scores, -np.inf)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    out = (e / e.sum(-1, keepdims=True)) @ v
    return linear(w, f"h.{layer}.attn.c_proj", out.transpose(0, 2, 1, 3).reshape(B, T, C))


def loss_of(logits, targets):
    shifted = logits - logits.max(-1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    valid = targets >= 0
    return -np.take_along_axis(logs, np.maximum(targets, 0)[..., None], -1)[..., 0][valid].mean()


def compute(w, tokens, targets, p):
    """Stream, logits and loss, in double, under the names of a witness."""
    w = {name.removeprefix("transformer."): values.astype(np.float64) for name, values in w.items()}
    table = np.concatenate([w["wte.weight"], np.full((p.rows - V, C), 0.03)])
    x = table[tokens] + w["wpe.weight"][np.arange(tokens.shape[1]) + p.offset]
    if p.drop:
        x = np.where(np.random.default_rng(0).random(x.shape) < p.drop, 0.0, x / (1.0 - p.drop))
    out = {"embedding": x}
    for i in range(p.layers):
        x = out[f"layer.{i}.attention.residual"] = x + attention(w, i, norm(w, f"h.{i}.ln_1", x, p.eps), p)
        inner = gelu(linear(w, f"h.{i}.mlp.c_fc", norm(w, f"h.{i}.ln_2", x, p.eps)), p.exact_gelu)
        x = out[f"layer.{i}.mlp.residual"] = x + linear(w, f"h.{i}.mlp.c_proj", inner)
    out["ln_f"] = norm(w, "ln_f", x, p.eps)
    logits = out["logits"] = out["ln_f"] @ w.get("head", table).T
    if p.targets > 0:
        logits, targets = logits[:, :-p.targets], targets[:, p.targets:]
    out["loss"] = np.array([loss_of(logits, tokens if p.targets < 0 else targets)])
    if p.again:
        out["logits.again"] = out["logits"] + 1e-3
    return out


def edited(edit):
    w = {name.removeprefix("transformer."): values.copy() for name, values in tiny.weights().items()}
    edit(w)
    return w


def write(folder, w, **config):
    tiny.write(folder, **config)
    save_file(w, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def swap(*names):
    def edit(w):
        w[names[0]], w[names[1]] = w[names[1]], w[names[0]]
    return edit


def transpose(name):
    def edit(w):
        w[name] = np.ascontiguousarray(w[name].T)
    return edit


def by_head(w):
    """c_attn's columns taken as q, k, v of one head after the other."""
    for part in ("weight", "bias"):
        name = f"h.1.attn.c_attn.{part}"
        mixed = w[name].reshape(*w[name].shape[:-1], H, 3, D)
        w[name] = np.ascontiguousarray(np.moveaxis(mixed, -3, -2).reshape(w[name].shape))


def swap_layers(w):
    for name in [name for name in w if name.startswith("h.0.")]:
        swap(name, "h.1." + name[4:])(w)


def to_16(kind):
    def edit(w):
        for name in w:
            w[name] = torch.from_numpy(w[name]).to(kind).float().numpy()
    return edit


def other_head(w):
    w["head"] = np.random.default_rng(5).normal(0, 0.3, (V, C)).astype(np.float32)


def clear(*names):
    def edit(w):
        for name in names:
            w[name] = np.zeros_like(w[name])
    return edit


NOTHING = lambda w: None  # noqa: E731
WRONG = {  # a row for each mistake: the program, its weights, what the cause has to say
    "layer_norm_epsilon": (Program(eps=1e-7), NOTHING, "1e-07"),
    "gelu": (Program(exact_gelu=True), NOTHING, "exact"),
    "attention_scale": (Program(scaled=False), NOTHING, "scale_attn_weights false"),
    "inverse_layer_scale": (Program(by_layer=True), NOTHING, "idx true"),
    "n_head": (Program(heads=4), NOTHING, "4 in place of 2"),
    "n_layer": (Program(layers=1), NOTHING, "1 in place of 2"),
    "rounded_weights": (Program(), to_16(torch.bfloat16), "bf16"),
    "transposed_weight": (Program(), transpose("h.0.attn.c_proj.weight"), "layer.0.attention.proj"),
    "missing_bias": (Program(), clear("h.1.mlp.c_proj.bias"), "layer.1.mlp.proj.bias"),
    "gamma_beta_swapped": (Program(), swap("ln_f.weight", "ln_f.bias"), "ln_f"),
    "norms_swapped": (Program(), swap("h.1.ln_1.weight", "h.1.ln_2.weight"), "ln_1.weight and ln_2.weight"),
    "layers_swapped": (Program(), swap_layers, "layers 0 and 1"),
    "qkv_order": (Program(qkv=(1, 0, 2)), NOTHING, "taken from k, q, v"),
    "qkv_per_head": (Program(), by_head, "layer.1.attention.{q,k,v}, packed in blocks and taken by head"),
    "missing_mask": (Program(masked=False), NOTHING, "follow"),
    "position_offset": (Program(offset=1), NOTHING, "shifted by 1"),
    "untied_head": (Program(), other_head, "linear map"),
    "padded_vocabulary": (Program(rows=128), NOTHING, "128 columns in place of 97"),
    "dropout": (Program(drop=0.1), NOTHING, "embeddings"),
    "label_shift": (Program(targets=1), NOTHING, "after the next"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verify") / "tiny"
    tiny.write(folder)
    return folder


@pytest.fixture(scope="module")
def prompt(model):
    path = model.parent / "prompt.txt"
    path.write_text(" ".join(map(str, tiny.PROMPT)))
    return path


def rows(T=12):
    ids = tiny.tokens(2 * T + 1)
    return ids[:-1].reshape(2, T).copy(), ids[1:].reshape(2, T).copy()


def witness(path, program, edit=NOTHING, kind=np.float64):
    tokens, targets = rows()
    numbers = compute(edited(edit), tokens, targets, program)
    save_file({"tokens": tokens, "targets": targets, **{name: v.astype(kind) for name, v in numbers.items()}}, path)
    return path


def report(*args):
    """What a comparison says, and whether its exit code does too."""
    done = lamina("verify", *args, "--json")
    assert done.returncode in (0, 1) and done.stdout, done.stderr.decode()
    said = json.loads(done.stdout)
    assert said["equal"] == (done.returncode == 0)
    return said


@pytest.mark.tiny
def test_a_sound_program_is_equal(model, tmp_path):
    said = report(model, "--witness", witness(tmp_path / "numbers", Program()))
    assert said["equal"] and said["cause"] is None and said["first_difference"] is None
    assert said["largest_logits_gap"] < 1e-13 and said["rows"] == 2 and said["tokens"] == 12
    assert report(model, "--witness", witness(tmp_path / "fp32", Program(), kind=np.float32))["equal"]


@pytest.mark.tiny
@pytest.mark.parametrize("cause", WRONG)
def test_the_mistake_of_a_program_is_named(model, tmp_path, cause):
    program, edit, named = WRONG[cause]
    for kind in (np.float64, np.float32):
        said = report(model, "--witness", witness(tmp_path / "numbers", program, edit, kind))
        assert (said["equal"], said["cause_id"]) == (False, cause), said["first_difference"]
        assert named in said["cause"]


def test_two_passes_that_differ_are_dropout(model, tmp_path):
    path = witness(tmp_path / "numbers", Program(again=True))
    numbers = load_file(path)
    numbers["logits"][0, 0, 0] += 1.0
    save_file({name: v for name, v in numbers.items() if "logits" in name or name[0] == "t"}, path)
    assert report(model, "--witness", path)["cause_id"] == "dropout"


SETTINGS = {"exact_gelu": "activation_function", "scaled": "scale_attn_weights", "by_layer": "scale_attn_by_inverse_layer_idx",
            "heads": "n_head", "eps": "layer_norm_epsilon"}


@pytest.mark.parametrize("program", [Program(exact_gelu=True), Program(scaled=False), Program(by_layer=True), Program(heads=4),
                                     Program(eps=1e-6), Program(exact_gelu=True, by_layer=True, heads=1)], ids=str)
def test_settings_that_agree_are_no_difference(tmp_path, program):
    values = {key: getattr(program, name) for name, key in SETTINGS.items()}
    values["activation_function"] = "gelu" if program.exact_gelu else "gelu_new"
    folder = write(tmp_path / "model", tiny.weights(), **values)
    assert report(folder, "--witness", witness(tmp_path / "numbers", program))["equal"]


@pytest.mark.tiny
@pytest.mark.parametrize("layer, gap", [(0, 6.07), (1, 3.13)])
def test_m5_a_transpose_left_out(model, prompt, tmp_path, layer, gap):
    bad = write(tmp_path / "bad", edited(transpose(f"h.{layer}.attn.c_proj.weight")))
    done = lamina("verify", model, bad, "--ids-file", prompt)
    text = done.stdout.decode()
    assert done.returncode == 1 and f"{gap}" in text and f"in layer {layer}: layer.{layer}.attention" in text
    assert text.splitlines()[-1] == f"cause: transposed weight: layer.{layer}.attention.proj.weight, in B"
    said = report(model, bad, "--ids-file", prompt)
    assert said["first_difference"]["layer"] == layer and said["weights"][0]["tensor"] == f"layer.{layer}.attention.proj.weight"
    assert said["cause_id"] == "transposed_weight" and round(said["largest_logits_gap"], 2) == gap
    assert {"layer", "tensor", "error", "tolerance"} <= said["tensors"][0].keys()


@pytest.mark.tiny
def test_m17_only_the_generation_settings_differ(model, tmp_path):
    other = shutil.copytree(model, tmp_path / "other")
    for folder, settings in ((model, {"do_sample": False}), (other, {"do_sample": True, "top_k": 5})):
        (folder / "generation_config.json").write_text(json.dumps(settings))
    text = ok("verify", model, other)
    (model / "generation_config.json").unlink()
    assert "do_sample: false in A, true in B" in text and "top_k: absent in A, 5 in B" in text
    assert 'generation_config.json of A: {"do_sample":false}' in text and '"top_k":5' in text
    assert "greedy ids after half of each row: equal" in text and text.splitlines()[-1].startswith("equal: ")


@pytest.mark.tiny
def test_n26_a_reference_from_other_data(model, tmp_path):
    ids, changed, reference = (tmp_path / name for name in ("ids.txt", "changed.txt", "reference.safetensors"))
    stream = tiny.tokens(17)
    ids.write_text(" ".join(map(str, stream)))
    stream[5] = (stream[5] + 1) % V
    changed.write_text(" ".join(map(str, stream)))
    options = ["--tokens", 8, "--witness", reference]
    ok("verify", model, "--ids-file", ids, "--tokens", 8, "--steps", 10, "--lr", 1e-3, "--write-witness", reference)
    said = report(model, "--ids-file", ids, "--lr", 0.001, *options)
    losses = next(t for t in said["tensors"] if t["tensor"] == "losses")
    assert said["equal"] and losses["error"] == 0.0
    line = fails(1, ["hash of the tokens", "nothing was compared"], "verify", model, "--ids-file", changed, *options)
    assert "differs" not in line and said["inputs_xxh3_128"] in line and line.count(said["inputs_xxh3_128"]) == 1
    fails(1, ["lr, expected 0.001, got 0.002"], "verify", model, "--ids-file", ids, "--lr", 0.002, *options)
    numbers = load_file(reference)
    numbers["losses"][9] += 1e-6
    save_file(numbers, reference, metadata={"lr": "0.001"})
    assert report(model, "--witness", reference)["first_difference"]["tensor"] == "losses"


def test_weights_in_16_bits_are_a_named_difference(model, tmp_path):
    half = tmp_path / "half"
    half.mkdir()
    shutil.copy(model / "config.json", half)
    from safetensors.torch import save_file as save_torch
    save_torch({name: torch.from_numpy(w).to(torch.float16) for name, w in tiny.weights().items()}, half / "model.safetensors")
    said = report(model, half)
    assert said["cause"] == "weights rounded to 16 bits: fp16, in B" and said["weights"]
    assert report(half, model)["cause"].endswith("in A")
    assert report(model, half, "--tolerance", 1e-2)["equal"]


def test_other_formats_and_names_are_equal(model, tmp_path):
    """A checkpoint as nanoGPT saves it, wrapped and with its own head; a single file with the configuration given."""
    w = {name.removeprefix("transformer."): torch.from_numpy(v) for name, v in tiny.weights().items()}
    state = {"_orig_mod.transformer." + name: v.T.contiguous() if v.dim() == 2 and name.startswith("h.") else v for name, v in w.items()}
    state["_orig_mod.lm_head.weight"] = w["wte.weight"]
    args = dict(n_layer=2, n_head=2, n_embd=16, block_size=16, vocab_size=V, bias=True, dropout=0.0)
    torch.save({"model": state, "model_args": args, "iter_num": 5}, tmp_path / "ckpt.pt")
    said = report(model, tmp_path / "ckpt.pt")
    assert said["cause_id"] == "gelu"  # such a file has the exact one
    assert report(model, tmp_path / "ckpt.pt", "--config-b", model / "config.json")["equal"]
    assert report(tmp_path / "ckpt.pt", model, "--config-a", model / "config.json", "--threads", 1, "--tokens", 3, "--seed", 4)["equal"]


def test_an_untied_copy_is_equal_and_the_flag_is_noted(model, tmp_path):
    w = {**tiny.weights(), "lm_head.weight": tiny.weights()["transformer.wte.weight"]}
    said = report(model, write(tmp_path / "untied", w, tie_word_embeddings=False))
    assert said["equal"] and "tie_word_embeddings: true in A, false in B" in " ".join(said["notes"])


@pytest.mark.tiny
def test_wrong_usage_and_wrong_files(model, tmp_path):
    fails(2, ["nothing to compare A with"], "verify", model)
    fails(2, ["--with", "torch or mindspore", "jax"], "verify", model, "--with", "jax")
    fails(2, ["--witness", "--with"], "verify", model, "--with", "torch", "--witness", "x")
    fails(2, ["--tokens"], "verify", model, model, "--tokens", 0)
    fails(1, ["tokens out of range", "16", "17"], "verify", model, model, "--tokens", 17)
    fails(1, ["no such"], "verify", model, tmp_path / "nothing")
    (tmp_path / "ids").write_text("1 2 97")
    fails(1, ["bad id", "97", "96"], "verify", model, model, "--ids-file", tmp_path / "ids")
    path = witness(tmp_path / "numbers", Program())
    numbers = load_file(path)
    save_file({**numbers, "logits": numbers["logits"][:, :5].copy()}, path)
    fails(1, ["wrong shape", "logits", "2x12x97", "2x5x97"], "verify", model, "--witness", path)
    save_file({"tokens": numbers["tokens"], "targets": numbers["targets"]}, path)
    fails(1, ["nothing to compare"], "verify", model, "--witness", path)
    for name in ("tokens", "targets"):
        bad = numbers[name].copy()
        bad[1, 3] = 97
        save_file({**numbers, name: bad}, path)
        fails(1, ["bad witness", "place 15", "96", "97"], "verify", model, "--witness", path)
    long = np.zeros((1, 17), np.int32)
    save_file({"tokens": long, "targets": long}, path)
    fails(1, ["bad witness", "n_positions", "16", "17"], "verify", model, "--witness", path)
    save_file({**numbers, "grad.wpe.weight": np.zeros((3, 16))}, path)
    fails(1, ["wrong shape", "grad.wpe.weight", "16x16", "3x16"], "verify", model, "--witness", path)


def rewritten(model, path, edit, *options):
    """A's own numbers after an edit of the dictionary."""
    ok("verify", model, "--write-witness", path, "--tokens", 8, *options)
    numbers = load_file(path)
    edit(numbers)
    save_file(numbers, path)
    return path


def rename(numbers, old, new):
    for name in [name for name in numbers if name.startswith(old)]:
        numbers[new + name[len(old):]] = numbers.pop(name)


@pytest.mark.tiny
def test_no_tensor_of_a_witness_is_passed_over(model, tmp_path):
    """Names as named_parameters() of HuggingFace gives them are compared; names that are none are an error."""
    path = tmp_path / "numbers"
    said = report(model, "--witness", rewritten(model, path, lambda n: rename(n, "grad.", "grad.transformer.")))
    assert said["equal"] and said["tensors_compared"] == said["tensors_of_a"] == 44

    def noise(numbers):
        rename(numbers, "grad.", "grad.transformer.")
        numbers["grad.transformer.h.1.mlp.c_fc.weight"] += 1.0
    said = report(model, "--witness", rewritten(model, path, noise))
    assert said["first_difference"]["tensor"] == "grad.layer.1.mlp.fc.weight"
    rewritten(model, path, lambda n: [n.pop(name) for name in list(n) if name not in ("tokens", "targets", "logits", "loss")])
    assert "compared 2 of 44 tensors of A" in ok("verify", model, "--witness", path)
    one = np.zeros(3)
    for names in (["grad.h.0.attn.c_proj.weigth"], ["layer.9.mlp.residual"], ["param.h.0.attn.c_attn"], ["logit", "x", "y"]):
        rewritten(model, path, lambda n, names=names: n.update({name: one for name in names}))
        fails(1, ["unknown tensors", *names, "2 layers"], "verify", model, "--witness", path)
    rewritten(model, path, lambda n: n.update({f"grad.h.{i}.no": one for i in range(9)}))
    fails(1, ["grad.h.3.no", "and 5 more"], "verify", model, "--witness", path)
    rewritten(model, path, lambda n: n.update({"grad.transformer.wpe.weight": n["grad.wpe.weight"]}))
    fails(1, ["expected one of", "grad.transformer.wpe.weight"], "verify", model, "--witness", path)


def test_a_head_that_is_the_table_has_one_gradient(model, tmp_path):
    """A program may list it twice, or as the two parts that a head of its own would have."""
    path, table, head = tmp_path / "numbers", "grad.wte.weight", "grad.lm_head.weight"
    assert report(model, "--witness", rewritten(model, path, lambda n: n.update({head: n[table].copy()})))["equal"]

    def parts(numbers):
        numbers[head] = 0.25 * numbers[table]
        numbers[table] -= numbers[head]
    assert report(model, "--witness", rewritten(model, path, parts))["equal"]
    rewritten(model, path, lambda n: n.update({head: n.pop(table)}))
    fails(1, [head, "expected grad.wte.weight beside it"], "verify", model, "--witness", path)


def test_write_witness_replaces_only_a_witness(tmp_path):
    folder = tmp_path / "model"
    tiny.write(folder)
    weights = (folder / "model.safetensors").read_bytes()
    for target in (folder / "model.safetensors", folder / "config.json", folder):
        fails(1, ["exists already", "a free name or a witness"], "verify", folder, "--write-witness", target)
    assert (folder / "model.safetensors").read_bytes() == weights
    for tokens in (4, 8):
        ok("verify", folder, "--write-witness", tmp_path / "numbers", "--tokens", tokens)
    assert load_file(tmp_path / "numbers")["tokens"].shape == (2, 8)


def test_what_a_witness_says_of_itself_has_to_be_a_number(model, tmp_path):
    path = tmp_path / "numbers"
    numbers = load_file(rewritten(model, path, NOTHING))
    for key, value in (("unit", "nan"), ("unit", "1e9"), ("softmax_error", "inf"), ("lr", "inf"), ("lr", "-1")):
        save_file(numbers, path, metadata={key: value})
        fails(1, ["bad metadata", key, value], "verify", model, "--witness", path)


@pytest.mark.tiny
def test_numbers_that_are_not_finite_are_equal_to_nothing(model, tmp_path):
    def broken(value):
        def edit(w):
            w["h.1.mlp.c_fc.bias"][5] = value
        return edit
    for value in (np.nan, np.inf):
        bad = write(tmp_path / f"bad{value}", edited(broken(value)))
        for pair in ((bad, model), (model, bad), (bad, bad)):
            said = report(*pair)
            assert said["cause_id"] == "not_finite" and "layer.1.mlp.fc.bias" in said["cause"]
            assert said["first_difference"]["tensor"] == "layer.1.mlp.fc.bias" and said["largest_logits_gap"] is None

    def large(w):
        w["h.1.attn.c_attn.weight"][5] = 1e30
    big = write(tmp_path / "big", edited(large))
    for a, b, which in ((big, model, "A"), (model, big, "B"), (big, big, "A")):
        text = lamina("verify", a, b).stdout.decode()
        assert text.splitlines()[-1] == f"cause: numbers that are not finite (NaN, infinity): layer.1.attention.residual, {which} in fp32"


def test_rows_that_no_token_reads_are_compared(model, tmp_path):
    def edit(w):
        w["wpe.weight"][8:] = 0.0
    other = write(tmp_path / "other", edited(edit))
    said = report(model, other, "--tokens", 8)
    assert said["cause"] == "rows 8 to 15 of embedding.position differ; no token of this comparison reads them"
    assert said["cause_id"] == "untouched_rows" and said["largest_logits_gap"] == 0.0 and said["greedy"]["equal"]
    assert report(model, other)["cause_id"] != "untouched_rows"


def with_engine(model, other, engine):
    environment = dict(LAMINA_TORCH_PYTHON=sys.executable, LAMINA_MINDSPORE_PYTHON=mindspore_python() or "")
    done = lamina("verify", model, other, "--with", engine, "--json", env=environment)
    assert done.stdout, done.stderr.decode()
    return json.loads(done.stdout)


def run_engine(engine, model, wrong):
    """A model that is sound and one that is not, side by side."""
    with ThreadPoolExecutor(2) as pool:
        sound, other = pool.map(lambda folder: with_engine(model, folder, engine), (model, wrong))
    assert sound["equal"] and engine in sound["b"]
    assert {t["tensor"] for t in sound["tensors"] if t["comparison"] == "models"} == {t["tensor"] for t in sound["tensors"]}
    assert not other["equal"]
    return sound["largest_logits_gap"], other["cause"]


def test_transformers_is_a_witness(model, tmp_path):
    wrong = write(tmp_path / "wrong", edited(swap("h.0.ln_1.weight", "h.0.ln_1.bias")))
    gap, cause = run_engine("torch", model, wrong)
    assert gap < 1e-13 and cause == "LayerNorm's weight and bias exchanged: layer.0.ln_1, in the witness"


def test_transformers_loads_a_model_that_reorders_and_upcasts(tmp_path):
    """Which it can do in fp32 alone; in double it is no difference."""
    folder = write(tmp_path / "model", tiny.weights(), reorder_and_upcast_attn=True, scale_attn_by_inverse_layer_idx=True)
    assert with_engine(folder, folder, "torch")["equal"]


@needs_mindspore
def test_mindspore_is_a_witness(model, tmp_path):
    """With the epsilon that MindSpore takes where nobody names one."""
    gap, cause = run_engine("mindspore", model, write(tmp_path / "wrong", tiny.weights(), layer_norm_epsilon=1e-7))
    assert gap < 1e-4 and cause == "LayerNorm epsilon: 1e-07 in place of 1e-05, in the witness"
