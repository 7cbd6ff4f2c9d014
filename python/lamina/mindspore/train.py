"""python -m lamina.mindspore.train: trains a GPT-2 in MindSpore on a token file. Options, defaults, rates, the order of the data and
the keys of metrics.jsonl are those of `lamina train`, for what both have."""
import argparse
import dataclasses
import json
import math
import os
import signal
import sys
import time
from pathlib import Path

import mindspore as ms

from .config import GPT2Config, json_text, read_json
from .errors import Error
from .files import WEIGHTS, Replaced, load_weights, write_json
from .models import GPT2LMHeadModel
from .training import LARGEST, TrainStep
from .windows import Windows

LONGEST = 2**63 - 1
SETTINGS, METRICS = "train.json", "metrics.jsonl"
FREE = ("model", "data", "out", "save_every", "resume", "max_skips")  # what another try with --resume may change


def number(kind, least, most=None, above=False, below=False):
    """A type for argparse: a finite number of this kind from `least` to `most`; above and below: without these two. Whole ones
    have 64 bits, as in `lamina train`."""
    most = most or (LONGEST if kind is int else math.inf)

    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        fits = least <= value <= most and math.isfinite(value) and not (above and value == least) and not (below and value == most)
        if not fits:
            last = f"{most}" if kind is int else f"{most:.10g}"
            end = "" if above else " on" if math.isinf(most) else f" to {'below ' if below else ''}{last}"
            limits = f"{'above' if above else 'from'} {least:g}{end}"
            raise argparse.ArgumentTypeError(f"expected a {'whole ' if kind is int else ''}number {limits}, got {text!r:.60}")
        return value

    return parse


def betas(text):
    values = tuple(number(float, 0.0, 1.0, below=True)(part) for part in text.split(","))
    if len(values) != 2:
        raise argparse.ArgumentTypeError(f"expected two numbers, as in 0.9,0.999, got {text!r:.60}")
    return values


def parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="python -m lamina.mindspore.train", description=__doc__.split(": ", 1)[1], allow_abbrev=False)
    count, from_zero, real = number(int, 1, 1 << 20), number(int, 0), number(float, 0.0, LARGEST)
    add = parser.add_argument
    add("--model", required=True, help="a model folder, whose weights are taken; or a config.json, for new ones")
    add("--data", required=True, help="a token file of llm.c or nanoGPT")
    add("--out", required=True, help="the folder to make; new or empty unless --resume")
    add("--steps", required=True, type=number(int, 1), help="steps to train")
    add("--batch", type=count, default=4, help="rows of one micro-batch (4)")
    add("--seq", type=number(int, 1), help="tokens of a row (the model's n_positions)")
    add("--accumulate", type=count, default=1, help="micro-batches of one step (1)")
    add("--lr", type=real, default=1e-3, help="learning rate (1e-3)")
    add("--schedule", choices=("constant", "linear", "cosine", "wsd"), default="constant", help="how the rate goes to --min-lr")
    add("--warmup", type=from_zero, default=0, help="steps in which the rate rises (0)")
    add("--min-lr", type=real, default=0.0, help="where linear, cosine and wsd end (0)")
    add("--decay-steps", type=number(int, 1), help="last steps, in which wsd falls (a tenth of the run)")
    add("--betas", type=betas, default=(0.9, 0.999), help="decay of AdamW's moments (0.9,0.999)")
    add("--eps", type=number(float, 0.0, above=True), default=1e-8, help="AdamW's epsilon (1e-8)")
    add("--weight-decay", type=real, default=0.0, help="decay of matrices and tables (0)")
    add("--clip", type=number(float, 0.0), default=0.0, help="largest norm of the whole gradient; 0: no clipping")
    add("--dropout", type=number(float, 0.0, 1.0), help="probability of all dropouts (what the config says)")
    add("--precision", default="fp32", help="fp32, mixed, mixed-bf16, mixed-fp16 or a MAP.json (fp32)")
    add("--fused", action="store_true", help="layers by Lamina's kernels; CPU, fp32")
    add("--save-every", type=from_zero, default=0, help="steps between saves; 0: only at the end")
    add("--resume", action="store_true", help="go on from what --out holds; from step 1 where there is nothing")
    add("--seed", type=from_zero, default=0, help="of new weights, order of the data and dropout (0)")
    add("--max-skips", type=number(int, 1), default=5, help="steps in a row that are not finite that end the run (5)")
    return parser.parse_args(arguments)


def learning_rate(options, step):
    """src/train/schedule.h."""
    lr, steps, warmup = options.lr, options.steps, options.warmup
    if step <= warmup:
        return lr * step / (warmup + 1.0)
    to_go, span = max(steps - step + 1, 0), lr - options.min_lr
    if options.schedule == "constant":
        return lr
    if options.schedule == "wsd":
        decay = options.decay_steps or max(steps // 10, 1)
        return lr if to_go > decay else options.min_lr + span * to_go / decay
    left = to_go / (steps - warmup)
    return options.min_lr + span * (left if options.schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * (1.0 - left))))


class Stop:
    """Within it the first SIGINT, SIGTERM or SIGHUP is noted as `signal` and another one ends the process. One request may come as two
    signals: timeout(1) sends its own to the program and then to the group that it is in. MindSpore turns a SIGINT into a SIGTERM."""

    def __enter__(self):
        self.signal, self.when = 0, 0.0
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        self.before = {number: signal.signal(number, self.note) for number in numbers if signal.getsignal(number) != signal.SIG_IGN}
        return self

    def note(self, number, frame):
        if self.signal and not (number == self.signal and time.monotonic() - self.when < 0.5):
            os._exit(128 + number)
        self.signal, self.when = number, time.monotonic()

    def __exit__(self, *exception):
        for number, handler in self.before.items():
            signal.signal(number, handler)


