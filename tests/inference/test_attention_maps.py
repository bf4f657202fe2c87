"""The attention of bundles for given texts."""

import pytest
import torch

from transformer.bundle import Bundle, build_model
from transformer.data.corpora.pair_config import MixtureConfig, PhrasesConfig
from transformer.data.subwords.config import CharConfig
from transformer.data.subwords.tokenizer import Tokenizer
from transformer.inference.alignment import align
from transformer.inference.attention_maps import text_attention, translation_attention
from transformer.inference.generator import Generator
from transformer.inference.translator import Translator


def texts(tokens):
    return [token.text for token in tokens]


@pytest.fixture
def translator(tiny_bundle):
    return Translator(tiny_bundle("encoder_decoder", num_decoder_layers=2))


def test_a_given_target_is_read_and_predicted_with_its_end(translator):
    found = translation_attention(translator, "ab c", "de")
    encoder, decoder, cross = found.maps
    assert (found.source, found.target) == ("ab c", "de")
    assert texts(encoder.key_tokens) == texts(cross.key_tokens) == ["a", "b", "␣", "c", "</s>"]
    assert texts(decoder.query_tokens) == ["<s>", "d", "e"]
    assert texts(cross.query_tokens) == ["d", "e", "</s>"]


def test_cross_attention_is_that_of_alignments(translator):
    cross = translation_attention(translator, "ab cd", "bad").maps[2]
    for layer in (1, 2):
        [aligned] = align(translator, ["ab cd"], ["bad"], layer=layer)
        mean_QK = cross.weights_LHQK[layer - 1].mean(0)
        torch.testing.assert_close(mean_QK[:3], torch.tensor(aligned.weights), atol=1e-6, rtol=1e-5)


def test_without_a_target_it_is_what_the_search_finds(tiny_bundle):
    translator = Translator(tiny_bundle("encoder_decoder", decoding={"name": "greedy", "max_new_tokens": 4}))
    [[best]] = translator.search(["ab"])
    found = translation_attention(translator, "ab")
    assert (found.target, best.finished) == (best.text, False)
    *_, cross = found.maps
    # Cut by the limit of length, it has no end token that would have been predicted.
    assert [token.id for token in cross.query_tokens] == best.tokens
    again = translation_attention(translator, "ab", best.tokens)
    assert again.target == best.text
    assert texts(again.maps[2].query_tokens) == [*texts(cross.query_tokens), "</s>"]
    torch.testing.assert_close(again.maps[2].weights_LHQK[:, :, :-1], cross.weights_LHQK)


def test_a_translation_that_the_model_ended_has_its_end(translator):
    model, eos_id = translator.model, translator.bundle.target_tokenizer.eos_id
    with torch.no_grad():
        model.decoder_norm.weight.zero_()
        model.decoder_norm.bias.fill_(1.0)  # whatever is read, the end token follows
        model.output.weight[eos_id] = 10.0
    found = translation_attention(translator, "ab")
    assert found.target == ""
    assert texts(found.maps[1].query_tokens) == ["<s>"]
    assert texts(found.maps[2].query_tokens) == ["</s>"]


def test_a_tag_stands_before_the_source(tiny_bundle):
    plain = tiny_bundle("encoder_decoder")
    tokenizer = Tokenizer.train(CharConfig(), ["abc "], tags=["<2de>", "<2fr>"])
    data = MixtureConfig(corpora={"de": PhrasesConfig(tag="<2de>"), "fr": PhrasesConfig(tag="<2fr>")})
    config = plain.config.model_copy(update={"data": data})
    translator = Translator(
        Bundle(config, build_model(config.model, tokenizer, tokenizer).eval(), tokenizer, tokenizer)
    )
    assert texts(translation_attention(translator, "ab", "c", tag="<2fr>").maps[0].key_tokens)[:2] == ["<2fr>", "a"]
    with pytest.raises(ValueError, match="sources must be tagged as in training"):
        translation_attention(translator, "ab", "c")


@pytest.mark.parametrize(("marked", "start"), [(True, ["<s>"]), (False, [])])
def test_a_prompt_is_read_as_in_training(tiny_bundle, marked, start):
    found = text_attention(Generator(tiny_bundle("decoder_only", mark_documents=marked)), "ab c")
    [decoder] = found.maps
    assert (found.source, found.target) == ("ab c", None)
    assert texts(decoder.query_tokens) == texts(decoder.key_tokens) == [*start, "a", "b", "␣", "c"]


def test_a_model_in_training_mode_answers_in_evaluation_mode_and_goes_back(translator, tiny_bundle):
    expected = translation_attention(translator, "ab c", "de").maps
    translator.model.train()
    for one, other in zip(expected, translation_attention(translator, "ab c", "de").maps, strict=True):
        assert torch.equal(one.weights_LHQK, other.weights_LHQK)
    assert translator.model.training
    generator = Generator(tiny_bundle("decoder_only"))
    generator.model.train()
    text_attention(generator, "ab")
    assert generator.model.training


def test_the_longest_texts_are_shown_and_longer_ones_refused(translator, tiny_bundle):
    found = translation_attention(translator, "a" * 23, "b" * 23)
    assert found.maps[2].weights_LHQK.shape == (2, 2, 24, 24)
    with pytest.raises(ValueError, match=r"^line 7: the source must have at most the model's 23 tokens, but has 24\.$"):
        translation_attention(translator, "a" * 24, "b", line=7)
    with pytest.raises(ValueError, match=r"^line 1: the target must have at most the model's 23 tokens, but has 24\.$"):
        translation_attention(translator, "a", "b" * 24)
    for marked, room in ((False, 24), (True, 23)):
        generator = Generator(tiny_bundle("decoder_only", mark_documents=marked))
        assert text_attention(generator, "a" * room).maps[0].weights_LHQK.shape == (1, 2, 24, 24)
        with pytest.raises(ValueError, match=rf"^line 1: the prompt must have at most the model's {room} tokens, but"):
            text_attention(generator, "a" * (room + 1))


@pytest.mark.parametrize("blank", ["", " \n"])
def test_a_blank_text_has_nothing_to_show(translator, tiny_bundle, blank):
    with pytest.raises(ValueError, match=r"^line 2: the source is blank"):
        translation_attention(translator, blank, "a", line=2)
    with pytest.raises(ValueError, match=r"^line 3: the prompt is blank"):
        text_attention(Generator(tiny_bundle("decoder_only")), blank, line=3)


def test_an_ensemble_has_no_attention_of_its_own(tiny_bundle):
    bundles = [tiny_bundle("encoder_decoder", seed=seed) for seed in (1, 2)]
    with pytest.raises(ValueError, match="attention is that of one model, but this is an ensemble of 2"):
        translation_attention(Translator(bundles[0], ensemble=bundles[1:]), "a", "b")
