"""Types of the extension. Arrays are anything with DLPack or the buffer protocol; they come out as numpy arrays where
numpy is installed."""
import os
from typing import Any, Callable, Iterable, Optional, Sequence, Union

Path = Union[str, os.PathLike[str]]

__version__: str

class Error(Exception):
    """What the caller or the world got wrong: the command line's one line."""

    hint: str
    code: str

class Generated:
    """A row of Model.generate()."""

    @property
    def ids(self) -> list[int]:
        """The new ones, the end id included."""
    @property
    def text(self) -> Optional[str]:
        """Up to a stop text, without special tokens; None without a tokenizer."""
    @property
    def finish_reason(self) -> str:
        """eos (an end id), length (max_tokens or the context), stop (a stop text, or on_id returned False)."""
    @property
    def log_probabilities(self) -> list[float]:
        """Of each id, before temperature and filters; empty unless asked for."""

class Model:
    @staticmethod
    def from_pretrained(folder: Path, *, threads: Optional[int] = None, memory_limit: Optional[str] = None) -> Model:
        """A HuggingFace GPT-2 folder."""
    @staticmethod
    def from_config(
        config: Union[Path, dict[str, Any]],
        *,
        seed: int = 0,
        threads: Optional[int] = None,
        memory_limit: Optional[str] = None,
    ) -> Model:
        """GPT-2's initialisation of a config.json, of its content, or of a size by name."""
    def forward(self, ids: Any, attention_mask: Any = None, position_ids: Any = None) -> Any:
        """Logits (B, T, V) of ids (B, T): a view that the next call overwrites. A mask is (B, T), (B, 1, 1, T), (T, T),
        (B, T, T) or (B, 1, T, T), of 1 and 0, bool, or floats to add; causality is added to it. Without position_ids
        positions count from where a row's text begins, behind the padding."""
    def loss(self, ids: Any, targets: Any = None, attention_mask: Any = None, position_ids: Any = None) -> float:
        """Mean over the targets from 0 on. Without targets each id is the target of the one before it. Padding predicts
        nothing and is not predicted."""
    def gradients(self) -> dict[str, Any]:
        """Of the last loss(), by HuggingFace's names. Copies."""
    def parameters(self) -> dict[str, Any]:
        """By HuggingFace's names. Copies."""
    def generate(
        self,
        prompts: Union[str, Iterable[Any]],
        *,
        max_tokens: Optional[int] = None,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        stop: Union[None, str, Sequence[str]] = None,
        end_id: Union[None, int, Sequence[int]] = None,
        log_probabilities: bool = False,
        tokenizer: Optional[Tokenizer] = None,
        batch: int = 8,
        on_id: Optional[Callable[[int, int], Optional[bool]]] = None,
        on_text: Optional[Callable[[int, str], object]] = None,
    ) -> list[Generated]:
        """New ids after each prompt, as `lamina generate` makes them. A prompt is a text, or ids in a list or array."""
    def save_pretrained(self, folder: Path, *, tokenizer: Optional[Tokenizer] = None) -> None:
        """A folder that HuggingFace loads."""
    @property
    def config(self) -> dict[str, Any]:
        """The content of config.json."""
    @property
    def warnings(self) -> list[str]:
        """Lines for people: what was found when the files were read."""

class StepResult:
    @property
    def step(self) -> int: ...
    @property
    def lr(self) -> float: ...
    @property
    def loss(self) -> float:
        """Mean over the targets of the whole step."""
    @property
    def grad_norm(self) -> float:
        """Of the whole gradient, before any clipping."""
    @property
    def tokens(self) -> int:
        """Targets from 0 on."""
    @property
    def loss_scale(self) -> float:
        """What the loss was multiplied with for its gradients; 1 where nothing is fp16."""
    @property
    def finite(self) -> bool:
        """False: the step was skipped, weights and moments are as they were. With update_in_backward it is an error."""

