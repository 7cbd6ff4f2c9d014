"""The rows of each step from a file of ids, in the order of `lamina train`: what src/train/batches.cc and permutation.h do, for
one source. Windows lie end to end; an epoch is a permutation of them by seed and epoch, and the rows of a step are a function of
seed and step alone."""
import zlib
from pathlib import Path

import numpy as np

from .errors import Error

WORD = (1 << 64) - 1
HEADERS = {20240520: (1, "<u2"), 20240801: (7, "<u4")}  # llm.c's magic: version, type
HEADER_BYTES = 1024
IGNORED = -100


def mix64(z):
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & WORD
    return z ^ (z >> 31)


def hash_combine(key, word):
    return mix64(key + 0x9E3779B97F4A7C15 * (word + 1) & WORD)


def permutation(n, key, i):
    """The place of thing i of n: a Feistel network over some even number of bits, until what comes out is below n."""
    half = max(4, ((n - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = i >> half, i & mask
        for turn in range(8):
            left, right = right, left ^ (hash_combine(hash_combine(key, turn), right) & mask)
        i = left << half | right
        if i < n:
            return i


def open_ids(path, vocab_size):
    """All ids of a token file of llm.c (with a header) or nanoGPT (u16, named .bin), checked."""
    path = Path(path)
    try:
        data = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)
    except OSError as error:
        raise Error("io", f"no data: {path}: expected a token file, got {error.strerror}") from None
    words = data[:len(data) // 4 * 4][:12].view("<i4")
    if len(words) and int(words[0]) in HEADERS:
        version, kind = HEADERS[int(words[0])]
        if len(data) < HEADER_BYTES or words[1] != version:
            got = f"version {words[1]}" if len(data) >= HEADER_BYTES else f"{len(data)} bytes"
            raise Error("invalid", f"bad token file: {path}: header with magic {words[0]}, expected {HEADER_BYTES} bytes and version "
                                   f"{version}, got {got}")
        size, count = np.dtype(kind).itemsize, int(words[2])
        if len(data) - HEADER_BYTES != count * size:
            raise Error("invalid", f"bad token file: {path}: its header says {count} ids of {size} bytes, expected {count * size} "
                                   f"bytes after it, got {len(data) - HEADER_BYTES}")
        ids = data[HEADER_BYTES:].view(kind)
    elif path.suffix != ".bin":
        raise Error("invalid", f"not a token file: {path}: expected a header of llm.c, or a file of u16 ids named .bin, got neither "
                               f"(lamina tokenize encode --file {path.name} --out data.bin makes ids of a text)")
    elif len(data) % 2:
        raise Error("invalid", f"bad token file: {path}: size, expected a multiple of 2 bytes (u16), got {len(data)}")
    else:
        ids = data.view("<u2")
    for begin in range(0, len(ids), 1 << 20):
        bad = np.nonzero(ids[begin:begin + (1 << 20)] >= vocab_size)[0]
        if len(bad):
            place = begin + int(bad[0])
            raise Error("invalid", f"id outside the vocabulary: {path}: position {place}: expected an id below {vocab_size}, got "
                                   f"{ids[place]}")
    return ids


class Windows:
    """rows(step): ids and targets (rows, seq), int32. What an epoch does not fill is padding: targets that do not count."""

    def __init__(self, path, vocab_size, rows, seq, seed):
        self.ids, self.rows, self.seq, self.seed = open_ids(path, vocab_size), rows, seq, seed
        if len(self.ids) < seq + 1:
            raise Error("invalid", f"not enough ids: {path}, expected at least {seq + 1} (a window and its last target), got "
                                   f"{len(self.ids)}")
        self.count = -(-(len(self.ids) - 1) // seq)
        self.own_rows = min(rows, self.count)  # a step never holds more
        self.steps_per_epoch = -(-self.count // self.own_rows)

    def sum(self):
        return zlib.crc32(self.ids)

    def step(self, number):
        ids, targets = np.zeros((self.rows, self.seq), np.int32), np.full((self.rows, self.seq), IGNORED, np.int32)
        epoch, place = divmod(number - 1, self.steps_per_epoch)
        first = place * self.own_rows
        key = hash_combine(mix64(self.seed), epoch)
        for row in range(min(self.own_rows, self.count - first)):
            begin = permutation(self.count, key, first + row) * self.seq
            own = self.ids[begin:begin + self.seq + 1].astype(np.int32)
            ids[row, :len(own) - 1], targets[row, :len(own) - 1] = own[:-1], own[1:]
        return ids, targets
