"""What a run has cost so far: target tokens and seconds, kept in its checkpoints."""

from typing import Any, NamedTuple

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from transformer.training.callbacks import StopAtEnd, scored_tokens


class RunTotals(NamedTuple):
    """What a checkpoint tells about the run that wrote it; None for what it does not tell.

    Attributes:
        seconds: wall-clock time, validations included.
        tokens: target tokens trained on, padding not counted.
        data_checksum: changes when the training examples do; of a stream, when its files do.
    """

    seconds: float | None
    tokens: int | None
    data_checksum: str | None


class TokensSeen(Callback):
    """Counts target tokens without padding, repeated ones again; a resumed run goes on counting.

    The other devices of a run are taken to have as many as the first.
    """

    def __init__(self) -> None:
        self._earlier = 0  # before the run was resumed
        self._tokens: Tensor | None = None  # on the device: adding does not wait for it
        self._devices = 1

    def state_dict(self) -> dict[str, int]:
        return {"tokens": self._earlier + (0 if self._tokens is None else self._devices * int(self._tokens))}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self._earlier, self._tokens = state_dict["tokens"], None

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        tokens = scored_tokens(batch)
        self._devices = trainer.world_size
        self._tokens = tokens if self._tokens is None else self._tokens + tokens


def run_totals(checkpoint: dict[str, Any]) -> RunTotals:
    """What a run's checkpoint, as :func:`load_checkpoint` reads it, tells about the whole run so far."""
    callbacks = checkpoint.get("callbacks", {})
    seconds = callbacks.get(StopAtEnd.__qualname__, {}).get("seconds")
    tokens = callbacks.get(TokensSeen.__qualname__, {}).get("tokens")
    loaders = checkpoint.get("loops", {}).get("fit_loop", {}).get("state_dict", {}).get("combined_loader", [])
    loader = loaders[0] if loaders else {}
    return RunTotals(seconds, tokens, loader.get("data_checksum") or loader.get("identity"))
