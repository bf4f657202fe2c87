"""Data sets in the hub's layout, from folders on disk."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest
from pydantic import ValidationError

from transformer.data.corpora.document_config import HubTextConfig
from transformer.data.corpora.pair_config import HubPairsConfig
from transformer.data.corpora.sources import open_source
from transformer.data.preparation.report import CorpusReport
from transformer.data.text_data import read_documents
from transformer.data.translation_data import read_pairs

TrainingRows = Callable[..., tuple[list[tuple[str, ...]], CorpusReport]]
PAIRS = [("a house", "ein Haus"), ("a cat", "eine Katze"), ("two", "zwei")]


@pytest.fixture(autouse=True)
def _silence() -> None:
    datasets.disable_progress_bars()


def nested(pairs: list[tuple[str | None, str | None]]) -> datasets.Dataset:
    rows = [{"en": source, "de": target} for source, target in pairs]
    features = {"translation": datasets.Translation(languages=["en", "de"]), "id": datasets.Value("int64")}
    return datasets.Dataset.from_dict(
        {"translation": rows, "id": list(range(len(rows)))}, features=datasets.Features(features)
    )


@pytest.fixture
def hub_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    (folder / "data").mkdir(parents=True)
    nested([*PAIRS, (None, "leer"), ("empty", "")]).to_parquet(folder / "data" / "train-00000-of-00001.parquet")
    nested(list(PAIRS[:2])).to_parquet(folder / "data" / "validation-00000-of-00001.parquet")
    nested([("x", "y"), ("z", None)]).to_parquet(folder / "data" / "test-00000-of-00001.parquet")
    return folder


def hub(folder: Path | str, **settings: Any) -> HubPairsConfig:
    fields = {"source_field": "translation.en", "target_field": "translation.de"}
    return HubPairsConfig(**({"dataset": str(folder)} | fields | settings))


def test_hub_layout(hub_folder: Path, training_rows: TrainingRows) -> None:
    config = hub(hub_folder, test_split="validation[1:]")
    rows, report = training_rows(config)
    assert rows == PAIRS
    assert (report.read, report.kept, report.dropped) == (5, 3, {"blank": 2})
    missing, blank = report.examples["blank"]
    assert missing.where == f"row 3 of 'train' of '{hub_folder}'"
    assert missing.texts == (None, "leer")
    assert blank.texts == ("empty", "")
    for split, pairs in (("validation", PAIRS[:2]), ("test", PAIRS[1:2])):
        found = read_pairs(config, split)
        assert found is not None
        assert found.rows == pairs
    assert read_pairs(hub(hub_folder), "test") is None


def test_hub_faults(hub_folder: Path, training_rows: TrainingRows) -> None:
    with pytest.raises(ValueError, match=r"The split 'dev' of the data set .* cannot be loaded: Unknown split"):
        read_pairs(hub(hub_folder, validation_split="dev"), "validation")
    with pytest.raises(ValueError, match=r"cannot be loaded: .*'en-fr' not found"):
        training_rows(hub(hub_folder, subset="en-fr"))
    with pytest.raises(ValueError, match=r"has no field 'en'; there are 'translation\.de', 'translation\.en', 'id'\."):
        training_rows(hub(hub_folder, source_field="en"))
    with pytest.raises(ValueError, match=r"The field 'id' of '.*corpus' must be text, but is int64\."):
        training_rows(hub(hub_folder, source_field="id"))
    message = r"must have two sides, but row 1 of 'test' of '.*corpus' has no target\."
    with pytest.raises(ValueError, match=message):
        read_pairs(hub(hub_folder, test_split="test"), "test")
    with pytest.raises(ValueError, match=message):
        read_pairs(hub(hub_folder, validation_split="test"), "validation")
    with pytest.raises(ValueError, match=r"`revision` has no meaning for a local folder"):
        training_rows(hub(hub_folder, revision="main"))
    with pytest.raises(ValueError, match=r"^The folder '.*/nowhere' does not exist\.$"):
        training_rows(hub(hub_folder / "nowhere"))


def test_hub_out_of_reach_is_one_sentence(monkeypatch: pytest.MonkeyPatch, training_rows: TrainingRows) -> None:
    def unreachable(*args: object, **kwargs: object) -> None:
        raise ConnectionError("Couldn't reach 'some/corpus' on the Hub\nand more lines")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    message = r"'some/corpus' is no local folder, and the Hugging Face hub cannot be reached: .* Hub\.$"
    with pytest.raises(ValueError, match=message):
        training_rows(hub("some/corpus"))
    with pytest.raises(ValueError, match=message):
        open_source("corpus", hub("some/corpus"), "train", streaming=True)


def test_streaming_gives_the_same_rows(hub_folder: Path) -> None:
    whole, stream = (
        open_source("corpus", hub(hub_folder), "train", streaming=streaming) for streaming in (False, True)
    )
    assert whole is not None
    assert stream is not None
    assert list(stream.rows()) == list(whole.rows())
    assert [row for _, row in whole.rows()] == [*PAIRS, (None, "leer"), ("empty", "")]
    [shard], [read] = whole.shards, stream.shards
    for skip in (0, 2, 5, 6):
        assert list(shard.read(skip=skip)) == list(read.read(skip=skip))
    assert (whole.num_rows(), stream.num_rows()) == (5, None)
    assert stream.where(3) == whole.where(3) == f"row 3 of 'train' of '{hub_folder}'"


@pytest.mark.parametrize("streaming", [False, True])
def test_held_out_rows_are_validation_and_never_training(hub_folder: Path, streaming: bool) -> None:
    config = hub(hub_folder, validation_split=None, held_out_rows=2)
    train = open_source("corpus", config, "train", streaming=streaming)
    validation = open_source("corpus", config, "validation", streaming=streaming)
    assert train is not None
    assert validation is not None
    assert [row for _, row in validation.rows()] == PAIRS[:2]
    assert [row for _, row in train.rows()] == [PAIRS[2], (None, "leer"), ("empty", "")]
    assert list(train.shards[0].read(skip=2)) == [("empty", "")]  # a run that goes on
    assert list(validation.shards[0].read(skip=1)) == PAIRS[1:2]
    assert train.where(1) == f"row 3 of 'train' of '{hub_folder}'"  # as the data set counts
    identities = {source.identity() for source in (train, validation)}
    for number in (None, 1):
        changed = hub(hub_folder, validation_split=None, held_out_rows=number)
        other = open_source("corpus", changed, "train", streaming=streaming)
        assert other is not None
        identities.add(other.identity())
    assert len(identities) == 4


@pytest.mark.parametrize("held_out", [5, 6, 9])
def test_held_out_rows_that_leave_nothing_are_refused(hub_folder: Path, held_out: int) -> None:
    config = hub(hub_folder, validation_split=None, held_out_rows=held_out)
    message = rf"^`held_out_rows` must be below the number of rows of 'train' of '.*' \(5\), but is {held_out}\.$"
    with pytest.raises(ValueError, match=message):
        open_source("corpus", config, "train")
    validation = open_source("corpus", config, "validation")  # read first, also before a stream
    assert validation is not None
    with pytest.raises(ValueError, match=message):
        list(validation.rows())
    with pytest.raises(ValidationError, match="`validation_split` and `held_out_rows` exclude each other"):
        hub(hub_folder, held_out_rows=2)


def test_a_fault_in_a_stream_without_its_first_rows_names_the_row_of_the_data_set(tmp_path: Path) -> None:
    rows = "\n".join(json.dumps(row) for row in ({"text": "one"}, {"text": "two"}, {"text": 3}))
    (tmp_path / "train.jsonl").write_text(rows)
    config = HubTextConfig(dataset=str(tmp_path), validation_split=None, held_out_rows=1)
    source = open_source("corpus", config, "train", streaming=True)
    assert source is not None
    [(_, row), (place, fault)] = source.rows()
    assert row == ("two",)
    assert "row 2 of 'train'" in str(fault)
    assert source.where(place) in str(fault)


def stream_identity(folder: Path | str, **settings: Any) -> str:
    source = open_source("corpus", hub(folder, **settings), "train", streaming=True)
    assert source is not None
    return source.identity()


def test_a_stream_of_a_folder_is_told_apart_by_its_files(hub_folder: Path, tmp_path: Path) -> None:
    before = stream_identity(hub_folder)
    moved = hub_folder.rename(tmp_path / "elsewhere")
    assert stream_identity(moved) == before
    assert stream_identity(moved, train_split="validation") != before
    file = moved / "data" / "train-00000-of-00001.parquet"
    nested(list(PAIRS[1:])).to_parquet(file)
    changed = stream_identity(moved)
    assert changed != before
    # Which split a file belongs to, and its turn, is in its name.
    file.rename(file.with_name("train-00001-of-00002.parquet"))
    renamed = stream_identity(moved)
    assert renamed != changed
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "data").symlink_to(moved / "data", target_is_directory=True)
    assert stream_identity(linked) == renamed


def test_a_stream_of_the_hub_is_told_apart_by_name_and_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **settings: datasets.IterableDataset)
    identities = {
        stream_identity(name, revision=revision) for name in ("some/corpus", "some/other") for revision in (None, "v1")
    }
    assert len(identities) == 4


def test_hub_text(tmp_path: Path, training_rows: TrainingRows, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    for split, texts in (("train", ["one", "", "two"]), ("validation", ["three", " "])):
        lines = [json.dumps({"meta": {"body": text}}) for text in texts]
        (folder / f"{split}.jsonl").write_text("\n".join(lines))
    config = HubTextConfig(dataset=str(folder), text_field="meta.body")
    rows, report = training_rows(config)
    assert rows == [("one",), ("two",)]
    assert (report.read, report.dropped) == (3, {"blank": 1})
    assert read_documents(config, "validation") == ["three"]
    assert caplog.messages == ["hub_text: left out 1 blank of 2 documents to be scored."]


def test_validation_of_a_stream_copies_nothing(
    hub_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of one split is one of all of them."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "copies")
    train = open_source("corpus", hub(hub_folder), "train", streaming=True)
    assert train is not None
    assert len(list(train.rows())) == 5
    found = read_pairs(hub(hub_folder), "validation")
    assert found is not None
    assert found.rows == PAIRS[:2]
    assert list((tmp_path / "copies").rglob("*.arrow")) == []


def test_what_the_hub_does_not_give_may_be_copied_already(hub_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = datasets.load_dataset

    def without_network(*given: Any, streaming: bool = False, **named: Any) -> Any:
        if streaming:
            raise ConnectionError("Offline mode is enabled.")
        return load(*given, **named)

    monkeypatch.setattr(datasets, "load_dataset", without_network)
    found = read_pairs(hub(hub_folder), "validation")
    assert found is not None
    assert found.rows == PAIRS[:2]


def test_a_data_set_that_is_a_program_is_one_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    (folder / "old.py").write_text("")
    with pytest.raises(
        ValueError, match=r"The split 'train' of the data set '.*old' cannot be loaded: Dataset scripts"
    ):
        open_source("corpus", hub(folder), "train")


def test_held_out_rows_need_a_whole_split(hub_folder: Path) -> None:
    with pytest.raises(ValidationError, match=r"but `train_split` is a slice of one, train\[:90%\]\."):
        hub(hub_folder, validation_split=None, held_out_rows=2, train_split="train[:90%]")
