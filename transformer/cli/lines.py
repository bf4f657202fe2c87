"""Lines of standard input or files, in and out: one line each, in order, as they come."""

import codecs
import itertools
import os
import re
import select
import signal
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import BinaryIO, TextIO

from transformer.data.corpora.opening import open_bytes

CLOSED_PIPE = 141  # what a shell shows of a tool that ended because nobody reads it any more
QUIET_SECONDS = 0.05

# Everything that some program or other takes for the end of a line.
_BREAKS = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_JSON_BREAKS: Mapping[int, str] = {ord(each): f"\\u{ord(each):04x}" for each in "\x85\u2028\u2029"}


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


def read_windows(files: Sequence[Path], at_once: int) -> Iterator[list[str]]:
    """What :func:`read_lines` gives, up to ``at_once`` lines together.

    Of standard input there are fewer where no more come for a moment, so that whoever waits for an answer gets it.
    """
    descriptor = None if files else _descriptor(sys.stdin)
    if descriptor is None:
        lines = read_lines(files)
        while window := list(itertools.islice(lines, at_once)):
            yield window
        return
    first = 1
    for raw in _as_they_come(descriptor, at_once):
        yield list(_decoded(raw, "standard input", first))
        first += len(raw)


def read_side_by_side(first: Path, second: Path) -> Iterator[tuple[str, str]]:
    """Lines of two files in step.

    Raises:
        ValueError: one file has more lines.
    """
    for count, (one, other) in enumerate(itertools.zip_longest(read_lines([first]), read_lines([second]))):
        if one is None or other is None:
            shorter, longer = (first, second) if one is None else (second, first)
            raise ValueError(
                f"both files must have the same number of lines, but {str(shorter)!r} has {count} and {str(longer)!r} "
                "has more."
            )
        yield one, other


def check_same_length(first: Path, second: Path) -> None:
    """Refuse files of different numbers of lines before anything is made of them; pipes cannot be read twice.

    Raises:
        ValueError: one file has more lines.
    """
    if not (first.is_file() and second.is_file()):
        return
    counts = [sum(1 for _ in read_lines([file])) for file in (first, second)]
    if counts[0] != counts[1]:
        raise ValueError(
            f"both files must have the same number of lines, but {str(first)!r} has {counts[0]} and {str(second)!r} "
            f"has {counts[1]}."
        )


def write_in_step(outputs: Sequence[tuple[BinaryIO, Sequence[str]]]) -> None:
    """Write lines to each of several streams and flush them; an interruption comes before or after all of it.

    The command ends where nobody reads standard output any more, as other tools do, without a word.

    Raises:
        ValueError: something cannot be written.
    """
    contents = []
    for stream, lines in outputs:
        assert not any("\n" in line for line in lines), "one line in, one line out"
        contents.append((stream, "".join(f"{line}\n" for line in lines).encode()))
    try:
        with _uninterrupted():
            for stream, content in contents:
                rest = memoryview(content)
                while rest:  # without a buffer, as PYTHONUNBUFFERED has it, a signal makes a write a short one
                    rest = rest[stream.write(rest) :]
                stream.flush()
    except BrokenPipeError:
        _discard_output()
        sys.exit(CLOSED_PIPE)
    except OSError as error:
        _discard_output()
        raise ValueError(f"the output cannot be written: {error.strerror or error}.") from error


def on_one_line(text: str) -> str:
    """``text`` with a space for everything that a program may take for the end of a line."""
    return _BREAKS.sub(" ", text)


def with_escapes(text: str) -> str:
    r"""``text`` with ``\n``, ``\u2028`` and so on for everything that a program may take for the end of a line."""
    return _BREAKS.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def json_on_one_line(text: str) -> str:
    """The same JSON; it has no line feeds, but other characters that a program may take for the end of a line."""
    return text.translate(_JSON_BREAKS)


def _decoded(stream: Iterable[bytes], where: str, first: int = 1) -> Iterator[str]:
    for number, line in enumerate(stream, start=first):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            yield line.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{where}, line {number}: must be UTF-8, but is not: {error.reason}.") from error


def _descriptor(stream: TextIO) -> int | None:
    """The number of an open file that can be waited for; None where there is no such thing."""
    if os.name != "posix":
        return None
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None


def _as_they_come(descriptor: int, at_once: int) -> Iterator[list[bytes]]:
    """Up to ``at_once`` lines with their line feeds, fewer if nothing follows for :data:`QUIET_SECONDS`."""
    window: list[bytes] = []
    beginning = bytearray()
    while True:
        if window and not select.select([descriptor], [], [], QUIET_SECONDS)[0]:
            yield window
            window = []
        block = os.read(descriptor, 1 << 16)
        beginning += block
        if b"\n" in block:
            *lines, rest = bytes(beginning).split(b"\n")
            beginning = bytearray(rest)
            window += (line + b"\n" for line in lines)
        elif not block and beginning:
            window.append(bytes(beginning))
        while len(window) >= at_once:
            yield window[:at_once]
            del window[:at_once]
        if not block:
            break
    if window:
        yield window


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits for the end of the block, but a second one does not."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:  # ignored, as in a job in the background, or somebody else's business
        yield
        return
    asked = False

    def remember(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    signal.signal(signal.SIGINT, remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if asked:
        raise KeyboardInterrupt


def _discard_output() -> None:
    """Whatever still waits to be written would only fail once more when Python ends."""
    descriptor = _descriptor(sys.stdout)
    if descriptor is not None:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), descriptor)
