"""Forced scoring against the models' own forward pass, one text at a time."""

import math
import random

import pytest
import torch

from transformer.bundle import Bundle
from transformer.data.corpora.pair_config import MixtureConfig, PhrasesConfig
from transformer.data.subwords.config import CharConfig
from transformer.data.subwords.tokenizer import Tokenizer
from transformer.decoding.config import BeamConfig, GreedyConfig, SampleConfig
from transformer.inference import forced
from transformer.inference.generator import Generator
from transformer.inference.scorer import score_texts, score_translations
from transformer.inference.translator import Translator

BOS, EOS = 1, 2
PLAIN = GreedyConfig(name="greedy")


def _texts(count, seed, longest=22):
    generator = random.Random(seed)
    return ["".join(generator.choices("abcdefgh ", k=generator.randint(1, longest))) for _ in range(count)]


def _expected(model, inputs, labels):
    """Log probability of each label, from all logits of one unpadded row."""
    with torch.no_grad():
        logits = model(*(torch.tensor([row]) for row in inputs))[0].double()
    log_probs = logits - logits.exp().sum(-1, keepdim=True).log()
    return [log_probs[place, label].item() for place, label in enumerate(labels)]


@pytest.fixture(scope="module")
def translator(tiny_bundle):
    return Translator(tiny_bundle("encoder_decoder"))


@pytest.fixture(scope="module")
def generator(tiny_bundle):
    """Make a generator of a model that was trained on texts with marks, or without."""
    return lambda mark, **settings: Generator(tiny_bundle("decoder_only", mark_documents=mark, **settings))


def test_translations_have_the_probabilities_of_the_models_own_logits(translator):
    sources, targets = _texts(9, seed=1), _texts(9, seed=2)
    scores = score_translations(translator, sources, targets)
    tokenizer = translator.bundle.target_tokenizer
    for source, target, score in zip(sources, targets, scores, strict=True):
        ids = tokenizer.encode(target)
        expected = _expected(translator.model, [[*tokenizer.encode(source), EOS], [BOS, *ids]], [*ids, EOS])
        assert score.token_log_probabilities == pytest.approx(expected, abs=1e-5)
        assert score.log_probability == pytest.approx(sum(expected), abs=1e-4)
        assert score.tokens == [*target, "</s>"]
        assert score.length == len(target) + 1
        assert score.perplexity == pytest.approx(math.exp(-sum(expected) / (len(target) + 1)), rel=1e-4)


def test_the_probabilities_of_all_first_tokens_add_up_to_one(translator):
    size = translator.bundle.target_tokenizer.vocab_size
    scores = score_translations(translator, ["abc"] * size, [[token] for token in range(size)])
    assert sum(math.exp(score.token_log_probabilities[0]) for score in scores) == pytest.approx(1, abs=1e-5)


def test_targets_may_be_token_ids(translator):
    ids = [translator.bundle.target_tokenizer.encode("bad"), []]
    assert score_translations(translator, ["abc"] * 3, [ids[0], "bad", ids[1]]) == score_translations(
        translator, ["abc"] * 3, ["bad", ids[0], ""]
    )


def test_a_pair_does_not_depend_on_the_others(translator):
    sources, targets = _texts(12, seed=3), _texts(12, seed=4)
    together = score_translations(translator, sources, targets)
    assert len({score.log_probability for score in together}) == 12
    alone = [
        score_translations(translator, [source], [target])[0] for source, target in zip(sources, targets, strict=True)
    ]
    for others in (
        alone,
        score_translations(translator, sources, targets, max_tokens_per_batch=1),
        score_translations(translator, sources, targets, max_tokens_per_batch=50),
        score_translations(translator, sources[::-1], targets[::-1])[::-1],
    ):
        for one, other in zip(together, others, strict=True):
            assert one.tokens == other.tokens
            assert one.token_log_probabilities == pytest.approx(other.token_log_probabilities, abs=1e-5)


