"""Memory of a search over one long source: every variant in a process of its own, whose peak Linux tells."""

import os
import re
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, assert_never

import torch
import typer

from peers.machine import LIVE_MEMORY
from transformer.decoding.config import BeamConfig
from transformer.decoding.interface import Request
from transformer.decoding.search import search
from transformer.models.config import EncoderDecoderConfig
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.models.stepping import TranslationSteps

VOCABULARY, BOS, EOS = 8000, 1, 2
STATUS = Path("/proc/self/status")


class Variant(StrEnum):
    """What the process does once the source is encoded."""

    NOTHING = "nothing"
    SEARCH = "search"
    COPIES = "copies"


def decode_memory(
    source_tokens: Annotated[int, typer.Option(min=1, help="Length of the only source.")] = 2000,
    beam: Annotated[int, typer.Option(min=2, help="Beginnings kept.")] = 20,
    new_tokens: Annotated[int, typer.Option(min=1, help="Of the output, exactly.")] = 50,
) -> None:
    """Peak memory of a beam over one long source, beside what a copy of the source for each beginning would take.

    A fresh model of random weights: width 256, three layers on either side.
    """
    if not STATUS.exists():
        raise typer.BadParameter("peak memory is read from /proc, which only Linux has.")
    config = architecture(source_tokens, new_tokens)
    one_copy = 2 * config.num_decoder_layers * source_tokens * config.d_model * torch.finfo(torch.float32).bits // 8
    copies = f"{beam} copies of the source's keys and values, without a search"
    peaks = {
        "nothing more": peaks_of(Variant.NOTHING, source_tokens, 1, new_tokens),
        "beam 1": peaks_of(Variant.SEARCH, source_tokens, 1, new_tokens),
        f"beam {beam}": peaks_of(Variant.SEARCH, source_tokens, beam, new_tokens),
        copies: peaks_of(Variant.COPIES, source_tokens, beam, new_tokens),
    }
    during, base = peaks["nothing more"]
    print(f"one source of {source_tokens} tokens, {new_tokens} new tokens")
    print(f"peak while it is encoded: {during / 1e6:.0f} MB")
    for name, (_, size) in peaks.items():
        print(f"peak afterwards, {name}: {size / 1e6:.0f} MB ({(size - base) / 1e6:+.0f} MB)")
    print(f"keys and values of the source in all layers: {one_copy / 1e6:.1f} MB; "
          f"a copy for each of {beam}: {beam * one_copy / 1e6:.0f} MB")  # fmt: skip


def architecture(source_tokens: int, new_tokens: int) -> EncoderDecoderConfig:
    """The model, with room for the source and the output."""
    return EncoderDecoderConfig(
        name="encoder_decoder",
        num_encoder_layers=3,
        num_decoder_layers=3,
        d_model=256,
        num_heads=4,
        max_length=max(2048, source_tokens, new_tokens),
    )


def peaks_of(variant: Variant, source_tokens: int, beam: int, new_tokens: int) -> tuple[int, int]:
    """Bytes at the peaks of a fresh process: while it encodes, and after that, when it does what the variant says."""
    arguments = [variant, *map(str, (source_tokens, beam, new_tokens))]
    command = [sys.executable, __file__, *arguments]
    environment = os.environ | LIVE_MEMORY
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    during, after = done.stdout.split()
    return int(during), int(after)


@torch.inference_mode()
def run(variant: Variant, source_tokens: int, beam: int, new_tokens: int) -> tuple[int, int]:
    """Do it in this process; its peaks in bytes."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    config = architecture(source_tokens, new_tokens)
    model = EncoderDecoder(config, VOCABULARY, VOCABULARY).eval()
    source_BS = torch.randint(EOS + 1, VOCABULARY, (1, source_tokens))
    steps = TranslationSteps(model, source_BS, torch.ones_like(source_BS, dtype=torch.bool), BOS)
    during = peak()
    forget_peak()
    match variant:
        case Variant.NOTHING:
            pass
        case Variant.SEARCH:
            beams = BeamConfig(name="beam", size=beam)
            search(steps, beams, [Request(limit=new_tokens, minimum=new_tokens)], eos_id=EOS)
        case Variant.COPIES:
            size = 2 * config.num_decoder_layers, beam, source_tokens, config.d_model
            torch.ones(size)  # written to: memory that is only asked for takes none
        case _:
            assert_never(variant)
    return during, peak()


def peak() -> int:
    """Bytes of memory that this process had at most.

    Not `ru_maxrss`: a new process starts with that of the one that started it.
    """
    found = re.search(r"^VmHWM:\s*(\d+) kB$", STATUS.read_text(encoding="ascii"), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def forget_peak() -> None:
    """Begin anew: otherwise a higher peak from before hides what comes."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


if __name__ == "__main__":
    name, *numbers = sys.argv[1:]
    print(*run(Variant(name), *map(int, numbers)))
