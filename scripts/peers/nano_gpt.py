"""A training loop of nanoGPT's kind on plain torch, written for these comparisons: its model, its optimizer, its steps.

As there: LayerNorm without bias, exact GELU, causal `scaled_dot_product_attention`, no biases, tied embeddings, AdamW
with weight decay on matrices and embeddings, windows cut at random from a file of 16-bit ids that is mapped anew for
every batch, gradients clipped to norm 1. On a CPU it waits for the loss in every step, which it writes to its log; on a
GPU it does so in every tenth, compiles the whole model and allows TF32 in float32 products.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from peers.laps import CLIP, Amount, Check, Lap, Trained
from peers.machine import Memory, Precision, autocast, forget_peak, peak, synchronize, taken
from peers.settings import position_table
from transformer.models.decoder_only import DecoderOnly


class Shipped(NamedTuple):
    """What its own files tell a training: whether to compile and to allow TF32, steps between two log entries."""

    compile: bool
    tf32: bool
    log_interval: int


SHIPPED = {"cpu": Shipped(compile=False, tf32=False, log_interval=1),
           "cuda": Shipped(compile=True, tf32=True, log_interval=10)}  # fmt: skip


class Block(nn.Module):
    """Attention and feed-forward, each added to what comes in after a norm."""

    def __init__(self, width: int, heads: int, inner: int, dropout: float) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm_1, self.norm_2 = (nn.LayerNorm(width, bias=False) for _ in range(2))
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)
        self.inner, self.outer = nn.Linear(width, inner, bias=False), nn.Linear(inner, width, bias=False)
        self.drop = nn.Dropout(dropout)

    def forward(self, x_BLD: Tensor) -> Tensor:
        batch, length, width = x_BLD.shape
        parts = self.query_key_value(self.norm_1(x_BLD)).split(width, dim=2)
        heads = [part.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for part in parts]
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(*heads, dropout_p=dropout, is_causal=True)
        x_BLD = x_BLD + self.drop(self.output(mixed.transpose(1, 2).contiguous().view(batch, length, width)))
        return x_BLD + self.drop(self.outer(F.gelu(self.inner(self.norm_2(x_BLD)))))


class NanoGpt(nn.Module):
    """The model, with the weights of ours (GPT-2's design without biases)."""

    def __init__(self, like: DecoderOnly) -> None:
        super().__init__()
        config = like.config
        assert not config.bias
        assert config.activation == "gelu"
        self.tokens = nn.Embedding(like.vocab_size, config.d_model)
        self.positions = nn.Embedding(config.max_length, config.d_model)
        self.drop = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(
            Block(config.d_model, config.num_heads, config.ff_width, config.dropout) for _ in range(config.num_layers)
        )
        self.norm = nn.LayerNorm(config.d_model, bias=False)
        self.head = nn.Linear(config.d_model, like.vocab_size, bias=False)
        self.head.weight = self.tokens.weight
        self._take(like)

    def forward(self, tokens_BL: Tensor, labels_BL: Tensor) -> Tensor:
        """Mean loss of the labels."""
        positions = torch.arange(tokens_BL.shape[1], device=tokens_BL.device)
        x_BLD = self.drop(self.tokens(tokens_BL) + self.positions(positions))
        for block in self.blocks:
            x_BLD = block(x_BLD)
        logits_BLV = self.head(self.norm(x_BLD))
        return F.cross_entropy(logits_BLV.view(-1, logits_BLV.shape[-1]), labels_BL.view(-1), ignore_index=-1)

    def optimizer(self, *, fused: bool) -> torch.optim.AdamW:
        """Weight decay for everything with two axes. Fused on a GPU only, as shipped."""
        groups = [
            {"params": [p for p in self.parameters() if p.dim() >= 2], "weight_decay": 0.1},
            {"params": [p for p in self.parameters() if p.dim() < 2], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.99), fused=fused)

    @torch.no_grad()
    def _take(self, like: DecoderOnly) -> None:
        self.tokens.weight.copy_(like.embedding.weight)
        self.positions.weight.copy_(position_table(like.position))
        self.norm.load_state_dict(like.norm.state_dict())
        for block, layer in zip(self.blocks, like.layers, strict=True):
            for mine, ours in (
                (block.norm_1, layer.self_residual.norm),
                (block.norm_2, layer.feed_forward_residual.norm),
                (block.query_key_value, layer.self_attention.query_key_value),
                (block.output, layer.self_attention.output),
                (block.inner, layer.feed_forward.inner),
                (block.outer, layer.feed_forward.outer),
            ):
                mine.load_state_dict(ours.state_dict())


class ShippedLoop:
    """Its training loop as it is shipped, with its own random windows.

    Args:
        model: what to train.
        ids: a file of 16-bit ids.
        rows, length: of a batch.
        device, precision: of the steps.
        check: the answer to None.
        rate: the learning rate of each update, counted from 0.
    """

    def __init__(
        self,
        model: NanoGpt,
        ids: Path,
        rows: int,
        length: int,
        device: torch.device,
        precision: Precision,
        check: Check | None,
        rate: Callable[[int], float] = lambda update: 1e-3,
    ) -> None:
        self.rate, self.shipped = rate, SHIPPED[device.type]
        self.model, self.ids, self.rows, self.length = model.to(device).train(), ids, rows, length
        self.device, self.precision, self.check = device, precision, check
        self.optimizer = self.model.optimizer(fused=device.type == "cuda")
        self.log: list[float] = []
        self.updates = 0
        if self.shipped.tf32:
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        self.loss = torch.compile(self.model) if self.shipped.compile else self.model

    def __call__(self, lap: Lap | None) -> Trained | Check | None:
        """See :data:`peers.laps.Contestant`."""
        if lap is None:
            return self.check
        before = taken(self.device)
        forget_peak(self.device)
        tokens_BL, labels_BL = self.batch()
        synchronize(self.device)
        start = time.perf_counter()
        for _ in range(lap.steps):
            for group in self.optimizer.param_groups:
                group["lr"] = self.rate(self.updates)
            with autocast(self.device, self.precision):
                loss = self.loss(tokens_BL, labels_BL)
            tokens_BL, labels_BL = self.batch()  # while a GPU is busy
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            if self.updates % self.shipped.log_interval == 0:
                self.log.append(loss.item())  # waits for the device
            self.updates += 1
        synchronize(self.device)
        seconds = time.perf_counter() - start
        tokens = lap.steps * self.rows * self.length
        return Trained(seconds, Amount(0, 0, tokens, tokens), Memory(before, peak(self.device)))

    def batch(self) -> tuple[Tensor, Tensor]:
        """Random windows, and the same one further."""
        data = np.memmap(self.ids, dtype=np.uint16, mode="r")
        starts = torch.randint(len(data) - self.length, (self.rows,)).tolist()
        tokens, labels = (
            torch.stack(
                [torch.from_numpy(data[at + ahead : at + ahead + self.length].astype(np.int64)) for at in starts]
            )
            for ahead in (0, 1)
        )
        if self.device.type == "cuda":
            tokens, labels = tokens.pin_memory(), labels.pin_memory()
        return tokens.to(self.device, non_blocking=True), labels.to(self.device, non_blocking=True)
