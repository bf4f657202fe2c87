"""The embedded corpus: right sentences, one target a source, and nothing of the test set in training."""

import hashlib
import re
import subprocess
import sys
from datetime import date, time
from decimal import Decimal

import pytest
from num2words import num2words

from transformer.data.corpora import phrases
from transformer.data.corpora.pair_config import PhrasesConfig
from transformer.data.corpora.phrases import _Language, _Values, generate_phrases, split_of, supported_languages

VALUES = _Values(
    number=1021,
    date=date(2021, 3, 9),
    time=time(14, 5),
    price=Decimal("12.50"),
    currency="EUR",
    amount=Decimal("2.5"),
    small_unit=False,
)


def written(code: str, template: str, values: _Values = VALUES) -> str:
    return _Language(code).write((template,), [values])


@pytest.mark.parametrize(
    ("place", "english", "german", "french"),
    [
        (
            0,
            "on Tuesday, March 9, 2021, it cost €12.50",
            "am Dienstag, 9. März 2021, kostete es 12,50 €",
            "le mardi 9 mars 2021, cela coûtait 12,50 €",
        ),
        (
            1,
            "on March 9, 2021, it cost €12.50",
            "am 9. März 2021 kostete es 12,50 €",
            "le 9 mars 2021, cela coûtait 12,50 €",
        ),
        (
            3,
            "the invoice of Mar 9, 2021 comes to €12.50",
            "die Rechnung vom 09.03.2021 beträgt 12,50 €",
            "la facture du 9 mars 2021 s'élève à 12,50 €",
        ),
        (
            4,
            "the train leaves at 2:05 PM and costs €12.50",
            "der Zug fährt um 14:05 und kostet 12,50 €",
            "le train part à 14:05 et coûte 12,50 €",
        ),
        (
            5,
            "1,021 people came on March 9, 2021",
            "am 9. März 2021 kamen 1.021 Leute",
            "1 021 personnes sont venues le 9 mars 2021",
        ),
        (
            6,
            "the parcel of 2.5 kilograms cost €12.50",
            "das Paket von 2,5 Kilogramm kostete 12,50 €",
            "le colis de 2,5 kilogrammes coûtait 12,50 €",
        ),
        (
            9,
            "the answer is one thousand and twenty-one",
            "die Antwort ist eintausendeinundzwanzig",
            "la réponse est mille vingt et un",
        ),
        (
            10,
            "this is the one thousand and twenty-first page",
            "das ist die eintausendeinundzwanzigste Seite",
            "c'est la mille vingt et unième page",
        ),
    ],
)
def test_sentences(place: int, english: str, german: str, french: str) -> None:
    sentence = phrases.SENTENCES[place]
    assert [written(code, sentence[code]) for code in ("en", "de", "fr")] == [english, german, french]


def test_respelled_sentences_say_which_spelling_the_target_has() -> None:
    pairs = dict(generate_phrases(PhrasesConfig(num_train=3_000), "train"))
    figures = [(s, t) for s, t in pairs.items() if s.startswith("in figures: ")]
    words = [(s, t) for s, t in pairs.items() if s.startswith("in words: ")]
    assert len(figures) > 100
    assert len(words) > 100
    assert all(re.fullmatch(r"in Ziffern: [\d.]+", target) for _, target in figures)
    assert all(re.fullmatch(r"in words: [\d,]+", source) for source, _ in words)
    assert all(re.fullmatch(r"in Worten: [a-zäöüß]+", target) for _, target in words)


def test_both_directions_have_the_same_sentences() -> None:
    there = generate_phrases(PhrasesConfig(num_test=200), "test")
    back = generate_phrases(PhrasesConfig(source_language="de", target_language="en", num_test=200), "test")
    plain = [(s, t) for s, t in there if not s.startswith(("in figures", "in words"))]
    assert set(plain) <= {(target, source) for source, target in back}


@pytest.fixture(scope="module")
def corpus() -> dict[str, list[tuple[str, str]]]:
    config = PhrasesConfig(num_train=6_000, num_validation=600, num_test=600)
    return {split: generate_phrases(config, split) for split in ("train", "validation", "test")}


def test_sources_are_distinct_within_and_between_splits(corpus: dict[str, list[tuple[str, str]]]) -> None:
    sources = [source for pairs in corpus.values() for source, _ in pairs]
    assert len(sources) == len(set(sources)) == 7_200


# Every value as it stands in an English sentence, found without the generator's own knowledge.
MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
DATE = re.compile(rf"({MONTH}) (\d+), (\d+)")
TIME = re.compile(r"\d+:\d+ [AP]M")
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def values_of(source: str) -> set[str]:
    found = {f"date {month[:3]} {day} {year}" for month, day, year in DATE.findall(source)}
    source = DATE.sub("", source)
    found |= {f"time {value}" for value in TIME.findall(source)}
    source = TIME.sub("", source)
    return found | {f"number {Decimal(value.replace(',', '')).normalize():f}" for value in NUMBER.findall(source)}


def test_no_value_is_in_two_splits(corpus: dict[str, list[tuple[str, str]]]) -> None:
    train, validation, test = (set().union(*(values_of(source) for source, _ in pairs)) for pairs in corpus.values())
    assert len(train) > 5_000
    assert {kind.split()[0] for kind in test} == {"date", "time", "number"}
    assert not train & validation
    assert not train & test
    assert not validation & test


SPELLED = re.compile(r"(?:answer is|in figures:|this is the) (.*?)(?: page)?$")


