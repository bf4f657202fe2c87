"""The data of a language-model run: windows and packed documents, mixtures, validation, and runs that go on."""

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from transformer.data.batches.collate import TextBatch
from transformer.data.batches.config import BatchingConfig, PreparationConfig
from transformer.data.config import TextDataConfig
from transformer.data.corpora.document_config import PlainTextConfig
from transformer.data.corpora.sources import open_source
from transformer.data.datamodule import StreamedTraining
from transformer.data.preparation.cache import Cache
from transformer.data.preparation.ids import prepare_ids
from transformer.data.preparation.texts import prepare_texts
from transformer.data.run_preparation import RunLimits
from transformer.data.subwords.config import ByteConfig, TokenizerConfig
from transformer.data.subwords.tokenizer import Tokenizer
from transformer.data.text_data import TextSetup, prepare_text

LENGTH = 16


def silent(what: str, done: int, total: int | None) -> None:
    """No progress is shown."""


def prepare(
    plain: dict[str, Any], cache: Path, *, tokenizer: TokenizerConfig | None = None, budget: int = 4 * LENGTH,
    streaming: bool = False, buffer: int | None = None, packing: bool = False, workers: int = 0, epochs: int = 1,
) -> TextSetup:  # fmt: skip
    data: TextDataConfig = TypeAdapter(TextDataConfig).validate_json(json.dumps(plain))
    return prepare_text(
        data,
        ByteConfig() if tokenizer is None else tokenizer,
        BatchingConfig(max_tokens_per_batch=budget, packing=packing, num_workers=workers),
        PreparationConfig(streaming=streaming, shuffle_buffer=buffer, cache_folder=str(cache)),
        RunLimits(LENGTH, 1, 10_000 if streaming else None, None if streaming else epochs),
        stored=None,
        progress=silent,
    )


def text(number: int) -> str:
    return f"document {number}: " + "abcdefgh "[: number % 9] * (number % 3)


def lines(folder: Path, start: int, stop: int, **settings: Any) -> dict[str, Any]:
    """Plain settings of documents, one a line, with two for validation and a blank one each."""
    folder.mkdir(exist_ok=True)
    for name, numbers in (("train", range(start, stop)), ("val", range(2))):
        content = "".join(text(number) + "\n" for number in numbers)
        (folder / f"{name}.txt").write_text(" \n" + content, encoding="utf-8")
    plain = {"name": "plain_text", "folder": str(folder), "train": "train.txt", "validation": "val.txt"}
    return plain | {"documents": "line"} | settings


def running(folder: Path, content: str, **settings: Any) -> dict[str, Any]:
    (folder / "train.txt").write_text(content, encoding="utf-8")
    (folder / "val.txt").write_text("the end.\n\n", encoding="utf-8")
    plain = {"name": "plain_text", "folder": str(folder), "train": "train.txt", "validation": "val.txt"}
    return plain | {"documents": "running"} | settings


def mixture(folder: Path, **settings: Any) -> dict[str, Any]:
    corpora = {name: lines(folder / name, *numbers) for name, numbers in (("one", (0, 40)), ("two", (100, 120)))}
    return {"name": "text_mixture", "corpora": corpora, **settings}


def predictions(batches: Iterable[TextBatch]) -> Counter[tuple[int, int]]:
    """How often each token is predicted after each."""
    pairs: Counter[tuple[int, int]] = Counter()
    for batch in batches:
        tokens, labels = batch.tokens_BL[batch.scored_BL], batch.labels_BL[batch.scored_BL]
        pairs.update(zip(tokens.tolist(), labels.tolist(), strict=True))
    return pairs


def marked(setup: TextSetup, numbers: Iterable[int]) -> list[list[int]]:
    tokenizer = setup.tokenizer
    return [[tokenizer.bos_id, *tokenizer.encode(text(number)), tokenizer.eos_id] for number in numbers]


@pytest.mark.parametrize("streaming", [False, True])
def test_packed_documents_are_all_there_each_for_itself(tmp_path: Path, streaming: bool) -> None:
    setup = prepare(lines(tmp_path, 0, 50), tmp_path / "cache", packing=True, streaming=streaming,
                    buffer=51 if streaming else None)  # fmt: skip
    loader = setup.data.train_dataloader()
    batches = []
    for batch in loader:
        if streaming and loader.state_dict()["pool"] == 1:  # a pool is a pass
            break
        batches.append(batch)
    expected = Counter(pair for ids in marked(setup, range(50)) for pair in itertools.pairwise(ids))
    assert predictions(batches) == expected


