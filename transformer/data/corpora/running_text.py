"""Text files for a language model: as running text, as one document each, or as one document a line.

Where the last part of the training text is for validation, the cut is known only at the end of the last file. A run
that finds its training text in the cache reads the files once: validation is cut out of them in one pass, which keeps
the last part in memory, and the training part is looked for when its rows are read and not before.
"""

import itertools
import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import xxhash

from transformer.data.corpora.document_config import PlainTextConfig
from transformer.data.corpora.files import count_lines, find_files, fingerprint, not_utf8, read_blocks, read_pieces
from transformer.data.corpora.readers import read_parallel
from transformer.data.corpora.rows import Row, Shard, Split, listed

ROW: Mapping[str, str] = {"running": "piece", "file": "document", "line": "line"}
"""What a row is called in messages."""


def text_shards(config: PlainTextConfig, split: Split) -> tuple[Shard, ...] | None:
    """The shards of a split, or None if there is no such split.

    Raises:
        ValueError: a file is missing; or, of a validation part that is cut out of the training text, not readable.
    """
    if split == "test":
        files = config.test
    elif split == "validation" and config.validation is not None:
        files = config.validation
    elif config.validation_fraction is not None:
        return _cut_shards(config, config.validation_fraction, split)
    else:
        files = config.train if split == "train" else None
    if files is None:
        return None
    return tuple(_shard(config, path) for path in find_files(Path(config.folder), files))


def _shard(config: PlainTextConfig, path: Path) -> Shard:
    identity = f"text {config.documents} {fingerprint(path)}"
    where = f"{str(path)!r}, {ROW[config.documents]} {{}}"
    match config.documents:
        case "running":
            return Shard(partial(_pieces, path), None, where, 1, identity)
        case "file":
            return Shard(partial(_whole, path), _one, where, 1, identity)
        case "line":
            return Shard(partial(_lines, path), partial(count_lines, path), where, 1, identity)


def _one() -> int:
    return 1


def _pieces(path: Path, skip: int = 0) -> Iterator[Row]:
    for piece in itertools.islice(read_pieces(path), skip, None):
        yield (piece,)


def _whole(path: Path, skip: int = 0) -> Iterator[Row]:
    if skip == 0:
        yield ("".join(read_pieces(path)),)


def _lines(path: Path, skip: int = 0) -> Iterator[Row | ValueError]:
    yield from read_parallel((path,), skip=skip)


def _cut_shards(config: PlainTextConfig, fraction: float, split: Split) -> tuple[Shard, ...]:
    """A shard for each file that has a part in the split.

    For training these are all files, because which of them are cut is not known yet; the others have no rows.
    """
    paths, is_lines = find_files(Path(config.folder), config.train), config.documents == "line"
    fingerprints = [fingerprint(path) for path in paths]
    # The cut depends on the lengths of all files, so each part changes with any of them.
    all_files = xxhash.xxh3_128_hexdigest(json.dumps(fingerprints).encode())
    parts = [f"text {config.documents} {split} {fraction} {all_files} {found}" for found in fingerprints]
    where = [f"{str(path)!r}, {ROW[config.documents]} {{}}" for path in paths]
    if split == "train":
        cut = _Cut(paths, fraction, lines=is_lines)
        return tuple(
            Shard(
                partial(cut.lines_before if is_lines else cut.pieces_before, file),
                partial(cut.count_lines_before, file) if is_lines else None,
                where[file],
                1,
                parts[file],
            )
            for file in range(len(paths))
        )
    place, tail = _find_cut(paths, fraction, lines=is_lines)
    shards = []
    for file in range(min(place.file, len(paths) - 1), len(paths)):  # at least one: that there is nothing is an error
        rows = tuple(text for piece in tail if piece.file == file for text in _rows(piece.text, lines=is_lines))
        first = 1 + (place.line if is_lines and file == place.file else 0)
        shards.append(Shard(partial(listed, rows), partial(len, rows), where[file], first, parts[file]))
    return tuple(shards)


class _Piece(NamedTuple):
    """A part of a file, in memory.

    Attributes:
        file: number of the file.
        start: characters before it, in all files.
        character, line: characters and lines before it, in its file.
        text: the part.
    """

    file: int
    start: int
    character: int
    line: int
    text: str


class _Place(NamedTuple):
    """Where the training part ends: which file, and how many characters and whole lines of it are in."""

    file: int
    character: int
    line: int


class _Cut:
    """The training part of some files. Its end is found, by one pass over them, when it is first needed, and kept.

    Args:
        paths: the files.
        fraction: of all characters, after the end.
        lines: whether the end is at the start of a line.
    """

    def __init__(self, paths: Sequence[Path], fraction: float, *, lines: bool) -> None:
        self.paths, self.fraction, self.lines = paths, fraction, lines

    @cached_property
    def place(self) -> _Place:
        """The end."""
        return _find_cut(self.paths, self.fraction, lines=self.lines)[0]

    def pieces_before(self, file: int, skip: int = 0) -> Iterator[Row]:
        """The pieces of a file; nothing is read behind the end."""
        if file <= self.place.file:
            left = self.place.character if file == self.place.file else None
            yield from itertools.islice(_clipped(self.paths[file], left), skip, None)

    def lines_before(self, file: int, skip: int = 0) -> Iterator[Row | ValueError]:
        """The lines of a file; nothing is read behind the end."""
        if file <= self.place.file:
            stop = max(self.place.line - skip, 0) if file == self.place.file else None
            yield from itertools.islice(_lines(self.paths[file], skip), stop)

    def count_lines_before(self, file: int) -> int:
        """Number of lines of a file."""
        if file < self.place.file:
            return count_lines(self.paths[file])
        return self.place.line if file == self.place.file else 0


def _clipped(path: Path, stop: int | None) -> Iterator[Row]:
    """The pieces of a file up to a character; None is to its end."""
    if stop is None:
        yield from _pieces(path)
    elif stop > 0:
        for piece in read_pieces(path):
            yield (piece[:stop],)
            stop -= len(piece)
            if stop <= 0:
                return


def _find_cut(paths: Sequence[Path], fraction: float, *, lines: bool) -> tuple[_Place, list[_Piece]]:
    """Where the last `fraction` of all characters begins, and the text from there on, by one pass over the files.

    What is still in memory, at any moment, is the last `fraction` of what has been read.
    """
    held, total, cut = deque[_Piece](), 0, 0
    for file, path in enumerate(paths):
        character, line = 0, 0
        for text in _whole_lines(path) if lines else read_pieces(path):
            held.append(_Piece(file, total, character, line, text))
            total, character, line = total + len(text), character + len(text), line + text.count("\n")
            cut = int(total * (1 - fraction))  # never smaller than before
            while held and held[0].start + len(held[0].text) <= cut:
                held.popleft()
    if not held:
        return _Place(len(paths), 0, 0), []
    first = held.popleft()
    inside = cut - first.start
    if lines:
        inside = first.text.rfind("\n", 0, inside) + 1
    place = _Place(first.file, first.character + inside, first.line + first.text.count("\n", 0, inside))
    return place, [first._replace(text=first.text[inside:]), *held]


def _whole_lines(path: Path) -> Iterator[str]:
    """The text of a file in parts that begin and end with a line, unlike pieces."""
    for number, block in read_blocks(path):
        try:
            yield block.decode()
        except UnicodeDecodeError as error:
            raise not_utf8(path, number + block.count(b"\n", 0, error.start) + 1, error) from None


def _rows(text: str, *, lines: bool) -> list[str]:
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if lines else [text]
