"""lamina generate, case by case: every value of every setting means something or is refused; a row depends on itself
alone; what is printed is whole characters, up to a stop text. Ids like I8 are those of the table of cases."""
import json

import pytest
import tiny
from cli_support import fails, lamina, ok, ok_json, tiny_config, tiny_tensors, write_json, write_safetensors

pytestmark = pytest.mark.tiny

PROMPT = ["--prompt-ids", "3 91", "--max-tokens", "8"]
GREEDY = tiny.GREEDY[(3, 91)]
BATCH = [(3, 91), (3, 7), (47, 30, 79, 88, 91)]


def lines(path, *prompts):
    path.write_text("".join(" ".join(map(str, prompt)) + "\n" for prompt in prompts))
    return path


def ids(folder, *options):
    return ok_json("generate", folder, *PROMPT, "--seed", "1", *options)["ids"]


def test_i1_top_k_beyond_the_vocabulary(folder):
    free = ids(folder)
    assert ids(folder, "--top-k", "1") == GREEDY != free
    for k in (97, 98, 1000000, 0):
        assert ids(folder, "--top-k", k) == free
    assert len(ids(folder, "--top-k", "50")) == 8
    fails(2, ["top_k", "-1"], "generate", folder, *PROMPT, "--top-k", "-1")


def test_i3_top_p_at_its_ends(folder):
    for p in ("0", "1e-9"):
        assert ids(folder, "--top-p", p) == GREEDY
    assert ids(folder, "--top-p", "1") == ids(folder)
    for wrong, name in (("1.5", "top_p"), ("-0.1", "top_p"), ("nan", "--top-p")):
        fails(2, [name, wrong], "generate", folder, *PROMPT, "--top-p", wrong)


def test_i5_temperature_0(folder):
    for seed in (1, 2, 3):
        assert ids(folder, "--temperature", "0", "--seed", seed) == GREEDY
    assert ids(folder, "--temperature", "1e-30") == GREEDY
    assert ids(folder, "--temperature", "0", "--top-k", "5", "--top-p", "0.9") == GREEDY
    hot = ids(folder, "--temperature", "1e30")
    assert len(hot) == 8 and all(0 <= new < 97 for new in hot)
    for wrong in ("-1", "nan", "inf"):
        fails(2, ["temperature", wrong], "generate", folder, *PROMPT, "--temperature", wrong)


def test_i6_rows_that_end_at_different_steps(folder, tmp_path):
    batch = lines(tmp_path / "prompts", *BATCH[:2])
    options = ["--max-tokens", "8", "--temperature", "0", "--end-id", "55", "--log-probabilities"]
    rows = ok_json("generate", folder, "--batch-file", batch, *options)["rows"]
    assert [row["ids"] for row in rows] == [[55], [40, 40, 61, 55]]
    assert [row["finish_reason"] for row in rows] == ["eos", "eos"]
    assert [len(row["log_probabilities"]) for row in rows] == [1, 4]
    alone = ok_json("generate", folder, "--prompt-ids", "3 7", *options)
    assert alone["ids"] == rows[1]["ids"]
    assert alone["log_probabilities"] == pytest.approx(rows[1]["log_probabilities"], abs=1e-5)


def test_i8_prompt_and_new_ids_beyond_the_context(folder, tmp_path):
    prompt = {n: " ".join(map(str, tiny.tokens(n))) for n in (15, 16, 17)}
    assert len(ok_json("generate", folder, "--prompt-ids", prompt[15], "--max-tokens", "1")["ids"]) == 1
    for count, more in ((15, 2), (16, 1), (17, 1)):
        words = ["row 0", "16", f"{count} + {more}"]
        fails(1, words, "generate", folder, "--prompt-ids", prompt[count], "--max-tokens", more, "--end-id", "1")
        batch = lines(tmp_path / "prompts", (3, 91), prompt[count].split())
        fails(1, ["row 1", *words[1:]], "generate", folder, "--batch-file", batch, "--max-tokens", more)
    # Without --max-tokens the context is the end, of each row by itself.
    rows = ok_json("generate", folder, "--batch-file", lines(tmp_path / "fit", (3, 91), prompt[15].split()))["rows"]
    assert [len(row["ids"]) for row in rows] == [14, 1]
    assert {row["finish_reason"] for row in rows} == {"length"}
    fails(1, ["16 + 1", "at most 16"], "generate", folder, "--prompt-ids", prompt[16])


def test_i12_the_empty_prompt(folder, tmp_path):
    alone = lamina("generate", folder, "--prompt-ids", "", "--max-tokens", "8", "--temperature", "0", "--json")
    assert json.loads(alone.stdout)["ids"] == [44] * 8
    assert b"bos_token_id 96" in alone.stderr and len(alone.stderr.splitlines()) == 1
    batch = lines(tmp_path / "prompts", BATCH[0], (), BATCH[1])
    rows = ok_json("generate", folder, "--batch-file", batch, "--max-tokens", "8", "--temperature", "0")["rows"]
    assert [row["ids"] for row in rows] == [GREEDY, [44] * 8, tiny.GREEDY[(3, 7)]]
    without = tiny.write(tmp_path / "without", bos_token_id=None)
    fails(1, ["bos_token_id", "row 0"], "generate", without, "--prompt-ids", "")
    fails(1, ["bos_token_id", "row 1"], "generate", without, "--batch-file", batch)


