"""``transformer-tokenizer``: learn a vocabulary from text files, and look into one."""

import sys
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, assert_never

import typer
from pydantic import ValidationError

from transformer.cli.compose import explain_validation
from transformer.cli.console import one_line_errors, set_up_logging
from transformer.cli.lines import read_lines as read_standard_input
from transformer.data.corpora.files import read_lines
from transformer.data.subwords.config import (
    BpeConfig,
    ByteConfig,
    CharConfig,
    SpecialTokens,
    UnigramConfig,
    WordPieceConfig,
)
from transformer.data.subwords.thinning import EvenSample
from transformer.data.subwords.tokenizer import Tokenizer
from transformer.data.subwords.tokenizer_training import TrainedConfig

NUM_MEASURED_LINES, NUM_LONGEST_PIECES = 10_000, 10

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)


class Kind(Enum):
    """What the pieces of a vocabulary are."""

    BPE = "bpe"
    UNIGRAM = "unigram"
    WORDPIECE = "wordpiece"
    CHAR = "char"
    BYTE = "byte"


class Units(Enum):
    """What byte-pair encoding merges."""

    BYTES = "bytes"
    CHARACTERS = "characters"


class Normalization(Enum):
    """Unicode normal forms."""

    NONE = "none"
    NFC = "nfc"
    NFKC = "nfkc"


@app.callback()
def about() -> None:
    """Learn a vocabulary from text files, and look into one."""


@app.command()
def train(
    files: Annotated[list[Path], typer.Argument(help="UTF-8 text, plain, .gz, .xz or .zst.", show_default=False)],
    output: Annotated[Path, typer.Option(help="The tokenizer.json to write.", show_default=False)],
    kind: Annotated[Kind, typer.Option(help="What the pieces are.")] = Kind.BPE,
    vocab_size: Annotated[
        int | None, typer.Option(help="Tokens in all: special, symbols, tags and bytes, too.", show_default="8000")
    ] = None,
    units: Annotated[
        Units | None, typer.Option(help="What bpe merges; bytes spell the rare characters.", show_default="bytes")
    ] = None,
    byte_fallback: Annotated[
        bool | None,
        typer.Option("--byte-fallback", help="char: spell unknown characters by bytes.", show_default=False),
    ] = None,
    normalization: Annotated[
        Normalization | None, typer.Option(help="Unicode normal form of all texts.", show_default="none")
    ] = None,
    split_digits: Annotated[
        bool | None, typer.Option(help="Every digit is a token of its own.", show_default="split-digits")
    ] = None,
    symbol: Annotated[
        list[str] | None, typer.Option(help="A text that is one token wherever it occurs, as '<br>'. Repeatable.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A token no text contains, as '<2de>'. Repeatable.")] = None,
    max_training_texts: Annotated[
        int | None, typer.Option(help="Lines learnt from at most, evenly spread.", show_default="1000000")
    ] = None,
    pad_vocab_to_multiple_of: Annotated[
        int | None, typer.Option(help="Fill the vocabulary up to a multiple of this.", show_default="1")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite the output.")] = False,
) -> None:
    """Learn a vocabulary from the lines of text files, write it, and say what it is like."""
    with one_line_errors():
        set_up_logging()
        given = {
            "vocab_size": vocab_size,
            "units": None if units is None else units.value,
            "byte_fallback": byte_fallback,
            "normalization": None if normalization is None else normalization.value,
            "split_digits": split_digits,
            "user_symbols": symbol,
            "max_training_texts": max_training_texts,
            "pad_vocab_to_multiple_of": pad_vocab_to_multiple_of,
        }
        config = _config(kind, {name: value for name, value in given.items() if value is not None})
        if output.exists() and not force:
            raise ValueError(f"{output} exists already; --force overwrites it.")
        if not output.parent.is_dir():
            raise ValueError(f"{output} cannot be written: there is no folder {output.parent}.")
        sample = EvenSample(NUM_MEASURED_LINES)
        lines = _lines(files, sample)
        tokenizer = Tokenizer.train(config, lines, tag or ())
        for _ in lines:
            pass  # bytes need no training, but are measured
        try:
            tokenizer.save(output)
        except OSError as error:
            raise ValueError(f"{output} cannot be written: {error.strerror}.") from error
        _print_training(tokenizer, config, sample, output)


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(help="A tokenizer.json, ours or anybody's.", show_default=False)],
    text: Annotated[
        list[str] | None, typer.Option(help="A text to cut. Repeatable.", show_default="lines of standard input")
    ] = None,
    pad: Annotated[str, typer.Option(help="What the padding token is called in the file.")] = "<pad>",
    begin: Annotated[str, typer.Option(help="What the begin token is called.")] = "<s>",
    end: Annotated[str, typer.Option(help="What the end token is called.")] = "</s>",
    unknown: Annotated[str, typer.Option(help="What the unknown token is called; '' is none.")] = "<unk>",
) -> None:
    """Show what a vocabulary is made of and, for each text, its pieces with ids and whether it comes back.

    Of files made elsewhere, say what the special tokens are called in them, such as --pad '[PAD]'.
    """
    with one_line_errors():
        set_up_logging()
        special_tokens = _special_tokens(pad=pad, begin=begin, end=end, unknown=unknown or None)
        tokenizer = Tokenizer.load(file, special_tokens)
        _print_vocabulary(tokenizer)
        from_terminal = sys.stdin is None or sys.stdin.isatty()
        texts: Iterator[str] = (
            iter(text) if text is not None else iter(()) if from_terminal else read_standard_input([])
        )
        for line in texts:
            _print_text(tokenizer, line)


