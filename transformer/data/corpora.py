"""Loads a corpus, wherever it comes from, as data sets of sentence pairs or of documents.

What is dropped, and where. *Training* pairs with a blank or missing side teach nothing and are dropped, with
a warning that counts them. *Validation and test* pairs are never dropped, blank sides included: output k then
belongs to line k, and a score is over the whole file; a missing (null) side there is an error. Blank
documents of a text corpus hold nothing to predict and are dropped from every split, with a warning that
counts them.
"""

import logging
from collections.abc import Iterable
from pathlib import Path
from pydoc_data.topics import topics
from typing import NamedTuple, assert_never

import datasets

from transformer.data.config import TextDataConfig, TranslationDataConfig
from transformer.data.document_config import HubTextConfig, PlainTextConfig, PythonDocsConfig
from transformer.data.pair_config import (
    HubPairsConfig,
    JsonlConfig,
    ParallelTextConfig,
    ParquetConfig,
    PhrasesConfig,
    TsvConfig,
)
from transformer.data.phrases import generate_phrases, hashed_split
from transformer.data.readers import read_jsonl, read_lines, read_text, read_tsv, split_lines

logger = logging.getLogger(__name__)


class PairSplits(NamedTuple):
    """Sentence pairs, columns ``source`` and ``target``. No split is empty; without a test set it is None."""

    train: datasets.Dataset
    validation: datasets.Dataset
    test: datasets.Dataset | None


class TextSplits(NamedTuple):
    """One document a row, column ``text``. No split is empty; `test` is None without a test set."""

    train: datasets.Dataset
    validation: datasets.Dataset
    test: datasets.Dataset | None


def load_pairs(config: TranslationDataConfig) -> PairSplits:
    """Sentence pairs of a corpus.

    Raises:
        ValueError: A file, column or split is missing or damaged, line counts differ, or a split is empty.
    """
    match config:
        case PhrasesConfig():
            train = _pairs(generate_phrases(config, "train"))
            validation = _pairs(generate_phrases(config, "validation"))
            test = _pairs(generate_phrases(config, "test"))
        case ParallelTextConfig():
            train = _parallel_lines(config.folder, config.train_source, config.train_target)
            validation = _parallel_lines(config.folder, config.validation_source, config.validation_target)
            test = None
            if config.test_source is not None and config.test_target is not None:
                test = _parallel_lines(config.folder, config.test_source, config.test_target)
        case TsvConfig() | JsonlConfig() | ParquetConfig():
            train = _pair_file(config, config.train)
            validation = _pair_file(config, config.validation)
            test = None if config.test is None else _pair_file(config, config.test)
        case HubPairsConfig():
            columns = {config.source_field: "source", config.target_field: "target"}
            train = _columns(_hub_split(config, config.train_split), columns, config.dataset)
            validation = _columns(_hub_split(config, config.validation_split), columns, config.dataset)
            test = None
            if config.test_split is not None:
                test = _columns(_hub_split(config, config.test_split), columns, config.dataset)
        case _:
            assert_never(config)
    _refuse_missing(validation, "validation")
    if test is not None:
        _refuse_missing(test, "test")
    return PairSplits(
        _not_empty(_drop_blank(train, "training pairs with a blank or missing side"), "training"),
        _not_empty(validation, "validation"),
        None if test is None else _not_empty(test, "test"),
    )


def load_texts(config: TextDataConfig) -> TextSplits:
    """Documents of a text corpus.

    Raises:
        ValueError: A file, column or split is missing or damaged, or a split is empty.
    """
    match config:
        case PythonDocsConfig():
            train, validation, test = (
                _texts(topics[name] for name in sorted(topics) if hashed_split(f"topic {name}") == split)
                for split in ("train", "validation", "test")
            )
        case PlainTextConfig():
            train, validation = _text_with_validation(config)
            test = None if config.test is None else _documents(config, read_text(Path(config.folder, config.test)))
        case HubTextConfig():
            columns = {config.text_field: "text"}
            train = _columns(_hub_split(config, config.train_split), columns, config.dataset)
            validation = _columns(_hub_split(config, config.validation_split), columns, config.dataset)
            test = None
            if config.test_split is not None:
                test = _columns(_hub_split(config, config.test_split), columns, config.dataset)
        case _:
            assert_never(config)
    return TextSplits(
        _not_empty(_drop_blank(train, "blank or missing training documents"), "training"),
        _not_empty(_drop_blank(validation, "blank or missing validation documents"), "validation"),
        None if test is None else _not_empty(_drop_blank(test, "blank or missing test documents"), "test"),
    )


def _pairs(pairs: Iterable[tuple[str | None, str | None]]) -> datasets.Dataset:
    text = datasets.Value("large_string")
    rows = list(pairs)
    return datasets.Dataset.from_dict(
        {"source": [source for source, _ in rows], "target": [target for _, target in rows]},
        features=datasets.Features({"source": text, "target": text}),
    )