class Trainer:
    """Options have the names and the meaning of `lamina train`."""

    def __init__(
        self,
        model: Model,
        *,
        lr: float = 0.001,
        betas: Sequence[float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        clip: float = 0.0,
        clip_layer: float = 0.0,
        accumulate: int = 1,
        schedule: str = "constant",
        warmup: int = 0,
        min_lr: float = 0.0,
        decay_steps: Optional[int] = None,
        steps: Optional[int] = None,
        seed: int = 0,
        dropout: Optional[float] = None,
        max_skips: int = 5,
        batch: int = 4,
        seq: Optional[int] = None,
        isolate_documents: bool = False,
        recompute: str = "auto",
        precision: Path = "fp32",
        update_in_backward: bool = False,
        passes: Sequence[str] = (),
    ) -> None: ...
    def step(
        self, ids: Any, targets: Any = None, attention_mask: Any = None, position_ids: Any = None
    ) -> StepResult:
        """One update on the rows, in `accumulate` micro-batches. Masks and positions as in Model.forward()."""
    def plan(self) -> dict[str, Any]:
        """Memory of the compiled step; keys as those of `lamina plan --json`."""

class Tokenizer:
    """Byte-level BPE as GPT-2 uses it."""

    @staticmethod
    def from_pretrained(folder: Path) -> Tokenizer:
        """tokenizer.json, or vocab.json and merges.txt: a folder, or one of the files."""
    @staticmethod
    def train(texts: Iterable[Union[str, bytes]], *, vocab_size: int, min_count: int = 2) -> Tokenizer:
        """Learned from the texts; vocab_size counts all ids, <|endoftext|> included."""
    def encode(self, text: Union[str, bytes], special: str = "text") -> list[int]:
        """special: text, allow or error, for special-token texts in the text."""
    def decode(self, ids: Sequence[int]) -> str: ...
    def decode_bytes(self, ids: Sequence[int]) -> bytes: ...
    def save_pretrained(self, folder: Path, *, max_length: int = 1024) -> None: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def end_of_text(self) -> Optional[int]: ...

def save_tensors(path: Path, tensors: dict[str, Any], *, format: str = "safetensors") -> None:
    """Arrays of any strides as one file: safetensors, torch, mindspore (its strict safetensors) or mindspore-ckpt."""

def load_tensors(path: Path) -> dict[str, Any]:
    """What a file of weights of any format holds, or a model folder; bf16 as objects with DLPack, since numpy has no such type."""

def convert(
    source: Path,
    target: Path,
    *,
    to: str,
    names: Optional[str] = None,
    names_from: Optional[str] = None,
    config: Optional[Path] = None,
    dtype: str = "keep",
    vocab_size: Optional[int] = None,
    optimizer: bool = False,
    allow: Sequence[str] = (),
    allow_non_finite: bool = False,
) -> dict[str, Any]:
    """`lamina convert`: a model into a new folder. Returns what conversion.json says."""

def verify(
    a: Path,
    b: Optional[Path] = None,
    *,
    config_a: Optional[Path] = None,
    config_b: Optional[Path] = None,
    names_a: Optional[str] = None,
    names_b: Optional[str] = None,
    witness: Optional[Path] = None,
    write_witness: Optional[Path] = None,
    ids: Any = None,
    tokens: Optional[int] = None,
    seed: int = 0,
    tolerance: Optional[float] = None,
    steps: Optional[int] = None,
    lr: Optional[float] = None,
    threads: Optional[int] = None,
) -> dict[str, Any]:
    """`lamina verify`: whether two models compute the same, and if not why. Returns what --json prints, with `write_witness` only
    what was computed on. `ids` is a row of ids in
    place of seeded ones. Other programs as witnesses (--with) are the command's alone: pass what they wrote as `witness`."""

def lint_migration(*paths: Path, rules: bool = False) -> dict[str, Any]:
    """`lamina lint-migration`: what would go wrong in a move of these configs, weights and scripts. Returns what --json prints."""
