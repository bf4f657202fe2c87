"""From a command line to checked settings: Hydra composes, pydantic checks, and mistakes become one sentence.

No torch is imported here, so a mistyped setting is reported in about a second.
"""

import difflib
import importlib.resources
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ValidationError
from yaml import YAMLError

from transformer.config import Config

ConfigT = TypeVar("ConfigT", bound=Config)


class SettingsError(ValueError):
    """A mistake in the settings; the message is for the user."""


def config_folder() -> Path:
    """The folder of the YAML files: inside the installed package, or at the top of a clone."""
    inside = Path(str(importlib.resources.files("transformer"))) / "configs"
    return inside if inside.is_dir() else inside.parent.parent / "configs"


def compose_all(folder: Path, name: str, overrides: Sequence[str], other: Path | None) -> Iterator[DictConfig]:
    """Compose the configuration of every job of a command line (one, or all of a ``-m`` sweep).

    Args:
        folder, name: where the primary YAML file is.
        overrides: after :func:`allow_new_keys`.
        other: one more folder of YAML files, for what the first does not have.

    Raises:
        SettingsError: for an override that does not fit.
    """
    search_path = [] if other is None else [f"hydra.searchpath=['file://{other.resolve()}']"]
    with initialize_config_dir(str(folder.resolve()), version_base="1.3"):
        for job in expand(overrides):
            _refuse_overlap(job, [folder] if other is None else [other, folder])
            try:
                composed = compose(name, [*job, *search_path])
            except (HydraException, OmegaConfBaseException, YAMLError, ValueError) as error:
                raise SettingsError(_explain_hydra(error)) from error
            yield composed


def _refuse_overlap(job: Sequence[str], folders: Sequence[Path]) -> None:
    """An experiment's own values would win, unnoticed, over a model, data set or tokenizer chosen beside it."""
    chosen = {key: value for key, equals, value in (override.partition("=") for override in job) if equals}
    own = list(_with_bases(str(chosen.get("experiment")), folders))
    for group in ("data", "model", "tokenizer", "optimizer"):
        if group in chosen and any(experiment.get(group) for experiment in own):
            raise SettingsError(
                f"`{group}={chosen[group]}` and `experiment={chosen['experiment']}` both make settings of the {group}. "
                f"Change single ones ({group}.SETTING=...), or start from experiment=translation or "
                "experiment=language_model."
            )


