"""`transformer-audit`: what it can be pointed at, what it prints, how it ends."""

import io
import json
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

from transformer.audit.outcome import AuditReport, CheckResult
from transformer.audit.run import CHECKS
from transformer.bundle import Bundle, load_weights, save_bundle
from transformer.cli.audit import app
from transformer.cli.audit_tables import print_report
from transformer.models.decoder_only import DecoderOnly
from transformer.training.checkpoints import load_checkpoint
from transformer.training.config import TrainConfig
from transformer.training.run import train

NAMES = [check.name for check in CHECKS]


def audit(*arguments: object) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments), "--threads", "1"])


def refusal(*arguments: object) -> str:
    result = audit(*arguments)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    return result.stderr


@pytest.fixture(autouse=True)
def _threads() -> Any:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def bundle_folder(tmp_path: Path, tiny_bundle: Callable[..., Bundle]) -> Path:
    save_bundle(tmp_path / "bundle", tiny_bundle("decoder_only"), "")
    return tmp_path / "bundle"


def test_bundle_as_text(bundle_folder: Path) -> None:
    result = audit(bundle_folder)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == f"audit of bundle {bundle_folder}"
    names = [line[2:22].rstrip() for line in lines]
    assert [name for name in names if name in NAMES] == NAMES
    assert "ids are drawn at random; 16 of 50 labels were tried" in result.stdout
    assert lines[-1].startswith("27 checks passed, 7 not applicable, in ")
    assert max(len(line) for line in lines) <= 140


def test_bundle_as_json(bundle_folder: Path) -> None:
    result = audit(bundle_folder, "--output", "json", "--quick")
    assert result.exit_code == 0, result.output
    [line] = result.stdout.splitlines()
    report = json.loads(line)
    assert list(report) == ["target", "passed", "seconds", "notes", "checks"]
    assert report["target"] == f"bundle {bundle_folder}"
    assert [row["name"] for row in report["checks"]] == [check.name for check in CHECKS if check.quick]


