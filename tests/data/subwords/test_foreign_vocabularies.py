"""Tokenizer files of others whose ids are not as ours: of two files, and with gaps."""

from pathlib import Path

import numpy as np
import pytest
import tokenizers
from tokenizers import models

from transformer.data.subwords.config import FileTokenizerConfig
from transformer.data.subwords.tokenizer import Tokenizer


def vocabulary(path: Path, ids: dict[str, int]) -> Path:
    tokenizers.Tokenizer(models.WordLevel(ids, unk_token="<unk>")).save(str(path))
    return path


OURS = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "a": 4}


@pytest.mark.parametrize(
    ("target", "ids"),
    [
        ({"<pad>": 0, "<s>": 1, "b": 2, "<unk>": 3, "</s>": 4}, "(0, 1, 4)"),
        ({"<pad>": 0, "b": 1, "</s>": 2, "<unk>": 3, "<s>": 4}, "(0, 4, 2)"),
        ({"b": 0, "<s>": 1, "</s>": 2, "<unk>": 3, "<pad>": 4}, "(4, 1, 2)"),
    ],
)
def test_both_sides_must_have_the_same_control_ids(tmp_path: Path, target: dict[str, int], ids: str) -> None:
    first, second = vocabulary(tmp_path / "en.json", OURS), vocabulary(tmp_path / "de.json", target)
    with pytest.raises(ValueError, match="must be the same") as caught:
        Tokenizer.from_file_config(FileTokenizerConfig(path=str(first), target_path=str(second)))
    assert str(caught.value) == (
        "The ids of pad, begin and end must be the same on both sides, but are (0, 1, 2) in "
        f"{str(first)!r} and {ids} in {str(second)!r}."
    )


def test_the_unknown_token_may_differ(tmp_path: Path) -> None:
    first = vocabulary(tmp_path / "en.json", OURS)
    second = vocabulary(tmp_path / "de.json", {"<pad>": 0, "<s>": 1, "</s>": 2, "b": 3, "<unk>": 4})
    source, target = Tokenizer.from_file_config(FileTokenizerConfig(path=str(first), target_path=str(second)))
    assert source.control_ids == target.control_ids == (0, 1, 2)
    assert (source.unk_id, target.unk_id) == (3, 4)


def test_ids_with_gaps_are_all_below_the_size_of_the_vocabulary(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(vocabulary(tmp_path / "t.json", {**OURS, "b": 20}))
    assert tokenizer.vocab_size == 21
    ids = tokenizer.encode("b")
    assert ids == [20]
    assert np.max(ids) < tokenizer.vocab_size
    assert tokenizer.decode([4, 7, 20]) == "a b"  # a model may well say 7
    assert tokenizer.pieces([4, 7, 20]) == ["a", "<no token 7>", "b"]
    with pytest.raises(ValueError, match=r"below the vocabulary size \(21\), but one is 21\."):
        tokenizer.decode([21])


def test_no_tags_are_added_to_ids_with_gaps(tmp_path: Path) -> None:
    # The library would give the first of them 6, which is "b".
    path = vocabulary(tmp_path / "t.json", {**OURS, "b": 6})
    message = r"t\.json': Tags can be added only where every id has a token, but 1 have none\.$"
    with pytest.raises(ValueError, match=message):
        Tokenizer.load(path, tags=["<2de>", "<2en>"])
    backend = tokenizers.Tokenizer.from_file(str(path))
    backend.add_special_tokens(["</s>"])
    backend.save(str(path))
    assert Tokenizer.load(path, tags=[]).vocab_size == 7
