"""The Python package `lamina`: the same numbers as HuggingFace's GPT-2, arrays without copies, errors with the command
line's text. Manners inside a process: test_process.py; options: test_package_options.py."""
import ctypes
import gc
import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch
from transformers import GPT2LMHeadModel

import lamina


@pytest.fixture(scope="module")
def twin(folder):
    """The same model in HuggingFace, double."""
    return GPT2LMHeadModel.from_pretrained(folder, attn_implementation="eager").double().eval()


def batch(rows=3, seq=8):
    return tiny.tokens(rows * (seq + 1)).reshape(rows, seq + 1)


def twin_loss(twin, ids, targets):
    logits = twin(input_ids=torch.tensor(ids, dtype=torch.long)).logits
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), torch.tensor(targets, dtype=torch.long).flatten(), ignore_index=-1
    )


def test_forward_gives_huggingfaces_logits(model, twin):
    ids = batch()
    truth = twin(input_ids=torch.tensor(ids, dtype=torch.long)).logits.detach().numpy()
    logits = model.forward(ids)
    assert logits.dtype == np.float32 and logits.shape == (3, 9, 97)
    assert np.abs(logits - truth).max() <= 1e-5


def test_the_wheel_carries_the_library_of_fused_layers():
    """Beside the module that looks for it there (lamina.mindspore.fused)."""
    library = Path(lamina.__file__).parent / "mindspore" / "liblamina_mindspore_ops.so"
    assert ctypes.CDLL(str(library)).lamina_mlp_forward(0, None, None, None, None, None, None) == 1


def test_logits_are_a_view_that_outlives_the_model(folder):
    model = lamina.Model.from_pretrained(folder)
    first = model.forward(batch(2, 7))
    assert not first.flags.owndata
    kept = first.copy()
    other = model.forward(np.array([[1, 2]], np.int32))
    assert other.shape == (1, 2, 97)
    assert np.shares_memory(first, other)
    again = model.forward(batch(2, 7))
    assert np.array_equal(again, kept) and np.array_equal(first, kept)
    del model, other
    gc.collect()
    assert np.array_equal(again, kept)


def test_a_larger_batch_changes_no_number(model):
    small = model.forward(batch(1, 4)).copy()
    large = model.forward(np.concatenate([batch(1, 4), batch(6, 4)[3:]]))
    assert np.abs(large[0] - small[0]).max() <= 1e-5
    assert np.abs(model.forward(batch(1, 4)) - small).max() <= 1e-5


def test_arrays_of_several_kinds_are_taken(model):
    ids = batch(2, 5)
    wanted = model.forward(ids).copy()
    for other in (ids.astype(np.int64), torch.tensor(ids), torch.tensor(ids, dtype=torch.long)):
        assert np.array_equal(model.forward(other), wanted)
    as_torch = torch.from_dlpack(model.forward(ids))
    assert np.array_equal(as_torch.numpy(), wanted)
    assert np.array_equal(model.forward(ids.tolist()), wanted)
    for wrong in (ids.astype(np.float32), ids[0], "ids", [[1, "x"]], 7):
        with pytest.raises(lamina.Error, match="int32 or int64"):
            model.forward(wrong)
    with pytest.raises(lamina.Error, match="row 1, expected 2 ids, got 1"):
        model.forward([[1, 2], [3]])


def test_loss_shifts_where_no_targets_are_given(model):
    prompt = np.array([tiny.PROMPT], np.int32)
    assert model.loss(prompt) == pytest.approx(tiny.PROMPT_LOSS, rel=1e-6)
    assert model.loss(prompt[:, :-1].copy(), prompt[:, 1:].copy()) == pytest.approx(tiny.PROMPT_LOSS, rel=1e-6)
    targets = prompt[:, 1:].copy()
    targets[0, 3:] = -1
    assert model.loss(prompt[:, :-1].copy(), targets) != pytest.approx(tiny.PROMPT_LOSS, rel=1e-3)