def _texts(texts: Iterable[str]) -> datasets.Dataset:
    features = datasets.Features({"text": datasets.Value("large_string")})
    return datasets.Dataset.from_dict({"text": list(texts)}, features=features)


def _parallel_lines(folder: str, source_file: str, target_file: str) -> datasets.Dataset:
    source_path, target_path = Path(folder, source_file), Path(folder, target_file)
    source, target = read_lines(source_path), read_lines(target_path)
    if len(source) != len(target):
        raise ValueError(
            f"Two parallel files must have equally many lines, but {str(source_path)!r} has {len(source)} "
            f"and {str(target_path)!r} has {len(target)}."
        )
    return _pairs(zip(source, target, strict=True))


def _pair_file(config: TsvConfig | JsonlConfig | ParquetConfig, file: str) -> datasets.Dataset:
    path = Path(config.folder, file)
    match config:
        case TsvConfig():
            return _pairs(read_tsv(path, (config.source_column, config.target_column)))
        case JsonlConfig():
            return _pairs(read_jsonl(path, (config.source_field, config.target_field)))
        case ParquetConfig():
            columns = {config.source_field: "source", config.target_field: "target"}
            return _columns(_parquet(path), columns, str(path))
        case _:
            assert_never(config)


def _parquet(path: Path) -> datasets.Dataset:
    if not path.is_file():
        raise ValueError(f"The file {str(path)!r} does not exist.")
    try:
        return datasets.load_dataset("parquet", data_files=str(path), split="train")
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise ValueError(f"The file {str(path)!r} cannot be read as Parquet: {_first_line(error)}") from error


def _hub_split(config: HubPairsConfig | HubTextConfig, split: str) -> datasets.Dataset:
    name = config.dataset
    if config.revision is not None and Path(name).is_dir():
        raise ValueError(f"`revision` has no meaning for a local folder, but `dataset` is the folder {name!r}.")
    try:
        return datasets.load_dataset(name, config.subset, split=split, revision=config.revision)
    except ConnectionError as error:
        raise ValueError(
            f"The data set {name!r} is no local folder, and the Hugging Face hub cannot be reached: "
            f"{_first_line(error)}"
        ) from error
    except (OSError, ValueError, datasets.exceptions.DatasetsError) as error:
        raise ValueError(
            f"The split {split!r} of the data set {name!r} cannot be loaded: {_first_line(error)}"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".") + "."


def _columns(dataset: datasets.Dataset, names: dict[str, str], where: str) -> datasets.Dataset:
    """The text columns called by the keys of `names`, renamed to its values; dots step into structs."""
    flat = dataset.flatten()
    for name in names:
        if name not in flat.column_names:
            raise ValueError(f"{where!r} has no field {name!r}; there are {', '.join(map(repr, flat.column_names))}.")
        feature = flat.features[name]
        if not isinstance(feature, datasets.Value) or feature.dtype not in ("string", "large_string"):
            kind = feature.dtype if isinstance(feature, datasets.Value) else type(feature).__name__
            raise ValueError(f"The field {name!r} of {where!r} must be text, but is {kind}.")
    return flat.select_columns(list(names)).rename_columns(names)


def _text_with_validation(config: PlainTextConfig) -> tuple[datasets.Dataset, datasets.Dataset]:
    text = read_text(Path(config.folder, config.train))
    if config.validation is not None:
        return _documents(config, text), _documents(config, read_text(Path(config.folder, config.validation)))
    assert config.validation_fraction is not None
    cut = int(len(text) * (1 - config.validation_fraction))
    if config.documents == "line":
        cut = text.rfind("\n", 0, cut) + 1
    return _documents(config, text[:cut]), _documents(config, text[cut:])


def _documents(config: PlainTextConfig, text: str) -> datasets.Dataset:
    return _texts([text] if config.documents == "file" else split_lines(text))


def _drop_blank(dataset: datasets.Dataset, what: str) -> datasets.Dataset:
    kept = []
    first_of_batch = 0
    for batch in dataset.iter(batch_size=10_000):
        rows = list(zip(*batch.values(), strict=True))
        kept += [first_of_batch + k for k, row in enumerate(rows) if all(cell and not cell.isspace() for cell in row)]
        first_of_batch += len(rows)
    num_dropped = len(dataset) - len(kept)
    if num_dropped == 0:
        return dataset
    logger.warning("Dropped %d of %d %s.", num_dropped, len(dataset), what)
    return dataset.select(kept)


def _refuse_missing(dataset: datasets.Dataset, split: str) -> None:
    first_of_batch = 0
    for batch in dataset.iter(batch_size=10_000):
        for column, cells in batch.items():
            if None in cells:
                row = first_of_batch + cells.index(None)
                raise ValueError(f"Every {split} pair must have two sides, but pair {row} (from 0) has no {column}.")
        first_of_batch += len(next(iter(batch.values())))


def _not_empty(dataset: datasets.Dataset, split: str) -> datasets.Dataset:
    if len(dataset) == 0:
        raise ValueError(f"The {split} split must have examples, but is empty.")
    return dataset
