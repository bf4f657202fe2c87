"""Lists of layers and heads."""

import re

import pytest

from transformer.cli.number_lists import parse_numbers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2", [2]),
        ("1,3-4", [1, 3, 4]),
        ("4, 1-2,2", [4, 1, 2]),
        ("all", [1, 2, 3, 4]),
        ("mean,all", ["mean", 1, 2, 3, 4]),
        ("3,mean", [3, "mean"]),
    ],
)
def test_numbers_and_ranges_are_spelt_out(text, expected):
    assert parse_numbers(text, "--heads", ["mean"]).resolved(4, "cross-attention") == expected


@pytest.mark.parametrize("text", ["", "a", "1,", "2-1", "1-", "-1", "1.5", "mean", "1;2", "all-2", "1-99999999"])
def test_anything_else_is_refused(text):
    message = f"--layers must be a list such as 1,3-4 (or all), but is {text!r}."
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        parse_numbers(text, "--layers")


@pytest.mark.parametrize(("text", "number"), [("5", 5), ("0", 0), ("2-9", 5)])
def test_numbers_beyond_what_there_is_are_refused(text, number):
    numbers = parse_numbers(text, "--layers")
    with pytest.raises(ValueError, match=rf"^--layers must be from 1 to 4 for cross-attention, but has {number}\.$"):
        numbers.resolved(4, "cross-attention")
