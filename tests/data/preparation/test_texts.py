"""From files to token ids on disk: what is kept, what is counted, what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transformer.cli.preparation import summary_line
from transformer.data.corpora.document_config import JsonlTextConfig, PlainTextConfig
from transformer.data.corpora.pair_config import JsonlConfig, TsvConfig
from transformer.data.corpora.scored import read_all
from transformer.data.corpora.sources import CorpusConfig, open_source
from transformer.data.preparation import ids
from transformer.data.preparation import texts as prepare
from transformer.data.preparation.cache import Cache
from transformer.data.preparation.filter_config import PairFiltersConfig
from transformer.data.preparation.ids import encode_all, prepare_ids
from transformer.data.preparation.report import CorpusReport, PreparationReport
from transformer.data.preparation.texts import Texts, column_of, prepare_texts
from transformer.data.subwords.config import BpeConfig, ByteConfig, CharConfig
from transformer.data.subwords.tokenizer import Tokenizer
from transformer.data.text_data import read_documents
from transformer.data.translation_data import read_pairs

TrainingRows = Callable[..., tuple[list[tuple[str, ...]], CorpusReport]]


def tsv(folder: Path, train: str, validation: str = "x\ty\n", **settings: Any) -> TsvConfig:
    (folder / "train.tsv").write_text(train, encoding="utf-8")
    (folder / "validation.tsv").write_text(validation, encoding="utf-8")
    return TsvConfig(folder=str(folder), train="train.tsv", validation="validation.tsv", **settings)


def prepared(config: CorpusConfig, folder: Path, seen: list[tuple[str, int, int | None]] | None = None) -> Texts:
    source = open_source("news", config, "train")
    assert source is not None
    told = [] if seen is None else seen
    return prepare_texts(source, config, Cache(folder), lambda *news: told.append(news))


def test_blank_pairs_are_left_out_and_counted(tmp_path: Path, training_rows: TrainingRows) -> None:
    rows, report = training_rows(tsv(tmp_path, "a\tb\n\tc\nd\t \t\n \t\ne\tf\n"))
    assert rows == [("a", "b"), ("e", "f")]
    assert (report.read, report.kept, report.dropped) == (5, 2, {"blank": 3})
    assert [example.where for example in report.examples["blank"]] == [
        f"'{tmp_path / 'train.tsv'}', line {line}" for line in (2, 3, 4)
    ]
    assert summary_line(PreparationReport(corpora=(report,), sides=())) == "kept 2 of 5 rows; left out: 3 blank"


def test_rows_without_a_side_are_blank_in_training_and_an_error_in_validation(
    tmp_path: Path, training_rows: TrainingRows
) -> None:
    lines = ['{"source": "a", "target": "b"}', '{"source": null, "target": "c"}', '{"source": "d", "target": null}']
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    config = JsonlConfig(folder=str(tmp_path), train="a.jsonl", validation="a.jsonl", test="a.jsonl")
    rows, report = training_rows(config)
    assert rows == [("a", "b")]
    assert report.dropped == {"blank": 2}
    assert [example.texts for example in report.examples["blank"]] == [(None, "c"), ("d", None)]
    for split in ("validation", "test"):
        with pytest.raises(
            ValueError, match=r"^Every pair to be scored must have two sides, but '.*a\.jsonl', line 2 has no source\.$"
        ):
            read_pairs(config, split)
    (tmp_path / "a.jsonl").write_text("\n".join([lines[0], lines[2]]))
    with pytest.raises(ValueError, match=r"but '.*a\.jsonl', line 2 has no target\.$"):
        read_pairs(config, "validation")


def test_blank_pairs_to_be_scored_stay(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = read_pairs(
        tsv(tmp_path, "a\tb\n", "\tx\na\tb\n \t\n", filters=PairFiltersConfig(min_characters=9)), "validation"
    )
    assert found is not None
    assert found.rows == [("", "x"), ("a", "b"), (" ", "")]
    assert caplog.messages == []


def test_missing_documents_are_blank_everywhere(
    tmp_path: Path, training_rows: TrainingRows, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n{"text": null}\n{"text": " "}\n{"text": "b"}\n')
    config = JsonlTextConfig(folder=str(tmp_path), train="a.jsonl", validation="a.jsonl")
    rows, report = training_rows(config)
    assert rows == [("a",), ("b",)]
    assert report.dropped == {"blank": 2}
    assert read_documents(config, "validation") == ["a", "b"]
    assert caplog.messages == ["jsonl_text: left out 2 blank of 4 documents to be scored."]


def test_a_broken_row_is_an_error_unless_it_may_be_dropped(tmp_path: Path, training_rows: TrainingRows) -> None:
    config = tsv(tmp_path, "a\tb\nalone\nc\td\n", "alone\n")
    message = r"^'.*{}\.tsv', line {}: must have 2 columns or more, but has 1\.$"
    with pytest.raises(ValueError, match=message.format("train", 2)):
        training_rows(config)
    config = config.model_copy(update={"filters": PairFiltersConfig(broken="drop")})
    rows, report = training_rows(config)
    assert rows == [("a", "b"), ("c", "d")]
    assert (report.read, report.dropped) == (3, {"broken": 1})
    assert report.examples["broken"][0].where.endswith("train.tsv', line 2: must have 2 columns or more, but has 1.")
    with pytest.raises(ValueError, match=message.format("validation", 1)):  # filters are for training only
        read_pairs(config, "validation")


def test_empty_splits_are_refused(tmp_path: Path, training_rows: TrainingRows) -> None:
    with pytest.raises(
        ValueError, match=r"^The training split of .* must have examples, but none of 2 is left \(2 blank\)\.$"
    ):
        training_rows(tsv(tmp_path, "\tx\ny\t \n"))
    header = {"source_column": "en", "target_column": "de"}
    config = tsv(tmp_path, "en\tde\n", "en\tde\n", **header)
    with pytest.raises(ValueError, match=r"^The training split of .* must have examples, but is empty\.$"):
        training_rows(config)
    with pytest.raises(ValueError, match=r"^A split to be scored must have examples, but that of tsv has none\.$"):
        read_pairs(config, "validation")
    (tmp_path / "blank.txt").write_text("\n \n")
    config = PlainTextConfig(folder=str(tmp_path), train="blank.txt", validation="blank.txt", documents="line")
    with pytest.raises(ValueError, match=r"^A split to be scored must have examples, but that of plain_text has none"):
        read_documents(config, "validation")


def test_rows_keep_their_places_whatever_is_left_out(tmp_path: Path) -> None:
    lines = [f"{k}\t{'' if k % 3 == 0 else k}\n" for k in range(20)]
    texts = prepared(tsv(tmp_path, "".join(lines)), tmp_path / "cache")
    kept = [k for k in range(20) if k % 3]
    assert [texts.table.texts(row) for row in range(len(texts.table))] == [(str(k), str(k)) for k in kept]
    assert [texts.table.place(row) for row in range(len(texts.table))] == kept


@pytest.mark.parametrize("limit", ["ROWS", "CHARACTERS"])
def test_more_rows_than_are_written_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(prepare, limit, 7)
    seen: list[tuple[str, int, int | None]] = []
    config = tsv(tmp_path, "".join(f"source {k}\ttarget {k}\n" if k % 4 else " \tb\n" for k in range(20)))
    texts = prepared(config, tmp_path / "cache", seen)
    kept = [k for k in range(20) if k % 4]
    assert [texts.table.texts(row) for row in range(15)] == [(f"source {k}", f"target {k}") for k in kept]
    assert [len(batch) for batch in texts.table.batches()] == ([7, 7, 1] if limit == "ROWS" else [1] * 15)
    assert list(column_of([texts.table], 1)) == [f"target {k}" for k in kept]
    assert {(what, total) for what, _, total in seen} == {("reading news", 20)}
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert seen[-1] == ("reading news", 20, 20)


def test_texts_are_read_once_and_the_report_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tsv(tmp_path, "a\tb\n\tc\n")
    first = prepared(config, tmp_path / "cache")
    monkeypatch.setattr("transformer.data.preparation.texts.kept_rows", lambda *_: pytest.fail("read again"))
    again = prepared(config, tmp_path / "cache")
    assert (again.folder, again.report) == (first.folder, first.report)
    assert first.report.dropped == {"blank": 1}
    assert first.report.name == "news"


@pytest.mark.parametrize("mark_documents", [False, True])
def test_ids_are_those_of_the_tokenizer(tmp_path: Path, mark_documents: bool) -> None:
    texts = prepared(tsv(tmp_path, "".join(f"ä{k}\tb{k}\n" for k in range(12))), tmp_path / "cache")
    source, target = Tokenizer.train(ByteConfig(), []), Tokenizer.train(CharConfig(), ["b0123456789"])
    corpus = prepare_ids(
        texts, [source, target], Cache(tmp_path / "cache"), lambda *_: None, mark_documents=mark_documents
    )
    for row in range(12):
        for side, tokenizer, text in ((0, source, f"ä{row}"), (1, target, f"b{row}")):
            ids = tokenizer.encode(text)
            expected = [tokenizer.bos_id, *ids, tokenizer.eos_id] if mark_documents else ids
            assert corpus.ids.ids(row, side).tolist() == expected
            assert corpus.ids.lengths_NK[row, side] == len(expected)
    assert [corpus.ids.place(row) for row in range(len(corpus.ids))] == list(range(12))
    assert [report.name for report in corpus.sides] == ["source", "target"]
    assert [report.texts for report in corpus.sides] == [12, 12]
    assert [report.tokens for report in corpus.sides] == [2 * 12 + 10 + 4, 12 + 10 + 4]  # marks are not counted
    other = prepare_ids(
        texts, [source, target], Cache(tmp_path / "cache"), lambda *_: None, mark_documents=not mark_documents
    )
    assert other.checksum != corpus.checksum


def test_texts_are_cut_one_after_another_with_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer.train(ByteConfig(), [])
    texts = ["a", "bb", "", "cccccc", "d", "e"]
    expected = [tokenizer.encode(text) for text in texts]
    sizes = []
    original = Tokenizer.encode_batch
    monkeypatch.setattr(Tokenizer, "encode_batch", lambda self, part: sizes.append(len(part)) or original(self, part))
    monkeypatch.setattr(ids, "CHARACTERS", 16)  # a quarter of it is cut at once
    assert encode_all(tokenizer, texts) == expected
    assert len(sizes) > 1
    assert sum(sizes) == 6


def test_long_texts_are_cut_where_words_end_before_they_become_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["one", "two words", "a text of many words, " * 50, "", "nospace" * 20, "three 3's"]
    longest: list[int] = []
    original = Tokenizer.encode_batch
    monkeypatch.setattr(ids, "CHARACTERS", 80)  # a quarter of it is cut at once
    monkeypatch.setattr(
        Tokenizer,
        "encode_batch",
        lambda self, part: longest.append(max(map(len, part), default=0)) or original(self, part),
    )
    tokenizer = Tokenizer.train(BpeConfig(vocab_size=290), texts)
    assert encode_all(tokenizer, texts) == [tokenizer.encode(text) for text in texts]
    assert sorted(longest)[-2:] == [15, 140]  # 140 have no place to cut
    longest.clear()
    tokenizer = Tokenizer.train(BpeConfig(vocab_size=290, user_symbols=("many words",)), texts)
    assert encode_all(tokenizer, texts) == [tokenizer.encode(text) for text in texts]
    assert max(longest) == 22 * 50


def test_reading_a_split_to_be_scored_stops_at_the_first_fault(tmp_path: Path) -> None:
    source = open_source("news", tsv(tmp_path, "a\tb\n", "a\tb\nalone\nc\n"), "validation")
    assert source is not None
    with pytest.raises(ValueError, match=r"line 2: must have 2 columns or more"):
        read_all(source)
