"""Which training examples are left out, at the exact limits and in many writing systems."""

import subprocess
import sys
from typing import Any

import pytest
import regex
import yaml
from pydantic import ValidationError

from transformer.cli.compose import config_folder
from transformer.data.preparation.filter_config import DocumentFiltersConfig, PairFiltersConfig
from transformer.data.preparation.filters import Filters
from transformer.data.preparation.scripts import IN_USE, script_class

FAMILY = "👨‍👩‍👧‍👦"  # seven code points: four people and three joiners
E_ACUTE, E_COMBINED = "\u00e9", "e\u0301"


def of_text(text: str | None, **settings: Any) -> str | None:
    return Filters(DocumentFiltersConfig(**settings)).reason((text,))


def of_pair(source: str | None, target: str | None, **settings: Any) -> str | None:
    return Filters(PairFiltersConfig(**settings)).reason((source, target))


@pytest.mark.parametrize("text", [None, "", " ", "\t\r\n", "\u00a0\u3000\u2028", "\x1c\x1f"])
def test_blank_texts_are_left_out_whatever_the_settings(text: str | None) -> None:
    assert of_text(text) == "blank"
    assert of_pair(text, "ja") == of_pair("yes", text) == "blank"


@pytest.mark.parametrize("text", ["a", ".", "\u200b", "\ufeff", "\u0301", "\x00"])
def test_anything_else_is_not_blank(text: str) -> None:
    assert of_text(text) is None


def test_nothing_else_is_left_out_without_settings() -> None:
    filters = Filters(PairFiltersConfig())
    strange = ("\x00\ufffd 111 a a a a a a a a a a", "x" * 5000)
    assert filters.reason(strange) is filters.reason(strange) is filters.reason(("same", "same")) is None
    assert not filters.needs_memory


# Each line: settings, a text exactly at the limit, one just beyond it.
LIMITS: list[tuple[dict[str, Any], str, str]] = [
    ({"min_characters": 3}, "abc", "ab"),
    ({"min_characters": 3}, "a c", "a\n"),  # white space counts
    ({"min_characters": 2}, E_COMBINED, E_ACUTE),  # code points, not what one sees
    ({"min_characters": 3}, "日本語", "日本"),
    ({"min_characters": 2}, "🎉🎉", "🎉"),  # beyond the first 65,536 characters, and still one each
    ({"max_characters": 3}, "abc", "abcd"),
    ({"max_characters": 7}, FAMILY, FAMILY + "!"),
    ({"max_words": 2}, " one  two\n", "one two three"),
    ({"max_words": 2}, "one\u00a0two", "one\u00a0two\u3000three"),
    ({"max_words": 1}, "東京は日本の首都です。", "東京は 日本の首都です。"),
    ({"max_repeats": 2}, "ha ha he ha ha", "he ha  ha\tha"),
    ({"max_repeats": 1}, "a b a b", "a b b a"),
    ({"max_repeats": 2}, "no no", "no no no"),
    ({"min_letter_share": 0.5}, "ab 12", "ab 123"),
    ({"min_letter_share": 1.0}, "ab cd", "ab cd."),
    ({"min_letter_share": 0.3}, "abc.......", "ab......."),  # 3 of 10 is 0.3 in floating point as well
    ({"min_letter_share": 0.5}, E_COMBINED + "..", "e..."),  # a mark counts as a letter
    ({"min_letter_share": 0.8}, "हिन्दी .", "हिन्दी .."),  # six letters and marks, and not the three letters alone
    ({"min_letter_share": 0.5}, "שלום 1234", "שלום 12345"),
    ({"min_letter_share": 0.5}, "漢字 :)", "漢字 :-)"),
    ({"min_letter_share": 0.125}, FAMILY + "a", FAMILY + "a!"),  # joiners and pictures are no letters
    ({"max_digit_share": 0.5}, "ab 12", "a 12"),
    ({"max_digit_share": 0.5}, "من ١٢", "م ١٢"),  # Arabic-Indic digits
    ({"max_digit_share": 0.0}, "x² ½ Ⅳ", "x 2"),  # only decimal digits count
    ({"control_characters": True}, "a\tb\r\nc", "a\x0bb"),
    ({"control_characters": True}, "\u200d\u2028\ufeff", "next\x85line"),
    ({"control_characters": True}, " ~\u00a0", "\x7f"),
    ({"control_characters": True}, "\ufffc", "\ufffd"),
    ({"control_characters": True}, "null", "nu\x00ll"),
    ({"control_characters": True}, "red", "\x1b[31mred"),
    ({"normal_form": "nfc"}, E_ACUTE, E_COMBINED),
    ({"normal_form": "nfd"}, E_COMBINED, E_ACUTE),
    ({"normal_form": "nfc"}, "ﬁ", "\u1100\u1161\u11a8"),
    ({"normal_form": "nfkc"}, "fi", "ﬁ"),
    ({"normal_form": "nfkd"}, "fi" + E_COMBINED, "ﬁ" + E_COMBINED),
]


