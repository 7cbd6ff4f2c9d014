"""Attention masks of HuggingFace, PyTorch and MindSpore: each form gives the same bits, and these are HuggingFace's
numbers, as close to its double result as it is itself in fp32."""
import array

import numpy as np
import pytest
import tiny
import torch
from transformers import GPT2LMHeadModel

import lamina

UNIT = 2.0**-24  # of fp32
ROWS, WIDTH = 4, 9
LENGTHS = [9, 5, 1, 7]
LOWEST = {dtype: torch.finfo(dtype).min for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)}


@pytest.fixture(scope="module")
def twins(folder):
    """The same model in HuggingFace: double, and fp32."""
    load = lambda: GPT2LMHeadModel.from_pretrained(folder, attn_implementation="eager").eval()
    return load().double(), load()


def padded(side, pad=96):
    """(ids, tokens): which places hold one."""
    ids, tokens = np.full((ROWS, WIDTH), pad, np.int32), np.zeros((ROWS, WIDTH), bool)
    for row, length in enumerate(LENGTHS):
        place = slice(0, length) if side == "right" else slice(WIDTH - length, WIDTH)
        ids[row, place], tokens[row, place] = tiny.tokens(100)[20 * row :][:length], True
    return ids, tokens


def positions_of(tokens):
    """As HuggingFace's generate() counts them."""
    return np.where(tokens, tokens.cumsum(1) - 1, 0)


def additive(visible, masked, dtype=torch.float32):
    return torch.where(torch.as_tensor(visible), torch.zeros((), dtype=dtype), torch.tensor(masked, dtype=dtype))


def formats(tokens):
    """By name: every way to say it."""
    width = tokens.shape[1]
    keys = torch.as_tensor(tokens)[:, None, None, :]
    square = keys.expand(-1, 1, width, width)
    causal = square & torch.ones(width, width, dtype=torch.bool).tril()
    yield "int64", tokens.astype(np.int64)
    yield "int32", tokens.astype(np.int32)
    yield "uint8", tokens.astype(np.uint8)
    yield "bool", tokens
    yield "torch bool", torch.as_tensor(tokens)
    yield "torch int64", torch.as_tensor(tokens).long()
    yield "list", tokens.astype(int).tolist()
    yield "list of bool", tokens.tolist()
    yield "float of 0 and 1", tokens.astype(np.float32)
    yield "not contiguous", np.asfortranarray(tokens)
    for name, visible in (("keys", keys), ("square", square), ("causal", causal)):
        yield f"{name}, bool", visible
        yield f"{name}, int", visible.int()
        for masked in (-10000.0, -1e9, -np.inf):
            yield f"{name}, {masked}", additive(visible, masked)
        for dtype, lowest in LOWEST.items():
            yield f"{name}, {dtype}", additive(visible, lowest, dtype)
        yield f"{name}, -10000 in bfloat16", additive(visible, -10000.0, torch.bfloat16)
    yield "(B, 1, T)", keys[:, 0]
    yield "(B, T, T)", causal[:, 0].float()
    yield "added twice", additive(causal, LOWEST[torch.float32]) + additive(keys, LOWEST[torch.float32])


def theirs(model, ids, mask, positions):
    with torch.no_grad():
        return model(
            input_ids=torch.as_tensor(ids, dtype=torch.long),
            attention_mask=torch.as_tensor(mask),
            position_ids=torch.as_tensor(positions),
            use_cache=False,
        ).logits.double().numpy()


def check(ours, twins, ids, mask, positions, places):
    """RMS over the places: at most twice the distance of PyTorch in fp32, or a floor of some units."""
    double, single = twins
    truth = theirs(double, ids, mask, positions)[places]
    distance = lambda values: np.sqrt(np.square(values - truth).mean())
    allowed = max(2 * distance(theirs(single, ids, mask, positions)[places]), 4 * UNIT * distance(0))
    assert distance(ours[places]) <= allowed


@pytest.mark.parametrize("side", ["right", "left"])
def test_every_form_is_huggingfaces_padding(model, twins, side):
    ids, tokens = padded(side)
    first = model.forward(ids, attention_mask=tokens.astype(np.int64)).copy()
    check(first, twins, ids, tokens.astype(np.int64), positions_of(tokens), tokens)
    assert np.isfinite(first).all()
    for name, mask in formats(tokens):
        assert np.array_equal(model.forward(ids, attention_mask=mask), first), name
        assert np.array_equal(model.forward(ids, mask, positions_of(tokens)), first), name


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_padded_row_is_the_row_alone(model, side):
    ids, tokens = padded(side)
    logits = model.forward(ids, attention_mask=tokens).copy()
    for row, length in enumerate(LENGTHS):
        alone = model.forward(ids[row : row + 1, tokens[row]])
        assert np.abs(logits[row, tokens[row]] - alone[0]).max() <= 1e-5
    other, _ = padded(side, pad=3)
    assert np.array_equal(model.forward(other, attention_mask=tokens)[tokens], logits[tokens])


