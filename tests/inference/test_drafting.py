"""Continuing texts with the help of a draft model, both of random weights."""

import logging

import pytest

from transformer.bundle import save_bundle
from transformer.decoding.config import BeamConfig, GreedyConfig, SampleConfig
from transformer.inference.constraints import Constraints
from transformer.inference.generator import Generator

GREEDY = GreedyConfig(name="greedy")
PROMPTS = ["a", "hund und", "the cat", "0123456789abcdefghij", "zz"]


@pytest.mark.parametrize("draft_tokens", [1, 2, 4, 5])
@pytest.mark.parametrize(
    ("model", "draft"),
    [
        ({"position": "rotary"}, {"position": "learned", "d_model": 8}),
        ({"position": "rotary", "sliding_window": 4}, {"position": "none", "max_length": 10}),
        ({"position": "learned", "num_layers": 2}, {"position": "alibi", "sliding_window": 2}),
        ({"position": "sinusoidal"}, {"position": "sinusoidal"}),  # the same model
    ],
    ids=["rotary", "window", "learned", "itself"],
)
def test_greedy_outputs_are_the_same_as_without_a_draft(tiny_bundle, model, draft, draft_tokens):
    bundle = tiny_bundle("decoder_only", **model)
    other = tiny_bundle("decoder_only", seed=0 if draft == model else 1, **draft)
    plain, drafted = Generator(bundle), Generator(bundle, draft=other, draft_tokens=draft_tokens)
    searches = [
        {},
        {"max_new_tokens": 0},
        {"max_new_tokens": 1},
        {"max_new_tokens": 7, "min_new_tokens": 5},
        {"max_new_tokens": 9, "no_repeat_ngram": 2},
        {"max_new_tokens": 9, "repetition_penalty": 1.5},
    ]
    for settings in searches:
        config = GreedyConfig(name="greedy", **settings)
        for [found], [expected] in zip(drafted.search(PROMPTS, config), plain.search(PROMPTS, config), strict=True):
            assert found.tokens == expected.tokens
            assert (found.text, found.finished) == (expected.text, expected.finished)
            assert found.token_log_probabilities == pytest.approx(expected.token_log_probabilities, abs=1e-4)
            assert found.log_probability == pytest.approx(expected.log_probability, abs=1e-4)
    if draft == model:
        assert drafted.drafted.taken == drafted.drafted.proposed > 0


def test_forced_beginnings_and_banned_phrases_hold(tiny_bundle):
    bundle, other = tiny_bundle("decoder_only"), tiny_bundle("decoder_only", seed=1)
    config = GreedyConfig(name="greedy", max_new_tokens=12)
    plain, drafted = Generator(bundle), Generator(bundle, draft=other, draft_tokens=3)
    for prompt, output in zip(PROMPTS, plain.generate(PROMPTS, config), strict=True):
        constraints = [Constraints(prefix="ab c", banned=tuple(output.split()))]
        expected = plain.generate([prompt], config, constraints=constraints)
        assert drafted.generate([prompt], config, constraints=constraints) == expected != [output]
    with pytest.raises(ValueError, match="required phrases need a beam of 2 or more"):
        drafted.generate(["a"], config, constraints=[Constraints(required=(("b",),))])


def test_sampled_outputs_depend_on_their_line_alone(tiny_bundle):
    generator = Generator(tiny_bundle("decoder_only"), draft=tiny_bundle("decoder_only", seed=1), draft_tokens=3)
    config = SampleConfig(name="sample", temperature=1.5, max_new_tokens=10, min_new_tokens=2)
    together = generator.search(["a", "", *PROMPTS], config, num_best=3)
    assert [output.text for output in together[1]] == [""]
    assert all(2 <= len(output.tokens) <= 10 for outputs in together[2:] for output in outputs)
    assert len({tuple(output.tokens) for outputs in together for output in outputs}) > 10
    for number, prompt in enumerate(PROMPTS, start=3):
        [alone] = generator.search([prompt], config, num_best=3, first_line=number)
        assert [output.tokens for output in alone] == [output.tokens for output in together[number - 1]]