@pytest.mark.parametrize(("settings", "kept", "dropped"), LIMITS)
def test_a_text_at_the_limit_is_kept_and_one_beyond_it_is_not(
    settings: dict[str, Any], kept: str, dropped: str
) -> None:
    (name,) = settings
    assert of_text(kept, **settings) is None
    assert of_text(dropped, **settings) == name
    # Of a pair either side is enough.
    assert of_pair(kept, kept, **settings) is None
    assert of_pair(dropped, kept, **settings) == of_pair(kept, dropped, **settings) == name


# Script, share, a text with just enough of it, one with too little.
SCRIPTS: list[tuple[str, float | None, str, str]] = [
    ("Latin", None, "ab вг", "ab вгд"),  # half of the letters unless told otherwise
    ("latin", 0.75, "abc в", "ab в"),
    ("Latn", 1.0, "naïve é" + E_COMBINED, "naïve в"),
    ("Cyrillic", 0.5, "привет hello!", "привет helloes"),
    ("Han", 1.0, "東京 1964 ー", "東京か"),
    ("Jpan", 1.0, "東京でコーヒーを", "東京でcoffeeを"),
    ("Kore", 1.0, "한국어 漢字", "한국어 かな"),
    ("Hebrew", 1.0, "שָׁלוֹם 123", "שלום a"),
    ("Arabic", 1.0, "مُحَمَّد، ١٢", "محمد a"),
    ("Devanagari", 1.0, "हिन्दी।", "हिन्दी a"),
    ("Devanagari", 0.6, "हिन्दीabcd", "हिन्दीabcde"),  # six letters and marks
]


@pytest.mark.parametrize(("script", "share", "kept", "dropped"), SCRIPTS)
def test_the_share_of_letters_in_the_expected_script(script: str, share: float | None, kept: str, dropped: str) -> None:
    assert of_text(kept, script=script, min_script_share=share) is None
    assert of_text(dropped, script=script, min_script_share=share) == "script"


@pytest.mark.parametrize("text", ["1, 2, 3!", FAMILY, "\u0301", "ー", "—"])
def test_a_text_without_letters_of_any_script_is_in_no_wrong_one(text: str) -> None:
    assert of_text(text, script="Thai", min_script_share=1.0) is None


def test_each_side_has_its_own_script() -> None:
    settings = {"source_script": "Latin", "target_script": "Cyrillic"}
    assert of_pair("hello", "привет", **settings) is None
    assert of_pair("привет", "привет", **settings) == "source_script"
    assert of_pair("hello", "hello", **settings) == "target_script"
    assert of_pair("привет", "hello", target_script="Latin") is None


@pytest.mark.parametrize("name", [*IN_USE.split(), "Canadian_aboriginal", "CYRL", "deva"])
def test_known_scripts(name: str) -> None:
    assert regex.compile(f"[{script_class(name)}]") is not None
    assert PairFiltersConfig(source_script=name).source_script == name


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Latinn", "'Latinn' (did you mean Latin?)"),
        ("kyrillic", "'kyrillic' (did you mean Cyrillic?)"),
        ("Ol Chiki", "'Ol Chiki' (did you mean Ol_Chiki?)"),
        ("Latin}\\p{L", "must have a name of Unicode's, such as Latin, Cyrillic or Han"),
        ("", "but is ''."),
        ("ß", "but is 'ß'."),
        ("Common", "but Common is what all scripts share"),
        ("Zinh", "but Zinh is what all scripts share"),
        ("Unknown", "but Unknown has none"),
    ],
)
@pytest.mark.parametrize("setting", ["source_script", "target_script"])
def test_a_mistyped_script_is_refused_in_one_sentence(name: str, says: str, setting: str) -> None:
    with pytest.raises(ValidationError, match=setting) as caught:
        PairFiltersConfig.from_plain({setting: name})
    message = caught.value.errors()[0]["msg"]
    assert says in message
    assert "\n" not in message


