"""Compare the project's fast paths with what they replace: interleaved in one run, medians, as ratios."""

import itertools
import resource
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import torch
import typer
from torch import Tensor

from attention_benchmark import attention_command
from constraint_benchmark import constraints
from decode_benchmark import decode
from decode_memory import decode_memory
from lm_quality_benchmark import lm_quality
from memory_benchmark import memory
from train_lm_benchmark import train_lm
from train_translation_benchmark import train_translation
from transformer.cli.compose import compose_all, config_folder, parse
from transformer.data.batches.buckets import BatchPlan
from transformer.nn.dropout import Dropout
from transformer.training.config import TrainConfig
from transformer.training.parts import build_parts

app = typer.Typer(add_completion=False, no_args_is_help=True)


@app.callback()
def main() -> None:
    """Timings on this machine, which must be quiet: another busy process changes them several times over."""


app.command()(constraints)
app.command()(decode)
app.command()(decode_memory)
app.command("attention")(attention_command)
app.command()(lm_quality)
app.command()(memory)
app.command()(train_lm)
app.command()(train_translation)


@app.command()
def dropout(
    rows: Annotated[int, typer.Option(min=1, help="Positions of the activation.")] = 4096,
    width: Annotated[int, typer.Option(min=1, help="Features of the activation.")] = 1024,
    repeats: Annotated[int, typer.Option(min=3, help="Timed pairs, after three untimed ones.")] = 15,
) -> None:
    """Dropout of an activation, forward and backward, against torch's own."""
    x = torch.randn(rows, width, requires_grad=True)
    ours, theirs = Dropout(0.1).train(), torch.nn.Dropout(0.1).train()
    compare(lambda: ours(x), "transformer.nn.dropout", lambda: theirs(x), "torch.nn.Dropout", repeats)


