"""`transformer-average`: of a run's checkpoints and of bundles."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result
from omegaconf import OmegaConf
from rich.console import Console
from typer.testing import CliRunner

from transformer.bundle import load_bundle, save_bundle
from transformer.cli.average import app
from transformer.training.checkpoints import load_checkpoint
from transformer.training.config import TrainConfig
from transformer.training.run import train


class Malice:
    """Writes a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.write_text, (self.marker, "run"))


def average(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


def refusal(*arguments: object) -> str:
    result = average(*arguments)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    return result.stderr


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four validations that keeps three checkpoints."""
    folder = tmp_path_factory.mktemp("run")
    plain: dict[str, Any] = {
        "data": {"name": "phrases", "num_train": 60, "num_validation": 4, "num_test": 4},
        "tokenizer": {"name": "byte"},
        "batching": {"max_tokens_per_batch": 600},
        "model": {
            "name": "encoder_decoder", "num_encoder_layers": 1, "num_decoder_layers": 1, "max_length": 160,
            "d_model": 16, "num_heads": 2, "d_ff": 32,
        },
        "optimizer": {"name": "adamw", "learning_rate": 1e-2},
        "scheduler": {"name": "constant"},
        "trainer": {"max_steps": 8, "accelerator": "cpu", "devices": 1, "precision": "32-true"},
        "validation": {"every_n_steps": 2, "num_generated": 0},
        "checkpoint": {"keep_latest": 3, "keep_best": 2},
        "decoding": {"name": "greedy"},
    }  # fmt: skip
    config = TrainConfig.from_plain(plain)
    OmegaConf.save(OmegaConf.create(config.to_plain()), folder / "config.yaml")
    train(config, folder, Console(quiet=True))
    return folder


def mean_of(folder: Path, names: list[str]) -> dict[str, torch.Tensor]:
    states = [load_checkpoint(folder / "checkpoints" / name)["state_dict"] for name in names]
    return {name: torch.stack([state[name].double() for state in states]).mean(0) for name in states[0]}


def test_the_last_and_the_best_checkpoints_of_a_run(run_folder: Path, tmp_path: Path) -> None:
    result = average(run_folder, "--last", 3)
    assert result.exit_code == 0, result.output
    bundle = run_folder / "bundle-last3"
    assert result.stdout == f"{bundle}: the mean of step 4, step 6, step 8\n"
    best = sorted(path.name for path in (run_folder / "checkpoints").glob("best-*"))
    assert average(run_folder, "--best", 2, "--output", tmp_path / "best").exit_code == 0
    for folder, names in ((bundle, [f"latest-step={step}.ckpt" for step in (4, 6, 8)]), (tmp_path / "best", best)):
        loaded, expected = load_bundle(folder), mean_of(run_folder, names)
        assert loaded.config.data.name == "phrases"
        for name, parameter in loaded.model.named_parameters():
            torch.testing.assert_close(parameter.double(), expected[f"model.{name}"], rtol=1e-6, atol=1e-9)
    card = (bundle / "README.md").read_text()
    assert card.startswith("# Translation from en to de, trained on phrases, averaged\n")
    assert f"    transformer-average {run_folder} --last 3\n" in card
    assert "the mean of the weights of step 4, step 6, step 8." in card
    assert f"{bundle} exists already; --force writes into it." in refusal(run_folder, "--last", 3)
    assert average(run_folder, "--last", 3, "--force").exit_code == 0
    assert "must have 4 checkpoints of the latest validations, but has 3" in refusal(run_folder, "--last", 4)
    assert "must have 3 best checkpoints, but has 2" in refusal(run_folder, "--best", 3)


def test_several_bundles(tmp_path: Path, tiny_bundle: Callable[..., Any]) -> None:
    bundles = [tiny_bundle("decoder_only", seed=seed, dropout=0.1 * seed) for seed in range(3)]
    folders = [tmp_path / str(seed) for seed in range(3)]
    for folder, bundle in zip(folders, bundles, strict=True):
        save_bundle(folder, bundle, "")
    result = average(*folders, "--output", tmp_path / "mean")
    assert result.exit_code == 0, result.output
    loaded = load_bundle(tmp_path / "mean").model
    parameters = [dict(bundle.model.named_parameters()) for bundle in bundles]
    for name, parameter in loaded.named_parameters():
        expected = torch.stack([each[name].double() for each in parameters]).mean(0)
        torch.testing.assert_close(parameter.double(), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["last.ckpt", "latest-step=6.ckpt"])
@pytest.mark.parametrize("kind", ["pickle", "truncated", "text"])
def test_CKPT_06_other_files_are_refused_with_their_path(
    run_folder: Path, tmp_path: Path, name: str, kind: str
) -> None:
    folder, marker = tmp_path / "run", tmp_path / "marker"
    shutil.copytree(run_folder, folder)
    path = folder / "checkpoints" / name
    match kind:
        case "pickle":
            torch.save({**torch.load(path, weights_only=True), "more": Malice(marker)}, path)
        case "truncated":
            path.write_bytes(path.read_bytes()[:2000])
        case "text":
            path.write_text("not a checkpoint\n")
    assert str(path) in refusal(folder, "--last", 3, "--output", tmp_path / "mean")
    assert not marker.exists()
    assert not (tmp_path / "mean").exists()


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"d_ff": 48}, r"must have shape \(32, 16\), but has \(48, 16\) in "),
        ({"num_heads": 4}, "models to be averaged must be alike, but `model.num_heads` is 2 in the first and 4 in "),
        ({"characters": "abc"}, "models that work together must have the same tokenizers"),
        ({"num_layers": 2}, "which the model does not have"),
    ],
)
def test_bundles_that_differ_are_refused(
    tmp_path: Path, tiny_bundle: Callable[..., Any], other: dict[str, Any], message: str
) -> None:
    save_bundle(tmp_path / "one", tiny_bundle("decoder_only"), "")
    save_bundle(tmp_path / "two", tiny_bundle("decoder_only", **other), "")
    error = refusal(tmp_path / "one", tmp_path / "two", "--output", tmp_path / "mean")
    assert re.search(message, error), error
    assert not (tmp_path / "mean").exists()


def test_what_does_not_go_together_is_refused(
    run_folder: Path, tmp_path: Path, tiny_bundle: Callable[..., Any]
) -> None:
    save_bundle(tmp_path / "one", tiny_bundle("decoder_only"), "")
    one, out = tmp_path / "one", ["--output", tmp_path / "out"]
    assert "--last and --best choose different checkpoints; give one" in refusal(run_folder, "--last", 1, "--best", 1)
    assert f"{run_folder} is a run's folder; say which of its checkpoints: --last 5, or" in refusal(run_folder, *out)
    assert "must be at least two bundles to average, but there is one" in refusal(one, *out)
    assert "--output must say where to write the mean of bundles" in refusal(one, one)
    assert "--last and --best need the folder of one run, with its config.yaml" in refusal(one, "--last", 2)
    assert "--last and --best need the folder of one run" in refusal(run_folder, run_folder, "--last", 2)
    assert f"{tmp_path / 'none'} must be a folder of a run or of a bundle, but" in refusal(tmp_path / "none", *out)
