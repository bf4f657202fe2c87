"""Corpora from files, from folders in the hub's layout, and from Python itself."""

import gzip
import json
import logging
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import datasets
import pytest

from transformer.data.corpora import load_pairs, load_texts
from transformer.data.document_config import HubTextConfig, PlainTextConfig, PythonDocsConfig
from transformer.data.pair_config import (
    HubPairsConfig,
    JsonlConfig,
    ParallelTextConfig,
    ParquetConfig,
    PhrasesConfig,
    TsvConfig,
)

PAIRS = [("a house", "ein Haus"), ("a cat", "eine Katze"), ("two", "zwei")]


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()


def pairs_of(split: datasets.Dataset | None) -> list[tuple[str, str]]:
    assert split is not None
    assert split.column_names == ["source", "target"]
    return list(zip(split["source"], split["target"], strict=True))


def text_files(folder: Path, suffix: str = "", **splits: list[tuple[str, str]]) -> ParallelTextConfig:
    files = {}
    for split, pairs in splits.items():
        for side, lines in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
            content = "".join(line + "\n" for line in lines).encode()
            files[f"{split}_{side}"] = f"{split}.{side}{suffix}"
            (folder / f"{split}.{side}{suffix}").write_bytes(gzip.compress(content) if suffix == ".gz" else content)
    return ParallelTextConfig(folder=str(folder), **files)


def nested(pairs: list[tuple[str | None, str | None]]) -> datasets.Dataset:
    rows = [{"en": source, "de": target} for source, target in pairs]
    features = {"translation": datasets.Translation(languages=["en", "de"]), "id": datasets.Value("int64")}
    return datasets.Dataset.from_dict(
        {"translation": rows, "id": list(range(len(rows)))}, features=datasets.Features(features)
    )


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_parallel_text(tmp_path: Path, suffix: str) -> None:
    config = text_files(tmp_path, suffix, train=PAIRS, validation=PAIRS[:2], test=PAIRS[1:])
    splits = load_pairs(config)
    assert [pairs_of(split) for split in splits] == [PAIRS, PAIRS[:2], PAIRS[1:]]


def test_without_a_test_set_there_is_none(tmp_path: Path) -> None:
    assert load_pairs(text_files(tmp_path, train=PAIRS, validation=PAIRS)).test is None


def test_relative_paths_start_from_the_folder_and_absolute_ones_do_not(tmp_path: Path) -> None:
    config = text_files(tmp_path, train=PAIRS, validation=PAIRS)
    moved = config.model_copy(update={"folder": "elsewhere", "train_source": str(tmp_path / "train.source")})
    with pytest.raises(ValueError, match=r"The file 'elsewhere/train\.target' does not exist\."):
        load_pairs(moved)


def test_tsv(tmp_path: Path) -> None:
    body = "".join(f"{k}\t{target}\t{source}\n" for k, (source, target) in enumerate(PAIRS))
    (tmp_path / "plain.tsv").write_text(body)
    (tmp_path / "header.tsv.gz").write_bytes(gzip.compress(("id\tde\ten\n" + body).encode()))
    by_number = TsvConfig(
        folder=str(tmp_path), train="plain.tsv", validation="plain.tsv", source_column=2, target_column=1
    )
    by_name = TsvConfig(
        folder=str(tmp_path),
        train="header.tsv.gz",
        validation="header.tsv.gz",
        test="header.tsv.gz",
        source_column="en",
        target_column="de",
    )
    assert pairs_of(load_pairs(by_number).train) == PAIRS
    assert [pairs_of(split) for split in load_pairs(by_name)] == [PAIRS] * 3


def test_jsonl(tmp_path: Path) -> None:
    lines = [json.dumps({"t": {"en": source, "de": target}}) + "\n" for source, target in PAIRS]
    (tmp_path / "a.jsonl").write_text("".join(lines))
    config = JsonlConfig(
        folder=str(tmp_path), train="a.jsonl", validation="a.jsonl", source_field="t.en", target_field="t.de"
    )
    assert [pairs_of(split) for split in load_pairs(config)[:2]] == [PAIRS, PAIRS]


