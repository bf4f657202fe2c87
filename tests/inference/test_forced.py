"""The forced pass, against one pair at a time."""

import pytest
import torch

from transformer.inference.evaluation import evaluate_translation
from transformer.inference.forced import forced_log_probabilities, forced_pass
from transformer.inference.translator import Translator

SOURCES, TARGETS = [[5, 6, 7], [], [8, 9, 10, 11, 12]], [[6], [7, 8, 9, 10], []]


@torch.no_grad()
def _one(model, source, target):
    """Log probabilities of a target's tokens and of its end, as log-softmax over all logits (ids 1 and 2: marks)."""
    logits_TV = model(torch.tensor([[*source, 2]]), torch.tensor([[1, *target]]))[0]
    labels = [*target, 2]
    return torch.log_softmax(logits_TV.double(), -1)[torch.arange(len(labels)), labels]


def test_log_probabilities_pair_after_pair(tiny_bundle):
    bundle = tiny_bundle("encoder_decoder")
    with torch.inference_mode():
        values_N = forced_log_probabilities(Translator(bundle), SOURCES, TARGETS)
    expected = torch.cat([_one(bundle.model, *pair) for pair in zip(SOURCES, TARGETS, strict=True)])
    assert len(expected) == 2 + 5 + 1
    torch.testing.assert_close(values_N.double(), expected, rtol=1e-5, atol=1e-5)


def test_an_ensemble_is_the_mean_of_distributions(tiny_bundle):
    bundles = [tiny_bundle("encoder_decoder", seed=seed) for seed in (0, 1, 2)]
    with torch.inference_mode():
        values_N = forced_log_probabilities(Translator(bundles[0], ensemble=bundles[1:]), SOURCES, TARGETS)
    pairs = list(zip(SOURCES, TARGETS, strict=True))
    by_model = torch.stack([torch.cat([_one(bundle.model, *pair) for pair in pairs]) for bundle in bundles])
    torch.testing.assert_close(values_N.double(), by_model.exp().mean(0).log(), rtol=1e-5, atol=1e-5)
    assert (by_model.mean(0) - values_N).abs().max() > 1e-2


def test_the_loss_of_an_ensemble_is_its_own(tiny_bundle):
    bundles = [tiny_bundle("encoder_decoder", seed=seed) for seed in (0, 1)]
    translator = Translator(bundles[0], ensemble=bundles[1:])
    sources, references = ["abc def", "x"], ["cba", "yy"]
    scores = {score.name: score.value for score in evaluate_translation(translator, sources, references).scores}
    tokenizer = bundles[0].target_tokenizer
    pairs = [(tokenizer.encode(s), tokenizer.encode(r)) for s, r in zip(sources, references, strict=True)]
    by_model = torch.stack([torch.cat([_one(bundle.model, *pair) for pair in pairs]) for bundle in bundles])
    assert scores["loss"] == pytest.approx(float(-by_model.exp().mean(0).log().mean()), rel=1e-5)


def test_weights_labels_and_masks(tiny_bundle):
    translator = Translator(tiny_bundle("encoder_decoder"))
    with torch.inference_mode():
        [decoded], labels_BT, scored_BT = forced_pass(translator, SOURCES, TARGETS, backend="explicit")
    assert [labels_BT[row, scored_BT[row]].tolist() for row in range(3)] == [[6, 2], [7, 8, 9, 10, 2], [2]]
    weights_BHTS = decoded.cross_weights[0]
    assert weights_BHTS.shape == (3, 2, 5, 6)
    assert weights_BHTS[1, :, :, 1:].abs().max() == 0  # only the end token of an empty source is there
    with torch.inference_mode():
        assert forced_pass(translator, SOURCES, TARGETS).decoded[0].cross_weights[0] is None