class Run:
    def __init__(self, options):
        self.options, self.out = options, Path(options.out)
        self.resumed = self.look_at_folder()
        config = GPT2Config.from_pretrained(self.out if self.resumed else options.model)
        if options.dropout is not None:
            config = dataclasses.replace(config, **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), options.dropout))
        seq = options.seq or config.n_positions
        if seq > config.n_positions:
            raise Error("invalid", "rows too long for the model: --seq, expected at most n_positions "
                                   f"{config.n_positions}, got {seq}")
        if options.decay_steps and options.decay_steps > options.steps - options.warmup:
            raise Error("invalid", f"schedule does not fit: --warmup {options.warmup} and --decay-steps {options.decay_steps}, "
                                   f"expected at most {options.steps} together")
        self.windows = Windows(options.data, config.vocab_size, options.batch * options.accumulate, seq, options.seed)
        self.settings = self.find_settings(seq)
        ms.set_context(mode=ms.GRAPH_MODE)
        ms.set_seed(options.seed % 2**32)
        self.step = self.start(config)

    def look_at_folder(self):
        """Whether it holds a state to go on from."""
        if not self.out.exists() or (self.out.is_dir() and not any(self.out.iterdir())):
            return False
        if not self.options.resume:
            raise Error("invalid", f"output exists: {self.out}: expected a new or empty folder, or --resume")
        if not (self.out / SETTINGS).exists():
            raise Error("invalid", f"not a run of this program: {self.out}: expected {SETTINGS} in it, got none")
        return (self.out / WEIGHTS).exists()

    def find_settings(self, seq):
        """What decides the numbers of a run; of one that goes on, what it began with."""
        settings = {key: value for key, value in vars(self.options).items() if key not in FREE}
        settings.update(seq=seq, betas=list(self.options.betas), ids=len(self.windows.ids), data=self.windows.sum())
        settings["steps"] = None if settings["schedule"] == "constant" else settings["steps"]
        stored = read_json(self.out / SETTINGS) if self.resumed else settings
        if not isinstance(stored, dict):
            raise Error("invalid", f"not a run of this program: {self.out / SETTINGS}: expected an object, got {json_text(stored)}")
        for key, value in settings.items():
            if stored.get(key) != value:
                raise Error("invalid", f"settings changed: {self.out}: {key.replace('_', '-')}, expected {stored.get(key)}, got {value}")
        return settings

    def start(self, config):
        options = self.options
        model = GPT2LMHeadModel(config, options.precision, options.seed, options.fused)
        if not self.resumed and Path(options.model).suffix != ".json":
            model.report = load_weights(model, options.model)
        for warning in config.warnings + model.report.warnings:
            print(f"warning: {warning}", file=sys.stderr)
        step = TrainStep(model, lambda number: learning_rate(options, number), options.betas, options.eps, options.weight_decay,
                         options.clip, options.max_skips, options.accumulate)
        if self.resumed:
            step.load(self.out)
        return step

    def run(self):
        """The exit code."""
        steps, saved = self.options.steps, self.step.steps
        self.out.mkdir(parents=True, exist_ok=True)
        write_json(self.out / SETTINGS, self.settings)
        with Stop() as stop, self.metrics() as metrics:
            while self.step.steps < steps and not stop.signal:
                line = json.dumps(self.take_step())
                metrics.write(line + "\n")
                metrics.flush()
                print(line, flush=True)
                if self.options.save_every and self.step.steps % self.options.save_every == 0:
                    saved = self.save(metrics)
            if saved != self.step.steps:
                self.save(metrics)
        more = "; --resume goes on with it" if self.step.steps < steps else ""
        print(f"{self.step.steps} of {steps} steps: {self.out}{more}", file=sys.stderr)
        return 128 + stop.signal if stop.signal else 0

    def save(self, metrics):
        os.fsync(metrics.fileno())
        self.step.save(self.out)
        return self.step.steps

    def metrics(self):
        """The file of lines, without those after the state that the run goes on from."""
        path, kept = self.out / METRICS, []
        if path.exists():
            for line in path.read_bytes().splitlines(keepends=True)[:self.step.steps]:
                if not line.endswith(b"\n"):  # a kill cut it
                    break
                kept.append(line)
        with Replaced(path) as file:
            file.write(b"".join(kept))
        return open(path, "a")

    def take_step(self):
        ids, targets = self.windows.step(self.step.steps + 1)
        begin = time.perf_counter()
        result = self.step(ids, targets)
        seconds = time.perf_counter() - begin
        line = {"step": result.step, "tokens": result.tokens, "loss": finite(result.loss if result.tokens else math.nan),
                "lr": result.lr, "grad_norm": finite(result.grad_norm), "loss_scale": result.loss_scale, "step_ms": 1e3 * seconds,
                "tokens_per_s": result.tokens / seconds}
        return line if result.finite else {**line, "skipped": True}


def finite(value):
    return value if math.isfinite(value) else None


def main(arguments=None):
    try:
        return Run(parse_arguments(arguments)).run()
    except Error as error:
        print(f"lamina.mindspore.train: error: {error}", file=sys.stderr)
    except OSError as error:
        print(f"lamina.mindspore.train: error: {error.filename}: {error.strerror}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
