"""``transformer-train``: train a model from composed settings, or resume a run."""

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from transformer.cli.compose import config_folder, load_yaml, parse
from transformer.cli.console import USAGE_ERROR, is_main_process, messages, one_line_errors, set_up_logging
from transformer.cli.entry import start
from transformer.training.config import TrainConfig

CONFIG, BUNDLE = "config.yaml", "bundle"
UNFINISHED = ".unfinished"  # while there are weights that the bundle does not have: it may be that of fewer steps
# What a run's own config.yaml needs of Hydra besides: it holds the run's settings only.
HYDRA_SETTINGS = ["hydra.output_subdir=null", "hydra/job_logging=none", "hydra/hydra_logging=none"]
AGAIN = "hydra.run.dir='runs/again/${now:%Y-%m-%d_%H-%M-%S}'"
# What cannot change when a run goes on: it would have no effect, or not fit what is stored.
FIXED = (
    "seed",
    "data",
    "tokenizer",
    "model",
    "optimizer",
    "ema",
    "batching.max_tokens_per_batch",
    "batching.over_long",
    "batching.packing",
    "preparation.streaming",
    "preparation.shuffle_buffer",
    "trainer.devices",
    "trainer.num_nodes",
    "trainer.accumulate_grad_batches",
)
# Settings of a corpus that are paths.
PATHS = {"folder", *(split + side for split in ("train", "validation", "test") for side in ("", "_source", "_target"))}


def main() -> None:
    """Entry point."""
    arguments = sys.argv[1:]
    resumed = [argument for argument in arguments if argument.startswith("resume=")]
    if not resumed:
        if any(argument.partition("=")[0] in ("--config-name", "-cn") for argument in arguments):
            arguments = [AGAIN, *HYDRA_SETTINGS, *arguments]
        with one_line_errors():
            refuse_mixture(arguments)
        start(_job, TrainConfig, folder=config_folder(), name="train", arguments=arguments)
        return
    folder = Path(resumed[-1].removeprefix("resume=")).resolve()
    if not (folder / CONFIG).is_file():
        print(f"error: {folder} is not a run's folder: it has no {CONFIG}.", file=sys.stderr)
        sys.exit(USAGE_ERROR)
    if {"-m", "--multirun"} & set(arguments):
        print("error: resume= goes on with one run, so it cannot be combined with -m.", file=sys.stderr)
        sys.exit(USAGE_ERROR)
    rest = [argument for argument in arguments if argument not in resumed]
    start(
        _job,
        TrainConfig,
        folder=folder,
        name=CONFIG.removesuffix(".yaml"),
        arguments=[*rest, f"hydra.run.dir={_quoted(folder)}", *HYDRA_SETTINGS],
    )


def refuse_mixture(arguments: Sequence[str]) -> None:
    """Refuse data or a model beside the default experiment, whose own settings of them would win unnoticed."""
    keys = {argument.partition("=")[0] for argument in arguments}
    chosen = sorted(keys & {"data", "model", "tokenizer", "optimizer"})
    if chosen and not keys & {"experiment", "~experiment", "--config-name", "-cn"}:
        raise ValueError(
            f"`{chosen[0]}=...` needs an experiment to go with: experiment=translation for sentence pairs, "
            "experiment=language_model for texts, or one of your own."
        )


def _quoted(path: Path) -> str:
    """A path as a value in Hydra's grammar, whatever characters it has."""
    escaped = str(path).replace("'", "\\'")
    return f"'{escaped}'"


def _job(composed: DictConfig) -> None:
    with one_line_errors():
        config = parse(TrainConfig, composed)
        _train(config, Path(HydraConfig.get().runtime.output_dir))


