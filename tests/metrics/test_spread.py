"""Mean and deviation over runs."""

import pytest

from transformer.metrics.spread import Spread, spread
from transformer.metrics.text import Score


def run(bleu: float, loss: float) -> list[Score]:
    return [Score("bleu", bleu, "tok:13a"), Score("loss", loss, "nats")]


def test_mean_and_deviation_of_a_sample() -> None:
    # The squares of the differences from the mean, 40: 4, 0, 1, 9; their sum over n - 1 is 14 / 3.
    found = spread([run(38, 1.0), run(40, 1.0), run(39, 1.0), run(43, 1.0)])
    assert [each.name for each in found] == ["bleu", "loss"]
    assert found[0].mean == pytest.approx(40)
    assert found[0].deviation == pytest.approx((14 / 3) ** 0.5)
    assert (found[0].n, found[0].signature) == (4, "tok:13a")
    assert found[1] == Spread("loss", 1.0, 0.0, 4, "nats")


def test_one_run_has_no_deviation() -> None:
    with pytest.raises(ValueError, match=r"needs at least 2 runs, but there are 1\.$"):
        spread([run(40, 1.0)])


def test_scores_computed_in_another_way_have_no_mean() -> None:
    other = [Score("bleu", 40, "tok:none"), Score("loss", 1.0, "nats")]
    with pytest.raises(
        ValueError, match=r"all runs must have the scores of the first, .*tok:13a.*, but one has .*none"
    ):
        spread([run(40, 1.0), other])
