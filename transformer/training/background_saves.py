"""Checkpoints written while the training goes on."""

import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import CheckpointIO
from torch import Tensor

MEGABYTE = 1_000_000


class BackgroundCheckpointIO(CheckpointIO):
    """Copies a checkpoint to host memory and lets another thread write it, one at a time.

    Files come and go in the order asked for, so a checkpoint is only removed once its successor is on the disk. After a
    write that failed nothing more is written or removed, and the next call says what happened.

    Lightning's ``AsyncCheckpointIO`` removes at once, copies on the device, and lets any number of copies wait.

    Args:
        files: writes and reads.
    """

    def __init__(self, files: CheckpointIO) -> None:
        self.files = files
        self._thread: ThreadPoolExecutor | None = None
        self._pending: list[Future[None]] = []
        self._error: Exception | None = None
        self._failed = ""  # the path

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Return as soon as the checkpoint is copied; waits for the write before.

        Raises:
            ValueError: if the disk has no room for it, or the write before has failed.
        """
        self.finish()
        check_room(Path(path).parent, num_bytes(checkpoint), f"to save {Path(path).name}")
        self._submit(self.files.save_checkpoint, on_host(checkpoint), path)

    def remove_checkpoint(self, path: Any) -> None:
        self._submit(self.files.remove_checkpoint, path)

    def load_checkpoint(self, path: Any, *given: Any, **named: Any) -> dict[str, Any]:
        self.finish()
        return self.files.load_checkpoint(path, *given, **named)

    def check(self) -> None:
        """Waits for nothing.

        Raises:
            ValueError: if a write has failed by now.
        """
        if isinstance(self._error, OSError):
            raise ValueError(
                f"{self._failed} could not be written: {self._error.strerror or self._error}. What was saved before is "
                "kept; the run can go on from there when this is mended."
            ) from self._error
        if self._error is not None:
            raise self._error

    def finish(self) -> None:
        """Wait until everything is written.

        Raises:
            ValueError: if a write has failed.
        """
        self._wait()
        self.check()

    def teardown(self) -> None:
        """Wait, but say nothing: the run may be ending because of another error. :meth:`finish` still tells."""
        self._wait()
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = None

    def _wait(self) -> None:
        for future in self._pending:
            future.result()
        self._pending = []

    def _submit(self, work: Callable[..., None], *given: Any) -> None:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoints")
        self._pending.append(self._thread.submit(self._run, work, *given))

    def _run(self, work: Callable[..., None], *given: Any) -> None:
        if self._error is None:
            try:
                work(*given)
            except Exception as error:  # kept for the thread that trains
                self._error, self._failed = error, str(given[-1])


def on_host(value: Any, copies: dict[Any, Tensor] | None = None) -> Any:
    """A copy in host memory that shares nothing with a value made of containers, tensors and plain data.

    Tensors that are the same memory, as tied weights are, stay the same memory.
    """
    copies = {} if copies is None else copies
    match value:
        case Tensor():
            key = (value.device, value.data_ptr(), value.dtype, value.shape, value.stride())
            if key not in copies or value.numel() == 0:
                copies[key] = value.detach().to("cpu", copy=True)
            return copies[key]
        case dict():
            return {name: on_host(inner, copies) for name, inner in value.items()}
        case list():
            return [on_host(inner, copies) for inner in value]
        case tuple():
            return tuple(on_host(inner, copies) for inner in value)
        case _:
            return value


def num_bytes(value: Any) -> int:
    """Bytes of all tensors in a value made of containers, tensors and plain data; tied ones once."""
    sizes: dict[tuple[torch.device, int], int] = {}

    def visit(inner: Any) -> None:
        match inner:
            case Tensor():
                key = (inner.device, inner.data_ptr())
                sizes[key] = max(sizes.get(key, 0), inner.nbytes)
            case dict():
                for item in inner.values():
                    visit(item)
            case list() | tuple():
                for item in inner:
                    visit(item)
            case _:
                pass

    visit(value)
    return sum(sizes.values())


def check_room(folder: Path, needed: int, what: str) -> None:
    """Refuse to begin what the disk has no room for.

    Args:
        folder: where to write; it, or a folder above it, exists.
        needed: bytes.
        what: for what they are needed.
    """
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise ValueError(
            f"{what} needs {needed / MEGABYTE:,.0f} MB, but the disk of {folder} has {free / MEGABYTE:,.0f} MB left. "
            "What was saved before is kept."
        )
