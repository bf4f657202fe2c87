"""Markdown, read back by a parser that is not ours."""

import pytest
from markdown_it import MarkdownIt

from transformer.cli.markdown import code, code_block, escaped, table

PARSER = MarkdownIt("commonmark").enable("table")


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "*a* _b_ __c__ `d` <unk> & &amp; | # x [y](z) ![w](v) ~~s~~ a\\b $m$",
        "1. a",
        "北京 ⏎",
        "<b>x</b>",
        "a  b",
    ],
)
def test_an_escaped_text_reads_as_it_is(text: str) -> None:
    [_, inline, _] = PARSER.parse(f"x {escaped(text)} x")
    assert inline.children is not None
    assert {child.type for child in inline.children} <= {"text", "text_special"}
    assert "".join(child.content for child in inline.children) == f"x {text} x"


def test_line_breaks_and_control_characters_are_signs() -> None:
    assert escaped("a\nb\tc\x00") == "a⏎b\N{REPLACEMENT CHARACTER}c\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("text", ["a", "a`b", "``", "a|b", "`a` ``b``"])
def test_code_in_a_cell(text: str) -> None:
    tokens = PARSER.parse(table(["x"], [[code(text)]]))
    [_, inline] = [token for token in tokens if token.type == "inline"]
    assert inline.children is not None
    assert [(child.type, child.content) for child in inline.children] == [("code_inline", text)]


def test_a_code_block_holds_fences() -> None:
    [fence] = PARSER.parse(code_block("a\n```\nb\n", "yaml"))
    assert (fence.type, fence.info, fence.content) == ("fence", "yaml", "a\n```\nb\n")


def test_a_table_lines_up() -> None:
    assert table(["name", "n"], [["北京", "1"], ["a", "1,000"]], numbers=[1]).splitlines() == [
        "| name |     n |",
        "| ---- | ----: |",
        "| 北京 |     1 |",
        "| a    | 1,000 |",
    ]
