"""``transformer-evaluate``: score bundles on a test or validation split, and compare them."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from omegaconf import DictConfig
from pydantic import BeforeValidator, Field, model_validator

from transformer.cli.compose import config_folder, parse
from transformer.cli.console import messages, one_line_errors, set_up_logging
from transformer.cli.entry import start
from transformer.config import Config
from transformer.data.config import DataConfig
from transformer.data.corpora.pair_config import BleuTokenize
from transformer.decoding.config import DecodingConfig

REPORTS = (".md", ".json")


def _listed(value: Any) -> Any:
    """One name may stand without a list."""
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_listed), Field(min_length=1)]


class EvaluateConfig(Config):
    """What an evaluation is told; null means what the bundle says."""

    bundle: Names
    baseline: str | None = None
    source: str | None = None
    reference: Names | None = None
    tag: str | None = None
    text: Names | None = None
    split: Literal["test", "validation"] | None = None
    data: DataConfig | None = None
    decoding: DecodingConfig | None = None
    bleu_tokenize: BleuTokenize | None = None
    stride: int | None = Field(None, ge=1)
    num_resamples: int = Field(1000, ge=100)
    length_borders: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)] | None = None
    num_sentences: int = Field(3, ge=0)
    max_tokens_per_batch: int = Field(2048, gt=0)
    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    output: str | None = None
    report: str | None = None

    @property
    def own_files(self) -> list[str]:
        """Files that are scored on instead of a corpus."""
        return [*([] if self.source is None else [self.source]), *(self.reference or ()), *(self.text or ())]

    @model_validator(mode="after")
    def _check(self) -> Self:
        seen: set[Path] = set()
        for folder in [*self.bundle, *([] if self.baseline is None else [self.baseline])]:
            if Path(folder).resolve() in seen:
                raise ValueError(
                    f"every bundle must be named once, also as the `baseline`, but {folder} is there twice."
                )
            seen.add(Path(folder).resolve())
        self._check_files()
        borders = self.length_borders or ()
        if list(borders) != sorted(set(borders)):
            raise ValueError(f"`length_borders` must grow from one to the next, but are {list(borders)}.")
        if self.report is not None and Path(self.report).suffix not in REPORTS:
            raise ValueError(f"`report` must end in {' or '.join(REPORTS)}, but is {self.report}.")
        return self

    def _check_files(self) -> None:
        """Refuse what does not go together with files of one's own."""
        for name, given, other, needed in (
            ("source", self.source, "reference", self.reference),
            ("reference", self.reference, "source", self.source),
            ("tag", self.tag, "source", self.source),
        ):
            if given is not None and needed is None:
                raise ValueError(f"`{name}` needs `{other}` beside it, but there is none.")
        if self.source is not None and self.text is not None:
            raise ValueError("`source` and `reference` are for translation models, `text` is for language models.")
        if self.own_files:
            for name in ("data", "split"):
                if getattr(self, name) is not None:
                    raise ValueError(f"`{name}` has no effect where files of your own are scored; leave it out.")


def main() -> None:
    """Entry point."""
    start(_job, EvaluateConfig, folder=config_folder(), name="evaluate", arguments=sys.argv[1:])


def _job(composed: DictConfig) -> None:
    with one_line_errors():
        _evaluate(parse(EvaluateConfig, composed))


def _evaluate(config: EvaluateConfig) -> None:
    # Imported late: torch takes seconds, and a wrong setting has been reported by now.
    from transformer.cli.evaluation_run import run_evaluation

    set_up_logging()
    run_evaluation(config, messages(), shlex.join(["transformer-evaluate", *sys.argv[1:]]))


if __name__ == "__main__":
    main()
