"""The first examples of a batch as tables: every position with its pieces, ids and masks."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from torch import Tensor

from transformer.data.batches.collate import TextBatch, TranslationBatch
from transformer.data.batches.pairs import PairTokenizers
from transformer.data.subwords.tokenizer import Tokenizer
from transformer.training.callbacks import visible

NUM_ROWS = 3


def batch_tables(batch: TranslationBatch | TextBatch, tokenizers: PairTokenizers) -> Iterator[Table]:
    """One table for each of the first rows of a batch.

    A piece is the token as the vocabulary spells it. A tick says that a position is real (source) or counts in the loss
    (labels); in packed rows the segment says which example of the row it belongs to.
    """
    sides = _sides(batch, tokenizers)
    num_rows, width = len(sides[0][1]), max(ids.shape[1] for _, ids, _, _ in sides)
    for row in range(min(NUM_ROWS, num_rows)):
        title = f"row {row + 1} of {num_rows} of the first batch"
        if len(batch.index_B) == num_rows:
            title += f", example {int(batch.index_B[row])}"
        table = Table(title=title, title_justify="left", box=None, padding=(0, 1))
        table.add_column("", justify="right", style="dim")
        columns = [_column(ids[row].tolist(), marks[row].tolist(), tokenizer) for _, ids, marks, tokenizer in sides]
        for name, _, marks, _ in sides:
            table.add_column(f"{name}", no_wrap=True)
            table.add_column("id", justify="right")
            table.add_column("segment" if marks.dtype.is_signed else "✓", justify="right")
        for position in range(width):
            cells = [column[position] if position < len(column) else ("", "", "") for column in columns]
            table.add_row(str(position), *(cell for triple in cells for cell in triple))
        yield table


def _sides(
    batch: TranslationBatch | TextBatch, tokenizers: PairTokenizers
) -> list[tuple[str, Tensor, Tensor, Tokenizer]]:
    """Name, ids, marks (real, scored, or number of the segment) and tokenizer of each column."""
    source, target = tokenizers
    if isinstance(batch, TextBatch):
        real = batch.scored_BL if batch.segments_BL is None else batch.segments_BL
        return [
            ("input", batch.tokens_BL, real, target),
            ("label", batch.labels_BL, batch.scored_BL, target),
        ]
    packed = batch.source_segments_BS is not None and batch.target_segments_BT is not None
    return [
        ("source", batch.source_BS, batch.source_segments_BS if packed else batch.source_mask_BS, source),  # type: ignore[list-item]
        ("decoder input", batch.target_BT, batch.target_segments_BT if packed else batch.scored_BT, target),  # type: ignore[list-item]
        ("label", batch.labels_BT, batch.scored_BT, target),
    ]


def _column(
    ids: Sequence[int], marks: Sequence[int | bool], tokenizer: Tokenizer
) -> list[tuple[RenderableType, str, str]]:
    pieces = tokenizer.pieces(ids)
    return [
        (visible(piece), str(index), ("✓" if mark else "·") if isinstance(mark, bool) else str(mark))
        for piece, index, mark in zip(pieces, ids, marks, strict=True)
    ]