def test_parquet(tmp_path: Path) -> None:
    nested(list(PAIRS)).to_parquet(tmp_path / "a.parquet")
    config = ParquetConfig(
        folder=str(tmp_path),
        train="a.parquet",
        validation="a.parquet",
        source_field="translation.en",
        target_field="translation.de",
    )
    assert pairs_of(load_pairs(config).train) == PAIRS

    swapped = datasets.Dataset.from_dict({"target": ["x"], "source": ["y"]})
    swapped.to_parquet(tmp_path / "b.parquet")
    config = ParquetConfig(
        folder=str(tmp_path),
        train="b.parquet",
        validation="b.parquet",
        source_field="target",
        target_field="source",
    )
    assert pairs_of(load_pairs(config).train) == [("x", "y")]


@pytest.mark.parametrize(
    ("file", "field", "message"),
    [
        (
            "a.parquet",
            "translation.fr",
            r"has no field 'translation\.fr'; there are 'translation\.de', 'translation\.en', 'id'",
        ),
        ("a.parquet", "id", r"The field 'id' of '.*a\.parquet' must be text, but is int64\."),
        ("none.parquet", "id", r"The file '.*none\.parquet' does not exist\."),
        ("bad.parquet", "id", r"The file '.*bad\.parquet' cannot be read as Parquet"),
    ],
)
def test_parquet_faults(tmp_path: Path, file: str, field: str, message: str) -> None:
    nested(list(PAIRS)).to_parquet(tmp_path / "a.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"no parquet at all")
    config = ParquetConfig(folder=str(tmp_path), train=file, validation=file, source_field=field, target_field="x")
    with pytest.raises(ValueError, match=message):
        load_pairs(config)


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


def test_hub_layout(hub_folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="transformer"):
        splits = load_pairs(hub(hub_folder, test_split="validation[1:]"))
    assert [pairs_of(split) for split in splits] == [PAIRS, PAIRS[:2], PAIRS[1:2]]
    assert caplog.messages == ["Dropped 2 of 5 training pairs with a blank or missing side."]


def test_hub_faults(hub_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"The split 'dev' of the data set .* cannot be loaded: Unknown split"):
        load_pairs(hub(hub_folder, validation_split="dev"))
    with pytest.raises(ValueError, match=r"cannot be loaded: .*'en-fr' not found"):
        load_pairs(hub(hub_folder, subset="en-fr"))
    with pytest.raises(ValueError, match=r"has no field 'en'; there are 'translation\.de', 'translation\.en', 'id'\."):
        load_pairs(hub(hub_folder, source_field="en"))
    with pytest.raises(ValueError, match=r"Every test pair must have two sides, but pair 1 \(from 0\) has no target\."):
        load_pairs(hub(hub_folder, test_split="test"))
    with pytest.raises(ValueError, match=r"`revision` has no meaning for a local folder"):
        load_pairs(hub(hub_folder, revision="main"))
    with pytest.raises(ValueError, match=r"The split 'train' of the data set '.*/nowhere' cannot be loaded"):
        load_pairs(hub(hub_folder / "nowhere"))


def test_hub_out_of_reach_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*args: object, **kwargs: object) -> None:
        raise ConnectionError("Couldn't reach 'some/corpus' on the Hub\nand more lines")

    monkeypatch.setattr(datasets, "load_dataset", unreachable)
    with pytest.raises(
        ValueError,
        match=r"'some/corpus' is no local folder, and the Hugging Face hub cannot be reached: .* Hub\.$",
    ):
        load_pairs(hub("some/corpus"))


def test_phrases_are_all_there() -> None:
    splits = load_pairs(PhrasesConfig(num_train=30, num_validation=20, num_test=10))
    assert [len(pairs_of(split)) for split in splits] == [30, 20, 10]


