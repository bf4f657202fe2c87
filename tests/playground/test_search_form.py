"""The search that the fields of the page make."""

import math
from typing import Any

import pytest

from transformer.decoding.config import BeamConfig, DecodingConfig, GreedyConfig, MbrConfig, SampleConfig
from transformer.playground.search_form import Kind, Search, fields, filled, search_of, values_of

GREEDY = GreedyConfig(name="greedy")
BEAM = BeamConfig(name="beam", size=4, length_penalty=0.6, patience=2.0, no_repeat_ngram=3, max_length_factor=2.0)


def searched(kind: Kind, own: DecodingConfig = GREEDY, **changes: Any) -> Search:
    return search_of(kind, {**values_of(own), "max_new_tokens": 20, **changes}, own)


def test_untouched_fields_are_the_own_search_of_the_bundle() -> None:
    assert search_of("beam", values_of(BEAM), BEAM) == Search(BEAM, 1)
    sample = SampleConfig(name="sample", temperature=0.7, top_k=5, min_p=0.1, seed=3)
    assert search_of("sample", values_of(sample), sample) == Search(sample, 1)
    risk = MbrConfig(name="mbr", samples=8, utility="bleu", sampling=SampleConfig(name="sample", epsilon=0.1))
    assert search_of("mbr", values_of(risk), risk) == Search(risk, 1)


def test_fields_change_it() -> None:
    assert searched("beam", num_best=3, size=5, length_penalty=1.5, coverage_penalty=0.2) == Search(
        BeamConfig(name="beam", size=5, length_penalty=1.5, coverage_penalty=0.2, max_new_tokens=20), 3
    )
    assert searched("sample", num_best=2, temperature=0.5, top_k=7, top_p=0.9, min_p=0.2, seed=4).decoding == (
        SampleConfig(name="sample", temperature=0.5, top_k=7, top_p=0.9, min_p=0.2, seed=4, max_new_tokens=20)
    )
    assert searched("mbr", samples=6, seed=9).decoding == MbrConfig(
        name="mbr", samples=6, sampling=SampleConfig(name="sample", seed=9, max_new_tokens=20)
    )
    assert searched("greedy", repetition_penalty=1.2, no_repeat_ngram=2.0).decoding == (
        GreedyConfig(name="greedy", repetition_penalty=1.2, no_repeat_ngram=2, max_new_tokens=20)
    )


def test_a_search_of_another_kind_keeps_lengths_and_repetitions_of_the_bundle() -> None:
    assert search_of("greedy", values_of(BEAM), BEAM).decoding == (
        GreedyConfig(name="greedy", no_repeat_ngram=3, max_length_factor=2.0)
    )


def test_a_page_without_a_field_leaves_its_setting() -> None:
    """A language model has no source to be covered."""
    values = {name: value for name, value in values_of(BEAM).items() if name != "coverage_penalty"}
    assert search_of("beam", values | {"size": 8}, BEAM).decoding == BEAM.model_copy(update={"size": 8})


def test_the_neutral_numbers_mean_no_rule() -> None:
    decoding = searched("sample", top_k=0, top_p=1, min_p=0, no_repeat_ngram=0).decoding
    assert isinstance(decoding, SampleConfig)
    assert (decoding.top_k, decoding.top_p, decoding.min_p, decoding.no_repeat_ngram) == (None, None, None, None)


def test_greedy_search_has_one_output_and_asks_for_no_number() -> None:
    assert "num_best" not in fields("greedy")
    assert searched("greedy", num_best=5).num_best == 1


@pytest.mark.parametrize(
    ("kind", "changes", "sentence"),
    [
        ("beam", {"size": 2.5}, "“Beam size” must be a whole number, but is 2.5."),
        ("beam", {"size": 17}, "“Beam size” must be 16 at most on this page, but is 17."),
        ("beam", {"size": 0}, "“Beam size” must be greater than or equal to 1, but is 0."),
        ("beam", {"size": None}, "“Beam size” must not be empty."),
        ("beam", {"size": math.inf}, "“Beam size” must be a finite number."),
        ("sample", {"temperature": math.inf}, "“Temperature” must be a finite number."),
        ("beam", {"size": 2, "num_best": 3}, "“Outputs” must be 2 at most, which is “Beam size”, but is 3."),
        ("mbr", {"samples": 4, "num_best": 5}, "“Outputs” must be 4 at most, which is “Samples”, but is 5."),
        ("mbr", {"samples": 65}, "“Samples” must be 64 at most on this page, but is 65."),
        ("mbr", {"temperature": 0}, "“Temperature” must be above 0, or all samples are the same, but is 0."),
        ("sample", {"num_best": 11}, "“Outputs” must be 10 at most on this page, but is 11."),
        ("sample", {"num_best": 0}, "“Outputs” must be 1 at least, but is 0."),
        ("sample", {"top_p": 1.5}, "“Top p” must be less than or equal to 1, but is 1.5."),
        ("sample", {"temperature": -1}, "“Temperature” must be greater than or equal to 0, but is -1."),
        ("greedy", {"max_new_tokens": 1000}, "“Tokens at most” must be 256 at most on this page, but is 1000."),
        ("greedy", {"repetition_penalty": 0}, "“Repetition penalty” must be greater than 0, but is 0."),
    ],
)
def test_what_is_not_permitted_is_explained_with_the_label_of_the_field(
    kind: Kind, changes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        searched(kind, **changes)
    assert str(caught.value) == sentence


def test_no_field_is_empty() -> None:
    values = values_of(BeamConfig(name="beam", max_new_tokens=20))
    assert filled(values) == values
    with pytest.raises(ValueError, match=r"^“Tokens at most” must not be empty\.$"):
        filled(values | {"max_new_tokens": None})


def test_an_own_minimum_above_the_chosen_maximum_is_explained() -> None:
    own = GreedyConfig(name="greedy", min_new_tokens=30)
    with pytest.raises(ValueError, match=r"`min_new_tokens` must not be above “Tokens at most” \(20\), but is 30\."):
        searched("greedy", own)
