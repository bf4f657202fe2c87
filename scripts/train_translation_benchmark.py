"""Training a small Transformer to translate, beside the peers: on identical batches, and each by its own defaults."""

import importlib.util
import json
import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from enum import StrEnum
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple

import torch
import typer
from rich.console import Console

from peers import kept_memory, ours_training, race, torch_training
from peers.flops import Lengths, linear_products, measured_flops, step_flops
from peers.laps import Contestant, Lap
from peers.machine import DeviceName, Precision, describe, open_device, peak_flops
from peers.padded import padded_batches, rows_for
from peers.stored import (
    Special,
    StoredPairs,
    load_batches,
    load_pairs,
    load_translating,
    save_batches,
    save_model,
    save_pairs,
)
from peers.torch_transformer import torch_form
from peers.versions import versions
from peers.worker import Worker
from transformer.cli.console import one_line_errors
from transformer.data.batches.buckets import BatchPlan
from transformer.data.batches.collate import TranslationBatch
from transformer.data.batches.pairs import PairExamples
from transformer.data.datamodule import MappedTraining

SMOOTHING, SHOWN_WIDTH = 0.1, 300  # wrapped lines would be no Markdown
M2M100, MARIAN, TORCH, JOEY = "Hugging Face M2M100", "Hugging Face Marian", "torch.nn.Transformer", "JoeyNMT"
PACKAGES = {"transformers": "Hugging Face", "joeynmt": JOEY}


class Part(StrEnum):
    """What is compared."""

    IDENTICAL = "identical"
    DEFAULTS = "defaults"


class Size(NamedTuple):
    """Of the model and its batches; the rest is `configs/model/transformer_small.yaml`."""

    d_model: int
    layers: int
    vocab_size: int
    max_tokens: int


class Shared(NamedTuple):
    """What all contestants are built from; sent to their processes."""

    folder: Path
    overrides: tuple[str, ...]
    device: DeviceName
    max_tokens: int


def train_translation(
    folder: Annotated[Path, typer.Argument(help="Multi30k: train.en.gz, train.de.gz, val.*.gz.")],
    part: Annotated[list[Part] | None, typer.Option(help="May be repeated.", show_default="both")] = None,
    precision: Annotated[list[Precision] | None, typer.Option(help="May be repeated.", show_default="both")] = None,
    d_model: Annotated[int, typer.Option(min=8, help="Width; the feed-forward has 4 times as much.")] = 256,
    layers: Annotated[int, typer.Option(min=1, help="On either side.")] = 3,
    vocab_size: Annotated[int, typer.Option(min=260, help="Joint subwords.")] = 8000,
    max_tokens_per_batch: Annotated[int, typer.Option(min=256, help="Padded tokens of either side.")] = 4096,
    steps: Annotated[int, typer.Option(min=1, help="Of everybody in a round.")] = 5,
    rounds: Annotated[int, typer.Option(min=1, help="After one that does not count; all take their turn in each.")] = 3,
    minutes: Annotated[float, typer.Option(min=0, help="No new round after so many, for each table.")] = 2.5,
    threads: Annotated[int, typer.Option(min=1, help="Of everybody.")] = 2,
    device: Annotated[DeviceName, typer.Option(help="Where all train.")] = DeviceName.CPU,
    peers: Annotated[bool, typer.Option(help="The peers too, where installed.")] = True,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all figures to this file.")] = None,
) -> None:
    """Training steps of a translation model: target tokens/s without padding, memory, share of the matrix products.

    Everybody has the same sizes, clips gradients to norm 1 and updates by Adam. On identical batches all have the same
    first weights, where their architecture allows, and are checked to compute the same loss before anything is timed.
    """
    with one_line_errors(), TemporaryDirectory() as scratch:
        torch.set_num_threads(threads)
        console = Console(width=None if Console().is_terminal else SHOWN_WIDTH)
        size = Size(d_model, layers, vocab_size, max_tokens_per_batch)
        hardware = open_device(device)
        installed = {name for name in PACKAGES if peers and importlib.util.find_spec(name)}
        for name in PACKAGES if peers else ():
            if name not in installed:
                console.print(f"{PACKAGES[name]} is not installed and left out; `make peers` installs it.")
        shared = prepare(folder, size, Path(scratch), device)
        plan = race.Plan(rounds, steps, minutes)
        tables: dict[str, Any] = {}
        for chosen in part or list(Part):
            for kind in precision or list(Precision):
                builders = (identical if chosen == Part.IDENTICAL else defaults)(shared, kind, installed, peers=peers)
                title = f"{chosen}, {kind}, {describe(hardware)}: target tokens/s without padding"
                rows = compete(console, title, builders, shared, kind, plan, threads)
                tables[f"{chosen}_{kind}"] = rows
    if json_file is not None:
        settings = {**size._asdict(), **plan._asdict(), "threads": threads, "device": describe(hardware)}
        everything = {"settings": settings, "versions": versions(installed), "figures": tables}
        json_file.write_text(json.dumps(everything, indent=2) + "\n", encoding="utf-8")


