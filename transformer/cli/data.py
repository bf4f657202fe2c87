"""``transformer-data inspect``: how a training set is made, and what the model gets of it, without training."""

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from transformer.cli.compose import config_folder, parse
from transformer.cli.console import USAGE_ERROR, messages, one_line_errors, set_up_logging
from transformer.cli.entry import start
from transformer.cli.train import refuse_mixture
from transformer.training.config import TrainConfig

if TYPE_CHECKING:
    from transformer.training.parts import RunParts

LENGTHS = "lengths.png"
USAGE = """Usage:
  transformer-data inspect [OVERRIDES]    the settings are those of transformer-train, such as
                                          experiment=translation data=tsv_pairs data.train=FILE data.validation=FILE

Prepares the training set as a run would (and keeps it in the cache for that run), shows what was read, kept and left
out and why, the lengths and the work of the tokenizer, draws lengths.png here, and shows the first examples of the
first batch exactly as the model gets them. Nothing is trained."""


def main() -> None:
    """Entry point."""
    command, *arguments = sys.argv[1:] or ["--help"]
    if {"--help", "-h"} & {command, *arguments}:
        print(USAGE)
        return
    if command != "inspect":
        print(f"error: the command must be inspect, but is {command!r}.\n\n{USAGE}", file=sys.stderr)
        sys.exit(USAGE_ERROR)
    if any(argument.startswith("resume=") for argument in arguments):
        print("error: resume= goes on with a run, but inspect trains nothing; leave it out.", file=sys.stderr)
        sys.exit(USAGE_ERROR)
    with one_line_errors():
        refuse_mixture(arguments)
    here = ["hydra.run.dir=.", "hydra.output_subdir=null"]
    start(_job, TrainConfig, folder=config_folder(), name="train", arguments=[*arguments, *here])


def _job(composed: DictConfig) -> None:
    with one_line_errors():
        _inspect(parse(TrainConfig, composed))


def _inspect(config: TrainConfig) -> None:
    # Imported late: torch takes seconds, and a wrong setting has been reported by now.
    from rich.console import Console

    from transformer.cli.batch_tables import batch_tables
    from transformer.cli.preparation import report_tables, summary_line
    from transformer.cli.progress import PreparationProgress
    from transformer.data.preparation.length_picture import draw_lengths
    from transformer.training.parts import build_parts

    set_up_logging()
    with PreparationProgress(messages()) as progress, tempfile.TemporaryDirectory() as folder:
        parts: RunParts = build_parts(config, Path(folder), progress)
    terminal = sys.stdout.isatty()
    console = Console(soft_wrap=not terminal, width=None if terminal else 120)
    if parts.report is None:
        console.print("A stream is not read before training: there is no report.\n")
    else:
        console.print(summary_line(parts.report), highlight=False)
        for table in report_tables(parts.report):
            console.print(table)
        draw_lengths(parts.report, Path(LENGTHS), max_length=config.model.max_length)
        console.print(f"lengths of the texts: {LENGTHS}\n", highlight=False)
    batch = next(iter(parts.data.train_dataloader()))
    for table in batch_tables(batch, parts.tokenizers):
        console.print(table)


if __name__ == "__main__":
    main()
