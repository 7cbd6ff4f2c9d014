"""From text to a model and back to text, and what a run leaves behind."""
import json
import math
import signal
import subprocess
import time

import numpy as np
import pytest

from cli_support import BINARY, fails, lamina, ok, ok_json, tiny_config, write_config, write_ids, write_json, write_text

METRICS = {"step", "tokens", "loss", "lr", "grad_norm", "loss_scale", "step_ms", "tokens_per_s", "peak_fraction"}
FOLDER = {"checkpoints", "config.json", "generation_config.json", "lamina.json", "metrics.jsonl", "model.safetensors", "tokenizer.json",
          "tokenizer_config.json"}


def metrics_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def small_model(path):
    return write_json(path, tiny_config(vocab_size=280, n_positions=32, n_embd=32, bos_token_id=None, eos_token_id=None))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """One run on text that all tests of its results look at."""
    folder = tmp_path_factory.mktemp("trained")
    text = write_text(folder / "text.txt")
    model = small_model(folder / "model.json")
    result = ok_json("train", "--model", model, "--data", text, "--out", folder / "run", "--steps", "60", "--batch", "4",
                     "--lr", "3e-3", "--schedule", "cosine", "--warmup", "5", "--clip", "1", "--weight-decay", "0.1",
                     "--eval-every", "20", "--seed", "3")
    return {"run": folder / "run", "text": text, "model": model, "result": result}


def test_the_loss_falls(trained):
    lines = metrics_of(trained["run"])
    assert [line["step"] for line in lines] == list(range(1, 61))
    assert all(METRICS <= set(line) for line in lines)
    first = lines[0]["loss"]
    assert abs(first - math.log(280)) < 0.3
    assert lines[-1]["loss"] < 0.6 * first
    assert lines[0]["lr"] == pytest.approx(3e-3 / 6)
    assert all(line["tokens"] == 4 * 32 for line in lines[:3])
    assert [line["step"] for line in lines if "valid_loss" in line] == [20, 40, 60]
    assert trained["result"]["loss"] == lines[-1]["loss"]
    assert trained["result"]["valid_loss"] == lines[-1]["valid_loss"] < lines[19]["valid_loss"]
    assert 0 < trained["result"]["peak_fraction"] < 1


def test_the_folder_is_complete(trained):
    run = trained["run"]
    names = {path.name for path in run.iterdir()}
    assert len(events := {name for name in names if name.startswith("events.out.tfevents.")}) == 1
    assert names - events == FOLDER
    config = json.loads((run / "config.json").read_text())
    assert config["vocab_size"] == 280 and config["eos_token_id"] == 279
    said = json.loads((run / "lamina.json").read_text())
    assert said["run_id"] == trained["result"]["run_id"]
    assert said["options"]["lr"] == 3e-3 and said["options"]["eps"] == 1e-8 and said["options"]["schedule"] == "cosine"
    assert said["resolved"] == {"seq": 32, "steps": 60, "decay_steps": 0, "threads": said["resolved"]["threads"], "vocab_size": 280,
                                "tokens_per_step": 128}
    assert said["plan"]["digest"] == trained["result"]["plan_digest"]


def test_transformers_loads_the_folder(trained):
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    model = transformers.GPT2LMHeadModel.from_pretrained(trained["run"]).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(trained["run"])
    ids = tokenizer.encode(trained["text"].read_text())[:32]
    with torch.no_grad():
        theirs = model(torch.tensor([ids]), labels=torch.tensor([ids])).loss.item()
    some = trained["run"].parent / "some.bin"
    some.write_bytes(np.array(ids, "<u2").tobytes())
    ours = ok_json("eval", trained["run"], "--data", some)
    assert ours["loss"] == pytest.approx(theirs, rel=1e-5)


def test_eval_gives_bits_per_byte(trained):
    result = ok_json("eval", trained["run"], "--data", trained["text"])
    assert result["perplexity"] == pytest.approx(math.exp(result["loss"]))
    size = trained["text"].stat().st_size
    assert result["bits_per_byte"] == pytest.approx(result["loss"] * result["tokens"] / math.log(2) / size, rel=1e-3)


def test_generate_prints_text(trained):
    text = ok("generate", trained["run"], "--prompt", "and the", "--max-tokens", "20", "--temperature", "0")
    assert len(text.strip()) > 10
    result = ok_json("generate", trained["run"], "--prompt", "and the", "--max-tokens", "20", "--temperature", "0")
    assert result["text"] == text[:-1]
    assert len(result["ids"]) <= 20 and result["finish_reason"] in ("length", "eos") and result["tokens_per_s"] > 0
    again = [ok_json("generate", trained["run"], "--prompt", "and", "--max-tokens", "20", "--seed", "5")["ids"]
             for _ in range(2)]
    assert again[0] == again[1]
    assert again[0] != ok_json("generate", trained["run"], "--prompt", "and", "--max-tokens", "20", "--seed", "6")["ids"]


