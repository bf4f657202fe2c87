"""Options that change a search, the same for all line tools, and the search that they make of a bundle's own."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, assert_never

import typer
from pydantic import ValidationError

from transformer.decoding.config import (
    LARGEST_LENGTH_PENALTY,
    BeamConfig,
    DecodingConfig,
    GreedyConfig,
    MbrConfig,
    SampleConfig,
)

Kind = Literal["greedy", "beam", "sample", "mbr"]
Given = Mapping[str, int | float | str | bool | None]

BEAM_PANEL, SAMPLING_PANEL, RULES_PANEL = "Beam search", "Sampling", "Length and repetition"


def _option(flag: str, panel: str, text: str, **limits: Any) -> Any:
    metavar = "NUMBER" if limits else None
    return typer.Option(flag, help=text, rich_help_panel=panel, show_default=False, metavar=metavar, **limits)


BeamSize = Annotated[
    int | None, _option("--beam-size", BEAM_PANEL, "Beginnings kept; 1 is greedy search, without the rest.", min=1)
]
Normalization = Annotated[
    Literal["gnmt", "average"] | None,
    _option(
        "--normalization",
        BEAM_PANEL,
        "Scores are divided by ((5 + length) / 6)^penalty (gnmt) or by length^penalty (average).",
    ),
]
LengthPenalty = Annotated[
    float | None,
    _option(
        "--length-penalty",
        BEAM_PANEL,
        "That exponent: above 0 for longer output; 0 for none.",
        min=0.0,
        max=LARGEST_LENGTH_PENALTY,
    ),
]
CoveragePenalty = Annotated[
    float | None,
    _option("--coverage-penalty", BEAM_PANEL, "Weight of the penalty for source tokens left out.", min=0.0),
]
Patience = Annotated[
    float | None,
    _option("--patience", BEAM_PANEL, "Above 1, the search ends later, after more finished outputs.", min=1.0),
]
Groups = Annotated[
    int | None,
    _option("--groups", BEAM_PANEL, "Diverse beam search: the beam is divided into so many groups ...", min=1),
]
Diversity = Annotated[
    float | None,
    _option("--diversity", BEAM_PANEL, "... and a token that another group took loses so much.", min=0.0),
]
Sample = Annotated[bool, _option("--sample", SAMPLING_PANEL, "Draw each token at random.")]
Mbr = Annotated[
    int | None,
    _option("--mbr", SAMPLING_PANEL, "Draw so many outputs and take the one most like all of them.", min=2),
]
MbrUtility = Annotated[
    Literal["chrf", "bleu"] | None, _option("--mbr-utility", SAMPLING_PANEL, "What likeness is, for --mbr.")
]
Temperature = Annotated[
    float | None,
    _option("--temperature", SAMPLING_PANEL, "Divides the logits; 0 takes the most probable token.", min=0.0),
]
TopK = Annotated[int | None, _option("--top-k", SAMPLING_PANEL, "Only the k most probable tokens.", min=1)]
TopP = Annotated[
    float | None,
    _option("--top-p", SAMPLING_PANEL, "Only the smallest set of tokens with this probability.", min=0.0, max=1.0),
]
MinP = Annotated[
    float | None,
    _option("--min-p", SAMPLING_PANEL, "Only tokens this share as probable as the most probable.", min=0.0, max=1.0),
]
Epsilon = Annotated[
    float | None,
    _option("--epsilon", SAMPLING_PANEL, "Only tokens of at least this probability.", min=0.0, max=1.0),
]
_SEED = "Decides, with the line's number, its random draws."
Seed = Annotated[int | None, _option("--seed", SAMPLING_PANEL, _SEED, min=0)]
SeedBesideDraft = Annotated[
    int | None, _option("--seed", SAMPLING_PANEL, f"{_SEED} With --draft they are others than without.", min=0)
]
MinNewTokens = Annotated[int | None, _option("--min-new-tokens", RULES_PANEL, "Tokens of an output at least.", min=0)]
MaxNewTokens = Annotated[int | None, _option("--max-new-tokens", RULES_PANEL, "Tokens of an output at most.", min=0)]
MinLengthFactor = Annotated[
    float | None, _option("--min-length-factor", RULES_PANEL, "Tokens at least for each source token.", min=0.0)
]
MaxLengthFactor = Annotated[
    float | None,
    _option(
        "--max-length-factor",
        RULES_PANEL,
        "Tokens at most for each source token; where nothing says so, 20 and 2 for each.",
        min=0.0,
    ),
]
RepetitionPenalty = Annotated[
    float | None,
    _option("--repetition-penalty", RULES_PANEL, "Above 1, tokens that were there lose probability.", min=0.0),
]
NoRepeatNgram = Annotated[
    int | None, _option("--no-repeat-ngram", RULES_PANEL, "No sequence of so many tokens comes twice.", min=1)
]

# The options that change the settings of each search, by the name of the option; the others change all.
_BEAM = {
    "beam_size": "size",
    "normalization": "normalization",
    "length_penalty": "length_penalty",
    "coverage_penalty": "coverage_penalty",
    "patience": "patience",
    "groups": "groups",
    "diversity": "diversity",
}
_SAMPLING = {name: name for name in ("temperature", "top_k", "top_p", "min_p", "epsilon", "seed")}
_MBR = {"mbr": "samples", "mbr_utility": "utility"}
_RULES = {
    name: name
    for name in (
        "min_new_tokens",
        "max_new_tokens",
        "min_length_factor",
        "max_length_factor",
        "repetition_penalty",
        "no_repeat_ngram",
    )
}
_NAMES: Mapping[Kind, str] = {
    "greedy": "greedy search",
    "beam": "beam search",
    "sample": "sampling",
    "mbr": "minimum Bayes risk",
}
_WAYS: Mapping[Kind, str] = {
    "greedy": "--beam-size 1",
    "beam": "a --beam-size of 2 or more",
    "sample": "--sample",
    "mbr": "--mbr",
}


def given_options(parameters: Mapping[str, Any]) -> Given:
    """Of a command's parameters, by name, those that change the search; None and False are options not given."""
    names = {"sample", *_BEAM, *_SAMPLING, *_MBR, *_RULES}
    return {name: value for name, value in parameters.items() if name in names}


