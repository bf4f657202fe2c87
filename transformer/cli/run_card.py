"""The card of a bundle: what the model is, how good, how it was made, and how to make it again. Markdown."""

import shlex
import sys
from collections.abc import Sequence
from typing import NamedTuple

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import OmegaConf

from transformer.cli.entry import FLAGS_WITH_VALUE, SWEEP
from transformer.cli.evaluation_markdown import lengths_section, scores_table
from transformer.cli.evaluation_report import search_in_words
from transformer.cli.machine import in_words, machine_in_words, versions
from transformer.cli.markdown import code, code_block, escaped, table
from transformer.data.config import DataConfig
from transformer.data.corpora.document_config import TextCorpusConfig
from transformer.data.preparation.report import PreparationReport
from transformer.inference.split import SplitScores
from transformer.metrics.breakdown import LengthBreakdown
from transformer.models.init import count_parameters
from transformer.training.config import TrainConfig
from transformer.training.run import CURVE, RunResult
from transformer.training.setup import choose_precision
from transformer.training.totals import RunTotals


class RunFacts(NamedTuple):
    """What is known about a run besides its result.

    Attributes:
        totals: what it has cost.
        report: how its training set was made; None of a stream.
        command: how it was started; None if it was resumed.
    """

    totals: RunTotals
    report: PreparationReport | None
    command: str | None


def started_with(arguments: Sequence[str] | None = None) -> str | None:
    """The command that started this run; None for a resumed one, whose first command is not known any more.

    Of a sweep it is the command of this run alone.

    Args:
        arguments: the command line without the program; default: that of this process.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if any(argument.lstrip("+").startswith("resume=") for argument in arguments):
        return None
    if HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN:
        flags = []
        for place, argument in enumerate(arguments):
            takes_value = place > 0 and arguments[place - 1] in FLAGS_WITH_VALUE
            if (argument.startswith("-") or takes_value) and argument not in SWEEP:
                flags.append(argument)
        overrides = (override.removeprefix("++") for override in HydraConfig.get().overrides.task)
        arguments = [*flags, *overrides]
    return shlex.join(["transformer-train", *arguments])


def run_card(
    result: RunResult,
    config: TrainConfig,
    scored: SplitScores,
    lengths: LengthBreakdown | None,
    facts: RunFacts,
) -> str:
    """The bundle's README.

    Args:
        result: the finished run.
        config: its settings.
        scored: its scores.
        lengths: scores by source length, for translation.
        facts: what else is known.
    """
    parts = [*_model(result, config, scored, lengths), *_making(result, config, facts), *_again(config, facts)]
    return "\n\n".join(parts) + "\n"


def card_title(data: DataConfig) -> str:
    """What a bundle is for, such as ``Translation from en to de``, and the kind of data that it comes from."""
    if isinstance(data, TextCorpusConfig):
        purpose = "Language model"
    else:
        purpose = f"Translation from {escaped(data.source_language)} to {escaped(data.target_language)}"
    return f"{purpose}, trained on {escaped(data.name)}"


def _model(result: RunResult, config: TrainConfig, scored: SplitScores, lengths: LengthBreakdown | None) -> list[str]:
    if isinstance(config.data, TextCorpusConfig):
        use = "echo 'a beginning' | transformer-generate FOLDER"
        kind = "A decoder-only Transformer language model."
    else:
        use = "echo 'a sentence' | transformer-translate FOLDER"
        languages = f"{config.data.source_language} to {config.data.target_language}"
        kind = f"An encoder-decoder Transformer that translates {languages}."
    parts = [
        f"# {card_title(config.data)}",
        f"{kind} {count_parameters(result.bundle.model):,} parameters.",
        code_block(use),
        f"## Scores on the {scored.split} split",
        scores_table(scored.scores),
        f"Weights of step {result.best_step:,} of {result.steps:,}, the best by `{config.checkpoint.monitor}`"
        f" ({result.best_value:.4f}); seed {config.seed}.",
    ]
    if scored.outputs:
        search = escaped(search_in_words(config.decoding))
        parts[-1] = f"{len(scored.outputs):,} sentences, one reference each. Search: {search}. {parts[-1]}"
    if scored.split == "validation":
        parts.append(
            "The data have no test split. These texts have also decided which weights are kept, so expect a little "
            "less on new ones."
        )
    if lengths is not None:
        parts += ["### By source length", lengths_section(lengths)]
    return [*parts, "Compute them again with:", code_block("transformer-evaluate bundle=FOLDER")]


def _making(result: RunResult, config: TrainConfig, facts: RunFacts) -> list[str]:
    totals, report = facts.totals, facts.report
    rows = [("steps", f"{result.steps:,}")]
    if totals.tokens is not None:
        rows.append(("tokens seen", f"{totals.tokens:,} target tokens, without padding"))
    if totals.seconds is not None:
        rows.append(("wall-clock time", f"{in_words(totals.seconds)}, validations included"))
    rows.append(("machine", escaped(machine_in_words(result.device, choose_precision(config.trainer)))))
    if report is not None:
        kept = sum(corpus.kept for corpus in report.corpora)
        tokens = ", ".join(f"{side.tokens:,} {side.name} tokens" for side in report.sides)
        rows.append(("training data", f"{kept:,} {'pairs' if len(report.sides) > 1 else 'texts'}, {tokens}"))
    if totals.data_checksum:
        rows.append(("its checksum", code(totals.data_checksum)))
    rows.append(("versions", ", ".join(f"{name} {number}" for name, number in versions().items())))
    return ["## How it was trained", f"![losses of training and validation against the step]({CURVE})",
            table(["", ""], rows)]  # fmt: skip


def _again(config: TrainConfig, facts: RunFacts) -> list[str]:
    plain = OmegaConf.to_yaml(OmegaConf.create(config.to_plain()))
    parts = ["## Make it again"]
    if facts.command is not None:
        parts += ["The run was started with", code_block(facts.command)]
    parts += [
        "All its settings are in `config.yaml`, which the run left beside this folder and which is repeated below. "
        "With the folder of that file for RUN_FOLDER, on the same kind of machine, the same weights come out of",
        code_block("transformer-train --config-dir RUN_FOLDER --config-name config"),
        f"<details>\n<summary>All settings (config.yaml)</summary>\n\n{code_block(plain, 'yaml')}\n\n</details>",
    ]
    return parts
