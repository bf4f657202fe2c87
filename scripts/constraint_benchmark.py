"""What required terms do to translations of a test set: whether they are there, scores and speed."""

import time
from pathlib import Path
from typing import Annotated

import regex
import torch
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from multi30k import read_side
from transformer.cli.console import one_line_errors
from transformer.decoding.config import BeamConfig
from transformer.inference.alignment import align
from transformer.inference.constraints import Constraints
from transformer.inference.glossary import Glossary
from transformer.inference.translator import Translator
from transformer.metrics.text import all_scores

WORD = regex.compile(r"\w{3,}")


def constraints(
    bundle: Annotated[Path, typer.Argument(help="Folder of a trained English-German model.")],
    folder: Annotated[Path, typer.Argument(help="Multi30k: test_2016_flickr.en.gz, test_2016_flickr.de.gz.")],
    lines: Annotated[int, typer.Option(min=1, help="Sentences of the test set.")] = 200,
    beam: Annotated[int, typer.Option(min=2, help="Beginnings kept.")] = 5,
    threads: Annotated[int, typer.Option(min=1, help="CPU threads.")] = 2,
) -> None:
    """Translate with a glossary of one entry for each sentence, and without.

    The entry is a source word and the word of the reference that is aligned with it: one that the translation without a
    glossary lacks, wherever there is any.
    """
    with one_line_errors():
        torch.set_num_threads(threads)
        translator = Translator.load(bundle)
        sources, references = (read_side(folder, side, lines) for side in ("en", "de"))
        config = BeamConfig(name="beam", size=beam)
        start = time.perf_counter()
        plain = translator.translate(sources, config)
        plain_seconds = time.perf_counter() - start
        glossaries = _glossaries(translator, sources, references, plain)
        required = [tuple(glossary.terms_in(source)) for glossary, source in zip(glossaries, sources, strict=True)]
        start = time.perf_counter()
        demanded = translator.translate(
            sources, config, constraints=[Constraints(required=terms) for terms in required]
        )
        seconds = time.perf_counter() - start
        table = Table(box=box.MARKDOWN, title=f"{len(sources)} sentences, beam {beam}", title_justify="left")
        for heading in ("", "terms present", "sentences/s", *(score.name for score in all_scores(plain, references))):
            table.add_column(heading, justify="left" if not heading else "right")
        for name, outputs, taken in (("without", plain, plain_seconds), ("with the glossary", demanded, seconds)):
            present = sum(
                any(regex.search(rf"(?<!\w){regex.escape(word)}(?!\w)", output) for word in term)
                for terms, output in zip(required, outputs, strict=True)
                for term in terms
            )
            scores = (f"{score.value:.2f}" for score in all_scores(outputs, references))
            table.add_row(name, f"{present} of {sum(map(len, required))}", f"{len(outputs) / taken:.1f}", *scores)
        Console(width=120).print(table)


def _glossaries(
    translator: Translator, sources: list[str], references: list[str], outputs: list[str]
) -> list[Glossary]:
    """One entry for each sentence; none where no word of three letters is aligned with another."""
    glossaries = []
    for source, reference, output, alignment in zip(
        sources, references, outputs, align(translator, sources, references), strict=True
    ):
        source_words, target_words = source.split(), reference.split()
        pairs = [
            (one[0], other[0])
            for place, target_place in alignment.links
            if (one := WORD.search(source_words[place])) and (other := WORD.search(target_words[target_place]))
        ]
        pairs.sort(key=lambda pair: (pair[1] in WORD.findall(output), -len(pair[1])))
        glossaries.append(Glossary({one: (other,) for one, other in pairs[:1]}))
    return glossaries
