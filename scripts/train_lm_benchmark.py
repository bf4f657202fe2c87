"""Training language models, beside the peers: nanoGPT's CPU size on Tiny Shakespeare, and GPT-2 small."""

import importlib.util
import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from enum import StrEnum
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
import typer
from rich.console import Console

from peers import kept_memory, ours_training, race
from peers.flops import Lengths, linear_products, measured_flops, step_flops
from peers.laps import Check, Contestant, Lap, Loop, given
from peers.machine import DeviceName, Precision, describe, open_device, peak_flops
from peers.nano_gpt import NanoGpt, ShippedLoop
from peers.stored import expected_loss, load_batches, load_continuing, save_batches, save_model
from peers.versions import versions
from peers.worker import Worker
from transformer.cli.console import one_line_errors
from transformer.data.batches.collate import TextBatch
from transformer.models.decoder_only import DecoderOnly

SHOWN_WIDTH, IDS, RECIPE = 300, "ids.bin", "recipe"  # wrapped lines would be no Markdown
SHIPPED, TUNED, HUGGING_FACE = "nanoGPT-style, as shipped", "nanoGPT-style, fused, no waiting", "Hugging Face GPT-2"
STORED = 64  # batches that all are given; a lap past the last begins anew


class Shape(StrEnum):
    """Of the model and its batches."""

    NANO = "nano"
    GPT2_SMALL = "gpt2-small"


class Shared(NamedTuple):
    """What all contestants are built from; sent to their processes."""

    folder: Path
    overrides: tuple[str, ...]
    recipe: tuple[str, ...]
    device: DeviceName
    rows: int
    length: int


Builders = dict[str, Callable[[], Contestant]]


def train_lm(
    file: Annotated[Path, typer.Argument(help="Tiny Shakespeare, input.txt or input.txt.gz.")],
    shape: Annotated[Shape, typer.Option(help="nano: 4 layers, width 128, 12 windows of 64 characters.")] = Shape.NANO,
    precision: Annotated[list[Precision] | None, typer.Option(help="May be repeated.", show_default="both")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Windows at once with gpt2-small.")] = 1,
    context: Annotated[int, typer.Option(min=2, max=1024, help="Tokens of a window with gpt2-small.")] = 1024,
    layers: Annotated[int, typer.Option(min=1, help="Of gpt2-small.")] = 12,
    steps: Annotated[int | None, typer.Option(min=1, help="Of a round.", show_default="100; 2 with gpt2-small")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="After one that does not count; all take their turn in each.")] = 5,
    minutes: Annotated[float, typer.Option(min=0, help="No new round after so many, for each table.")] = 2.5,
    threads: Annotated[int, typer.Option(min=1, help="Of everybody.")] = 2,
    device: Annotated[DeviceName, typer.Option(help="Where all train.")] = DeviceName.CPU,
    peers: Annotated[bool, typer.Option(help="The peers too, where installed.")] = True,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all figures to this file.")] = None,
) -> None:
    """Training steps of a language model: tokens/s, memory, share of the matrix products.

    Everybody clips gradients to norm 1 and updates by AdamW, but for the recipe of `experiment=tinyshakespeare_char`,
    which is timed with its own model and optimizer. All others have the same first weights and are checked to compute
    the same loss before anything is timed.
    """
    with one_line_errors(), TemporaryDirectory() as scratch:
        torch.set_num_threads(threads)
        console = Console(width=None if Console().is_terminal else SHOWN_WIDTH)
        hardware, nano = open_device(device), shape == Shape.NANO
        installed = {"transformers"} if peers and importlib.util.find_spec("transformers") else set()
        if peers and not installed:
            console.print("Hugging Face is not installed and left out; `make peers` installs it.")
        shared = (
            prepare_nano(file, Path(scratch), device)
            if nano
            else prepare_gpt2(file, Path(scratch), device, batch, context, layers)
        )
        plan = race.Plan(rounds, steps or (100 if nano else 2), minutes)
        tables: dict[str, Any] = {}
        for kind in precision or list(Precision):
            builders = contestants(shared, kind, nano=nano, peers=peers, hugging_face=bool(installed))
            title = f"{shape}, batch {shared.rows} of {shared.length}, {kind}, {describe(hardware)}: tokens/s"
            beside = [SHIPPED] if SHIPPED in builders else []
            tables[f"{shape}_{kind}"] = compete(console, title, builders, shared, kind, plan, threads, beside)
    if json_file is not None:
        settings = {"shape": shape, "batch": shared.rows, "context": shared.length, **plan._asdict()}
        settings |= {"threads": threads, "device": describe(hardware)}
        everything = {"settings": settings, "versions": versions(installed), "figures": tables}
        json_file.write_text(json.dumps(everything, indent=2) + "\n", encoding="utf-8")


