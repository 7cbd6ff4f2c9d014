"""Run folders and model folders go both ways between Lamina and HuggingFace: weights bit for bit, logits to rounding, the
tokenizer id for id."""
import json
import random

import cli_support as cli
import numpy as np
import parity_support as parity
import pytest
import tiny
import tokenizers
import torch
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2LMHeadModel

import lamina

UNIT = 2.0**-24
STEPS = 5


def text_of(lines, seed=0):
    rng = random.Random(seed)
    words = "the sea is never full of ships nor shore sand naïve café 日本語 🙂 1234 don't we'll\tx".split(" ")
    return "\n".join(" ".join(rng.choice(words) for _ in range(rng.randint(3, 12))) for _ in range(lines)) + "\n"


@pytest.fixture(scope="module", params=[True, False], ids=["tied", "untied"])
def run_folder(request, tmp_path_factory):
    """A model trained on text by the program, with its tokenizer."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "text.txt").write_text(text_of(400), encoding="utf-8")
    config = dict(tiny.CONFIG, vocab_size=300, n_embd=24, n_head=3, n_positions=20, tie_word_embeddings=request.param)
    config.update(bos_token_id=299, eos_token_id=299)
    (folder / "config.json").write_text(json.dumps(config))
    cli.ok(
        *("train", "--model", folder / "config.json", "--data", folder / "text.txt", "--out", folder / "run"),
        *("--steps", STEPS, "--batch", 2, "--seq", 13, "--lr", "1e-2", "--clip", "1"),
    )
    return folder / "run"


def random_texts(count):
    """Unicode of all planes, runs of spaces, contractions."""
    rng = random.Random(7)
    alphabets = [range(32, 127), range(0x20, 0x3000), range(0x1F300, 0x1F700), [9, 10, 13, 32, 0xA0, 0x2003], range(0, 0x110000)]
    for _ in range(count):
        letters = rng.choice(alphabets)
        chars = [chr(rng.choice(letters)) for _ in range(rng.randint(0, 40))]
        yield "".join(c for c in chars if not 0xD800 <= ord(c) < 0xE000)
    yield from ("don't we'll I'M 'S", "   leading", "trailing   ", "a \n\n  b", "x<|endoftext|")


def rms(values):
    return float(np.sqrt(np.square(values).mean()))


def test_huggingface_loads_a_run_folder_with_equal_logits(run_folder):
    exact = AutoModelForCausalLM.from_pretrained(run_folder, attn_implementation="eager").double().eval()
    plain = AutoModelForCausalLM.from_pretrained(run_folder, attn_implementation="eager").float().eval()
    model = lamina.Model.from_pretrained(str(run_folder))
    ours, theirs, truth = [], [], []
    for seed in range(8):  # together, as the bound is one on averages
        ids = np.random.default_rng(seed).integers(0, 300, (3, 20), dtype=np.int32)
        with torch.no_grad():
            as_torch = torch.tensor(ids, dtype=torch.long)
            truth.append(exact(as_torch).logits.numpy())
            theirs.append(plain(as_torch).logits.numpy())
        ours.append(model.forward(ids).copy())  # the next call writes to the same place
    ours, theirs, truth = (np.stack(side) for side in (ours, theirs, truth))
    allowed = max(2.0 * rms(theirs - truth), 4.0 * UNIT * rms(truth))
    assert 0.0 < rms(ours - truth) <= allowed


def test_huggingface_generates_as_lamina_does(run_folder):
    prompt = [5, 17, 80]
    theirs = AutoModelForCausalLM.from_pretrained(run_folder).generate(
        torch.tensor([prompt]), max_new_tokens=12, do_sample=False, pad_token_id=0
    )
    ours = lamina.Model.from_pretrained(str(run_folder)).generate([prompt], max_tokens=12, temperature=0.0)[0]
    assert ours.ids == theirs[0, len(prompt) :].tolist()


def test_huggingface_loads_the_tokenizer_with_equal_ids(run_folder):
    theirs = tokenizers.Tokenizer.from_file(str(run_folder / "tokenizer.json"))
    auto = AutoTokenizer.from_pretrained(run_folder)
    ours = lamina.Tokenizer.from_pretrained(str(run_folder))
    assert theirs.get_vocab_size() == ours.vocab_size == 300
    for text in [*random_texts(2000), text_of(50, seed=1)]:
        ids = ours.encode(text)
        assert ids == theirs.encode(text).ids, repr(text)
        assert ours.decode(ids) == text, repr(text)
    assert auto("the sea <|endoftext|>").input_ids == ours.encode("the sea <|endoftext|>", special="allow")
    assert auto.eos_token_id == ours.end_of_text


@pytest.mark.parametrize("variant", [dict(), dict(tie_word_embeddings=False, activation_function="gelu")])
def test_loading_and_saving_changes_no_byte_of_a_tensor(tmp_path, variant):
    model = parity.make_model(parity.Run(seed=3, config=variant))
    model.save_pretrained(tmp_path / "theirs")
    lamina.Model.from_pretrained(str(tmp_path / "theirs")).save_pretrained(str(tmp_path / "ours"))
    theirs, ours = (load_file(tmp_path / side / "model.safetensors") for side in ("theirs", "ours"))
    assert theirs.keys() == ours.keys()
    for name, values in theirs.items():
        assert ours[name].tobytes() == values.tobytes() and ours[name].shape == values.shape, name
    back = GPT2LMHeadModel.from_pretrained(tmp_path / "ours")
    for key, value in variant.items():
        assert getattr(back.config, key) == value
    lamina.Model.from_pretrained(str(tmp_path / "ours")).save_pretrained(str(tmp_path / "again"))
    for file in ("model.safetensors", "config.json", "generation_config.json"):
        assert (tmp_path / "ours" / file).read_bytes() == (tmp_path / "again" / file).read_bytes(), file


def test_shards_of_huggingface_load(tmp_path):
    model = parity.make_model(parity.Run(seed=4))
    model.save_pretrained(tmp_path / "shards", max_shard_size="20KB")
    assert len(list((tmp_path / "shards").glob("*.safetensors"))) > 1
    ours = lamina.Model.from_pretrained(str(tmp_path / "shards")).parameters()
    for name, p in model.named_parameters():
        assert np.array_equal(ours[name], p.detach().numpy()), name
