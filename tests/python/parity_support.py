"""One training run on both sides: PyTorch with HuggingFace's GPT-2, and the tool tests/tools/parity.cc. Weights and batches
are made from a seed, odd on purpose: biases and LayerNorm random, rows of different lengths, padding on both sides,
targets that are ignored."""
import contextlib
import math
import os
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

IGNORED = -100
PREFIX = "transformer."


@dataclass
class Run:
    """Everything that decides the numbers of a run."""

    seed: int = 0
    batch: int = 3
    seq: int = 13
    steps: int = 10
    accumulate: int = 1
    lr: float = 1e-3
    schedule: str = "linear"
    warmup: int = 3
    clip: float = 1.0
    weight_decay: float = 0.1
    betas: tuple = (0.9, 0.999)
    eps: float = 1e-8
    precision: str = "fp32"  # of ours; PyTorch has its autocast
    arithmetic: str = ""  # that multiplies 16-bit operands: empty, what training chooses
    deviation: float = 0.2  # of the weights: large in a tiny model, so that mistakes show
    config: dict = field(default_factory=dict)

    def rate(self, step):
        if step <= self.warmup:
            return self.lr * step / (self.warmup + 1)
        if self.schedule == "constant":
            return self.lr
        return self.lr * (self.steps - step + 1) / (self.steps - self.warmup)


TINY = dict(vocab_size=97, n_positions=17, n_embd=24, n_layer=2, n_head=3, n_inner=52, bos_token_id=96, eos_token_id=96)


def make_config(overrides):
    none = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    return GPT2Config(**{**TINY, **none, **overrides}, attn_implementation="eager")


def make_model(run, upcast=False):
    """In fp32, so that every engine starts from the same numbers. Transformers knows reorder_and_upcast_attn in fp32 only, where
    it changes nothing."""
    torch.manual_seed(run.seed)
    model = GPT2LMHeadModel(make_config({**run.config, "reorder_and_upcast_attn": upcast}))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            centre = 1.0 if ".ln_" in name and name.endswith("weight") else 0.0
            parameter.copy_(centre + run.deviation * torch.randn_like(parameter))
    return model.eval()


def make_batches(run, vocab):
    """tokens, targets (M, B, T), start, length (M, B) for M micro-batches."""
    rng = np.random.default_rng(1000 + run.seed)
    shape = (run.steps * run.accumulate, run.batch)
    tokens = rng.integers(0, vocab, (*shape, run.seq), dtype=np.int32)
    targets = rng.integers(0, vocab, (*shape, run.seq), dtype=np.int32)
    targets[rng.random(targets.shape) < 0.1] = IGNORED
    start, length = np.zeros(shape, np.int32), np.full(shape, run.seq, np.int32)
    for m in range(shape[0]):
        for b in range(1, run.batch):
            length[m, b] = rng.integers(1, run.seq)
            if b % 2 == 0:
                start[m, b] = rng.integers(0, run.seq - length[m, b] + 1)
    place = np.arange(run.seq)
    inside = (place >= start[..., None]) & (place < (start + length)[..., None])
    targets[~inside] = IGNORED
    return dict(tokens=tokens, targets=targets, start=start, length=length)


def inputs_of(batches, m):
    """Micro-batch m for HuggingFace: ids, mask, positions, targets."""
    tokens, targets = (torch.tensor(batches[k][m], dtype=torch.long) for k in ("tokens", "targets"))
    start, length = (torch.tensor(batches[k][m], dtype=torch.long)[:, None] for k in ("start", "length"))
    place = torch.arange(tokens.shape[1])[None]
    mask = ((place >= start) & (place < start + length)).long()
    return tokens, mask, (place - start).clamp(min=0) * mask, targets


def short_name(name):
    return name.removeprefix(PREFIX)


AUTOCAST = {"mixed": torch.bfloat16, "mixed-bf16": torch.bfloat16, "mixed-fp16": torch.float16}


def autocast(run, dtype):
    """PyTorch's way to the run's precision; of fp32 and double none."""
    if dtype != torch.float32 or run.precision not in AUTOCAST:
        return contextlib.nullcontext()
    return torch.autocast("cpu", dtype=AUTOCAST[run.precision])


