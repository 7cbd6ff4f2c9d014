"""Stop, crash and go on: every number of a run that was stopped is that of one that was not. The ids (R1, R3, …) are those
of tests/cases/README.md."""
import json
import os
import random
import resource
import shutil
import signal
import struct
import subprocess
import time

import numpy as np
import pytest

from cli_support import BINARY, fails, lamina, ok, ok_json, write_config, write_ids, write_json, write_text, tiny_config

STEPS = 24
EXACT = ("step", "tokens", "loss", "lr", "grad_norm", "valid_loss")
CHECKPOINT = {"manifest.json", "config.json", "generation_config.json", "model.safetensors", "optimizer.safetensors"}


def metrics_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def exact_metrics(run):
    """What has to be equal, bit for bit: no times."""
    return [{key: line.get(key) for key in EXACT} for line in metrics_of(run)]


def steps_of(run):
    """The checkpoints that are there, by number."""
    return sorted(int(path.name[5:]) for path in (run / "checkpoints").iterdir() if path.name.startswith("step-"))


def arguments(folder, *more, steps=STEPS):
    """A run with everything that has state: dropout, accumulation, warm-up, decay, validation, moments."""
    config = folder / "config.json"
    if not config.exists():
        write_config(config, resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1)
        write_ids(folder / "ids.bin", 1200)
    return ["train", "--model", config, "--data", folder / "ids.bin", "--valid-fraction", "0.1", "--steps", steps, "--batch", "2",
            "--accumulate", "2", "--lr", "3e-3", "--clip", "1", "--weight-decay", "0.1", "--schedule", "cosine", "--warmup", "3",
            "--eval-every", "5", "--threads", "1", *more]


def assert_equal_runs(run, straight):
    for name in ("model.safetensors", "config.json"):
        assert (run / name).read_bytes() == (straight / name).read_bytes(), name
    last = f"checkpoints/step-{steps_of(straight)[-1]}"
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert (run / last / name).read_bytes() == (straight / last / name).read_bytes(), name
    progress = [json.loads((side / last / "manifest.json").read_text())["state"]["progress"] for side in (run, straight)]
    assert progress[0] == progress[1]
    assert exact_metrics(run) == exact_metrics(straight)


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """The undisturbed run, and the data of all others."""
    folder = tmp_path_factory.mktemp("straight")
    ok(*arguments(folder, "--out", folder / "run"))
    return folder


def copy_of(straight, folder):
    for name in ("config.json", "ids.bin"):
        shutil.copy(straight / name, folder / name)
    return folder


def newest(run):
    return max(steps_of(run), default=0) if (run / "checkpoints").exists() else 0


def keep_only(run, *steps):
    """A run as it was when these were its checkpoints; its metrics go on, as those of a run that was killed do."""
    for step in steps_of(run):
        if step not in steps:
            shutil.rmtree(run / "checkpoints" / f"step-{step}")
    assert steps_of(run) == list(steps)


def stopped_after(every, step, folder):
    """A run as it was after `step`, out of one that kept every checkpoint."""
    run = shutil.copytree(every, folder)
    keep_only(run, *(other for other in steps_of(run) if other <= step))
    return run


# R3: the same batches, for training and for validation, after a stop at any step: their losses are equal to the last bit.
@pytest.mark.parametrize("stops", [(1, 4, 5, 8, 23), pytest.param(range(1, STEPS), marks=pytest.mark.full)], ids=["some", "all"])
def test_r3_a_run_in_two_parts_is_the_run(straight, tmp_path, stops):
    args = arguments(copy_of(straight, tmp_path))
    ok(*args, "--out", tmp_path / "every", "--save-every", "1", "--keep", STEPS)
    for stop in stops:
        run = stopped_after(tmp_path / "every", stop, tmp_path / f"run-{stop}")
        result = ok_json(*args, "--out", run, "--resume", "--keep", STEPS)
        assert result["resumed_from"] == stop and result["steps"] == STEPS
        assert_equal_runs(run, straight / "run")


