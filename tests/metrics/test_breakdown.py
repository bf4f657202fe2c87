"""Scores by source length, and the best and worst sentences."""

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from transformer.metrics.breakdown import equal_borders, extremes, length_breakdown

SOURCES = ["a b", "c", "a b c d", "e f", "a b c d e f g"]
OUTPUTS = ["one two three four", "five", "a long way to go home", "no such thing here", "x"]
REFERENCES = ["one two three five", "five", "a long way to go home", "one such thing is here", "x y z w"]


def test_groups_by_given_borders() -> None:
    breakdown = length_breakdown(SOURCES, OUTPUTS, REFERENCES, borders=[2, 3, 4])
    assert breakdown.unit == "words"
    members = [[0, 1, 3], [2], [4]]  # none has three words
    assert [(g.shortest, g.longest, g.num_sentences) for g in breakdown.groups] == [(1, 2, 3), (4, 4, 1), (7, 7, 1)]
    for group, numbers in zip(breakdown.groups, members, strict=True):
        outputs, references = [OUTPUTS[n] for n in numbers], [[REFERENCES[n] for n in numbers]]
        assert group.bleu == pytest.approx(BLEU().corpus_score(outputs, references).score)
        assert group.chrf == pytest.approx(CHRF().corpus_score(outputs, references).score)
    assert [group.length_ratio for group in breakdown.groups] == pytest.approx([9 / 10, 1, 1 / 4])


def test_the_tokenizer_of_bleu_is_a_setting() -> None:
    for tokenize, words in (("13a", 4), ("none", 3)):
        [group] = length_breakdown(["a b"], ["a b c."], ["a b c d e f"], borders=[9], bleu_tokenize=tokenize).groups
        assert group.length_ratio == pytest.approx(words / 6)


def test_five_groups_of_about_as_many() -> None:
    sources = [" ".join("w" * length) for length in range(1, 101)]
    groups = length_breakdown(sources, sources, sources).groups
    assert [(group.shortest, group.longest) for group in groups] == [(1, 20), (21, 40), (41, 60), (61, 80), (81, 100)]
    assert [group.num_sentences for group in groups] == [20] * 5
    # Equal lengths stay together.
    assert equal_borders([1, 2, 2, 2, 2, 2, 2, 2, 2, 9], 5) == [2]
    assert equal_borders([3, 3, 3], 5) == []
    assert equal_borders([8, 1, 5], 5) == [1, 5]


def test_texts_without_spaces_are_measured_in_characters() -> None:
    breakdown = length_breakdown(["北京是首都", "上海", "a b"], ["x"] * 3, ["x"] * 3, borders=[2])
    assert breakdown.unit == "characters"
    assert [(group.shortest, group.longest) for group in breakdown.groups] == [(2, 2), (3, 5)]


def test_an_empty_reference_has_a_finite_ratio() -> None:
    [group] = length_breakdown(["a b"], ["c d"], [""], borders=[5]).groups
    assert group.length_ratio == 2


def test_the_worst_and_the_best() -> None:
    found = extremes(SOURCES, OUTPUTS, REFERENCES, number=2)
    expected = [CHRF().sentence_score(o, [r]).score for o, r in zip(OUTPUTS, REFERENCES, strict=True)]
    assert sorted(range(5), key=lambda line: expected[line]) == [4, 3, 0, 1, 2]
    assert [(each.line, each.chrf) for each in found.worst] == [(5, expected[4]), (4, expected[3])]
    assert [each.line for each in found.best] == [2, 3]  # of equal ones the first comes first
    assert found.worst[0][2:] == ("a b c d e f g", "x", "x y z w", None, None, ())


def test_several_references() -> None:
    more = [["one two three four", "", "", "no such thing here", "z"]]
    found = extremes(SOURCES, OUTPUTS, REFERENCES, number=1, more_references=more)
    assert (found.best[0].line, found.best[0].chrf) == (1, pytest.approx(100))
    assert found.best[0].more_references == ("one two three four",)
    [_, group, *_] = length_breakdown(SOURCES, OUTPUTS, REFERENCES, borders=[1, 2], more_references=more).groups
    assert (group.num_sentences, group.bleu) == (2, pytest.approx(100))
    assert group.chrf == pytest.approx(100)
    with pytest.raises(ValueError, match="as many hypotheses as references"):
        extremes(SOURCES, OUTPUTS, REFERENCES, number=1, more_references=[more[0][:4]])


@pytest.mark.parametrize(("number", "worst", "best"), [(9, [5, 4, 1], [2, 3]), (0, [], [])])
def test_no_sentence_is_among_the_worst_and_the_best(number: int, worst: list[int], best: list[int]) -> None:
    found = extremes(SOURCES, OUTPUTS, REFERENCES, number=number)
    assert [each.line for each in found.worst] == worst
    assert [each.line for each in found.best] == best


def test_what_was_lost_and_won_against_a_baseline() -> None:
    baseline = [REFERENCES[0], "fiv", OUTPUTS[2], "", "x y z w"]
    found = extremes(SOURCES, OUTPUTS, REFERENCES, number=1, baseline=baseline)
    scores, others = (
        [CHRF().sentence_score(o, [r]).score for o, r in zip(texts, REFERENCES, strict=True)]
        for texts in (OUTPUTS, baseline)
    )
    [lost], [won] = found
    assert (lost.line, lost.baseline, lost.difference) == (5, "x y z w", scores[4] - others[4])
    assert (won.line, won.baseline, won.difference) == (4, "", scores[3] - others[3])
    everything = extremes(SOURCES, OUTPUTS, REFERENCES, number=9, baseline=baseline)
    assert [each.line for each in everything.worst] == [5, 1]
    assert [each.line for each in everything.best] == [4, 2]  # the third is the same


def test_other_numbers_of_texts_are_refused() -> None:
    for arguments in ((SOURCES[:4], OUTPUTS, REFERENCES), (SOURCES, OUTPUTS[:4], REFERENCES)):
        with pytest.raises(ValueError, match="as many hypotheses as references"):
            extremes(*arguments, number=1)
        with pytest.raises(ValueError, match="as many hypotheses as references"):
            length_breakdown(*arguments)
    with pytest.raises(ValueError, match="as many hypotheses as references"):
        extremes(SOURCES, OUTPUTS, REFERENCES, number=1, baseline=OUTPUTS[:4])
