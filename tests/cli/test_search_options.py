"""The search that options make of a bundle's own."""

import inspect
import math

import pytest

from transformer.cli import generate, translate
from transformer.cli.search_options import check_num_best, chosen_search, given_options
from transformer.decoding.config import BeamConfig, GreedyConfig, MbrConfig, SampleConfig

GREEDY = GreedyConfig(name="greedy", max_new_tokens=9)
BEAM = BeamConfig(name="beam", size=4, normalization="average", length_penalty=0.5, min_new_tokens=2)
SAMPLE = SampleConfig(name="sample", temperature=0.7, top_k=9, no_repeat_ngram=3)
MBR = MbrConfig(name="mbr", samples=8, utility="bleu", sampling=SAMPLE)


def _beam(**settings):
    return BeamConfig(name="beam", **settings)


@pytest.mark.parametrize(
    ("bundle", "given", "expected"),
    [
        (GREEDY, {}, GREEDY),
        (BEAM, {}, BEAM),
        (SAMPLE, {}, SAMPLE),
        (MBR, {}, MBR),
        # the same kind: what is not given stays
        (BEAM, {"beam_size": 6}, _beam(size=6, normalization="average", length_penalty=0.5, min_new_tokens=2)),
        (BEAM, {"length_penalty": 0.0}, _beam(size=4, normalization="average", length_penalty=0.0, min_new_tokens=2)),
        (SAMPLE, {"sample": True, "top_k": 2}, SAMPLE.model_copy(update={"top_k": 2})),
        (SAMPLE, {"seed": 0}, SAMPLE.model_copy(update={"seed": 0})),
        (MBR, {"mbr": 5}, MBR.model_copy(update={"samples": 5})),
        (MBR, {"top_p": 0.5}, MBR.model_copy(update={"sampling": SAMPLE.model_copy(update={"top_p": 0.5})})),
        (GREEDY, {"max_new_tokens": 0}, GreedyConfig(name="greedy", max_new_tokens=0)),
        # another kind: lengths and repetitions stay
        (BEAM, {"beam_size": 1}, GreedyConfig(name="greedy", min_new_tokens=2)),
        (GREEDY, {"beam_size": 5}, _beam(size=5, max_new_tokens=9)),
        (BEAM, {"sample": True}, SampleConfig(name="sample", min_new_tokens=2)),
        (MBR, {"sample": True, "temperature": 2.0}, SAMPLE.model_copy(update={"temperature": 2.0})),
        (MBR, {"beam_size": 3}, _beam(size=3, no_repeat_ngram=3)),
        (
            BEAM,
            {"mbr": 7, "mbr_utility": "bleu"},
            MbrConfig(
                name="mbr",
                samples=7,
                utility="bleu",
                sampling=SampleConfig(name="sample", epsilon=0.02, min_new_tokens=2),
            ),
        ),
        (SAMPLE, {"mbr": 7}, MbrConfig(name="mbr", samples=7, sampling=SAMPLE)),
    ],
)
def test_what_is_not_given_is_the_bundles(bundle, given, expected):
    nothing = {"beam_size": None, "sample": False, "mbr": None, "temperature": None, "max_new_tokens": None}
    assert chosen_search(bundle, nothing | given) == expected


def test_a_tool_that_samples_unless_told_otherwise():
    def chosen(bundle, **given):
        return chosen_search(bundle, given, otherwise="sample", temperature=0.8)

    assert chosen(GREEDY) == SampleConfig(name="sample", temperature=0.8, max_new_tokens=9)
    assert chosen(BEAM) == SampleConfig(name="sample", temperature=0.8, min_new_tokens=2)
    assert chosen(SAMPLE) == SAMPLE
    assert chosen(BEAM, temperature=0.0) == SampleConfig(name="sample", temperature=0.0, min_new_tokens=2)
    assert chosen(BEAM, beam_size=3) == BEAM.model_copy(update={"size": 3})
    assert chosen(SAMPLE, beam_size=1) == GreedyConfig(name="greedy", no_repeat_ngram=3)


