"""MindSpore's .ckpt, read strictly: MindSpore's own loader believes every length, and what it does with a wrong one ranges from
an undefined tail to a crash. Records lie one behind the other; each is a Value of protocol buffers with the name of a tensor,
its shape, its type and its bytes. What src/io/mindspore_ckpt.cc reads and says, for what a model has."""
import mmap
import zlib

import numpy as np

from .errors import Error, quoted

TYPES = {"Float32": ("F32", "<f4"), "Float16": ("F16", "<f2"), "BFloat16": ("BF16", "<u2"), "Int32": ("I32", "<i4"),
         "Int64": ("I64", "<i8")}
TRAILER, TRAILER_SIZE = b"crc_num", 17


class CkptFile:
    """The same as files.WeightFile, of a .ckpt."""

    def __init__(self, path):
        self.path = path
        try:
            with open(path, "rb") as file:
                self.data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except OSError as error:
            raise Error("io", f"no weights: {path}: expected a MindSpore checkpoint, got {error.strerror}") from None
        except ValueError:
            self.fail("expected records, got 0 bytes")
        self.entries, self.last = {}, None  # name: [type, shape, pieces]
        end = self.check_sum()
        at = 0
        while at < end:
            if self.data[at] != 0x0A:
                self.fail(f"byte {at}: expected a record (0x0a), got 0x{self.data[at]:02x}")
            begin, size = self.bounds(at + 1, end, f"byte {at}")
            self.add(f"byte {at}", begin, begin + size)
            at = begin + size
        for name, (kind, shape, pieces) in self.entries.items():
            self.check_size(name, kind, shape, pieces)
        self.tensors = [(name, TYPES[kind][0] if kind in TYPES else kind, shape) for name, (kind, shape, _) in self.entries.items()]

    def fail(self, text):
        raise Error("invalid", f"bad MindSpore checkpoint: {self.path}: {text}")

    def check_sum(self):
        """Where the records end: before the checksum, if there is one."""
        end = len(self.data) - TRAILER_SIZE
        if end < 0 or self.data[end:end + len(TRAILER)] != TRAILER:
            return len(self.data)
        wanted = int.from_bytes(self.data[end + len(TRAILER):], "big")
        if zlib.crc32(self.data[:end]) != wanted:
            self.fail(f"crc_num, expected {wanted}, got {zlib.crc32(self.data[:end])} of the bytes before it")
        return end

    def number(self, at, end, what):
        """A varint and where it ends."""
        value = 0
        for i in range(min(10, end - at)):
            value |= (self.data[at + i] & 0x7F) << 7 * i
            if self.data[at + i] < 0x80 and value < 1 << 64:
                return value, at + i + 1
        self.fail(f"{what}: expected a number, got other bytes")

    def bounds(self, at, end, what):
        size, begin = self.number(at, end, what)
        if size > end - begin:
            self.fail(f"{what}: truncated: expected {size} bytes, got {end - begin}")
        return begin, size

    def fields(self, at, end, what):
        """(number, value) of each field of a message; bytes are a range."""
        while at < end:
            key, at = self.number(at, end, what)
            kind = key & 7
            if kind == 0:
                value, at = self.number(at, end, what)
            elif kind == 2:
                begin, size = self.bounds(at, end, what)
                at = begin + size
                value = range(begin, at)
            else:
                value, at = None, at + {1: 8, 5: 4}.get(kind, end)
                if at > end:
                    self.fail(f"{what}: expected a whole field, got other bytes")
            yield key >> 3, value

    def text(self, place, what):
        try:
            return bytes(self.data[place.start:place.stop]).decode()
        except (AttributeError, UnicodeDecodeError):
            self.fail(f"{what}: expected a text, got other bytes")

    def add(self, what, begin, end):
        record = dict(self.fields(begin, end, what))
        for number, part in ((1, "a name"), (2, "a tensor")):
            if not isinstance(record.get(number), range):
                self.fail(f"{what}: expected {part}, got none")
        name = self.text(record[1], what)
        what = f"tensor {quoted(name)}"
        kind, shape, content = self.tensor(record[2], what)
        if shape == [0] and len(content):
            shape = []  # a scalar of older writers
        known = self.entries.get(name)
        if known is None:
            self.entries[name] = [kind, shape, [content]]
        elif self.last == name and known[:2] == [kind, shape]:  # above 512 MiB a tensor comes in pieces
            known[2].append(content)
        else:
            self.fail(f"{what}: expected it once, got it again")
        self.last = name

    def tensor(self, place, what):
        kind, shape, content = None, [], range(0)
        for number, value in self.fields(place.start, place.stop, what):
            if number == 1 and isinstance(value, int):
                shape.append(value)
            elif number == 1 and isinstance(value, range):  # packed
                at = value.start
                while at < value.stop:
                    size, at = self.number(at, value.stop, what)
                    shape.append(size)
            elif number == 2:
                kind = self.text(value, what).removeprefix("mindspore.")
                kind = next((known for known in TYPES if known.lower() == kind.lower()), kind)  # writers differ
            elif number == 3 and isinstance(value, range):
                content = value
        if kind is None:
            self.fail(f"{what}: expected a type, got none")
        return kind, shape, content

    def check_size(self, name, kind, shape, pieces):
        if kind not in TYPES:
            return  # whoever wants it refuses it
        expected = int(np.prod(shape, dtype=object)) * np.dtype(TYPES[kind][1]).itemsize
        found = sum(len(piece) for piece in pieces)
        if expected != found:
            self.fail(f"tensor {quoted(name)}: expected {expected} bytes for {TYPES[kind][0]} {shape}, got {found}")

    def words(self, name):
        kind, _, pieces = self.entries[name]
        parts = [np.frombuffer(self.data[piece.start:piece.stop], np.uint8) for piece in pieces]
        return (parts[0] if len(parts) == 1 else np.concatenate(parts)).view(TYPES[kind][1])
