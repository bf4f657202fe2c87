"""``transformer-average``: one bundle with the mean of several checkpoints' or bundles' weights."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from transformer.cli.console import one_line_errors, set_up_logging

if TYPE_CHECKING:
    from transformer.bundle import Bundle

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def average(
    folders: Annotated[
        list[Path],
        typer.Argument(help="Folder of a run, or folders of two or more bundles of one shape.", show_default=False),
    ],
    last: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Checkpoints of a run's last validations, which it keeps with checkpoint.keep_latest.",
            show_default=False,
        ),
    ] = None,
    best: Annotated[
        int | None,
        typer.Option(
            min=1, help="Best checkpoints of a run, which it keeps with checkpoint.keep_best.", show_default=False
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Folder of the new bundle; for a run, beside its own unless given.", show_default=False),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write into a folder that exists.")] = False,
) -> None:
    """Average weights (Vaswani et al. 2017: of the last 5 checkpoints) and write a bundle.

    The mean of checkpoints of one run is often better than each of them, and costs nothing in use. It is taken in
    float64. The new bundle has the search and the tokenizers of the first.
    """
    with one_line_errors():
        # Imported late: torch takes seconds, and --help needs none.
        from transformer.bundle import save_bundle

        set_up_logging()
        target = _target(folders, last, best, output)
        if target.exists() and not force:
            raise ValueError(f"{target} exists already; --force writes into it.")
        if last is None and best is None:
            bundle, parts = _of_bundles(folders)
        else:
            bundle, parts = _of_run(folders[0], last, best)
        save_bundle(target, bundle, _card(bundle, folders, parts, last, best))
        print(f"{target}: the mean of {', '.join(parts)}")


def _target(folders: list[Path], last: int | None, best: int | None, output: Path | None) -> Path:
    """Where to write; refuses options that do not go together."""
    from transformer.bundle import CONFIG as BUNDLE_CONFIG
    from transformer.cli.train import CONFIG as RUN_CONFIG

    if last is not None and best is not None:
        raise ValueError("--last and --best choose different checkpoints; give one of them.")
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"{folder} must be a folder of a run or of a bundle, but does not exist.")
    if last is None and best is None:
        runs = [folder for folder in folders if (folder / RUN_CONFIG).is_file()]
        if runs and not (runs[0] / BUNDLE_CONFIG).is_file():
            raise ValueError(f"{runs[0]} is a run's folder; say which of its checkpoints: --last 5, or --best 3.")
        if len(folders) < 2:
            raise ValueError("there must be at least two bundles to average, but there is one.")
        if output is None:
            raise ValueError("--output must say where to write the mean of bundles.")
        return output
    if len(folders) > 1 or not (folders[0] / RUN_CONFIG).is_file():
        raise ValueError(f"--last and --best need the folder of one run, with its {RUN_CONFIG}.")
    return output or folders[0] / (f"bundle-best{best}" if last is None else f"bundle-last{last}")


def _of_run(folder: Path, last: int | None, best: int | None) -> tuple["Bundle", list[str]]:
    from transformer.cli.compose import load_yaml, parse
    from transformer.cli.train import CONFIG
    from transformer.training.averaging import average_checkpoints, best_checkpoints, latest_checkpoints
    from transformer.training.config import TrainConfig
    from transformer.training.parts import untrained_bundle
    from transformer.training.run import CHECKPOINTS

    config, monitor = parse(TrainConfig, load_yaml(folder / CONFIG)), ""
    if last is not None:
        paths = latest_checkpoints(folder / CHECKPOINTS, last)
    else:
        assert best is not None
        monitor = config.checkpoint.monitor
        paths = best_checkpoints(folder / CHECKPOINTS, best, monitor, config.direction(monitor))
    bundle = untrained_bundle(config, folder)
    steps = average_checkpoints(bundle.model, paths)
    return bundle, [f"step {step}" for step in sorted(steps)]


def _of_bundles(folders: list[Path]) -> tuple["Bundle", list[str]]:
    from transformer.bundle import load_bundle
    from transformer.inference.same_tokenizers import check_same_tokenizers
    from transformer.training.averaging import WeightMean

    first = load_bundle(folders[0])
    mean = WeightMean(first.model)
    for folder in folders:
        bundle = load_bundle(folder)
        check_same_tokenizers(first, bundle, str(folder))
        mean.add(dict(bundle.model.named_parameters()), str(folder))
        _check_same_shape(first, bundle, folder)
    mean.finish()
    return first, [str(folder) for folder in folders]


def _check_same_shape(first: "Bundle", other: "Bundle", folder: Path) -> None:
    """Refuse models that do different things with weights of the same shapes."""
    one, two = first.config.model.to_plain(), other.config.model.to_plain()
    for name in one.keys() | two.keys():
        if "dropout" not in name and one.get(name) != two.get(name):
            raise ValueError(
                f"models to be averaged must be alike, but `model.{name}` is {one.get(name)!r} in the first and "
                f"{two.get(name)!r} in {folder}."
            )


def _card(bundle: "Bundle", folders: list[Path], parts: list[str], last: int | None, best: int | None) -> str:
    """The README of the new bundle."""
    from transformer.cli.run_card import card_title
    from transformer.models.init import count_parameters

    chosen = [] if last is None and best is None else ["--best", str(best)] if last is None else ["--last", str(last)]
    output = [] if chosen else ["--output", "FOLDER"]  # only a run's folder has a place for it
    command = shlex.join(["transformer-average", *map(str, folders), *chosen, *output])
    return f"""# {card_title(bundle.config.data)}, averaged

{count_parameters(bundle.model):,} parameters: the mean of the weights of {", ".join(parts)}.

## Make it again

    {command}
"""


def main() -> None:
    """Entry point."""
    app()


if __name__ == "__main__":
    main()