def command_line(folder: Path, size: Size, cache: Path) -> tuple[str, ...]:
    """The settings of our run."""
    return (
        "experiment=translation",
        "data=multi30k_en_de",
        f"data.folder={folder.resolve()}",
        "model=transformer_small",
        f"model.d_model={size.d_model}",
        f"model.d_ff={4 * size.d_model}",
        f"model.num_encoder_layers={size.layers}",
        f"model.num_decoder_layers={size.layers}",
        f"tokenizer.vocab_size={size.vocab_size}",
        f"label_smoothing={SMOOTHING}",
        f"batching.max_tokens_per_batch={size.max_tokens}",
        "validation.num_generated=0",
        "validation.num_shown=0",
        "logger=none",
        f"preparation.cache_folder={cache}",
    )


def prepare(folder: Path, size: Size, scratch: Path, device: DeviceName) -> Shared:
    """Tokenizer, first weights, an epoch's batches and all pairs, where every contestant's process finds them."""
    overrides = command_line(folder, size, scratch / "cache")
    _, parts = ours_training.prepared(overrides, scratch / "run", resume=False)
    assert isinstance(parts.data.training, MappedTraining)
    examples = parts.data.training.examples
    assert isinstance(examples, PairExamples)
    plans = list(parts.data.train_batches(ranks=1).epoch(0))
    save_batches(scratch, [examples[BatchPlan(0, plan)] for plan in plans])
    numbers = sorted(int(number) for plan in plans for number in plan)
    sides = zip(*(examples.pairs.pair(number) for number in numbers), strict=True)
    sources, targets = ([[int(token) for token in row] for row in side] for side in sides)
    save_pairs(scratch, StoredPairs(sources, targets, Special(examples.pad_id, examples.bos_id, examples.eos_id)))
    save_model(scratch, parts.task.model)
    return Shared(scratch, overrides, device, size.max_tokens)


Builders = Mapping[str, Callable[[], Contestant]]


def identical(
    shared: Shared, precision: Precision, installed: set[str], *, peers: bool
) -> dict[str, Callable[[], Contestant]]:
    """All on the same batches."""
    builders: dict[str, Callable[[], Contestant]] = {
        name: partial(_ours_given, shared, way, precision) for name, way in ours_training.WAYS.items()
    }
    if "transformers" in installed:
        builders[M2M100] = partial(_hugging_face, shared, "m2m100", precision, "given")
        builders[MARIAN] = partial(_hugging_face, shared, "marian", precision, "given")
    if peers:
        build = partial(_torch, shared, precision, "given")
        builders[TORCH] = build
        if kept_memory.has_effect(shared.device):
            builders[f"{TORCH}{kept_memory.KEPT}"] = partial(kept_memory.with_kept_memory, build)
    return builders


def defaults(
    shared: Shared, precision: Precision, installed: set[str], *, peers: bool
) -> dict[str, Callable[[], Contestant]]:
    """Each with the batches that it makes by itself."""
    builders: dict[str, Callable[[], Contestant]] = {"ours, transformer-train": partial(_ours_whole, shared, precision)}
    if "transformers" in installed:
        builders[f"{MARIAN}, padded"] = partial(_hugging_face, shared, "marian", precision, "padded")
        builders[f"{MARIAN}, length-grouped"] = partial(_hugging_face, shared, "marian", precision, "grouped")
    if "joeynmt" in installed and precision == Precision.FP32:  # its trainer has no bfloat16
        builders[f"{JOEY}, its trainer"] = partial(_joey, shared)
    if peers:
        builders[f"{TORCH}, padded"] = partial(_torch, shared, precision, "padded")
    return builders


