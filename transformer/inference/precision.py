"""The number format a model computes in: a matter of speed and memory, at a price in precision."""

import copy
import platform
from typing import Literal, TypeVar, assert_never

import torch
from torch import nn

from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.nn.bfloat16 import computes_bf16
from transformer.nn.int8_linear import FloatOutput, Int8Linear, input_levels
from transformer.nn.norm import HeadNorm

Precision = Literal["float32", "bf16", "int8"]

MIN_WEIGHTS = 131_072
"""Smaller matrices stay float32 in int8: there the product can save little, and rounding its inputs costs no less."""

ModelT = TypeVar("ModelT", EncoderDecoder, DecoderOnly)


def set_precision(
    model: ModelT, precision: Precision, device: torch.device | str = "cpu", *, min_weights: int = MIN_WEIGHTS
) -> ModelT:
    """A model for inference in the given precision, on the device.

    ``float32`` is ``model`` itself, moved. Otherwise ``model`` stays as it is, where it is; a copy in int8 shares with
    it the weights that are not converted.

    ``bf16``: weights and activations are bfloat16, with 8 significant bits instead of 24. Norms and softmax compute in
    float32 inside, position tables stay float32, and logits come as float32. The order of a sum may depend on the shape
    of a product: in bf16 the rounding of a line's scores, and now and then its words, may change with its batch.

    ``int8``: linear layers, the output projection included, become :class:`Int8Linear`; embeddings (also one
    that is tied to the output projection), norms and attention stay float32. A line's result does not depend on
    its batch more than in float32. CPU only.

    Args:
        model: in float32.
        precision: the format.
        device: where the model is to run.
        min_weights: in int8, matrices with fewer weights stay float32.

    Raises:
        ValueError: the device does not compute in that precision, or not faster than in float32.
    """
    device = torch.device(device)
    match precision:
        case "float32":
            return model.to(device)
        case "bf16":
            if not computes_bf16(device):
                raise ValueError(f"{_named(device)} has no bf16 arithmetic; use {_others(device, precision)}.")
            return _in_bf16(model).to(device).eval()
        case "int8":
            levels = input_levels() if device.type == "cpu" else None
            if device.type != "cpu":
                raise ValueError(f"int8 runs on the CPU only, but the device is {device.type}; use bf16 or float32.")
            if levels is None:
                raise ValueError(f"{_named(device)} has no exact int8 arithmetic in torch; use float32.")
            return _in_int8(model, levels, min_weights).to(device).eval()
        case _:
            assert_never(precision)


def model_bytes(model: nn.Module) -> int:
    """Memory of a model's weights and tables, shared ones once."""
    tensors = {tensor.data_ptr(): tensor for tensor in [*model.parameters(), *model.buffers()]}
    return sum(tensor.nbytes for tensor in tensors.values())


def _in_bf16(model: ModelT) -> ModelT:
    converted = copy.deepcopy(model)
    for module in converted.modules():
        if isinstance(module, HeadNorm):  # computes in float32, and torch's kernel wants its gain in the same
            continue
        for parameter in module.parameters(recurse=False):
            parameter.data = parameter.data.to(torch.bfloat16)
    # Buffers are tables of positions: a rotary angle or a slope in bf16 would be wrong far from the start.
    output = converted.output
    with torch.device("meta"):
        converted.output = FloatOutput(output.in_features, output.out_features, bias=output.bias is not None)
    converted.output.weight = output.weight  # the same object: a tied one stays tied
    if output.bias is not None:
        converted.output.bias = output.bias
    return converted


def _in_int8(model: ModelT, levels: int, min_weights: int) -> ModelT:
    # A copy of the modules around the same parameters, unless those are elsewhere.
    here = [parameter for parameter in model.parameters() if parameter.device.type == "cpu"]
    converted = copy.deepcopy(model, {id(parameter): parameter for parameter in here})
    for module in list(converted.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and child.weight.numel() >= min_weights:
                setattr(module, name, Int8Linear.from_linear(child, levels))
    return converted


def _named(device: torch.device) -> str:
    if device.type == "cpu":
        return f"this processor ({platform.machine()})"
    return "this GPU" if device.type == "cuda" else f"the device {device.type}"


def _others(device: torch.device, precision: Precision) -> str:
    return "float32 or int8" if device.type == "cpu" and precision == "bf16" else "float32"
