"""Our attention beside torch's `scaled_dot_product_attention` and the formula written down: forward and backward."""

import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
import torch.nn.functional as F
import typer
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor

from peers.machine import DeviceName, Precision, describe, open_device, synchronize
from peers.versions import versions
from transformer.cli.console import one_line_errors
from transformer.nn.attention import attention
from transformer.nn.masks import padding_mask

OURS, FUSED, NAIVE = "ours", "torch SDPA", "matmul, softmax, matmul"
WITHIN = {Precision.FP32: 1e-4, Precision.BF16: 3e-2}  # greatest difference of outputs of size 1


class Case(NamedTuple):
    """Who attends to whom: lengths, and whether the future or padding is hidden."""

    name: str
    queries: int
    keys: int
    causal: bool
    padded: bool


class Inputs(NamedTuple):
    """Queries, keys and values (batch, heads, length, head size); True where a key is real, or None."""

    query: Tensor
    key: Tensor
    value: Tensor
    real_BK: Tensor | None


Way = Callable[[Inputs, Case], Tensor]


def attention_command(
    batch: Annotated[int, typer.Option(min=1, help="Rows.")] = 64,
    heads: Annotated[int, typer.Option(min=1, help="Of the queries, keys and values.")] = 4,
    head_size: Annotated[int, typer.Option(min=1, help="Features of a head.")] = 64,
    length: Annotated[int, typer.Option(min=2, help="Positions; cross-attention has three times as many keys.")] = 64,
    precision: Annotated[list[Precision] | None, typer.Option(help="May be repeated.", show_default="both")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds, after two that do not count.")] = 15,
    threads: Annotated[int, typer.Option(min=1, help="Of everybody.")] = 2,
    device: Annotated[DeviceName, typer.Option(help="Where it is computed.")] = DeviceName.CPU,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all figures to this file.")] = None,
) -> None:
    """Attention, forward and backward: causal, with padding, with both, and over another length."""
    with one_line_errors():
        torch.set_num_threads(threads)
        hardware, tables = open_device(device), {}
        console = Console(width=None if Console().is_terminal else 160)
        for kind in precision or list(Precision):
            rows = [
                row for case in cases(length) for row in timed(case, (batch, heads, head_size), kind, hardware, repeats)
            ]
            title = f"attention, {batch} rows, {heads} heads of {head_size}, {kind}, {describe(hardware)}: ms"
            show(console, title, rows)
            tables[kind.value] = rows
    if json_file is not None:
        settings = {"batch": batch, "heads": heads, "head_size": head_size, "length": length, "repeats": repeats}
        everything = {"settings": settings | {"threads": threads}, "versions": versions([]), "figures": tables}
        json_file.write_text(json.dumps(everything, indent=2) + "\n", encoding="utf-8")


def cases(length: int) -> list[Case]:
    """What a translation model and a language model ask for."""
    return [
        Case("all", length, length, causal=False, padded=False),
        Case("causal", length, length, causal=True, padded=False),
        Case("padding", length, length, causal=False, padded=True),
        Case("causal and padding", length, length, causal=True, padded=True),
        Case("cross, padding", length, 3 * length, causal=False, padded=True),
    ]


def ours(inputs: Inputs, case: Case) -> Tensor:
    """The function of this project."""
    mask = None if inputs.real_BK is None else padding_mask(inputs.real_BK)
    return attention(inputs.query, inputs.key, inputs.value, mask=mask, causal=case.causal).output


def fused(inputs: Inputs, case: Case) -> Tensor:
    """torch's function as its documentation says: either `is_causal`, or a mask of everything."""
    allowed = _allowed(inputs, case) if case.padded else None
    return F.scaled_dot_product_attention(
        inputs.query, inputs.key, inputs.value, attn_mask=allowed, is_causal=case.causal and not case.padded
    )


def naive(inputs: Inputs, case: Case) -> Tensor:
    """The formula."""
    scores = inputs.query @ inputs.key.transpose(-2, -1) / math.sqrt(inputs.query.shape[-1])
    allowed = _allowed(inputs, case)
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -math.inf)
    return scores.softmax(-1) @ inputs.value


WAYS: dict[str, Way] = {OURS: ours, FUSED: fused, NAIVE: naive}


def _allowed(inputs: Inputs, case: Case) -> Tensor | None:
    allowed = None if inputs.real_BK is None else inputs.real_BK[:, None, None]
    if case.causal:
        past = torch.ones(case.queries, case.keys, dtype=torch.bool, device=inputs.query.device).tril()
        allowed = past if allowed is None else past & allowed
    return allowed


def inputs_of(case: Case, sizes: tuple[int, int, int], precision: Precision, device: torch.device) -> Inputs:
    """Random ones; in padded rows between half and all of the keys are real, the first ones."""
    batch, heads, head_size = sizes
    generator = torch.Generator().manual_seed(0)
    dtype = torch.bfloat16 if precision == Precision.BF16 else torch.float32

    def draw(length: int) -> Tensor:
        drawn = torch.randn(batch, heads, length, head_size, generator=generator)
        return drawn.to(device, dtype).requires_grad_()

    real_BK = None
    if case.padded:
        lengths_B = torch.randint(case.keys // 2, case.keys + 1, (batch, 1), generator=generator)
        real_BK = (torch.arange(case.keys)[None] < lengths_B).to(device)
    return Inputs(draw(case.queries), draw(case.keys), draw(case.keys), real_BK)


def timed(
    case: Case, sizes: tuple[int, int, int], precision: Precision, device: torch.device, repeats: int
) -> list[dict[str, Any]]:
    """Milliseconds of each way, in turn, once their outputs are seen to be the same.

    Raises:
        ValueError: they are not.
    """
    inputs = inputs_of(case, sizes, precision, device)
    outputs = {name: way(inputs, case).detach().float() for name, way in WAYS.items()}
    for name, output in outputs.items():
        difference = float((output - outputs[NAIVE]).abs().max())
        if difference > WITHIN[precision]:
            raise ValueError(f"{name} does not compute the same ({case.name}): outputs differ by {difference:.1e}.")
    upstream = torch.ones_like(inputs.query)
    times: dict[str, list[float]] = {name: [] for name in WAYS}
    for repeat in range(repeats + 2):
        for name, way in WAYS.items():
            synchronize(device)
            start = time.perf_counter()
            way(inputs, case).backward(upstream)
            synchronize(device)
            if repeat >= 2:
                times[name].append(1e3 * (time.perf_counter() - start))
    medians = {name: statistics.median(values) for name, values in times.items()}
    return [
        {
            "case": case.name,
            "name": name,
            "ms": medians[name],
            "ms_min": min(values),
            "ms_max": max(values),
            "times_sdpa": statistics.median(one / mine for one, mine in zip(times[FUSED], values, strict=True)),
        }
        for name, values in times.items()
    ]


def show(console: Console, title: str, rows: Sequence[dict[str, Any]]) -> None:
    """A table in Markdown."""
    table = Table(box=box.MARKDOWN, title=title, title_justify="left")
    for heading, justify in (("who attends to whom", "left"), ("", "left"), ("ms (min..max)", "right"),
                             ("times torch SDPA", "right")):  # fmt: skip
        table.add_column(heading, justify=justify)
    for row in rows:
        spread = f"{row['ms']:.2f} ({row['ms_min']:.2f}..{row['ms_max']:.2f})"
        table.add_row(row["case"], row["name"], spread, f"{row['times_sdpa']:.2f}")
    console.print(table)