def compete(
    console: Console,
    title: str,
    builders: Builders,
    shared: Shared,
    precision: Precision,
    plan: race.Plan,
    threads: int,
) -> list[dict[str, Any]]:
    """One race, every contestant in a process of its own; its figures are also shown."""
    hardware = torch.device(shared.device.value)
    model = load_translating(shared.folder)
    with ExitStack() as processes:
        asks: dict[str, race.Ask] = {}
        for name, build in {**builders, "": partial(products, shared, precision, plan)}.items():
            worker = processes.enter_context(Worker(build, threads))
            asks[name] = partial(_asked, worker)
        measured = asks.pop("")
        race.check_losses(console, asks)
        used = load_batches(shared.folder, TranslationBatch)[: plan.steps * (plan.rounds + 1)]
        lengths = [one for batch in used for one in lengths_of(batch)]
        per_token = step_flops(model.config, model.vocab_size, lengths) / sum(one.target for one in lengths)
        sheet = peak_flops(describe(hardware), precision) if shared.device == DeviceName.CUDA else None
        if shared.device == DeviceName.CUDA and sheet is None:
            console.print(f"{describe(hardware)} is not in the table of data sheets: no MFU, measured products only.")
        ceiling = race.Ceiling(per_token, lambda: float(measured(Lap(0, 1))), sheet)
        result = race.run(console, asks, plan, ceiling)
    helped = [name for name in builders if name.endswith(kept_memory.KEPT)]
    rows = race.figures(result, ceiling, [name for name in builders if not name.startswith("ours")], helped)
    race.show(console, race.titled(title, result), rows, helped)
    if kept_memory.has_effect(shared.device):
        console.print(kept_memory.NOTE, highlight=False)
    return rows


def _asked(worker: Worker, lap: Lap | None) -> Any:
    return worker(lap).outputs


def lengths_of(batch: TranslationBatch) -> list[Lengths]:
    """Real tokens of each example."""
    pairs = zip(batch.source_mask_BS.sum(1).tolist(), batch.scored_BT.sum(1).tolist(), strict=True)
    return [Lengths(source, target) for source, target in pairs]


def products(shared: Shared, precision: Precision, plan: race.Plan) -> Callable[[Lap], float]:
    """Operations per second of the model's matrix products, for a batch of the mean size."""
    model, device = load_translating(shared.folder), torch.device(shared.device.value)
    lengths = [one for batch in load_batches(shared.folder, TranslationBatch) for one in lengths_of(batch)]
    batches = len(load_batches(shared.folder, TranslationBatch))
    mean = Lengths(
        math.ceil(sum(one.source for one in lengths) / batches), math.ceil(sum(one.target for one in lengths) / batches)
    )
    shapes = linear_products(model.config, model.vocab_size, mean)
    return lambda lap: measured_flops(shapes, device, precision)


def _ours_given(shared: Shared, way: ours_training.Way, precision: Precision) -> Contestant:
    batches = load_batches(shared.folder, TranslationBatch)
    device = torch.device(shared.device.value)
    return ours_training.contestant(way, shared.overrides, shared.folder / "run", batches, device, precision)


def _ours_whole(shared: Shared, precision: Precision) -> Contestant:
    device = torch.device(shared.device.value)
    return ours_training.WholeRuns(shared.overrides, shared.folder / f"whole {precision}", device, precision)


def _hugging_face(shared: Shared, model: str, precision: Precision, kind: str) -> Contestant:
    from peers import hugging_face_training as theirs

    pairs = load_pairs(shared.folder)
    rows = rows_for(pairs, shared.max_tokens)
    order = theirs.grouped(pairs, rows) if kind == "grouped" else None
    batches = None if kind == "given" else padded_batches(pairs, rows, theirs.hugging_face_form, order)
    models = theirs.marian if model == "marian" else theirs.m2m100
    return theirs.translating(models, shared.folder, SMOOTHING, torch.device(shared.device.value), precision, batches)


def _torch(shared: Shared, precision: Precision, kind: str) -> Contestant:
    pairs = load_pairs(shared.folder)
    batches = None if kind == "given" else padded_batches(pairs, rows_for(pairs, shared.max_tokens), torch_form)
    return torch_training.translating(shared.folder, SMOOTHING, torch.device(shared.device.value), precision, batches)


def _joey(shared: Shared) -> Contestant:
    from peers.joey import JoeyTrainer

    device = torch.device(shared.device.value)
    return JoeyTrainer(shared.folder, shared.folder / "joey", SMOOTHING, shared.max_tokens, device)
