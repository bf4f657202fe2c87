"""Token ids of a corpus on disk: texts are cut into subwords once, and found again at the next start."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import tokenizers as library

from transformer.data.corpora.files import cut_at_words
from transformer.data.preparation.arrow import IdTable, TableWriter, TextTable, id_type, side_names
from transformer.data.preparation.cache import Cache, checksum_of
from transformer.data.preparation.report import SideReport, SideTally
from transformer.data.preparation.texts import CHARACTERS, FORMAT, Progress, Texts
from transformer.data.subwords.tokenizer import Tokenizer


class EncodedCorpus(NamedTuple):
    """One corpus ready for training.

    Attributes:
        ids: token ids; those of documents have their marks already.
        texts: what they were made from.
        sides: what the tokenizer made of each side.
        checksum: changes when any id does.
    """

    ids: IdTable
    texts: TextTable
    sides: tuple[SideReport, ...]
    checksum: str


def prepare_ids(
    texts: Texts, tokenizers: Sequence[Tokenizer], cache: Cache, progress: Progress, *, mark_documents: bool
) -> EncodedCorpus:
    """Token ids of all texts.

    Args:
        texts: what to cut.
        tokenizers: one for each side.
        cache: where the ids are kept.
        progress: told how far it is.
        mark_documents: put each text between start and end tokens.
    """
    table, name = texts.table, texts.report.name

    def build(folder: Path) -> None:
        tallies = [
            SideTally(side, tokenizer) for side, tokenizer in zip(side_names(table.num_sides), tokenizers, strict=True)
        ]
        kind = id_type(max(tokenizer.vocab_size for tokenizer in tokenizers))
        done = 0
        with TableWriter(folder / "ids.arrow", table.num_sides, kind) as writer:
            for batch in table.batches():
                sides = []
                for number, (tokenizer, tally) in enumerate(zip(tokenizers, tallies, strict=True)):
                    column = batch.column(number).to_pylist()
                    ids = encode_all(tokenizer, column)
                    tally.add(column, ids)
                    if mark_documents:
                        ids = [[tokenizer.bos_id, *row, tokenizer.eos_id] for row in ids]
                    sides.append(ids)
                writer.write(sides, batch.column(table.num_sides).to_pylist())
                done += batch.num_rows
                progress(f"cutting {name} into subwords", done, len(table))
        plain = [tally.report().to_plain() for tally in tallies]
        (folder / "report.json").write_text(json.dumps(plain), encoding="utf-8")

    depends_on = {
        "format": FORMAT,
        "texts": texts.folder.name,
        "library": library.__version__,
        "tokenizers": [tokenizer.fingerprint() for tokenizer in tokenizers],
        "mark_documents": mark_documents,
    }
    folder = cache.get("ids", depends_on, build)
    reports = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return EncodedCorpus(
        IdTable(folder / "ids.arrow"),
        table,
        tuple(SideReport.from_plain(report) for report in reports),
        checksum_of(folder, "ids.arrow"),
    )


def encode_all(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Token ids of each text, with bounded memory beside the result: a tokenizer takes a hundred bytes a character."""
    ids: list[list[int]] = []
    start, characters, limit = 0, 0, CHARACTERS // 4
    cuts_long = any(len(text) > limit for text in texts) and tokenizer.cuts_at_words
    for number, text in enumerate(texts):
        if cuts_long and len(text) > limit:
            ids += tokenizer.encode_batch(texts[start:number])
            parts = (tokenizer.encode_batch([part])[0] for part in cut_at_words(text, limit // 2))
            ids.append(list(itertools.chain.from_iterable(parts)))
            start, characters = number + 1, 0
            continue
        characters += len(text)
        if characters > limit:
            ids += tokenizer.encode_batch(texts[start : number + 1])
            start, characters = number + 1, 0
    return ids + tokenizer.encode_batch(texts[start:])
