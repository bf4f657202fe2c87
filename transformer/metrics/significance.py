"""Whether one translation of a test set scores better than another by more than chance."""

import logging
from collections.abc import Sequence
from typing import Literal, NamedTuple

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest, Result

from transformer.metrics.text import BleuTokenize, check_pairs, check_references, ter_metric

CHANCE = 0.025
"""Below it a difference is called significant: the usual level of 5%, half of it for either direction."""

Verdict = Literal["better", "worse", "may be chance"]


class Estimate(NamedTuple):
    """A corpus score and its 95% confidence interval over resamples of the sentences: ``mean`` ± ``margin``."""

    value: float
    mean: float
    margin: float


class PairedScore(NamedTuple):
    """A score of two translations of the same sentences.

    Attributes:
        name: of the score.
        baseline, system: the two.
        p_value: how likely so large a difference in this direction is by the choice of sentences alone, as sacreBLEU
            tells it; 1 where there is none.
        signature: what it takes to compute it again, resampling included.
    """

    name: str
    baseline: Estimate
    system: Estimate
    p_value: float
    signature: str

    @property
    def difference(self) -> float:
        """System minus baseline."""
        return self.system.value - self.baseline.value

    @property
    def verdict(self) -> Verdict:
        """What the difference says about the system, at :data:`CHANCE`; of TER, less is better."""
        if self.p_value >= CHANCE:
            return "may be chance"
        return "better" if (self.difference > 0) != (self.name == "ter") else "worse"


def paired_bootstrap(
    baseline: Sequence[str],
    system: Sequence[str],
    references: Sequence[str],
    bleu_tokenize: BleuTokenize = "13a",
    *,
    more_references: Sequence[Sequence[str]] = (),
    num_resamples: int = 1000,
) -> list[PairedScore]:
    """Paired bootstrap resampling (Koehn 2004) of BLEU, chrF and TER, by sacreBLEU and with its fixed seed.

    It tells how far the choice of test sentences matters, not how far another training run of the same settings would
    be off: that is the deviation over seeds.

    Args:
        baseline, system, references: texts, line by line.
        bleu_tokenize: sacreBLEU's tokenizer, which also decides how TER cuts.
        more_references: further references of all sentences, line by line.
        num_resamples: test sets that are drawn, with replacement, from the sentences.

    Raises:
        ValueError: there are not as many of each, or none.
    """
    check_pairs(baseline, references)
    check_references(system, [references, *more_references])
    metrics: dict[str, Metric] = {
        "bleu": BLEU(tokenize=bleu_tokenize, force=True), "chrf": CHRF(), "ter": ter_metric(bleu_tokenize)
    }  # fmt: skip
    # It would tell every step; its warnings are ours to give.
    logger = logging.getLogger("sacrebleu")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        signatures, results = PairedTest(
            [("baseline", list(baseline)), ("system", list(system))],
            metrics,
            [list(each) for each in (references, *more_references)],
            test_type="bs",
            n_samples=num_resamples,
        )()
    finally:
        logger.setLevel(level)
    paired = []
    for name, (sacrebleu_name, signature) in zip(metrics, signatures.items(), strict=True):
        first, second = results[sacrebleu_name]
        assert isinstance(first, Result), "a score and not a system's name"
        assert isinstance(second, Result), "a score and not a system's name"
        assert second.p_value is not None
        # Of two translations that a score cannot tell apart, all resamples are equal, which sacreBLEU takes for rare.
        p_value = 1.0 if first.score == second.score else second.p_value
        paired.append(PairedScore(name, _estimate(first), _estimate(second), p_value, str(signature)))
    return paired


def _estimate(result: Result) -> Estimate:
    assert result.mean is not None
    assert result.ci is not None
    return Estimate(float(result.score), float(result.mean), float(result.ci))
