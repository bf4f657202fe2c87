"""From lines to answers: typed at a terminal, of standard input or of files."""

import contextlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from transformer.cli.line_answers import Answer
from transformer.cli.line_progress import line_progress
from transformer.cli.lines import read_windows, write_in_step
from transformer.cli.prompt import converse


def answer_lines(
    files: Sequence[Path],
    answer: Callable[[list[str], int], Sequence[Answer]],
    *,
    at_once: int,
    greeting: str,
    alignments: Path | None = None,
) -> None:
    """Write an answer for each line, in order, as soon as it is there.

    Args:
        files: to be read; if there is none, what is typed at the terminal or comes by standard input.
        answer: gets lines and the number of the first.
        at_once: lines that are answered together.
        greeting: what a user at a terminal is told.
        alignments: file for the alignments.

    Raises:
        ValueError: something cannot be read or written.
        KeyboardInterrupt: lines that had been answered are written, whole.
    """
    with contextlib.ExitStack() as stack:
        second = None if alignments is None else stack.enter_context(_opened(alignments))

        def respond(lines: list[str], first: int) -> None:
            answers = answer(lines, first)
            assert len(answers) == len(lines), "one line in, one line out"
            outputs: list[tuple[BinaryIO, Sequence[str]]] = [(sys.stdout.buffer, [each.text for each in answers])]
            if second is not None:
                outputs.append((second, [each.alignment for each in answers]))
            write_in_step(outputs)

        if not files and sys.stdin.isatty():
            converse(lambda line, number: respond([line], number), greeting)
            return
        advance = stack.enter_context(line_progress(files))
        first = 1
        for window in read_windows(files, at_once):
            respond(window, first)
            first += len(window)
            advance(len(window))


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("wb")
    except OSError as error:
        raise ValueError(f"{str(path)!r} cannot be written: {error.strerror or error}.") from error
