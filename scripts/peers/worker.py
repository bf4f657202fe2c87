"""Contestants in processes of their own, so that nobody's threads and memory get in another one's way."""

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

import torch

from peers.contest import Answer
from transformer.cli.console import set_up_logging

Run = Callable[..., Any]
SETTLED = 0.4  # seconds: threads that have run out of work keep a core busy for a while before they sleep


class Worker:
    """A process that makes a contestant and runs it when asked.

    Two libraries with threads in one process slow each other down: OpenMP lets its threads sleep between any two
    products once there are more of them than cores.

    Args:
        build: makes the function to run; called in the process.
        threads: of the process.
    """

    def __init__(self, build: Callable[[], Run], threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, build, threads), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
        self._process.join()

    def __call__(self, *arguments: Any) -> Answer:
        """Run it once with these arguments, when everything else has settled."""
        time.sleep(SETTLED)
        try:
            self._connection.send(arguments)
            answer = self._connection.recv()
        except (EOFError, ConnectionError) as error:
            raise RuntimeError("a contestant's process has ended; its error stands above.") from error
        assert isinstance(answer, Answer)
        return answer


def _serve(connection: Connection, build: Callable[[], Run], threads: int) -> None:
    torch.set_num_threads(threads)
    run = build()
    set_up_logging()  # after the imports, which set levels of their own
    while True:
        try:
            arguments = connection.recv()
        except EOFError:
            return
        start = time.perf_counter()
        outputs = run(*arguments)
        connection.send(Answer(outputs, time.perf_counter() - start))
