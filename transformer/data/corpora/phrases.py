"""Embedded parallel corpus: sentences with numbers, dates, times, prices and quantities in two languages.

Nothing is stored. ``num2words`` spells numbers out and ``babel`` writes the rest as the CLDR locale data say,
so any two languages that both libraries know make a corpus, and the right translation is known exactly.
English, German and French have sentences; other languages have lists ("a, b and c").

Fair to score by exact match: every value (a number, date, time or amount of money) belongs to one of
training, validation and test by a hash of the value, whatever sentence and spelling it stands in, so none of
the test values occurs in training. Whole numbers below 100 occur in training only: they are the parts larger
ones are made of.
"""

import hashlib
import math
from collections.abc import Callable
from datetime import date, time, timedelta
from decimal import Decimal
from itertools import permutations
from random import Random
from string import Formatter
from typing import Literal, NamedTuple, TypeVar

from babel import Locale, localedata
from babel.dates import format_date, format_time
from babel.lists import format_list
from babel.numbers import format_currency, format_decimal
from babel.units import format_unit
from num2words import CONVERTER_CLASSES, num2words

from transformer.data.corpora.pair_config import PhrasesConfig

Split = Literal["train", "validation", "test"]
Value = TypeVar("Value", int, Decimal, date, time)

FIRST_DAY, LAST_DAY = date(1950, 1, 1), date(2049, 12, 31)
CURRENCIES = ("EUR", "USD", "GBP", "CHF")
MAX_CONSECUTIVE_REJECTIONS = 2_000


# One sentence each, by language. The slots are those of `_write`, each with the value of its kind.
SENTENCES: tuple[dict[str, str], ...] = (
    {
        "en": "on {date_full}, it cost {price}",
        "de": "am {date_full}, kostete es {price}",
        "fr": "le {date_full}, cela coûtait {price}",
    },
    {
        "en": "on {date_long}, it cost {price}",
        "de": "am {date_long} kostete es {price}",
        "fr": "le {date_long}, cela coûtait {price}",
    },
    {
        "en": "we meet on {date_full} at {time}",
        "de": "wir treffen uns am {date_full}, um {time}",
        "fr": "nous nous voyons le {date_full} à {time}",
    },
    {
        "en": "the invoice of {date_medium} comes to {price}",
        "de": "die Rechnung vom {date_medium} beträgt {price}",
        "fr": "la facture du {date_medium} s'élève à {price}",
    },
    {
        "en": "the train leaves at {time} and costs {price}",
        "de": "der Zug fährt um {time} und kostet {price}",
        "fr": "le train part à {time} et coûte {price}",
    },
    {
        "en": "{number_digits} people came on {date_long}",
        "de": "am {date_long} kamen {number_digits} Leute",
        "fr": "{number_digits} personnes sont venues le {date_long}",
    },
    {
        "en": "the parcel of {weight} cost {price}",
        "de": "das Paket von {weight} kostete {price}",
        "fr": "le colis de {weight} coûtait {price}",
    },
    {
        "en": "on {date_long}, we walked {distance}",
        "de": "am {date_long} liefen wir {distance}",
        "fr": "le {date_long}, nous avons parcouru {distance}",
    },
    {
        "en": "at {time}, it had taken {duration}",
        "de": "um {time} hatte es {duration} gedauert",
        "fr": "à {time}, cela avait duré {duration}",
    },
    {
        "en": "the answer is {number_spelled}",
        "de": "die Antwort ist {number_spelled}",
        "fr": "la réponse est {number_spelled}",
    },
    {
        "en": "this is the {number_ordinal} page",
        "de": "das ist die {number_ordinal} Seite",
        "fr": "c'est la {number_ordinal} page",
    },
)
# The target side of these asks for another spelling than the source side has.
RESPELLED: tuple[tuple[dict[str, str], str, str], ...] = (
    (
        {"en": "in figures: {}", "de": "in Ziffern: {}", "fr": "en chiffres : {}"},
        "{number_spelled}",
        "{number_digits}",
    ),
    (
        {"en": "in words: {}", "de": "in Worten: {}", "fr": "en lettres : {}"},
        "{number_digits}",
        "{number_spelled}",
    ),
)
LIST_ITEMS = (
    "{number_digits}",
    "{number_spelled}",
    "{number_ordinal}",
    "{date_full}",
    "{date_long}",
    "{time}",
    "{price}",
    "{weight}",
    "{distance}",
    "{duration}",
)


