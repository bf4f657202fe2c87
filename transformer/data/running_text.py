"""Text files for a language model: as running text, as one document each, or as one document a line."""

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from transformer.data.document_config import PlainTextConfig
from transformer.data.files import count_lines, find_files, fingerprint, read_pieces
from transformer.data.readers import read_parallel
from transformer.data.rows import Row, Shard, Split


class _Part(NamedTuple):
    """A part of a file, in characters or in lines; None is to the end."""

    path: Path
    start: int
    stop: int | None


def text_shards(config: PlainTextConfig, split: Split) -> tuple[Shard, ...] | None:
    """The shards of a split, or None if there is no such split."""
    if split == "test":
        files = config.test
    elif split == "validation" and config.validation is not None:
        files = config.validation
    elif config.validation_fraction is not None:
        paths = find_files(Path(config.folder), config.train)
        parts = _cut(paths, config.validation_fraction, lines=config.documents == "line")[split == "validation"]
        return tuple(_shard(config, part) for part in parts)
    else:
        files = config.train if split == "train" else None
    if files is None:
        return None
    return tuple(_shard(config, _Part(path, 0, None)) for path in find_files(Path(config.folder), files))


def _shard(config: PlainTextConfig, part: _Part) -> Shard:
    identity = f"text {config.documents} {part.start} {part.stop} {fingerprint(part.path)}"
    file = str(part.path)
    match config.documents:
        case "running":
            return Shard(partial(_pieces, part), None, f"{file!r}, piece {{}}", 1, identity)
        case "file":
            return Shard(partial(_whole, part.path), _one, f"{file!r}, document {{}}", 1, identity)
        case "line":
            count = partial(_count, part)
            return Shard(partial(_lines, part), count, f"{file!r}, line {{}}", 1 + part.start, identity)


def _one() -> int:
    return 1


def _count(part: _Part) -> int:
    return (count_lines(part.path) if part.stop is None else part.stop) - part.start


def _lines(part: _Part, skip: int = 0) -> Iterator[Row | ValueError]:
    stop = None if part.stop is None else max(part.stop - part.start - skip, 0)
    yield from itertools.islice(read_parallel((part.path,), skip=part.start + skip), stop)


def _whole(path: Path, skip: int = 0) -> Iterator[Row]:
    if skip == 0:
        yield ("".join(read_pieces(path)),)


def _pieces(part: _Part, skip: int = 0) -> Iterator[Row]:
    yield from itertools.islice(_clipped(part), skip, None)


def _clipped(part: _Part) -> Iterator[Row]:
    position = 0
    for piece in read_pieces(part.path):
        start = max(part.start - position, 0)
        stop = len(piece) if part.stop is None else min(part.stop - position, len(piece))
        if start < stop:
            yield (piece[start:stop],)
        position += len(piece)


def _cut(paths: Sequence[Path], fraction: float, *, lines: bool) -> tuple[list[_Part], list[_Part]]:
    """What comes before the last `fraction` of all characters, and the rest."""
    sizes = [sum(map(len, read_pieces(path))) for path in paths]
    rest = int(sum(sizes) * (1 - fraction))
    before: list[_Part] = []
    after: list[_Part] = []
    for path, size in zip(paths, sizes, strict=True):
        cut = min(rest, size)
        rest -= cut
        if cut == size:
            before.append(_Part(path, 0, None))
            continue
        if lines:
            cut = _line_at(path, cut)
        if cut > 0:
            before.append(_Part(path, 0, cut))
        after.append(_Part(path, cut, None))
    return before, after


def _line_at(path: Path, character: int) -> int:
    """Number of the line that a character stands in."""
    number = 0
    for piece in read_pieces(path):
        if character <= len(piece):
            return number + piece.count("\n", 0, character)
        number += piece.count("\n")
        character -= len(piece)
    return number
