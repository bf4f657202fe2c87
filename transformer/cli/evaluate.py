"""``transformer-evaluate``: score a bundle on a test or validation split."""

import json
import sys
from pathlib import Path
from typing import Literal

from omegaconf import DictConfig
from pydantic import Field

from transformer.cli.compose import config_folder, parse
from transformer.cli.console import one_line_errors, set_up_logging
from transformer.cli.entry import start
from transformer.config import Config
from transformer.data.config import DataConfig
from transformer.decoding.config import DecodingConfig


class EvaluateConfig(Config):
    """What an evaluation is told; null means what the bundle says."""

    bundle: str
    split: Literal["test", "validation"] = "test"
    data: DataConfig | None = None
    decoding: DecodingConfig | None = None
    bleu_tokenize: Literal["13a", "none", "intl", "char", "zh"] = "13a"
    max_tokens_per_batch: int = Field(2048, gt=0)
    accelerator: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    output: str | None = None


def main() -> None:
    """Entry point."""
    start(_job, EvaluateConfig, folder=config_folder(), name="evaluate", arguments=sys.argv[1:])


def _job(composed: DictConfig) -> None:
    with one_line_errors():
        _evaluate(parse(EvaluateConfig, composed))


def _evaluate(config: EvaluateConfig) -> None:
    # Imported late: torch takes seconds, and a wrong setting has been reported by now.
    from transformer.bundle import load_bundle
    from transformer.cli.device import choose_device
    from transformer.inference.split import score_split

    set_up_logging()
    bundle = load_bundle(config.bundle)
    scored = score_split(
        bundle,
        bundle.config.data if config.data is None else config.data,
        config.split,
        config.decoding,
        bleu_tokenize=config.bleu_tokenize,
        max_tokens_per_batch=config.max_tokens_per_batch,
        device=choose_device(config.accelerator),
    )
    if config.output is not None:
        Path(config.output).write_text("".join(f"{line}\n" for line in scored.outputs), encoding="utf-8")
    for score in scored.scores:
        print(json.dumps({"split": scored.split, "name": score.name, "value": score.value, "how": score.signature}))


if __name__ == "__main__":
    main()