# R1: rates after a stop, each used once.
@pytest.mark.parametrize("warmup", [0, 3])
def test_r1_rates_after_a_stop(straight, tmp_path, warmup):
    args = arguments(copy_of(straight, tmp_path), "--schedule", "linear", "--lr", "1e-5", "--warmup", warmup, "--eval-every", "0",
                     steps=10)
    ok(*args, "--out", tmp_path / "every", "--save-every", "1", "--keep", "10")
    rates = [line["lr"] for line in metrics_of(tmp_path / "every")]
    assert rates[warmup:] == pytest.approx([1e-5 * left / (10 - warmup) for left in range(10 - warmup, 0, -1)], rel=1e-12)
    assert rates[:warmup] == pytest.approx([1e-5 * step / (warmup + 1) for step in range(1, warmup + 1)], rel=1e-12)
    for stop in (1, 2, 3, 4, 6, 9):
        run = stopped_after(tmp_path / "every", stop, tmp_path / f"run-{stop}")
        ok(*args, "--out", run, "--resume")
        assert [line["lr"] for line in metrics_of(run)] == rates
        assert (run / "model.safetensors").read_bytes() == (tmp_path / "every" / "model.safetensors").read_bytes()


def killed(args, seconds):
    """Starts or resumes a run and kills it after so long. True where it had not ended by then."""
    process = subprocess.Popen([str(BINARY), *map(str, args), "--resume"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        pass
    process.kill()
    _, said = process.communicate()
    assert process.returncode in (0, -signal.SIGKILL), said.decode()
    return process.returncode != 0


def kill_storm(straight, folder, kills, seed):
    """-9 at random instants while a run works, each followed by --resume. Kills before it went on do not count."""
    args = arguments(copy_of(straight, folder), "--save-every", "1", steps=20 * kills)
    ok(*arguments(folder, "--out", folder / "straight", steps=20 * kills))
    run, draw, worked = folder / "run", random.Random(seed), 0
    args += ["--out", run]
    for _ in range(8 * kills):
        before = newest(run)
        if not killed(args, draw.uniform(0.25, 0.7)):  # it came to its end: another one
            assert_equal_runs(run, folder / "straight")
            shutil.rmtree(run)
            continue
        assert newest(run) >= before
        worked += newest(run) > before
        if worked == kills:
            break
    assert worked == kills
    ok(*args, "--resume")
    assert_equal_runs(run, folder / "straight")
    assert not list(run.rglob(".*"))


def test_killed_at_random_instants(straight, tmp_path):
    kill_storm(straight, tmp_path, kills=3, seed=1)


@pytest.mark.full
def test_killed_at_25_random_instants(straight, tmp_path):
    kill_storm(straight, tmp_path, kills=25, seed=2)


def flip(path, place=None):
    """One bit."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if place is None else place] ^= 4
    path.write_bytes(content)


def run_with_two_checkpoints(straight, tmp_path):
    """Steps 4 and 8 are saved; the run is to go on to STEPS."""
    args = arguments(copy_of(straight, tmp_path), "--out", tmp_path / "run", "--save-every", "4", "--eval-every", "0")
    ok(*args, "--keep", STEPS)
    keep_only(tmp_path / "run", 4, 8)
    return args, tmp_path / "run"


# R6: a flipped bit in a saved moment names file and tensor; the checkpoint before is used, and said.
@pytest.mark.parametrize("spoil, words", [
    (lambda folder: flip(folder / "optimizer.safetensors"), ["optimizer.safetensors", "tensor", "does not match its hash"]),
    (lambda folder: flip(folder / "model.safetensors"), ["model.safetensors", "tensor", "does not match its hash"]),
    (lambda folder: flip(folder / "optimizer.safetensors", 20), ["optimizer.safetensors", "header"]),
    (lambda folder: flip(folder / "manifest.json", 300), ["manifest.json"]),
    (lambda folder: os.truncate(folder / "optimizer.safetensors", 1000), ["optimizer.safetensors", "1000"]),
    (lambda folder: (folder / "model.safetensors").unlink(), ["model.safetensors", "missing"]),
    (lambda folder: (folder / "manifest.json").unlink(), ["manifest.json"]),
], ids=["moment", "weight", "header", "manifest", "short", "no file", "no manifest"])
def test_r6_a_damaged_checkpoint_is_named_and_the_one_before_is_used(straight, tmp_path, spoil, words):
    args, run = run_with_two_checkpoints(straight, tmp_path)
    spoil(run / "checkpoints" / "step-8")
    done = lamina(*args, "--resume")
    said = done.stderr.decode()
    assert done.returncode == 0, said
    named = [line for line in said.splitlines() if "passed over" in line]
    assert len(named) == 1 and all(word in named[0] for word in ["step-8", *words]), said
    assert "going on after step 4" in said
    assert (run / "model.safetensors").read_bytes() == (straight / "run" / "model.safetensors").read_bytes()
    assert [line["step"] for line in metrics_of(run)] == list(range(1, STEPS + 1))
    ok("inspect", "checkpoint", run / "checkpoints" / f"step-{STEPS}")


@pytest.mark.tiny
def test_r6_no_whole_checkpoint_is_an_error(straight, tmp_path):
    args, run = run_with_two_checkpoints(straight, tmp_path)
    for step in (4, 8):
        flip(run / "checkpoints" / f"step-{step}" / "optimizer.safetensors")
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    fails(1, ["no whole checkpoint", "step-8", "optimizer.safetensors"], *args, "--resume")
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    fails(1, ["optimizer.safetensors", "does not match"], "inspect", "checkpoint", run / "checkpoints" / "step-8")


# R9: the newest, the best, and what a stranger wrote.
def test_r9_the_newest_and_the_best_are_kept(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    write_config(other / "config.json")
    ok("train", "--model", other / "config.json", "--data", write_ids(other / "ids.bin", 100), "--out", other / "run",
       "--steps", "1000", "--batch", "1", "--seq", "4")
    write_config(tmp_path / "config.json")
    # Validation on what the training data never shows: the longer it learns, the worse it gets.
    ids = tmp_path / "ids.bin"
    ids.write_bytes(np.arange(400).astype("<u2").__mod__(8).tobytes())
    valid = tmp_path / "valid.bin"
    valid.write_bytes((np.arange(60) * 5 % 8).astype("<u2").tobytes())
    args = ["train", "--model", tmp_path / "config.json", "--data", ids, "--valid", valid, "--out", tmp_path / "run", "--batch",
            "4", "--lr", "3e-2", "--eval-every", "10", "--save-every", "10", "--keep", "1"]
    ok(*args, "--steps", "10")
    shutil.copytree(other / "run" / "checkpoints" / "step-1000", tmp_path / "run" / "checkpoints" / "step-1000")
    done = lamina(*args, "--steps", "30", "--resume", "--json")
    said = done.stderr.decode()
    assert done.returncode == 0, said
    result = json.loads(done.stdout)
    losses = {line["step"]: line["valid_loss"] for line in metrics_of(tmp_path / "run") if "valid_loss" in line}
    assert result["best_step"] == min(losses, key=losses.get) == 10, losses
    assert steps_of(tmp_path / "run") == [10, 30, 1000]
    assert len([line for line in said.splitlines() if "step-1000" in line and "another run" in line]) == 1
    assert "going on after step 10" in said
    again = lamina(*args, "--steps", "30", "--resume")
    assert again.returncode == 0 and b"finished already: 30 of 30" in again.stderr


def test_r9_a_stranger_in_the_way_is_an_error_and_stays(straight, tmp_path):
    args = arguments(copy_of(straight, tmp_path), "--out", tmp_path / "run")
    ok(*arguments(tmp_path, "--out", tmp_path / "other", "--seed", "7"))
    place = tmp_path / "run" / "checkpoints" / f"step-{STEPS}"
    shutil.copytree(tmp_path / "other" / "checkpoints" / f"step-{STEPS}", place)
    shutil.copy(straight / "run" / "lamina.json", tmp_path / "run")
    before = (place / "manifest.json").read_bytes()
    fails(1, ["another run", f"step-{STEPS}"], *args, "--resume")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()  # found before the first step
    assert (place / "manifest.json").read_bytes() == before


def signalled(args, run, number, ready):
    process = subprocess.Popen([str(BINARY), *map(str, args), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while not ready() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err.decode()


# R11: a signal in any phase, one process.
@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_r11_a_signal_at_random_times(straight, tmp_path, number, code):
    args = arguments(copy_of(straight, tmp_path), "--out", tmp_path / "run", "--save-every", "3")
    draw, stopped = random.Random(number), 0
    for _ in range(8):
        delay = time.monotonic() + draw.uniform(0.0, 0.5)
        returned, _, said = signalled([*args, "--resume"], tmp_path / "run", number, lambda: time.monotonic() > delay)
        assert returned in (code, 0, -number), said  # -number: before the program had set itself up
        assert "lamina: error" not in said
        stopped += returned == code
        if returned == 0:
            assert_equal_runs(tmp_path / "run", straight / "run")
            shutil.rmtree(tmp_path / "run")
    assert stopped >= 2
    ok(*args, "--resume")
    assert_equal_runs(tmp_path / "run", straight / "run")


def test_a_signal_during_validation_is_made_up_for(straight, tmp_path):
    """The validation takes long and is cut short; its result stands where it would have stood."""
    copy_of(straight, tmp_path)
    valid = write_ids(tmp_path / "valid.bin", 600000)
    args = ["train", "--model", tmp_path / "config.json", "--data", tmp_path / "ids.bin", "--valid", valid, "--batch", "2",
            "--steps", "1", "--threads", "1"]
    ok(*args, "--out", tmp_path / "straight")
    run = tmp_path / "run"

    def validating():  # one step takes a millisecond
        started = bool(list(run.glob("events.*")))
        time.sleep(0.05 if started else 0.001)
        return started

    code, out, said = signalled([*args, "--out", run], run, signal.SIGTERM, validating)
    assert code == 143 and json.loads(out)["steps"] == 1, said
    assert json.loads(out)["valid_loss"] is None and steps_of(run) == [1]
    result = ok_json(*args, "--out", run, "--resume")
    assert result["valid_loss"] is not None
    assert exact_metrics(run) == exact_metrics(tmp_path / "straight")
    assert (run / "model.safetensors").read_bytes() == (tmp_path / "straight" / "model.safetensors").read_bytes()
    before = sorted(path.name for path in run.glob("events.*"))
    assert ok_json(*args, "--out", run, "--resume")["valid_loss"] == result["valid_loss"]  # kept, not made again
    assert sorted(path.name for path in run.glob("events.*")) == before


def file_limit(size):
    """The nearest thing to a full disk that needs no privilege: files may not grow beyond `size` bytes."""
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return limit


def test_a_full_disk_keeps_the_last_whole_checkpoint(straight, tmp_path):
    args = arguments(copy_of(straight, tmp_path), "--out", tmp_path / "run", "--save-every", "4", "--eval-every", "0")
    ok(*args, "--keep", STEPS)
    keep_only(tmp_path / "run", 4)
    # The model fits, the moments, twice as large, do not.
    full = subprocess.run([str(BINARY), *map(str, args), "--resume"], capture_output=True, check=False, timeout=120,
                          preexec_fn=file_limit(50000))
    said = full.stderr.decode()
    assert full.returncode == 1, said
    assert "warning: not saved: cannot write file" in said and "the run goes on" in said
    errors = [line for line in said.splitlines() if line.startswith("lamina: error: ")]
    assert len(errors) == 1 and "optimizer.safetensors" in errors[0] and "File too large" in errors[0]
    assert steps_of(tmp_path / "run") == [4]
    assert not [path for path in (tmp_path / "run").rglob(".*")]
    ok(*args, "--resume")
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (straight / "run" / "model.safetensors").read_bytes()


def test_a_folder_that_cannot_be_written(straight, tmp_path):
    args = arguments(copy_of(straight, tmp_path), "--out", "/proc/lamina-run")
    fails(1, ["/proc/lamina-run"], *args)
    fails(1, ["/proc/lamina-run"], *args, "--resume")
    if os.geteuid() == 0:
        return  # permissions do not bind root
    (tmp_path / "locked").mkdir()
    (tmp_path / "locked").chmod(0o500)
    fails(1, ["locked", "Permission denied"], *arguments(tmp_path, "--out", tmp_path / "locked" / "run"))


def test_a_metrics_file_that_cannot_grow_does_not_end_the_run(straight, tmp_path):
    args = arguments(copy_of(straight, tmp_path), "--out", tmp_path / "run", "--schedule", "constant", "--eval-every", "0", steps=700)
    limited = subprocess.run([str(BINARY), *map(str, args)], capture_output=True, check=False, timeout=120,
                             preexec_fn=file_limit(120000))
    said = limited.stderr.decode()
    assert limited.returncode == 0, said
    warnings = [line for line in said.splitlines() if "not logged" in line]
    assert warnings and "File too large" in warnings[0], said
    steps = [line["step"] for line in metrics_of(tmp_path / "run")]  # whole lines only
    assert steps == list(range(1, len(steps) + 1)) and 300 < len(steps) < 700
    assert steps_of(tmp_path / "run") == [700]


@pytest.mark.parametrize("change, words", [
    (["--lr", "1e-2"], ["--lr", "0.003", "0.01"]),
    (["--batch", "3"], ["--batch", "2", "3"]),
    (["--seed", "5"], ["--seed", "0", "5"]),
    (["--schedule", "linear"], ["--schedule", "cosine", "linear"]),
    (["--steps", "30"], ["--steps", "24", "30"]),
    (["--dropout", "0.2"], ["attn_pdrop", "0.1", "0.2"]),
    (["--clip-layer", "1"], ["--clip-layer", "0", "1"]),
    (["--seq", "8"], ["seq", "16", "8"]),
    (["--betas", "0.9,0.99"], ["--betas"]),
])
def test_settings_that_decide_numbers_are_refused_by_name(straight, tmp_path, change, words):
    args, run = run_with_two_checkpoints(straight, tmp_path)
    before = (run / "lamina.json").read_bytes()
    fails(1, ["settings differ", "step-8", *words], *args, *change, "--resume")
    assert (run / "lamina.json").read_bytes() == before
    done = lamina(*args, *change, "--resume", "--allow-changes")
    assert done.returncode == 0, done.stderr.decode()
    assert any(line.startswith("changed: ") and words[0] in line for line in done.stderr.decode().splitlines())
    resumed = json.loads((run / "lamina.json").read_text())["resumed"]
    assert resumed[-1]["step"] == 8 and any(words[0] in line for line in resumed[-1]["changes"])


@pytest.mark.parametrize("change, words", [
    ({"resumed": 5}, ["resumed, expected a list, got 5"]),
    ({"resumed": {"step": 1}}, ["resumed, expected a list, got an object"]),
    ({"run_id": 7}, ["run_id, expected a text, got 7"]),
    ({"run_id": None}, ["run_id, expected a text, got null"]),
    (None, ["lamina.json: expected an object, got a list"]),
])
def test_a_lamina_json_changed_by_hand(straight, tmp_path, change, words):
    args, run = run_with_two_checkpoints(straight, tmp_path)
    said = json.loads((run / "lamina.json").read_text())
    (run / "lamina.json").write_text(json.dumps([] if change is None else {**said, **change}))
    fails(1, ["not what a run writes", "lamina.json", *words], *args, "--resume")


def test_settings_that_decide_no_number_may_change(straight, tmp_path):
    args, run = run_with_two_checkpoints(straight, tmp_path)
    moved = (tmp_path / "ids.bin").rename(tmp_path / "elsewhere.bin")
    args = [moved if arg == tmp_path / "ids.bin" else arg for arg in args]
    ok(*args, "--resume", "--threads", "2", "--log-every", "1", "--save-every", "7", "--keep", "5",
       "--max-skips", "9", "--eval-every", "6", "--memory-limit", "1GiB",
       "--recompute", "layernorm,gelu,linear,attention")
    stored = json.loads((run / "lamina.json").read_text())["plan"]
    assert "layernorm" in stored["recompute"] and stored["numbers"] != stored["digest"]
    assert (run / "model.safetensors").read_bytes() == (straight / "run" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("schedule", [["constant"], ["wsd", "--decay-steps", "4"]])
def test_more_steps_where_the_rates_taken_stay(straight, tmp_path, schedule):
    more = ["--schedule", *schedule]
    args = arguments(copy_of(straight, tmp_path), "--out", tmp_path / "run", "--save-every", "8", *more, steps=12)
    ok(*args, "--keep", "12")
    keep_only(tmp_path / "run", 8)
    ok(*arguments(tmp_path, "--out", tmp_path / "run", "--resume", *more, steps=16))
    ok(*arguments(tmp_path, "--out", tmp_path / "straight", *more, steps=16))
    assert_equal_runs(tmp_path / "run", tmp_path / "straight")


def test_sources_with_weights_go_on(straight, tmp_path):
    copy_of(straight, tmp_path)
    write_ids(tmp_path / "more.bin", 300)
    args = ["train", "--model", tmp_path / "config.json", "--batch", "2", "--steps", "12", "--isolate-documents", "--data"]
    weighted = [f"{tmp_path}/ids.bin=3", f"{tmp_path}/more.bin=1"]
    ok(*args, *weighted, "--out", tmp_path / "straight")
    ok(*args, *weighted, "--out", tmp_path / "run", "--steps", "5")
    fails(1, ["data, sources", "weight 3", "weight 2"], *args, weighted[0][:-1] + "2", weighted[1], "--out", tmp_path / "run",
          "--resume")
    ok(*args, *weighted, "--out", tmp_path / "run", "--resume")
    assert_equal_runs(tmp_path / "run", tmp_path / "straight")


def test_other_data_and_another_model_are_refused(straight, tmp_path):
    args, run = run_with_two_checkpoints(straight, tmp_path)
    content = bytearray((tmp_path / "ids.bin").read_bytes())
    content[0] ^= 1  # one id, far from every place that a sample would look at but the first
    (tmp_path / "ids.bin").write_bytes(content)
    fails(1, ["data", "train_fingerprint"], *args, "--resume")
    ok(*args, "--resume", "--allow-changes")
    write_config(tmp_path / "config.json", n_layer=1)
    fails(1, ["another model", "n_layer", "2", "1"], *args, "--resume", "--allow-changes")


def test_a_folder_that_is_no_run(straight, tmp_path):
    args = arguments(copy_of(straight, tmp_path), "--out", tmp_path / "run")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine.txt").write_text("keep")
    fails(1, ["not a run folder", "mine.txt"], *args, "--resume")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["mine.txt"]
    (tmp_path / "run" / "mine.txt").unlink()
    shutil.copytree(straight / "run" / "checkpoints", tmp_path / "run" / "checkpoints")
    fails(1, ["not a run folder", "checkpoints"], *args, "--resume")


def test_resume_without_a_checkpoint_starts_at_step_1(straight, tmp_path):
    args = arguments(copy_of(straight, tmp_path), "--out", tmp_path / "run")
    done = lamina(*args, "--resume")
    assert done.returncode == 0 and b"starting at step 1" in done.stderr
    assert_equal_runs(tmp_path / "run", straight / "run")


@pytest.mark.tiny
def test_left_overs_of_a_killed_process_are_removed(straight, tmp_path):
    args, run = run_with_two_checkpoints(straight, tmp_path)
    (run / ".model.safetensors.4711-3.tmp").write_text("half")
    (run / "checkpoints" / ".step-12.4711-0.tmp").mkdir()
    (run / "checkpoints" / ".step-12.4711-0.tmp" / "model.safetensors").write_text("half")
    (run / ".mine.tmp").write_text("keep")
    done = lamina(*args, "--resume")
    assert done.returncode == 0 and b"2 unfinished files of a killed process removed" in done.stderr
    assert [path.name for path in run.rglob(".*")] == [".mine.tmp"]


def test_two_processes_do_not_share_a_folder(straight, tmp_path):
    args = arguments(copy_of(straight, tmp_path), "--out", tmp_path / "run", "--schedule", "constant", steps=10**7)
    process = subprocess.Popen([str(BINARY), *map(str, args)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "run" / "metrics.jsonl").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        fails(1, ["in use by another process", "run"], *args, "--resume")
    finally:
        process.kill()
        process.wait()


def test_text_goes_on_with_the_tokenizer_it_began_with(tmp_path):
    write_json(tmp_path / "model.json", tiny_config(vocab_size=300, n_positions=32, bos_token_id=None, eos_token_id=None))
    text = write_text(tmp_path / "text.txt", 200)
    args = ["train", "--model", tmp_path / "model.json", "--data", text, "--batch", "2", "--steps", "8", "--lr", "1e-3"]
    ok(*args, "--out", tmp_path / "straight")
    ok(*args, "--out", tmp_path / "run", "--steps", "4")
    ok(*args, "--out", tmp_path / "run", "--resume")
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == (tmp_path / "straight" / "model.safetensors").read_bytes()
    text.write_text(text.read_text() + "zzz zzz zzz zzz zzz\n" * 50)
    fails(1, ["data", "train_ids"], *args, "--out", tmp_path / "run", "--steps", "12", "--resume")
    ok(*args, "--out", tmp_path / "run", "--steps", "12", "--resume", "--allow-changes")
    assert (tmp_path / "run" / "tokenizer.json").read_bytes() == (tmp_path / "straight" / "tokenizer.json").read_bytes()