def test_gradients_are_those_of_the_last_loss(model, twin):
    ids, targets = batch()[:, :-1].copy(), batch()[:, 1:].copy()
    targets[1, 2] = -1
    with pytest.raises(lamina.Error, match="loss"):
        model.gradients()
    for _ in range(2):  # twice: sums must not pile up
        loss = model.loss(ids, targets)
        gradients = model.gradients()
    twin.zero_grad()
    truth = twin_loss(twin, ids, targets)
    truth.backward()
    assert loss == pytest.approx(truth.item(), rel=1e-6)
    expected = {name: p.grad.numpy() for name, p in twin.named_parameters()}
    assert gradients.keys() == expected.keys()
    for name, values in expected.items():
        assert gradients[name].shape == values.shape
        assert np.abs(gradients[name] - values).max() <= 1e-5 * np.abs(values).max(), name


def test_gradients_act_without_dropout(folder, tmp_path):
    ids = batch()
    plain = lamina.Model.from_pretrained(folder)
    dropping = lamina.Model.from_pretrained(tiny.write(tmp_path, resid_pdrop=0.5, attn_pdrop=0.5, embd_pdrop=0.5))
    assert plain.loss(ids) == dropping.loss(ids)
    for name, values in plain.gradients().items():
        assert np.array_equal(values, dropping.gradients()[name]), name


def test_trainer_steps_as_torch(folder, model):
    torch_model = GPT2LMHeadModel.from_pretrained(folder, attn_implementation="eager").double().train()
    groups = [
        dict(params=[p for p in torch_model.parameters() if p.dim() == 2], weight_decay=0.1),
        dict(params=[p for p in torch_model.parameters() if p.dim() == 1], weight_decay=0.0),
    ]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    trainer = lamina.Trainer(model, lr=1e-3, weight_decay=0.1, clip=1.0, accumulate=2)
    for step in range(1, 4):
        ids = tiny.tokens(400)[100 * step :][:36].reshape(4, 9)
        optimizer.zero_grad()
        loss = twin_loss(torch_model, ids[:, :-1], ids[:, 1:])
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(torch_model.parameters(), 1.0)
        optimizer.step()
        got = trainer.step(ids)
        assert (got.step, got.tokens, got.lr, got.finite) == (step, 32, 1e-3, True)
        assert got.loss == pytest.approx(loss.item(), rel=1e-5)
        assert got.grad_norm == pytest.approx(norm.item(), rel=1e-4)
    ours = model.parameters()
    for name, p in torch_model.named_parameters():
        values = p.detach().numpy()
        error = np.abs(ours[name] - values)
        if name.endswith("c_attn.bias"):  # the gradient of the keys' third is rounding noise
            error = np.delete(error, np.s_[16:32])
        assert error.max() <= 1e-5 * np.abs(values).max(), name
    assert model.loss(batch()) == pytest.approx(twin_loss(torch_model, batch()[:, :-1], batch()[:, 1:]).item(), rel=1e-5)


def test_training_goes_on_between_other_calls(folder):
    ids = batch(4, 8)

    def train(disturb):
        model = lamina.Model.from_pretrained(folder)
        trainer = lamina.Trainer(model, lr=1e-2)
        losses = []
        for step in range(4):
            losses.append(trainer.step(ids[: 2 if step == 0 else 4]).loss)  # the second step needs a larger plan
            if disturb:
                model.loss(ids)
                model.gradients()
                model.generate([[1, 2]], max_tokens=2)
                model.forward(ids)
        return losses, model.parameters()

    (losses, plain), (disturbed_losses, disturbed) = train(False), train(True)
    assert losses == disturbed_losses and losses[-1] < losses[1]
    for name, values in plain.items():
        assert np.array_equal(values, disturbed[name]), name


def test_a_new_trainer_takes_over(model):
    old = lamina.Trainer(model, lr=1e-2)
    old.step(batch())
    moved = model.loss(batch())
    new = lamina.Trainer(model, lr=1e-2)
    assert model.loss(batch()) == moved
    with pytest.raises(lamina.Error, match="newer Trainer"):
        old.step(batch())
    assert new.step(batch()).loss == pytest.approx(moved, rel=1e-6)