def test_generate_stops_at_a_text_and_takes_many_prompts(trained, tmp_path):
    whole = ok_json("generate", trained["run"], "--prompt", "and the", "--max-tokens", "20", "--temperature", "0")
    stop = whole["text"][3:6]
    cut = ok_json("generate", trained["run"], "--prompt", "and the", "--max-tokens", "20", "--temperature", "0", "--stop", stop)
    assert cut["text"] == whole["text"][:whole["text"].index(stop)]
    assert cut["finish_reason"] == "stop"
    (tmp_path / "prompts.txt").write_text("and the\na cat\nThe sea\n")
    rows = ok_json("generate", trained["run"], "--batch-file", tmp_path / "prompts.txt", "--max-tokens", "20",
                   "--temperature", "0")["rows"]
    assert len(rows) == 3
    assert rows[0]["ids"] == whole["ids"]


def test_training_goes_on_from_a_folder(trained, tmp_path):
    before = metrics_of(trained["run"])
    ok("train", "--model", trained["run"], "--data", trained["text"], "--out", tmp_path / "run", "--steps", "3")
    lines = metrics_of(tmp_path / "run")
    assert lines[0]["loss"] < 1.3 * before[-1]["loss"]
    assert (tmp_path / "run" / "tokenizer.json").read_bytes() == (trained["run"] / "tokenizer.json").read_bytes()


def test_equal_runs_are_equal_for_any_number_of_threads(trained, tmp_path):
    weights, losses = [], []
    for name, threads in (("a", 1), ("b", 2), ("c", 3)):
        ok("train", "--model", trained["model"], "--data", trained["text"], "--out", tmp_path / name, "--steps", "5",
           "--accumulate", "2", "--batch", "2", "--dropout", "0.1", "--clip", "1", "--threads", threads)
        weights.append((tmp_path / name / "model.safetensors").read_bytes())
        losses.append([(line["loss"], line["grad_norm"]) for line in metrics_of(tmp_path / name)])
    assert weights[0] == weights[1] == weights[2]
    assert losses[0] == losses[1] == losses[2]
    ids = {json.loads((tmp_path / name / "lamina.json").read_text())["run_id"] for name in "abc"}
    assert len(ids) == 1


def test_an_epoch_uses_each_target_once(tmp_path):
    write_config(tmp_path / "config.json")
    write_ids(tmp_path / "ids.bin", 100)
    result = ok_json("train", "--model", tmp_path / "config.json", "--data", tmp_path / "ids.bin", "--out", tmp_path / "run",
                     "--seq", "8", "--batch", "8", "--epochs", "2")
    assert result["steps"] == 4 and result["tokens"] == 2 * 99
    assert [line["tokens"] for line in metrics_of(tmp_path / "run")][0] in (64, 59)
    assert not (tmp_path / "run" / "tokenizer.json").exists()
    assert result["valid_loss"] is None


def test_validation_of_ids_where_asked_for(tmp_path):
    write_config(tmp_path / "config.json")
    write_ids(tmp_path / "ids.bin", 400)
    base = ["train", "--model", tmp_path / "config.json", "--data", tmp_path / "ids.bin", "--steps", "2"]
    part = ok_json(*base, "--out", tmp_path / "a", "--valid-fraction", "0.25")
    other = ok_json(*base, "--out", tmp_path / "b", "--valid", write_ids(tmp_path / "other.bin", 50))
    assert part["valid_loss"] > 0 and other["valid_loss"] > 0
    fails(1, ["validation", "17", "4"], *base, "--out", tmp_path / "c", "--valid-fraction", "0.01")


