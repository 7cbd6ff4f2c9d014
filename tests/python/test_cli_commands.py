"""The commands beside train and generate: what they print, and that it hangs together."""
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli_support import BINARY, LLMC, ROOT, fails, lamina, ok, ok_json, write_config, write_text, write_tiny

COMMANDS = ["train", "generate", "eval", "inspect", "plan", "doctor", "bench", "tokenize", "inspect graph", "inspect plan",
            "inspect config", "inspect checkpoint", "bench kernels", "bench step", "bench ablation", "bench peers", "lint-migration",
            "tokenize train", "tokenize encode", "tokenize decode", "tokenize info"]


@pytest.mark.parametrize("command", COMMANDS)
def test_help(command):
    text = ok(*command.split(), "--help")
    assert "--help" in text
    if command == "train":
        for option in ("--data", "--out", "--batch", "--min-lr", "--clip-layer", "--max-skips", "--valid-fraction"):
            assert option in text
        assert "=0.9,0.999 " in text and "=constant " in text and "=fp32 " in text


def test_version_is_stated_once():
    said = ok("--version").split()
    assert said[0] == "lamina"
    project = re.search(r"project\(lamina VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    package = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.M).group(1)
    assert said[1] == project == package


def test_plan(tmp_path):
    config = write_config(tmp_path / "config.json")
    plan = ok_json("plan", "--model", config, "--batch", "2", "--seq", "8", "--clip", "1")
    keys = {"model", "batch", "seq", "precision", "compile_ms", "nodes", "arena_bytes", "max_live_bytes", "classes",
            "peak_owner", "predicted_step_ms", "model_flops"}
    assert keys <= set(plan)
    assert plan["precision"] == "fp32" and plan["predicted_step_ms"] > 0
    assert plan["operations"] > plan["model_flops"] / 2 and plan["bytes_moved"] > 28 * 8400  # AdamW alone
    assert plan["recompute"]["what"] and plan["recompute"]["curve"][0]["what"] == "nothing"
    assert 0 < plan["nodes"]["backward"] <= plan["nodes"]["backward_before"] and plan["nodes"]["forward"] > 0
    assert plan["arena_bytes"] >= plan["max_live_bytes"] > 0
    classes = plan["classes"]
    assert {"parameters", "gradients", "optimizer", "activations", "workspace"} <= set(classes)
    assert classes["optimizer"] == 2 * classes["parameters"]
    assert classes["parameters"] >= 4 * 8400
    # 6 * (matrices, head included) + 6 L C T, a token.
    assert plan["model_flops"] == (6 * 7696 + 6 * 2 * 16 * 8) * 16
    text = ok("plan", "--model", config, "--batch", "2", "--seq", "8")
    assert "predicted:" in text and "plans that could be had" in text
    assert "at the peak" in text and "fold_branches" in text and "share_storage" in text


def test_accumulation_keeps_gradients(tmp_path):
    config = write_config(tmp_path / "config.json")
    one = ok_json("inspect", "plan", "--model", config)
    two = ok_json("inspect", "plan", "--model", config, "--accumulate", "2")
    assert {program["name"] for program in one["programs"]} == {"step", "eval"}
    assert {program["name"] for program in two["programs"]} == {"micro_step", "update", "eval"}
    assert two["regions"]["persistent"] > one["regions"]["persistent"]
    for plan in (one, two):
        for tensor in plan["tensors"]:
            assert 0 <= tensor["offset"] and tensor["offset"] + tensor["bytes"] <= plan["regions"][tensor["region"]]
    listed = ok("inspect", "plan", "--model", config, "--steps")
    assert "program step" in listed and "adamw" in listed


def test_inspect_graph(tmp_path):
    config = write_config(tmp_path / "config.json")
    text = ok("inspect", "graph", "--model", config)
    assert text.startswith("graph step\n") and "adamw" in text and "branch(" not in text
    early = ok("inspect", "graph", "--model", config, "--after", "fold_branches")
    assert "panel" not in early and "adamw" not in early
    assert "panel" in ok("inspect", "graph", "--model", config, "--after", "set_layout")
    assert "attention_cached" in ok("inspect", "graph", "--model", config, "--program", "decode")
    graph = ok_json("inspect", "graph", "--model", config, "--program", "eval")
    assert graph["name"] == "eval" and len(graph["nodes"]) > 10
    dot = ok("inspect", "graph", "--model", config, "--format", "dot")
    assert dot.startswith("digraph") and dot.count("->") > 20


def test_a_pass_can_be_left_out(tmp_path):
    config = write_config(tmp_path / "config.json")
    with_it = ok_json("plan", "--model", config)
    without = ok_json("plan", "--model", config, "--passes=-merge_duplicates_backward", "--passes=-share_storage")
    assert without["digest"] != with_it["digest"]
    assert not [record for record in without["passes"] if record["pass"] == "share_storage"]
    assert without["arena_bytes"] >= with_it["arena_bytes"]


def test_inspect_config_and_checkpoint(tmp_path):
    folder = write_tiny(tmp_path / "model")
    config = ok_json("inspect", "config", folder)
    assert config["n_embd"] == 16 and config["parameters"] == 8400 and config["tie_word_embeddings"] is True
    for path in (folder, folder / "model.safetensors"):
        held = ok_json("inspect", "checkpoint", path)
        assert held["format"] == "safetensors" and len(held["tensors"]) == 28
        assert sum(tensor["bytes"] for tensor in held["tensors"]) == 33600
        assert {"name", "shape", "dtype", "bytes"} <= set(held["tensors"][0])
    assert "transformer.wte.weight" in ok("inspect", "checkpoint", folder)


def test_doctor():
    result = ok_json("doctor")
    assert result["isa"] in ("portable", "avx2", "avx512") and result["threads"] >= 1
    peaks = result["peaks"]
    assert peaks["fp32_gflops"]["all"] > 0 and peaks["fp32_gflops"]["per_core"] > 0 and peaks["memory_gb_s"]["all"] > 0
    for name in ("bf16dot_gflops", "fp16_gflops"):  # null where the processor has no such instructions
        assert peaks[name] is None or peaks[name]["all"] > 0 < peaks[name]["per_core"]
    assert peaks["int8_gops"] is None and result["chosen"]["fp32"] == "f32." + result["isa"]
    stores = {"mixed": "bf16store", "mixed-bf16": "bf16store", "mixed-fp16": "f16store"}
    for word, store in stores.items():
        assert result["chosen"][word] in (store, "bf16dot", "f16chunk") and result["reasons"][word]
        assert (word in result["emulated"]) == (result["chosen"][word] == store)
    said = [warning for warning in result["warnings"] if "--precision mixed:" in warning]
    assert len(said) == (result["chosen"]["mixed"] == "bf16store")
    assert result["isa"] in result["kernels"]["linear"]
    forced = ok_json("doctor", env={"LAMINA_ISA": "portable"})
    assert forced["isa"] == "portable" and any("portable" in warning for warning in forced["warnings"])


def test_bench_step(tmp_path):
    config = write_config(tmp_path / "config.json", attn_pdrop=0.1)
    result = ok_json("bench", "step", "--model", config, "--batch", "2", "--seq", "16", "--steps", "2", "--threads", "1")
    run = result["runs"][0]
    assert {"model", "batch", "seq", "precision", "threads", "step_ms_min", "step_ms_median", "tokens_per_s",
            "peak_fraction", "process_peak_bytes", "compile_ms"} <= set(run)
    assert 0 < run["step_ms_min"] <= run["step_ms_median"] and 0 < run["peak_fraction"] < 1
    assert run["process_peak_bytes"] > 1e6 and len(result["peaks"]["fp32_gflops_windows"]) == 3


def test_bench_ablation(tmp_path):
    args = ["--model", write_config(tmp_path / "config.json", attn_pdrop=0.1), "--batch", "2", "--seq", "16", "--threads", "1"]
    result = ok_json("bench", "ablation", *args, "--steps", "2")
    passes = {row["pass"] for row in ok_json("plan", *args)["passes"]} - {"fold_branches", "set_precision", "set_layout"}
    assert {name.removeprefix("-") for row in result["rows"] for name in row["passes"]} == passes
    for row in result["rows"]:
        without = ok_json("plan", *args, "--dropout", "0", "--clip", "1", *(f"--passes={name}" for name in row["passes"]))
        counted = [{key: row[side][key] for key in ("bytes", "peak_bytes", "nodes")} for side in ("on", "off")]
        assert row["on"]["step_ms"] > 0 and row["off"]["step_ms"] > 0
        assert row["changes"] or counted[0]["peak_bytes"] == counted[1]["peak_bytes"]
        assert row["off"]["nodes"] == [p["nodes_after"] for p in without["passes"] if p["program"] == "step"][-1]
    by_name = {row["acceleration"]: row for row in result["rows"]}
    assert by_name["fuse_accumulate"]["on"]["bytes"] < by_name["fuse_accumulate"]["off"]["bytes"]
    assert not by_name["order_for_memory"]["changes"]
    one = ok_json("bench", "ablation", *args, "--steps", "1", "--accumulate", "2", "--only", "head")["rows"]
    assert [row["acceleration"] for row in one] == ["head"]


def test_bench_kernels():
    wanted = ["attention_bwd", "linear_bwd_weight", "adamw", "layernorm", "gelu"]
    result = ok_json("bench", "kernels", "--seconds", "0", *(word for name in wanted for word in ("--kernel", name)))
    assert {run["kernel"] for run in result["runs"]} == set(wanted) and result["gemm_fraction"] is None
    fails(2, ["--kernel", "gemm"], "bench", "kernels", "--kernel", "gemm")
    peaks, runs = result["peaks"], result["runs"]
    assert peaks["fp32_gflops"] > 0 and peaks["memory_gb_s"] > 0 and peaks["memory_in_place_gb_s"] > 0
    assert {run["bound"] for run in runs if run["kernel"].startswith(("linear_bwd_w", "attention_b"))} == {"compute"}
    assert {run["bound"] for run in runs if run["kernel"] in ("adamw", "layernorm", "gelu")} == {"memory"}
    for run in runs:
        assert run["flops_per_byte"] == pytest.approx(run["flops"] / run["bytes"])
        assert run["bound_fraction"] == pytest.approx(run["bound_ms"] / run["ms"])
        assert run["gb_s"] == pytest.approx(run["bytes"] / run["ms"] * 1e-6)
    adamw = next(run for run in runs if run["kernel"] == "adamw")
    assert adamw["bytes"] == pytest.approx(28 * 768 * 3072, rel=1e-4)


def test_bench_peers(tmp_path):
    config = write_config(tmp_path / "config.json")
    args = ["bench", "peers", "--model", config, "--batch", "2", "--seq", "16", "--threads", "1"]
    result = ok_json(*args, "--steps", "2", "--warmup", "1", env={"LAMINA_TORCH_PYTHON": sys.executable})
    assert [run["engine"] for run in result["runs"]] == ["lamina", "torch"]
    for run in result["runs"]:
        assert run["engine_version"] and run["steps"] == 2 and run["process_peak_bytes"] > 1e6
        assert 0 < run["step_ms_min"] <= run["step_ms_median"]
    ours, theirs = (run["step_ms_min"] for run in result["runs"])
    versus = {"versus": "torch", "batch": 2, "seq": 16}
    assert result["ratios"] == [dict(versus, ratio=pytest.approx(theirs / ours))]
    assert [run["vocab_size"] for run in result["runs"]] in ([97, 97], [97, 128]) and result["runs"][1]["settings"]
    gone = lamina(*args, env={"LAMINA_TORCH_PYTHON": str(tmp_path / "none")})
    assert gone.returncode == 1 and gone.stderr.splitlines()[-1].startswith(b"lamina: error: cannot start torch: ")
    died = lamina(*args, env={"LAMINA_TORCH_PYTHON": "/bin/false"})
    assert died.returncode == 1 and died.stderr.splitlines()[-1].endswith(b"got exit 1")


def test_peers_in_lower_precision_and_the_best_of_them(tmp_path):
    config = write_config(tmp_path / "config.json")
    python = tmp_path / "python"  # stands for PyTorch's: each engine's step takes a known time
    python.write_text("""#!/bin/sh
case "$3" in *'"compile":true'*) ms=3 ;; *'bf16'*) ms=1 ;; *) ms=2 ;; esac
echo '{"ready": true}'
while read -r turn; do echo "{\\"step_ms\\": $ms}"; done
echo '{"engine_version": "0", "process_peak_bytes": 1, "compile_ms": 1, "vocab_size": 97, "settings": "none"}'
""")
    python.chmod(0o755)
    result = ok_json("bench", "peers", "--model", config, "--batch", "2", "--seq", "16", "--threads", "1", "--steps", "2",
                     "--versus", "torch-best", env={"LAMINA_TORCH_PYTHON": str(python)})
    names = ["torch", "torch-compile", "torch-bf16", "torch-compile-bf16", "torch-fp16", "torch-compile-fp16"]
    theirs = [run for run in result["runs"] if run["engine"] != "lamina"]
    assert [run["engine"] for run in theirs] == names
    assert [run["step_ms_min"] for run in theirs] == [2, 3, 1, 3, 2, 3]
    assert [run["precision"] for run in theirs] == ["fp32"] * 2 + ["mixed-bf16"] * 2 + ["mixed-fp16"] * 2
    best = result["ratios"][-1]
    assert best["versus"] == "torch-best" and best["ratio"] == min(ratio["ratio"] for ratio in result["ratios"])
    assert best["engine"] in names


def wait_until(happened, seconds=60):
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_signal_takes_the_workers_and_their_folder_along(tmp_path):
    config = write_config(tmp_path / "config.json")
    python = tmp_path / "python"  # ready, and then silent
    python.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\necho '{{\"ready\": true}}'\nexec sleep 100\n")
    python.chmod(0o755)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = dict(os.environ, LAMINA_TORCH_PYTHON=str(python), TMPDIR=str(temporary))
    args = ["bench", "peers", "--model", config, "--batch", "2", "--seq", "16", "--threads", "1"]
    with subprocess.Popen([BINARY, *map(str, args)], env=environment, stderr=subprocess.PIPE) as program:
        wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
        assert list(temporary.iterdir())
        program.send_signal(signal.SIGTERM)
        program.send_signal(signal.SIGTERM)  # as timeout(1) does: to the program and to its group
        said = program.communicate(timeout=30)[1]
    assert program.returncode == 143 and b"error" not in said, said
    assert not list(temporary.iterdir())
    wait_until(lambda: not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists())


ADAMW = ["--betas", "0.8,0.95", "--eps", "1e-6", "--weight-decay", "0.25"]


def test_peers_are_asked_for_the_same_update(tmp_path):
    config = write_config(tmp_path / "config.json")
    args = ["bench", "peers", "--model", config, "--batch", "2", "--seq", "16", "--threads", "1", "--steps", "1", *ADAMW]
    result = lamina(*args, "--versus", "llm.c", "--llmc", LLMC)
    said = result.stderr.decode()
    assert result.returncode == 0 and "update 3: 0.8 0.95 1e-06 0.25" in said, said
    assert "llm.c's C trainer has no clipping" in said and "--clip 1" in said
    assert "no clipping" not in lamina(*args, "--versus", "llm.c", "--llmc", LLMC, "--clip", "0").stderr.decode()
    echo = tmp_path / "python"  # `python -c SOURCE OPTIONS`
    echo.write_text('#!/bin/sh\necho "$3" >&2\nexit 1\n')
    echo.chmod(0o755)
    died = lamina(*args, "--clip-layer", "0.5", "--clip", "2", env={"LAMINA_TORCH_PYTHON": str(echo)})
    asked = next(json.loads(line) for line in died.stderr.decode().splitlines() if line.startswith("{"))
    assert (asked["betas"], asked["eps"], asked["weight_decay"]) == ([0.8, 0.95], 1e-6, 0.25)
    assert (asked["clip"], asked["clip_layer"]) == (2.0, 0.5)
    ok_json(*args, "--clip-layer", "0.5", "--warmup", "1", env={"LAMINA_TORCH_PYTHON": sys.executable})


def test_signature_is_the_same_for_any_isa_and_threads():
    first = ok("bench", "--signature").strip()
    # A change that is meant to change no number keeps it; one that is meant to states the new one here.
    assert first == (ROOT / "tests" / "signature.txt").read_text().strip()
    assert ok_json("bench", "--signature", env={"LAMINA_ISA": "portable"})["signature"] == first


def test_tokenize_there_and_back(tmp_path):
    text = write_text(tmp_path / "text.txt")
    folder = tmp_path / "tokenizer"
    made = ok_json("tokenize", "train", "--data", text, "--vocab-size", "300", "--out", folder)
    assert made["vocab_size"] == 300
    info = ok_json("tokenize", "info", "--tokenizer", folder)
    assert info["vocab_size"] == 300 and info["specials"] == [{"id": 299, "text": "<|endoftext|>"}]
    content = "and the cat\u00e9 \U0001f642\r\n  x<|endoftext|>y ".encode()
    (tmp_path / "in.txt").write_bytes(content)
    result = lamina("tokenize", "encode", "--tokenizer", folder, "--file", tmp_path / "in.txt", "--json")
    encoded = json.loads(result.stdout)
    assert encoded["special_count"] == 1 and "1 special-token text" in result.stderr.decode()
    ids = tmp_path / "ids.txt"
    ids.write_text(" ".join(map(str, encoded["ids"])))
    assert lamina("tokenize", "decode", "--tokenizer", folder, "--ids-file", ids).stdout == content
    piped = lamina("tokenize", "encode", "--tokenizer", folder, stdin=content)
    assert [int(word) for word in piped.stdout.split()] == encoded["ids"]
    allowed = ok_json("tokenize", "encode", "--tokenizer", folder, "--file", tmp_path / "in.txt", "--special", "allow")
    assert 299 in allowed["ids"]
    refused = lamina("tokenize", "encode", "--tokenizer", folder, "--file", tmp_path / "in.txt", "--special", "error")
    assert refused.returncode == 1 and b"<|endoftext|>" in refused.stderr and b"byte 23" in refused.stderr
    wrong = lamina("tokenize", "decode", "--tokenizer", folder, stdin=b"1 300")
    assert wrong.returncode == 1 and b"300" in wrong.stderr


def test_output_that_cannot_be_written(tmp_path):
    config = write_config(tmp_path / "config.json")
    with open("/dev/full", "wb") as full:
        result = subprocess.run([str(BINARY), "plan", "--model", str(config), "--json"], stdout=full,
                                stderr=subprocess.PIPE, check=False)
    assert result.returncode == 1 and b"standard output" in result.stderr


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([str(BINARY), "plan", "--model", str(write_config(tmp_path / "config.json"))], stdout=writer,
                          stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_without_standard_streams_nothing_is_written_into_files(tmp_path):
    """A line for people goes nowhere then, and not into the file that got its number."""
    write_text(tmp_path / "text.txt")
    ok("tokenize", "train", "--data", tmp_path / "text.txt", "--vocab-size", "300", "--out", tmp_path / "tok")
    (tmp_path / "mark.txt").write_bytes(b"\xef\xbb\xbfwith a byte-order mark")
    command = [str(BINARY), "tokenize", "encode", "--tokenizer", str(tmp_path / "tok"), "--data", str(tmp_path / "mark.txt"),
               "--out"]
    subprocess.run([*command, str(tmp_path / "usual.bin")], check=True, capture_output=True)
    subprocess.run([*command, str(tmp_path / "closed.bin")], check=True, close_fds=True,
                   preexec_fn=lambda: [os.close(fd) for fd in range(3)])
    assert (tmp_path / "closed.bin").read_bytes() == (tmp_path / "usual.bin").read_bytes()
