"""The whole program with more threads than processors: what ThreadSanitizer watches (make tsan)."""
import pytest

from cli_support import ok, ok_json, write_config, write_text


@pytest.mark.tiny
@pytest.mark.tsan
def test_many_threads_train_evaluate_and_write(tmp_path):
    text = write_text(tmp_path / "text.txt")
    model = write_config(tmp_path / "model.json", vocab_size=257, bos_token_id=256, eos_token_id=256)
    results = []
    for threads in (1, 4):
        run = tmp_path / str(threads)
        ok("train", "--model", model, "--data", text, "--out", run, "--steps", "3", "--accumulate", "2", "--batch", "3",
           "--dropout", "0.1", "--clip", "1", "--eval-every", "2", "--threads", threads)
        ids = ok_json("generate", run, "--prompt", "In", "--max-tokens", "8", "--seed", "1", "--threads", threads)["ids"]
        results.append(((run / "model.safetensors").read_bytes(), ids))
    assert results[0] == results[1]
