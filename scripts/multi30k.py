"""The test set that the benchmarks of searches translate."""

from itertools import islice
from pathlib import Path

from transformer.data.corpora.files import read_lines


def read_side(folder: Path, side: str, lines: int) -> list[str]:
    """The first lines of `test_2016_flickr`, in English ("en") or German ("de").

    Raises:
        ValueError: the file is missing, or one of the lines is no text.
    """
    texts = []
    for line in islice(read_lines(folder / f"test_2016_flickr.{side}.gz"), lines):
        if isinstance(line, ValueError):
            raise line
        texts.append(line)
    return texts
