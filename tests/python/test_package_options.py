"""The package against the command line: each option under its name and with its meaning, equal results, stubs that are
true."""
import ast
import json
import re
from pathlib import Path

import cli_support as cli
import numpy as np
import pytest
import tiny
import torch

import lamina

LETTERS = "the cat naïve 日本語 🙂 été\n"


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A model with a tokenizer that has hardly learned: its tokens are bytes in any order."""
    folder = tmp_path_factory.mktemp("texts") / "model"
    tokenizer = lamina.Tokenizer.train([LETTERS * 40], vocab_size=275)
    config = dict(tiny.CONFIG, vocab_size=275, n_positions=64, bos_token_id=274, eos_token_id=274)
    lamina.Model.from_config(config, seed=4).save_pretrained(str(folder), tokenizer=tokenizer)
    return str(folder)


# The stub file, as Python sees it.
def stub_nodes(kind=ast.AST):
    tree = ast.parse((Path(lamina.__file__).parent / "_lamina.pyi").read_text(encoding="utf-8"))
    return [node for node in tree.body if isinstance(node, kind)]


def stub_classes():
    return stub_nodes(ast.ClassDef)


def parameters_of(function, defaults):
    """[(name, keyword only, default)] of a function's definition; `defaults` in their order where they are not written."""
    arguments = function.args
    names = [(argument.arg, False) for argument in arguments.args] + [(argument.arg, True) for argument in arguments.kwonlyargs]
    places = [None] * (len(arguments.args) - len(arguments.defaults)) + arguments.defaults + arguments.kw_defaults
    given = iter(defaults if defaults is not None else [])
    values = []
    for place in places:
        if place is None:
            values.append("required")
        else:
            values.append(ast.literal_eval(place) if defaults is None else next(given))
    simple = [list(value) if isinstance(value, tuple) else value for value in values]
    return [(name, only, value) for (name, only), value in zip(names, simple)]


def compare_signature(actual, stub, name):
    """Whether `actual` is a function of the extension; then it has the stub's parameters."""
    signature = getattr(actual, "__nb_signature__", None)
    if signature is None:
        return False
    text, _, defaults = signature[0]
    told = ast.parse(re.sub(r"\\\d+", "0", text.replace("lamina._lamina.", "")) + ": ...").body[0]
    assert parameters_of(stub, None) == parameters_of(told, defaults or ()), name
    return True


def test_stubs_are_true():
    """Names, order, keywords and defaults of everything that the extension has."""
    compared = 0
    for node in stub_classes():
        actual = getattr(lamina, node.name)
        functions = {item.name: item for item in node.body if isinstance(item, ast.FunctionDef)}
        assert set(functions) - {"__init__"} == {name for name in vars(actual) if not name.startswith("_")}, node.name
        for name, stub in functions.items():
            member = vars(actual).get(name)
            if compare_signature(getattr(member, "__func__", member), stub, f"{node.name}.{name}"):
                compared += 1
            else:
                assert isinstance(member, property) or name == "__init__", name
    functions = stub_nodes(ast.FunctionDef)
    assert all(compare_signature(getattr(lamina, stub.name), stub, stub.name) for stub in functions)
    assert compared >= 15
    assert {node.name for node in [*stub_classes(), *functions]} == set(lamina.__all__) - {"__version__"}


def keywords(*functions):
    stubs = {(node.name, item.name): item for node in stub_classes() for item in node.body if isinstance(item, ast.FunctionDef)}
    return {argument.arg for key in functions for argument in stubs[key].args.args + stubs[key].args.kwonlyargs}


def options_of(command):
    return {name.replace("-", "_") for name in re.findall(r"^  (?:-h,)?--([a-z0-9-]+)", cli.ok(command, "--help"), re.M)}


def test_each_option_exists_under_its_name():
    load = keywords(("Model", "from_pretrained"))
    # Prompts come as Python values, and what is shown is the caller's business.
    command_line_only = {"prompt", "prompt_ids", "batch_file", "echo", "json", "help"}
    assert options_of("generate") - command_line_only <= keywords(("Model", "generate")) | load
    functions = {node.name: {argument.arg for argument in node.args.kwonlyargs} for node in stub_nodes(ast.FunctionDef)}
    assert options_of("convert") - {"json", "help"} == functions["convert"]
    assert options_of("verify") - {"json", "help", "with", "ids_file"} == functions["verify"] - {"ids"}  # ids come as Python values
    assert options_of("lint-migration") - {"json", "help"} == functions["lint_migration"]
    # Data, files and the course of a run are the loop's around step().
    course = {"model", "data", "out", "tokenizer", "vocab_size", "token_type", "invalid_utf8", "valid", "valid_fraction",
              "epochs", "eval_every", "save_every", "log_every", "json", "help"}
    later = {"keep", "resume", "allow_changes", "text_field"}
    train = options_of("train")
    assert course | later <= train | {"help"}
    assert train - course - later <= keywords(("Trainer", "__init__")) | load
    assert keywords(("Trainer", "__init__")) - {"self", "model"} <= train