def command_line(file: Path, cache: Path) -> tuple[str, ...]:
    """What both of our runs are told: the text, and no more files than needed."""
    return (
        f"data.folder={file.resolve().parent}",
        f"data.train={file.name}",
        "validation.num_shown=0",
        "logger=none",
        f"preparation.cache_folder={cache}",
    )


def nano_overrides(file: Path, cache: Path) -> tuple[str, ...]:
    """nanoGPT's own architecture and optimizer in our settings."""
    return (
        "experiment=language_model",
        "data=tinyshakespeare",
        "tokenizer=char",
        "model=lm_char",
        "batching.max_tokens_per_batch=768",
        "optimizer.learning_rate=1e-3",
        "optimizer.betas=[0.9,0.99]",
        "optimizer.eps=1e-8",
        "optimizer.weight_decay=0.1",
        "scheduler=constant",
        *command_line(file, cache),
    )


def prepare_nano(file: Path, scratch: Path, device: DeviceName) -> Shared:
    """Tokenizer, first weights, batches and the ids of the text, where every contestant's process finds them."""
    overrides = nano_overrides(file, scratch / "cache")
    _, parts = ours_training.prepared(overrides, scratch / "run", resume=False)
    batches = [batch for _, batch in zip(range(STORED), parts.data.train_dataloader(), strict=False)]
    save_batches(scratch, batches)
    save_model(scratch, parts.task.model)
    recipe = ("experiment=tinyshakespeare_char", *command_line(file, scratch / "cache"))
    recipe_folder = scratch / RECIPE
    recipe_folder.mkdir()
    _, recipe_parts = ours_training.prepared(recipe, recipe_folder / "run", resume=False)
    data = zip(range(STORED), recipe_parts.data.train_dataloader(), strict=False)
    save_batches(recipe_folder, [batch for _, batch in data])
    ids = np.concatenate([batch.tokens_BL.numpy().ravel() for batch in batches])
    ids.astype(np.uint16).tofile(scratch / IDS)  # as good as any part of the text to cut windows from
    rows, length = batches[0].tokens_BL.shape
    return Shared(scratch, overrides, recipe, device, rows, length)


def prepare_gpt2(file: Path, scratch: Path, device: DeviceName, rows: int, length: int, layers: int) -> Shared:
    """A model of random weights with a vocabulary of 50,257, and windows of random ids."""
    overrides = (
        "experiment=language_model",
        "data=tinyshakespeare",
        "tokenizer=char",  # only the task asks for one; the ids are drawn
        "model=lm_small",
        "++model.dropout=0.0",
        f"model.num_layers={layers}",
        f"model.max_length={length}",
        f"batching.max_tokens_per_batch={rows * length}",
        *command_line(file, scratch / "cache"),
    )
    config, _ = ours_training.prepared(overrides, scratch / "run", resume=False)
    torch.manual_seed(0)
    model = DecoderOnly(config.model, 50257)
    save_model(scratch, model)
    ids = torch.randint(model.vocab_size, (8, rows, length + 1), generator=torch.Generator().manual_seed(0))
    scored, index = torch.ones(rows, length, dtype=torch.bool), torch.arange(rows)
    save_batches(scratch, [TextBatch(index, one[:, :-1].clone(), one[:, 1:].clone(), scored) for one in ids])
    return Shared(scratch, overrides, (), device, rows, length)


