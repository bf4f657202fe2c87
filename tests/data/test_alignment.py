"""Alignment: whatever the format and the way to the model, both sides of an example are those of the row it names."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import TypeAdapter
from torch import Tensor

from transformer.data.batches.collate import TranslationBatch
from transformer.data.batches.config import BatchingConfig, PreparationConfig
from transformer.data.batches.pairs import CorpusPairs, FittedPairs, PairExamples
from transformer.data.config import TranslationDataConfig
from transformer.data.datamodule import MappedTraining
from transformer.data.run_preparation import RunLimits
from transformer.data.subwords.config import ByteConfig
from transformer.data.subwords.tokenizer import Tokenizer
from transformer.data.translation_data import TranslationSetup, prepare_translation

Pair = tuple[str, str]


def numbered(start: int, stop: int) -> list[Pair]:
    """Pairs that carry their number on both sides; every ninth source is blank, and some pairs are too long."""
    pairs = []
    for number in range(start, stop):
        source = " " if number % 9 == 4 else f"number {number}" + " and so on" * (number % 7)
        pairs.append((source, f"Nummer {number}" + " usw." * (number * 7 % 5)))
    return pairs


def write_parallel(folder: Path, name: str, pairs: Sequence[Pair]) -> None:
    for side, language in enumerate(("en", "de")):
        text = "".join(pair[side] + "\n" for pair in pairs)
        (folder / f"{name}.{language}").write_text(text, encoding="utf-8")


def write_tsv(folder: Path, name: str, pairs: Sequence[Pair]) -> None:
    text = "".join(f"{source}\t{target}\n" for source, target in pairs)
    (folder / f"{name}.tsv").write_text("en\tde\n" + text, encoding="utf-8")


def write_jsonl(folder: Path, name: str, pairs: Sequence[Pair]) -> None:
    text = "".join(json.dumps({"source": source, "target": target}) + "\n" for source, target in pairs)
    (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")


def write_parquet(folder: Path, name: str, pairs: Sequence[Pair]) -> None:
    table = pa.table({"source": [source for source, _ in pairs], "target": [target for _, target in pairs]})
    pq.write_table(table, folder / f"{name}.parquet", row_group_size=300)


def write_tmx(folder: Path, name: str, pairs: Sequence[Pair]) -> None:
    units = "".join(
        f'<tu><tuv xml:lang="de"><seg>{target}</seg></tuv><tuv xml:lang="en"><seg>{source}</seg></tuv></tu>\n'
        for source, target in pairs
    )
    (folder / f"{name}.tmx").write_text(f'<tmx version="1.4"><body>{units}</body></tmx>', encoding="utf-8")


FORMATS: dict[str, tuple[Callable[[Path, str, Sequence[Pair]], None], dict[str, Any]]] = {
    "parallel_text": (write_parallel, {}),
    "tsv": (write_tsv, {"source_column": "en", "target_column": "de"}),
    "jsonl": (write_jsonl, {}),
    "parquet": (write_parquet, {}),
    "tmx": (write_tmx, {"source_language": "en", "target_language": "de"}),
}


def corpus(folder: Path, name: str, parts: Sequence[Sequence[Pair]], **settings: Any) -> dict[str, Any]:
    """Plain settings of a corpus in the format `name`, with two validation pairs."""
    write, own = FORMATS[name]
    for part, pairs in enumerate(parts):
        write(folder, f"train-{part}", pairs)
    write(folder, "val", [("number 5", "Nummer 5"), ("number 6 and", "Nummer 6")])
    if name == "parallel_text":
        files = {"train_source": "train-*.en", "train_target": "train-*.de"}
        files |= {"validation_source": "val.en", "validation_target": "val.de"}
    else:
        files = {"train": f"train-*.{name}", "validation": f"val.{name}"}
    return {"name": name, "folder": str(folder), **files, **own, **settings}


def prepare(plain: dict[str, Any], cache: Path, *, streaming: bool, packing: bool) -> TranslationSetup:
    data: TranslationDataConfig = TypeAdapter(TranslationDataConfig).validate_json(json.dumps(plain))
    return prepare_translation(
        data,
        ByteConfig(),
        BatchingConfig(max_tokens_per_batch=2000, packing=packing),
        PreparationConfig(streaming=streaming, shuffle_buffer=500 if streaming else None, cache_folder=str(cache)),
        RunLimits(60, 1, 10_000 if streaming else None, None if streaming else 1),
        stored=None,
        progress=lambda what, done, total: None,
    )


def _parts(ids_BL: Tensor, mask_BL: Tensor, segments_BL: Tensor | None) -> list[Tensor]:
    marks_BL = mask_BL.long() if segments_BL is None else segments_BL
    return [
        ids[marks == mark]
        for ids, marks in zip(ids_BL, marks_BL, strict=True)
        for mark in range(1, int(marks.max()) + 1)
    ]


def sides_of(batch: TranslationBatch, tokenizer: Tokenizer) -> Iterator[tuple[int, str, str]]:
    """Each example of a batch, packed or not: its index, and its source and target as the model sees them."""
    sources = _parts(batch.source_BS, batch.source_mask_BS, batch.source_segments_BS)
    targets = _parts(batch.labels_BT, batch.scored_BT, batch.target_segments_BT)
    for index, source, target in zip(batch.index_B.tolist(), sources, targets, strict=True):
        yield index, tokenizer.decode(source.tolist()), tokenizer.decode(target.tolist())


def pairs_behind(setup: TranslationSetup) -> CorpusPairs:
    assert isinstance(setup.data.training, MappedTraining)
    examples = setup.data.training.examples
    assert isinstance(examples, PairExamples)
    assert isinstance(examples.pairs, FittedPairs)
    assert isinstance(examples.pairs.pairs, CorpusPairs)
    return examples.pairs.pairs


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_both_sides_of_every_example_are_those_of_the_row_it_names(
    tmp_path: Path, name: str, streaming: bool, packing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformer.data.preparation.texts.ROWS", 300)  # several record batches
    parts = [numbered(0, 1200), numbered(1200, 2000)]
    plain = corpus(tmp_path, name, parts, filters={"max_length_ratio": 3.0, "max_characters": 50})
    setup = prepare(plain, tmp_path / "cache", streaming=streaming, packing=packing)
    # What stays, found in another way: no blank source, at most 50 characters, not three times as long as the other.
    kept = {
        (shard, row): pair
        for shard, pairs in enumerate(parts)
        for row, pair in enumerate(pairs)
        if pair[0].strip() and max(map(len, pair)) <= 50 and max(map(len, pair)) <= 3 * min(map(len, pair))
    }
    assert 1000 < len(kept) < 1600
    table = None if streaming else pairs_behind(setup).corpora[0].ids
    places = None if table is None else [table.place(row) for row in range(len(table))]
    seen = []
    for batch in setup.data.train_dataloader():
        for index, source, target in sides_of(batch, setup.tokenizers.source):
            at = index if places is None else places[index]
            seen.append((at >> 40, at & ((1 << 40) - 1)))
            assert kept[seen[-1]] == (source, target)
            assert re.findall("[0-9]+", source) == re.findall("[0-9]+", target)
        if streaming and len(seen) >= len(kept):
            break
    assert sorted(seen[: len(kept)]) == sorted(kept)  # a pass has each once
