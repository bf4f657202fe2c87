"""Options of input, output and speed that the line tools share."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from transformer.decoding.config import BeamConfig, DecodingConfig

if TYPE_CHECKING:  # torch takes seconds
    from transformer.bundle import Bundle

Format = Literal["text", "json"]

IO_PANEL, PHRASES_PANEL, SPEED_PANEL = "Input and output", "Phrases", "Model and speed"

Files = Annotated[
    list[Path] | None,
    typer.Argument(help="Text files, also .gz, .xz, .zst; none: standard input, or what is typed at a terminal."),
]
Input = Annotated[
    Format,
    typer.Option(
        "--input",
        help='json: one object a line, as in {"text": "...", "required": ["term", ["one", "or other"]]}; other keys '
        "are ordered, banned, id and, for a translation, tag and prefix. They go before the options.",
        rich_help_panel=IO_PANEL,
    ),
]
Output = Annotated[
    Format,
    typer.Option(help="json: one object a line, with scores and tokens.", rich_help_panel=IO_PANEL),
]
NumBest = Annotated[
    int | None,
    typer.Option(
        "--nbest",
        min=1,
        help="With --output json: so many outputs of each line, best first; of sampling, independent ones.",
        rich_help_panel=IO_PANEL,
        show_default=False,
    ),
]
LinesAtOnce = Annotated[
    int,
    typer.Option(
        min=1,
        help="Lines read before any is written, unless no more come for a moment. At a terminal: 1.",
        rich_help_panel=SPEED_PANEL,
    ),
]
Ordered = Annotated[
    bool,
    typer.Option("--ordered", help="Required phrases must come in the given order.", rich_help_panel=PHRASES_PANEL),
]
Banned = Annotated[
    Path | None,
    typer.Option(
        help="File of phrases that no output may have, one a line.", rich_help_panel=PHRASES_PANEL, show_default=False
    ),
]
Ensemble = Annotated[
    list[Path] | None,
    typer.Option(
        help="Another bundle with the same tokenizers, for the mean of all models; may be repeated.",
        rich_help_panel=SPEED_PANEL,
        show_default=False,
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.", rich_help_panel=SPEED_PANEL)]
Precision = Annotated[
    Literal["float32", "bf16", "int8"],
    typer.Option(help="Of the computation; the less, the faster.", rich_help_panel=SPEED_PANEL),
]
Threads = Annotated[
    int | None,
    typer.Option(min=1, help="CPU threads.", rich_help_panel=SPEED_PANEL, show_default="all cores"),
]


def check_line_options(
    input_format: Format, output: Format, num_best: int | None, ordered: bool, *, with_phrases: bool
) -> None:
    """Refuse options without effect. Raises ValueError."""
    if num_best is not None and output == "text":
        raise ValueError("--nbest needs --output json, because plain text has one line per line.")
    if ordered and input_format == "text" and not with_phrases:
        raise ValueError("--ordered has no effect without required phrases; they come from --glossary or --input json.")


def check_phrases_fit(decoding: DecodingConfig, what: str) -> None:
    """Refuse a search that cannot see to required phrases; ``what`` requires them. Raises ValueError."""
    if not isinstance(decoding, BeamConfig):
        raise ValueError(
            f"{what} needs a beam search, but the search is {decoding.name}; add a --beam-size of 2 or more."
        )
    if decoding.size == 1:
        raise ValueError(f"{what} needs a beam of 2 or more, but the bundle's has 1; add a --beam-size.")
    if decoding.groups > 1:
        raise ValueError(
            f"{what} needs a beam without groups, but it has {decoding.groups}; add --groups 1 --diversity 0."
        )


def set_threads(threads: int | None) -> None:
    """Use so many CPU threads, from before anything is computed; None leaves the choice to the libraries."""
    if threads is None:
        return
    os.environ["RAYON_NUM_THREADS"] = str(threads)  # of tokenizers
    import torch

    torch.set_num_threads(threads)


def load_for(folder: Path, precision: Literal["float32", "bf16", "int8"], device: str) -> "Bundle":
    """Read a bundle whose model computes in that precision. Raises ValueError."""
    from transformer.bundle import load_bundle
    from transformer.inference.precision import set_precision
    from transformer.models.encoder_decoder import EncoderDecoder

    bundle = load_bundle(folder)
    if isinstance(bundle.model, EncoderDecoder):
        return replace(bundle, model=set_precision(bundle.model, precision, device))
    return replace(bundle, model=set_precision(bundle.model, precision, device))