def test_windows_are_cut_from_the_documents_one_after_another(tmp_path: Path) -> None:
    setup = prepare(lines(tmp_path, 0, 50), tmp_path / "cache")
    stream = [index for ids in marked(setup, range(50)) for index in ids]
    seen = []
    for batch in setup.data.train_dataloader():
        assert batch.tokens_BL.shape[1] == LENGTH
        for start, tokens, labels in zip(
            batch.index_B.tolist(), batch.tokens_BL.tolist(), batch.labels_BL.tolist(), strict=True
        ):
            assert tokens == stream[start : start + LENGTH]
            assert labels == stream[start + 1 : start + LENGTH + 1]
            seen.append(start)
    assert len(seen) == len(set(seen)) == (len(stream) - LENGTH) // LENGTH


@pytest.mark.parametrize("streaming", [False, True])
def test_running_text_keeps_its_order_and_has_no_marks(tmp_path: Path, streaming: bool) -> None:
    content = "".join(f"line {number}\n" + "\n" * (number % 3 == 0) for number in range(200))
    setup = prepare(running(tmp_path, content), tmp_path / "cache", streaming=streaming)
    loader, tokenizer = setup.data.train_dataloader(), setup.tokenizer
    windows: dict[int, str] = {}
    for batch in loader:
        if streaming and loader.state_dict()["pool"] == 1:
            break
        assert not set(batch.tokens_BL[batch.scored_BL].tolist()) & {tokenizer.bos_id, tokenizer.eos_id}
        rows = zip(batch.index_B.tolist(), batch.labels_BL, batch.scored_BL, strict=True)
        windows |= {start: tokenizer.decode(labels[scored].tolist()) for start, labels, scored in rows}
    joined = "".join(windows[start] for start in sorted(windows))
    if streaming:
        assert joined == (content * 16)[1:]  # 16 pieces; this text is one, so a pool holds as many passes
    else:
        assert joined in content
        assert len(joined) > len(content) - 2 * LENGTH


def test_a_stream_of_running_text_holds_little_of_it_unless_told_otherwise(tmp_path: Path) -> None:
    plain, cache = running(tmp_path, "some text. " * 20), tmp_path / "cache"
    sizes = []
    for buffer in (None, 3):
        training = prepare(plain, cache, streaming=True, buffer=buffer).data.training
        assert isinstance(training, StreamedTraining)
        sizes.append(training.pool_size)
    documents = prepare(lines(tmp_path / "lines", 0, 9), cache, streaming=True).data.training
    assert isinstance(documents, StreamedTraining)
    assert [*sizes, documents.pool_size] == [16, 3, 10_000]


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize("streaming", [False, True])
def test_validation_scores_every_token_of_every_corpus_once(tmp_path: Path, packing: bool, streaming: bool) -> None:
    setup = prepare(mixture(tmp_path), tmp_path / "cache", packing=packing, streaming=streaming)
    documents = marked(setup, [0, 1, 0, 1])
    assert setup.validation.ids == documents  # blank ones are left out
    assert setup.validation.num_bytes == 2 * len((text(0) + text(1)).encode())
    found = predictions(setup.data.val_dataloader())
    if packing:
        assert found == Counter(pair for ids in documents for pair in itertools.pairwise(ids))
    else:
        assert found == Counter(itertools.pairwise([index for ids in documents for index in ids]))
    assert setup.num_scored == found.total()


def beginnings(batch: TextBatch, setup: TextSetup) -> list[int]:
    """The numbers of the documents that begin in a packed batch."""
    assert batch.segments_BL is not None
    return [
        int(match[1])
        for tokens, marks in zip(batch.tokens_BL, batch.segments_BL, strict=True)
        for mark in range(1, int(marks.max()) + 1)
        if (match := re.match("document ([0-9]+):", setup.tokenizer.decode(tokens[marks == mark].tolist())))
    ]