def generate_phrases(config: PhrasesConfig, split: Split) -> list[tuple[str, str]]:
    """Sentence pairs of one split, in a fixed order, all with different sources.

    The same source has the same target in every corpus of the two languages.

    Raises:
        ValueError: A language is not known to both libraries, or there are too few different sentences.
    """
    source, target = _Language(config.source_language), _Language(config.target_language)
    frames = _frames(source, target)
    random = Random(f"{config.seed} {split}")
    sizes = {"train": config.num_train, "validation": config.num_validation, "test": config.num_test}
    num_pairs = sizes[split]
    pairs: dict[str, str] = {}
    rejections = 0
    while len(pairs) < num_pairs:
        frame = random.choice(frames)
        values = [_draw(random, config.seed, split) for _ in range(len(frame.source))]
        sentence = source.write(frame.source, values)
        if sentence not in pairs:
            pairs[sentence] = target.write(frame.target, values)
            rejections = 0
        elif (rejections := rejections + 1) == MAX_CONSECUTIVE_REJECTIONS:
            raise ValueError(f"`num_{split}` is {num_pairs}, but there are hardly more than {len(pairs)} sentences.")
    return list(pairs.items())


def supported_languages() -> list[str]:
    """Codes of the languages that ``num2words`` spells numbers of and ``babel`` has a locale for."""
    known = filter(localedata.exists, sorted(CONVERTER_CLASSES))
    return [code for code in known if _spells(code, "cardinal")]


def hashed_split(key: str) -> Split:
    """About 8 in 10 keys are for training, 1 for validation and 1 for testing; the same in every process."""
    bucket = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") % 10
    return "test" if bucket == 0 else "validation" if bucket == 1 else "train"


def split_of(value: int | Decimal | date | time, seed: int) -> Split:
    """The split that a value may occur in: about 8 in 10 training, 1 in 10 validation, 1 in 10 test.

    Numbers and amounts of money count as the same value if they are equal, 12.5 and 12.50 too. Whole numbers
    below 100 are for training.
    """
    if isinstance(value, int | Decimal):
        if value < 100 and value == int(value):
            return "train"
        text = f"number {Decimal(value).normalize():f}"
    else:
        text = f"{type(value).__name__} {value.isoformat()}"
    return hashed_split(f"{seed} {text}")


def _spells(code: str, kind: Literal["cardinal", "ordinal"]) -> bool:
    """Whether the language has words for numbers, one for each: some share them, or have gaps in this sample."""
    numbers = (2, *range(10, 101, 10), 1021, 1234, 9999)
    try:
        words = [num2words(number, lang=code) for number in numbers]
        if kind == "ordinal":
            words += [num2words(number, lang=code, to="ordinal") for number in numbers]
    except (NotImplementedError, TypeError, ValueError, LookupError):  # what unfinished languages raise
        return False
    return len(set(words)) == len(words)


class _Values(NamedTuple):
    """One value of each kind, all of one split."""

    number: int
    date: date
    time: time
    price: Decimal
    currency: str
    amount: Decimal
    small_unit: bool


