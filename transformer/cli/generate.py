"""``transformer-generate``: continue each line of standard input or of files."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from transformer.cli.console import one_line_errors, set_up_logging
from transformer.cli.lines import map_lines, read_lines
from transformer.decoding.config import DecodingConfig, GreedyConfig, SampleConfig

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def generate(
    bundle: Annotated[Path, typer.Argument(help="Folder of a trained language model.", show_default=False)],
    files: Annotated[
        list[Path] | None, typer.Argument(help="Text files, also .gz, .xz, .zst; none: standard input.")
    ] = None,
    prompt: Annotated[
        str | None, typer.Option(help="One prompt, instead of reading any; may contain line breaks.")
    ] = None,
    max_new_tokens: Annotated[
        int | None,
        typer.Option(min=0, help="Tokens per continuation at most.", show_default="as many as fit the model"),
    ] = None,
    temperature: Annotated[
        float, typer.Option(min=0.0, help="Divides the logits; 0 always takes the most probable token.")
    ] = 0.8,
    top_k: Annotated[int | None, typer.Option(min=1, help="Draw from the k most probable tokens only.")] = None,
    top_p: Annotated[
        float | None,
        typer.Option(min=1e-9, max=1.0, help="Draw from the smallest set of tokens with this probability."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides, with the line's number, its random draws.")] = 1,
    lines_at_once: Annotated[int, typer.Option(min=1, help="Lines read before any is written. At a terminal: 1.")] = 64,
    output: Annotated[
        Literal["text", "json"],
        typer.Option(help="text: prompt and continuation, line breaks as \\n; json: one object a line."),
    ] = "text",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Continue texts, one line per line; with --prompt the text is written as it is.

    Continuations go to standard output, everything else to standard error.
    """
    with one_line_errors():
        # Imported late: torch takes seconds, and --help needs none.
        from transformer.cli.device import choose_device
        from transformer.inference.generator import Generator

        set_up_logging()
        if prompt is not None and files:
            raise ValueError("give either --prompt or files, not both.")
        generator = Generator.load(bundle, choose_device(device))
        decoding: DecodingConfig = SampleConfig(
            name="sample", temperature=temperature, top_k=top_k, top_p=top_p, seed=seed, max_new_tokens=max_new_tokens
        )
        if temperature == 0:
            decoding = GreedyConfig(name="greedy", max_new_tokens=max_new_tokens)
        if prompt is not None:
            prompt = _as_utf8(prompt)
            [continuation] = generator.generate([prompt], decoding)
            text = _as_json(prompt, continuation) if output == "json" else prompt + continuation
            sys.stdout.buffer.write(text.encode() + b"\n")
            sys.stdout.buffer.flush()
            return

        def run(lines: list[str], first: int) -> list[str]:
            answers = generator.generate(lines, decoding, first_line=first)
            if output == "json":
                return [_as_json(line, answer) for line, answer in zip(lines, answers, strict=True)]
            return [(line + answer).replace("\n", "\\n") for line, answer in zip(lines, answers, strict=True)]

        at_once = 1 if not files and sys.stdin.isatty() else lines_at_once
        map_lines(read_lines(files or []), run, at_once=at_once)


def _as_json(prompt: str, continuation: str) -> str:
    return json.dumps({"prompt": prompt, "continuation": continuation}, ensure_ascii=False)


def _as_utf8(argument: str) -> str:
    """An argument of the command line as UTF-8, whatever encoding the locale made Python read it in."""
    try:
        return os.fsencode(argument).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"--prompt must be UTF-8, but is not: {error.reason}.") from error


def main() -> None:
    """Entry point."""
    app()


if __name__ == "__main__":
    main()
