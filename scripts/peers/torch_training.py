"""`torch.nn.Transformer` in training, in a loop of one's own."""

from pathlib import Path

import torch

from peers.laps import Batches, Check, Loop, fused_adamw, given
from peers.machine import Precision
from peers.stored import expected_loss, load_batches, load_translating
from peers.torch_transformer import TorchTranslator, torch_form
from transformer.data.batches.collate import TranslationBatch


def translating(
    folder: Path, smoothing: float, device: torch.device, precision: Precision, batches: Batches | None
) -> Loop:
    """A loop over the given batches, or others of its own; these with dropout wherever `nn.Transformer` has it."""
    ours, stored = load_translating(folder), load_batches(folder, TranslationBatch)
    theirs = TorchTranslator(ours, everywhere=batches is not None).eval()
    forms = [torch_form(batch) for batch in stored]
    with torch.inference_mode():
        check = Check(float(theirs.loss(forms[0], smoothing)), expected_loss(ours, stored[0], smoothing))
    theirs.to(device).train()
    chosen = given(stored, forms) if batches is None else batches
    optimizer = fused_adamw(theirs, lr=1e-4)
    return Loop(theirs, lambda batch: theirs.loss(batch, smoothing), optimizer, chosen, device, precision, check)
