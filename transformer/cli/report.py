"""The end of a training run: test scores, the bundle with its card, a summary and sample outputs."""

import json
import shutil
from pathlib import Path

from rich.console import Console
from rich.table import Table

from transformer.bundle import save_bundle
from transformer.cli.run_card import RunFacts, run_card, started_with
from transformer.data.corpora.document_config import TextCorpusConfig
from transformer.data.preparation.report import PreparationReport
from transformer.inference.split import SplitScores, score_split
from transformer.metrics.breakdown import length_breakdown
from transformer.models.init import count_parameters
from transformer.training.callbacks import visible
from transformer.training.checkpoints import LAST, load_checkpoint
from transformer.training.config import TrainConfig
from transformer.training.run import CHECKPOINTS, CURVE, REPORT, RunResult
from transformer.training.totals import run_totals

NUM_SAMPLES = 5


def finish(result: RunResult, config: TrainConfig, bundle_folder: Path, run_folder: Path, console: Console) -> None:
    """Score the model, write its bundle and show what came out.

    Args:
        result: the finished run.
        config: its settings.
        bundle_folder: where to write the bundle.
        run_folder: the run's folder as the user knows it.
        console: where to show it.
    """
    scored = score_split(result.bundle, config.data, None, device=result.device)
    lengths = None
    if not isinstance(config.data, TextCorpusConfig):
        lines = scored.sources, scored.outputs, scored.references
        lengths = length_breakdown(*lines, bleu_tokenize=config.data.bleu_tokenize)
    own_folder = bundle_folder.parent
    bundle_folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(own_folder / CURVE, bundle_folder / CURVE)  # the card shows it
    save_bundle(bundle_folder, result.bundle, run_card(result, config, scored, lengths, _facts(own_folder)))
    console.print(summary(result, config, scored))
    if scored.outputs:
        console.print(samples(scored))
    console.print(f"curve   {run_folder / CURVE}", highlight=False)
    console.print(f"bundle  {run_folder / bundle_folder.name}", highlight=False)
    command, text = ("translate", "a sentence") if config.is_translation else ("generate", "a beginning")
    console.print(f"use     echo '{text}' | transformer-{command} {run_folder / bundle_folder.name}", highlight=False)


def _facts(folder: Path) -> RunFacts:
    """What a run has left in its folder about itself."""
    totals = run_totals(load_checkpoint(folder / CHECKPOINTS / LAST))
    report = None
    if (folder / REPORT).is_file():
        report = PreparationReport.from_plain(json.loads((folder / REPORT).read_text(encoding="utf-8")))
    return RunFacts(totals, report, started_with())


def summary(result: RunResult, config: TrainConfig, scored: SplitScores) -> Table:
    """The run in a few lines."""
    table = Table(title=f"scores on the {scored.split} split", title_justify="left", box=None, padding=(0, 2))
    for heading, justify in (("", "left"), ("value", "right"), ("how", "left")):
        table.add_column(heading, justify=justify)  # type: ignore[arg-type]
    for score in scored.scores:
        table.add_row(score.name, f"{score.value:.4f}" if score.value < 10 else f"{score.value:.2f}", score.signature)
    table.add_row("parameters", f"{count_parameters(result.bundle.model):,}", "tied ones once")
    best = f"best {config.checkpoint.monitor} {result.best_value:.4g} at step {result.best_step}"
    table.add_row("steps", f"{result.steps:,}", best)
    return table


def samples(scored: SplitScores) -> Table:
    """A few sentences, evenly spread over the split, with what the model and the reference say."""
    table = Table(box=None, padding=(0, 2), title="sample outputs", title_justify="left")
    for heading in ("source", "output", "reference"):
        table.add_column(heading, overflow="fold", ratio=1)
    step = max(1, len(scored.sources) // NUM_SAMPLES)
    for place in range(0, min(len(scored.sources), step * NUM_SAMPLES), step):
        cells = (scored.sources[place], scored.outputs[place], scored.references[place])
        table.add_row(*(visible(cell) for cell in cells))
    return table
