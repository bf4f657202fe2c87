"""Our models as models of Hugging Face's `transformers`, with the same weights, and their `generate`.

Fan et al. 2020 (M2M100) is the Pre-Norm encoder-decoder there: a final norm on both sides, positions from a table.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel, M2M100Config, M2M100ForConditionalGeneration

from peers.settings import LAYERS, Continue, Forced, Task, Translate, batches, check_settings, position_table
from transformer.bundle import load_bundle
from transformer.data.batches.collate import pad
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.nn.config import ActivationName
from transformer.nn.layers import TransformerLayer

Model = TypeVar("Model", bound=nn.Module)
ACTIVATIONS: dict[ActivationName, str] = {"relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh"}


def sizes(model: EncoderDecoder) -> dict[str, Any]:
    """What the configurations of their translation models have in common."""
    config = model.config
    return {
        "vocab_size": model.vocab_size,
        "max_position_embeddings": config.max_length,
        "encoder_layers": config.num_encoder_layers,
        "decoder_layers": config.num_decoder_layers,
        "encoder_ffn_dim": config.ff_width,
        "decoder_ffn_dim": config.ff_width,
        "encoder_attention_heads": config.num_heads,
        "decoder_attention_heads": config.num_heads,
        "d_model": config.d_model,
        "activation_function": ACTIVATIONS[config.activation],
        "scale_embedding": config.scale_embeddings,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
    }


def to_m2m100(model: EncoderDecoder, *, pad_id: int, bos_id: int, eos_id: int) -> M2M100ForConditionalGeneration:
    """The same translation model, in evaluation mode.

    Raises:
        ValueError: for settings that M2M100 does not have.
    """
    config = model.config
    check_settings(config, LAYERS | {"tie_embeddings": ("all",)}, "Hugging Face's M2M100")
    tables = position_table(model.source_position), position_table(model.target_position)
    theirs = M2M100ForConditionalGeneration(
        M2M100Config(
            **sizes(model),
            encoder_layerdrop=0.0,
            decoder_layerdrop=0.0,
            pad_token_id=pad_id,
            bos_token_id=bos_id,
            eos_token_id=eos_id,
            decoder_start_token_id=bos_id,
        )
    ).eval()
    weights = {"shared.weight": model.target_embedding.weight}
    weights |= named("encoder.layer_norm", model.encoder_norm) | named("decoder.layer_norm", model.decoder_norm)
    for side, layers in (("encoder", model.encoder_layers), ("decoder", model.decoder_layers)):
        for number, layer in enumerate(layers):
            weights |= translation_layer(f"{side}.layers.{number}", layer)
    _load(theirs.model, weights, {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"})
    for part, table_LD in zip((theirs.model.encoder, theirs.model.decoder), tables, strict=True):
        # Positions count from the padding token's id + 1 there. With a row less, they would make a table of their own.
        part.embed_positions.weights = torch.cat([table_LD.new_zeros(pad_id + 1, config.d_model), table_LD])
    return _with_epsilon(theirs, config.norm_eps)


def to_gpt2(model: DecoderOnly) -> GPT2LMHeadModel:
    """The same language model, in evaluation mode.

    Raises:
        ValueError: for settings that GPT-2 does not have.
    """
    config = model.config
    others = {"position": ("learned",), "scale_embeddings": (False,), "sliding_window": (None,),
              "tie_embeddings": (True,)}  # fmt: skip
    check_settings(config, LAYERS | others, "Hugging Face's GPT-2")
    theirs = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=model.vocab_size,
            n_positions=config.max_length,
            n_embd=config.d_model,
            n_layer=config.num_layers,
            n_head=config.num_heads,
            n_inner=config.ff_width,
            activation_function=ACTIVATIONS[config.activation],
            resid_pdrop=config.dropout,
            embd_pdrop=config.dropout,
            attn_pdrop=config.attention_dropout,
            bos_token_id=None,
            eos_token_id=None,
        )
    ).eval()
    weights = {"wte.weight": model.embedding.weight, "wpe.weight": position_table(model.position)}
    weights |= named("ln_f", model.norm)
    for number, layer in enumerate(model.layers):
        name = f"h.{number}"
        weights |= named(f"{name}.ln_1", layer.self_residual.norm)
        weights |= named(f"{name}.attn.c_attn", layer.self_attention.query_key_value, transposed=True)
        weights |= named(f"{name}.attn.c_proj", layer.self_attention.output, transposed=True)
        weights |= named(f"{name}.ln_2", layer.feed_forward_residual.norm)
        weights |= named(f"{name}.mlp.c_fc", layer.feed_forward.inner, transposed=True)
        weights |= named(f"{name}.mlp.c_proj", layer.feed_forward.outer, transposed=True)
    _load(theirs.transformer, weights, set())
    return _with_epsilon(theirs, config.norm_eps)


@torch.inference_mode()
def deviation(model: M2M100ForConditionalGeneration, forced: Forced) -> float:
    """Greatest difference of their logits from ours."""
    output = model(
        input_ids=forced.source_BS,
        attention_mask=forced.source_mask_BS.long(),
        decoder_input_ids=forced.target_BT,
    )
    return float((output.logits - forced.logits_BTV)[forced.target_mask_BT].abs().max())


def load_translating(folder: Path) -> Translate:
    """Their search with their own stopping rule, with the weights of a bundle."""
    bundle = load_bundle(folder)
    assert isinstance(bundle.model, EncoderDecoder)
    tokenizer = bundle.target_tokenizer
    return translating(
        to_m2m100(bundle.model, pad_id=tokenizer.pad_id, bos_id=tokenizer.bos_id, eos_id=tokenizer.eos_id)
    )


def translating(model: M2M100ForConditionalGeneration) -> Translate:
    """The same with a model at hand."""
    pad_id, bos_id, eos_id = model.config.pad_token_id, model.config.bos_token_id, model.config.eos_token_id

    def translate(sources: Sequence[Sequence[int]], task: Task) -> list[list[int]]:
        outputs = []
        with torch.inference_mode():
            for batch in batches(sources, task.batch):
                settings = GenerationConfig(
                    num_beams=task.beam,
                    do_sample=False,
                    length_penalty=1.0,
                    max_new_tokens=task.limit(batch),
                    min_new_tokens=task.min_tokens,
                    pad_token_id=pad_id,
                    bos_token_id=bos_id,
                    eos_token_id=eos_id,
                    decoder_start_token_id=bos_id,
                )
                source_BS, mask_BS = pad(batch, pad_id)
                rows = model.generate(source_BS, attention_mask=mask_BS.long(), generation_config=settings).tolist()
                outputs += [[token for token in row if token not in (pad_id, bos_id, eos_id)] for row in rows]
        return outputs

    return translate


def continuing(model: GPT2LMHeadModel, eos_id: int) -> Continue:
    """Their greedy search with cached keys and values; it does not end before it has as many tokens as asked for."""

    def go_on(prompts: Sequence[Sequence[int]], num_tokens: int) -> list[list[int]]:
        settings = GenerationConfig(
            do_sample=False,
            max_new_tokens=num_tokens,
            min_new_tokens=num_tokens,
            pad_token_id=eos_id,
            eos_token_id=eos_id,
        )
        prompt_BL = torch.tensor(prompts)
        with torch.inference_mode():
            rows_BL = model.generate(prompt_BL, attention_mask=torch.ones_like(prompt_BL), generation_config=settings)
        return rows_BL[:, prompt_BL.shape[1] :].tolist()

    return go_on


def translation_layer(name: str, layer: TransformerLayer) -> dict[str, Tensor]:
    """The weights of one layer of M2M100 or Marian under their names."""
    own = f"{name}.self_attn"
    weights = _split([f"{own}.{part}_proj" for part in "qkv"], layer.self_attention.query_key_value)
    weights |= named(f"{own}.out_proj", layer.self_attention.output)
    weights |= named(f"{own}_layer_norm", layer.self_residual.norm)
    if layer.cross_attention is not None:
        cross = f"{name}.encoder_attn"
        weights |= named(f"{cross}.q_proj", layer.cross_attention.query)
        weights |= _split([f"{cross}.{part}_proj" for part in "kv"], layer.cross_attention.key_value)
        weights |= named(f"{cross}.out_proj", layer.cross_attention.output)
        weights |= named(f"{cross}_layer_norm", layer.cross_residual.norm)
    weights |= named(f"{name}.fc1", layer.feed_forward.inner) | named(f"{name}.fc2", layer.feed_forward.outer)
    return weights | named(f"{name}.final_layer_norm", layer.feed_forward_residual.norm)


def named(name: str, module: nn.Module, *, transposed: bool = False) -> dict[str, Tensor]:
    """Weight and bias of a module under their name."""
    weight: Tensor = module.weight
    return {f"{name}.weight": weight.T if transposed else weight, f"{name}.bias": module.bias}


def _split(names: Sequence[str], fused: nn.Linear) -> dict[str, Tensor]:
    """The parts of one of our fused projections under names of their own."""
    weights, biases = fused.weight.chunk(len(names)), fused.bias.chunk(len(names))
    parts = {}
    for name, weight, bias in zip(names, weights, biases, strict=True):
        parts |= {f"{name}.weight": weight, f"{name}.bias": bias}
    return parts


def _load(theirs: nn.Module, weights: dict[str, Tensor], tied: set[str]) -> None:
    missing, unexpected = theirs.load_state_dict(weights, strict=False)
    assert not unexpected, f"they have no {unexpected}"
    assert set(missing) == tied, f"nothing was found for {missing}"


def _with_epsilon(model: Model, epsilon: float) -> Model:
    """Theirs is written into the code."""
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = epsilon
    return model