def _draw(random: Random, seed: int, split: Split) -> _Values:
    def of_split(draw: Callable[[], Value]) -> Value:
        while split_of(value := draw(), seed) != split:
            pass
        return value

    num_days = (LAST_DAY - FIRST_DAY).days
    return _Values(
        number=of_split(lambda: _whole_number(random)),
        date=of_split(lambda: FIRST_DAY + timedelta(days=random.randint(0, num_days))),
        time=of_split(lambda: time(random.randrange(24), random.randrange(60))),
        price=of_split(lambda: Decimal(_log_uniform(random, 100, 999_999)).scaleb(-2)),
        currency=random.choice(CURRENCIES),
        amount=of_split(lambda: Decimal(_log_uniform(random, 20, 9_999)).scaleb(-1)),
        small_unit=random.random() < 0.5,
    )


def _whole_number(random: Random) -> int:
    # Most are as long as those of the test set, which has none below 100.
    return random.randint(2, 99) if random.random() < 0.15 else _log_uniform(random, 100, 9_999)


def _log_uniform(random: Random, low: int, high: int) -> int:
    """Numbers of each length about as often; the longest most often would leave the short ones unlearnt."""
    return round(math.exp(random.uniform(math.log(low), math.log(high))))


class _Frame(NamedTuple):
    source: tuple[str, ...]
    """Templates of the items; more than one are joined as a list."""
    target: tuple[str, ...]


class _Language:
    """A language of both libraries, and how it writes values."""

    def __init__(self, code: str) -> None:
        if code not in (codes := supported_languages()):
            raise ValueError(f"There are phrases in {', '.join(codes)}, but not in {code!r}.")
        self.code = code
        self.locale = Locale.parse(code)
        self.has_ordinals = _spells(code, "ordinal")

    def write(self, templates: tuple[str, ...], values: list[_Values]) -> str:
        """The items, each filled in with its values. Spaces are plain ones, so that they can be typed."""
        items = [
            template.format_map(
                {slot: self._slot(slot, value) for _, slot, _, _ in Formatter().parse(template) if slot}
            )
            for template, value in zip(templates, values, strict=True)
        ]
        return format_list(items, locale=self.locale).replace("\u00a0", " ").replace("\u202f", " ")

    def _slot(self, slot: str, values: _Values) -> str:
        match slot:
            case "number_digits":
                return format_decimal(values.number, locale=self.locale)
            case "number_spelled":
                return str(num2words(values.number, lang=self.code))
            case "number_ordinal":
                return str(num2words(values.number, lang=self.code, to="ordinal"))
            case "date_full":
                return format_date(values.date, "full", locale=self.locale)
            case "date_long":
                return format_date(values.date, "long", locale=self.locale)
            case "date_medium":
                return format_date(values.date, "medium", locale=self.locale)
            case "time":
                return format_time(values.time, "short", locale=self.locale)
            case "price":
                return format_currency(values.price, values.currency, locale=self.locale)
            case "weight":
                return self._quantity(values, "mass-kilogram", "mass-gram")
            case "distance":
                return self._quantity(values, "length-kilometer", "length-meter")
            case "duration":
                return self._quantity(values, "duration-hour", "duration-minute")
            case _:
                raise AssertionError(f"no slot {slot!r}")

    def _quantity(self, values: _Values, large_unit: str, small_unit: str) -> str:
        return format_unit(values.amount, small_unit if values.small_unit else large_unit, "long", locale=self.locale)


def _frames(source: _Language, target: _Language) -> list[_Frame]:
    """Sentences where both languages have them, else lists of two or three items."""
    has_ordinals = source.has_ordinals and target.has_ordinals
    if source.code in SENTENCES[0] and target.code in SENTENCES[0]:
        sentences = [_Frame((sentence[source.code],), (sentence[target.code],)) for sentence in SENTENCES]
        respelled = [
            _Frame((sentence[source.code].format(before),), (sentence[target.code].format(after),))
            for sentence, before, after in RESPELLED
        ]
        return sentences + respelled
    items = [item for item in LIST_ITEMS if has_ordinals or item != "{number_ordinal}"]
    return [_Frame(chosen, chosen) for size in (2, 3) for chosen in permutations(items, size)]