def _with_bases(name: str, folders: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """The experiment's file, and those of the experiments that it begins with, as their `defaults` name them."""
    names = [f"experiment/{name}"]
    for one in names:  # grows meanwhile
        file = next((file for folder in folders if (file := folder / f"{one}.yaml").is_file()), None)
        if file is None:
            continue
        experiment = OmegaConf.to_container(load_yaml(file), resolve=False)
        assert isinstance(experiment, dict)
        yield {str(key): value for key, value in experiment.items()}
        for entry in experiment.get("defaults") or []:
            if isinstance(entry, dict):  # such as /experiment@_global_: base
                [(group, option)] = entry.items()
                base = f"/experiment/{option}" if str(group).partition("@")[0] == "/experiment" else ""
            else:
                base = str(entry).partition("@")[0]
            path = base.removeprefix("/") if base.startswith("/") else f"{one.rpartition('/')[0]}/{base}"
            if base and path not in names:
                names.append(path)


def load_yaml(path: Path) -> DictConfig:
    """The settings in a YAML file, as they are.

    Raises:
        SettingsError: it cannot be read, or holds no settings.
    """
    try:
        loaded = OmegaConf.load(path)
    except (OSError, YAMLError, UnicodeDecodeError, OmegaConfBaseException) as error:
        raise SettingsError(f"{path} cannot be read as YAML: {' '.join(str(error).split())}.") from error
    if not isinstance(loaded, DictConfig):
        raise SettingsError(f"{path} must hold settings, lines such as `seed: 1`, but holds a list.")
    return loaded


def _explain_hydra(error: Exception) -> str:
    message = " ".join(str(error).split())
    unknown = re.search(r"Could not find '(.+?)/([^/']+)' Available options in '.+?': (.*?) Config search", message)
    if unknown is None:
        return message
    group, option, known = unknown.groups()
    near = difflib.get_close_matches(option, known.split(), n=1, cutoff=0.5)
    hint = f" (did you mean {near[0]}?)" if near else ""
    return f"`{group}` must be one of {', '.join(known.split())}, but is {option}{hint}."


def allow_new_keys(overrides: Sequence[str], folder: Path) -> list[str]:
    """Let settings be changed that no YAML file mentions: ``model.qk_norm=true`` becomes ``++model.qk_norm=true``.

    Whether the setting exists at all is then checked, with the nearest name, by :func:`parse`. Choices of a group's
    option (``model=lm_tiny``) and Hydra's own settings stay as they are.
    """
    changed = []
    for override in overrides:
        key = override.partition("=")[0]
        plain = "=" in override and re.fullmatch(r"[A-Za-z_][\w.]*", key) is not None
        is_choice = (folder / key).is_dir() or key.startswith("hydra.")
        changed.append(f"++{override}" if plain and not is_choice else override)
    return changed


def expand(overrides: Sequence[str]) -> list[list[str]]:
    """The overrides of each job: the product of all sweeps such as ``seed=1,2``."""
    parsed: list[Override] = []
    for text in overrides:
        try:
            parsed += OverridesParser.create().parse_overrides([text])
        except HydraException as error:
            name, _, value = text.removeprefix("++").partition("=")
            if not value:
                raise SettingsError(str(error).splitlines()[0]) from error
            raise SettingsError(
                f"`{name}={value}` cannot be read. A value with characters such as ; < > [ ] needs double quotes of "
                f"its own inside those of the shell, as in '{name}=\"...\"'; a long one is better kept in a YAML file."
            ) from error
    choices = []
    for override in parsed:
        assert override.input_line is not None
        if override.is_sweep_override():
            key = override.get_key_element()
            choices.append([f"{key}={value}" for value in override.sweep_string_iterator()])
        else:
            choices.append([override.input_line])
    return [list(job) for job in itertools.product(*choices)]


def parse(kind: type[ConfigT], config: DictConfig) -> ConfigT:
    """Turn a composed configuration, once, into our own settings.

    Raises:
        SettingsError: with the dotted path, what was expected and, for an unknown key, the nearest known one.
    """
    try:
        missing = sorted(OmegaConf.missing_keys(config))
        if missing:
            raise SettingsError(f"`{missing[0]}` must be given: {missing[0]}=...")
        plain = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:  # of ${...}
        raise SettingsError(" ".join(str(error).split())) from error
    assert isinstance(plain, dict)
    try:
        return kind.from_plain({str(key): value for key, value in plain.items()})
    except ValidationError as error:
        raise SettingsError(explain_validation(error, kind, plain)) from error


def explain_validation(error: ValidationError, kind: type[BaseModel], plain: Any) -> str:
    """All mistakes, one sentence each."""
    sentences = []
    expected: dict[str, list[str]] = {}  # of values that may be of several kinds, one error for each
    paths = [[str(part) for part in _settings_path(detail["loc"], plain)] for detail in error.errors()]
    # Of several kinds, one that a value is of, but for a limit, says best what is wrong.
    of_a_kind = [
        path
        for path, detail in zip(paths, error.errors(), strict=True)
        if not detail["type"].endswith(("_type", "literal_error"))
    ]
    for path, detail in zip(paths, error.errors(), strict=True):
        name = ".".join(path)
        match detail["type"]:
            case "extra_forbidden":
                known = sorted(set(_siblings(kind, plain, path)))
                near = difflib.get_close_matches(path[-1], known, n=1, cutoff=0.5)
                hint = f"did you mean `{near[0]}`?" if near else f"known here: {', '.join(known)}."
                sentences.append(f"`{name}` is not a setting; {hint}")
            case "value_error":
                message = str(detail["ctx"]["error"])
                sentences.append(f"{name}: {message}" if name else message)
            case "missing":
                sentences.append(f"`{name}` must be given, but is missing.")
            case "union_tag_not_found":
                sentences.append(
                    f"`{name}.name` must be given, but is missing: it says what kind of {path[-1]} this is."
                )
            case "union_tag_invalid":
                given = detail["input"].get("name") if isinstance(detail["input"], dict) else detail["input"]
                sentences.append(f"`{name}.name` must be one of {detail['ctx']['expected_tags']}, but is {given!r}.")
            case _ if any(len(path) < len(other) and other[: len(path)] == path for other in paths):
                pass  # what is wrong is inside
            case code if code.endswith("_type") and path in of_a_kind:
                pass
            case "too_short":
                least, given = detail["ctx"]["min_length"], detail["ctx"]["actual_length"]
                sentences.append(f"`{name}` must have at least {least} item{'s' * (least > 1)}, but has {given}.")
            case _:
                kinds = expected.setdefault(name, [])
                if kinds:
                    sentences.remove(_must_be(name, kinds, detail["input"]))
                kinds.append(detail["msg"].removeprefix("Input should be "))
                sentences.append(_must_be(name, kinds, detail["input"]))
    return "\n".join(sentences)


def _must_be(name: str, kinds: Sequence[str], given: Any) -> str:
    return f"`{name}` must be {' or '.join(kinds)}, but is {given!r}."


def _settings_path(location: tuple[int | str, ...], plain: Any) -> list[int | str]:
    """Pydantic's location without the tags of unions, which are no keys of the settings."""
    path: list[int | str] = []
    for part in location:
        if isinstance(plain, dict) and part not in plain and part == plain.get("name"):
            continue
        path.append(part)
        if isinstance(plain, dict):
            plain = plain.get(part)
        elif isinstance(plain, list) and isinstance(part, int) and part < len(plain):
            plain = plain[part]
        elif plain is not None:
            path.pop()  # the kind of a single value, as pydantic calls it
    return path


def _siblings(kind: Any, plain: Any, path: Sequence[str]) -> list[str]:
    """Known keys beside the last of a path, following union tags by the ``name`` given in the settings."""
    models = [model for model in _models(kind) if _fits(model, plain)]
    if len(path) == 1:
        return [name for model in models for name in model.model_fields]
    inner = plain.get(path[0]) if isinstance(plain, dict) else None
    if get_origin(kind) is dict:  # of names that the user has chosen
        return _siblings(get_args(kind)[1], inner, path[1:])
    fields = [model.model_fields[path[0]].annotation for model in models if path[0] in model.model_fields]
    return [name for field in fields for name in _siblings(field, inner, path[1:])]


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


def _fits(model: type[BaseModel], plain: Any) -> bool:
    if "name" not in model.model_fields or not isinstance(plain, dict) or "name" not in plain:
        return True
    return plain["name"] in get_args(model.model_fields["name"].annotation)
