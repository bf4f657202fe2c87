"""Lines of standard input or files, in and out: one line each, in order, as they come."""

import codecs
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from transformer.data.corpora.opening import open_bytes


def read_lines(files: Sequence[Path]) -> Iterator[str]:
    """Lines of files, compressed or not, or of standard input; only LF ends a line, and invalid UTF-8 is refused.

    Raises:
        ValueError: naming the file and the line.
    """
    if not files:
        yield from _decoded(sys.stdin.buffer, "standard input")
        return
    for file in files:
        with open_bytes(file) as stream:
            yield from _decoded(stream, str(file))


def _decoded(stream: Iterable[bytes], where: str) -> Iterator[str]:
    for number, line in enumerate(stream, start=1):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{where}, line {number}: must be UTF-8, but is not: {error.reason}.") from error


def map_lines(lines: Iterator[str], run: Callable[[list[str], int], Sequence[str]], *, at_once: int) -> None:
    """Write one line for each line read, in order, flushed after every ``at_once`` lines.

    ``run`` gets the lines and the number of the first. Line breaks inside an answer are the caller's business.
    """
    chunk: list[str] = []
    first = 1

    def flush() -> None:
        nonlocal first
        for answer in run(chunk, first):
            sys.stdout.buffer.write(answer.encode() + b"\n")
        sys.stdout.buffer.flush()
        first += len(chunk)
        chunk.clear()

    for line in lines:
        chunk.append(line)
        if len(chunk) == at_once:
            flush()
    if chunk:
        flush()
