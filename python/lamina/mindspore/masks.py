"""Attention masks, once for the whole model: what each query sees, from any form that people have.

    (B, T), (B, 1, 1, T)       which tokens are no padding
    (B, T, T), (B, 1, T, T)    what each query sees of the keys; causality is always added. 1 in place of B: all rows
    bool, integers             1 visible, 0 masked
    floats                     0 visible, -9984 and less masked; or 1 and 0 as above, if there is a 1

Any other value has no meaning: `check_mask` refuses it where the mask is numpy's, and in a graph nothing but what is surely visible
is let through.

A place that does not see itself is padding: it sees nothing, and its attention gives exactly 0, forward and backward. That is
Lamina's own definition (src/train/attention_mask.h), but that a hole in the keys is masked here and an error there.
"""
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore import dtype as mstype

from .errors import Error, array_of

MASKED = -9984.0  # the -10000 of many programs, in bfloat16
LOWEST = float(np.finfo(np.float32).min)  # scores are fp32 in every precision, so this is finite, and exp() of it is 0
FLOATS = (mstype.float16, mstype.bfloat16, mstype.float32, mstype.float64)


def visible_of(mask):
    """True where a mask of any type lets through."""
    if mask.dtype == mstype.bool_:
        return mask
    if mask.dtype not in FLOATS:
        return mask == 1
    mask = mask.astype(mstype.float32)
    return ops.logical_or(mask == 1.0, ops.logical_and(mask == 0.0, ops.logical_not((mask == 1.0).any())))


def check_mask(mask, rows, width):
    """Refuses a mask of numpy's for `rows` rows of `width` places by its shape or the place of its first bad value."""
    mask = array_of("bad batch: attention_mask", mask)
    shape, rank = mask.shape, mask.ndim
    deep = rank == 3 or (rank == 4 and shape[1] == 1)
    if rank < 2 or shape[-1] != width or shape[0] not in (1, rows) or not (rank == 2 or (deep and shape[-2] in (1, width))):
        raise Error("invalid", f"attention mask has the wrong shape: expected ({rows}, {width}), ({rows}, 1, 1, {width}), "
                               f"({rows}, {width}, {width}) or ({rows}, 1, {width}, {width}), got {shape}")
    additive = mask.dtype.kind not in "bui" and not (mask == 1).any()
    good = (mask == 0) | (mask <= MASKED if additive else mask == 1)
    if not good.all():
        place = tuple(int(axis[0]) for axis in np.nonzero(~good))
        expected = "0 (visible), or -10000 and less (masked)" if additive else "0 or 1"
        raise Error("invalid", f"attention mask has a value without meaning: place {place}, expected {expected}, got {mask[place]}")
    if rank == 2 and rows == width > 1 and shape[0] == rows and not additive and (mask == np.tril(np.ones(shape))).all():
        raise Error("invalid", f"attention mask can be read in two ways: shape {shape}, expected ({rows}, 1, 1, {rows}) for the "
                               f"tokens of each row or (1, {rows}, {rows}) for what each query sees, got a triangle")


def check_runs(mask):
    """Refuses a mask that check_mask lets pass where a query sees no single run of keys that ends at itself: fused layers take
    each query's first key."""
    mask = np.asarray(mask)
    width = mask.shape[-1]
    visible = mask == 0 if mask.dtype.kind not in "bui" and not (mask == 1).any() else mask == 1
    visible = visible.reshape((len(mask), -1, width)) & np.tril(np.ones((width, width), bool))
    visible &= np.diagonal(visible, axis1=1, axis2=2)[..., None]
    place = np.arange(width)
    first = np.where(visible, place, width).min(axis=2, keepdims=True)
    holes = ~visible & (place >= first) & (place <= place[:, None])
    if holes.any():
        row, query, key = (int(axis[0]) for axis in np.nonzero(holes))
        raise Error("unsupported", f"attention mask has a hole, which fused layers do not take: row {row}, query {query}, key "
                                   f"{key}, expected visible, as a key before it is, got masked; GPT2Layer takes any mask")


class AttentionMask(nn.Cell):
    """For T places: the bias of scores (B, 1, T, T), what is hidden (True is hidden: the fused operators' convention), which
    queries see anything (B, 1, T, 1), and the position of each place, counted from the beginning of its text. Without a mask:
    causality, one row for the whole batch, and every query sees itself."""

    def __init__(self, n_positions):
        super().__init__()
        self.places = Tensor(np.arange(n_positions, dtype=np.int32))
        self.lowest = Tensor(LOWEST, mstype.float32)
        self.zero = Tensor(0.0, mstype.float32)

    def construct(self, seq, mask=None):
        places = self.places[:seq]
        queries, keys = places.reshape((1, seq, 1)), places.reshape((1, 1, seq))
        causal = queries >= keys
        rows = None
        visible = causal
        if mask is not None:
            square = mask.reshape((mask.shape[0], 1, seq)) if mask.ndim == 2 else mask
            square = square.reshape((mask.shape[0], mask.shape[2], seq)) if mask.ndim == 4 else square
            visible = ops.logical_and(visible_of(square), causal)
            sees_itself = ops.logical_and(visible, queries == keys).any(axis=2, keep_dims=True)
            visible = ops.logical_and(visible, sees_itself)
            rows = sees_itself.astype(mstype.float32).expand_dims(1)
            places = self.positions(visible, causal, places, seq)
        visible = visible.expand_dims(1)
        return ops.where(visible, self.zero, self.lowest), ops.logical_not(visible), rows, places

    def positions(self, visible, causal, places, seq):
        """A place that sees itself alone begins a text."""
        begins = visible.astype(mstype.float32).sum(axis=2) == 1.0
        begins = begins.astype(mstype.float32) * places.astype(mstype.float32)
        latest = (causal.astype(mstype.float32) * begins.expand_dims(1)).max(axis=2)
        return places - latest.astype(mstype.int32)
