"""Write a large synthetic parallel corpus, to see how preparation and training behave at that size."""

import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

VOCABULARY, CHUNK = 30_000, 50_000
CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"


def main(
    folder: Annotated[Path, typer.Argument(help="Where train.source, train.target and valid.* are written.")],
    pairs: Annotated[int, typer.Option(min=1, help="Training pairs; 5 million take about 600 MB.")] = 5_000_000,
    validation_pairs: Annotated[int, typer.Option(min=1, help="Validation pairs.")] = 500,
    mean_words: Annotated[
        float, typer.Option(min=1.0, help="Words of a source on average, Poisson distributed.")
    ] = 10.0,
    seed: Annotated[int, typer.Option(min=0, help="Same options, same files, byte for byte.")] = 1,
) -> None:
    """Sources of made-up words with Zipf's frequencies; a target has the translation of each word, in reverse order."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    words = np.array([_word(generator) for _ in range(2 * VOCABULARY)], dtype=object)
    sources, targets = words[:VOCABULARY], words[VOCABULARY:]
    cumulative = np.cumsum(1 / np.arange(10, VOCABULARY + 10))
    cumulative /= cumulative[-1]
    start = time.perf_counter()
    for split, count in (("valid", validation_pairs), ("train", pairs)):
        paths = [folder / f"{split}.{side}" for side in ("source", "target")]
        with paths[0].open("w", encoding="ascii") as source_file, paths[1].open("w", encoding="ascii") as target_file:
            for first in range(0, count, CHUNK):
                lengths = 1 + generator.poisson(mean_words - 1, min(CHUNK, count - first))
                drawn = np.searchsorted(cumulative, generator.random(int(lengths.sum())))
                ends = np.cumsum(lengths).tolist()
                source_words, target_words = sources[drawn].tolist(), targets[drawn].tolist()
                begins = [0, *ends[:-1]]
                source_file.writelines(
                    " ".join(source_words[begin:end]) + "\n" for begin, end in zip(begins, ends, strict=True)
                )
                target_file.writelines(
                    " ".join(reversed(target_words[begin:end])) + "\n" for begin, end in zip(begins, ends, strict=True)
                )
        sizes = ", ".join(f"{path.name} {path.stat().st_size / 1e6:.1f} MB" for path in paths)
        print(f"{count:,} pairs: {sizes}, {time.perf_counter() - start:.0f} s")


def _word(generator: np.random.Generator) -> str:
    syllables = generator.integers(1, 5)
    letters = [CONSONANTS[generator.integers(14)] + VOWELS[generator.integers(5)] for _ in range(syllables)]
    return "".join(letters)


if __name__ == "__main__":
    typer.run(main)
