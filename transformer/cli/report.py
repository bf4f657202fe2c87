"""The end of a training run: test scores, the bundle with its model card, a summary and sample outputs."""

from pathlib import Path

import lightning
import torch
from rich.console import Console
from rich.table import Table

from transformer.bundle import save_bundle
from transformer.data.corpora.document_config import TextCorpusConfig
from transformer.inference.split import SplitScores, score_split
from transformer.models.init import count_parameters
from transformer.training.callbacks import visible
from transformer.training.config import TrainConfig
from transformer.training.run import CURVE, RunResult

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
    scored = score_split(result.bundle, config.data, "test", device=result.device)
    save_bundle(bundle_folder, result.bundle, model_card(result, config, scored))
    console.print(summary(result, config, scored))
    if scored.outputs:
        console.print(samples(scored))
    console.print(f"curve   {run_folder / CURVE}", highlight=False)
    console.print(f"bundle  {run_folder / bundle_folder.name}", highlight=False)
    command, text = ("translate", "a sentence") if config.is_translation else ("generate", "a beginning")
    console.print(f"use     echo '{text}' | transformer-{command} {run_folder / bundle_folder.name}", highlight=False)


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


def model_card(result: RunResult, config: TrainConfig, scored: SplitScores) -> str:
    """The bundle's README: what the model is, its scores, and the command that makes it again."""
    # A bar inside a cell would end it.
    hows = {score.name: score.signature.replace("|", "\\|") for score in scored.scores}
    rows = "\n".join(f"| {score.name} | {score.value:.4f} | `{hows[score.name]}` |" for score in scored.scores)
    if isinstance(config.data, TextCorpusConfig):
        use = "echo 'a beginning' | transformer-generate FOLDER"
        kind = "A decoder-only Transformer language model."
    else:
        use = "echo 'a sentence' | transformer-translate FOLDER"
        languages = f"{config.data.source_language} to {config.data.target_language}"
        kind = f"An encoder-decoder Transformer that translates {languages}."
    return f"""# {config.model.name.replace("_", "-")} trained on {config.data.name}

{kind} {count_parameters(result.bundle.model):,} parameters.

## Scores on the {scored.split} split

| score | value | how |
|---|---|---|
{rows}

Weights of step {result.best_step} of {result.steps}, the best by `{config.checkpoint.monitor}`
({result.best_value:.4f}); seed {config.seed}.

## Use

    {use}

## Make it again

    transformer-train --config-dir RUN_FOLDER --config-name config

where RUN_FOLDER holds the `config.yaml` that the run left beside this folder. Made with torch {torch.__version__} and
lightning {lightning.__version__}.
"""