def test_isolated_documents_learn_what_each_alone_would(folder):
    """Two documents in one row: the loss is that of the two alone, weighted by their targets."""
    first, second, end = [5, 9, 33, 12], [44, 7, 61], 96
    model = lamina.Model.from_pretrained(folder)
    alone = [model.loss([[*document, end]]) for document in (first, second)]
    trainer = lamina.Trainer(model, isolate_documents=True)
    row = [[*first, end, *second, end]]
    result = trainer.step(row)
    assert result.tokens == 7
    assert result.loss == pytest.approx((4 * alone[0] + 3 * alone[1]) / 7, rel=1e-6)
    assert lamina.Trainer(lamina.Model.from_pretrained(folder)).step(row).tokens == 8


@pytest.mark.parametrize("options", [
    dict(temperature=0.0), dict(seed=3), dict(seed=3, temperature=0.7, top_k=5), dict(seed=4, top_p=0.5, end_id=[44, 55]),
    dict(seed=5, log_probabilities=True), dict(seed=6, max_tokens=3), dict(seed=7, end_id=91)])
def test_generate_gives_what_the_command_line_gives(folder, options):
    arguments = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        values = value if isinstance(value, list) else [value]
        arguments += [flag] if value is True else [part for one in values for part in (flag, one)]
    told = cli.ok_json("generate", folder, "--prompt-ids", "47 30 79", *arguments)
    row = lamina.Model.from_pretrained(folder).generate([[47, 30, 79]], **options)[0]
    assert row.ids == told["ids"] and row.finish_reason == told["finish_reason"] and row.text is None
    assert row.log_probabilities == told.get("log_probabilities", [])


def test_texts_and_stop_texts_as_on_the_command_line(texts):
    model, tokenizer = lamina.Model.from_pretrained(texts), lamina.Tokenizer.from_pretrained(texts)
    whole = model.generate("the", tokenizer=tokenizer, seed=3, max_tokens=30)[0]
    assert whole.finish_reason == "length" and len(whole.text) > 10
    stop = whole.text[5:8]
    told = cli.ok_json("generate", texts, "--prompt", "the", "--seed", "3", "--max-tokens", "30", "--stop", stop)
    pieces = {0: "", 1: ""}
    rows = model.generate(
        ["the", tokenizer.encode("the")], tokenizer=tokenizer, seed=3, max_tokens=30, stop=[stop, "never there"],
        on_text=lambda row, piece: pieces.__setitem__(row, pieces[row] + piece))  # fmt: skip
    assert told["text"] == whole.text[: whole.text.index(stop)]
    for number, row in enumerate(rows):
        assert (row.ids, row.text, row.finish_reason) == (told["ids"], told["text"], "stop")
        assert pieces[number] == row.text
    assert model.generate("the", tokenizer=tokenizer, seed=3, max_tokens=30, stop=stop)[0].text == told["text"]
    with pytest.raises(lamina.Error, match="no tokenizer"):
        model.generate(["the"])
    with pytest.raises(lamina.Error, match="no tokenizer"):
        model.generate([[1]], stop="x")
    with pytest.raises(lamina.Error, match="prompt 1 has the wrong type"):
        model.generate([[1], [1.5]])


def test_i12_i8_i6_in_python(folder, tmp_path):
    model = lamina.Model.from_pretrained(folder)
    with pytest.warns(UserWarning, match="row 1: empty prompt, starts from bos_token_id 96"):
        rows = model.generate([[3, 91], [], [3, 7]], max_tokens=8, temperature=0.0)
    assert [row.ids for row in rows] == [tiny.GREEDY[(3, 91)], [44] * 8, tiny.GREEDY[(3, 7)]]
    without = lamina.Model.from_pretrained(tiny.write(tmp_path, bos_token_id=None))
    with pytest.raises(lamina.Error, match="row 1.*bos_token_id"):
        without.generate([[1], []])
    with pytest.raises(lamina.Error, match="row 1, expected at most 16, got 15 \\+ 2"):
        model.generate([[1], [1] * 15], max_tokens=2)
    assert [len(row.ids) for row in model.generate([[3, 91], [1] * 15], temperature=0.0)] == [14, 1]
    rows = model.generate([[3, 91], [3, 7]], max_tokens=8, temperature=0.0, end_id=55)
    assert [row.ids for row in rows] == [[55], [40, 40, 61, 55]]
    assert model.generate([]) == []


