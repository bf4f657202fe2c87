"""Overlapping windows, against every token by itself."""

import math

import pytest
import torch
import torch.nn.functional as F

from transformer.data.corpora.document_config import PlainTextConfig
from transformer.decoding.config import GreedyConfig
from transformer.inference.evaluation import evaluate_language_model
from transformer.inference.generator import Generator
from transformer.inference.split import score_split
from transformer.inference.strided import Window, strided_batches, strided_windows

TEXTS = ["abc def ghi äöü", "", "xyz xyz hi", "a"]
LENGTH = 7


def test_windows_by_hand() -> None:
    # Inputs 0 to 3 predict 1 to 4; then two more labels a window, from four tokens each; the last has one only.
    expected = [Window(0, 5, 1), Window(2, 7, 5), Window(4, 9, 7), Window(6, 10, 9)]
    assert strided_windows(10, 4, 2) == expected
    assert strided_windows(9, 4, 4) == [Window(0, 5, 1), Window(4, 9, 5)]  # side by side
    assert strided_windows(3, 4, 1) == [Window(0, 3, 1)]
    assert strided_windows(1, 4, 2) == []
    assert strided_windows(0, 4, 2) == []


@pytest.mark.parametrize("stride", range(1, LENGTH + 1))
@pytest.mark.parametrize("num_tokens", [2, 7, 8, 9, 14, 15, 16, 40])
def test_every_token_but_the_first_is_scored_once_from_a_full_context(num_tokens: int, stride: int) -> None:
    scored = []
    for window in strided_windows(num_tokens, LENGTH, stride):
        assert window.stop - window.start - 1 <= LENGTH
        for place in range(window.first_scored, window.stop):
            scored.append(place)
            assert place - window.start >= min(place, LENGTH - stride + 1)  # tokens before it
    assert scored == list(range(1, num_tokens))


@pytest.mark.parametrize("stride", [0, 8])
def test_a_stride_beyond_the_window_is_refused(stride: int) -> None:
    with pytest.raises(ValueError, match=rf"`stride` must be from 1 to .*`max_length` \(7\), but is {stride}\.$"):
        strided_windows(20, LENGTH, stride)


def _nll_token_by_token(model, ids, stride):
    """Each token after the first from the tokens of its window, by a pass that ends right before it."""
    total = 0.0
    for place in range(1, len(ids)):
        start = max(0, math.ceil((place - LENGTH) / stride)) * stride
        with torch.no_grad():
            logits = model(torch.tensor([ids[start:place]]))[0, -1]
        total += float(F.cross_entropy(logits, torch.tensor(ids[place])))
    return total


@pytest.mark.parametrize("packing", [False, True])
@pytest.mark.parametrize("position", ["learned", "rotary"])
@pytest.mark.parametrize(("stride", "max_tokens_per_batch"), [(1, 1), (2, 30), (3, 4096), (7, 20)])
def test_scores_are_those_of_every_token_by_itself(tiny_bundle, packing, position, stride, max_tokens_per_batch):
    bundle = tiny_bundle("decoder_only", max_length=LENGTH, position=position, mark_documents=packing)
    bundle = bundle.__class__(
        bundle.config.model_copy(update={"packing": packing}), bundle.model, *[bundle.target_tokenizer] * 2
    )
    tokenizer = bundle.target_tokenizer
    encoded = [tokenizer.encode(text) for text in TEXTS]
    sequences = [[1, *ids, 2] for ids in encoded] if packing else [[index for ids in encoded for index in ids]]
    total = sum(_nll_token_by_token(bundle.model, ids, stride) for ids in sequences)
    count = sum(len(ids) - 1 for ids in sequences)
    scores = evaluate_language_model(Generator(bundle), TEXTS, stride=stride, max_tokens_per_batch=max_tokens_per_batch)
    values = {score.name: score.value for score in scores}
    assert values["loss"] == pytest.approx(total / count, rel=1e-5)
    assert values["bits_per_byte"] == pytest.approx(total / math.log(2) / 29, rel=1e-5)
    assert values["bits_per_character"] == pytest.approx(total / math.log(2) / 26, rel=1e-5)
    how = f"{'documents in ' if packing else ''}windows of 7 tokens, stride {stride}"
    assert [score.signature for score in scores] == [
        *(f"nats per token, {how}", "exp(loss)", f"UTF-8 bytes, {how}", f"Unicode characters, {how}"),
    ]


def test_the_longest_stride_is_windows_side_by_side(tiny_bundle):
    generator = Generator(tiny_bundle("decoder_only", max_length=LENGTH))
    side_by_side = evaluate_language_model(generator, TEXTS)
    strided = evaluate_language_model(generator, TEXTS, stride=LENGTH)
    assert [a.value for a in strided] == pytest.approx([b.value for b in side_by_side], rel=1e-6)
    assert strided[0].value != pytest.approx(evaluate_language_model(generator, TEXTS, stride=1)[0].value, rel=1e-4)


def test_too_little_text_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a text of at least 2 tokens to score, but the longest has 1\.$"):
        strided_batches([[5], [], [6]], length=4, stride=2, pad_id=0, max_tokens_per_batch=100)


def test_settings_of_the_other_kind_of_model_are_refused(tiny_bundle, tmp_path):
    (tmp_path / "a.txt").write_text("abc\n")
    texts = PlainTextConfig(folder=str(tmp_path), train="a.txt", validation="a.txt")
    with pytest.raises(ValueError, match=r"^`decoding` has no effect on the loss of a language model; leave it out\.$"):
        score_split(tiny_bundle("decoder_only"), texts, "validation", GreedyConfig(name="greedy"))
    bundle = tiny_bundle("encoder_decoder")
    with pytest.raises(ValueError, match=r"^`stride` is for language models and has no effect on a translation model"):
        score_split(bundle, bundle.config.data.model_copy(update={"num_train": 20}), "test", stride=3)
