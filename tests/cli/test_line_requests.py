"""What is asked of each line."""

import pytest

from transformer.cli.line_requests import LineRequest, PromptLine, TranslationLine, parse_json_line, phrases


def test_all_keys():
    line = parse_json_line(
        TranslationLine,
        '{"text": "a\\u0000\\n\\u00e4", "id": "x1", "tag": "<2de>", "prefix": "b", '
        '"required": ["c", ["d", "e f"]], "ordered": true, "banned": ["g"]}',
        3,
    )
    assert LineRequest.of(line) == LineRequest(
        text="a\0\nä", id="x1", tag="<2de>", prefix="b", required=(("c",), ("d", "e f")), ordered=True, banned=("g",)
    )


def test_a_line_wins_over_what_holds_for_all_and_adds_phrases():
    for_all = {"tag": "<2fr>", "prefix": "Z", "ordered": True, "required": (("A", "B"),), "banned": ("C",)}
    assert LineRequest.of(TranslationLine(text="x"), **for_all) == LineRequest(
        text="x", id=None, tag="<2fr>", prefix="Z", required=(("A", "B"),), ordered=True, banned=("C",)
    )
    own = TranslationLine(text="x", id=0, tag="<2de>", prefix="", required=("D",), ordered=False, banned=("E",))
    assert LineRequest.of(own, **for_all) == LineRequest(
        text="x", id=0, tag="<2de>", prefix="", required=(("A", "B"), ("D",)), ordered=False, banned=("C", "E")
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "must be a JSON object, but is not: EOF while parsing a value at line 1 column 0."),
        ("text", "must be a JSON object, but is not: expected ident at line 1 column 2."),
        ("[1]", "must be a JSON object, but is [1]."),
        ('"' + "a" * 90 + '"', f'must be a JSON object, but is "{"a" * 59} ....'),
        ("{}", "'text' must be given, but is missing."),
        ('{"text": null}', "'text' must be text, but is null."),
        ('{"text": "a", "txt": 1}', "'txt' is not a key of a line; known are text, id, required, ordered, banned."),
        (
            '{"text": "a", "tag": "<2de>"}',
            "'tag' is not a key of a line; known are text, id, required, ordered, banned.",
        ),
        ('{"text": "a", "id": 1.5}', "'id' must be text or a whole number, but is 1.5."),
        ('{"text": "a", "ordered": 1}', "'ordered' must be true or false, but is 1."),
        ('{"text": "a", "banned": "b"}', "'banned' must be a list of texts, but is \"b\"."),
        (
            '{"text": "a", "required": ["b", [1]]}',
            "'required' must be a list of texts and of lists of texts, but is [\"b\", [1]].",
        ),
    ],
)
def test_a_wrong_line_is_named(line, message):
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        parse_json_line(PromptLine, line, 12)
    assert str(refused.value) == f"line 12: {message}"


def test_half_a_surrogate_pair_is_no_text():
    with pytest.raises(ValueError, match=r"^line 1: must be a JSON object, but is not: "):
        parse_json_line(PromptLine, '{"text": "\\ud800"}', 1)


def test_phrases_are_lines_that_are_not_blank():
    assert phrases([" a b ", "", "\t", "c\r"]) == ("a b", "c")
