"""``transformer-attention``: what a trained model attends to, as pictures, tables and numbers."""

import io
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from transformer.cli.console import one_line_errors, set_up_logging
from transformer.cli.line_options import Device, Threads, load_for, set_threads
from transformer.cli.line_requests import as_utf8
from transformer.cli.lines import read_windows, write_in_step
from transformer.cli.number_lists import ALL, NumberList, parse_numbers

if TYPE_CHECKING:  # torch takes seconds
    from transformer.bundle import Bundle
    from transformer.cli.attention_report import ChosenHeads
    from transformer.inference.attention_maps import Attention

Format = Literal["png", "svg"]
MEAN = "mean"
FOLDER = Path("attention")
PLAIN_WIDTH = 80  # of tables that are not written to a terminal

log = logging.getLogger(__name__)
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def attention(
    bundle: Annotated[Path, typer.Argument(help="Folder of a trained model.", show_default=False)],
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Files with an example in each line: source, or source TAB target; for a language model a prompt. "
            "Also .gz, .xz, .zst; none: standard input."
        ),
    ] = None,
    text: Annotated[
        str | None, typer.Option(help="One source or prompt, instead of lines.", show_default=False)
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="With --text: its translation.", show_default="what the bundle's own search finds"),
    ] = None,
    tag: Annotated[
        str | None,
        typer.Option(help="Direction, for a translation model of several, such as <2de>.", show_default="none"),
    ] = None,
    kind: Annotated[
        str,
        typer.Option(
            help="Self-attention of the encoder or of the decoder, or cross-attention: encoder, decoder, cross, or "
            "several as in encoder,cross."
        ),
    ] = ALL,
    layers: Annotated[str, typer.Option(help="Layers from 1, as in 1,3-4.")] = ALL,
    heads: Annotated[
        str, typer.Option(help="Heads from 1, as in 1,3-4; mean is the mean over all heads of a layer.")
    ] = f"{MEAN},{ALL}",
    output: Annotated[
        Literal["text", "json"],
        typer.Option(help="text: tables; json: one object a line, with all weights, and pictures only if asked for."),
    ] = "text",
    output_folder: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the pictures; those of lines are in line-1 and so on.",
            show_default="attention; none with --output json",
        ),
    ] = None,
    picture_format: Annotated[
        Format | None, typer.Option("--format", help="Of the pictures.", show_default="png")
    ] = None,
    font: Annotated[
        list[Path] | None,
        typer.Option(help="Font file for labels, before the installed ones; may be repeated.", show_default=False),
    ] = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Show every layer's and head's attention weights while the model reads given texts.

    Of each kind of attention there is a picture of all heads, such as cross.png, and one of each layer, such as
    cross-layer3.png, with every token. Tables of entropies and of the strongest links go to standard output.
    """
    with one_line_errors():
        if target is not None and text is None:
            raise ValueError("--target needs --text; lines have it behind a tab.")
        if text is not None and files:
            raise ValueError("--text takes the place of files; give one of them.")
        folder = FOLDER if output_folder is None and output == "text" else output_folder
        for option, value in (("--font", font), ("--format", picture_format)):
            if folder is None and value:
                raise ValueError(f"{option} has no effect without pictures; add --output-folder FOLDER.")
        chosen_layers, chosen_heads = parse_numbers(layers, "--layers"), parse_numbers(heads, "--heads", [MEAN])
        set_threads(threads)
        text = None if text is None else as_utf8(text, "--text")
        target = None if target is None else as_utf8(target, "--target")

        # Imported late: torch takes seconds, and --help needs none.
        from transformer.attention_maps.fonts import fonts_for
        from transformer.cli.attention_report import json_line
        from transformer.cli.device import choose_device

        set_up_logging()
        fonts_for("", font or [])  # a file that is no font is refused before anything is computed
        where = choose_device(device)
        look = _looking(load_for(bundle, "float32", where), where, tag, target)
        lines = chain.from_iterable(read_windows(files or [], 1)) if text is None else [text]
        for number, line in enumerate(lines, start=1):
            example = look(line, number)
            chosen = _chosen(example, kind, chosen_layers, chosen_heads)
            own_folder = folder / f"line-{number}" if folder is not None and text is None else folder
            _write([json_line(number, example, chosen)] if output == "json" else _tables(example, chosen))
            if own_folder is not None:
                for path in _draw(chosen, own_folder, picture_format or "png", font or []):
                    if output == "text":
                        _write([str(path)])


def _looking(bundle: "Bundle", device: str, tag: str | None, target: str | None) -> Callable[[str, int], "Attention"]:
    """What gives the attention of a line, whose number is given as well."""
    from transformer.inference.attention_maps import text_attention, translation_attention
    from transformer.inference.generator import Generator
    from transformer.inference.translator import Translator
    from transformer.models.encoder_decoder import EncoderDecoder

    if isinstance(bundle.model, EncoderDecoder):
        translator = Translator(bundle, device)
        direction = None if tag is None else as_utf8(tag, "--tag")

        def look(line: str, number: int) -> "Attention":
            source, *targets = line.split("\t") if target is None else [line, target]
            if "\n" in line + (target or ""):  # of options: lines have none
                raise ValueError("--text and --target must be one line each: a translation model reads line by line.")
            if len(targets) > 1:
                raise ValueError(f"line {number}: must be source TAB target, but has {len(targets)} tabs.")
            return translation_attention(translator, source, *targets, tag=direction, line=number)

        return look
    for option, value in (("--tag", tag), ("--target", target)):
        if value is not None:
            raise ValueError(f"{option} has no effect for a language model; leave it out.")
    generator = Generator(bundle, device)
    return lambda line, number: text_attention(generator, line, line=number)


def _chosen(example: "Attention", kinds: str, layers: NumberList, heads: NumberList) -> "ChosenHeads":
    """The maps and heads that were asked for. Raises ValueError if there are none of the kind, or no such numbers."""
    from transformer.attention_maps.pictures import WORDS
    from transformer.attention_maps.summary import choose_heads

    there = [each.kind for each in example.maps]
    wanted = there if kinds == ALL else [each.strip() for each in kinds.split(",")]
    for kind in wanted:
        if kind not in there:
            raise ValueError(f"--kind must be of those that the model has ({', '.join(there)}), but has {kind!r}.")
    chosen = []
    for each in example.maps:
        if each.kind in wanted:
            name = WORDS[each.kind].title.lower()
            layer_numbers = [int(layer) for layer in layers.resolved(each.num_layers, name)]
            head_numbers = [head if isinstance(head, int) else None for head in heads.resolved(each.num_heads, name)]
            chosen.append((each, choose_heads(each, layer_numbers, head_numbers)))
    return chosen


def _tables(example: "Attention", chosen: "ChosenHeads") -> list[str]:
    """The texts and the tables, line by line."""
    from transformer.cli.attention_report import report

    terminal = sys.stdout.isatty()
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, width=None if terminal else PLAIN_WIDTH, highlight=False)
    for part in report(example, chosen):
        console.print(part)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def _draw(chosen: "ChosenHeads", folder: Path, picture_format: Format, fonts: Sequence[Path]) -> Iterator[Path]:
    """Write the pictures, and name each that is there."""
    from transformer.attention_maps.fonts import fonts_for
    from transformer.attention_maps.pictures import characters_of, missing_glyphs, pictures

    available = fonts_for(frozenset().union(*(characters_of(each) for each, _ in chosen)), fonts)
    if (message := missing_glyphs(available)) is not None:
        log.warning("%s, or name the file of one with --font.", message)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for each, heads in chosen:
            for name, figure in pictures(each, heads, available):
                path = folder / f"{name}.{picture_format}"
                try:
                    figure.savefig(path, format=picture_format)
                except ValueError as error:  # how large a PNG may be depends on the version of matplotlib
                    if "pixels is too large" not in str(error):
                        raise
                    raise ValueError(f"{path}: {error} Choose fewer heads with --heads, or --format svg.") from error
                yield path
    except OSError as error:
        raise ValueError(f"{folder}: the pictures cannot be written: {error.strerror or error}.") from error


def _write(lines: Sequence[str]) -> None:
    write_in_step([(sys.stdout.buffer, lines)])


def main() -> None:
    """Entry point."""
    app()


if __name__ == "__main__":
    main()
