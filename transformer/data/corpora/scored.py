"""Validation and test splits, in memory and whole: what is scored must be all there."""

import logging
from collections.abc import Mapping

from transformer.data.corpora.document_config import HubTextConfig
from transformer.data.corpora.pair_config import HubPairsConfig
from transformer.data.corpora.sources import CorpusConfig, Source, open_source

log = logging.getLogger(__name__)


def read_all(source: Source, *, keep_blank: bool = False) -> list[tuple[str, ...]]:
    """A validation or test split, in memory. Of pairs every row is there; blank documents are left out, and counted.

    Args:
        source: the split.
        keep_blank: blank documents are pieces of running text, and stay.

    Raises:
        ValueError: A row cannot be read or lacks a side, or the split is empty.
    """
    rows: list[tuple[str, ...]] = []
    num_blank = 0
    for place, row in source.rows():
        if isinstance(row, ValueError):
            raise row
        if not keep_blank and source.num_sides == 1 and (row[0] is None or not row[0].strip()):
            num_blank += 1
            continue
        texts = tuple(text for text in row if text is not None)
        if len(texts) < len(row):
            side = ("source", "target")[row.index(None)]
            raise ValueError(f"Every pair to be scored must have two sides, but {source.where(place)} has no {side}.")
        rows.append(texts)
    if num_blank:
        log.warning(
            "%s: left out %d blank of %d documents to be scored.", source.name, num_blank, num_blank + len(rows)
        )
    if not rows:
        raise ValueError(f"A split to be scored must have examples, but that of {source.name} has none.")
    return rows


def check_test_files(corpora: Mapping[str, CorpusConfig]) -> None:
    """Say what is wrong with a test set before the training, and not after it.

    Data sets of the hub are left out: to open one may download it.

    Raises:
        ValueError: A file is missing, or cannot be read, or files of two sides do not match.
    """
    for name, config in corpora.items():
        if isinstance(config, HubPairsConfig | HubTextConfig):
            continue
        source = open_source(name, config, "test")
        if source is not None:
            read_all(source, keep_blank=True)