def test_position_ids_replace_what_the_mask_says(model, twins):
    """GPT2LMHeadModel.forward() without position_ids counts padding on the left too."""
    ids, tokens = padded("left")
    plain = np.arange(WIDTH)[None]
    ours = model.forward(ids, attention_mask=tokens, position_ids=plain).copy()
    check(ours, twins, ids, tokens.astype(np.int64), plain, tokens)
    for other in (np.repeat(plain, ROWS, 0).astype(np.int32), torch.arange(WIDTH)[None], plain.tolist()):
        assert np.array_equal(model.forward(ids, tokens, other), ours)
    without = model.forward(ids, tokens)[tokens]
    assert np.abs(without - ours[tokens]).max() > 1e-3
    full = model.forward(ids).copy()
    assert np.array_equal(model.forward(ids, position_ids=plain), full)
    backward = plain[:, ::-1].copy()
    check(model.forward(ids, position_ids=backward), twins, ids, np.ones((ROWS, WIDTH), int), backward, tokens | True)


def test_texts_in_one_row(model, twins):
    """A block for each text, as for HuggingFace in four dimensions."""
    ids = tiny.tokens(WIDTH)[None]
    text = np.array([0, 0, 0, 0, 1, 1, 2, 2, 2])
    positions = np.array([[0, 1, 2, 3, 0, 1, 0, 1, 2]])
    blocks = text[:, None] == text[None]
    first = model.forward(ids, attention_mask=blocks).copy()
    mask = additive(np.tril(blocks)[None, None], LOWEST[torch.float32])
    check(first, twins, ids, mask, positions, np.ones((1, WIDTH), bool))
    for other in (np.tril(blocks), blocks[None], blocks[None, None].astype(np.float32), mask):
        assert np.array_equal(model.forward(ids, other), first)
    # Nothing is predicted across a border where targets are the ids one place on.
    cut = np.where(text[1:] == text[:-1], ids[:, 1:], -1).astype(np.int32)
    inner = blocks[:-1, :-1].copy()
    assert model.loss(ids, attention_mask=blocks) == model.loss(ids[:, :-1].copy(), cut, attention_mask=inner)


def test_a_sliding_window(model, twins):
    ids = tiny.tokens(WIDTH)[None]
    place = np.arange(WIDTH)
    window = (place[:, None] - place[None] < 3) & (place[:, None] >= place[None])
    mask = additive(window[None, None], LOWEST[torch.float32])
    check(model.forward(ids, window), twins, ids, mask, place[None], np.ones((1, WIDTH), bool))


@pytest.mark.parametrize("side", ["right", "left"])
def test_loss_gradients_and_steps(folder, model, twins, side):
    ids, tokens = padded(side)
    double, single = twins
    targets = np.where(tokens[:, 1:] & tokens[:, :-1], ids[:, 1:], -100)

    def their_loss(twin):
        logits = twin(
            input_ids=torch.as_tensor(ids, dtype=torch.long),
            attention_mask=torch.as_tensor(tokens.astype(np.int64)),
            position_ids=torch.as_tensor(positions_of(tokens)),
            use_cache=False,
        ).logits[:, :-1]
        wanted = torch.as_tensor(targets, dtype=torch.long)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())

    double.zero_grad()
    truth = their_loss(double)
    truth.backward()
    allowed = max(2 * abs(their_loss(single).item() - truth.item()), 16 * UNIT * truth.item())
    loss = model.loss(ids, attention_mask=tokens)
    assert abs(loss - truth.item()) <= allowed
    gradients = model.gradients()
    for name, p in double.named_parameters():
        values = p.grad.numpy()
        assert np.abs(gradients[name] - values).max() <= 1e-5 * np.abs(values).max(), name
    results = {}
    for name, mask in formats(tokens):
        assert model.loss(ids, attention_mask=mask) == loss, name
        for accumulate in (1, 2):
            other = lamina.Model.from_pretrained(folder)
            trainer = lamina.Trainer(other, accumulate=accumulate)
            result = trainer.step(ids, attention_mask=mask)
            assert result.finite and result.tokens == sum(LENGTHS) - ROWS
            assert abs(result.loss - truth.item()) <= allowed
            weights = b"".join(values.tobytes() for values in other.parameters().values())
            results.setdefault(accumulate, set()).add((result.loss, result.grad_norm, weights))
    assert all(len(seen) == 1 for seen in results.values())


def test_padding_predicts_nothing(model):
    ids, tokens = padded("right")
    targets = np.roll(ids, -1, 1)
    hidden = np.where(tokens, targets, -100).astype(np.int32)
    assert model.loss(ids, targets, tokens) == model.loss(ids, hidden, tokens)
    assert model.loss(ids, targets, tokens) != model.loss(ids, targets)