def test_schedule_and_warmup(model):
    trainer = lamina.Trainer(model, lr=1.0, schedule="linear", warmup=1, steps=3, min_lr=0.0)
    rates = [trainer.step(np.full((1, 3), 5, np.int32)).lr for _ in range(3)]
    assert rates == pytest.approx([0.5, 1.0, 0.5])
    decaying = lamina.Trainer(model, lr=1.0, schedule="wsd", steps=4, decay_steps=2)
    assert [decaying.step(batch()).lr for _ in range(4)] == [1.0, 1.0, 1.0, 0.5]
    for wrong in (dict(schedule="square"), dict(schedule="linear"), dict(accumulate=0)):
        with pytest.raises(lamina.Error):
            lamina.Trainer(model, **wrong).step(batch())


def test_what_is_saved_is_what_huggingface_loads(model, tmp_path):
    lamina.Trainer(model, lr=1e-2).step(batch())
    model.save_pretrained(str(tmp_path))
    loaded = GPT2LMHeadModel.from_pretrained(tmp_path)
    for name, p in loaded.named_parameters():
        assert np.array_equal(p.detach().numpy(), model.parameters()[name]), name


def test_generate_greedily_and_by_seed(model):
    prompts = [list(prompt) for prompt in tiny.GREEDY]
    rows = model.generate(prompts, max_tokens=8, temperature=0.0)
    assert [row.ids for row in rows] == list(tiny.GREEDY.values())
    assert {row.finish_reason for row in rows} == {"length"}
    sampled = model.generate(prompts, max_tokens=8, seed=5)
    assert [row.ids for row in sampled] == [row.ids for row in model.generate(prompts, max_tokens=8, seed=5)]
    ended = model.generate([[3, 91]], max_tokens=8, temperature=0.0, end_id=[44], log_probabilities=True)[0]
    assert ended.ids == [55, 44] and ended.finish_reason == "eos" and len(ended.log_probabilities) == 2


def test_generate_streams_and_can_be_stopped(model):
    seen = []

    def on_id(row, new):
        seen.append((row, new))
        return len(seen) < 3

    row = model.generate([[3, 91]], max_tokens=8, temperature=0.0, on_id=on_id)[0]
    assert [new for _, new in seen] == row.ids == [55, 44, 41]

    def broken(row, new):
        raise ValueError("the caller's own")

    with pytest.raises(ValueError, match="the caller's own"):
        model.generate([[3, 91]], on_id=broken, max_tokens=8)
    assert model.generate([[3, 91]], max_tokens=1, temperature=0.0)[0].ids == [55]


@pytest.mark.parametrize("option, value", [("top_k", -1), ("top_p", 1.5), ("temperature", -1.0), ("max_tokens", 0)])
def test_errors_name_option_and_value(model, option, value):
    with pytest.raises(lamina.Error) as caught:
        model.generate([[1]], **{"max_tokens": 4, option: value})
    assert option in str(caught.value) and f"{value:g}" in str(caught.value)
    assert caught.value.code == "usage" and "\n" not in str(caught.value)


def test_errors_of_files_and_ids(model, tmp_path):
    with pytest.raises(lamina.Error) as caught:
        lamina.Model.from_pretrained(str(tmp_path / "nothing"))
    assert "nothing" in str(caught.value) and caught.value.code == "io"
    with pytest.raises(lamina.Error, match="97"):
        model.forward(np.array([[1, 97]], np.int32))
    with pytest.raises(lamina.Error, match="row 0, position 1"):
        model.loss(np.array([[1, 2**40]]))
    with pytest.raises(lamina.Error, match="n_positions"):
        model.forward(np.zeros((1, 17), np.int32))
    assert model.forward([[1, 2]]).shape == (1, 2, 97)  # an error leaves the model as it was
    with pytest.raises(lamina.Error, match="shape"):
        model.loss(np.zeros((1, 3), np.int32), np.zeros((1, 4), np.int32))
    assert issubclass(lamina.Error, Exception)