def test_prompts_of_several_kinds(folder):
    model = lamina.Model.from_pretrained(folder)
    for prompts in (np.array([[3, 91]]), np.array([[3, 91]], np.int32), torch.tensor([[3, 91]]), [torch.tensor([3, 91])],
                    [np.array([3, 91], np.int32)], ((3, 91),), iter([[3, 91]])):  # fmt: skip
        assert model.generate(prompts, max_tokens=8, temperature=0.0)[0].ids == tiny.GREEDY[(3, 91)]
    for wrong in (5, [5], [["a"]], [np.array([1.0])], {1: 2}):
        with pytest.raises(lamina.Error, match="prompt.* wrong type"):
            model.generate(wrong)
    with pytest.raises(lamina.Error, match="outside the vocabulary.*1099511627776"):
        model.generate([[2**40]])


def test_a_callback_cannot_call_its_model(folder):
    model = lamina.Model.from_pretrained(folder)
    with pytest.raises(lamina.Error, match="on_id"):
        model.generate([[1]], on_id=lambda row, new: model.loss([[1, 2]]) > 0)
    assert model.loss([[1, 2]]) > 0


@pytest.mark.parametrize("call, words", [
    (dict(batch=0), "--batch"), (dict(seed=-1), "--seed"), (dict(stop=""), "stop"), (dict(end_id=97), "97"),
    (dict(end_id="x"), "end_id")])
def test_wrong_values_of_generate(folder, call, words):
    tokenizer = lamina.Tokenizer.train(["ab"], vocab_size=257) if "stop" in call else None
    config = dict(tiny.CONFIG, vocab_size=257)
    model = lamina.Model.from_config(config) if tokenizer else lamina.Model.from_pretrained(folder)
    with pytest.raises(lamina.Error, match=words):
        model.generate([[1]], tokenizer=tokenizer, **call)


@pytest.mark.parametrize("name, value", [
    ("lr", float("nan")), ("min_lr", 1e39), ("betas", (0.9, 1.0)), ("eps", -1.0), ("weight_decay", -0.1), ("clip", -1.0), ("clip_layer", -1.0),
    ("accumulate", 0), ("schedule", "square"), ("warmup", -1), ("min_lr", -1.0), ("steps", 0), ("seed", -1), ("dropout", 1.5),
    ("max_skips", 0), ("batch", 0), ("seq", 0), ("passes", ["none"])])
def test_wrong_values_of_a_trainer_say_what_the_command_line_says(folder, name, value):
    text = ",".join(map(str, value)) if isinstance(value, tuple) else value[0] if isinstance(value, list) else str(value)
    told = cli.lamina("train", "--data", "none", "--out", "none", f"--{name.replace('_', '-')}={text}")
    with pytest.raises(lamina.Error) as caught:
        lamina.Trainer(lamina.Model.from_pretrained(folder), **{name: value})
    assert caught.value.code == "usage" and told.returncode == 2
    if name != "lr":  # there the command line's own parser is first
        assert told.stderr.decode().splitlines()[0] == f"lamina: error: {caught.value}"


def test_limits_of_a_model(folder):
    for wrong in (dict(threads=0), dict(memory_limit="much")):
        with pytest.raises(lamina.Error, match="--" + next(iter(wrong)).replace("_", "-")):
            lamina.Model.from_pretrained(folder, **wrong)
    with pytest.raises(lamina.Error, match="memory") as caught:
        lamina.Model.from_pretrained(folder, memory_limit="1KB")
    assert caught.value.code == "memory"
    assert lamina.Model.from_pretrained(folder, memory_limit="1GiB", threads=1).loss([[1, 2]]) > 0


def test_configs_by_name_path_and_content(folder, tmp_path):
    config = dict(tiny.CONFIG, n_layer=1)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    one, other = lamina.Model.from_config(config, seed=5), lamina.Model.from_config(str(path), seed=5)
    assert one.loss([[1, 2, 3]]) == other.loss([[1, 2, 3]])
    assert one.config["n_layer"] == 1 and one.config == other.config
    assert lamina.Model.from_config(config, seed=6).loss([[1, 2, 3]]) != one.loss([[1, 2, 3]])
    for wrong, words in ((dict(config, n_head=3), "n_head"), ("gpt9", "gpt9"), (7, "expected a name, a path or a dict")):
        with pytest.raises(lamina.Error, match=words):
            lamina.Model.from_config(wrong)


def test_the_plan_of_a_trainer_is_the_command_lines(folder):
    model = lamina.Model.from_pretrained(folder, threads=2)
    with pytest.raises(lamina.Error, match="no plan yet"):
        lamina.Trainer(model).plan()
    plan = lamina.Trainer(model, batch=2, seq=8, clip=1.0).plan()
    told = cli.ok_json("plan", "--model", folder, "--batch", "2", "--seq", "8", "--clip", "1", "--threads", "2")
    for key in ("arena_bytes", "max_live_bytes", "peak_owner"):
        assert plan[key] == told[key], key
    for name in ("parameters", "gradients", "optimizer", "activations"):
        assert plan["classes"][name] == told["classes"][name], name
    assert plan["total_bytes"] > plan["classes"]["parameters"] > 4 * 8400 - 1


