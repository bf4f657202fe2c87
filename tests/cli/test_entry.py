"""Starting a command: the settings of all jobs are checked before the first begins."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from omegaconf import DictConfig, OmegaConf

from transformer.cli.entry import start
from transformer.config import Config

QUIET = """\
defaults:
  - override hydra/job_logging: none
  - override hydra/hydra_logging: none
  - _self_
hydra:
  output_subdir: null
  run:
    dir: .
"""


class Settings(Config):
    """Of a small command."""

    size: int
    color: str = "red"


class Started(NamedTuple):
    """The settings of the jobs that ran, the exit status and the messages."""

    jobs: list[tuple[Any, Any]]
    status: int
    err: str


@pytest.fixture
def run(tmp_path: Path, run_command: Callable[..., Any]) -> Callable[..., Started]:
    """Run a small command."""
    folder = tmp_path / "configs"
    folder.mkdir()
    (folder / "small.yaml").write_text(f"{QUIET}size: 1\n", encoding="utf-8")

    def run(*arguments: str) -> Started:
        jobs: list[tuple[Any, Any]] = []

        def job(config: DictConfig) -> None:
            jobs.append((config.size, OmegaConf.select(config, "color")))
            assert sys.argv == ["command", *arguments]  # with several devices the very command is started again

        def main() -> None:
            start(job, Settings, folder=folder, name="small", arguments=arguments)

        result = run_command(main, *arguments)
        return Started(jobs, result.status, result.err)

    return run


def test_one_job(run: Callable[..., Started]) -> None:
    assert run() == Started([(1, None)], 0, "")
    assert run("size=2", "color=blue") == Started([(2, "blue")], 0, "")


def test_a_job_for_each_value(run: Callable[..., Started]) -> None:
    started = run("-m", "size=2,3", "color=blue,green")
    assert started.jobs == [(2, "blue"), (2, "green"), (3, "blue"), (3, "green")]
    assert started.status == 0


def test_no_job_if_a_later_one_is_wrong(run: Callable[..., Started]) -> None:
    started = run("-m", "size=2,three")
    assert started == Started([], 2, "error: `size` must be a valid integer, but is 'three'.\n")


def test_several_values_without_a_sweep(run: Callable[..., Started]) -> None:
    started = run("size=2,3")
    assert (started.jobs, started.status) == ([], 2)
    assert started.err.startswith("error: several values")


def test_another_primary_file_from_an_own_folder(run: Callable[..., Started], tmp_path: Path) -> None:
    own = tmp_path / "own folder"
    own.mkdir()
    (own / "other.yaml").write_text(f"{QUIET}size: 5\n", encoding="utf-8")
    assert run("--config-dir", str(own), "--config-name", "other") == Started([(5, None)], 0, "")
    assert run(f"--config-dir={own}", "-cn", "other", "size=6") == Started([(6, None)], 0, "")
    assert run("--config-dir", str(own)).jobs == [(1, None)]  # its own files do not hide the given ones
    started = run("--config-name", "other")
    assert (started.jobs, started.status) == ([], 2)


def test_settings_may_be_looked_at_without_a_job(
    run: Callable[..., Started], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--cfg", "job", "size=3").jobs == []
    assert run("--cfg", "job", "size=three").status == 2
    assert run("--help").jobs == []
