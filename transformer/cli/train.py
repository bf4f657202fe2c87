"""``transformer-train``: train a model from composed settings, or resume a run."""

import sys
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from transformer.cli.compose import config_folder, parse
from transformer.cli.console import USAGE_ERROR, messages, one_line_errors, set_up_logging
from transformer.cli.entry import start
from transformer.training.config import TrainConfig

CONFIG, BUNDLE = "config.yaml", "bundle"
INTERRUPTED = 130
# What a resumed run needs of Hydra, since its own config.yaml holds the run's settings only.
RESUME_FLAGS = ["hydra.output_subdir=null", "hydra/job_logging=none", "hydra/hydra_logging=none"]


def main() -> None:
    """Entry point."""
    arguments = sys.argv[1:]
    resumed = [argument for argument in arguments if argument.startswith("resume=")]
    if not resumed:
        start(_job, TrainConfig, folder=config_folder(), name="train", arguments=arguments)
        return
    folder = Path(resumed[-1].removeprefix("resume=")).resolve()
    if not (folder / CONFIG).is_file():
        print(f"error: {folder} is not a run's folder: it has no {CONFIG}.", file=sys.stderr)
        sys.exit(USAGE_ERROR)
    rest = [argument for argument in arguments if argument not in resumed]
    start(
        _job,
        TrainConfig,
        folder=folder,
        name=CONFIG.removesuffix(".yaml"),
        arguments=[*rest, f"hydra.run.dir={folder}", *RESUME_FLAGS],
    )


def _job(composed: DictConfig) -> None:
    with one_line_errors():
        config = parse(TrainConfig, composed)
        _train(config, Path(HydraConfig.get().runtime.output_dir))


def _train(config: TrainConfig, folder: Path) -> None:
    # Imported late: torch and Lightning take seconds, and a wrong setting has been reported by now.
    from transformer.cli.report import finish
    from transformer.training.checkpoints import LAST, RunInterrupted
    from transformer.training.run import CHECKPOINTS, NothingToDoError, train

    set_up_logging()
    console = messages()
    folder.mkdir(parents=True, exist_ok=True)
    resume = (folder / CHECKPOINTS / LAST).exists()
    OmegaConf.save(OmegaConf.create(config.to_plain()), folder / CONFIG)
    shown = Path(folder).relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    console.print(f"{'resuming' if resume else 'training in'} {shown}", highlight=False)
    try:
        result = train(config, folder, console, resume=resume)
    except NothingToDoError as reason:
        console.print(str(reason), highlight=False)
        return
    except RunInterrupted:
        console.print(f"\nstopped and saved. Go on with:\n  transformer-train resume={shown}", highlight=False)
        sys.exit(INTERRUPTED)
    finish(result, config, folder / BUNDLE, shown, console)


if __name__ == "__main__":
    main()
