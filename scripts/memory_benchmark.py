"""Peak memory of a training step over batch, length and vocabulary; the loss's share; each in a process of its own."""

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple, assert_never

import torch
import typer
from rich import box
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from peers.machine import (
    LIVE_MEMORY,
    DeviceName,
    Precision,
    autocast,
    describe,
    forget_peak,
    open_device,
    peak,
    taken,
)
from peers.versions import versions
from transformer.cli.console import one_line_errors
from transformer.data.batches.collate import TranslationBatch
from transformer.models.config import EncoderDecoderConfig
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.nn.loss import cross_entropy

SMOOTHING, PAD, BOS, EOS = 0.1, 0, 1, 2


class Who(StrEnum):
    """Whose step it is."""

    OURS = "ours"
    HUGGING_FACE = "Hugging Face M2M100"
    TORCH = "torch.nn.Transformer"


class Size(NamedTuple):
    """Rows and positions of a batch, on either side, and the vocabulary."""

    batch: int
    length: int
    vocab_size: int


def memory(
    size: Annotated[
        list[str] | None,
        typer.Option(help="BATCHxLENGTHxVOCABULARY; may be repeated.", show_default="several"),
    ] = None,
    d_model: Annotated[int, typer.Option(min=8, help="Width; the feed-forward has 4 times as much.")] = 256,
    layers: Annotated[int, typer.Option(min=1, help="On either side.")] = 3,
    precision: Annotated[list[Precision] | None, typer.Option(help="May be repeated.", show_default="both")] = None,
    device: Annotated[DeviceName, typer.Option(help="Whose memory.")] = DeviceName.CPU,
    peers: Annotated[bool, typer.Option(help="The peers too, where installed.")] = True,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all figures to this file.")] = None,
) -> None:
    """Memory that a training step takes at most beyond weights, optimizer and libraries, and how much of it the loss.

    The loss's share is what the same step takes less when it sums its last hidden states instead of predicting tokens.
    """
    with one_line_errors():
        hardware = open_device(device)
        console = Console(width=None if Console().is_terminal else 160)
        sizes = [parse(text) for text in size] if size else [
            Size(128, 32, 8000), Size(256, 32, 8000), Size(128, 64, 8000), Size(128, 32, 32000)
        ]  # fmt: skip
        chosen = [Who.OURS, *([Who.HUGGING_FACE, Who.TORCH] if peers else [])]
        if peers and not importlib.util.find_spec("transformers"):
            console.print("Hugging Face is not installed and left out; `make peers` installs it.")
            chosen.remove(Who.HUGGING_FACE)
        rows = []
        for one in sizes:
            for kind in precision or list(Precision):
                for who in chosen:
                    whole, without = (
                        peak_of(who, one, d_model, layers, kind, device, loss=loss) for loss in (True, False)
                    )
                    figures = {"peak_bytes": whole, "loss_bytes": max(0, whole - without)}
                    rows.append({"size": one._asdict(), "precision": kind, "name": who, **figures})
        show(console, f"a training step, width {d_model}, {layers}+{layers} layers, {describe(hardware)}", rows)
    if json_file is not None:
        settings = {"d_model": d_model, "layers": layers, "device": describe(hardware)}
        found = ["transformers"] if Who.HUGGING_FACE in chosen else []
        everything = {"settings": settings, "versions": versions(found), "figures": rows}
        json_file.write_text(json.dumps(everything, indent=2) + "\n", encoding="utf-8")


def parse(text: str) -> Size:
    """``128x32x8000``.

    Raises:
        ValueError: it is something else.
    """
    parts = text.split("x")
    if len(parts) != 3 or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ValueError(f"`--size` must be like 128x32x8000 (rows, positions, vocabulary), but is {text}.")
    return Size(*map(int, parts))


def peak_of(
    who: Who, size: Size, d_model: int, layers: int, precision: Precision, device: DeviceName, *, loss: bool
) -> int:
    """Bytes of a fresh process's second step, beyond what it took before.

    Freed memory is given back at once: otherwise the peak is also what the C library keeps for later, which is another
    share of what is in use for everybody.
    """
    numbers = [*size, d_model, layers]
    arguments = [who.value, precision.value, device.value, str(int(loss)), *map(str, numbers)]
    command = [sys.executable, __file__, *arguments]
    environment = os.environ | LIVE_MEMORY
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout)


