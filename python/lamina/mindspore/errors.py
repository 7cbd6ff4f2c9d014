"""The error of this package. It is no lamina.Error: nothing here loads the compiled extension."""
import numpy as np


class Error(Exception):
    """What the caller or the world got wrong, in one line. `code` is invalid, io or unsupported; `table` has a line for each
    tensor that does not fit."""

    def __init__(self, code, text, table=()):
        super().__init__(text)
        self.code = code
        self.table = list(table)

    def __reduce__(self):  # of a worker's error
        return type(self), (self.code, str(self), self.table)


def shown(value):
    """A value of the caller's as Python writes it, in one line and cut."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:60] + "…"


def array_of(what, values):
    """As numpy's, whose own error for a list of unequal rows has no name in it."""
    try:
        return np.asarray(values)
    except ValueError:
        raise Error("invalid", f"{what}, expected rows of one length, got {shown(values)}") from None


def quoted(text, limit=120):
    """Text from a file in double quotes, fit for one line and cut after `limit` bytes, as the command line writes it."""
    data = text.encode("utf-8", "surrogatepass")
    out, taken = [], 0
    for char in text:
        raw = char.encode("utf-8", "surrogatepass")
        if taken >= limit:
            break
        taken += len(raw)
        plain = 0x20 <= ord(char) != 0x7F and char not in '"\\\x85\u2028\u2029' and not 0xD800 <= ord(char) < 0xE000
        out.append(char if plain else "".join(f"\\x{byte:02x}" for byte in raw))
    return '"' + "".join(out) + ("…" if taken < len(data) else "") + '"'