def test_no_spelled_number_is_in_two_splits(corpus: dict[str, list[tuple[str, str]]]) -> None:
    spelled = {
        split: {match[1] for source, _ in pairs if (match := SPELLED.search(source))} for split, pairs in corpus.items()
    }
    assert min(len(words) for words in spelled.values()) > 50
    assert not spelled["train"] & spelled["test"]
    assert not spelled["train"] & spelled["validation"]
    # A number spelled out in the test set is not in figures in training either.
    figures = {value.split()[1] for source, _ in corpus["train"] for value in values_of(source)}
    assert not spelled["test"] & {num2words(int(value)) for value in figures if value.isdecimal()}


def test_whole_numbers_below_100_are_for_training() -> None:
    assert {split_of(number, seed) for number in range(100) for seed in (0, 1)} == {"train"}
    assert split_of(Decimal("12.00"), 1) == "train"
    assert {split_of(number, 1) for number in range(100, 200)} == {"train", "validation", "test"}


def test_equal_numbers_are_one_value() -> None:
    for cents in range(10_000, 30_000, 250):
        price = Decimal(cents).scaleb(-2)
        assert split_of(price, 1) == split_of(price.normalize(), 1)
        if price == int(price):
            assert split_of(price, 1) == split_of(int(price), 1)


def test_split_is_a_plain_hash_of_seed_and_value() -> None:
    for value, text in [
        (1234, "1 number 1234"),
        (date(2021, 3, 9), "1 date 2021-03-09"),
        (time(14, 5), "1 time 14:05:00"),
    ]:
        bucket = int(hashlib.sha256(text.encode()).hexdigest()[:16], 16) % 10
        assert split_of(value, 1) == {0: "test", 1: "validation"}.get(bucket, "train")


def test_same_settings_same_corpus_in_every_process() -> None:
    code = (
        "from transformer.data.corpora.pair_config import PhrasesConfig;"
        "from transformer.data.corpora.phrases import generate_phrases;"
        "print(ascii(generate_phrases(PhrasesConfig(num_train=50), 'train')))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert out.stdout.strip() == ascii(generate_phrases(PhrasesConfig(num_train=50), "train"))


def test_the_seed_and_only_the_seed_changes_the_corpus() -> None:
    small = generate_phrases(PhrasesConfig(num_train=1, num_test=20), "test")
    assert generate_phrases(PhrasesConfig(num_train=999, num_test=30), "test")[:20] == small
    assert not set(generate_phrases(PhrasesConfig(num_test=20, seed=2), "test")) & set(small)


def test_sentences_are_short(corpus: dict[str, list[tuple[str, str]]]) -> None:
    assert max(len(side) for pairs in corpus.values() for pair in pairs for side in pair) < 90


@pytest.mark.parametrize("code", supported_languages())
def test_every_language_makes_a_corpus_in_which_each_source_has_one_target(code: str) -> None:
    target = "en" if code != "en" else "nl"
    config = PhrasesConfig(source_language=code, target_language=target, num_train=40)
    assert len(generate_phrases(config, "train")) == 40
    # What would be ambiguous: two kinds of value, units or currencies that this language writes alike.
    language = _Language(code)
    kinds = [kind for kind in phrases.LIST_ITEMS if language.has_ordinals or kind != "{number_ordinal}"]
    variants = {
        (kind, currency, small): language.write((kind,), [VALUES._replace(currency=currency, small_unit=small)])
        for kind in kinds
        for currency in (phrases.CURRENCIES if kind == "{price}" else ("EUR",))
        for small in ((False, True) if kind in ("{weight}", "{distance}", "{duration}") else (False,))
    }
    assert len(set(variants.values())) == len(variants)
    times = [language.write(("{time}",), [VALUES._replace(time=time(hour, 5))]) for hour in range(24)]
    assert len(set(times)) == 24


def test_ordinals_that_fail_or_are_shared_are_left_out() -> None:
    # Korean and Catalan raise for some, Belarusian has one word for 70th and 80th, Thai writes them as cardinals.
    assert [_Language(code).has_ordinals for code in ("ko", "ca", "be", "th")] == [False] * 4
    assert [_Language(code).has_ordinals for code in ("en", "de", "fr", "nl")] == [True] * 4
    assert "am" not in supported_languages()  # fails for 1234


def test_lists_of_other_languages() -> None:
    config = PhrasesConfig(source_language="en", target_language="nl", num_train=2_000)
    pairs = dict(generate_phrases(config, "train"))
    assert written("nl", "{price}") == "€ 12,50"
    two, three = (_Language("nl").write(("{price}",) * n, [VALUES] * n) for n in (2, 3))
    assert (two, three) == ("€ 12,50 en € 12,50", "€ 12,50, € 12,50 en € 12,50")
    assert all(" en " in target for target in pairs.values())


def test_unsupported_language_names_the_supported_ones() -> None:
    with pytest.raises(ValueError, match=r"There are phrases in ar, .*, de, en, .*, vi, but not in 'xx'\."):
        generate_phrases(PhrasesConfig(target_language="xx"), "train")


def test_more_sentences_than_there_are_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phrases, "SENTENCES", ({"en": "{time}", "de": "{time}"},))
    monkeypatch.setattr(phrases, "RESPELLED", ())
    with pytest.raises(ValueError, match=r"`num_test` is 1000, but there are hardly more than 1[2-7]\d sentences\."):
        generate_phrases(PhrasesConfig(), "test")