def test_a_draft_reads_no_more_than_it_can(tiny_bundle, caplog):
    """A prompt longer than the draft can read, and one that it can read for a while."""
    bundle, other = tiny_bundle("decoder_only"), tiny_bundle("decoder_only", seed=1, max_length=6)
    with caplog.at_level(logging.WARNING):
        generator = Generator(bundle, draft=other)
    assert caplog.messages == ["the draft model reads 6 tokens at most, the model 24; from there it goes on alone."]
    for prompt, most in (("abcdefgh", 0), ("abcdef", 1), ("abc", 12)):
        assert generator.generate([prompt], GREEDY) == Generator(bundle).generate([prompt], GREEDY)
        assert generator.drafted.proposed <= most


def test_how_much_of_the_draft_was_taken_is_told(tiny_bundle, caplog):
    bundle = tiny_bundle("decoder_only")
    generator = Generator(bundle, draft=tiny_bundle("decoder_only"), draft_tokens=2)
    with caplog.at_level(logging.INFO):
        generator.generate(["abc"], GreedyConfig(name="greedy", max_new_tokens=6, min_new_tokens=6))
    assert generator.drafted == (4, 4)
    assert caplog.messages == ["4 of 4 drafted tokens were taken (100%)."]
    generator.generate([""], GREEDY)
    assert generator.drafted == (0, 0)


def test_both_models_answer_without_dropout(tiny_bundle):
    bundle, other = tiny_bundle("decoder_only"), tiny_bundle("decoder_only", seed=1)
    expected = Generator(bundle, draft=other).generate(PROMPTS, GREEDY)
    generator = Generator(bundle, draft=other)
    taken = generator.drafted
    for model in (bundle.model, other.model):
        model.train()
    assert generator.generate(PROMPTS, GREEDY) == expected
    assert generator.generate(PROMPTS, GREEDY) == expected
    assert taken == (0, 0) != generator.drafted
    assert bundle.model.training
    assert other.model.training


def test_what_does_not_fit_is_refused(tiny_bundle):
    bundle = tiny_bundle("decoder_only")
    with pytest.raises(ValueError, match="must have the same tokenizers, but the source tokenizers of the first"):
        Generator(bundle, draft=tiny_bundle("decoder_only", characters="abc"))
    with pytest.raises(ValueError, match="this bundle holds a translation model"):
        Generator(bundle, draft=tiny_bundle("encoder_decoder"))
    with pytest.raises(ValueError, match="`draft_tokens` must be at least 1, but is 0"):
        Generator(bundle, draft=bundle, draft_tokens=0)
    generator = Generator(bundle, draft=bundle)
    with pytest.raises(ValueError, match="a draft model serves greedy search and sampling, but the search is a beam"):
        generator.generate(["a"], BeamConfig(name="beam", size=2))
    with pytest.raises(ValueError, match="greedy search gives one output, but 2 are asked for"):
        generator.search(["a"], GREEDY, num_best=2)


def test_load(tiny_bundle, tmp_path):
    bundle, other = tiny_bundle("decoder_only"), tiny_bundle("decoder_only", seed=1, num_layers=2)
    save_bundle(tmp_path / "bundle", bundle, "card")
    save_bundle(tmp_path / "draft", other, "card")
    loaded = Generator.load(tmp_path / "bundle", draft=tmp_path / "draft", draft_tokens=2)
    made = Generator(bundle, draft=other, draft_tokens=2)
    decoding = SampleConfig(name="sample", max_new_tokens=9)
    assert loaded.generate(PROMPTS, decoding) == made.generate(PROMPTS, decoding)
    assert loaded.drafted == made.drafted
    with pytest.raises(ValueError, match="is not a bundle"):
        Generator.load(tmp_path / "bundle", draft=tmp_path)
