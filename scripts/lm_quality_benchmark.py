"""What a language model of nanoGPT's CPU size learns in nanoGPT's CPU budget: by our recipe, and by nanoGPT's."""

import gzip
import json
import math
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, NamedTuple

import numpy as np
import torch
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from peers import ours_training
from peers.laps import Lap
from peers.machine import Precision
from peers.nano_gpt import NanoGpt, ShippedLoop
from peers.versions import versions
from peers.worker import Worker
from transformer.cli.console import one_line_errors
from transformer.models.config import DecoderOnlyConfig
from transformer.models.decoder_only import DecoderOnly
from transformer.models.init import count_parameters
from transformer.training.history import METRICS, read_history
from transformer.training.run import train

STEPS, WARMUP, ROWS, LENGTH, WIDTH, LAYERS, HEADS = 2000, 100, 12, 64, 128, 4, 4
OURS, SHIPPED, TUNED = "experiment=tinyshakespeare_char", "nanoGPT-style, its recipe", "nanoGPT-style, well tuned"


class Learned(NamedTuple):
    """Loss in nats per character over the whole validation split, in windows of 64 side by side; parameters."""

    loss: float
    parameters: int


def lm_quality(
    file: Annotated[Path, typer.Argument(help="Tiny Shakespeare, input.txt or input.txt.gz.")],
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each, with seeds 1, 2, ...")] = 3,
    steps: Annotated[int, typer.Option(min=WARMUP + 1, help="Of 12 windows of 64 characters.")] = STEPS,
    threads: Annotated[int, typer.Option(min=1, help="Of each run.")] = 2,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all figures to this file.")] = None,
) -> None:
    """Train the recipe tinyshakespeare_char and two of nanoGPT's kind; mean and deviation of the validation loss.

    nanoGPT's recipe: AdamW, learning rate 1e-3, 100 steps of warm-up, cosine to a tenth. Well tuned: 3e-3, linear to
    zero. Everybody takes the same number of steps of 12 windows of 64 characters from the first nine tenths of the
    text.
    """
    with one_line_errors(), TemporaryDirectory() as scratch:
        console = Console(width=None if Console().is_terminal else 120)
        ways: dict[str, Callable[[int], Learned]] = {
            OURS: partial(ours, file.resolve(), Path(scratch), steps),
            SHIPPED: partial(nano, file, Path(scratch), steps, cosine),
            TUNED: partial(nano, file, Path(scratch), steps, linear),
        }
        results: dict[str, list[Learned]] = {}
        for name, way in ways.items():
            with Worker(partial(_returning, way), threads) as worker:
                for seed in range(1, seeds + 1):
                    learned = worker(seed).outputs
                    console.print(f"{name}, seed {seed}: {learned.loss:.4f}", highlight=False)
                    results.setdefault(name, []).append(learned)
        table = Table(box=box.MARKDOWN)
        for heading in ("", "validation loss", "standard deviation", "each", "parameters"):
            table.add_column(heading, justify="left" if heading == "" else "right")
        for name, all_learned in results.items():
            losses = [learned.loss for learned in all_learned]
            deviation = f"{statistics.stdev(losses):.4f}" if len(losses) > 1 else "one seed"
            each = ", ".join(f"{loss:.4f}" for loss in losses)
            table.add_row(name, f"{statistics.mean(losses):.4f}", deviation, each, f"{all_learned[0].parameters:,}")
        console.print(table)
        if json_file is not None:
            figures = {name: [one._asdict() for one in learned] for name, learned in results.items()}
            settings = {"steps": steps, "seeds": list(range(1, seeds + 1)), "threads": threads}
            everything = {"settings": settings, "versions": versions(set()), "figures": figures}
            json_file.write_text(json.dumps(everything, indent=2) + "\n", encoding="utf-8")


def _returning(way: Callable[[int], Learned]) -> Callable[[int], Learned]:
    return way


def ours(file: Path, scratch: Path, steps: int, seed: int) -> Learned:
    """The experiment through `transformer-train`'s own code; the loss of its last validation."""
    overrides = [
        "experiment=tinyshakespeare_char",
        f"data.folder={file.parent}",
        f"data.train={file.name}",
        f"seed={seed}",
        "trainer=cpu",
        "++trainer.precision=32-true",
        f"trainer.max_steps={steps}",
        f"validation.every_n_steps={steps}",
        "validation.num_shown=0",
        "logger=none",
        f"preparation.cache_folder={scratch / 'cache'}",
    ]
    config = ours_training.configured(overrides)
    folder = scratch / f"ours {seed}"
    result = train(config, folder, ours_training.QUIET)
    [last] = [entry for entry in read_history(folder / METRICS)[-2:] if "validation/loss" in entry]
    assert last["step"] == steps
    return Learned(last["validation/loss"], count_parameters(result.bundle.model))


def cosine(steps: int, update: int) -> float:
    """nanoGPT's learning rate on a CPU."""
    if update < WARMUP:
        return 1e-3 * (update + 1) / (WARMUP + 1)
    return 1e-4 + 0.5 * (1e-3 - 1e-4) * (1 + math.cos(math.pi * (update - WARMUP) / (steps - WARMUP)))


def linear(steps: int, update: int) -> float:
    """What does best for the same model."""
    return 3e-3 * min((update + 1) / (WARMUP + 1), (steps - update) / (steps - WARMUP))


def nano(file: Path, scratch: Path, steps: int, rate: Callable[[int, int], float], seed: int) -> Learned:
    """The loop of nanoGPT's kind on the same split of the text."""
    with (gzip.open if file.suffix == ".gz" else open)(file, "rt", encoding="utf-8-sig") as opened:
        text = opened.read()
    numbers = {character: number for number, character in enumerate(sorted(set(text)))}
    ids = np.array([numbers[character] for character in text], dtype=np.uint16)
    cut = int(0.9 * len(ids))
    stored = scratch / "nano.bin"
    ids[:cut].tofile(stored)
    torch.manual_seed(seed)
    config = DecoderOnlyConfig(
        name="decoder_only", num_layers=LAYERS, d_model=WIDTH, num_heads=HEADS, max_length=LENGTH, activation="gelu",
        bias=False, dropout=0.0,
    )  # fmt: skip
    model = NanoGpt(DecoderOnly(config, len(numbers)))
    cpu = torch.device("cpu")
    loop = ShippedLoop(model, stored, ROWS, LENGTH, cpu, Precision.FP32, None, partial(rate, steps))
    loop(Lap(0, steps))
    return Learned(validation_loss(model, ids[cut:]), sum(parameter.numel() for parameter in model.parameters()))


@torch.no_grad()
def validation_loss(model: NanoGpt, ids: np.ndarray) -> float:
    """Nats per character over windows side by side, the last one shorter."""
    model.eval()
    total, tokens = 0.0, torch.from_numpy(ids.astype(np.int64))
    for start in range(0, len(tokens) - 1, LENGTH * 100):
        piece = tokens[start : start + LENGTH * 100 + 1]
        whole = (len(piece) - 1) // LENGTH * LENGTH
        for inputs, labels in (
            (piece[:whole].view(-1, LENGTH), piece[1 : whole + 1].view(-1, LENGTH)),
            (piece[None, whole:-1], piece[None, whole + 1 :]),
        ):
            if inputs.numel():
                total += float(model(inputs, labels)) * inputs.numel()
    return total / (len(tokens) - 1)
