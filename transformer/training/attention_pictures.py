"""Pictures of what the model attends to, as it is trained."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import Logger, TensorBoardLogger, WandbLogger
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from transformer.attention_maps.fonts import Fonts, fonts_for
from transformer.attention_maps.maps import AttentionMap, text_maps, translation_maps
from transformer.attention_maps.pictures import characters_of, missing_glyphs, readable_page
from transformer.attention_maps.summary import choose_heads
from transformer.attention_maps.token_texts import read_tokens
from transformer.data.batches.collate import TextBatch, TranslationBatch
from transformer.data.batches.pairs import PairTokenizers
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.training.config import TrainConfig
from transformer.training.task import Task
from transformer.training.trainer_config import TensorBoardLoggerConfig, WandbLoggerConfig

log = logging.getLogger(__name__)

ATTENTION = "attention"
MAX_TOKENS = 32  # what is longer fills more than a screen
Example = tuple[list[int], list[int]]  # source and target as the model reads them; of a text the source is empty


class AttentionPictures(Callback):
    """At each validation, one picture of each kind of attention in one example: the mean of the heads, layer by layer.

    It is the first validation example of at most 32 tokens on either side, else the shortest; of a text, the first 32.

    Args:
        tokenizers: to label tokens with.
        folder: where to write the pictures besides, or None.
    """

    def __init__(self, tokenizers: PairTokenizers, folder: Path | None) -> None:
        self.tokenizers, self.folder = tokenizers, folder
        self._example: Example = ([], [])
        self._rank: tuple[int, int] | None = None  # of the example; the lowest is taken
        self._fonts: Fonts | None = None

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._rank = None

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: TranslationBatch | TextBatch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if not trainer.is_global_zero:
            return
        if isinstance(batch, TranslationBatch):
            lengths = torch.maximum(batch.source_mask_BS.sum(1), batch.scored_BT.sum(1)).tolist()
            for row, (index, length) in enumerate(zip(batch.index_B.tolist(), lengths, strict=True)):
                rank = (0, index) if length <= MAX_TOKENS else (length, index)
                if self._rank is None or rank < self._rank:
                    self._rank = rank
                    source = batch.source_BS[row][batch.source_mask_BS[row]].tolist()
                    scored = batch.scored_BT[row]
                    target = batch.target_BT[row][scored].tolist()
                    self._example = source, [*target, int(batch.labels_BT[row][scored][-1])]
        elif self._rank is None:
            self._rank = (0, 0)
            self._example = [], _beginning(batch)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Not at the end of all: an average of the weights has given its place back by then.
        if trainer.sanity_checking or self._rank is None:
            return
        assert isinstance(pl_module, Task)
        maps = self._maps(pl_module)
        if self._fonts is None:
            self._fonts = _choose_fonts(maps)
        for attention in maps:
            figure = readable_page(attention, choose_heads(attention, heads=[None]), self._fonts)
            name = f"{ATTENTION}/{attention.kind}"
            pixels = _pixels(figure)
            for logger in trainer.loggers:
                _log_image(logger, name, pixels, trainer.global_step)
            if self.folder is not None:
                self.folder.mkdir(exist_ok=True)
                figure.savefig(self.folder / f"{attention.kind}-step={trainer.global_step}.png")

    def _maps(self, task: Task) -> list[AttentionMap]:
        source, target = self._example
        target_tokens = read_tokens(self.tokenizers.target, target)
        if isinstance(task.model, EncoderDecoder):
            return translation_maps(task.model, read_tokens(self.tokenizers.source, source), target_tokens)
        return text_maps(task.model, target_tokens)


def attention_pictures(config: TrainConfig, tokenizers: PairTokenizers, folder: Path) -> list[Callback]:
    """The callback, if the run has a logger that takes images or is asked for files.

    Args:
        config: the run's settings.
        tokenizers: the run's own.
        folder: the run's own.
    """
    with_images = any(isinstance(each, TensorBoardLoggerConfig | WandbLoggerConfig) for each in config.loggers)
    wanted = config.validation.attention
    if not (with_images if wanted is None else wanted):
        return []
    return [AttentionPictures(tokenizers, folder / ATTENTION if wanted else None)]


def _choose_fonts(maps: Sequence[AttentionMap]) -> Fonts:
    fonts = fonts_for(frozenset().union(*map(characters_of, maps)))
    if (message := missing_glyphs(fonts)) is not None:
        log.warning("in pictures of attention, %s.", message)
    return fonts


def _log_image(logger: Logger, name: str, pixels: NDArray[np.uint8], step: int) -> None:
    if isinstance(logger, TensorBoardLogger):
        logger.experiment.add_image(name, pixels, step, dataformats="HWC")
    elif isinstance(logger, WandbLogger):
        logger.log_image(name, [pixels], step=step)


def _pixels(figure: Figure) -> NDArray[np.uint8]:
    """(height, width, 3)."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    rgba: NDArray[np.uint8] = np.asarray(canvas.buffer_rgba())  # type: ignore[no-untyped-call]
    return rgba[:, :, :3]


def _beginning(batch: TextBatch) -> list[int]:
    """The first tokens of the first row, of one document if it holds several."""
    tokens_L = batch.tokens_BL[0]
    if batch.segments_BL is not None:
        tokens_L = tokens_L[batch.segments_BL[0] == batch.segments_BL[0, 0]]
    else:
        tokens_L = tokens_L[batch.scored_BL[0]]
    return tokens_L[:MAX_TOKENS].tolist()
