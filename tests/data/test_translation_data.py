"""The data of a translation run from files to batches: caches, mixtures, validation, and runs that go on."""

import itertools
import json
import logging
import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from transformer.data.batches.collate import TranslationBatch
from transformer.data.batches.config import BatchingConfig, PreparationConfig
from transformer.data.config import TranslationDataConfig
from transformer.data.datamodule import MappedTraining
from transformer.data.run_preparation import RunLimits
from transformer.data.subwords.config import BpeConfig, ByteConfig, TokenizerConfig
from transformer.data.translation_data import TranslationSetup, prepare_translation

WIDTH = 60


def silent(what: str, done: int, total: int | None) -> None:
    """No progress is shown."""


def config_of(plain: dict[str, Any]) -> TranslationDataConfig:
    config: TranslationDataConfig = TypeAdapter(TranslationDataConfig).validate_json(json.dumps(plain))
    return config


def prepare(
    plain: dict[str, Any], cache: Path, *, tokenizer: TokenizerConfig | None = None, budget: int = 2000,
    streaming: bool = False, buffer: int | None = None, packing: bool = False, workers: int = 0,
    width: int = WIDTH, max_epochs: int | None = 1, max_batches: int | None = None, seed: int = 1,
) -> TranslationSetup:  # fmt: skip
    return prepare_translation(
        config_of(plain),
        ByteConfig() if tokenizer is None else tokenizer,
        BatchingConfig(max_tokens_per_batch=budget, packing=packing, num_workers=workers),
        PreparationConfig(streaming=streaming, shuffle_buffer=buffer, cache_folder=str(cache)),
        RunLimits(width, seed, 10_000 if streaming else max_batches, None if streaming else max_epochs),
        stored=None,
        progress=silent,
    )


Pair = tuple[str, str]


def numbered(start: int, stop: int) -> list[Pair]:
    """Pairs that carry their number on both sides; every ninth source is blank, and some pairs are too long."""
    pairs = []
    for number in range(start, stop):
        source = " " if number % 9 == 4 else f"number {number}" + " and so on" * (number % 7)
        pairs.append((source, f"Nummer {number}" + " usw." * (number * 7 % 5)))
    return pairs


def write_tsv(folder: Path, name: str, pairs: Sequence[Pair]) -> None:
    text = "".join(f"{source}\t{target}\n" for source, target in pairs)
    (folder / f"{name}.tsv").write_text("en\tde\n" + text, encoding="utf-8")


def corpus(folder: Path, pairs: Sequence[Pair], **settings: Any) -> dict[str, Any]:
    """Plain settings of a corpus with two validation pairs."""
    write_tsv(folder, "train", pairs)
    write_tsv(folder, "val", [("number 5", "Nummer 5"), ("number 6 and", "Nummer 6")])
    files = {"folder": str(folder), "train": "train.tsv", "validation": "val.tsv"}
    return {"name": "tsv", **files, "source_column": "en", "target_column": "de", **settings}


def folders(cache: Path, kind: str) -> set[str]:
    return {path.name for path in cache.iterdir() if path.is_dir() and path.name.startswith(f"{kind}-")}