def test_errors_have_the_text_of_the_command_line(tmp_path):
    missing = str(tmp_path / "nothing")
    done = subprocess.run(
        [sys.executable, "-m", "lamina", "generate", missing, "--prompt-ids", "1"], capture_output=True, text=True, check=False
    )
    with pytest.raises(lamina.Error) as caught:
        lamina.Model.from_pretrained(missing)
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == f"lamina: error: {caught.value}"


def test_other_threads_run_during_a_step(tmp_path):
    """One step that takes long beside a thread that counts: without the GIL's release it would count nothing."""
    config = dict(tiny.CONFIG, n_embd=256, n_layer=4, n_head=4, n_positions=256, vocab_size=1000)
    (tmp_path / "config.json").write_text(json.dumps(config))
    trainer = lamina.Trainer(lamina.Model.from_config(str(tmp_path / "config.json"), seed=1))
    ids = np.random.default_rng(1).integers(0, 1000, (4, 257), dtype=np.int32)
    trainer.step(ids)  # compiles
    ticks, done = [0], threading.Event()

    def count():
        while not done.is_set():
            time.sleep(0.001)
            ticks[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    before = ticks[0]
    trainer.step(ids)
    during = ticks[0] - before
    done.set()
    thread.join()
    assert during >= 10


def test_calls_from_several_threads_do_not_mix(folder, model):
    ids = batch(4, 8)
    wanted = model.loss(ids)
    results = []
    threads = [threading.Thread(target=lambda: results.extend(model.loss(ids) for _ in range(20))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [wanted] * 80


def test_tokenizer_round_trip(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat. " * 50, encoding="utf-8")
    command = [sys.executable, "-m", "lamina", "tokenize", "train", "--data", str(text), "--vocab-size", "265"]
    subprocess.run([*command, "--out", str(tmp_path / "tokenizer")], check=True, capture_output=True)
    tokenizer = lamina.Tokenizer.from_pretrained(str(tmp_path / "tokenizer"))
    assert tokenizer.vocab_size == 265 and tokenizer.end_of_text is not None
    for sample in ("the cat", "", "naïve 🙂\0\r\n", "  x<|endoftext|>"):
        ids = tokenizer.encode(sample)
        assert tokenizer.decode(ids) == sample
        assert tokenizer.decode_bytes(ids) == sample.encode()
        assert tokenizer.encode(sample.encode()) == ids
    assert tokenizer.encode("x<|endoftext|>", special="allow")[-1] == tokenizer.end_of_text
    with pytest.raises(lamina.Error, match="endoftext"):
        tokenizer.encode("x<|endoftext|>", special="error")
    with pytest.raises(lamina.Error, match="byte 2.*ff"):
        tokenizer.encode(b"ab\xff")
    with pytest.raises(UnicodeEncodeError, match="position 2"):
        tokenizer.encode("ab\udbc0cd")
    with pytest.raises(lamina.Error, match="270"):
        tokenizer.decode([270])


def test_the_module_runs_the_program():
    done = subprocess.run([sys.executable, "-m", "lamina", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"lamina {lamina.__version__}\n"


@pytest.mark.parametrize("order", ["numpy, torch, lamina", "lamina, torch, numpy", "torch, lamina"])
def test_imports_in_any_order(folder, order):
    code = f"import {order}, sys\nm = lamina.Model.from_pretrained(sys.argv[1])\nprint(torch.ones(2, 2).matmul(torch.ones(2, 2)).sum())"
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_works_without_numpy(folder):
    code = """
import sys
sys.modules["numpy"] = None
import array, lamina
ids = memoryview(array.array("i", [5, 17, 80])).cast("b").cast("i", [1, 3])
logits = memoryview(lamina.Model.from_pretrained(sys.argv[1]).forward(ids))
assert logits.shape == (1, 3, 97) and logits.format == "f", (logits.shape, logits.format)
"""
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
