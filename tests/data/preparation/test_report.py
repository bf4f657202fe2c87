"""What is told about a corpus: rows kept and left out, tokens, round trips, and the picture of the lengths."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.image import imread

from transformer.data.preparation.histogram import Histogram, LengthTally
from transformer.data.preparation.length_picture import bar_edges, draw_lengths, texts_between
from transformer.data.preparation.report import CorpusReport, CorpusTally, PreparationReport, SideReport, SideTally

UNKNOWN = 0


class Letters:
    """A stand-in tokenizer: one token for each character, capitals normalised to small letters, digits unknown."""

    def __init__(self, unk_id: int | None = UNKNOWN) -> None:
        self.unk_id = unk_id
        self.decoded = 0

    def normalize(self, text: str) -> str:
        return text.lower()

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        return [[UNKNOWN if c.isdigit() else ord(c) for c in text.lower()] for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        self.decoded += 1
        return "".join("?" if index == UNKNOWN else chr(index) for index in ids)


def side_of(texts: Sequence[str], *, chunk: int = 1000, max_checked: int = 10_000, name: str = "text") -> SideReport:
    tokenizer = Letters()
    tally = SideTally(name, tokenizer, max_checked=max_checked)  # type: ignore[arg-type]
    for start in range(0, len(texts), chunk):
        part = texts[start : start + chunk]
        tally.add(part, tokenizer.encode_batch(part))
    return tally.report()


def test_rows_kept_and_left_out() -> None:
    tally = CorpusTally("news")
    tally.keep()
    tally.keep(3)
    for line in range(1, 6):
        tally.drop("blank", f"line {line}", ("", None))
    tally.drop("broken", "line 9: must be UTF-8, but is not.")
    assert (tally.kept, tally.read) == (4, 10)
    report = tally.report()
    assert report.to_plain() == {
        "name": "news",
        "read": 10,
        "kept": 4,
        "dropped": {"blank": 5, "broken": 1},
        "examples": {
            "blank": [{"where": f"line {line}", "texts": ["", None]} for line in (1, 2, 3)],
            "broken": [{"where": "line 9: must be UTF-8, but is not.", "texts": []}],
        },
    }
    tally.drop("identical", "line 11", ("a", "a"))
    assert report.read == 10, "a report changed after it was made"
    assert set(report.examples) == {"blank", "broken"}


def test_the_place_is_asked_for_only_when_it_is_shown() -> None:
    asked: list[int] = []

    def where() -> str:
        asked.append(1)
        return f"place {len(asked)}"

    tally = CorpusTally("news")
    for _ in range(10):
        tally.drop("blank", where, ("",))
    assert len(asked) == 3
    assert [example.where for example in tally.report().examples["blank"]] == ["place 1", "place 2", "place 3"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a" * 200, "a" * 200),
        ("a" * 201, "a" * 199 + "…"),
        ("é" * 5000, "é" * 199 + "…"),
        ("a\udc80b", "a?b"),  # no file could hold the lone surrogate
        ("\x1b[31m\n", "\x1b[31m\n"),
    ],
)
def test_texts_of_examples_are_cut(text: str, shown: str) -> None:
    tally = CorpusTally("news")
    tally.drop("control_characters", "here", (text, "b"))
    report = tally.report()
    assert report.examples["control_characters"][0].texts == (shown, "b")
    assert CorpusReport.from_plain(report.to_plain()) == report


def test_numbers_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(ValueError, match="The rows of news must be kept or dropped"):
        CorpusReport(name="news", read=3, kept=1, dropped={"blank": 1}, examples={})


def test_tokens_words_and_round_trips() -> None:
    side = side_of(["One two", "three 4", "a1b2", ""])
    assert side.lengths.counts == (1, 0, 0, 0, 1, 0, 0, 2)
    assert (side.texts, side.tokens, side.unknown, side.checked, side.words) == (4, 18, 3, 4, 5)
    assert side.unknown_rate == pytest.approx(3 / 18)
    assert side.tokens_per_word == pytest.approx(18 / 5)
    # "One two" comes back in the tokenizer's normal form; that is no failure.
    assert side.round_trip_failures == 2
    assert [(failure.text, failure.decoded) for failure in side.failures] == [("three 4", "three ?"), ("a1b2", "a?b?")]


def test_nothing_to_count() -> None:
    side = side_of([])
    assert (side.texts, side.tokens, side.checked, side.unknown_rate, side.tokens_per_word) == (0, 0, 0, 0.0, 0.0)
    assert side_of(["", ""]).tokens_per_word == 0.0


def test_a_tokenizer_without_an_unknown_token() -> None:
    tally = SideTally("text", Letters(unk_id=None))  # type: ignore[arg-type]
    tally.add(["12"], [[UNKNOWN, UNKNOWN]])
    assert tally.report().unknown == 0


def test_at_most_three_failures_are_shown() -> None:
    side = side_of([f"{number}" for number in range(10, 20)])
    assert side.round_trip_failures == 10
    assert [failure.text for failure in side.failures] == ["10", "11", "12"]


def test_a_failure_in_a_long_text_is_shown_around_the_difference() -> None:
    text = "a" * 500 + "1" + "b" * 500
    (failure,) = side_of([text]).failures
    assert failure.text == "…" + "a" * 50 + "1" + "b" * 147 + "…"
    assert failure.decoded == "…" + "a" * 50 + "?" + "b" * 147 + "…"


def test_a_failure_at_the_end_of_a_long_text_is_shown_to_the_end() -> None:
    (failure,) = side_of(["a" * 500 + "1"]).failures
    assert (failure.text, failure.decoded) == ("…" + "a" * 50 + "1", "…" + "a" * 50 + "?")


def test_a_text_that_lost_its_end_is_a_failure() -> None:
    tally = SideTally("text", Letters())  # type: ignore[arg-type]
    tally.add(["abc", "x" * 300], [[97, 98], [120] * 299])
    short, long = tally.report().failures
    assert (short.text, short.decoded) == ("abc", "ab")
    assert (long.text, long.decoded) == ("…" + "x" * 51, "…" + "x" * 50)


@pytest.mark.parametrize(
    ("num_texts", "places"),
    [
        (8, [0, 1, 2, 3, 4, 5, 6, 7]),
        (9, [0, 2, 4, 6, 8]),
        (16, [0, 2, 4, 6, 8, 10, 12, 14]),
        (17, [0, 4, 8, 12, 16]),
        (100, [0, 16, 32, 48, 64, 80, 96]),
    ],
)
@pytest.mark.parametrize("chunk", [1, 3, 8, 1000])
def test_an_evenly_spread_part_is_checked(num_texts: int, places: list[int], chunk: int) -> None:
    # Text k has k words and fails its round trip, so that the sums say which were checked.
    texts = [" ".join(["1"] * (2**place if place < 17 else 1)) for place in range(min(num_texts, 17))]
    texts += ["1"] * (num_texts - len(texts))
    side = side_of(texts, chunk=chunk, max_checked=8)
    assert side.checked == side.round_trip_failures == len(places)
    assert side.words == sum(2**place if place < 17 else 1 for place in places)
    assert side.texts == num_texts


@pytest.mark.parametrize(("num_texts", "places"), [(3, [0, 1, 2]), (4, [0, 2]), (6, [0, 2, 4]), (7, [0, 4])])
def test_an_odd_number_of_texts_to_check(num_texts: int, places: list[int]) -> None:
    side = side_of([" ".join(["a"] * 2**place) for place in range(num_texts)], max_checked=3)
    assert (side.checked, side.words) == (len(places), sum(2**place for place in places))


@settings(max_examples=60, derandomize=True, deadline=None, database=None)
@given(st.integers(0, 300), st.integers(1, 50), st.integers(2, 20))
def test_what_is_checked_is_bounded_and_independent_of_the_chunks(num: int, chunk: int, limit: int) -> None:
    texts = [str(number) for number in range(num)]
    side = side_of(texts, chunk=chunk, max_checked=limit)
    assert side == side_of(texts, chunk=1000, max_checked=limit)
    assert min(num, limit // 2) <= side.checked <= limit


def test_round_trips_of_a_large_corpus_are_few() -> None:
    tokenizer = Letters()
    tally = SideTally("text", tokenizer)  # type: ignore[arg-type]
    for _ in range(100):
        tally.add(["ab"] * 5_000, [[97, 98]] * 5_000)
    assert tally.report().texts == 500_000
    assert 5_000 <= tally.report().checked <= 10_000
    assert tokenizer.decoded < 50_000


def test_reports_are_merged_by_name() -> None:
    def corpus(name: str, kept: int, **dropped: int) -> CorpusReport:
        tally = CorpusTally(name)
        tally.keep(kept)
        for reason, number in dropped.items():
            for place in range(number):
                tally.drop(reason, f"{name} {kept} {place}")
        return tally.report()

    one = PreparationReport(corpora=(corpus("a", 5, blank=2), corpus("b", 1)), sides=(side_of(["a b", "1"]),))
    two = PreparationReport(
        corpora=(corpus("a", 7, blank=2, identical=1), corpus("c", 2)),
        sides=(side_of(["abc"]), side_of(["x"], name="source")),
    )
    merged = PreparationReport.merged([one, two])
    assert [corpus.name for corpus in merged.corpora] == ["a", "b", "c"]
    first = merged.corpora[0]
    assert (first.read, first.kept, first.dropped) == (17, 12, {"blank": 4, "identical": 1})
    assert [example.where for example in first.examples["blank"]] == ["a 5 0", "a 5 1", "a 7 0"]
    assert [side.name for side in merged.sides] == ["text", "source"]
    assert merged.sides[0] == side_of(["a b", "1", "abc"])
    assert PreparationReport.merged([merged]) == merged
    assert PreparationReport.from_plain(merged.to_plain()) == merged
    assert PreparationReport.merged([]) == PreparationReport(corpora=(), sides=())


@pytest.mark.parametrize(
    ("end", "width"), [(1, 1), (60, 1), (61, 2), (120, 2), (121, 5), (300, 5), (301, 10), (601, 20), (50_000, 1000)]
)
def test_bars_have_round_widths(end: int, width: int) -> None:
    edges = bar_edges(end)
    assert np.diff(edges).tolist() == [width] * (len(edges) - 1)
    assert edges[-2] < end <= edges[-1]
    assert len(edges) <= 61


def test_bars_hold_their_texts() -> None:
    tally = LengthTally()
    tally.add(np.array([0, 1, 1, 4, 5, 9, 10, 1030]))
    histogram = tally.histogram()
    assert texts_between(histogram, np.array([0, 5, 10, 15])).tolist() == [4, 2, 1]
    # The bin of 1,024 to 1,039 is spread evenly.
    assert texts_between(histogram, np.array([1024, 1028, 1040, 1050])).tolist() == [0.25, 0.75, 0]
    assert texts_between(Histogram(), np.array([0, 5, 10])).tolist() == [0, 0]


@pytest.mark.parametrize("max_length", [None, 40])
def test_the_picture_of_the_lengths(tmp_path: Path, max_length: int | None) -> None:
    sides = tuple(side_of(["ab" * number for number in range(20)], name=name) for name in ("source", "target"))
    draw_lengths(PreparationReport(corpora=(), sides=sides), tmp_path / "lengths.png", max_length=max_length)
    pixels = imread(tmp_path / "lengths.png")[:, :, :3]
    assert pixels.shape[:2] == (720, 960)
    red = (pixels[:, :, 0] > 0.8) & (pixels[:, :, 1] < 0.3)
    assert (red.any(axis=1).sum() > 300) == (max_length is not None)
    blue = (pixels[:, :, 2] > 0.6) & (pixels[:, :, 0] < 0.3)
    assert blue[:360].sum() > 5_000
    assert blue[360:].sum() > 5_000


def test_a_picture_of_no_texts(tmp_path: Path) -> None:
    draw_lengths(PreparationReport(corpora=(), sides=(side_of([]),)), tmp_path / "lengths.png")
    assert (tmp_path / "lengths.png").stat().st_size > 1_000