def test_what_the_cache_holds_depends_on_files_filters_and_tokenizer(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    plain = corpus(tmp_path, numbered(0, 50))
    checksums = []

    def counts(plain: dict[str, Any], **settings: Any) -> tuple[int, int, int]:
        setup = prepare(plain, cache, **settings)
        assert isinstance(setup.data.training, MappedTraining)
        checksums.append(setup.data.training.checksum)
        return len(folders(cache, "texts")), len(folders(cache, "tokenizer")), len(folders(cache, "ids"))

    bpe = BpeConfig(vocab_size=280)
    assert counts(plain) == (1, 1, 1)
    before = {path: path.stat().st_mtime_ns for path in cache.rglob("*.arrow")}
    assert counts(plain) == (1, 1, 1)
    assert counts(plain, budget=300, packing=True, seed=9) == (1, 1, 1)  # batches are no part of it
    assert {path: path.stat().st_mtime_ns for path in cache.rglob("*.arrow")} == before
    assert counts(plain, tokenizer=bpe) == (1, 2, 2)
    assert counts(plain, tokenizer=bpe.model_copy(update={"dropout": 0.5})) == (1, 2, 2)  # cut anew all the time
    assert counts(plain | {"filters": {"max_characters": 30}}) == (2, 3, 3)
    assert counts(plain | {"source_column": "de", "target_column": "en"}) == (3, 4, 4)
    # The same size and another content; and even the same time of change.
    path = tmp_path / "train.tsv"
    status = path.stat()
    path.write_text(path.read_text(encoding="utf-8").replace("number 8 ", "number 3 "), encoding="utf-8")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert counts(plain) == (4, 5, 5)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert counts(plain) == (5, 6, 6)
    (tmp_path / "val.tsv").write_text("en\tde\nother\tanders\n", encoding="utf-8")
    assert counts(plain) == (5, 6, 6)
    assert checksums[0] == checksums[1] == checksums[2]
    assert len({checksums[0], checksums[3], checksums[5], checksums[6], checksums[7]}) == 5


@pytest.mark.parametrize("file", ["texts.arrow", "ids.arrow", "report.json", "tokenizer.json", "manifest.json"])
def test_damage_of_the_cache_never_reaches_a_batch(tmp_path: Path, file: str, caplog: pytest.LogCaptureFixture) -> None:
    plain = corpus(tmp_path, numbered(0, 60))
    expected = prepare(plain, tmp_path / "cache", tokenizer=BpeConfig(vocab_size=280))
    batches = [batch.source_BS.tolist() for batch in expected.data.train_dataloader()]
    paths = list((tmp_path / "cache").glob(f"*/{file}"))
    assert paths
    for path in paths:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 4
        path.write_bytes(content)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        setup = prepare(plain, tmp_path / "cache", tokenizer=BpeConfig(vocab_size=280))
    assert sum(f"is damaged ({file}) and is made anew" in message for message in caplog.messages) == len(paths)
    assert [batch.source_BS.tolist() for batch in setup.data.train_dataloader()] == batches
    assert setup.report == expected.report


def mixture(folder: Path, **settings: Any) -> dict[str, Any]:
    """90 pairs into German and 30 into French, with validation pairs of both, and a third corpus without any."""
    corpora = {}
    for name, tag, start, stop in (("de", "<2de>", 0, 100), ("fr", "<2fr>", 100, 133), ("other", None, 200, 220)):
        (folder / name).mkdir()
        pairs = [pair for pair in numbered(start, stop) if pair[0].strip()]
        plain = corpus(folder / name, pairs, tag=tag)
        corpora[name] = plain | ({"validation": None} if tag is None else {})
    return {"name": "mixture", "corpora": corpora, **settings}


def test_a_mixture_has_the_tags_of_its_corpora_in_training_and_validation(tmp_path: Path) -> None:
    setup = prepare(mixture(tmp_path), tmp_path / "cache", width=100)
    assert setup.validation.rows == [("number 5", "Nummer 5"), ("number 6 and", "Nummer 6")] * 2
    assert setup.validation.tags == ["<2de>", "<2de>", "<2fr>", "<2fr>"]
    source = setup.tokenizers.source
    tags = [source.tag_id("<2de>"), source.tag_id("<2fr>")]
    numbers: dict[int, list[int]] = {}
    for batch in setup.data.train_dataloader():
        for ids, mask in zip(batch.source_BS.tolist(), batch.source_mask_BS, strict=True):
            first = ids[0] if ids[0] in tags else 0
            assert sum(index in tags for index in ids) == (first != 0)
            number = int(re.findall("[0-9]+", source.decode(ids[: int(mask.sum())]))[0])
            numbers.setdefault(first, []).append(number)
    expected = {tags[0]: range(100), tags[1]: range(100, 133), 0: range(200, 220)}
    assert {tag: sorted(found) for tag, found in numbers.items()} == {
        tag: [number for number in found if number % 9 != 4] for tag, found in expected.items()
    }
    validation = {
        index: ids
        for batch in setup.data.val_dataloader()
        for index, ids in zip(batch.index_B.tolist(), batch.source_BS.tolist(), strict=True)
    }
    assert [validation[index][0] for index in range(4)] == [tags[0], tags[0], tags[1], tags[1]]


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("settings", "expected"),
    [({"weights": {"de": 1, "fr": 2, "other": 5}}, [1 / 8, 2 / 8, 5 / 8]), ({"temperature": 1e6}, [1 / 3] * 3)],
)
def test_a_mixture_has_its_shares(
    tmp_path: Path, settings: dict[str, Any], expected: list[float], streaming: bool
) -> None:
    setup = prepare(mixture(tmp_path, **settings), tmp_path / "cache", streaming=streaming, width=100, max_epochs=3,
                    buffer=300 if streaming else None)  # fmt: skip
    batches = itertools.islice(setup.data.train_dataloader(), 40) if streaming else setup.data.train_dataloader()
    found = [0, 0, 0]
    for batch in batches:
        for ids in batch.source_BS.tolist():
            number = int(re.findall("[0-9]+", setup.tokenizers.source.decode(ids))[0])
            found[0 if number < 100 else 1 if number < 200 else 2] += 1
    shares = [count / sum(found) for count in found]
    assert shares == pytest.approx(expected, abs=0.05 if streaming else 0.01)


