"""Bad input: one line that says what is wrong, exit 1 or 2, and nothing half-written."""
import json
import os
import struct
import subprocess

import numpy as np
import pytest

from cli_support import (BINARY, LLMC, fails, lamina, ok, ok_json, tiny_tensors, write_config, write_ids, write_safetensors, write_text,
                         write_tiny)

pytestmark = pytest.mark.tiny


def train_tiny(tmp_path, *more):
    """Arguments of a run on ids that would succeed."""
    config = write_config(tmp_path / "config.json")
    ids = write_ids(tmp_path / "ids.bin")
    return ["train", "--model", config, "--data", ids, "--out", tmp_path / "run", "--steps", "2", "--batch", "2", *more]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    ok("tokenize", "train", "--data", write_text(folder / "text.txt"), "--vocab-size", "260", "--out", folder)
    return folder


def assert_nothing_written(tmp_path):
    run = tmp_path / "run"
    assert not run.exists() or not list(run.iterdir())


# Found before any file is opened: the files named here do not exist.
@pytest.mark.parametrize("args, words", [
    (["train", "--data", "none", "--out", "run", "--batch", "0"], ["--batch", "0"]),
    (["train", "--data", "none", "--out", "run", "--seq", "0"], ["--seq", "0"]),
    (["train", "--data", "none", "--out", "run", "--accumulate", "-1"], ["--accumulate", "-1"]),
    (["train", "--data", "none", "--out", "run", "--lr", "nan"], ["--lr", "nan"]),
    (["train", "--data", "none", "--out", "run", "--schedule", "square"], ["--schedule", "square"]),
    (["train", "--data", "none", "--out", "run", "--betas", "0.9"], ["--betas", "0.9"]),
    (["train", "--data", "none", "--out", "run", "--betas", "0.9,1"], ["--betas", "1"]),
    (["train", "--data", "none", "--out", "run", "--threads", "0"], ["--threads", "0"]),
    (["train", "--data", "none", "--out", "run", "--batch", "two"], ["--batch", "two"]),
    (["train", "--data", "none", "--out", "run", "--batch", ""], ["--batch", "a whole number", "nothing"]),
    (["train", "--data", "none", "--out", "run", "--batch", "1.5"], ["--batch", "a whole number", "1.5"]),
    (["train", "--data", "none", "--out", "run", "--seed", "9" * 20], ["--seed", "a whole number", "9" * 20]),
    (["train", "--data", "none", "--out", "run", "--lr", ""], ["--lr", "a number", "nothing"]),
    (["train", "--data", "none", "--out", "run", "--lr", "0x10"], ["--lr", "a number", "0x10"]),
    (["train", "--data", "none", "--out", "run", "--lr", "1e999"], ["--lr", "a number", "1e999"]),
    (["train", "--data", "none", "--out", "run", "--lr", "1e39"], ["--lr", "a number from 0 to 3.4028234663852886e+38", "1e+39"]),
    (["train", "--data", "none", "--out", "run", "--token-type", ""], ["--token-type", "nothing"]),
    (["train", "--data", "none", "--out", ""], ["--out", "RUN", "nothing"]),
    (["generate", "none", "--end-id", ""], ["--end-id", "a whole number", "nothing"]),
    (["train", "--data", "none", "--out", "run", "--memory-limit", "much"], ["--memory-limit", "much"]),
    (["train", "--data", "none", "--out", "run", "--steps", "1", "--epochs", "1"], ["--steps", "--epochs"]),
    (["train", "--data", "none", "--out", "run", "--keep", "0"], ["--keep", "0"]),
    (["train", "--data", "none", "--out", "run", "--allow-changes"], ["--allow-changes", "--resume"]),
    (["train", "--data", "none", "--out", "run", "--decay-steps", "5"], ["--decay-steps", "5", "constant", "wsd"]),
    (["train", "--data", "none", "--out", "run", "--update-in-backward", "--clip", "1"], ["--update-in-backward", "--clip 1"]),
    (["plan", "--update-in-backward", "--clip-layer", "2"], ["--update-in-backward", "--clip-layer 2", "--clip-layer 0"]),
    (["inspect", "plan", "--update-in-backward", "--accumulate", "3"], ["--update-in-backward", "--accumulate 3"]),
    (["plan", "--update-in-backward", "--precision", "mixed-fp16"], ["--update-in-backward", "--precision mixed-fp16", "fp16"]),
    (["bench", "step", "--update-in-backward"], ["--update-in-backward", "--clip 1", "--clip 0"]),
    (["train", "--data", "none"], ["--out"]),
    (["generate", "none", "--temperature", "-1"], ["temperature", "-1"]),
    (["generate", "none", "--top-k", "-1"], ["top_k", "-1"]),
    (["generate", "none", "--top-p", "1.5"], ["top_p", "1.5"]),
    (["generate", "none", "--max-tokens", "0"], ["max_tokens", "0"]),
    (["generate", "none", "--prompt", "a", "--prompt-ids", "1"], ["--prompt", "--prompt-ids"]),
    (["eval", "none", "--data", "none", "--batch", "0"], ["--batch", "0"]),
    (["eval", "none", "--data", "none=2"], ["--data", "without a weight", "none=2"]),
    (["bench", "peers", "--versus", "llm.c", "--llmc", LLMC, "--clip-layer", "1"], ["--clip-layer", "expected 0", "1"]),
    (["bench", "peers", "--versus", "llm.c", "--llmc", LLMC, "--dropout", "0.1"], ["--dropout", "expected 0", "0.1"]),
    (["bench", "peers", "--versus", "llm.c", "--llmc", LLMC, "--accumulate", "2"], ["--accumulate", "expected 1", "2"]),
    (["bench", "peers", "--versus", "mindspore", "--accumulate", "2"], ["--accumulate", "expected 1", "2"]),
    (["bench", "peers", "--versus", "caffe"], ["--versus", "torch-compile-bf16", "mindspore", "caffe"]),
    (["train", "--data", "none", "--out", "run", "--valid", "none=2"], ["--valid", "without a weight", "none=2"]),
    (["train", "--data", "none", "--out", "run", "--vocab-size", "256"], ["--vocab-size", "257", "256"]),
    (["train", "--data", "none", "--out", "run", "--min-lr", "1"], ["--min-lr", "1", "--lr"]),
    (["train", "--dta", "none", "--out", "run"], ["unknown option", "--dta", "is --data meant"]),
    (["train", "--data", "none", "--out", "run", "--learning-rate", "1"], ["unknown option", "--learning-rate"]),
    (["train", "--data", "none", "--out", "run", "more"], ["unexpected argument", "more"]),
    (["inspect", "more"], ["unknown command", "more"]),
    (["plan", "--batch", "0"], ["--batch", "0"]),
    (["plan", "--batch", "1048576", "--accumulate", "1048576"], ["--batch", "--accumulate", "134217728"]),
    (["plan", "--passes=-none"], ["none"]),
    (["plan", "--passes=-fold_branches"], ["cannot be left out", "fold_branches"]),
    (["plan", "--passes=-set_layout"], ["cannot be left out", "set_layout"]),
    (["inspect", "graph", "--format", "svg"], ["--format", "svg"]),
    (["inspect", "graph", "--after", "none"], ["none", "set_layout"]),
    (["tokenize", "encode", "--tokenizer", "none", "--special", "maybe"], ["--special", "maybe"]),
    (["tokenize", "train", "--data", "none", "--out", "none", "--vocab-size", "256"], ["--vocab-size", "256"]),
    (["bench"], ["--signature"]),
    (["bench", "ablation", "--only", "none"], ["--only", "fuse_accumulate", "none"]),
    (["frobnicate"], ["frobnicate"]),
    ([], ["no command"]),
])
def test_wrong_usage(args, words, tmp_path):
    fails(2, words, *args, cwd=tmp_path)
    assert not list(tmp_path.iterdir())


