"""``transformer-score``: how probable given translations or texts are to a model, line by line."""

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

from transformer.cli.console import one_line_errors, set_up_logging
from transformer.cli.lines import json_on_one_line, read_lines, write_in_step
from transformer.decoding.config import BeamConfig, DecodingConfig

if TYPE_CHECKING:
    from transformer.inference.scorer import ForcedScore

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

RowT = TypeVar("RowT")


@app.command()
def score(
    bundle: Annotated[Path, typer.Argument(help="Folder of a trained model.", show_default=False)],
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Translation: a file of sources and one of targets, or one of source TAB target. Language model: text "
            "files. Also .gz, .xz, .zst; none: standard input."
        ),
    ] = None,
    normalize: Annotated[
        bool | None,
        typer.Option(
            "--normalize/--no-normalize",
            help="The length-normalised score of the bundle's search, or the perplexity of a language model (lower is "
            "better); else the log probability.",
            show_default="normalize",
        ),
    ] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(min=0.0, help="Exponent of the length normalisation.", show_default="the bundle's search"),
    ] = None,
    output: Annotated[
        Literal["text", "json"],
        typer.Option(
            help="text: one number a line; json: one object a line, with all numbers and those of each token."
        ),
    ] = "text",
    tag: Annotated[
        str | None,
        typer.Option(help="Direction, for a translation model of several, such as <2de>.", show_default="none"),
    ] = None,
    max_tokens_per_batch: Annotated[int, typer.Option(min=1, help="Padded tokens scored at once.")] = 2048,
    lines_at_once: Annotated[
        int, typer.Option(min=1, help="Lines read before any is written. At a terminal: 1.")
    ] = 256,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Score given texts: line k of the output is of line k of the input. Logarithms are natural.

    A translation is scored with the token that ends it. A language model scores each line as a document of its own:
    from the first token to the end where documents were marked in training, else from the second token on.
    """
    with one_line_errors():
        # Imported late: torch takes seconds, and --help needs none.
        from transformer.bundle import load_bundle
        from transformer.cli.device import choose_device
        from transformer.inference.generator import Generator
        from transformer.inference.scorer import score_texts, score_translations
        from transformer.inference.translator import Translator
        from transformer.models.encoder_decoder import EncoderDecoder

        set_up_logging()
        files = files or []
        if output == "json" and normalize is not None:
            raise ValueError("--normalize and --no-normalize have no effect with --output json; leave them out.")
        if normalize is False and length_penalty is not None:
            raise ValueError("--length-penalty has no effect with --no-normalize; leave it out.")
        loaded, where = load_bundle(bundle), choose_device(device)
        at_once = 1 if not files and sys.stdin.isatty() else lines_at_once
        if isinstance(loaded.model, EncoderDecoder):
            translator = Translator(loaded, where)
            decoding = _decoding(loaded.config.decoding, length_penalty)

            def run_pairs(rows: list[tuple[str, str]], first: int) -> list[str]:
                scores = score_translations(
                    translator,
                    [source for source, _ in rows],
                    [target for _, target in rows],
                    decoding,
                    tags=None if tag is None else [tag] * len(rows),
                    max_tokens_per_batch=max_tokens_per_batch,
                    first_line=first,
                )
                if output == "json":
                    return [
                        _as_json({"source": row[0], "target": row[1]}, s) for row, s in zip(rows, scores, strict=True)
                    ]
                return [f"{s.log_probability if normalize is False else s.score:.6f}" for s in scores]

            _write(_read_pairs(files), run_pairs, at_once)
            return
        for option, value in (("--tag", tag), ("--length-penalty", length_penalty)):
            if value is not None:
                raise ValueError(f"{option} has no effect for a language model; leave it out.")
        generator = Generator(loaded, where)

        def run_texts(texts: list[str], first: int) -> list[str]:
            scores = score_texts(generator, texts, max_tokens_per_batch=max_tokens_per_batch, first_line=first)
            if output == "json":
                return [_as_json({"text": text}, s, perplexity=True) for text, s in zip(texts, scores, strict=True)]
            return [f"{s.log_probability if normalize is False else s.perplexity:.6f}" for s in scores]

        _write(read_lines(files), run_texts, at_once)


def _decoding(decoding: DecodingConfig, length_penalty: float | None) -> DecodingConfig:
    """The search whose normalisation is used."""
    if length_penalty is None:
        return decoding
    if isinstance(decoding, BeamConfig):
        return decoding.model_copy(update={"length_penalty": length_penalty})
    return BeamConfig(name="beam", length_penalty=length_penalty)


def _read_pairs(files: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """Pairs of two files in step, or of tab-separated lines of one or of standard input."""
    if len(files) > 2:
        raise ValueError(f"translations stand in one file or two (sources and targets), but {len(files)} are given.")
    if len(files) == 2:
        lines = zip_longest(read_lines(files[:1]), read_lines(files[1:]))
        for number, (source, target) in enumerate(lines, start=1):
            if source is None or target is None:
                shorter, longer = files if source is None else files[::-1]
                raise ValueError(
                    f"sources and targets must have equally many lines, but {str(shorter)!r} ends before line {number} "
                    f"and {str(longer)!r} does not."
                )
            yield source, target
        return
    where = str(files[0]) if files else "standard input"
    for number, line in enumerate(read_lines(files), start=1):
        source, *targets = line.split("\t")
        if len(targets) != 1:
            raise ValueError(f"{where}, line {number}: must be source TAB target, but has {len(targets)} tabs.")
        yield source, targets[0]


def _write(rows: Iterable[RowT], run: Callable[[list[RowT], int], Sequence[str]], at_once: int) -> None:
    """Write one line for each row, in order, flushed after every ``at_once``; ``run`` gets the number of the first."""
    rows, first = iter(rows), 1
    while chunk := list(islice(rows, at_once)):
        write_in_step([(sys.stdout.buffer, run(chunk, first))])
        first += len(chunk)


def _as_json(texts: dict[str, str], score: "ForcedScore", *, perplexity: bool = False) -> str:
    record: dict[str, object] = {
        **texts,
        "tokens": score.tokens,
        "token_log_probabilities": score.token_log_probabilities,
        "log_probability": score.log_probability,
        "score": score.score,
        "length": score.length,
    }
    if perplexity:  # JSON has no NaN and no infinity
        record["perplexity"] = score.perplexity if math.isfinite(score.perplexity) else None
    return json_on_one_line(json.dumps(record, ensure_ascii=False))


def main() -> None:
    """Entry point."""
    app()


if __name__ == "__main__":
    main()
