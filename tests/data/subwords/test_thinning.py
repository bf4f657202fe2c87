"""Even samples of a stream: which texts, and how many at once."""

import logging
from functools import partial

import pytest

from transformer.data.subwords.config import BpeConfig
from transformer.data.subwords.thinning import EvenSample
from transformer.data.subwords.tokenizer import Tokenizer


@pytest.mark.parametrize(
    ("max_texts", "num_texts", "kept"),
    [
        (4, 3, [0, 1, 2]),
        (4, 4, [0, 1, 2, 3]),
        (4, 5, [0, 1, 2, 3]),
        (4, 8, [0, 2, 4, 6]),
        (4, 9, [0, 2, 4, 6]),
        (4, 11, [0, 2, 6, 8]),  # of 0, 2, 4, 6, 8, 10
        (4, 16, [0, 4, 8, 12]),
        (4, 65, [0, 16, 32, 48]),
        (1, 1000, [0]),
        (3, 7, [0, 2, 4]),
    ],
)
def test_samples_are_evenly_spread(max_texts: int, num_texts: int, kept: list[int]) -> None:
    sample = EvenSample.of(map(str, range(num_texts)), max_texts)
    assert sample.num_seen == num_texts
    assert list(map(int, sample.texts)) == kept


def test_samples_hold_few_texts_at_once() -> None:
    sample = EvenSample(10)
    for number in range(10_000):
        sample.add(str(number))
        assert len(sample._kept) <= 20


@pytest.mark.parametrize(
    ("lengths", "kept"),
    [
        ([5, 5, 5, 5], [0, 1, 2, 3]),
        ([5, 5, 5, 5, 1], [0, 2, 4]),
        ([5, 5, 5, 5, 1, 1, 1], [0, 2, 4, 6]),
        ([5, 5, 5, 5, 1, 1, 5, 1], [0, 2, 4, 6]),  # 16 of 20
        ([5, 5, 5, 5, 1, 1, 5, 1, 5], [0, 4, 8]),
        ([10, 10, 10], [0, 2]),
        ([0] * 8 + [10, 10, 1], [0, 2, 4, 6, 8, 10]),
        ([1] * 21, [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20]),
        ([10] * 100, [0, 64]),
    ],
)
def test_samples_have_few_characters_and_are_still_evenly_spread(lengths: list[int], kept: list[int]) -> None:
    texts = [chr(ord("!") + number) * length for number, length in enumerate(lengths)]
    sample = EvenSample(1000, max_characters=20)
    for text in texts:
        sample.add(text)
        assert sum(map(len, sample._kept)) <= 20
    assert sample.texts == [texts[number] for number in kept]
    assert (sample.num_seen, sample.num_cut) == (len(texts), 0)


def test_of_a_very_long_text_the_beginning_is_kept_and_room_is_left_for_others() -> None:
    sample = EvenSample.of(["a" * 10 + "b" * 1000, "c", "d" * 9, "e" * 11], 1000, max_characters=20)
    assert sample.texts == ["a" * 10, "d" * 9]
    assert (sample.num_seen, sample.num_cut, sample.longest) == (4, 2, 10)


def test_vocabularies_are_learnt_from_few_characters_and_that_is_said(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EvenSample, "of", partial(EvenSample.of, max_characters=800))
    texts = ["even even " * 40 + "never never " * 1000, *["odd odd ", "ever ever "] * 100]
    with caplog.at_level(logging.INFO):
        tokenizer = Tokenizer.train(BpeConfig(vocab_size=280), texts)
    assert caplog.messages[:2] == [
        "The vocabulary is learnt from 26 of 201 texts, evenly spread.",
        "Of 1 of 201 texts only the first 400 characters are learnt from, because they are longer.",
    ]
    learnt = tokenizer.pieces(range(260, tokenizer.vocab_size))
    assert {"Ġeven", "Ġever"} <= set(learnt)  # every eighth text is the first or one of "ever ever"
    assert "Ġnever" not in learnt
    assert "Ġodd" not in learnt