@pytest.mark.parametrize(
    ("bundle", "given", "message"),
    [
        (BEAM, {"sample": True, "beam_size": 3}, "--sample and --beam-size are different searches; give one of them."),
        (BEAM, {"mbr": 3, "sample": True}, "--sample and --mbr are different searches; give one of them."),
        (BEAM, {"top_k": 3}, "--top-k has no effect in beam search; leave it out, or add --sample."),
        (BEAM, {"mbr_utility": "bleu"}, "--mbr-utility has no effect in beam search; leave it out, or add --mbr."),
        (
            GREEDY,
            {"length_penalty": 0.0},
            "--length-penalty has no effect in greedy search; leave it out, or add a --beam-size of 2 or more.",
        ),
        (
            BEAM,
            {"beam_size": 1, "patience": 2.0},
            "--patience has no effect in greedy search; leave it out, or add a --beam-size of 2 or more.",
        ),
        (BEAM, {"groups": 3, "diversity": 1.0}, "--groups must divide --beam-size (4), but is 3."),
        (BEAM, {"groups": 2}, "--groups above 1 and --diversity above 0 belong together, but they are 2 and 0."),
        (BEAM, {"max_new_tokens": 1}, "--min-new-tokens must not be above --max-new-tokens (1), but is 2."),
        (SAMPLE, {"epsilon": 0.0}, "--epsilon must be greater than 0, but is 0."),
        (SAMPLE, {"temperature": math.inf}, "--temperature must be a finite number, but is inf."),
        (BEAM, {"length_penalty": math.nan}, "--length-penalty must be a finite number, but is nan."),
        (BEAM, {"patience": 1e30}, "--patience must be less than or equal to 1000000, but is 1e+30."),
        (
            BEAM,
            {"max_length_factor": 1e308},
            "--max-length-factor must be less than or equal to 1000000, but is 1e+308.",
        ),
        (BEAM, {"min_new_tokens": 10**30}, "--min-new-tokens must be less than or equal to 2147483647, but is 1e+30."),
        (BEAM, {"length_penalty": 500.0}, "--length-penalty must be less than or equal to 10, but is 500."),
        (MBR, {"top_p": 0.0}, "--top-p must be greater than 0, but is 0."),
        (BEAM, {"repetition_penalty": 0.0}, "--repetition-penalty must be greater than 0, but is 0."),
    ],
)
def test_options_without_effect_or_sense_are_refused_in_a_sentence(bundle, given, message):
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        chosen_search(bundle, given)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("decoding", "most", "why"),
    [
        (GREEDY, 1, r"\(as greedy search has one output; add --beam-size or --sample\)"),
        (BEAM, 4, r"\(the beam's size\)"),
        (MBR, 8, r"\(the number of samples\)"),
    ],
)
def test_not_more_outputs_than_the_search_has(decoding, most, why):
    check_num_best(decoding, most)
    check_num_best(SAMPLE, 1000)
    with pytest.raises(ValueError, match=rf"^--nbest must be {most} at most {why}, but is {most + 1}\.$"):
        check_num_best(decoding, most + 1)


def test_every_setting_has_an_option():
    settings = {name for kind in (GreedyConfig, BeamConfig, SampleConfig, MbrConfig) for name in kind.model_fields} - {
        "name",
        "sampling",
    }
    renamed = {"size": "beam_size", "samples": "mbr", "utility": "mbr_utility"}
    options = {renamed.get(name, name) for name in settings}
    assert options <= inspect.signature(translate.translate).parameters.keys()
    for_sources = {"coverage_penalty", "min_length_factor", "max_length_factor", "mbr", "mbr_utility"}
    assert options - for_sources <= inspect.signature(generate.generate).parameters.keys()
    assert given_options(dict.fromkeys(options | {"sample", "files", "prefix"})).keys() == options | {"sample"}