def test_a_tokenizer_beside_the_text_is_used(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    text = write_text(data / "text.txt")
    ok("tokenize", "train", "--data", text, "--vocab-size", "270", "--out", data)
    ok("train", "--model", small_model(tmp_path / "model.json"), "--data", data, "--out", tmp_path / "run", "--steps", "2")
    assert (tmp_path / "run" / "tokenizer.json").read_bytes() == (data / "tokenizer.json").read_bytes()


def test_a_tokenizer_goes_along_with_token_files(trained, tmp_path):
    ids = write_ids(tmp_path / "ids.bin", vocab=280)
    ok("train", "--model", trained["run"], "--data", ids, "--out", tmp_path / "run", "--steps", "2")
    assert (tmp_path / "run" / "tokenizer.json").read_bytes() == (trained["run"] / "tokenizer.json").read_bytes()


def test_a_tokenizer_larger_than_the_model(tmp_path):
    text = write_text(tmp_path / "text.txt")
    ok("tokenize", "train", "--data", text, "--vocab-size", "270", "--out", tmp_path / "tokenizer")
    config = write_config(tmp_path / "config.json")
    fails(1, ["270", "97"], "train", "--model", config, "--tokenizer", tmp_path / "tokenizer", "--data", text, "--out",
          tmp_path / "run")


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_stops_after_a_clean_save(number, code, tmp_path):
    config = write_config(tmp_path / "config.json")
    ids = write_ids(tmp_path / "ids.bin", 4000)
    run = tmp_path / "run"
    process = subprocess.Popen([str(BINARY), "train", "--model", str(config), "--data", str(ids), "--out", str(run),
                                "--steps", "10000000", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))  # should this be under nohup
    deadline = time.monotonic() + 60
    while not ((run / "metrics.jsonl").exists() and (run / "metrics.jsonl").stat().st_size > 0):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == code, err.decode()
    result = json.loads(out)
    lines = metrics_of(run)
    assert result["signal"] == number and result["steps"] == lines[-1]["step"]
    assert (run / "model.safetensors").exists()
    assert b"lamina: error" not in err
    ok("generate", run, "--prompt-ids", "1 2 3", "--max-tokens", "3")


def test_saves_in_between_replace_the_model(tmp_path):
    config = write_config(tmp_path / "config.json")
    ids = write_ids(tmp_path / "ids.bin")
    base = ["train", "--model", config, "--data", ids, "--schedule", "constant"]
    ok(*base, "--out", tmp_path / "a", "--steps", "4", "--save-every", "2")
    ok(*base, "--out", tmp_path / "b", "--steps", "4")
    assert (tmp_path / "a" / "model.safetensors").read_bytes() == (tmp_path / "b" / "model.safetensors").read_bytes()


def test_no_bar_where_there_is_no_terminal(tmp_path):
    config = write_config(tmp_path / "config.json")
    ids = write_ids(tmp_path / "ids.bin")
    result = lamina("train", "--model", config, "--data", ids, "--out", tmp_path / "run", "--steps", "25", "--log-every", "10",
                    "--weight-decay", "0.1")
    assert result.stdout == b"" and b"\r" not in result.stderr and b"\033" not in result.stderr
    steps = [line.split()[1] for line in result.stderr.decode().splitlines() if line.startswith("step ")]
    assert steps == ["1/25", "10/25", "20/25", "25/25"]
    # What decays and what does not is said at the start.
    assert b"10 tensors, 7952 values" in result.stderr and b"18 tensors, 448 values" in result.stderr


def test_a_warm_up_that_takes_all_steps_is_told(tmp_path):
    ids = write_ids(tmp_path / "ids.bin", 100)
    args = ["train", "--model", write_config(tmp_path / "config.json"), "--data", ids, "--seq", "8", "--steps", "3", "--warmup"]
    for warmup, told in (("3", True), ("2", False)):
        done = lamina(*args, warmup, "--out", tmp_path / warmup)
        assert done.returncode == 0 and (b"does not reach --lr" in done.stderr) == told, done.stderr


def test_a_tokenizer_that_is_given_ends_the_documents(trained, tmp_path):
    """A config without the id takes the tokenizer's; one with another is told."""
    args = ["train", "--data", trained["text"], "--tokenizer", trained["run"], "--steps", "1", "--seq", "16", "--model"]
    config = write_config(tmp_path / "config.json", vocab_size=280, bos_token_id=None, eos_token_id=None)
    ok(*args, config, "--out", tmp_path / "none")
    ok("tokenize", "train", "--data", trained["text"], "--vocab-size", "270", "--out", tmp_path / "tok")
    other = lamina("train", "--data", trained["text"], "--tokenizer", tmp_path / "tok", "--steps", "1", "--model", trained["run"],
                   "--out", tmp_path / "other")
    assert b"eos_token_id and bos_token_id: 269" in other.stderr, other.stderr
    for run, end in (("none", 279), ("other", 269)):
        made = json.loads((tmp_path / run / "config.json").read_text())
        assert made["eos_token_id"] == made["bos_token_id"] == end
        ok("generate", tmp_path / run, "--max-tokens", "2")


def test_weights_of_no_use_are_told(trained, tmp_path):
    done = lamina("train", "--model", trained["model"], "--data", trained["text"], "--lr", "1e30", "--steps", "2", "--out",
                  tmp_path / "run")
    assert b"of no use" in done.stderr, done.stderr


def test_nohup_is_heeded(tmp_path):
    args = ["train", "--model", write_config(tmp_path / "config.json"), "--data", write_ids(tmp_path / "ids.bin", 400), "--seq", "8",
            "--steps", "300", "--out", tmp_path / "run"]
    with subprocess.Popen([str(BINARY), *map(str, args)], stderr=subprocess.PIPE, text=True,
                          preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)) as process:
        assert any("step 1/300" in line for line in process.stderr)
        process.send_signal(signal.SIGHUP)
        process.stderr.read()
        assert process.wait() == 0