@pytest.mark.parametrize(
    ("decoding", "divisor"),
    [
        (PLAIN, 1.0),
        (SampleConfig(name="sample"), 1.0),
        (BeamConfig(name="beam", length_penalty=0.0), 1.0),
        (BeamConfig(name="beam"), 10 / 6),  # (5 + 5) / 6
        (BeamConfig(name="beam", length_penalty=2.0), 25 / 9),
        (BeamConfig(name="beam", normalization="average"), 5.0),
        (BeamConfig(name="beam", normalization="average", length_penalty=0.5), 5**0.5),
    ],
)
def test_scores_are_normalised_as_by_the_search(tiny_bundle, translator, generator, decoding, divisor):
    [score] = score_translations(translator, ["abc"], ["face"], decoding)
    assert score.score == pytest.approx(score.log_probability / divisor, rel=1e-9)
    own = Translator(tiny_bundle("encoder_decoder", decoding=decoding.to_plain()))
    assert score_translations(own, ["abc"], ["face"]) == [score]
    [of_text] = score_texts(generator(mark=True), ["face"], decoding)
    assert of_text.score == pytest.approx(of_text.log_probability / divisor, rel=1e-9)


def test_of_an_empty_target_the_end_token_is_scored(translator):
    scores = score_translations(translator, ["abc", "", " "], ["", "ab", " "])
    tokenizer, model = translator.bundle.target_tokenizer, translator.model
    a, b, space = tokenizer.encode("ab ")
    assert [score.tokens for score in scores] == [["</s>"], ["a", "b", "</s>"], [" ", "</s>"]]
    for score, inputs, labels in (
        (scores[0], [[*tokenizer.encode("abc"), EOS], [BOS]], [EOS]),
        (scores[1], [[EOS], [BOS, a, b]], [a, b, EOS]),
        (scores[2], [[space, EOS], [BOS, space]], [space, EOS]),
    ):
        assert score.token_log_probabilities == pytest.approx(_expected(model, inputs, labels), abs=1e-5)


def test_nothing_is_cut(tiny_bundle):
    translator = Translator(tiny_bundle("encoder_decoder", max_length=8))
    [score] = score_translations(translator, ["abcdefg"], ["gfedcba"])
    assert score.length == 8
    with pytest.raises(ValueError, match=r"^line 12: the source must have at most the model's 7 tokens, but has 8\.$"):
        score_translations(translator, ["a", "a", "abcdefgh"], ["b"] * 3, first_line=10)
    with pytest.raises(ValueError, match=r"^line 2: the target must have at most the model's 7 tokens, but has 9\.$"):
        score_translations(translator, ["a", "a"], ["b", "abcdefghi"])


def test_there_must_be_as_many_targets_as_sources(translator):
    with pytest.raises(ValueError, match="as many targets as sources, but there are 1 targets and 2 sources"):
        score_translations(translator, ["a", "b"], ["c"])
    assert score_translations(translator, [], []) == []


def test_sources_stand_behind_their_tags(tiny_bundle):
    plain = tiny_bundle("encoder_decoder")
    tokenizer = Tokenizer.train(CharConfig(), ["abcdefgh "], tags=["<2de>", "<2fr>"])
    data = MixtureConfig(corpora={tag[2:4]: PhrasesConfig(tag=tag) for tag in ("<2de>", "<2fr>")})
    torch.manual_seed(3)
    model = type(plain.model)(plain.model.config, tokenizer.vocab_size, tokenizer.vocab_size).eval()
    config = plain.config.model_copy(update={"data": data})
    translator = Translator(Bundle(config, model, tokenizer, tokenizer))
    tags = ["<2fr>", "<2de>"]
    scores = score_translations(translator, ["abc"] * 2, ["ba"] * 2, tags=tags)
    assert abs(scores[0].log_probability - scores[1].log_probability) > 1e-3
    ids = tokenizer.encode("ba")
    for tag, score in zip(tags, scores, strict=True):
        source = [tokenizer.tag_id(tag), *tokenizer.encode("abc"), EOS]
        expected = _expected(model, [source, [BOS, *ids]], [*ids, EOS])
        assert score.token_log_probabilities == pytest.approx(expected, abs=1e-5)
    with pytest.raises(ValueError, match="sources must be tagged as in training"):
        score_translations(translator, ["abc"], ["ba"])


@pytest.mark.parametrize("mark", [True, False], ids=["marked", "running"])
def test_texts_have_the_probabilities_of_the_models_own_logits(generator, mark):
    model = generator(mark)
    texts = _texts(9, seed=5)
    together = score_texts(model, texts)
    tokenizer = model.bundle.target_tokenizer
    for text, score in zip(texts, together, strict=True):
        ids = tokenizer.encode(text)
        ids = [BOS, *ids, EOS] if mark else ids
        expected = _expected(model.model, [ids[:-1]], ids[1:]) if len(ids) > 1 else []
        assert score.token_log_probabilities == pytest.approx(expected, abs=1e-5)
        assert score.tokens == ([*text, "</s>"] if mark else [*text[1:]])
    for budget in (1, 40):
        for one, other in zip(together, score_texts(model, texts, max_tokens_per_batch=budget), strict=True):
            assert one.token_log_probabilities == pytest.approx(other.token_log_probabilities, abs=1e-5)


