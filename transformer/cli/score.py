"""``transformer-score``: how probable given translations or texts are to a model, line by line."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import typer

from transformer.cli.console import one_line_errors, set_up_logging
from transformer.cli.line_answers import json_number
from transformer.cli.line_options import Device, Ensemble, LinesAtOnce, Precision, Threads, load_for, set_threads
from transformer.cli.lines import (
    check_same_length,
    json_on_one_line,
    read_side_by_side,
    read_windows,
    write_in_step,
)
from transformer.decoding.config import LARGEST_LENGTH_PENALTY, BeamConfig, DecodingConfig

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
        typer.Option(
            min=0.0,
            max=LARGEST_LENGTH_PENALTY,
            help="Exponent of the length normalisation.",
            show_default="the bundle's search",
        ),
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
    ensemble: Ensemble = None,
    device: Device = "auto",
    precision: Precision = "float32",
    threads: Threads = None,
    max_tokens_per_batch: Annotated[
        int, typer.Option(min=1, help="Padded tokens scored at once.", rich_help_panel="Model and speed")
    ] = 2048,
    lines_at_once: LinesAtOnce = 256,
) -> None:
    """Score given texts: line k of the output is of line k of the input. Logarithms are natural.

    A translation is scored with the token that ends it. A language model scores each line as a document of its own:
    from the first token to the end where documents were marked in training, else from the second token on.
    """
    with one_line_errors():
        files = files or []
        if output == "json" and normalize is not None:
            raise ValueError("--normalize and --no-normalize have no effect with --output json; leave them out.")
        if normalize is False and length_penalty is not None:
            raise ValueError("--length-penalty has no effect with --no-normalize; leave it out.")
        set_threads(threads)

        # Imported late: torch takes seconds, and --help needs none.
        from transformer.cli.device import choose_device
        from transformer.inference.generator import Generator
        from transformer.inference.scorer import score_texts, score_translations
        from transformer.inference.translator import Translator
        from transformer.models.encoder_decoder import EncoderDecoder

        set_up_logging()
        where = choose_device(device)
        loaded = load_for(bundle, precision, where)
        at_once = 1 if not files and sys.stdin.isatty() else lines_at_once
        if isinstance(loaded.model, EncoderDecoder):
            others = [load_for(folder, precision, where) for folder in ensemble or []]
            translator = Translator(loaded, where, ensemble=others)
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

            _write(_read_pairs(files, at_once), run_pairs)
            return
        for option, value in (("--tag", tag), ("--length-penalty", length_penalty), ("--ensemble", ensemble)):
            if value is not None:
                raise ValueError(f"{option} has no effect for a language model; leave it out.")
        generator = Generator(loaded, where)

        def run_texts(texts: list[str], first: int) -> list[str]:
            scores = score_texts(generator, texts, max_tokens_per_batch=max_tokens_per_batch, first_line=first)
            if output == "json":
                return [_as_json({"text": text}, s, perplexity=True) for text, s in zip(texts, scores, strict=True)]
            return [f"{s.log_probability if normalize is False else s.perplexity:.6f}" for s in scores]

        _write(read_windows(files, at_once), run_texts)


def _decoding(decoding: DecodingConfig, length_penalty: float | None) -> DecodingConfig:
    """The search whose normalisation is used."""
    if length_penalty is None:
        return decoding
    plain = decoding.to_plain() if isinstance(decoding, BeamConfig) else {"name": "beam"}
    return BeamConfig.from_plain({**plain, "length_penalty": length_penalty})


def _read_pairs(files: Sequence[Path], at_once: int) -> Iterator[list[tuple[str, str]]]:
    """Some pairs together, of two files in step, or of tab-separated lines of one or of standard input."""
    if len(files) > 2:
        raise ValueError(f"translations stand in one file or two (sources and targets), but {len(files)} are given.")
    if len(files) == 2:
        check_same_length(*files)
        pairs = read_side_by_side(*files)
        while window := list(islice(pairs, at_once)):
            yield window
        return
    where, first = str(files[0]) if files else "standard input", 1
    for lines in read_windows(files, at_once):
        yield [_pair(line, f"{where}, line {number}") for number, line in enumerate(lines, start=first)]
        first += len(lines)


def _pair(line: str, where: str) -> tuple[str, str]:
    source, *targets = line.split("\t")
    if len(targets) != 1:
        raise ValueError(f"{where}: must be source TAB target, but has {len(targets)} tabs.")
    return source, targets[0]


def _write(windows: Iterable[list[RowT]], run: Callable[[list[RowT], int], Sequence[str]]) -> None:
    """Write one line for each row, in order, flushed after every window; ``run`` gets the number of its first row."""
    first = 1
    for window in windows:
        write_in_step([(sys.stdout.buffer, run(window, first))])
        first += len(window)


def _as_json(texts: dict[str, str], score: "ForcedScore", *, perplexity: bool = False) -> str:
    record: dict[str, object] = {
        **texts,
        "tokens": score.tokens,
        "token_log_probabilities": [json_number(each) for each in score.token_log_probabilities],
        "log_probability": json_number(score.log_probability),
        "score": json_number(score.score),
        "length": score.length,
    }
    if perplexity:
        record["perplexity"] = json_number(score.perplexity)
    return json_on_one_line(json.dumps(record, ensure_ascii=False, allow_nan=False))


def main() -> None:
    """Entry point."""
    app()


if __name__ == "__main__":
    main()