def build(who: Who, model: EncoderDecoder, batch: TranslationBatch) -> tuple[nn.Module, Callable[[bool], Tensor]]:
    """A model, and its loss; or without one the sum of the hidden states that it would predict from."""
    match who:
        case Who.OURS:

            def ours(whole: bool) -> Tensor:
                memory_BSD = model.encode(batch.source_BS, batch.source_mask_BS).memory_BSD
                hidden_BTD = model.decode(batch.target_BT, memory_BSD, batch.source_mask_BS).hidden_BTD
                if not whole:
                    return hidden_BTD.float().sum()
                weight_VD, labels = model.output.weight, (batch.labels_BT, batch.scored_BT)
                sums = cross_entropy(hidden_BTD, weight_VD, *labels, label_smoothing=SMOOTHING)
                return sums.loss / sums.num_tokens

            return model, ours
        case Who.HUGGING_FACE:
            from peers.hugging_face import to_m2m100
            from peers.hugging_face_training import hugging_face_form
            from peers.stored import flat_loss

            theirs, form = to_m2m100(model, pad_id=PAD, bos_id=BOS, eos_id=EOS), hugging_face_form(batch)
            inputs = {"input_ids": form.input_ids, "attention_mask": form.attention_mask,
                      "decoder_input_ids": form.decoder_input_ids, "use_cache": False}  # fmt: skip

            def hugging_face(whole: bool) -> Tensor:
                if not whole:
                    return theirs.model(**inputs).last_hidden_state.float().sum()
                return flat_loss(theirs(**inputs).logits, form.labels, SMOOTHING)

            return theirs, hugging_face
        case Who.TORCH:
            from peers.torch_transformer import TorchTranslator, torch_form

            torch_model, torch_batch = TorchTranslator(model, everywhere=False), torch_form(batch)
            return (
                torch_model,
                lambda whole: (
                    torch_model.loss(torch_batch, SMOOTHING) if whole else torch_model.hidden(torch_batch).float().sum()
                ),
            )
        case _:
            assert_never(who)


def run(who: Who, size: Size, d_model: int, layers: int, precision: Precision, device: torch.device, *,
        loss: bool) -> int:  # fmt: skip
    """Two steps in this process; what the second took at most, in bytes."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = EncoderDecoderConfig(
        name="encoder_decoder",
        num_encoder_layers=layers,
        num_decoder_layers=layers,
        d_model=d_model,
        num_heads=4,
        max_length=size.length,
    )
    source, target, labels = torch.randint(EOS + 1, size.vocab_size, (3, size.batch, size.length)).to(device)
    real = torch.ones_like(source, dtype=torch.bool)
    batch = TranslationBatch(torch.arange(size.batch, device=device), source, real, target, labels, real)
    model = EncoderDecoder(config, size.vocab_size, size.vocab_size).to(device)
    model, value = build(who, model, batch)
    model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    for step in range(2):
        if step == 1:
            before = taken(device)
            forget_peak(device)
        with autocast(device, precision):
            result = value(loss)
        result.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return peak(device) - before


def show(console: Console, title: str, rows: Sequence[dict[str, Any]]) -> None:
    """A table in Markdown."""
    table = Table(box=box.MARKDOWN, title=title, title_justify="left")
    table.add_column("rows x positions x vocabulary")
    table.add_column("")
    for heading in ("precision", "peak MB", "of it the loss"):
        table.add_column(heading, justify="right")
    for row in rows:
        share = row["loss_bytes"] / row["peak_bytes"] if row["peak_bytes"] else 0.0
        size = " x ".join(map(str, row["size"].values()))
        loss = f"{row['loss_bytes'] / 1e6:,.0f} ({share:.0%})"
        table.add_row(size, row["name"], row["precision"], f"{row['peak_bytes'] / 1e6:,.0f}", loss)
    console.print(table)


if __name__ == "__main__":
    who_name, precision_name, device_name, whole, *counts = sys.argv[1:]
    *of_batch, width, depth = map(int, counts)
    print(run(Who(who_name), Size(*of_batch), width, depth, Precision(precision_name),
              open_device(DeviceName(device_name)), loss=whole == "1"))  # fmt: skip