@pytest.mark.parametrize("settings", [{"position": "rotary"}, {"sliding_window": 3}, {"position": "alibi"}])
def test_texts_in_a_batch_of_other_kinds_of_models(generator, settings):
    model, texts = generator(True, **settings), _texts(8, seed=6)
    alone = [score_texts(model, [text])[0].log_probability for text in texts]
    assert [score.log_probability for score in score_texts(model, texts)] == pytest.approx(alone, abs=1e-4)


def test_a_text_without_anything_to_score(generator):
    average = BeamConfig(name="beam", normalization="average")
    for decoding in (None, average):
        scores = score_texts(generator(mark=False), ["", "a", "ab"], decoding)
        assert scores[:2] == [([], [], 0.0, 0.0)] * 2
        assert math.isnan(scores[0].perplexity)
        assert scores[2].tokens == ["b"]
        assert score_texts(generator(mark=False), ["", "a"], decoding) == scores[:2]
    assert score_texts(generator(mark=True), [""])[0].tokens == ["</s>"]


def test_no_text_is_cut(generator):
    running, marked = generator(mark=False, max_length=8), generator(mark=True, max_length=8)
    assert [score.length for score in score_texts(running, ["abcdefgha"])] == [8]
    assert [score.length for score in score_texts(marked, ["abcdefg"])] == [8]
    with pytest.raises(ValueError, match=r"^line 6: the text must have at most the model's 9 tokens, but has 10\.$"):
        score_texts(running, ["a", "abcdefghab"], first_line=5)
    with pytest.raises(ValueError, match=r"^line 1: the text must have at most the model's 7 tokens, but has 8\.$"):
        score_texts(marked, ["abcdefgh"])


def test_never_more_logits_at_once_than_allowed_and_none_for_padding(translator, monkeypatch):
    sources, targets = _texts(8, seed=7), _texts(8, seed=8)
    expected = score_translations(translator, sources, targets)
    size = translator.bundle.target_tokenizer.vocab_size
    monkeypatch.setattr(forced, "CPU_CHUNK_ELEMENTS", 5 * size + 1)
    rows = []
    handle = translator.model.output.register_forward_hook(lambda module, inputs, output: rows.append(len(output)))
    try:
        scores = score_translations(translator, sources, targets, max_tokens_per_batch=1000)
    finally:
        handle.remove()
    num_tokens = sum(len(target) + 1 for target in targets)
    assert rows == [5] * (num_tokens // 5) + [num_tokens % 5] * (num_tokens % 5 > 0)
    for one, other in zip(expected, scores, strict=True):
        assert one.token_log_probabilities == pytest.approx(other.token_log_probabilities, abs=1e-5)


def test_a_model_in_training_mode_scores_without_dropout(tiny_bundle, translator, generator):
    trained = Translator(tiny_bundle("encoder_decoder"))
    trained.model.train()
    sources, targets = _texts(3, seed=9), _texts(3, seed=10)
    assert score_translations(trained, sources, targets) == score_translations(translator, sources, targets)
    assert trained.model.training
    trained = generator(mark=True)
    trained.model.train()
    assert score_texts(trained, sources) == score_texts(generator(mark=True), sources)
    assert trained.model.training


def test_an_ensemble_scores_by_the_mean_of_its_distributions(tiny_bundle):
    bundles = [tiny_bundle("encoder_decoder", seed=seed) for seed in (1, 2, 3)]
    sources, targets = _texts(4, seed=11), _texts(4, seed=12)
    each = [score_translations(Translator(bundle), sources, targets) for bundle in bundles]
    together = score_translations(Translator(bundles[0], ensemble=bundles[1:]), sources, targets)
    for number, score in enumerate(together):
        values = zip(*(scores[number].token_log_probabilities for scores in each), strict=True)
        expected = [math.log(sum(map(math.exp, of_token)) / 3) for of_token in values]
        assert score.token_log_probabilities == pytest.approx(expected, abs=1e-5)
        assert score.log_probability == pytest.approx(sum(expected), abs=1e-4)