def test_numbers_are_decimal(tmp_path):
    config = write_config(tmp_path / "config.json")
    assert ok_json("plan", "--model", config, "--batch", "010")["batch"] == 10
    assert ok_json("plan", "--model", config, "--batch", "+7", "--eps", "+1e-8")["batch"] == 7


def test_a_pipe_nobody_writes_to_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    model = write_tiny(tmp_path / "model")
    fails(1, [tmp_path / "pipe", "regular file"], "generate", model, "--batch-file", tmp_path / "pipe", timeout=30)
    fails(1, [tmp_path / "pipe", "regular file"], "tokenize", "info", "--tokenizer", tmp_path / "pipe", timeout=30)


# As /dev/full and /dev/stdout are, which a rename would put a file in the place of.
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/proc/self/fd/1")])
def test_only_a_file_gives_way_to_output(make, tokenizer, tmp_path):
    text = write_text(tmp_path / "text.txt")
    make(tmp_path / "out")
    before = os.lstat(tmp_path / "out")
    fails(1, [tmp_path / "out", "regular file"], "tokenize", "encode", "--tokenizer", tokenizer, "--file", text, "--out",
          tmp_path / "out")
    after = os.lstat(tmp_path / "out")
    assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)


# Before any work: what is to be read does not exist, and is not complained of.
def test_output_that_cannot_be_written_is_found_first(tokenizer, tmp_path):
    (tmp_path / "file").write_text("keep")
    (tmp_path / "taken" / "tokenizer.json").mkdir(parents=True)
    (tmp_path / "dangling").symlink_to(tmp_path / "gone" / "too")
    for out in ["file/x/y", "dangling", "/proc/none/run"]:
        fails(1, ["cannot create folder", out], "train", "--data", "none", "--model", "none", "--out", out, cwd=tmp_path)
        fails(1, ["cannot create folder", out], "tokenize", "train", "--data", "none", "--vocab-size", "300", "--out", out,
              cwd=tmp_path)
    fails(1, ["taken/tokenizer.json"], "tokenize", "train", "--data", "none", "--vocab-size", "300", "--out", "taken",
          cwd=tmp_path)
    for out in ["gone/ids.bin", "taken", "file/ids.bin"]:
        for data in ["--data", "--file"]:
            fails(1, ["cannot", out], "tokenize", "encode", "--tokenizer", "none", data, "none", "--out", out, cwd=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dangling", "file", "taken"]
    assert (tmp_path / "file").read_text() == "keep"


def test_errors_say_what_was_expected_and_what_came(tokenizer, tmp_path):
    args, model = train_tiny(tmp_path), write_tiny(tmp_path / "model")
    both = ["expected", "got"]
    fails(1, ["not enough memory", *both], *args, "--memory-limit", "1MiB", "--batch", "64")
    fails(1, ["not enough memory", *both], "plan", "--model", model, "--memory-limit", "1MiB", "--batch", "64")
    fails(1, ["smallest plan", *both], "plan", "--model", model, "--memory-limit", "1KiB")
    fails(1, ["not enough memory", *both], "plan", "--model", model, "--memory-limit", "1KiB", "--recompute", "none")
    for kinds in ["relu", "", ",", "gelu,", "auto,gelu", "none,gelu"]:
        fails(2, ["--recompute", *both], "plan", "--model", model, "--recompute", kinds)
    fails(2, ["--recompute", "embedding", "gelu"], "plan", "--model", model, "--recompute", "gelu,embedding")
    for command in (["generate", model], ["eval", model, "--data", tmp_path / "ids.bin"], [*args, "--model", model]):
        fails(1, ["do not fit", "expected at most 97 ids", "got 260"], *command, "--tokenizer", tokenizer)
    fails(1, ["regular file", *both], "tokenize", "encode", "--tokenizer", tokenizer, "--file", tmp_path)
    fails(1, ["no tokenizer", *both], "tokenize", "info", "--tokenizer", tmp_path)
    fails(1, ["no such model", *both], "generate", tmp_path / "none")
    (tmp_path / "empty.txt").write_text("")
    fails(1, ["no prompts", *both], "generate", model, "--batch-file", tmp_path / "empty.txt")
    for spoil in (header_of_2_to_the_60, overlapping_tensors, truncated):
        write_tiny(model)
        spoil(model / "model.safetensors")
        fails(1, ["model.safetensors", *both], "inspect", "checkpoint", model)
    (model / "model.safetensors").unlink()
    fails(1, ["no weights", *both], "generate", model)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("keep")
    fails(1, ["not empty", "mine.txt", *both], *args)
    fails(1, ["not a run folder", "mine.txt", *both], *args, "--resume")


def test_a_model_keeps_its_tokenizer(tmp_path):
    text = write_text(tmp_path / "text.txt")
    args = ["tokenize", "train", "--data", text, "--vocab-size", "260", "--out"]
    for name in ["config.json", "lamina.json", "checkpoints"]:
        folder = tmp_path / f"with_{name}"
        (folder / name).mkdir(parents=True)
        (folder / "tokenizer.json").write_text("mine")
        fails(1, ["folder of a model", folder, "expected", f"got one that holds {name}"], *args, folder)
        assert (folder / "tokenizer.json").read_text() == "mine"
    ok(*args, tmp_path / "tok")
    ok(*args, tmp_path / "tok")  # a tokenizer may be learned again


def test_a_peer_that_dies_is_told_of_once(tmp_path):
    config = write_config(tmp_path / "config.json")
    fails(1, ["torch ended early", "exit 0"], "bench", "peers", "--model", config, "--steps", "1", "--threads", "1",
          env={"LAMINA_TORCH_PYTHON": "/bin/true"})


def test_eval_of_nothing_or_with_weights_that_are_not_finite(tmp_path):
    model = write_tiny(tmp_path / "model")
    ids = tmp_path / "ends.bin"
    np.full(100, 96, "<u2").tofile(ids)
    fails(1, ["nothing to predict"], "eval", model, "--data", ids, "--isolate-documents")
    tensors = tiny_tensors()
    tensors["transformer.ln_f.weight"][0] = np.nan
    write_safetensors(model / "model.safetensors", tensors)
    fails(1, ["not finite", "nan"], "eval", model, "--data", ids, "--json")


@pytest.mark.parametrize("isa, words", [("sse9", ["LAMINA_ISA", "sse9"]), ("avx512", ["LAMINA_ISA", "avx512"])])
def test_isa_that_the_cpu_lacks(isa, words, tmp_path):
    with open("/proc/cpuinfo") as info:
        if isa == "avx512" and "avx512dq" in info.read():
            pytest.skip("this CPU has AVX-512")
    fails(2, words, *train_tiny(tmp_path), env={"LAMINA_ISA": isa})
    fails(2, words, "doctor", env={"LAMINA_ISA": isa})
    assert_nothing_written(tmp_path)


@pytest.mark.parametrize("changes, words", [
    ({"n_head": 3}, ["n_embd", "16", "n_head", "3"]),
    ({"activation_function": "swish9"}, ["activation_function", "swish9"]),
    ({"n_layer": 0}, ["n_layer", "0"]),
    ({"vocab_size": "many"}, ["vocab_size", "many"]),
    ({"resid_pdrop": 2.0}, ["resid_pdrop", "2"]),
    ({"model_type": "llama"}, ["model_type", "llama"]),
])
def test_bad_config(changes, words, tmp_path):
    args = train_tiny(tmp_path)
    write_config(tmp_path / "config.json", **changes)
    fails(1, words, *args)
    fails(1, words, "plan", "--model", tmp_path / "config.json")
    fails(1, words, "inspect", "config", tmp_path / "config.json")
    assert_nothing_written(tmp_path)


def test_rows_longer_than_the_model_allows(tmp_path):
    fails(1, ["--seq", "n_positions", "16", "17"], *train_tiny(tmp_path, "--seq", "17"))
    assert_nothing_written(tmp_path)


@pytest.mark.parametrize("count", [0, 1, 16])
def test_fewer_ids_than_a_window(count, tmp_path):
    args = train_tiny(tmp_path)
    write_ids(tmp_path / "ids.bin", count)
    fails(1, ["17", str(count)], *args)
    assert_nothing_written(tmp_path)


def test_17_ids_are_one_window(tmp_path):
    args = train_tiny(tmp_path)
    write_ids(tmp_path / "ids.bin", 17)
    result = lamina(*args, "--json")
    assert result.returncode == 0, result.stderr.decode()
    assert json.loads(result.stdout)["tokens"] == 32


@pytest.mark.parametrize("kind, place, value", [("u16", 123, 97), ("u16", 399, 65535), ("i32", 7, -1),
                                                ("u32", 7, 4294967295)])
def test_an_id_beyond_the_vocabulary(kind, place, value, tmp_path):
    args = train_tiny(tmp_path)
    ids = (np.arange(400) % 97).astype(np.int64)
    ids[place] = value
    (tmp_path / "ids.bin").write_bytes(ids.astype({"u16": "<u2", "i32": "<i4", "u32": "<u4"}[kind]).tobytes())
    fails(1, ["ids.bin", str(place), str(value), "97"], *args, "--token-type", kind)
    assert_nothing_written(tmp_path)


@pytest.mark.parametrize("size, kind, words", [(81, "u16", ["81", "2"]), (162, "i32", ["162", "4"])])
def test_odd_sizes_of_token_files(size, kind, words, tmp_path):
    args = train_tiny(tmp_path)
    (tmp_path / "ids.bin").write_bytes(bytes(size))
    fails(1, words, *args, "--token-type", kind)


def test_not_enough_memory_is_said_before_the_run(tmp_path):
    text = fails(1, ["memory", "1048576"], *train_tiny(tmp_path, "--memory-limit", "1MiB", "--batch", "64"))
    needed = max(int(word) for word in text.replace(",", " ").split() if word.isdigit())
    assert needed > 1048576
    assert_nothing_written(tmp_path)
    plan = ["plan", "--json", "--model", tmp_path / "config.json", "--batch", "64"]
    smallest = json.loads(lamina(*plan, "--memory-limit", str(needed)).stdout)
    assert 1048576 < smallest["total_bytes"] <= needed and smallest["recompute"]["predicted_slowdown"] > 0
    kept = json.loads(lamina(*plan, "--recompute", "none").stdout)["total_bytes"]
    assert needed < kept
    fails(1, ["memory", "1048576", str(kept)], *plan, "--memory-limit", "1MiB", "--recompute", "none")


def test_a_run_folder_that_holds_something(tmp_path):
    args = train_tiny(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("keep")
    fails(1, ["--out", "run", "not empty"], *args)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine.txt"]


def test_missing_files(tmp_path):
    fails(1, ["no such model", "none"], "plan", "--model", tmp_path / "none")
    args = train_tiny(tmp_path)
    (tmp_path / "ids.bin").unlink()
    fails(1, ["ids.bin"], *args)
    fails(1, ["none"], "generate", tmp_path / "none")
    assert_nothing_written(tmp_path)


def header_of_2_to_the_60(path):
    path.write_bytes(struct.pack("<Q", 2**60) + b"{}")


def overlapping_tensors(path):
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    text = json.dumps({"a": entry, "b": dict(entry, data_offsets=[4, 12])}).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(12))


def truncated(path):
    path.write_bytes(path.read_bytes()[:-100])


def one_missing(path):
    tensors = tiny_tensors()
    del tensors["transformer.h.1.ln_2.bias"]
    write_safetensors(path, tensors)


def one_misshapen(path):
    tensors = tiny_tensors()
    tensors["transformer.h.0.mlp.c_fc.weight"] = np.zeros((64, 16), np.float32)
    write_safetensors(path, tensors)


@pytest.mark.parametrize("spoil, words", [
    (header_of_2_to_the_60, ["model.safetensors", "1152921504606846976"]),
    (overlapping_tensors, ["model.safetensors", "b"]),
    (truncated, ["model.safetensors"]),
    (one_missing, ["h.1.ln_2.bias"]),
    (one_misshapen, ["h.0.mlp.c_fc.weight"]),
])
def test_bad_weights(spoil, words, tmp_path):
    folder = write_tiny(tmp_path / "model")
    spoil(folder / "model.safetensors")
    fails(1, words, *train_tiny(tmp_path), "--model", folder)
    fails(1, words, "generate", folder, "--prompt-ids", "1 2")
    fails(1, words, "eval", folder, "--data", tmp_path / "ids.bin")
    assert_nothing_written(tmp_path)


def test_prompts_that_do_not_fit(tmp_path):
    folder = write_tiny(tmp_path / "model")
    fails(1, ["97", "vocabulary"], "generate", folder, "--prompt-ids", "1 97")
    fails(1, ["16", "15", "2"], "generate", folder, "--prompt-ids", " ".join(["1"] * 15), "--max-tokens", "2")
    fails(1, ["byte 2", "x"], "generate", folder, "--prompt-ids", "1 x")
    fails(1, ["tokenizer"], "generate", folder, "--prompt", "word")


def test_text_that_is_not_utf8(tmp_path):
    write_config(tmp_path / "config.json", vocab_size=300)
    (tmp_path / "bad.txt").write_bytes(b"ab\xff" + b"cd" * 50)
    fails(1, ["bad.txt", "byte 2", "ff"], "train", "--model", tmp_path / "config.json", "--data", tmp_path / "bad.txt",
          "--out", tmp_path / "run")
    assert_nothing_written(tmp_path)


def test_the_hint_names_an_option_that_the_command_has(tokenizer, tmp_path):
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"ab\xff")
    config = write_config(tmp_path / "config.json", vocab_size=300)
    hint = "hint: --invalid-utf8 replace"
    for args in (["tokenize", "train", "--data", bad, "--vocab-size", "300", "--out", tmp_path / "other"],
                 ["tokenize", "encode", "--tokenizer", tokenizer, "--file", bad],
                 ["tokenize", "encode", "--tokenizer", tokenizer, "--data", bad, "--out", tmp_path / "ids.bin"],
                 ["train", "--model", config, "--data", bad, "--out", tmp_path / "run"]):
        result = lamina(*args)
        assert result.returncode == 1 and hint in result.stderr.decode(), args
    model = write_tiny(tmp_path / "model")
    for args in (["--batch-file", bad], ["--prompt", b"ab\xff"], ["--stop", b"\xff"]):
        result = subprocess.run([BINARY, "generate", model, "--tokenizer", tokenizer, *args], capture_output=True, timeout=60)
        assert b"UTF-8" in result.stderr and b"--invalid-utf8" not in result.stderr, args


