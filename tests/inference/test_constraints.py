"""Demands on outputs that contradict each other are refused, as is what no search could meet."""

import re

import pytest

from transformer.decoding.config import BeamConfig, GreedyConfig, SampleConfig
from transformer.inference.constraints import Constraints
from transformer.inference.generator import Generator
from transformer.inference.translator import Translator

BEAM = BeamConfig(name="beam", size=4, max_new_tokens=16)


@pytest.fixture(scope="module")
def translator(tiny_bundle):
    return Translator(tiny_bundle("encoder_decoder", seed=34, characters="einhudzwkatr "))


@pytest.mark.parametrize(
    ("demands", "sentence"),
    [
        (
            Constraints(prefix="ein hund", banned=("ein",)),
            "The prefix 'ein hund' must not have the banned phrase 'ein'.",
        ),
        (
            Constraints(required=(("hund",),), banned=("an", "hund")),
            "The required phrase 'hund' must not have a banned phrase, but has one.",
        ),
        (
            Constraints(required=(("ein hund", "hund"),), banned=("hund",)),
            "The required phrase 'ein hund' or 'hund' must",
        ),
        (Constraints(prefix="ein xu"), "The vocabulary cannot spell the prefix 'ein xu'."),
    ],
)
def test_contradictions_are_refused_with_their_line(translator, demands, sentence):
    with pytest.raises(ValueError, match=f"^line 6: {sentence}"):
        translator.translate(["katze", "ein hund"], BEAM, constraints=[Constraints(), demands], first_line=5)


@pytest.mark.parametrize(
    "demands",
    [
        Constraints(prefix="ein", banned=("ein",)),  # which may still become another word
        Constraints(prefix="eine", banned=("ein",)),
        Constraints(required=(("hund", "katze"),), banned=("hund",)),
        Constraints(required=(("hunde",),), banned=("hund",)),
    ],
)
def test_what_can_be_met_is_no_contradiction(translator, demands):
    [[output]] = translator.search(["ein hund"], BEAM, constraints=[demands])
    assert output.text.startswith(demands.prefix)
    words = output.text.split()
    assert all(any(term in words for term in alternatives) for alternatives in demands.required)
    assert not set(demands.banned) & set(words)


def test_one_for_each_text(translator, tiny_bundle):
    generator = Generator(tiny_bundle("decoder_only"))
    for given in ([Constraints()], [Constraints()] * 3):
        for tool in (translator.translate, generator.generate):
            with pytest.raises(
                ValueError, match=f"`constraints` must be given for each of 2 texts, but are for {len(given)}"
            ):
                tool(["a", "b"], GreedyConfig(name="greedy"), constraints=given)
    with pytest.raises(ValueError, match="`tags` must be given for each of 2 texts, but are for 1"):
        translator.translate(["a", "b"], tags=[None])


def test_at_least_one_output_must_be_asked_for(translator):
    with pytest.raises(ValueError, match="must be at least 1, but is 0"):
        translator.search(["ein"], SampleConfig(name="sample"), num_best=0)


@pytest.mark.parametrize("size", [2, 5])
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("minimum", [8, 14, 15])
def test_required_phrases_stay_where_the_output_may_not_end_yet(tiny_bundle, size, seed, minimum):
    """A phrase that is there by the end of the text alone must not grow into a longer word while tokens are missing."""
    translator = Translator(tiny_bundle("encoder_decoder", seed=seed, characters="einhudzwkatr "))
    search = BeamConfig(name="beam", size=size, min_new_tokens=minimum, max_new_tokens=16)
    demands = Constraints(required=(("hund",), ("wieder",)))
    [[output]] = translator.search(["ein hund"], search, constraints=[demands])
    assert output.finished
    assert minimum <= len(output.tokens) <= 15
    for [word] in demands.required:
        assert re.search(rf"(?<!\w){word}(?!\w)", output.text)


@pytest.mark.parametrize(
    ("lengths", "most"), [({"max_new_tokens": 3}, 3), ({"max_length_factor": 0.5}, 3), ({"max_new_tokens": 24}, 24)]
)
def test_demands_do_not_exceed_the_lengths_allowed(translator, lengths, most):
    """The source has five characters and the end token."""
    beam = BeamConfig(name="beam", size=4, **lengths)
    long = Constraints(required=(("katze",), ("hund",), ("zweierneid",), ("eine tante",)))
    with pytest.raises(ValueError, match=rf"^line 1: .* need 3\d tokens, but an output can have {most} at most\.$"):
        translator.translate(["katze"], beam, constraints=[long])


def test_demands_raise_the_limit_that_nobody_has_set(translator):
    """For a source of one token and the end token 24 tokens are the default, and what the model can."""
    short = Constraints(required=(("zweierneid",),))
    with pytest.raises(ValueError, match="need 11 tokens, but an output can have 8 at most"):
        translator.translate(["k"], BeamConfig(name="beam", size=4, max_length_factor=4.0), constraints=[short])
    [[output]] = translator.search(["k"], BeamConfig(name="beam", size=4), constraints=[short])
    assert re.search(r"(?<!\w)zweierneid(?!\w)", output.text)
