"""Numbers that depend on the model, the data and the config, and on nothing else (the cases N of the table), as the
package gives them."""
import math

import numpy as np
import pytest
import tiny
import torch
from safetensors.numpy import save_file
from transformers import GPT2LMHeadModel

import lamina


def padded(rows, width):
    """(ids, targets) of rows of different lengths: what is padding has target -1, whatever id stands there."""
    ids, targets = np.full((len(rows), width), 96, np.int32), np.full((len(rows), width), -1, np.int32)
    for r, row in enumerate(rows):
        ids[r, : len(row) - 1], targets[r, : len(row) - 1] = row[:-1], row[1:]
    return ids, targets


def test_n8_a_padded_batch_is_huggingfaces(folder, model):
    """HuggingFace pads on the left and needs the mask; rows of a list need neither."""
    rows = [[3, 91], [47, 30, 79, 88, 91]]
    ids = torch.tensor([[96, 96, 96, *rows[0]], rows[1]])
    mask = torch.tensor([[0, 0, 0, 1, 1], [1] * 5])
    theirs = GPT2LMHeadModel.from_pretrained(folder).generate(
        ids, attention_mask=mask, max_new_tokens=8, do_sample=False, pad_token_id=96
    )
    ours = [row.ids for row in model.generate(rows, max_tokens=8, temperature=0.0)]
    assert ours == theirs[:, 5:].tolist() == [tiny.GREEDY[tuple(row)] for row in rows]


def test_n7_the_padding_id_may_be_the_end_id(model):
    assert model.loss(*padded([[5, 17, 96], [47, 30, 79, 88, 96]], 5)) == pytest.approx(5.097026, abs=2e-6)


def test_n10_who_shifts(model):
    prompt = np.array([tiny.PROMPT], np.int32)
    assert model.loss(prompt) == pytest.approx(4.388856, abs=2e-6)
    assert model.loss(prompt[:, :-1].copy(), prompt[:, 1:].copy()) == pytest.approx(4.388856, abs=2e-6)
    losses = set()
    for beside in (0, 7, 96):  # a second row that is not predicted
        ids = np.concatenate([prompt, np.full((1, 12), beside, np.int32)])
        targets = np.full((2, 11), -1, np.int32)
        targets[0] = prompt[0, 1:]
        losses.add(model.loss(ids[:, :-1].copy(), targets))
    assert len(losses) == 1 and losses.pop() == pytest.approx(4.388856, abs=2e-6)


def test_n11_micro_batches_with_unequal_numbers_of_targets(folder, model):
    batch = padded([[3, 91], [47, 30, 79, 88]], 3)
    for accumulate in (1, 2):
        result = lamina.Trainer(lamina.Model.from_pretrained(folder), accumulate=accumulate).step(*batch)
        assert (result.loss, result.tokens) == (pytest.approx(5.405308, abs=3e-6), 4)
    # Gradients of both rows: those of the rows alone, weighted by their targets.
    model.loss(*batch)
    together = model.gradients()
    parts = []
    for row, weight in (([3, 91], 0.25), ([47, 30, 79, 88], 0.75)):
        model.loss([row])
        parts.append({name: weight * values for name, values in model.gradients().items()})
    for name, values in together.items():
        if not name.endswith("c_attn.bias"):  # the keys' third is rounding noise
            assert np.abs(parts[0][name] + parts[1][name] - values).max() <= 1e-5 * np.abs(values).max(), name


def test_n22_what_decays(folder):
    """Gradients clipped to next to nothing, so that what changes is decay."""
    model = lamina.Model.from_pretrained(folder)
    before = model.parameters()
    result = lamina.Trainer(model, lr=0.0, weight_decay=0.1).step([tiny.PROMPT])
    assert result.finite
    for name, values in model.parameters().items():
        assert np.array_equal(values, before[name]), name  # decay goes with the rate
    lamina.Trainer(model, lr=1e-3, weight_decay=100.0, clip=1e-30).step([tiny.PROMPT])
    for name, values in model.parameters().items():
        scale = 1 - 1e-3 * 100.0 if values.ndim == 2 else 1.0
        assert np.abs(values - scale * before[name]).max() <= 2e-6, name


def test_n24_the_same_row_in_another_batch_and_on_other_threads(folder):
    prompt = np.array([tiny.PROMPT], np.int32)
    rows = tiny.tokens(8 * 12).reshape(8, 12)
    rows[5] = prompt
    alone, batch, steps = [], [], []
    for threads in (1, 2, 8):
        for _ in range(2):
            model = lamina.Model.from_pretrained(folder, threads=threads)
            alone.append(model.forward(prompt).tobytes())
            batch.append(model.forward(rows).tobytes())
            result = lamina.Trainer(model, clip=1.0).step(rows)
            weights = b"".join(values.tobytes() for values in model.parameters().values())
            steps.append((result.loss, result.grad_norm, weights))
    assert len(set(alone)) == len(set(batch)) == len(set(steps)) == 1
    one = np.frombuffer(alone[0], np.float32).reshape(12, 97)
    eight = np.frombuffer(batch[0], np.float32).reshape(8, 12, 97)
    assert np.abs(one - eight[5]).max() <= 1e-5  # docs/generate.md


def test_n25_the_vocabulary_is_not_what_it_is_padded_to(tmp_path):
    tiny.write(tmp_path)
    zero = {name: np.zeros_like(values) for name, values in tiny.weights().items()}
    save_file(zero, tmp_path / "model.safetensors", metadata={"format": "pt"})
    model = lamina.Model.from_pretrained(str(tmp_path))
    assert model.loss([tiny.PROMPT]) == pytest.approx(math.log(97), rel=1e-6)
    assert model.forward([tiny.PROMPT]).shape == (1, 12, 97)
    drawn = set()
    for seed in range(680):  # 10,200 draws, all ids as likely
        row = model.generate([[1]], seed=seed, end_id=[])[0]
        assert len(row.ids) == 15
        drawn.update(row.ids)
    assert drawn == set(range(97))
