"""The settings of a search as the page asks for them, and the search that they make."""

import math
from typing import Any, Literal, NamedTuple, assert_never

from pydantic import ValidationError

from transformer.decoding.config import BeamConfig, DecodingConfig, GreedyConfig, MbrConfig, SampleConfig

Kind = Literal["greedy", "beam", "sample", "mbr"]

# What one visitor may ask of this machine.
MAX_BEAM, MAX_SAMPLES, MAX_OUTPUTS, MAX_TOKENS = 16, 64, 10, 256

LABELS = {
    "num_best": "Outputs",
    "size": "Beam size",
    "length_penalty": "Length penalty",
    "coverage_penalty": "Coverage penalty",
    "temperature": "Temperature",
    "top_k": "Top k",
    "top_p": "Top p",
    "min_p": "Min p",
    "seed": "Seed",
    "samples": "Samples",
    "max_new_tokens": "Tokens at most",
    "repetition_penalty": "Repetition penalty",
    "no_repeat_ngram": "No n-gram twice",
}
BEAM = ("size", "length_penalty", "coverage_penalty")
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "seed")
RULES = ("max_new_tokens", "repetition_penalty", "no_repeat_ngram")
# The others may have fractions.
WHOLE = {"num_best", "size", "top_k", "seed", "samples", "max_new_tokens", "no_repeat_ngram"}
_LIMITS = {"num_best": MAX_OUTPUTS, "size": MAX_BEAM, "samples": MAX_SAMPLES, "max_new_tokens": MAX_TOKENS}

# A number field is never empty: what stands in it for no such rule.
_NONE = {"top_k": 0, "top_p": 1, "min_p": 0, "no_repeat_ngram": 0}

Values = dict[str, float | None]


class Search(NamedTuple):
    """A search, and how many outputs it is asked for."""

    decoding: DecodingConfig
    num_best: int


def fields(kind: Kind) -> tuple[str, ...]:
    """The settings that the page asks for in a kind of search."""
    match kind:
        case "greedy":
            return RULES
        case "beam":
            return ("num_best", *BEAM, *RULES)
        case "sample":
            return ("num_best", *SAMPLING, *RULES)
        case "mbr":
            return ("num_best", "samples", *SAMPLING, *RULES)
        case _:
            assert_never(kind)


def values_of(decoding: DecodingConfig) -> Values:
    """What the page begins with: the settings of a bundle's own search, and defaults for other searches."""
    sampling = MbrConfig(name="mbr").sampling if isinstance(decoding, MbrConfig) else SampleConfig(name="sample")
    beam, mbr = BeamConfig(name="beam"), MbrConfig(name="mbr")
    match decoding:
        case BeamConfig():
            beam = decoding
        case SampleConfig():
            sampling = decoding
        case MbrConfig():
            mbr, sampling = decoding, decoding.sampling
        case GreedyConfig():
            pass
        case _:
            assert_never(decoding)
    inner = decoding.sampling if isinstance(decoding, MbrConfig) else decoding
    values: Values = {"num_best": 1, "samples": mbr.samples}
    values |= {name: getattr(beam, name) for name in BEAM}
    values |= {name: getattr(sampling, name) for name in SAMPLING}
    values |= {name: getattr(inner, name) for name in RULES}
    return {name: _NONE.get(name) if value is None else value for name, value in values.items()}


def filled(values: Values) -> Values:
    """What stands in the page's fields, none of which is empty: else this page's limits would not hold.

    Raises:
        ValueError: one is, in one sentence with its label. The page itself sends none.
    """
    for name, value in values.items():
        if value is None:
            raise ValueError(f"“{LABELS[name]}” must not be empty.")
    return values


def search_of(kind: Kind, values: Values, own: DecodingConfig) -> Search:
    """The search that the page's settings ask for; what the page does not ask for stays as in the bundle's own.

    Args:
        kind: of search.
        values: by name. Those that the kind of search does not have are left aside; those that are absent stay.
        own: the bundle's search.

    Raises:
        ValueError: a value is not permitted, in one sentence with the label of its field.
    """
    given = {name: _checked(name, values[name]) for name in fields(kind) if name in values}
    num_best = int(given.pop("num_best", 1) or 0)
    if num_best < 1:
        raise ValueError(f"“{LABELS['num_best']}” must be 1 at least, but is {num_best}.")
    inner = own.sampling if isinstance(own, MbrConfig) else own
    # The bundle's lengths and repetitions hold in each search of it.
    kept = {name: getattr(inner, name) for name in GreedyConfig.model_fields if name != "name"}
    rules = kept | {name: given[name] for name in RULES}
    drawing = inner.model_dump() if isinstance(inner, SampleConfig) else {"name": "sample"}
    drawing = drawing | rules | {name: given[name] for name in SAMPLING if name in given}
    try:
        match kind:
            case "greedy":
                return Search(GreedyConfig(**{"name": "greedy"} | rules), 1)
            case "beam":
                before = own.model_dump() if isinstance(own, BeamConfig) else {"name": "beam"}
                beam = BeamConfig(**before | rules | {name: given[name] for name in BEAM if name in given})
                return Search(beam, _at_most(num_best, beam.size, "size"))
            case "sample":
                return Search(SampleConfig(**drawing), num_best)
            case "mbr":
                before = own.model_dump() if isinstance(own, MbrConfig) else {"name": "mbr"}
                risk = MbrConfig(**before | {"samples": given["samples"], "sampling": SampleConfig(**drawing)})
                return Search(risk, _at_most(num_best, risk.samples, "samples"))
            case _:
                assert_never(kind)
    except ValidationError as error:
        raise ValueError(_by_label(error)) from error


def _checked(name: str, value: float | None) -> float | None:
    """A number, whole where the setting is, and not above what this page permits; None for no such rule."""
    if value is not None and not math.isfinite(value):
        raise ValueError(f"“{LABELS[name]}” must be a finite number.")
    if value is not None and value == _NONE.get(name):
        return None
    if value is not None and name in WHOLE:
        if value != int(value):
            raise ValueError(f"“{LABELS[name]}” must be a whole number, but is {value:g}.")
        value = int(value)
    if value is not None and name in _LIMITS and value > _LIMITS[name]:
        raise ValueError(f"“{LABELS[name]}” must be {_LIMITS[name]} at most on this page, but is {value:g}.")
    return value


def _at_most(num_best: int, available: int, name: str) -> int:
    if num_best > available:
        raise ValueError(
            f"“{LABELS['num_best']}” must be {available} at most, which is “{LABELS[name]}”, but is {num_best}."
        )
    return num_best


def _by_label(error: ValidationError) -> str:
    detail: Any = error.errors()[0]
    if detail["type"] == "value_error":
        sentence = str(detail["ctx"]["error"])
        for name, label in LABELS.items():
            sentence = sentence.replace(f"`{name}`", f"“{label}”").replace(f"`sampling.{name}`", f"“{label}”")
        return sentence
    name, expected = str(detail["loc"][-1]), detail["msg"].removeprefix("Input should be ")
    if detail["input"] is None:
        return f"“{LABELS.get(name, name)}” must not be empty."
    return f"“{LABELS.get(name, name)}” must be {expected}, but is {detail['input']:g}."
