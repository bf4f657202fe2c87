"""How examples are prepared and put into batches, as plain settings."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from transformer.config import Config

OverLong = Literal["skip", "truncate", "error"]


class BatchingConfig(Config):
    """How examples become batches."""

    max_tokens_per_batch: int = Field(gt=0)
    """Padded tokens of a batch on either side at most: rows times the longest row. A language model's rows all have
    the model's `max_length`."""
    over_long: OverLong | None = None
    """Translation only: training pairs longer than the model's `max_length`, or than a whole batch, are left out, cut,
    or refused. What was done is counted in the log. Null is skip. Validation and test pairs are never left out, but cut
    to the model's `max_length`."""
    packing: bool = False
    """Several examples share a row, each attending only to itself, with positions of its own. Translation: rows are as
    long as the model's `max_length` on both sides. Language model: documents instead of windows of running text."""
    num_workers: int = Field(default=0, ge=0)
    """Processes that put batches together; the batches are the same for any number."""


class PreparationConfig(Config):
    """How a corpus is read before training."""

    streaming: bool = False
    """Read the training files anew in every epoch, and keep only a shuffle buffer; for corpora larger than the disk
    cache should be. Otherwise they are filtered and cut into subwords once, into a cache on disk."""
    shuffle_buffer: Annotated[int, Field(gt=0)] | None = None
    """Streaming only: examples that are read, shuffled and cut into batches together. Null is 10,000; of running text,
    16 pieces of about a megabyte."""
    cache_folder: Annotated[str, Field(min_length=1)] | None = None
    """Where caches are kept. Null is the user's cache folder, such as ``~/.cache/trueformer``."""

    @property
    def buffer_size(self) -> int:
        """Examples of the shuffle buffer."""
        return 10_000 if self.shuffle_buffer is None else self.shuffle_buffer

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.streaming and self.shuffle_buffer is not None:
            raise ValueError("`shuffle_buffer` has no effect without `streaming: true`; leave it out.")
        return self