@app.command()
def prepare(
    folder: Annotated[Path, typer.Argument(help="What make_pairs.py wrote.")],
    streaming: Annotated[bool, typer.Option(help="Read the files as they are, without a cache.")] = False,
    max_tokens_per_batch: Annotated[
        int, typer.Option(min=256, help="Padded tokens of a batch, on either side.")
    ] = 1024,
    steps: Annotated[int, typer.Option(min=1, help="Training steps of the tiny Transformer.")] = 200,
) -> None:
    """Prepare a large corpus into an empty cache, train some steps, prepare again; time, pairs/s, greatest memory."""
    files = {f"{split}_{side}": f"{short}.{side}" for split, short in (("train", "train"), ("validation", "valid"))
             for side in ("source", "target")}  # fmt: skip
    with TemporaryDirectory() as cache:
        overrides = [
            "experiment=translation",
            "data=text_pairs",
            f"data.folder={folder.resolve()}",
            *(f"data.{name}={file}" for name, file in files.items()),
            f"++batching.max_tokens_per_batch={max_tokens_per_batch}",
            f"++trainer.max_steps={steps}",
            f"++preparation.streaming={str(streaming).lower()}",
            f"++preparation.cache_folder={cache}",
        ]
        config = parse(TrainConfig, next(iter(compose_all(config_folder(), "train", overrides, None))))
        for start in ("first", "second"):
            began = time.perf_counter()
            parts = build_parts(config, Path(cache, f"run {start}"), lambda what, done, total: None)
            prepared = time.perf_counter() - began
            batch = next(iter(parts.data.train_dataloader()))
            ready = time.perf_counter() - began
            rate = "" if parts.report is None else f" ({parts.report.corpora[0].read / prepared:,.0f} pairs/s)"
            print(f"{start} start: prepared in {prepared:.1f} s{rate}, first batch after {ready:.1f} s")
            if start == "first":
                model = parts.task.model.train()
                optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
                began = time.perf_counter()
                for batch in parts.data.train_dataloader():
                    sums = parts.task.loss(batch)
                    (sums.loss / sums.num_tokens).backward()
                    optimizer.step()
                    optimizer.zero_grad()
                print(f"{steps} steps in {time.perf_counter() - began:.1f} s")
                # Of this process, memory-mapped files included; on Linux in kilobytes.
                print(f"greatest memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


@app.command()
def loader(
    folder: Annotated[
        Path, typer.Argument(help="Multi30k: train.en.gz, train.de.gz, val.*.gz, test_2016_flickr.*.gz.")
    ],
    max_tokens_per_batch: Annotated[
        int, typer.Option(min=256, help="Padded tokens of a batch, on either side.")
    ] = 4096,
    packing: Annotated[bool, typer.Option(help="Pack several pairs into a row.")] = False,
    steps: Annotated[int, typer.Option(min=3, help="Training steps timed, after two untimed ones.")] = 10,
) -> None:
    """Padding of the batches, and how much faster they are made than the tiny Transformer learns from them."""
    overrides = [
        "experiment=multi30k_en_de",
        f"data.folder={folder.resolve()}",
        f"++batching.max_tokens_per_batch={max_tokens_per_batch}",
        f"++batching.packing={str(packing).lower()}",
        "++validation.num_generated=0",
    ]
    config = parse(TrainConfig, next(iter(compose_all(config_folder(), "train", overrides, None))))
    with TemporaryDirectory() as run_folder:
        parts = build_parts(config, Path(run_folder), lambda what, done, total: None)
    batches = parts.data.train_batches(ranks=1)
    examples, orders = parts.data.training.examples, []
    for epoch in range(3):
        real, padded, num_tokens, orders_of_epoch = [0, 0], [0, 0], 0, []
        start = time.perf_counter()
        for plan in batches.epoch(epoch):
            batch = examples[BatchPlan(epoch, plan)]
            num_tokens += batch.labels_BT.numel()
            orders_of_epoch.append(batch.index_B)
            for side, mask in enumerate((batch.source_mask_BS, batch.scored_BT)):
                real[side] += int(mask.sum())
                padded[side] += mask.numel()
        seconds = time.perf_counter() - start
        order = torch.cat(orders_of_epoch)
        orders.append(order)
        assert len(order.unique()) == len(order), "an example came twice"
        loaded = real[1] / seconds
        print(
            f"epoch {epoch}: {len(orders_of_epoch)} batches, padding {1 - real[0] / padded[0]:.2%} of source and "
            f"{1 - real[1] / padded[1]:.2%} of target positions, {loaded:,.0f} target tokens/s"
        )
    assert not any(torch.equal(one, two) for one, two in pairwise(orders)), "two epochs have the same order"
    model = parts.task.model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    rates = []
    for step, plan in enumerate(itertools.islice(batches.epoch(0), steps + 2)):
        batch = examples[BatchPlan(0, plan)]
        start = time.perf_counter()
        sums = parts.task.loss(batch)
        (sums.loss / sums.num_tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step >= 2:
            rates.append(int(sums.num_tokens) / (time.perf_counter() - start))
    learnt = statistics.median(rates)
    print(f"training: {learnt:,.0f} target tokens/s (median of {steps} steps, {torch.get_num_threads()} threads)")
    print(f"ratio {loaded / learnt:.0f}")


def compare(one: Callable[[], Tensor], one_name: str, two: Callable[[], Tensor], two_name: str, repeats: int) -> None:
    """Time two functions in turn, forward and backward, and print both medians and their ratio."""
    times: dict[str, list[float]] = {one_name: [], two_name: []}
    for repeat in range(repeats + 3):
        for name, function in ((one_name, one), (two_name, two)):
            start = time.perf_counter()
            output = function()
            output.backward(torch.ones_like(output))
            if repeat >= 3:
                times[name].append(1e3 * (time.perf_counter() - start))
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, values in times.items():
        print(f"{name:24} {medians[name]:8.2f} ms  (from {min(values):.2f} to {max(values):.2f})")
    print(f"ratio {medians[two_name] / medians[one_name]:.2f}")


if __name__ == "__main__":
    app()