def test_text_and_token_files_together(tmp_path):
    args = train_tiny(tmp_path)
    fails(1, ["text", ".bin"], *args, "--data", write_text(tmp_path / "text.txt"))


def test_training_that_comes_apart_ends(tmp_path):
    args = train_tiny(tmp_path, "--steps", "100", "--lr", "1e30", "--max-skips", "3")
    text = fails(1, ["3 steps in a row", "--max-skips"], *args)
    assert "last one" in text
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert "nan" not in "".join(lines).lower()
    assert [json.loads(line).get("skipped", False) for line in lines[-3:]] == [True] * 3
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    """A rate that fp32 holds, but not AdamW's first step with it. The checkpoint before it stays, and a run goes on from it."""
    args = [word for word in train_tiny(tmp_path) if word not in ("--steps", "2", "--batch")]
    ok(*args, "--steps", "2")
    kept = (tmp_path / "run" / "model.safetensors").read_bytes()
    for last in (["--steps", "3"], ["--steps", "4", "--save-every", "3"]):
        fails(1, ["not saved: step 3: wte.weight, expected finite numbers, got", "--resume goes on from", "step-2"], *args, *last, "--resume",
              "--allow-changes", "--lr", "3e38")
        assert (tmp_path / "run" / "model.safetensors").read_bytes() == kept
        assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-2"]
    ok(*args, "--steps", "3", "--resume")


def test_what_the_data_has_no_use_for(tmp_path):
    args = ["train", "--model", write_config(tmp_path / "config.json"), "--data", write_ids(tmp_path / "ids.bin", 100), "--seq",
            "8", "--out", tmp_path / "run"]
    fails(2, ["--vocab-size", "300", "token files"], *args, "--vocab-size", "300")
    (tmp_path / "empty.bin").touch()
    fails(1, ["no validation data", "empty.bin"], *args, "--valid", tmp_path / "empty.bin")
    assert not (tmp_path / "run").exists()


def test_a_model_that_is_not_there_is_named_first(tmp_path):
    fails(1, ["no such model", "nope"], "generate", tmp_path / "nope", "--prompt", "hi")


def test_an_activation_of_two_lines_is_an_error_of_one(tmp_path):
    config = write_config(tmp_path / "config.json", activation_function="ge\nlu")
    fails(1, ["activation_function", '"ge\\nlu"'], "plan", "--model", config)
