"""What a run writes about its steps, read back by a parser of its own: the event file of TensorBoard, metrics.jsonl."""
import json
import struct

import pytest

from cli_support import lamina, ok, write_config, write_ids

TAGS = ("loss", "lr", "grad_norm", "loss_scale", "step_ms", "tokens_per_s", "peak_fraction")


def crc32c(data):
    """Bit by bit, as the definition has it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if not data[at - 1] & 128:
            return value, at


def fields(data):
    """(number, value) of each field of a message of protocol buffers."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(key & 7)
            if size is None:
                assert key & 7 == 2
                size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        yield key >> 3, value
    assert at == len(data)


def events(path):
    """[{time, step, version, values, start}] with every checksum compared."""
    data, at, out = path.read_bytes(), 0, []
    while at < len(data):
        (size,) = struct.unpack_from("<Q", data, at)
        assert struct.unpack_from("<I", data, at + 8)[0] == masked(data[at:at + 8])
        body = data[at + 12:at + 12 + size]
        assert struct.unpack_from("<I", data, at + 12 + size)[0] == masked(body)
        at += size + 16
        event = dict(fields(body))
        values = {}
        for _, value in fields(event.get(5, b"")):
            scalar = dict(fields(value))
            values[scalar[1].decode()] = struct.unpack("<f", scalar[2])[0]
        out.append({"time": struct.unpack("<d", event[1])[0], "step": event[2], "version": event.get(3), "values": values,
                    "start": dict(fields(event.get(7, b""))).get(1) == 1})
    return out


def arguments(folder, *more):
    write_config(folder / "config.json")
    write_ids(folder / "ids.bin", 600)
    return ["train", "--model", folder / "config.json", "--data", folder / "ids.bin", "--valid-fraction", "0.2", "--batch", "2",
            "--out", folder / "run", "--eval-every", "2", *more]


def test_the_checksum_is_crc32c():
    assert crc32c(b"123456789") == 0xE3069283


def test_events_say_what_the_metrics_say(tmp_path):
    ok(*arguments(tmp_path, "--steps", "5", "--schedule", "wsd", "--decay-steps", "2"))
    (file,) = (tmp_path / "run").glob("events.out.tfevents.*")
    first, *rest = events(file)
    assert first["version"] == b"brain.Event:2" and first["step"] == 0
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [event["step"] for event in rest] == [line["step"] for line in lines] == [1, 2, 3, 4, 5]
    for event, line in zip(rest, lines):
        expected = {tag: line[tag] for tag in (*TAGS, "valid_loss") if tag in line}
        assert event["values"] == pytest.approx(expected, rel=1e-6)
    assert [line["step"] for line in lines if "valid_loss" in line] == [2, 4, 5]
    times = [event["time"] for event in (first, *rest)]
    assert times == sorted(times)
    assert [line["lr"] for line in lines] == [1e-3, 1e-3, 1e-3, 1e-3, 5e-4]


def test_a_resumed_run_takes_later_points_back_whatever_the_clock_says(tmp_path):
    args = arguments(tmp_path, "--save-every", "3")
    ok(*args, "--steps", "4")
    run = tmp_path / "run"
    (old,) = run.glob("events.out.tfevents.*")
    # As if the clock had gone back by decades since: the new file still sorts, and is read, behind the old one.
    late = old.rename(run / "events.out.tfevents.9000000000.host")
    (run / "metrics.jsonl").write_text((run / "metrics.jsonl").read_text() + '{"step": 5, "loss": 1}\n{"step": 6, "lo')
    ok(*args, "--steps", "6", "--resume")
    new = max(run.glob("events.out.tfevents.*"), key=lambda path: path.name)
    assert new != late and new.name > late.name
    version, start, *rest = events(new)
    assert version["version"] and start["start"] and start["step"] == 5
    assert [event["step"] for event in rest] == [5, 6] and rest[0]["time"] >= 9000000000
    assert [json.loads(line)["step"] for line in (run / "metrics.jsonl").read_text().splitlines()] == [1, 2, 3, 4, 5, 6]


def test_a_skipped_step_names_its_tensor(tmp_path):
    """A rate that breaks the weights: from then on the loss itself is not finite."""
    args = arguments(tmp_path, "--steps", "20", "--lr", "1e30", "--max-skips", "2")
    done = lamina(*args)
    said = done.stderr.decode()
    assert done.returncode == 1 and "2 steps in a row" in said
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    skipped = [line for line in lines if line.get("skipped")]
    assert len(skipped) == 2
    for line in skipped:
        assert line["not_finite"] == "loss" or line["not_finite"].endswith((".weight", ".bias", "grad_norm"))
        named = "the loss" if line["not_finite"] == "loss" else line["not_finite"]
        assert f"step {line['step']} skipped: " in said and named in said
