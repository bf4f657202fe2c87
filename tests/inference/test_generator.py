"""Continuing texts with a bundle of random weights."""

import logging
import random

import pytest
import torch

from transformer.bundle import save_bundle
from transformer.decoding.config import BeamConfig, GreedyConfig, SampleConfig
from transformer.inference.generator import Generator

GREEDY = GreedyConfig(name="greedy")
SEARCHES = pytest.mark.parametrize(
    "decoding",
    [
        GreedyConfig(name="greedy", max_new_tokens=12),
        BeamConfig(name="beam", size=3, max_new_tokens=12),
        SampleConfig(name="sample", temperature=1.5, seed=4, max_new_tokens=12),
    ],
    ids=["greedy", "beam", "sample"],
)


def _prompts(count, longest=13):
    generator = random.Random(0)
    return ["".join(generator.choices("abcdefgh ", k=generator.randint(1, longest))) for _ in range(count)]


@SEARCHES
@pytest.mark.parametrize("position", ["sinusoidal", "learned", "rotary", "alibi", "none"])
def test_a_prompt_does_not_depend_on_the_others(tiny_bundle, decoding, position):
    generator = Generator(tiny_bundle("decoder_only", position=position))
    prompts = _prompts(10, longest=12)
    alone = [generator.generate([prompt], decoding, first_line=k)[0] for k, prompt in enumerate(prompts, 1)]
    assert len(set(alone)) > 5
    assert generator.generate(prompts, decoding, max_tokens_per_batch=1) == alone
    assert generator.generate(prompts, decoding) == alone


def test_a_prompt_that_the_tokenizer_drops_is_named(tiny_bundle, monkeypatch):
    """As a tokenizer from a file does with invisible characters."""
    generator = Generator(tiny_bundle("decoder_only"))
    tokenizer = generator.bundle.target_tokenizer
    original = tokenizer.encode_batch
    monkeypatch.setattr(
        tokenizer, "encode_batch", lambda texts: original([text.replace("\u200b", "") for text in texts])
    )
    with pytest.raises(ValueError, match=r"^line 6: the prompt has no token in this model's vocabulary\.$"):
        generator.generate(["a", "", "\u200b"], GREEDY, first_line=4)


def test_a_short_prompt_beside_a_long_one_may_fill_the_model(tiny_bundle):
    """Without ``max_new_tokens``: padding takes no position, so each prompt goes on as far as it does alone."""
    generator = Generator(tiny_bundle("decoder_only", max_length=12))
    prompts = ["a", "abcde"]
    alone = [generator.generate([prompt], GREEDY)[0] for prompt in prompts]
    assert generator.generate(prompts, GREEDY) == alone


def test_greedy_continuation_equals_a_loop_without_cache(tiny_bundle):
    bundle = tiny_bundle("decoder_only")
    for prompt in _prompts(5):
        ids = bundle.target_tokenizer.encode(prompt)
        length = len(ids)
        for _ in range(24 - length + 1):  # a model of 24 positions reads 24 tokens and adds one more
            token = int(bundle.model(torch.tensor([ids]))[0, -1].argmax())
            if token == 2:
                break
            ids.append(token)
        assert len(ids) == 25 or token == 2
        assert Generator(bundle).generate([prompt], GREEDY) == [bundle.target_tokenizer.decode(ids[length:])]


def test_a_marked_text_begins_with_the_start_token_and_never_ends(tiny_bundle):
    bundle = tiny_bundle("decoder_only", mark_documents=True)
    read = []
    bundle.model.embedding.register_forward_pre_hook(lambda module, arguments: read.append(arguments[0].tolist()))
    generator = Generator(bundle)
    generator.generate(["abc", "a"], GreedyConfig(name="greedy", max_new_tokens=1))
    short, long = bundle.target_tokenizer.encode("a"), bundle.target_tokenizer.encode("abc")
    assert read == [[[0, 0, 1, *short], [1, *long]]]  # padded on the left


@pytest.mark.parametrize("mark_documents", [False, True])
def test_a_blank_prompt_has_a_blank_continuation(tiny_bundle, mark_documents):
    generator = Generator(tiny_bundle("decoder_only", mark_documents=mark_documents))
    decoding = SampleConfig(name="sample", max_new_tokens=6)
    [alone] = generator.generate(["abc"], decoding, first_line=3)
    assert generator.generate(["", " \t", "abc"], decoding) == ["", "", alone]


@pytest.mark.parametrize(
    ("max_new_tokens", "kept"),
    [(None, 4), (0, 8), (1, 8), (2, 7), (4, 5), (5, 4), (6, 4), (100, 4)],
)
@pytest.mark.parametrize("mark_documents", [False, True])
def test_a_prompt_without_room_keeps_its_end(tiny_bundle, caplog, max_new_tokens, kept, mark_documents):
    """A model of 8 positions. At least half of them are the prompt's."""
    bundle = tiny_bundle("decoder_only", max_length=8, mark_documents=mark_documents)
    read = []
    bundle.model.embedding.register_forward_pre_hook(lambda module, arguments: read.append(arguments[0].tolist()))
    decoding = GreedyConfig(name="greedy", max_new_tokens=max_new_tokens)
    with caplog.at_level(logging.WARNING):
        [output] = Generator(bundle).generate(["abcdefghabcdefgh"], decoding, first_line=3)
    length = 16 + mark_documents
    assert caplog.messages == [f"line 3 has {length} tokens, of which the last {kept} are used."]
    assert read[0] == [bundle.target_tokenizer.encode("abcdefghabcdefgh")[-kept:]]
    if max_new_tokens == 0:
        assert output == ""


def test_a_prompt_that_just_fits_is_left_alone(tiny_bundle, caplog):
    generator = Generator(tiny_bundle("decoder_only", max_length=8))
    with caplog.at_level(logging.WARNING):
        for max_new_tokens, length in ((1, 8), (2, 7), (5, 4), (None, 4)):
            decoding = GreedyConfig(name="greedy", max_new_tokens=max_new_tokens)
            [output] = generator.generate(["abcdefgh"[:length]], decoding)
            assert output
    assert caplog.messages == []


def test_no_prompt_gives_no_text(tiny_bundle):
    assert Generator(tiny_bundle("decoder_only")).generate([]) == []


def test_the_bundles_search_is_the_default(tiny_bundle):
    decoding = {"name": "greedy", "max_new_tokens": 3}
    generator = Generator(tiny_bundle("decoder_only", decoding=decoding))
    [short], [same] = generator.generate(["abc"]), generator.generate(["abc"], GreedyConfig(**decoding))
    [long] = generator.generate(["abc"], GREEDY)
    assert short == same
    assert long.startswith(short)
    assert len(long) > len(short)


def test_a_translation_model_is_refused(tiny_bundle):
    with pytest.raises(ValueError, match="holds a translation model; use transformer-translate"):
        Generator(tiny_bundle("encoder_decoder"))


def test_load(tiny_bundle, tmp_path):
    bundle = tiny_bundle("decoder_only")
    save_bundle(tmp_path / "bundle", bundle, "card")
    assert Generator.load(tmp_path / "bundle").generate(["abc"]) == Generator(bundle).generate(["abc"])
    with pytest.raises(ValueError, match="is not a bundle"):
        Generator.load(tmp_path)
