"""The commands as a user runs them: each in a process of its own, in a folder of its own."""

import json
from pathlib import Path

import pytest
from processes import SMALL, run

from transformer.bundle import load_bundle


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.timeout(240)
def test_train_evaluate_translate(tmp_path: Path) -> None:
    trained = run(tmp_path, "train", *SMALL)
    assert trained.stdout == ""
    assert "Warning" not in trained.stderr
    [folder] = (tmp_path / "here" / "runs" / "phrases_en_de").iterdir()
    found = files(folder)
    assert {"config.yaml", "metrics.jsonl", "curve.png", "checkpoints/last.ckpt", "bundle/README.md"} <= found
    shown = folder.relative_to(tmp_path / "here")
    assert f"training in {shown}" in trained.stderr
    assert f"curve   {shown}/curve.png" in trained.stderr
    assert f"bundle  {shown}/bundle" in trained.stderr
    assert {path.split("/")[0] for path in files(tmp_path / "here")} == {"runs"}
    caches = (".cache/trueformer/", ".cache/matplotlib/", ".cache/huggingface/")
    assert {name for name in files(tmp_path / "home") if not name.startswith(caches)} <= {
        ".config/matplotlib/fontlist.json"
    }
    assert {name.split("/")[2].split("-")[0] for name in files(tmp_path / "home") if "trueformer" in name} == {
        *("texts", "tokenizer", "ids")
    }
    assert "\nkept all 60 pairs\n" in trained.stderr

    evaluated = run(tmp_path, "evaluate", f"bundle={shown}/bundle", "accelerator=cpu")
    scores = [json.loads(line) for line in evaluated.stdout.splitlines()]
    assert [score["name"] for score in scores] == ["bleu", "chrf", "ter", "exact_match", "loss", "perplexity"]
    card = (folder / "bundle" / "README.md").read_text(encoding="utf-8")
    for score in scores:  # the card tells the same
        how = score["how"].replace("|", "\\|")  # a bar inside a cell would end it
        assert f"| {score['name']} | {score['value']:.4f} | `{how}` |" in " ".join(card.split())

    lines = ["the answer is seven", "", "on May 4, 1999"]
    translated = run(tmp_path, "translate", f"{shown}/bundle", "--device", "cpu", stdin="\n".join(lines) + "\n")
    assert translated.stdout.count("\n") == 3
    assert translated.stdout.split("\n")[1] == ""
    tokenizer = load_bundle(folder / "bundle").target_tokenizer
    assert all(len(tokenizer.encode(line)) <= 12 for line in translated.stdout.split("\n"))


@pytest.mark.timeout(240)
def test_a_sweep_from_an_own_folder_of_settings(tmp_path: Path) -> None:
    own = tmp_path / "my settings" / "experiment"
    own.mkdir(parents=True)
    small = "".join(f"  {line}\n" for line in ("num_train: 60", "num_validation: 4", "num_test: 4"))
    text = "# @package _global_\ndefaults:\n  - phrases_en_de\n  - _self_\n\nlabel_smoothing: 0.25\ndata:\n"
    (own / "mine.yaml").write_text(text + small, encoding="utf-8")
    sweep = ["-m", "--config-dir", str(own.parent), "experiment=mine", *SMALL, "seed=1,2"]
    run(tmp_path, "train", *sweep)
    [folder] = (tmp_path / "here" / "runs" / "mine").iterdir()
    assert folder.name.startswith("sweep_")
    jobs = sorted(path for path in folder.iterdir() if path.is_dir())
    assert [job.name for job in jobs] == ["0", "1"]
    weights = set()
    for seed, job in enumerate(jobs, start=1):
        settings = (job / "config.yaml").read_text(encoding="utf-8")
        assert f"seed: {seed}\n" in settings
        assert "label_smoothing: 0.25\n" in settings
        weights.add((job / "bundle" / "model.safetensors").read_bytes())
    assert len(weights) == 2


@pytest.mark.parametrize("command", ["train", "evaluate"])
def test_help_names_groups_and_options(tmp_path: Path, command: str) -> None:
    shown = run(tmp_path, command, "--help").stdout
    assert f"transformer-{command}" in shown
    assert "decoding: beam, greedy, mbr, sample" in shown
    there = {"train": "csv_pairs, fineweb, hub_pairs, hub_text, ", "evaluate": "those of transformer-train"}
    assert f"data: {there[command]}" in shown
    assert files(tmp_path / "here") == set()


@pytest.mark.timeout(240)
def test_loggers_write_into_the_run_alone(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    pytest.importorskip("wandb")
    run(tmp_path, "train", *SMALL, "loggers=[{name: tensorboard}, {name: wandb}]", "hydra.run.dir=run")
    here = files(tmp_path / "here")
    assert {name.split("/")[0] for name in here} == {"run"}
    for wanted in ("run/tensorboard/events.out.tfevents.", "run/wandb/offline-run-"):
        assert any(name.startswith(wanted) for name in here)
    # wandb keeps debugging logs of its own where all programs of a user do.
    ours = [name for name in files(tmp_path / "home") if not name.startswith(".cache/wandb/logs/")]
    assert [name for name in ours if "wandb" in name or "events" in name] == []
