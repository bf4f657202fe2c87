"""Splits of data sets on the Hugging Face hub, or of local folders in its layout, through ``datasets``."""

import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import datasets
import xxhash

from transformer.data.corpora.document_config import HubTextConfig
from transformer.data.corpora.files import fingerprint
from transformer.data.corpora.pair_config import HubPairsConfig
from transformer.data.corpora.readers import text_at
from transformer.data.corpora.rows import Row, Shard, Split

LoadedT = TypeVar("LoadedT")


def hub_shard(
    config: HubPairsConfig | HubTextConfig, split: Split, fields: Sequence[str], *, streaming: bool
) -> Shard | None:
    """A split as one shard, or None if there is no such split.

    When streaming, the rows of a local folder are told apart by all files below it: their names there, and their
    :func:`~.files.fingerprint`. The folder may move. Those of a data set on the hub are told apart by
    its name and `revision` alone: without a commit as `revision`, a change on the hub goes unnoticed.

    Args:
        config: which data set.
        split: which part of it.
        fields: where the texts are; a dot steps into a nested object.
        streaming: read the files as they are, without the copy that ``datasets`` keeps otherwise. Other splits than
            that of training are, where it can be done: such a copy is always one of all splits.

    Raises:
        ValueError: The data set or the split cannot be loaded, or has no such text field.
    """
    rows = _rows_of(config, split)
    if rows is None:
        return None
    where = f"row {{}} of {rows.split!r} of {config.dataset!r}"
    stream = None
    if streaming or rows.stop is not None:  # a few first rows are no reason to fetch and copy all of them
        stream = _loaded(config, rows.split, partial(datasets.load_dataset, streaming=True))
    elif split != "train":
        with suppress(ValueError):  # a slice; or the hub is out of reach, and there is a copy
            stream = _loaded(config, rows.split, partial(datasets.load_dataset, streaming=True))
    if stream is not None:
        folder = Path(config.dataset)
        origin = _files_below(folder) if folder.is_dir() else f"{config.dataset} {config.revision}"
        identity = f"hub stream {origin} {config.subset} {rows.split} {list(fields)} {rows.start} {rows.stop}"
        return Shard(partial(_stream_rows, stream, tuple(fields), where, rows), None, where, rows.start, identity)
    table = _text_columns(_loaded(config, rows.split, datasets.load_dataset), fields, config.dataset)
    if rows.start > 0:
        _check_left(rows.start, len(table), where)
        table = table.select(range(rows.start, len(table)))
    identity = f"hub {table._fingerprint} {list(fields)}"
    return Shard(partial(_table_rows, table), partial(len, table), where, rows.start, identity)


class _Rows(NamedTuple):
    """Some rows of a split as the hub calls it; all from the start on if there is no stop."""

    split: str
    start: int = 0
    stop: int | None = None


def _rows_of(config: HubPairsConfig | HubTextConfig, split: Split) -> _Rows | None:
    match split:
        case "train":
            return _Rows(config.train_split, start=config.held_out_rows or 0)
        case "validation" if config.held_out_rows is not None:
            return _Rows(config.train_split, stop=config.held_out_rows)
        case "validation":
            return None if config.validation_split is None else _Rows(config.validation_split)
        case "test":
            return None if config.test_split is None else _Rows(config.test_split)


def _check_left(held_out: int, num_rows: int, where: str) -> None:
    if held_out >= num_rows:
        place = where.removeprefix("row {} of ")
        raise ValueError(
            f"`held_out_rows` must be below the number of rows of {place} ({num_rows}), but is {held_out}."
        )


def _files_below(folder: Path) -> str:
    """Changes when any file below a folder does."""
    # Through links to folders, too, as `datasets` finds its files.
    walk = os.walk(folder, followlinks=True)
    paths = sorted(path for root, _, names in walk for name in names if (path := Path(root, name)).is_file())
    files = [[path.relative_to(folder).as_posix(), fingerprint(path)] for path in paths]
    return xxhash.xxh3_128_hexdigest(json.dumps(files).encode())


def _loaded(config: HubPairsConfig | HubTextConfig, split: str, load: Callable[..., LoadedT]) -> LoadedT:
    name = config.dataset
    if name.startswith((".", "/", "~")) and not Path(name).is_dir():
        raise ValueError(f"The folder {name!r} does not exist.")
    if config.revision is not None and Path(name).is_dir():
        raise ValueError(f"`revision` has no meaning for a local folder, but `dataset` is the folder {name!r}.")
    try:
        return load(name, config.subset, split=split, revision=config.revision)
    except ConnectionError as error:
        raise ValueError(
            f"The data set {name!r} is no local folder, and the Hugging Face hub cannot be reached: "
            f"{_first_line(error)}"
        ) from error
    # A data set that is a program, which `datasets` no longer runs, is a RuntimeError.
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        raise ValueError(
            f"The split {split!r} of the data set {name!r} cannot be loaded: {_first_line(error)}"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".") + "."


def _text_columns(table: datasets.Dataset, fields: Sequence[str], where: str) -> datasets.Dataset:
    flat = table.flatten()
    for name in fields:
        if name not in flat.column_names:
            raise ValueError(f"{where!r} has no field {name!r}; there are {', '.join(map(repr, flat.column_names))}.")
        feature = flat.features[name]
        if not isinstance(feature, datasets.Value) or feature.dtype not in ("string", "large_string"):
            kind = feature.dtype if isinstance(feature, datasets.Value) else type(feature).__name__
            raise ValueError(f"The field {name!r} of {where!r} must be text, but is {kind}.")
    return flat.select_columns(list(fields))


def _table_rows(table: datasets.Dataset, skip: int = 0) -> Iterator[Row]:
    names = table.column_names
    for start in range(skip, len(table), 1000):
        batch = table[start : start + 1000]
        yield from zip(*(batch[name] for name in names), strict=True)


def _stream_rows(
    stream: datasets.IterableDataset, fields: tuple[str, ...], where: str, rows: _Rows, skip: int = 0
) -> Iterator[Row | ValueError]:
    # One row at a time, but not by iterating: in a worker, that would give only the worker's part of the files.
    first = rows.start + skip
    batches: Iterator[dict[str, list[Any]]] = stream.skip(first).iter(batch_size=1)
    for number in itertools.count(first):
        here = where.replace("{}", str(number))
        try:
            batch = next(batches)
        except StopIteration:
            if rows.stop is not None:
                _check_left(rows.stop, number, where)
            return
        except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
            raise ValueError(f"{here} cannot be read: {_first_line(error)}") from error
        if number == rows.stop:  # not before: there must be rows left to train on
            return
        record = {name: value for name, (value,) in batch.items()}
        try:
            yield tuple(text_at(record, field, here) for field in fields)
        except ValueError as error:
            yield error