def test_empty_splits_are_refused(tmp_path: Path) -> None:
    blank = text_files(tmp_path, train=[("", "x"), ("y", " ")], validation=PAIRS)
    with pytest.raises(ValueError, match=r"The training split must have examples, but is empty\."):
        load_pairs(blank)
    (tmp_path / "header.tsv").write_text("en\tde\n")
    (tmp_path / "full.tsv").write_text("en\tde\nx\ty\n")
    config = TsvConfig(
        folder=str(tmp_path),
        train="full.tsv",
        validation="header.tsv",
        source_column="en",
        target_column="de",
    )
    with pytest.raises(ValueError, match=r"The validation split must have examples, but is empty\."):
        load_pairs(config)


def test_python_docs_are_split_by_topic() -> None:
    splits = load_texts(PythonDocsConfig())
    train, validation, test = (set() if split is None else set(split["text"]) for split in splits)
    assert train | validation | test == set(topics.values())
    assert not train & validation
    assert not train & test
    assert not validation & test
    assert len(train) > 4 * max(len(validation), len(test)) > 0
    assert topics["assert"] in train
    assert topics["break"] in validation
    assert topics["binary"] in test


def test_validation_fraction_cuts_characters(tmp_path: Path) -> None:
    text = "".join(chr(0x4E00 + k) for k in range(1003)) + "\r\n"
    (tmp_path / "a.txt").write_bytes(text.encode())
    splits = load_texts(PlainTextConfig(folder=str(tmp_path), train="a.txt", validation_fraction=0.1))
    assert list(splits.train["text"]) == [text[:904]]  # int(1005 * 0.9)
    assert list(splits.validation["text"]) == [text[904:]]
    assert splits.test is None


def test_validation_fraction_of_lines_cuts_before_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.txt").write_text("aaaa\n\nbbbb\ncccc\n")  # 16 characters
    with caplog.at_level(logging.WARNING):
        for fraction, train in ((0.35, ["aaaa"]), (0.3125, ["aaaa", "bbbb"]), (0.25, ["aaaa", "bbbb"])):
            config = PlainTextConfig(
                folder=str(tmp_path), train="a.txt", validation_fraction=fraction, documents="line"
            )
            splits = load_texts(config)
            assert list(splits.train["text"]) == train
            assert list(splits.validation["text"]) == [line for line in ("bbbb", "cccc") if line not in train]
    assert set(caplog.messages) == {
        "Dropped 1 of 2 blank or missing training documents.",
        "Dropped 1 of 3 blank or missing training documents.",
    }


def test_validation_fraction_that_leaves_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one line only")
    config = PlainTextConfig(folder=str(tmp_path), train="a.txt", validation_fraction=0.5, documents="line")
    with pytest.raises(ValueError, match=r"The training split must have examples, but is empty\."):
        load_texts(config)


def test_plain_text_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x\n y\n")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"z\n"))
    files = {"train": "a.txt", "validation": "b.txt.gz", "test": "a.txt"}
    whole = load_texts(PlainTextConfig(folder=str(tmp_path), **files))
    assert [list(split["text"]) for split in whole if split is not None] == [
        ["x\n y\n"],
        ["z\n"],
        ["x\n y\n"],
    ]
    lines = load_texts(PlainTextConfig(folder=str(tmp_path), documents="line", **files))
    assert [list(split["text"]) for split in lines if split is not None] == [["x", " y"], ["z"], ["x", " y"]]


def test_hub_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    for split, texts in (("train", ["one", "", "two"]), ("validation", ["three"])):
        lines = [json.dumps({"meta": {"body": text}}) for text in texts]
        (folder / f"{split}.jsonl").write_text("\n".join(lines))
    with caplog.at_level(logging.WARNING, logger="transformer"):
        splits = load_texts(HubTextConfig(dataset=str(folder), text_field="meta.body"))
    assert [list(split["text"]) for split in splits[:2] if split is not None] == [["one", "two"], ["three"]]
    assert caplog.messages == ["Dropped 1 of 3 blank or missing training documents."]