def _config(kind: Kind, given: dict[str, Any]) -> TrainedConfig:
    match kind:
        case Kind.BPE:
            config: type[TrainedConfig] = BpeConfig
        case Kind.UNIGRAM:
            config = UnigramConfig
        case Kind.WORDPIECE:
            config = WordPieceConfig
        case Kind.CHAR:
            config = CharConfig
        case Kind.BYTE:
            config = ByteConfig
        case _:
            assert_never(kind)
    for name in given:
        if name not in config.model_fields:
            option = name.replace("_", "-")
            raise ValueError(f"--{option} has no effect with --kind {kind.value}; leave it out.")
    try:
        return config.from_plain(given)
    except ValidationError as error:
        raise ValueError(explain_validation(error, config, given)) from error


def _special_tokens(**names: str | None) -> SpecialTokens:
    try:
        return SpecialTokens.from_plain(names)
    except ValidationError as error:
        raise ValueError(explain_validation(error, SpecialTokens, names)) from error


def _lines(files: Sequence[Path], sample: EvenSample) -> Iterator[str]:
    """Each file is read once, as it may be a pipe."""
    for file in files:
        for line in read_lines(file):
            if isinstance(line, ValueError):
                raise line
            sample.add(line)
            yield line


def _print_training(tokenizer: Tokenizer, config: TrainedConfig, sample: EvenSample, output: Path) -> None:
    units = f" over {config.units}" if isinstance(config, BpeConfig) else ""
    print(f"{output}: {config.name}{units}, {tokenizer.vocab_size} tokens")
    measured, num_lines = sample.texts, sample.num_seen
    num_words = sum(len(line.split()) for line in measured)
    num_tokens = sum(map(len, tokenizer.encode_batch(measured)))
    of = "all" if len(measured) == num_lines else f"{len(measured)} of"
    if num_words:
        print(f"{num_tokens / num_words:.2f} tokens per word ({of} {num_lines} lines measured)")
    if not isinstance(config, CharConfig | ByteConfig):
        added = {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.unk_id, *tokenizer.symbols.values()}
        texts = [tokenizer.decode([index]) for index in range(tokenizer.vocab_size) if index not in added]
        longest = sorted(texts, key=len, reverse=True)[:NUM_LONGEST_PIECES]
        print(f"longest pieces: {', '.join(map(repr, longest))}")


def _print_vocabulary(tokenizer: Tokenizer) -> None:
    names = tokenizer.special_tokens
    roles = {"pad": tokenizer.pad_id, "begin": tokenizer.bos_id, "end": tokenizer.eos_id}
    if tokenizer.unk_id is not None:
        roles["unknown"] = tokenizer.unk_id
    print(f"model: {tokenizer.kind}")
    print(f"vocabulary: {tokenizer.vocab_size} tokens")
    print(f"normalisation: {tokenizer.normalization or 'none'}")
    print(f"special tokens: {', '.join(f'{role} {getattr(names, role)!r} {index}' for role, index in roles.items())}")
    for title, tokens in (("tags", tokenizer.tags), ("symbols", tokenizer.symbols)):
        print(f"{title}: {', '.join(f'{token!r} {index}' for token, index in tokens.items()) or 'none'}")


def _print_text(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    pieces = zip(tokenizer.pieces(ids), ids, strict=True)
    print(f"\n{text!r}: {len(ids)} token{'' if len(ids) == 1 else 's'}")
    print("  " + " ".join(f"{piece}:{index}" for piece, index in pieces) if ids else "  no tokens")
    decoded = tokenizer.decode(ids)
    if decoded == text:
        print("  comes back exactly")
    elif decoded == tokenizer.normalize(text):
        print(f"  comes back in normal form: {decoded!r}")
    else:
        print(f"  DIFFERS when it comes back: {decoded!r}")


def main() -> None:
    """Entry point."""
    app()


if __name__ == "__main__":
    main()