def test_n24_a_row_is_the_same_in_any_batch_and_for_any_threads(folder, tmp_path):
    prompts = [*BATCH, (1,), tuple(tiny.tokens(11)), (96, 0), (3, 91)]
    options = ["--max-tokens", "5", "--seed", "7", "--temperature", "0.9", "--top-k", "40", "--top-p", "0.95"]
    alone = [ok_json("generate", folder, "--prompt-ids", " ".join(map(str, p)), *options)["ids"] for p in prompts]
    assert alone[0] == alone[-1] and len(set(map(tuple, alone))) > 3
    batch = lines(tmp_path / "prompts", *prompts)
    for rows, threads in ((1, 1), (2, 3), (7, 1), (7, 2)):
        got = ok_json("generate", folder, "--batch-file", batch, "--batch", rows, "--threads", threads, *options)
        assert [row["ids"] for row in got["rows"]] == alone, (rows, threads)


def test_weights_that_are_no_numbers(tmp_path):
    tensors = tiny_tensors()
    tensors["transformer.ln_f.bias"][:] = float("nan")
    write_json(tmp_path / "config.json", tiny_config())
    write_safetensors(tmp_path / "model.safetensors", tensors)
    for temperature in (0, 1):
        fails(1, ["logits", "not finite"], "generate", tmp_path, *PROMPT, "--temperature", temperature)


LETTERS = "the cat naïve 日本語 🙂 été\n"


def test_echo_of_ids_and_rows(folder, texts, tmp_path):
    """Whatever way a prompt comes, --echo gives it back before what follows."""
    base = ["--max-tokens", "3", "--temperature", "0"]
    new = ok_json("generate", folder, "--prompt-ids", "3 91", *base)["ids"]
    assert ok("generate", folder, "--prompt-ids", "3 91", *base, "--echo").split() == [*map(str, [3, 91, *new])]
    rows = lines(tmp_path / "rows.txt", [3, 91], [3, 7])
    shown = ok("generate", folder, "--batch-file", rows, *base, "--echo").splitlines()
    assert shown[0] == "--- row 0" and shown[1].split() == [*map(str, [3, 91, *new])] and shown[3].startswith("3 7 ")
    said = ok_json("generate", folder, "--batch-file", rows, *base, "--echo")["rows"]
    assert [row["prompt_ids"] for row in said] == [[3, 91], [3, 7]] and said[0]["ids"] == new and said[0]["prompt"] is None
    text = ok("generate", texts, "--prompt", "ab", *base, "--echo")
    assert text.startswith("ab")
    ids = ok_json("generate", texts, "--prompt", "ab", *base, "--echo")
    assert ids["prompt"] == "ab"
    given = " ".join(map(str, ids["prompt_ids"]))
    assert ok("generate", texts, "--prompt-ids", given, *base, "--echo") == text
    assert "prompt_ids" not in ok_json("generate", texts, "--prompt", "ab", *base)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A model that has hardly learned: its tokens are bytes and parts of characters in any order."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "text.txt").write_text(LETTERS * 40, encoding="utf-8")
    config = tiny_config(vocab_size=275, n_positions=64, bos_token_id=None, eos_token_id=None)
    ok("train", "--model", write_json(folder / "model.json", config), "--data", folder / "text.txt", "--out",
       folder / "run", "--steps", "30", "--batch", "2", "--lr", "1e-2")
    return folder / "run"


def written(folder, *options):
    """Text and JSON of the same run; the text is checked: what is shown is what is told, in whole characters."""
    result = ok_json("generate", folder, *options)
    shown = lamina("generate", folder, *options).stdout.decode("utf-8")
    assert shown == result["text"] + "\n"
    return result


def test_text_comes_in_whole_characters(texts):
    replaced = 0
    for seed in range(6):
        result = written(texts, "--prompt", "the", "--max-tokens", "9", "--seed", seed, "--temperature", "2")
        assert len(result["ids"]) <= 9 and result["finish_reason"] in ("length", "eos")
        replaced += "\ufffd" in result["text"]
    assert replaced  # else nothing was proved