def run_torch(run, dtype):
    """The same numbers as the parity tool writes, by the same names, in numpy's double."""
    model = make_model(run).to(dtype)
    batches = make_batches(run, model.config.vocab_size)
    parameters = dict(model.named_parameters())
    groups = [
        dict(params=[p for p in parameters.values() if p.dim() == 2], weight_decay=run.weight_decay),
        dict(params=[p for p in parameters.values() if p.dim() == 1], weight_decay=0.0),
    ]
    optimizer = torch.optim.AdamW(groups, lr=run.lr, betas=run.betas, eps=run.eps)
    out, losses, norms = {}, [], []
    for step in range(1, run.steps + 1):
        optimizer.zero_grad()
        micro = range((step - 1) * run.accumulate, step * run.accumulate)
        valid = int((batches["targets"][micro.start : micro.stop] != IGNORED).sum())
        total = 0.0
        for m in micro:
            ids, mask, positions, targets = inputs_of(batches, m)
            with autocast(run, dtype):
                logits = model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False).logits
            logits = logits.to(dtype)
            loss = torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum"
            )
            (loss / valid).backward()
            total += loss.item() / valid
            if m == 0:
                out["logits"] = logits.detach().double().numpy()
        if step == 1:
            for name, p in parameters.items():
                out["grad." + short_name(name)] = p.grad.double().numpy().copy()
        for group in optimizer.param_groups:
            group["lr"] = run.rate(step)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), run.clip if run.clip > 0 else math.inf)
        optimizer.step()
        losses.append(total)
        norms.append(norm.item())
    for name, p in parameters.items():
        out["param." + short_name(name)] = p.detach().double().numpy().copy()
    out["loss"], out["grad_norm"] = np.array(losses), np.array(norms)
    return out


def save_inputs(run, folder):
    """The model folder and the batches as files; returns both paths."""
    model = make_model(run, run.config.get("reorder_and_upcast_attn", False))
    model.save_pretrained(folder / "model")
    save_file(make_batches(run, model.config.vocab_size), folder / "tokens.safetensors")
    return folder / "model", folder / "tokens.safetensors"


def run_parity(build_dir, run, folder, engine, isa=None):
    """What the tool computes. Its files, gigabytes for GPT-2, are gone afterwards."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        model, tokens = save_inputs(run, Path(place))
        out = Path(place) / "out.safetensors"
        command = [build_dir / "tests" / "lamina_parity", model, tokens, out, "--engine", engine]
        for name in ("batch", "seq", "steps", "accumulate", "lr", "schedule", "warmup", "clip", "eps", "precision"):
            command += [f"--{name}", getattr(run, name)]
        command += ["--weight-decay", run.weight_decay, "--beta1", run.betas[0], "--beta2", run.betas[1]]
        if run.arithmetic:
            command += ["--arithmetic", run.arithmetic]
        environment = dict(os.environ, **({"LAMINA_ISA": isa} if isa else {}))
        command = [str(part) for part in command]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        return load_file(out)


def seen_places(run, batches):
    """Which logits of the first micro-batch belong to a token, (B, T)."""
    place = np.arange(run.seq)
    start, length = batches["start"][0][:, None], batches["length"][0][:, None]
    return (place >= start) & (place < start + length)


def without_key_bias(name, values):
    """The gradient of the keys' bias is 0 in truth: what stands there is rounding noise, which AdamW amplifies."""
    if not name.endswith("attn.c_attn.bias"):
        return values
    third = values.shape[0] // 3
    return np.concatenate([values[:third], values[2 * third :]])


def isas():
    """The rungs of the kernel ladder that this machine has."""
    cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    flags = set(next((line for line in cpu.splitlines() if line.startswith("flags")), "").split())
    rungs = {"portable": set(), "avx2": {"avx2", "fma"}, "avx512": {"avx512f", "avx512bw", "avx512vl", "avx512dq"}}
    return [name for name, needed in rungs.items() if needed <= flags]
