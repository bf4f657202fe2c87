"""Floating-point operations of a training step, by formula, and how many the device does in its matrix products.

A product of (R, I) and (I, O) matrices is 2 R I O operations. Training does each three times: once forward, and once
for the gradient of either factor. Attention counts all pairs of positions, also those that causality hides, as is the
custom (Chowdhery et al. 2022, appendix B). Norms, activations, softmax and the optimizer are not counted.
"""

import statistics
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch

from peers.machine import Precision, autocast, synchronize
from transformer.models.config import DecoderOnlyConfig, EncoderDecoderConfig

PASSES = 3  # forward, and backward for either factor
CALLS = {"cpu": 1, "cuda": 50}  # of a product between two looks at the clock: a GPU is fed while it works


class Product(NamedTuple):
    """A linear layer over a number of positions: (rows, inputs) times (inputs, outputs)."""

    rows: int
    inputs: int
    outputs: int

    @property
    def flops(self) -> int:
        """Of the forward product."""
        return 2 * self.rows * self.inputs * self.outputs


class Lengths(NamedTuple):
    """Positions of one example's source (0 for a language model) and target."""

    source: int
    target: int


Shapes = Counter[Product]
"""How often a step has each product, forward."""


def linear_products(config: EncoderDecoderConfig | DecoderOnlyConfig, vocab_size: int, total: Lengths) -> Shapes:
    """The linear layers of a step over so many positions in all.

    Projections that are made in one product (queries, keys and values; keys and values of the source) count as one.
    """
    width, inner = config.d_model, config.ff_width
    key_value = 2 * config.kv_heads * config.head_size
    shapes: Shapes = Counter()

    def layer(rows: int, count: int) -> None:
        shapes[Product(rows, width, width + key_value)] += count
        shapes[Product(rows, width, width)] += count
        shapes[Product(rows, width, 2 * inner if config.activation == "swiglu" else inner)] += count
        shapes[Product(rows, inner, width)] += count

    if isinstance(config, EncoderDecoderConfig):
        layer(total.source, config.num_encoder_layers)
        layer(total.target, config.num_decoder_layers)
        shapes[Product(total.source, width, key_value)] += config.num_decoder_layers
        shapes[Product(total.target, width, width)] += 2 * config.num_decoder_layers
    else:
        layer(total.target, config.num_layers)
    shapes[Product(total.target, width, vocab_size)] += 1
    return shapes


def attention_flops(config: EncoderDecoderConfig | DecoderOnlyConfig, examples: Iterable[Lengths]) -> int:
    """Scores and weighted sums of all layers, forward."""
    pairs = 0
    for source, target in examples:
        if isinstance(config, EncoderDecoderConfig):
            pairs += config.num_encoder_layers * source**2 + config.num_decoder_layers * target * (target + source)
        else:
            pairs += config.num_layers * target**2
    return 4 * pairs * config.d_model


def step_flops(config: EncoderDecoderConfig | DecoderOnlyConfig, vocab_size: int, examples: Sequence[Lengths]) -> int:
    """Of one training step on these examples, padding not counted: the work that the model asks for."""
    total = Lengths(sum(one.source for one in examples), sum(one.target for one in examples))
    linear = sum(product.flops * count for product, count in linear_products(config, vocab_size, total).items())
    return PASSES * (linear + attention_flops(config, examples))


def measured_flops(
    shapes: Shapes, device: torch.device, precision: Precision, *, repeats: int = 3, generator_seed: int = 0
) -> float:
    """Operations per second of these products alone, forward and both backward, each at its median time.

    On a GPU many products follow each other before it is waited for; otherwise launches and waits would be measured.
    """
    calls = CALLS[device.type]
    generator = torch.Generator(device).manual_seed(generator_seed)
    flops, seconds = 0, 0.0
    dtype = torch.bfloat16 if precision == Precision.BF16 else torch.float32
    with torch.no_grad(), autocast(device, precision):
        for (rows, inputs, outputs), count in shapes.items():
            x, weight, grad = (
                torch.randn(size, device=device, generator=generator).to(dtype)
                for size in ((rows, inputs), (outputs, inputs), (rows, outputs))
            )
            for one, other in ((x, weight.T), (grad, weight), (grad.T, x)):
                times = []
                for repeat in range(repeats + 1):
                    synchronize(device)
                    start = time.perf_counter()
                    for _ in range(calls):
                        one @ other
                    synchronize(device)
                    if repeat > 0:
                        times.append((time.perf_counter() - start) / calls)
                seconds += count * statistics.median(times)
                flops += count * Product(rows, inputs, outputs).flops
    return flops / seconds