def test_rows_that_see_nothing(model):
    ids = tiny.tokens(16).reshape(2, 8)
    mask = np.ones((2, 8), np.int32)
    mask[1] = 0
    assert np.isfinite(model.forward(ids, mask)).all()
    alone = model.loss(ids[:1].copy())
    assert model.loss(ids, attention_mask=mask) == alone
    assert all(np.isfinite(values).all() for values in model.gradients().values())
    result = lamina.Trainer(model).step(ids, attention_mask=mask)
    assert result.finite and result.tokens == 7
    assert np.isfinite(model.forward(ids, 0 * mask)).all()


def test_isolated_documents_and_a_mask(folder):
    """Padding with the id that ends a document."""
    ids = np.array([[96, 96, 3, 91, 96, 47, 30, 79, 88, 91], [5, 17, 80, 96, 3, 41, 0, 95, 62, 23]], np.int32)
    mask = (np.arange(10) >= np.array([[2], [0]])).astype(int)
    rows = [[3, 91, 96], [47, 30, 79, 88, 91], [5, 17, 80, 96], [3, 41, 0, 95, 62, 23]]
    model = lamina.Model.from_pretrained(folder)
    alone = [model.loss([row]) * (len(row) - 1) for row in rows]
    result = lamina.Trainer(model, isolate_documents=True).step(ids, attention_mask=mask)
    assert result.tokens == 14
    assert result.loss == pytest.approx(sum(alone) / 14, rel=1e-6)


def test_arrays_without_numpy(model):
    ids, tokens = padded("left")
    wanted = model.forward(ids, tokens).copy()
    for code in "Bif":
        values = memoryview(array.array(code, tokens.flatten().astype(int).tolist()))
        values = values.cast("B").cast(code, [ROWS, WIDTH])
        assert np.array_equal(model.forward(ids, values), wanted)


def ones(*shape, **places):
    out = np.ones(shape, np.float32)
    for place, value in places.items():
        out[tuple(int(digit) for digit in place[2:])] = value
    return out


@pytest.mark.parametrize(
    "mask, text",
    [
        (ones(2, 4, at02=0), r"hole: row 0, query 3, key 2, expected all keys from 0 to 3"),
        (ones(2, 4, at13=2), r"row 1, key 3, expected 0 or 1, got 2"),
        (ones(2, 4, at13=2).astype(int), r"row 1, key 3, expected 0 or 1, got 2"),
        (ones(2, 4) * 0 + ones(2, 4, at11=-2.5) - 1, r"row 1, key 1, expected 0 .*-10000.*got -3.5"),
        (ones(2, 4, at10=np.nan), r"row 1, key 0, .*got nan"),
        (ones(4, 4, at31=0), r"hole: row 0, query 3, key 1"),
        (ones(2, 3), r"expected \(2, 4\), .*got \(2, 3\)"),
        (ones(2, 2, 4, 4), r"got \(2, 2, 4, 4\)"),
        (ones(4), r"got \(4\)"),
        (ones(2, 4).astype(complex), "wrong type"),
        ([["x"]], "wrong type"),
        ("mask", "wrong type"),
        ([[1, 1, 1, 1], [1]], "row 1 of the attention mask, expected 4, got 1"),
    ],
)
def test_masks_that_mean_nothing(model, mask, text):
    ids = np.array([[5, 17, 80, 3], [41, 0, 95, 62]], np.int32)
    for call in (model.forward, model.loss, lamina.Trainer(model).step):
        with pytest.raises(lamina.Error, match=text) as caught:
            call(ids, attention_mask=mask)
        assert caught.value.code == "invalid" and "\n" not in str(caught.value)
    assert np.isfinite(model.forward(ids)).all()


def test_a_square_of_rows_is_ambiguous(model):
    ids = np.array([[5, 17, 80]] * 3, np.int32)
    with pytest.raises(lamina.Error, match=r"two ways.*\(1, 3, 3\)"):
        model.forward(ids, np.tri(3))
    assert np.array_equal(model.forward(ids, np.tri(3)[None]).copy(), model.forward(ids))


@pytest.mark.parametrize(
    "positions, text",
    [
        ([[0, 1, 2, 16]], "row 0, place 3, expected 0 to 15, got 16"),
        ([[0, 1, 2, 3], [0, -1, 2, 3]], "row 1, place 1, expected 0 to 15, got -1"),
        ([[0, 1, 2]], r"position_ids.*\(2, 4\), got \(1, 3\)"),
        (np.zeros((1, 4), np.float32), "position_ids have the wrong type"),
        ([[0, 1, 2, 2**40]], "outside the context: row 0, position 3"),
    ],
)
def test_positions_that_mean_nothing(model, positions, text):
    with pytest.raises(lamina.Error, match=text):
        model.forward([[5, 17, 80, 3], [41, 0, 95, 62]], position_ids=positions)