@pytest.mark.parametrize("kind", ["windows", "packed", "streamed"])
def test_a_mixture_has_its_shares(tmp_path: Path, kind: str) -> None:
    """Three quarters of the first corpus, of windows, of pieces of documents, or of documents."""
    plain = mixture(tmp_path, weights={"one": 3, "two": 1})
    make = partial(prepare, plain, tmp_path / "cache", packing=kind != "windows", epochs=4)
    setup = make(streaming=True, buffer=400) if kind == "streamed" else make()
    batches = list(itertools.islice(setup.data.train_dataloader(), 300))
    if kind == "windows":
        boundary = sum(map(len, marked(setup, range(40))))
        of_first = [index < boundary for batch in batches for index in batch.index_B.tolist()]
    else:
        of_first = [number < 100 for batch in batches for number in beginnings(batch, setup)]
    assert len(of_first) > 200
    assert sum(of_first) / len(of_first) == pytest.approx(0.75, abs=0.06)


def plain_batches(batches: Sequence[TextBatch]) -> list[Any]:
    return [[None if field is None else field.tolist() for field in batch] for batch in batches]


@pytest.mark.parametrize("kind", ["windows", "packed", "mixed windows", "mixed packed"])
def test_a_run_goes_on_from_every_place_as_if_it_had_not_stopped(tmp_path: Path, kind: str) -> None:
    plain = mixture(tmp_path, **({"weights": {"one": 1, "two": 2}} if "mixed" in kind else {}))
    make = partial(prepare, plain, tmp_path / "cache", packing="packed" in kind, epochs=2, budget=8 * LENGTH)
    setup = make()
    loader = setup.data.train_dataloader()
    expected, states = [], [loader.state_dict()]
    for batch in loader:
        expected.append(batch)
        states.append(loader.state_dict())
    counts = [setup.data.train_batches(1).num_batches(epoch) for epoch in range(2)]
    assert len(expected) == setup.data.num_batches() == sum(counts)
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


@pytest.mark.parametrize("streaming", [False, True])
def test_a_run_does_not_go_on_with_other_files(tmp_path: Path, streaming: bool) -> None:
    plain = lines(tmp_path, 0, 50)
    state = prepare(plain, tmp_path / "cache", streaming=streaming).data.train_dataloader().state_dict()
    prepare(plain, tmp_path / "cache", streaming=streaming).data.train_dataloader().load_state_dict(state)
    changed = prepare(lines(tmp_path, 1, 51), tmp_path / "cache", streaming=streaming).data.train_dataloader()
    with pytest.raises(ValueError, match=r"^the training data, .* have changed since .*; start a new run\.$"):
        changed.load_state_dict(state)


def test_marks_are_part_of_what_the_cache_holds(tmp_path: Path) -> None:
    config = PlainTextConfig.from_plain(lines(tmp_path, 0, 9))
    source = open_source("lines", config, "train")
    assert source is not None
    cache, tokenizer = Cache(tmp_path / "cache"), Tokenizer.train(ByteConfig(), [])
    texts = prepare_texts(source, config, cache, silent)
    with_marks, without = (
        prepare_ids(texts, [tokenizer], cache, silent, mark_documents=marks) for marks in (True, False)
    )
    assert with_marks.checksum != without.checksum
    for row in range(9):
        ids = tokenizer.encode(text(row))
        assert without.ids.ids(row, 0).tolist() == ids
        assert with_marks.ids.ids(row, 0).tolist() == [tokenizer.bos_id, *ids, tokenizer.eos_id]


def test_texts_without_anything_to_predict_are_one_sentence(tmp_path: Path) -> None:
    message = r"^`max_tokens_per_batch` must be at least the model's `max_length` \(16\), but is 15\.$"
    with pytest.raises(ValueError, match=message):
        prepare(lines(tmp_path, 0, 9), tmp_path / "cache", budget=15)
    with pytest.raises(ValueError, match=r"^the training text of plain_text has 1 tokens; at least 2 are needed\.$"):
        prepare(running(tmp_path, "a"), tmp_path / "cache")
    with pytest.raises(ValueError, match=r"^`data` must have a validation split, but has none\.$"):
        prepare(running(tmp_path, "abc", validation=None), tmp_path / "cache")
