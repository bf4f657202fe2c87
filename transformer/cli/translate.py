"""``transformer-translate``: one translation for each line of standard input or of files."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from transformer.cli.console import one_line_errors, set_up_logging
from transformer.cli.lines import map_lines, read_lines
from transformer.decoding.config import BeamConfig, DecodingConfig, GreedyConfig

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def translate(
    bundle: Annotated[Path, typer.Argument(help="Folder of a trained translation model.", show_default=False)],
    files: Annotated[
        list[Path] | None, typer.Argument(help="Text files, also .gz, .xz, .zst; none: standard input.")
    ] = None,
    beam_size: Annotated[
        int | None, typer.Option(min=1, help="Beginnings kept; 1 is greedy.", show_default="the bundle's search")
    ] = None,
    length_penalty: Annotated[
        float | None, typer.Option(min=0.0, help="Exponent of the length normalisation.", show_default="1")
    ] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option(min=0, help="Tokens per translation at most.", show_default="20 + 2 per source token")
    ] = None,
    tag: Annotated[
        str | None,
        typer.Option(help="Direction, for a model of several, such as <2de>.", show_default="none"),
    ] = None,
    max_tokens_per_batch: Annotated[int, typer.Option(min=1, help="Padded source tokens searched at once.")] = 2048,
    lines_at_once: Annotated[
        int, typer.Option(min=1, help="Lines read before any is written. At a terminal: 1.")
    ] = 256,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Translate text, one line per line: line k of the output translates line k of the input, blank for blank.

    Translations go to standard output, everything else to standard error.
    """
    with one_line_errors():
        # Imported late: torch takes seconds, and --help needs none.
        from transformer.cli.device import choose_device
        from transformer.inference.translator import Translator

        set_up_logging()
        if length_penalty is not None and (beam_size is None or beam_size == 1):
            raise ValueError("--length-penalty has no effect without a --beam-size of 2 or more; leave it out.")
        translator = Translator.load(bundle, choose_device(device))
        decoding: DecodingConfig = translator.bundle.config.decoding
        if beam_size == 1:
            decoding = GreedyConfig(name="greedy")
        elif beam_size is not None:
            penalty = 1.0 if length_penalty is None else length_penalty
            decoding = BeamConfig(name="beam", size=beam_size, length_penalty=penalty)
        if max_new_tokens is not None:
            decoding = decoding.model_copy(update={"max_new_tokens": max_new_tokens})

        def run(lines: list[str], first: int) -> list[str]:
            tags = None if tag is None else [tag] * len(lines)
            return translator.translate(
                lines, decoding, tags=tags, max_tokens_per_batch=max_tokens_per_batch, first_line=first
            )

        at_once = 1 if not files and sys.stdin.isatty() else lines_at_once
        map_lines(read_lines(files or []), run, at_once=at_once)


def main() -> None:
    """Entry point."""
    app()


if __name__ == "__main__":
    main()
