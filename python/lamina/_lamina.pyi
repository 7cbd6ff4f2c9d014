"""Types of the extension. Arrays are anything with DLPack or the buffer protocol; they come out as numpy arrays where
numpy is installed."""
from typing import Any, Callable, Optional, Sequence, Union

__version__: str

class Error(Exception):
    """What the caller or the world got wrong: the command line's one line."""

    hint: str
    code: str

class Generated:
    @property
    def ids(self) -> list[int]: ...
    @property
    def finish_reason(self) -> str: ...
    @property
    def log_probabilities(self) -> list[float]: ...

class Model:
    @staticmethod
    def from_pretrained(folder: str, threads: int = 0) -> Model: ...
    @staticmethod
    def from_config(path: str, seed: int = 0, threads: int = 0) -> Model: ...
    def forward(self, ids: Any) -> Any: ...
    def loss(self, ids: Any, targets: Any = None) -> float: ...
    def gradients(self) -> dict[str, Any]: ...
    def parameters(self) -> dict[str, Any]: ...
    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        max_tokens: int = 128,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        end_ids: Optional[Sequence[int]] = None,
        log_probabilities: bool = False,
        on_id: Optional[Callable[[int, int], Optional[bool]]] = None,
    ) -> list[Generated]: ...
    def save_pretrained(self, folder: str) -> None: ...
    @property
    def config(self) -> str: ...
    @property
    def warnings(self) -> list[str]: ...

class StepResult:
    @property
    def step(self) -> int: ...
    @property
    def lr(self) -> float: ...
    @property
    def loss(self) -> float: ...
    @property
    def grad_norm(self) -> float: ...
    @property
    def tokens(self) -> int: ...
    @property
    def finite(self) -> bool: ...

class Trainer:
    def __init__(
        self,
        model: Model,
        *,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        clip: float = 0.0,
        clip_layer: float = 0.0,
        accumulate: int = 1,
        schedule: str = "constant",
        warmup: int = 0,
        min_lr: float = 0.0,
        steps: Optional[int] = None,
        seed: int = 0,
    ) -> None: ...
    def step(self, ids: Any, targets: Any = None) -> StepResult: ...

class Tokenizer:
    @staticmethod
    def from_pretrained(path: str) -> Tokenizer: ...
    def encode(self, text: Union[str, bytes], special: str = "text") -> list[int]: ...
    def decode(self, ids: Sequence[int]) -> str: ...
    def decode_bytes(self, ids: Sequence[int]) -> bytes: ...
    @property
    def vocab_size(self) -> int: ...
    @property
    def end_of_text(self) -> Optional[int]: ...
