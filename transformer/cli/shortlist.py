"""``transformer-shortlist``: learn which target tokens a source may be translated with, for faster translation."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from transformer.cli.console import messages, one_line_errors, set_up_logging
from transformer.cli.lines import read_side_by_side

LINES_AT_ONCE, NUM_MEASURED = 1000, 1000

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def shortlist(
    bundle: Annotated[Path, typer.Argument(help="Folder of a trained translation model.", show_default=False)],
    source_file: Annotated[
        Path, typer.Argument(help="Sources, such as those of training; also .gz, .xz, .zst.", show_default=False)
    ],
    target_file: Annotated[Path, typer.Argument(help="Their translations, line by line.", show_default=False)],
    per_token: Annotated[int, typer.Option(min=1, help="Translations of each source token at most.")] = 100,
    frequent: Annotated[
        int, typer.Option(min=0, help="Most frequent tokens of the targets, always on the list.")
    ] = 200,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the bundle's shortlist.")] = False,
) -> None:
    """Learn a vocabulary shortlist from parallel text and write it into the bundle as shortlist.safetensors.

    With it, a translation may only use the probable translations of its source's tokens and the most frequent tokens.
    """
    with one_line_errors():
        # Imported late: torch takes seconds, and --help needs none.
        from transformer.bundle import load_bundle
        from transformer.cli.progress import PreparationProgress
        from transformer.inference.shortlist import SHORTLIST, Shortlist
        from transformer.inference.translation_table import PairSample
        from transformer.models.encoder_decoder import EncoderDecoder

        set_up_logging()
        loaded = load_bundle(bundle)
        if not isinstance(loaded.model, EncoderDecoder):
            raise ValueError("this bundle holds a language model; a shortlist is for translation.")
        if (bundle / SHORTLIST).exists() and not force:
            raise ValueError(f"{bundle / SHORTLIST} exists already; --force overwrites it.")
        source, target = loaded.source_tokenizer, loaded.target_tokenizer
        sample, num_blank = PairSample(), 0
        console = messages()
        with PreparationProgress(console) as progress:
            for pairs in _chunks(read_side_by_side(source_file, target_file)):
                kept = [pair for pair in pairs if pair[0].strip() and pair[1].strip()]
                num_blank += len(pairs) - len(kept)
                source_ids = source.encode_batch([text for text, _ in kept])
                target_ids = target.encode_batch([text for _, text in kept])
                for ids in zip(source_ids, target_ids, strict=True):
                    sample.add(*ids)
                progress("pairs read", sample.num_seen + num_blank, None)
            learnt = Shortlist.learn(sample, source, target, per_token=per_token, frequent=frequent, progress=progress)
        learnt.save(bundle, source, target)
        num_kept = len(sample.sources)
        spread = "" if num_kept == sample.num_seen else f", evenly spread over {sample.num_seen:,}"
        blank = "" if num_blank == 0 else f"; {num_blank:,} with a blank side left out"
        console.print(f"learnt from {num_kept:,} pairs{spread}{blank}", highlight=False)
        some = sample.sources[:: 1 + num_kept // NUM_MEASURED]
        mean = sum(len(learnt.for_source(ids.tolist())) for ids in some) / len(some)
        print(f"{bundle / SHORTLIST}: {mean:,.0f} of {target.vocab_size:,} tokens for a source on average")


def _chunks(pairs: Iterator[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    while chunk := list(itertools.islice(pairs, LINES_AT_ONCE)):
        yield chunk


def main() -> None:
    """Entry point."""
    app()


if __name__ == "__main__":
    main()