def test_settings_of_filters_load_no_heavy_library() -> None:
    code = (
        "import sys, transformer.data.preparation.filter_config\n"
        "print([name for name in ('torch', 'lightning', 'datasets', 'numpy', 'tokenizers') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"


@pytest.mark.parametrize(
    ("ratio", "source", "target", "reason"),
    [
        (2.0, "ab", "abcd", None),
        (2.0, "ab", "abcde", "max_length_ratio"),
        (2.0, "abcde", "ab", "max_length_ratio"),
        (1.0, "abc", "xyz", None),
        (1.0, "abc", "wxyz", "max_length_ratio"),
        (1.1, "a" * 10, "b" * 11, None),  # 1.1 * 10 > 11 in floating point
        (1.15, "a" * 20, "b" * 23, None),
        (4.0, "東京都", "Tokyo capital", "max_length_ratio"),  # 13 characters of 3
        (5.0, "東京都", "Tokyo capital", None),
        (2.0, E_COMBINED, E_ACUTE, None),
    ],
)
def test_ratio_of_the_lengths(ratio: float, source: str, target: str, reason: str | None) -> None:
    assert of_pair(source, target, max_length_ratio=ratio) == reason


def test_identical_sides() -> None:
    assert of_pair("same", "same", identical=True) == "identical"
    for other in ("Same", "same ", "ѕame"):  # the last one begins with a Cyrillic letter
        assert of_pair("same", other, identical=True) is None
    assert of_pair(E_ACUTE, E_COMBINED, identical=True) is None


PAIRS = [("a", "x"), ("a", "y"), ("b", "x"), ("a", "x"), ("c", "z"), ("x", "a")]


@pytest.mark.parametrize(("what", "dropped"), [("pair", [3]), ("source", [1, 3]), ("target", [2, 3]), (None, [])])
def test_duplicates_of_pairs(what: Any, dropped: list[int]) -> None:
    filters = Filters(PairFiltersConfig(duplicates=what))
    assert filters.needs_memory == (what is not None)
    reasons = [filters.reason(pair) for pair in PAIRS]
    assert reasons == ["duplicates" if place in dropped else None for place in range(len(PAIRS))]


def test_where_one_side_ends_matters_to_duplicates() -> None:
    filters = Filters(PairFiltersConfig(duplicates="pair"))
    pairs = [("ab", "c"), ("a", "bc"), ("a\0b", "c"), ("a", "b\0c"), ("ÿa", "b"), ("ÿ", "ab")]
    pairs += [("a\udcff", "b"), ("a\udcfe", "b"), ("a?", "b")]
    assert [filters.reason(pair) for pair in pairs] == [None] * 9


def test_duplicates_of_documents() -> None:
    filters = Filters(DocumentFiltersConfig(duplicates=True))
    assert filters.needs_memory
    texts = ["one", "two", "one", "One", "one ", "two"]
    assert [filters.reason((text,)) for text in texts] == [None, None, "duplicates", None, None, "duplicates"]


def test_a_row_that_another_filter_drops_has_not_been_seen() -> None:
    filters = Filters(PairFiltersConfig(duplicates="source", max_length_ratio=2.0))
    assert filters.reason(("ab", "abcdef")) == "max_length_ratio"
    assert filters.reason(("ab", "abc")) is None
    assert filters.reason(("ab", "abc")) == "duplicates"


def test_filters_do_not_share_what_they_have_seen() -> None:
    config = PairFiltersConfig(duplicates="pair")
    one, other = Filters(config), Filters(config)
    assert one.reason(("a", "b")) is other.reason(("a", "b")) is None


def test_the_first_filter_gives_the_reason() -> None:
    everything: dict[str, Any] = {
        "min_characters": 4,
        "max_characters": 40,
        "max_length_ratio": 4.0,
        "identical": True,
        "control_characters": True,
        "normal_form": "nfc",
        "max_words": 8,
        "max_repeats": 3,
        "min_letter_share": 0.5,
        "max_digit_share": 0.2,
        "source_script": "Latin",
        "target_script": "Cyrillic",
        "duplicates": "pair",
    }
    filters = Filters(PairFiltersConfig(**everything))
    good = ("good morning", "доброе утро")
    rows = [
        ("   ", "\x00"),
        ("\x00", "\x00"),
        ("\x00" * 41, "\x00" * 5),
        ("\x00" * 21, "\x00" * 5),
        ("\x00" * 5, "\x00" * 5),
        ("\x00" * 6, "\x00" * 5),
        ("1 1 1 1 1 1 1 1 " + E_COMBINED, good[1]),
        ("1 1 1 1 1 1 1 1 1", good[1]),
        ("1 1 1 1 1 1 1 1", good[1]),
        ("1 1 1 2 2 2", good[1]),
        ("1 a b 1 c d", good[1]),
        (good[1], good[0]),
        (good[0], good[0] + "s"),
        good,
        good,
    ]
    assert [filters.reason(row) for row in rows] == ["blank", *list(everything)[:-1], None, "duplicates"]


@pytest.mark.parametrize(
    ("name", "kind", "kept", "dropped"),
    [
        (
            "clean_pairs",
            PairFiltersConfig,
            ("Two dogs run.", "Zwei Hunde rennen."),
            {"max_length_ratio": ("Hello", "Wie bitte, was haben Sie gesagt?"), "identical": ("Hello", "Hello")},
        ),
        (
            "clean_texts",
            DocumentFiltersConfig,
            ("Dogs run. " * 20,),
            {"min_characters": ("Dogs run.",), "min_letter_share": ("1 + 1 = 2; " * 20,)},
        ),
    ],
)
def test_presets(
    name: str, kind: type[PairFiltersConfig], kept: tuple[str, ...], dropped: dict[str, tuple[str, ...]]
) -> None:
    path = config_folder() / "filters" / f"{name}.yaml"
    assert path.read_text(encoding="utf-8").startswith("# @package data.filters\n")
    filters = Filters(kind.from_plain(yaml.safe_load(path.read_text(encoding="utf-8"))))
    assert filters.reason(kept) is None
    for reason, row in dropped.items():
        assert filters.reason(row) == reason