def test_a_corpus_of_a_mixture_of_which_nothing_fits_is_one_sentence(tmp_path: Path) -> None:
    plain = mixture(tmp_path, weights={"de": 1, "fr": 1, "other": 1})
    (tmp_path / "fr" / "train.tsv").write_text("en\tde\n" + "long " * 50 + "\tx\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"^no training example of the corpus 'fr' is left to mix\.$"):
        prepare(plain, tmp_path / "cache", width=100)
    del plain["weights"]
    assert prepare(plain, tmp_path / "cache", width=100).data.num_batches() > 0


def plain_batches(batches: Sequence[TranslationBatch]) -> list[Any]:
    return [[None if field is None else field.tolist() for field in batch] for batch in batches]


@pytest.mark.parametrize("kind", ["buckets", "packed", "mixed", "dropout"])
def test_a_run_goes_on_from_every_place_as_if_it_had_not_stopped(tmp_path: Path, kind: str) -> None:
    plain = mixture(tmp_path, **({"weights": {"de": 1, "fr": 1, "other": 2}} if kind == "mixed" else {}))
    tokenizer = BpeConfig(vocab_size=270, dropout=0.2 if kind == "dropout" else 0.0)
    make = partial(prepare, plain, tmp_path / "cache", tokenizer=tokenizer, budget=400, packing=kind == "packed",
                   width=100, max_epochs=2)  # fmt: skip
    setup = make()
    data, loader = setup.data, setup.data.train_dataloader()
    expected, states = [], [loader.state_dict()]
    for batch in loader:
        expected.append(batch)
        states.append(loader.state_dict())
    counts = [data.train_batches(1).num_batches(epoch) for epoch in range(2)]
    assert len(expected) == data.num_batches() == sum(counts)
    uninterrupted = plain_batches(expected)
    assert uninterrupted[: counts[0]] != uninterrupted[counts[0] :]
    for position, state in enumerate(states):
        resumed = (setup if position % 5 else make()).data.train_dataloader()
        resumed.load_state_dict(state)
        rest = [(batch, resumed.state_dict()) for batch in resumed]
        assert plain_batches([batch for batch, _ in rest]) == uninterrupted[position:]
        assert [later for _, later in rest] == states[position + 1 :]  # to be resumed again
    middle = len(expected) // 2
    with_workers = make(workers=2).data.train_dataloader()
    with_workers.load_state_dict(states[middle])
    assert plain_batches(list(with_workers)) == uninterrupted[middle:]


def test_epochs_of_different_numbers_of_batches_are_each_taken_whole(tmp_path: Path) -> None:
    plain = mixture(tmp_path, weights={"de": 1, "fr": 1, "other": 2})
    setup = prepare(plain, tmp_path / "cache", budget=300, width=100, max_epochs=6)
    batches = setup.data.train_batches(1)
    counts = [batches.num_batches(epoch) for epoch in range(6)]
    assert len(set(counts)) > 1
    assert len(list(setup.data.train_dataloader())) == setup.data.num_batches() == sum(counts)
    sizes = [sum(map(len, batches.epoch(epoch))) for epoch in range(6)]
    assert len(set(sizes)) == 1
    shorter = prepare(plain, tmp_path / "cache", budget=300, width=100, max_epochs=6, max_batches=counts[0] + 1)
    assert shorter.data.num_batches() == counts[0] + 1


@pytest.mark.parametrize("streaming", [False, True])
def test_a_run_does_not_go_on_with_other_files(tmp_path: Path, streaming: bool) -> None:
    plain = corpus(tmp_path, numbered(0, 50))
    state = prepare(plain, tmp_path / "cache", streaming=streaming).data.train_dataloader().state_dict()
    prepare(plain, tmp_path / "cache", streaming=streaming).data.train_dataloader().load_state_dict(state)
    write_tsv(tmp_path, "train", numbered(1, 51))
    changed = prepare(plain, tmp_path / "cache", streaming=streaming).data.train_dataloader()
    with pytest.raises(ValueError, match=r"^the training data, .* have changed since .*; start a new run\.$"):
        changed.load_state_dict(state)


@pytest.mark.parametrize("streaming", [False, True])
def test_validation_pairs_are_all_there_and_never_drawn_at_random(
    tmp_path: Path, streaming: bool, caplog: pytest.LogCaptureFixture
) -> None:
    plain = corpus(tmp_path, numbered(0, 50), filters={"min_characters": 11})
    write_tsv(tmp_path, "val", [("x", "y" * 90), ("number 5 and so on", "z"), ("x", "y")])
    setup = prepare(plain, tmp_path / "cache", tokenizer=BpeConfig(vocab_size=280, dropout=0.5), streaming=streaming)
    bpe = setup.tokenizers.source
    (message,) = [message for message in caplog.messages if "validation" in message]
    assert re.match(r"1 of 3 validation pairs are longer than `max_length` \(60 tokens\), .*; they are cut\.$", message)
    for _ in range(2):
        found = {}
        for batch in setup.data.val_dataloader():
            for number, ids, mask in zip(batch.index_B.tolist(), batch.labels_BT, batch.scored_BT, strict=True):
                found[number] = ids[mask].tolist()
        expected = [bpe.encode("y" * 90)[: WIDTH - 1], bpe.encode("z"), bpe.encode("y")]
        assert [found[number] for number in range(3)] == [[*ids, bpe.eos_id] for ids in expected]


def test_settings_that_do_not_go_together_are_one_sentence(tmp_path: Path) -> None:
    plain = corpus(tmp_path, numbered(0, 50))
    with pytest.raises(
        ValueError, match=r"`batching.packing` makes rows of the model's `max_length` \(60\), but .* 50"
    ):
        prepare(plain, tmp_path / "cache", budget=50, packing=True)
    message = "`filters.duplicates` of the corpus 'tsv' needs to know all of it, so it cannot go with `preparation"
    with pytest.raises(ValueError, match=message):
        prepare(plain | {"filters": {"duplicates": "pair"}}, tmp_path / "cache", streaming=True)
    with pytest.raises(ValueError, match=r"^`data` must have a validation split, but has none\.$"):
        prepare(plain | {"validation": None}, tmp_path / "cache")