def contestants(shared: Shared, precision: Precision, *, nano: bool, peers: bool, hugging_face: bool) -> Builders:
    """Ways to build all of them."""
    builders: Builders = {name: partial(_ours, shared, way, precision) for name, way in ours_training.WAYS.items()}
    if nano:
        for name, way in ours_training.WAYS.items():
            builders[f"{name}, recipe tinyshakespeare_char"] = partial(_recipe, shared, way, precision)
    if nano and peers:
        builders[SHIPPED] = partial(_nano_gpt, shared, precision, shipped=True)
        build = partial(_nano_gpt, shared, precision, shipped=False)
        builders[TUNED] = build
        if kept_memory.has_effect(shared.device):
            builders[f"{TUNED}{kept_memory.KEPT}"] = partial(kept_memory.with_kept_memory, build)
    if hugging_face:
        builders[HUGGING_FACE] = partial(_hugging_face, shared, precision)
    return builders


def compete(
    console: Console,
    title: str,
    builders: Mapping[str, Callable[[], Contestant]],
    shared: Shared,
    precision: Precision,
    plan: race.Plan,
    threads: int,
    beside: list[str],
) -> list[dict[str, Any]]:
    """One race, every contestant in a process of its own; its figures are also shown."""
    model, name = load_continuing(shared.folder), describe(torch.device(shared.device.value))
    examples = [Lengths(0, shared.length)] * shared.rows
    per_token = step_flops(model.config, model.vocab_size, examples) / (shared.rows * shared.length)
    sheet = peak_flops(name, precision) if shared.device == DeviceName.CUDA else None
    if shared.device == DeviceName.CUDA and sheet is None:
        console.print(f"{name} is not in the table of data sheets: no MFU, measured products only.")
    with ExitStack() as processes:
        asks: dict[str, race.Ask] = {}
        for who, build in {**builders, "": partial(_products, shared, precision)}.items():
            asks[who] = partial(_asked, processes.enter_context(Worker(build, threads)))
        measured = asks.pop("")
        race.check_losses(console, asks)
        ceiling = race.Ceiling(per_token, lambda: float(measured(Lap(0, 1))), sheet)
        result = race.run(console, asks, plan, ceiling)
    helped = [who for who in builders if who.endswith(kept_memory.KEPT)]
    rows = race.figures(result, ceiling, [who for who in builders if not who.startswith("ours")], helped)
    race.show(console, race.titled(title, result), rows, [*beside, *helped])
    if kept_memory.has_effect(shared.device):
        console.print(kept_memory.NOTE, highlight=False)
    return rows


def _asked(worker: Worker, lap: Lap | None) -> Any:
    return worker(lap).outputs


def _products(shared: Shared, precision: Precision) -> Callable[[Lap], float]:
    model = load_continuing(shared.folder)
    shapes = linear_products(model.config, model.vocab_size, Lengths(0, shared.rows * shared.length))
    return lambda lap: measured_flops(shapes, torch.device(shared.device.value), precision)


def _ours(shared: Shared, way: ours_training.Way, precision: Precision) -> Contestant:
    batches = load_batches(shared.folder, TextBatch)
    device, weights = torch.device(shared.device.value), load_continuing(shared.folder)
    run = shared.folder / "run"
    return ours_training.contestant(way, shared.overrides, run, batches, device, precision, weights=weights)


def _recipe(shared: Shared, way: ours_training.Way, precision: Precision) -> Contestant:
    """The experiment as it is, but for where its files are; its batches are its own."""
    folder, device = shared.folder / RECIPE, torch.device(shared.device.value)
    batches = load_batches(folder, TextBatch)
    return ours_training.contestant(way, shared.recipe, folder / "run", batches, device, precision)


def _hugging_face(shared: Shared, precision: Precision) -> Contestant:
    from peers import hugging_face_training

    return hugging_face_training.continuing(shared.folder, torch.device(shared.device.value), precision)


def _nano_gpt(shared: Shared, precision: Precision, *, shipped: bool) -> Contestant:
    ours, batches, device = load_continuing(shared.folder), load_batches(shared.folder, TextBatch), shared.device.value
    model, where = NanoGpt(ours).eval(), torch.device(device)
    with torch.inference_mode():
        loss = float(model(batches[0].tokens_BL, batches[0].labels_BL))
    check = Check(loss, expected_loss(ours, batches[0], 0.0))
    if shipped:
        return ShippedLoop(model, shared.folder / IDS, shared.rows, shared.length, where, precision, check)
    model.to(where).train()
    optimizer, chosen = model.optimizer(fused=True), given(batches, batches)
    return Loop(model, lambda one: model(one.tokens_BL, one.labels_BL), optimizer, chosen, where, precision, check)
