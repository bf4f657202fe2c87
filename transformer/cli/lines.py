"""Lines of standard input or files, in and out: one line each, in order, as they come."""

import gzip
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_lines(files: Sequence[Path]) -> Iterator[str]:
    """Lines of the files, or of standard input without any; only LF ends a line, and invalid UTF-8 is refused.

    Raises:
        ValueError: naming the file and the line.
    """
    if not files:
        yield from _decoded(sys.stdin.buffer, "standard input")
        return
    for file in files:
        try:
            with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
                yield from _decoded(stream, str(file))
        except (OSError, EOFError, zlib.error) as error:
            raise ValueError(f"{file} cannot be read: {error}.") from error


def _decoded(stream: Iterable[bytes], where: str) -> Iterator[str]:
    for number, line in enumerate(stream, start=1):
        if number == 1:
            line = line.removeprefix(BYTE_ORDER_MARK)
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
