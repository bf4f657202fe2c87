"""A test file that is missing is said of before the training, whose scores would need it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from transformer.training.config import TrainConfig
from transformer.training.run import train


@pytest.mark.parametrize("kind", ["translation", "text"])
@pytest.mark.parametrize("streaming", [False, True])
def test_a_missing_test_file_stops_a_run_before_it_begins(
    run_settings: Callable[..., Any], tmp_path: Path, kind: str, streaming: bool
) -> None:
    changes: dict[str, Any] = {"preparation.streaming": streaming}
    if kind == "text":
        changes |= {"data.test": "typo.txt"}
    else:
        (tmp_path / "lines.txt").write_text("a b c\n" * 20)
        sides = {f"{split}_{side}": "lines.txt" for split in ("train", "validation") for side in ("source", "target")}
        test = {"test_source": "lines.txt", "test_target": "typo.txt"}
        changes |= {"data": {"name": "parallel_text", "folder": str(tmp_path), **sides, **test}}
    config = TrainConfig.from_plain(run_settings(kind, changes))
    with pytest.raises(ValueError, match=r"typo\.txt"):
        train(config, tmp_path / "run", Console(quiet=True))
    assert not (tmp_path / "run" / "checkpoints").exists()