def check_options(given: Given) -> None:
    """Refuse, before a bundle is loaded, what cannot go together.

    Raises:
        ValueError: naming the options.
    """
    kinds = [flag(name) for name in ("sample", "mbr", "beam_size") if given.get(name)]
    if len(kinds) > 1:
        raise ValueError(f"{kinds[0]} and {kinds[1]} are different searches; give one of them.")


def chosen_search(
    bundle: DecodingConfig, given: Given, *, otherwise: Kind | None = None, temperature: float = 1.0
) -> DecodingConfig:
    """A bundle's search, changed by options.

    A search of another kind than the bundle's begins with its defaults, but keeps the bundle's lengths and repetitions.

    Args:
        bundle: the bundle's search.
        given: values by the names of options, such as ``beam_size``; None and False stand for options not given.
        otherwise: the kind of search if no option names one; None is the bundle's.
        temperature: of sampling that the bundle does not set.

    Raises:
        ValueError: an option has no effect, or options contradict each other or the bundle.
    """
    check_options(given)
    values = {name: value for name, value in given.items() if value is not None and value is not False}
    kind = _kind(values) or otherwise or bundle.name
    own = {"greedy": {}, "beam": _BEAM, "sample": _SAMPLING, "mbr": _MBR | _SAMPLING}[kind] | _RULES
    for name in values:
        if name not in own and not (name == "beam_size" and kind == "greedy") and name != "sample":
            needed: Kind = "beam" if name in _BEAM else "mbr" if name in _MBR else "sample"
            raise ValueError(f"{flag(name)} has no effect in {_NAMES[kind]}; leave it out, or add {_WAYS[needed]}.")
    rules = {_RULES[name]: value for name, value in values.items() if name in _RULES}
    sampling = {_SAMPLING[name]: value for name, value in values.items() if name in _SAMPLING}
    inner = bundle.sampling if isinstance(bundle, MbrConfig) else bundle
    kept = {name: getattr(inner, name) for name in _RULES.values()} | rules
    drawing = inner.model_dump() if isinstance(inner, SampleConfig) else {"name": "sample"}
    try:
        match kind:
            case "greedy":
                return GreedyConfig(name="greedy", **kept)
            case "beam":
                beam = bundle.model_dump() if isinstance(bundle, BeamConfig) else {"name": "beam"}
                return BeamConfig(**beam | kept | {_BEAM[name]: values[name] for name in values if name in _BEAM})
            case "sample":
                return SampleConfig(**{"temperature": temperature} | drawing | kept | sampling)
            case "mbr":
                plain = bundle.model_dump() if isinstance(bundle, MbrConfig) else {"name": "mbr"}
                if not isinstance(inner, SampleConfig):
                    drawing = MbrConfig(name="mbr").sampling.model_dump()
                plain |= {_MBR[name]: values[name] for name in values if name in _MBR}
                return MbrConfig(**plain | {"sampling": SampleConfig(**drawing | kept | sampling)})
            case _:
                assert_never(kind)
    except ValidationError as error:
        raise ValueError(_by_options(error)) from error


def check_num_best(decoding: DecodingConfig, num_best: int) -> None:
    """Refuse more outputs of a line than the search has. Raises ValueError."""
    match decoding:
        case GreedyConfig():
            most, why = 1, "as greedy search has one output; add --beam-size or --sample"
        case BeamConfig():
            most, why = decoding.size, "the beam's size"
        case MbrConfig():
            most, why = decoding.samples, "the number of samples"
        case SampleConfig():
            return
        case _:
            assert_never(decoding)
    if num_best > most:
        raise ValueError(f"--nbest must be {most} at most ({why}), but is {num_best}.")


def flag(name: str) -> str:
    """How an option is written."""
    return f"--{name.replace('_', '-')}"


def _kind(values: Mapping[str, object]) -> Kind | None:
    if "sample" in values:
        return "sample"
    if "mbr" in values:
        return "mbr"
    if "beam_size" in values:
        return "greedy" if values["beam_size"] == 1 else "beam"
    return None


def _by_options(error: ValidationError) -> str:
    """What is wrong, with settings called by their options."""
    flags = {setting: flag(name) for name, setting in (_BEAM | _SAMPLING | _MBR | _RULES).items()}
    detail = error.errors()[0]
    if detail["type"] != "value_error":
        expected = detail["msg"].removeprefix("Input should be ")
        return f"{flags[str(detail['loc'][-1])]} must be {expected}, but is {detail['input']:g}."
    return re.sub("`([a-z_]+)`", lambda found: flags.get(found[1], found[0]), str(detail["ctx"]["error"]))