def _train(config: TrainConfig, folder: Path) -> None:
    # Imported late: torch and Lightning take seconds, and a wrong setting has been reported by now.
    from transformer.bundle import CONFIG as BUNDLE_COMPLETE  # written last
    from transformer.cli.audit_before_training import audit_before_training
    from transformer.cli.preparation import summary_line
    from transformer.cli.progress import PreparationProgress
    from transformer.cli.report import finish
    from transformer.data.preparation.report import PreparationReport
    from transformer.models.decoder_only import DecoderOnly
    from transformer.models.encoder_decoder import EncoderDecoder
    from transformer.training.checkpoints import LAST, RunInterrupted
    from transformer.training.host_memory import keep_freed_memory
    from transformer.training.run import CHECKPOINTS, nothing_to_do, train

    set_up_logging()
    keep_freed_memory()
    console = messages()
    resume = (folder / CHECKPOINTS / LAST).exists()
    shown = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    if resume:
        _refuse_changes(config, folder)
        has_bundle = (folder / BUNDLE / BUNDLE_COMPLETE).exists() and not (folder / UNFINISHED).exists()
        reason = nothing_to_do(config, folder) if has_bundle else None
        if reason is not None:
            console.print(reason, highlight=False)
            return
    if is_main_process():
        folder.mkdir(parents=True, exist_ok=True)
        if not resume:
            _save(config, folder)
        console.print(f"{'resuming' if resume else 'training in'} {shown}", highlight=False)
    try:
        with PreparationProgress(console) as progress:

            def prepared(report: PreparationReport | None) -> None:
                progress.close()
                if report is not None:
                    console.print(summary_line(report), highlight=False)

            def built(model: EncoderDecoder | DecoderOnly) -> None:
                if config.audit and is_main_process():
                    audit_before_training(model, console)

            def started() -> None:
                if is_main_process():
                    (folder / UNFINISHED).touch()
                    _save(config, folder)  # of a run that goes on only now: other settings may have been refused

            result = train(
                config,
                folder,
                console,
                resume=resume,
                progress=progress,
                prepared=prepared,
                built=built,
                started=started,
            )
    except RunInterrupted as stop:
        if is_main_process():
            command = shlex.join(["transformer-train", f"resume={shown}"])
            how = "stopped and saved" if stop.saved else "stopped at once"
            console.print(f"\n{how}. Go on with:\n  {command}", highlight=False)
        # Lightning kills the main process, which may be writing what is to be saved, when another ends with an error.
        sys.exit(0 if stop.saved and not is_main_process() else 128 + stop.signum)
    if is_main_process():
        _save(config, folder)  # of a run that lacked only its bundle and did not start
        finish(result, config, folder / BUNDLE, shown, console)
        (folder / UNFINISHED).unlink(missing_ok=True)


def _save(config: TrainConfig, folder: Path) -> None:
    """Write the settings at once, or not at all."""
    partial = folder / f".{CONFIG}.partial"
    OmegaConf.save(OmegaConf.create(config.to_plain()), partial)
    os.replace(partial, folder / CONFIG)


def _refuse_changes(config: TrainConfig, folder: Path) -> None:
    """A resumed run keeps what its weights, its optimizer and its place in the data depend on; files may move.

    Whether moved training files hold the same examples is checked when they are loaded.
    """
    was, will = parse(TrainConfig, load_yaml(folder / CONFIG)).to_plain(), config.to_plain()
    changes = [change for name in FIXED for change in _changes((), was, will, name.split(".")) if not _is_move(*change)]
    if changes:
        # Another kind of corpus or model has other settings, too; its name says it best.
        path, before, now = min(changes, key=lambda change: change[0][-1] != "name")
        raise ValueError(
            f"`{'.'.join(path)}` cannot change when a run is resumed: it was {before!r} and is now {now!r}."
        )


def _changes(
    path: tuple[str, ...], before: Any, now: Any, below: Sequence[str] = ()
) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """All single settings that differ, in the branch `below` if it is given; None stands for one that is missing."""
    if not isinstance(before, dict) and not isinstance(now, dict):
        if before != now:
            yield path, before, now
        return
    old, new = (branch if isinstance(branch, dict) else {} for branch in (before, now))
    for key in below[:1] or dict.fromkeys([*old, *new]):
        yield from _changes((*path, key), old.get(key), new.get(key), below[1:])


def _is_move(path: tuple[str, ...], before: Any, now: Any) -> bool:
    """Whether a change is only one of where files are; a file that comes or goes is more."""
    if before is None or now is None:
        return False
    match path:
        case ("tokenizer", "path" | "target_path"):
            return True  # the run has its own copies
        case ("data", name) | ("data", "corpora", _, name):
            return name in PATHS or (name == "dataset" and Path(now).is_dir())
    return False


if __name__ == "__main__":
    main()
