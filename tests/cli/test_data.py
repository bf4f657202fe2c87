"""transformer-data inspect: the report and the first examples as the model gets them, and nothing trained."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from transformer.cli.batch_tables import batch_tables
from transformer.cli.data import main
from transformer.data.batches.collate import collate_texts, collate_translation
from transformer.data.batches.packing import collate_packed_pairs
from transformer.data.batches.pairs import PairTokenizers
from transformer.data.subwords.config import CharConfig
from transformer.data.subwords.tokenizer import Tokenizer

CHARACTERS = Tokenizer.train(CharConfig(), ["abxy"])
BOTH = PairTokenizers(CHARACTERS, CHARACTERS)
SPECIAL = {"pad_id": CHARACTERS.pad_id, "bos_id": CHARACTERS.bos_id, "eos_id": CHARACTERS.eos_id}
PAIRS = [(7, CHARACTERS.encode("ab"), CHARACTERS.encode("x")), (9, CHARACTERS.encode("a"), CHARACTERS.encode("yx"))]


def cells(table: object) -> list[list[str]]:
    """The words of each line that is a position."""
    written = io.StringIO()
    Console(file=written, width=200).print(table)
    lines = [line.split() for line in written.getvalue().splitlines()]
    return [words for words in lines if words and words[0].isdigit()]


def test_inspect_shows_the_report_and_the_first_examples(run_command: Callable, tmp_path: Path) -> None:
    sources = ["a dog", "", "two dogs", "a long " * 40, "the end"]
    for name, lines in (("source", sources), ("target", [f"nr {k}" for k in range(5)])):
        (tmp_path / f"a.{name}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        (tmp_path / f"v.{name}").write_text("v\n", encoding="utf-8")
    files = [f"data.{split}_{side}={short}.{side}" for split, short in (("train", "a"), ("validation", "v"))
             for side in ("source", "target")]  # fmt: skip
    result = run_command(
        main, "inspect", "experiment=translation", "data=text_pairs", f"data.folder={tmp_path}", *files,
        "tokenizer=byte", "model.max_length=40",
    )  # fmt: skip
    assert result.status == 0
    assert "kept 3 of 5 pairs; left out: 1 blank, 1 over_long" in result.out
    assert "a.source', line 2" in result.out
    assert "a.source', line 4" in result.out
    assert "row 1 of 3 of the first batch" in result.out
    assert [path.name for path in Path.cwd().iterdir()] == ["lengths.png"]


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--help"], 0, "transformer-data inspect"),
        (["inspect", "-h"], 0, "transformer-data inspect"),
        (["look"], 2, "the command must be inspect, but is 'look'."),
        (["inspect", "model.n_head=4"], 2, "did you mean `num_heads`?"),
        (["inspect", "resume=runs/a"], 2, "resume= goes on with a run"),
    ],
)
def test_what_inspect_says_at_once(run_command: Callable, arguments: list[str], status: int, said: str) -> None:
    result = run_command(main, *arguments)
    assert result.status == status
    assert said in result.out + result.err
    assert list(Path.cwd().iterdir()) == []


def test_every_position_has_its_piece_id_and_mark() -> None:
    first, second = batch_tables(collate_translation(PAIRS, **SPECIAL), BOTH)
    a, b, x, y = (str(CHARACTERS.encode(letter)[0]) for letter in "abxy")
    assert cells(first) == [
        ["0", "a", a, "✓", "<s>", "1", "✓", "x", x, "✓"],
        ["1", "b", b, "✓", "x", x, "✓", "</s>", "2", "✓"],
        ["2", "</s>", "2", "✓", "<pad>", "0", "·", "<pad>", "0", "·"],
    ]
    assert cells(second)[0] == ["0", "a", a, "✓", "<s>", "1", "✓", "y", y, "✓"]
    assert cells(second)[2] == ["2", "<pad>", "0", "·", "x", x, "✓", "</s>", "2", "✓"]
    assert str(first.title).endswith("example 7")


def test_packed_rows_show_their_segments() -> None:
    (table,) = batch_tables(collate_packed_pairs([PAIRS], width=6, **SPECIAL), BOTH)
    assert [line[3] for line in cells(table)] == ["1", "1", "1", "2", "2", "0"]  # of the source
    assert [line[6] for line in cells(table)] == ["1", "1", "2", "2", "2", "0"]  # of the target


def test_windows_of_text() -> None:
    (table,) = batch_tables(collate_texts([(0, CHARACTERS.encode("abx"))], CHARACTERS.pad_id), BOTH)
    assert [(line[1], line[4]) for line in cells(table)] == [("a", "b"), ("b", "x")]
