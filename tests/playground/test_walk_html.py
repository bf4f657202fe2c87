"""What is read off the page for each step."""

import re

import pytest

from transformer.playground.matrices import Matrices
from transformer.playground.page_text import escaped, notice, number
from transformer.playground.presets import PRESETS
from transformer.playground.walk import Walk, walk
from transformer.playground.walk_html import NOTHING_VISIBLE, step_html, worked


def of_preset(name: str) -> Walk:
    preset = PRESETS[name]
    return walk(preset.matrices, scaled=preset.scaled, causal=preset.causal)


def text(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", html.replace("</t", " </t")))


@pytest.mark.parametrize(
    ("step", "lines"),
    [
        (1, ["q1 · k1 = 1 × 1 + 0 × 0 = 1.0000", "q1 · k2 = 1 × 0 + 0 × 1 = 0.0000"]),
        (2, ["1.0000 / √2 = 1.0000 / 1.4142 = 0.7071", "0.0000 / √2 = 0.0000 / 1.4142 = 0.0000"]),
        (3, ["key 1 may be seen: 0.7071 stays", "key 2 may be seen: 0.0000 stays"]),
        (
            4,
            [
                "exp(0.7071 − 0.7071) / 1.4931 = 1.0000 / 1.4931 = 0.6698",
                "exp(0.0000 − 0.7071) / 1.4931 = 0.4931 / 1.4931 = 0.3302",
            ],
        ),
        (5, ["0.6698 × 10 = 6.6976", "0.3302 × 20 = 6.6048", "o1, their sum, = 13.3024"]),
    ],
)
def test_each_step_is_worked_out_in_numbers(step: int, lines: list[str]) -> None:
    assert [text(line) for line in worked(of_preset("One query"), 0, step)] == lines


def test_hidden_keys_are_worked_out_as_such() -> None:
    walked = of_preset("Six tokens")
    assert text(worked(walked, 1, 3)[2]) == "key 3 may not be seen: 0.8518 becomes −∞"
    assert text(worked(walked, 1, 4)[2]) == "exp(−∞) = 0.0000"
    assert [text(line) for line in worked(walked, 1, 5)] == [
        "0.4226 × (0.43, 0.15, 0.89) = (0.1817, 0.0634, 0.3761)",
        "0.5774 × (0.55, 0.87, 0.66) = (0.3176, 0.5023, 0.3811)",
        "o2, their sum, = (0.4993, 0.5657, 0.7572)",
    ]


def test_later_steps_are_left_open() -> None:
    walked = of_preset("One query")
    assert "q1 and q · k scaled masked weight value key 1 1.0000 0.7071 … … …" in text(step_html(walked, 0, 2))
    shown = text(step_html(walked, 0, 5))
    assert "key 1 1.0000 0.7071 0.7071 0.6698 10.0000 key 2 0.0000 0.0000 0.0000 0.3302 20.0000" in shown
    assert "sum 1.0000 13.3024" in shown


def test_a_query_that_sees_nothing_is_said_to() -> None:
    walked = of_preset("Nothing to see")
    for step in range(1, 6):
        assert NOTHING_VISIBLE in step_html(walked, 0, step)
        assert NOTHING_VISIBLE not in step_html(walked, 1, step)
    assert [text(line) for line in worked(walked, 0, 4)] == ["a11 = 0.0000", "a12 = 0.0000"]
    assert [text(line) for line in worked(walked, 0, 5)] == ["o1, their sum, = (0.0000, 0.0000)"]


def test_large_scores_do_not_overflow_the_worked_numbers() -> None:
    walked = walk(Matrices([[100] * 4], [[100] * 4, [-100] * 4], [[1], [2]]), scaled=False, causal=False)
    assert text(worked(walked, 0, 4)[0]) == "exp(40000.0000 − 40000) / 1.0000 = 1.0000 / 1.0000 = 1.0000"
    assert text(worked(walked, 0, 4)[1]) == "exp(−40000.0000 − 40000) / 1.0000 = 0.0000 / 1.0000 = 0.0000"


def test_numbers_have_four_decimals_and_no_negative_zero() -> None:
    assert [number(value) for value in (-0.00001, -1.5, 1 / 3, float("-inf"))] == ["0.0000", "−1.5000", "0.3333", "−∞"]


def test_foreign_texts_become_neither_markup_nor_templates() -> None:
    assert escaped("<b>${x}{{y}}`") == "&lt;b&gt;&#36;&#123;x}&#123;&#123;y}}&#96;"
    assert "<img" not in notice("<img src=x>", "error")
    assert notice("", "error") == ""
