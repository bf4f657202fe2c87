"""What corpora of all kinds are told: their files, the splits of a hub data set, the shares of a mixture."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from transformer.config import Config

NonEmpty = Annotated[str, Field(min_length=1)]
Files = NonEmpty | Annotated[tuple[NonEmpty, ...], Field(min_length=1)]
"""One path, a pattern such as ``part-*.tsv.gz`` (its matches in the order of their names), or several of them. A name
ending in ``.gz``, ``.xz`` or ``.zst`` is decompressed on the way."""


class FileSplits(Config):
    """Files of each split."""

    folder: NonEmpty = "."
    """Folder that relative paths below start from."""
    train: Files
    validation: Files | None = None
    """Validation files; null only in a mixture where another corpus has some."""
    test: Files | None = None
    """Test files, or null for no test set."""

    @property
    def has_validation(self) -> bool:
        """Whether there is a validation split."""
        return self.validation is not None


class HubSplits(Config):
    dataset: NonEmpty
    """Name on the Hugging Face hub (``owner/name``), or a local folder in the hub's layout."""
    subset: NonEmpty | None = None
    """Configuration of the data set, where it has several."""
    revision: NonEmpty | None = None
    """Branch, tag or commit on the hub; null is the newest. No meaning for a local folder."""
    train_split: NonEmpty = "train"
    """Split to train on; slices such as ``train[:90%]`` are understood, but not when streaming,
    nor with `held_out_rows`."""
    validation_split: NonEmpty | None = "validation"
    """Split to validate on; null if there is none: then give `held_out_rows`, unless it is a mixture where another
    corpus has some."""
    held_out_rows: Annotated[int, Field(gt=0)] | None = None
    """Instead of a validation split: so many first rows of the training split, which are not trained on. To read them
    no more than these are fetched from the hub."""
    test_split: NonEmpty | None = None
    """Split to test on, or null for no test set."""

    @property
    def has_validation(self) -> bool:
        """Whether there is a validation split."""
        return self.validation_split is not None or self.held_out_rows is not None

    @model_validator(mode="after")
    def _check_validation(self) -> Self:
        if self.validation_split is not None and self.held_out_rows is not None:
            raise ValueError("`validation_split` and `held_out_rows` exclude each other, but both are given.")
        if self.held_out_rows is not None and "[" in self.train_split:
            raise ValueError(
                f"`held_out_rows` needs a whole split, but `train_split` is a slice of one, {self.train_split}."
            )
        return self


class Mixture(Config):
    """Several corpora trained on at once; validation and test sets are those of all corpora, one after another."""

    weights: dict[str, Annotated[float, Field(gt=0)]] | None = None
    """Share of each corpus in the training examples, in any unit. Null: as large as the corpora are."""
    temperature: Annotated[float, Field(ge=1)] | None = None
    """Shares are proportional to size^(1/temperature): 1 is by size, large values make all corpora equal."""

    def check_mixture(self, names: set[str]) -> None:
        """Refuse weights that do not fit the corpora."""
        if not names:
            raise ValueError("`corpora` must name at least one corpus, but is empty.")
        if self.weights is not None and self.temperature is not None:
            raise ValueError("`weights` and `temperature` exclude each other, but both are given.")
        if self.weights is not None and self.weights.keys() != names:
            raise ValueError(
                f"`weights` must name every corpus ({', '.join(sorted(names))}), but names "
                f"{', '.join(sorted(self.weights)) or 'none'}."
            )