def test_updates_in_the_backward_pass(folder):
    """The same numbers; a step that is not finite is an error, and the model is of no use afterwards."""
    ids = tiny.tokens(36).reshape(4, 9)
    apart, within = (lamina.Model.from_pretrained(folder, threads=2) for _ in range(2))
    trainers = lamina.Trainer(apart, dropout=0.1), lamina.Trainer(within, dropout=0.1, update_in_backward=True)
    assert [trainers[0].step(ids).loss for _ in range(5)] == [trainers[1].step(ids).loss for _ in range(5)]
    for name, values in apart.parameters().items():
        assert values.tobytes() == within.parameters()[name].tobytes(), name
    plans = [trainer.plan() for trainer in trainers]
    assert plans[1]["arena_bytes"] == plans[1]["max_live_bytes"] <= plans[0]["arena_bytes"]
    for wrong in (dict(clip=1.0), dict(clip_layer=1.0), dict(accumulate=2), dict(precision="mixed-fp16")):
        with pytest.raises(lamina.Error, match="--update-in-backward and --" + next(iter(wrong)).replace("_", "-")) as caught:
            lamina.Trainer(within, update_in_backward=True, **wrong)
        assert caught.value.code == "usage"


def test_a_step_in_the_backward_pass_that_is_not_finite(folder, tmp_path):
    model = lamina.Model.from_pretrained(folder)
    trainer = lamina.Trainer(model, lr=1e30, update_in_backward=True)
    with pytest.raises(lamina.Error, match="step [23] is not finite.*--update-in-backward.*loaded again"):
        for _ in range(3):
            trainer.step(tiny.tokens(36).reshape(4, 9))
    for use in (lambda: model.save_pretrained(str(tmp_path / "out")), lambda: model.loss([[1, 2]]), lambda: lamina.Trainer(model)):
        with pytest.raises(lamina.Error, match="weights are of no use.*step [23]"):
            use()
    assert not (tmp_path / "out").exists()


def test_weights_that_are_not_finite_are_not_saved(folder, tmp_path):
    model = lamina.Model.from_pretrained(folder)
    lamina.Trainer(model, lr=3e38).step(tiny.tokens(36).reshape(4, 9))
    with pytest.raises(lamina.Error, match="not saved: .*/out: wte.weight, expected finite numbers, got"):
        model.save_pretrained(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_dropout_acts_in_steps_only(folder):
    ids = tiny.tokens(36).reshape(4, 9)
    plain, dropping = (lamina.Model.from_pretrained(folder) for _ in range(2))
    first = lamina.Trainer(plain, seed=1).step(ids).loss
    assert lamina.Trainer(dropping, seed=1, dropout=0.5).step(ids).loss != first
    fresh = lamina.Model.from_pretrained(folder)
    lamina.Trainer(fresh, dropout=0.5)
    assert fresh.loss(ids) == pytest.approx(first, rel=1e-6)


def test_steps_that_come_apart_end_with_an_error(folder):
    trainer = lamina.Trainer(lamina.Model.from_pretrained(folder), lr=1e30, max_skips=2)
    ids = tiny.tokens(36).reshape(4, 9)
    with pytest.raises(lamina.Error, match="2 steps in a row.*--max-skips 2") as caught:
        for _ in range(50):
            trainer.step(ids)
    assert "--lr" in caught.value.hint


def test_tokenizers_are_learned_as_on_the_command_line(tmp_path):
    (tmp_path / "text.txt").write_text(LETTERS * 30, encoding="utf-8")
    cli.ok("tokenize", "train", "--data", tmp_path / "text.txt", "--vocab-size", "270", "--out", tmp_path / "theirs")
    lamina.Tokenizer.train([LETTERS * 30], vocab_size=270).save_pretrained(str(tmp_path / "ours"))
    for file in ("tokenizer.json", "tokenizer_config.json"):
        assert (tmp_path / "ours" / file).read_bytes() == (tmp_path / "theirs" / file).read_bytes()
    with pytest.raises(lamina.Error, match="256"):
        lamina.Tokenizer.train(["ab"], vocab_size=256)
    with pytest.raises(lamina.Error, match="list of texts"):
        lamina.Tokenizer.train("ab", vocab_size=300)
    with pytest.raises(lamina.Error, match="text 1.*byte 1"):
        lamina.Tokenizer.train(["ab", b"a\xff"], vocab_size=300)