def test_failed_check_gives_status_1(bundle_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = DecoderOnly.hidden

    def leaking(self: DecoderOnly, tokens: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        hidden = forward(self, tokens, *arguments, **options)
        return hidden._replace(hidden_BLD=hidden.hidden_BLD + hidden.hidden_BLD.mean(1, keepdim=True))

    monkeypatch.setattr(DecoderOnly, "hidden", leaking)
    result = audit(bundle_folder, "--quick")
    assert result.exit_code == 1
    assert "future changed" in result.stdout
    assert "FAIL" in result.stdout
    assert "left out, because `future changed` fails" in result.stdout
    assert json.loads(audit(bundle_folder, "--quick", "--output", "json").stdout)["passed"] is False


def test_settings_with_new_weights(tmp_path: Path) -> None:
    small = ["model.d_model=16", "model.num_heads=2", "model.d_ff=32", "model.num_encoder_layers=1"]
    result = audit("experiment=translation", "data=tsv_pairs", "tokenizer=byte", *small, "model.num_decoder_layers=1",
                   "--quick", "--output", "json")  # fmt: skip
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["target"].startswith("experiment=translation data=tsv_pairs tokenizer=byte model.d_model=16")
    assert report["target"].endswith(", new weights")
    assert "ids are drawn at random; 6 of 260 labels were tried" in report["notes"]


@pytest.mark.parametrize(
    ("settings", "size", "note"),
    [
        (["tokenizer=char"], 104, "the 104 characters of ASCII stand in for those of the texts"),
        (["tokenizer=bpe", "tokenizer.vocab_size=500", "tokenizer.pad_vocab_to_multiple_of=64"], 512,
         "the vocabulary has the 512 tokens of the settings; no tokenizer is learnt"),
    ],
)  # fmt: skip
def test_size_of_a_vocabulary_that_is_not_learnt(settings: list[str], size: int, note: str) -> None:
    small = ["model=lm_char", "model.d_model=16", "model.num_heads=2", "model.d_ff=32", "model.num_layers=1"]
    result = audit("experiment=language_model", "data=python_docs", *small, *settings, "--quick", "--output", "json")
    assert result.exit_code == 0, result.output
    notes = json.loads(result.stdout)["notes"]
    assert notes[0] == note
    assert f"ids are drawn at random; 6 of {size} labels were tried" in notes


def test_run_and_checkpoint(tmp_path: Path, run_settings: Callable[..., dict[str, Any]]) -> None:
    folder = tmp_path / "run"
    config = TrainConfig.from_plain(run_settings("text", {"trainer.max_steps": 2}))
    folder.mkdir()
    OmegaConf.save(OmegaConf.create(config.to_plain()), folder / "config.yaml")
    train(config, folder, Console(quiet=True))
    last = folder / "checkpoints" / "last.ckpt"
    for target in (folder, last):
        result = audit(target, "--quick", "--output", "json")
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["target"] == f"{last}, step 2"
    best = next((folder / "checkpoints").glob("best-step=*.ckpt"))  # a path with the sign of a setting
    assert json.loads(audit(best, "--quick", "--output", "json").stdout)["target"] == f"{best}, step 2"
    assert "no such file" in refusal(folder / "checkpoints" / "best-step=3.ckpt")
    # The weights are those of the checkpoint: with others, a check can fail.
    checkpoint = load_checkpoint(last)
    checkpoint["state_dict"]["model.embedding.weight"].fill_(torch.nan)
    torch.save(checkpoint, last)
    assert audit(last, "--quick").exit_code == 1
    del checkpoint["state_dict"]["model.embedding.weight"]
    torch.save(checkpoint, last)
    assert "does not fit the run's model: " in refusal(last)
    shutil.copyfile(last, tmp_path / "last.ckpt")
    assert "must be in the folder `checkpoints` of a run, whose config.yaml it needs." in refusal(
        tmp_path / "last.ckpt"
    )


def test_what_cannot_be_audited(tmp_path: Path, bundle_folder: Path) -> None:
    assert refusal("nothing") == (
        "error: nothing must be a bundle, a run, a checkpoint, or settings such as experiment=NAME; no such file.\n"
    )
    assert "is neither a bundle, with its config.json, nor a run, with its config.yaml." in refusal(tmp_path)
    assert "a path and settings exclude each other" in refusal(bundle_folder, "seed=2")
    assert "one model is audited at a time, but there are 2 paths." in refusal(bundle_folder, bundle_folder)
    assert "several values of one setting" in refusal("experiment=phrases_en_de", "seed=1,2")
    assert "`model.num_head` is not a setting; did you mean `num_heads`?" in refusal(
        "experiment=phrases_en_de", "model.num_head=2"
    )
    assert "`modle`" in refusal("experiment=phrases_en_de", "modle.num_heads=2")
    assert "`model=...` needs an experiment" in refusal("model=lm_tiny")
    assert "--config-dir has no effect" in refusal(bundle_folder, "--config-dir", tmp_path)
    assert "--config-dir must be a folder" in refusal("experiment=phrases_en_de", "--config-dir", tmp_path / "none")
    assert "must be auto or one that this machine has" in refusal(bundle_folder, "--device", "tpu")


REPORT = AuditReport(
    rows=(
        CheckResult("runs", "basics", "pass", 0, 0, False, "logits that are not finite"),
        CheckResult("past seen", "causality", "pass", 1.234, 6.7e-10, True, "smallest change of the outputs"),
        CheckResult("future changed", "causality", "fail", 0.3, 6.7e-10, False, "largest change of an output"),
        CheckResult("cached", "decoding", "not applicable", None, None, False, "left out, because it fails"),
        CheckResult("cached, padded", "decoding", "not applicable", None, None, False, "left out, because it fails"),
    ),
    notes=("ids are drawn at random",),
    seconds=1.25,
)


@pytest.mark.parametrize("width", [80, 140])
def test_table_at_two_widths(width: int) -> None:
    console = Console(file=io.StringIO(), width=width)
    print_report("a model", REPORT, [], console)
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(len(line.rstrip()) for line in lines) <= width
    text = "\n".join(line.rstrip() for line in lines)
    assert "  past seen       pass       1.2  > 6.7e-10" in text
    assert "  future changed  FAIL       0.3  ≤ 6.7e-10" in text
    if width == 80:  # below the table, once for each reason
        assert "  FAIL `future changed`: largest change of an output\n" in text
        assert "  – `cached`, `cached, padded`: left out, because it fails\n" in text
    else:
        assert "≤ 6.7e-10  largest change of an output\n" in text
    assert text.endswith("  note: ids are drawn at random\n\n2 checks passed, 1 failed, 2 not applicable, in 1.2 s")


def test_wrong_weights_of_a_bundle_are_refused(bundle_folder: Path, tiny_bundle: Callable[..., Bundle]) -> None:
    (bundle_folder / "model.safetensors").write_bytes(b"nothing")
    assert "is not a readable safetensors file" in refusal(bundle_folder)
    with pytest.raises(ValueError, match="is not a readable"):
        load_weights(tiny_bundle("decoder_only").model, bundle_folder / "model.safetensors")