def test_stop_texts_end_the_text_before_them(texts):
    options = ["--prompt", "the", "--max-tokens", "40", "--seed", "3"]
    whole = written(texts, *options)["text"]
    assert len(whole) > 20
    for begin, length in ((0, 1), (1, 5), (7, 2), (12, 8), (len(whole) - 3, 3)):
        stop = whole[begin : begin + length]
        if "\ufffd" in stop or "\0" in stop:
            continue
        result = written(texts, *options, "--stop", stop, "--stop", "never\nthere")
        assert result["text"] == whole[: whole.index(stop)] and result["finish_reason"] == "stop"
    fails(2, ["stop", "empty"], "generate", texts, "--prompt", "a", "--stop", "")
    fails(2, ["stop", "UTF-8"], "generate", texts, "--prompt", "a", "--stop", "\udcff")  # the byte 0xff


def test_end_ids_are_ids(folder):
    fails(1, ["97", "end id"], "generate", folder, *PROMPT, "--end-id", "97")
    fails(2, ["--end-id", "99999999999"], "generate", folder, *PROMPT, "--end-id", "99999999999")
    fails(2, ["--end-id", "-1"], "generate", folder, *PROMPT, "--end-id", "-1")


def test_stop_needs_a_tokenizer(folder):
    fails(1, ["tokenizer", "--stop"], "generate", folder, *PROMPT, "--stop", "x")


def test_prompts_as_json_lines(texts, tmp_path):
    options = ["--max-tokens", "6", "--seed", "5"]
    one = ok_json("generate", texts, "--prompt", "the\ncat", *options)
    other = ok_json("generate", texts, "--prompt", "the\ncat", "--max-tokens", "6", "--seed", "6")
    prompt_ids = json.loads(ok("tokenize", "encode", "--tokenizer", texts, "--json", stdin=b"the\ncat"))["ids"]
    batch = tmp_path / "prompts.jsonl"
    batch.write_text("".join(json.dumps(line) + "\n" for line in (
        {"prompt": "the\ncat"}, {"prompt": "the\ncat", "seed": 6}, {"prompt_ids": prompt_ids})))
    rows = ok_json("generate", texts, "--batch-file", batch, *options)["rows"]
    assert [row["ids"] for row in rows] == [one["ids"], other["ids"], one["ids"]]
    assert [row["text"] for row in rows] == [one["text"], other["text"], one["text"]]
    for bad, words in (("[1]", ["line 2"]), ('{"seed": 1}', ["line 2", "prompt"]), ('{"prompt": 5}', ["line 2", "prompt"]),
                       ('{"prompt": "a", "prompt_ids": [1]}', ["line 2"]), ('{"prompt_ids": [1, -2]}', ["line 2", "-2"]),
                       ('{"prompt_ids": [1.5]}', ["line 2", "1.5"]), ('{"prompt": "a", "sead": 1}', ["line 2", "sead"]),
                       ('{"prompt": "a"', ["line 2"]), ('{"prompt_ids": 7}', ["line 2", "prompt_ids"]),
                       ('{"prompt": "a", "seed": -1}', ["line 2", "seed", "-1"]), ("", ["line 2"])):
        batch.write_text('{"prompt": "a"}\n' + bad + "\n")
        fails(1, words, "generate", texts, "--batch-file", batch, *options)


def test_prompts_as_lines(texts, tmp_path):
    batch = tmp_path / "prompts.txt"
    batch.write_bytes("\ufeffthe\r\n日本\ncat".encode())  # a byte-order mark, both line ends, none at the end
    rows = ok_json("generate", texts, "--batch-file", batch, "--max-tokens", "5")["rows"]
    alone = [ok_json("generate", texts, "--prompt", text, "--max-tokens", "5")["ids"] for text in ("the", "日本", "cat")]
    assert [row["ids"] for row in rows] == alone
    shown = ok("generate", texts, "--batch-file", batch, "--max-tokens", "5")
    assert [line for line in shown.splitlines() if line.startswith("--- row")] == ["--- row 0", "--- row 1", "--- row 2"]
    batch.write_bytes(b"")
    fails(1, ["no prompts"], "generate", texts, "--batch-file", batch)
    batch.write_bytes(b"ab\n\xff")
    fails(1, ["byte 3", "ff"], "generate", texts, "--batch-file", batch)


def test_a_model_with_more_ids_than_its_tokenizer_draws_known_ones_only(texts, tmp_path):
    """N25: the rows of a padded table. Here 225 of 500 ids have no token."""
    config = tiny_config(vocab_size=500, n_positions=64)
    config.pop("bos_token_id"), config.pop("eos_token_id")
    (tmp_path / "text.txt").write_text(LETTERS * 20, encoding="utf-8")
    ok("train", "--model", write_json(tmp_path / "m.json", config), "--data", tmp_path / "text.txt", "--tokenizer", texts,
       "--out", tmp_path / "run", "--steps", "1", "--batch", "1")
    result = ok_json("generate", tmp_path / "run", "--prompt", "the", "--max-tokens", "60", "--temperature", "1e30")
    assert max(result["ids"]) < 275
    fails(1, ["275", "97", "fit"], "generate", tiny.write(tmp_path / "small"), "--tokenizer", texts, "--prompt", "a")
