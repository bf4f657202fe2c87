"""Properties of the filters over any Unicode text."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from transformer.data.preparation.filter_config import DocumentFiltersConfig, PairFiltersConfig
from transformer.data.preparation.filters import Filters

many = settings(max_examples=200, derandomize=True, deadline=None, database=None)
# Characters of all planes, lone surrogates included, and words that make the filters work.
texts = st.one_of(
    st.text(st.characters(), max_size=30),
    st.lists(st.sampled_from(["a", "б", "7", "漢", "\u0301", "\t", "no no", "٣", "\ufffd", "👍🏽"]), max_size=12).map(
        " ".join
    ),
)
rows = st.tuples(st.none() | texts, st.none() | texts)
shared = {
    "min_characters": st.none() | st.integers(1, 9),
    "max_characters": st.none() | st.integers(9, 30),
    "max_words": st.none() | st.integers(1, 6),
    "min_letter_share": st.none() | st.floats(0.01, 1),
    "max_digit_share": st.none() | st.floats(0, 0.99),
    "max_repeats": st.none() | st.integers(1, 4),
    "control_characters": st.booleans(),
    "normal_form": st.sampled_from([None, "nfc", "nfkc", "nfd", "nfkd"]),
}
of_pairs = {"max_length_ratio": st.none() | st.floats(1, 4), "identical": st.booleans()}


@many
@given(plain=st.fixed_dictionaries({**shared, **of_pairs, "source_script": st.sampled_from([None, "Latin", "Han"])}),
       row=rows)  # fmt: skip
def test_the_order_of_the_sides_does_not_matter(plain: dict[str, Any], row: tuple[str | None, ...]) -> None:
    mirrored = {**plain, "target_script": plain["source_script"]}
    del mirrored["source_script"]
    reason = Filters(PairFiltersConfig(**plain)).reason(row)
    swapped = Filters(PairFiltersConfig(**mirrored)).reason(row[::-1])
    assert swapped == ("target_script" if reason == "source_script" else reason)


@many
@given(plain=st.fixed_dictionaries(shared), text=texts)
def test_a_text_with_itself_fares_as_alone(plain: dict[str, Any], text: str) -> None:
    alone = Filters(DocumentFiltersConfig(**plain)).reason((text,))
    assert Filters(PairFiltersConfig(**plain)).reason((text, text)) == alone


@many
@given(plain=st.fixed_dictionaries({**shared, **of_pairs}), row=rows)
def test_the_reason_is_a_setting_that_alone_drops_the_row(plain: dict[str, Any], row: tuple[str | None, ...]) -> None:
    reason = Filters(PairFiltersConfig(**plain)).reason(row)
    dropping = [
        name for name, value in plain.items() if Filters(PairFiltersConfig(**{name: value})).reason(row) == name
    ]
    if any(text is None or not text.strip() for text in row):
        assert reason == "blank"
    elif dropping:
        assert reason in dropping
    else:
        assert reason is None


@many
@given(st.lists(st.tuples(st.text("aб\udc80", max_size=2), st.text("aб\0", max_size=2)), max_size=20),
       st.sampled_from(["pair", "source", "target"]))  # fmt: skip
def test_exactly_the_first_of_equal_rows_is_kept(pairs: list[tuple[str, str]], what: Any) -> None:
    filters = Filters(PairFiltersConfig(duplicates=what, max_length_ratio=1.0))
    kept = [pair for pair in pairs if filters.reason(pair) is None]
    key = {"pair": lambda pair: pair, "source": lambda pair: pair[0], "target": lambda pair: pair[1]}[what]
    accepted = [pair for pair in pairs if pair[0].strip() and pair[1].strip() and len(pair[0]) == len(pair[1])]
    expected = [pair for place, pair in enumerate(accepted) if key(pair) not in map(key, accepted[:place])]
    assert kept == expected
