"""lamina eval: the loss of a model on data does not depend on batches, padding or threads; its figures hang together."""
import math

import numpy as np
import pytest
import tiny
import torch
from cli_support import fails, lamina, ok, ok_json, tiny_config, tiny_tensors, write_ids, write_json, write_safetensors
from transformers import GPT2LMHeadModel

KEYS = {"model", "tokens", "loss", "perplexity", "bits_per_byte", "batch", "seq"}


def truth(folder, ids, seq):
    """Sum and number of all targets, each window by itself in HuggingFace's double."""
    twin = GPT2LMHeadModel.from_pretrained(folder, attn_implementation="eager").double().eval()
    ids = torch.tensor(np.asarray(ids, np.int64))
    total, count = 0.0, 0
    for begin in range(0, len(ids) - 1, seq):
        window = ids[begin : begin + seq + 1]
        with torch.no_grad():
            logits = twin(input_ids=window[None, :-1]).logits[0]
        total += torch.nn.functional.cross_entropy(logits, window[1:], reduction="sum").item()
        count += len(window) - 1
    return total, count


# 16 · 7 + 5 targets: the last window is short, and of 3 rows the last batch is not full.
def test_the_sum_does_not_depend_on_batch_padding_or_threads(folder, tmp_path):
    data = tmp_path / "ids.bin"
    tiny.tokens(118).astype("<u2").tofile(data)
    total, count = truth(folder, tiny.tokens(118), 16)
    assert count == 117
    losses = {}
    for batch in (1, 3, 8, 1048576):  # of the last one no more than the 8 rows are computed
        for threads in (1, 5):
            result = ok_json("eval", folder, "--data", data, "--batch", batch, "--threads", threads)
            assert KEYS <= result.keys()
            assert (result["tokens"], result["batch"], result["seq"]) == (117, min(batch, 8), 16)
            assert result["loss"] == pytest.approx(total / count, rel=2e-6)
            losses.setdefault(batch, set()).add(result["loss"])
    assert all(len(values) == 1 for values in losses.values())  # the same bits for any number of threads


def test_shorter_windows_see_less(folder, tmp_path):
    data = tmp_path / "ids.bin"
    tiny.tokens(60).astype("<u2").tofile(data)
    for seq in (1, 7, 16):
        total, count = truth(folder, tiny.tokens(60), seq)
        result = ok_json("eval", folder, "--data", data, "--seq", seq, "--batch", 3)
        assert (result["tokens"], result["loss"]) == (count, pytest.approx(total / count, rel=2e-6))
    fails(1, ["17", "16"], "eval", folder, "--data", data, "--seq", "17")


def test_n25_all_weights_0_give_the_logarithm_of_the_vocabulary(tmp_path):
    """Rows that pad the table inside the plan would make it ln 128."""
    write_json(tmp_path / "config.json", tiny_config())
    write_safetensors(tmp_path / "model.safetensors", {name: 0 * value for name, value in tiny_tensors().items()})
    data = write_ids(tmp_path / "ids.bin", 200)
    result = ok_json("eval", tmp_path, "--data", data, "--batch", "3")
    assert result["loss"] == pytest.approx(math.log(97), rel=1e-6)
    assert result["perplexity"] == pytest.approx(97, rel=1e-5) and result["bits_per_byte"] is None


def test_bits_per_byte_counts_bytes_of_what_is_predicted(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("日本語 and naïve text 🙂\n" * 30, encoding="utf-8")
    config = tiny_config(vocab_size=270, bos_token_id=None, eos_token_id=None)
    ok("train", "--model", write_json(tmp_path / "m.json", config), "--data", text, "--out", tmp_path / "run",
       "--steps", "4", "--batch", "2")
    result = ok_json("eval", tmp_path / "run", "--data", text)
    ids = ok_json("tokenize", "encode", "--tokenizer", tmp_path / "run", "--file", text)["ids"]
    first = lamina("tokenize", "decode", "--tokenizer", tmp_path / "run", stdin=str(ids[0]).encode()).stdout
    predicted = text.stat().st_size - len(first)
    assert result["tokens"] == len(ids)  # all but the first, and the end of the text
    assert result["bits_per_byte"] == pytest.approx(result["loss"] * result["tokens"] / math.log(2) / predicted, rel=1e-6)
    assert result["perplexity"] == pytest.approx(math.exp(result["loss"]), rel=1e-6)
