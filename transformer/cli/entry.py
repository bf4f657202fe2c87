"""Start a Hydra command: check every setting of every job first, then hand over to Hydra."""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import hydra
from omegaconf import DictConfig

from transformer.cli.compose import SettingsError, allow_new_keys, compose_all, expand, parse
from transformer.cli.console import USAGE_ERROR
from transformer.config import Config

FLAGS_WITH_VALUE = {"--config-dir", "-cd", "--config-name", "-cn", "--config-path", "-cp"}
FLAGS_WITH_VALUE |= {"--package", "-p", "--info", "-i", "--cfg", "-c"}
SWEEP, OTHERS = {"--multirun", "-m"}, {"--help", "-h", "--hydra-help", "--version", "-v"}


def start(
    job: Callable[[DictConfig], None],
    kind: type[Config],
    *,
    folder: Path,
    name: str,
    arguments: Sequence[str],
) -> None:
    """Run ``job`` once, or once for each job of a sweep.

    Args:
        job: takes the composed configuration.
        kind: the settings it must make.
        folder, name: the primary YAML file.
        arguments: the command line, without the program.
    """
    flags, overrides, values = _split(arguments)
    config_dir = values.get("--config-dir", values.get("-cd"))
    name = values.get("--config-name", values.get("-cn", name))
    overrides = allow_new_keys(overrides, folder)
    try:
        if config_dir is not None and not Path(config_dir).is_dir():
            raise SettingsError(f"--config-dir must be a folder, but {config_dir} is none.")
        if not SWEEP & set(flags) and len(expand(overrides)) > 1:
            raise SettingsError("several values of one setting, as in seed=1,2, need -m: one run for each.")
        if not OTHERS & set(flags):
            own = None if config_dir is None else Path(config_dir)
            first, second = (own, folder) if own is not None and (own / f"{name}.yaml").is_file() else (folder, own)
            for config in compose_all(first, name, overrides, second):
                parse(kind, config)
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(USAGE_ERROR)
    given, sys.argv = sys.argv, [sys.argv[0], *flags, *overrides]

    begun = False

    def run(config: DictConfig) -> None:
        nonlocal begun
        begun = True
        sys.argv = given  # with several devices, Lightning starts this very command again
        job(config)
        begun = False  # of a sweep, another one may follow

    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # our own mistakes deserve a whole traceback
    try:
        hydra.main(version_base="1.3", config_path=str(folder), config_name=name)(run)()
    except OSError as error:
        if begun or error.filename is None:
            raise
        print(f"error: the folder of the run cannot be made: {error.strerror}: {error.filename}.", file=sys.stderr)
        sys.exit(USAGE_ERROR)


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str], dict[str, str]]:
    """Flags with their values, overrides, and the values by flag."""
    flags: list[str] = []
    overrides: list[str] = []
    values: dict[str, str] = {}
    rest = iter(arguments)
    for argument in rest:
        flag, equals, value = argument.partition("=")
        if not argument.startswith("-"):
            overrides.append(argument)
            continue
        flags.append(argument)
        if flag in FLAGS_WITH_VALUE and not equals:
            value = next(rest, "")
            flags.append(value)
        values[flag] = value
    return flags, overrides, values
