"""A bundle that visitors try."""

from collections.abc import Callable

import pytest
import torch

from transformer.attention_maps.maps import text_maps
from transformer.attention_maps.token_texts import read_tokens
from transformer.bundle import Bundle, build_model
from transformer.data.corpora.pair_config import MixtureConfig, PhrasesConfig
from transformer.data.subwords.config import CharConfig
from transformer.data.subwords.tokenizer import Tokenizer
from transformer.decoding.config import BeamConfig, GreedyConfig
from transformer.inference.alignment import align
from transformer.inference.generator import Generator
from transformer.inference.translator import Translator
from transformer.playground.search_form import Search
from transformer.playground.trial import MAX_CHARACTERS, Trial

GREEDY = Search(GreedyConfig(name="greedy", max_new_tokens=6), 1)
BEAM = Search(BeamConfig(name="beam", size=3, max_new_tokens=6), 3)


def test_it_finds_what_the_translator_finds(tiny_bundle: Callable[..., Bundle]) -> None:
    bundle = tiny_bundle("encoder_decoder")
    found = Trial(bundle).search("one two", BEAM)
    assert found.outputs == Translator(bundle).search(["one two"], BEAM.decoding, num_best=3)[0]
    assert len(found.outputs) == 3
    assert found.remarks == []


def test_it_finds_what_the_generator_finds(tiny_bundle: Callable[..., Bundle]) -> None:
    bundle = tiny_bundle("decoder_only")
    trial = Trial(bundle)
    assert not trial.translates
    assert trial.search("one two", BEAM).outputs == Generator(bundle).search(["one two"], BEAM.decoding, num_best=3)[0]


def test_attention_is_that_of_the_chosen_output(tiny_bundle: Callable[..., Bundle]) -> None:
    bundle = tiny_bundle("encoder_decoder")
    trial = Trial(bundle)
    found = trial.search("one two", BEAM)
    for place, output in enumerate(found.outputs):
        [cross] = [each for each in trial.attention(found, place) if each.kind == "cross"]
        [expected] = align(Translator(bundle), ["one two"], [output.tokens], layer=1)
        weights_TS = cross.weights_LHQK[0].mean(0)[: len(output.tokens)]
        torch.testing.assert_close(weights_TS, torch.tensor(expected.weights), atol=1e-6, rtol=0)


def test_attention_of_a_language_model_is_over_prompt_and_continuation(tiny_bundle: Callable[..., Bundle]) -> None:
    bundle = tiny_bundle("decoder_only")
    trial = Trial(bundle)
    found = trial.search("one", GREEDY)
    [attention] = trial.attention(found, 0)
    ids = [*bundle.target_tokenizer.encode("one"), *found.outputs[0].tokens]
    assert [token.id for token in attention.key_tokens] == ids
    [expected] = text_maps(bundle.model, read_tokens(bundle.target_tokenizer, ids))
    assert torch.equal(attention.weights_LHQK, expected.weights_LHQK)


@pytest.mark.parametrize("mark_documents", [False, True])
def test_attention_of_a_continuation_that_fills_the_model(
    tiny_bundle: Callable[..., Bundle], mark_documents: bool
) -> None:
    """A model of 24 positions predicts a 25th token, which it never reads."""
    trial = Trial(tiny_bundle("decoder_only", mark_documents=mark_documents))
    to_the_end = Search(GreedyConfig(name="greedy", max_new_tokens=20, min_new_tokens=20), 1)
    found = trial.search("abcde" if not mark_documents else "abcd", to_the_end)
    [attention] = trial.attention(found, 0)
    assert len(found.outputs[0].tokens) == 20
    assert len(attention.key_tokens) == 24


def test_a_text_that_is_cut_is_told(tiny_bundle: Callable[..., Bundle]) -> None:
    found = Trial(tiny_bundle("encoder_decoder")).search("a" * 30, GREEDY)
    assert found.remarks == ["The text has 30 tokens and is cut to the model's 23."]


def test_a_model_of_several_directions_is_asked_for_one(tiny_bundle: Callable[..., Bundle]) -> None:
    untagged = tiny_bundle("encoder_decoder")
    tokenizer = Tokenizer.train(CharConfig(), ["abcdefgh "], tags=["<2de>", "<2fr>"])
    data = MixtureConfig(corpora={"a": PhrasesConfig(tag="<2de>"), "b": PhrasesConfig(tag="<2fr>")})
    config = untagged.config.model_copy(update={"data": data})
    torch.manual_seed(0)
    model = build_model(config.model, tokenizer, tokenizer).eval()
    trial = Trial(Bundle(config, model, tokenizer, tokenizer))
    assert trial.tags == ["<2de>", "<2fr>"]
    for tag in trial.tags:
        found = trial.search("abc", GREEDY, tag)
        assert {each.key_tokens[0].piece for each in trial.attention(found, 0) if each.kind == "cross"} == {tag}
    with pytest.raises(ValueError, match="must be tagged as in training"):
        trial.search("abc", GREEDY, None)


def test_a_model_of_one_direction_needs_no_tag(tiny_bundle: Callable[..., Bundle]) -> None:
    trial = Trial(tiny_bundle("encoder_decoder"))
    assert trial.tags == [None]
    assert trial.search("one", GREEDY).tag is None


@pytest.mark.parametrize(("name", "verb"), [("encoder_decoder", "translate"), ("decoder_only", "continue")])
def test_blank_and_too_long_texts_are_explained(tiny_bundle: Callable[..., Bundle], name: str, verb: str) -> None:
    trial = Trial(tiny_bundle(name))
    with pytest.raises(ValueError, match=f"^There is no text to {verb} yet\\.$"):
        trial.search(" \n", GREEDY)
    with pytest.raises(ValueError, match=r"^The text must have 2000 characters at most, but has 2001\.$"):
        trial.search("a" * (MAX_CHARACTERS + 1), GREEDY)
