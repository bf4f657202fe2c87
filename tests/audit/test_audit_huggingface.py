"""The same architectures from another library, adapted by plain functions, pass the audit, and lose it when broken."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transformer.audit.model import AuditedModel, CachedDecoding, CausalLanguageModel, ResidualBlock, SequenceToSequence
from transformer.audit.run import audit

transformers = pytest.importorskip("transformers")
# Its newest releases call the argument `cache`, which older ones do not know.
pytestmark = pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated:FutureWarning")

LANGUAGE_MODEL = {"vocab_size": 40, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
TRANSLATION = {
    **LANGUAGE_MODEL,
    "d_model": 16, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 32, "decoder_start_token_id": 1,
    "forced_eos_token_id": None,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _float32() -> None:
    torch.set_default_dtype(torch.float32)  # tests/audit runs under float64, and puts it back


def positions(mask: Tensor) -> Tensor:
    return (mask.long().cumsum(1) - 1).clamp_min(0)


def start(module: Any, _source: object, _mask: object, _rows: int) -> tuple[Any, Tensor | None]:
    return transformers.DynamicCache(config=module.config), None


def step(module: Any, state: tuple[Any, Tensor | None], new: Tensor, mask: Tensor) -> tuple[Tensor, Any]:
    cache, before = state
    real = mask if before is None else torch.cat([before, mask], dim=1)
    places = positions(real)[:, -new.shape[1] :]
    output = module(new, attention_mask=real.long(), position_ids=places, past_key_values=cache, use_cache=True)
    return output.logits, (cache, real)


def select(_module: Any, state: tuple[Any, Tensor], rows: Tensor) -> tuple[Any, Tensor]:
    state[0].reorder_cache(rows)
    return state[0], state[1][rows]


def language_model(kind: str, config: Any, blocks: Any, tied: tuple[tuple[str, ...], ...]) -> CausalLanguageModel:
    make = getattr(transformers, kind)
    torch.manual_seed(0)
    return CausalLanguageModel(
        make(config),
        vocab_size=40,
        max_length=32,
        call=lambda module, ids: module(ids, attention_mask=torch.ones_like(ids)).logits,
        masked_call=lambda module, ids, mask: (
            module(ids, attention_mask=mask.long(), position_ids=positions(mask)).logits
        ),
        loss_call=lambda module, ids, scored: module(ids, labels=ids.masked_fill(~scored, -100)).loss,
        cache=CachedDecoding(start, step, select),
        residuals=blocks,
        tied=tied,
        build=lambda: make(config),
        fresh=True,
    )


def gpt2() -> CausalLanguageModel:
    config = transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, n_positions=32, **LANGUAGE_MODEL)

    def blocks(module: Any) -> list[ResidualBlock]:
        return [
            ResidualBlock(f"h.{n}", layer, [*layer.attn.c_proj.parameters(), *layer.mlp.c_proj.parameters()])
            for n, layer in enumerate(module.transformer.h)
        ]

    return language_model("GPT2LMHeadModel", config, blocks, (("transformer.wte.weight", "lm_head.weight"),))


def llama() -> CausalLanguageModel:
    config = transformers.LlamaConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        max_position_embeddings=32, **LANGUAGE_MODEL,
    )  # fmt: skip

    def blocks(module: Any) -> list[ResidualBlock]:
        return [
            ResidualBlock(f"layers.{n}", layer, [layer.self_attn.o_proj.weight, layer.mlp.down_proj.weight])
            for n, layer in enumerate(module.model.layers)
        ]

    return language_model("LlamaForCausalLM", config, blocks, ())


def post_norm(layer: Any, names: list[str]) -> Any:
    norms = [getattr(layer, name) for name in names]
    return nn.Sequential(*norms)


def translation_blocks(module: Any) -> list[ResidualBlock]:
    found = []
    for side, names in (
        ("encoder", ["self_attn_layer_norm", "final_layer_norm"]),
        ("decoder", ["self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"]),
    ):
        for n, layer in enumerate(getattr(module.model, side).layers):
            parts = [layer.self_attn.out_proj, layer.fc2]
            if side == "decoder":
                parts.append(layer.encoder_attn.out_proj)
            outputs = [parameter for part in parts for parameter in part.parameters()]
            found.append(ResidualBlock(f"{side}.{n}", layer, outputs, post_norm(layer, names)))
    return found


def start_translation(module: Any, source: Tensor, mask: Tensor, _rows: int) -> tuple[Any, Tensor, Any]:
    encoded = module.model.encoder(source, attention_mask=mask.long())
    cache = transformers.EncoderDecoderCache(transformers.DynamicCache(), transformers.DynamicCache())
    return cache, mask, encoded


def step_translation(
    module: Any, state: tuple[Any, Tensor, Any], new: Tensor, _mask: Tensor
) -> tuple[Tensor, tuple[Any, Tensor, Any]]:
    cache, mask, encoded = state
    source = {"encoder_outputs": encoded, "attention_mask": mask.long()}
    output = module(**source, decoder_input_ids=new, past_key_values=cache, use_cache=True)
    return output.logits, state


def translation_model(kind: str, config: Any) -> SequenceToSequence:
    make = getattr(transformers, kind)
    torch.manual_seed(0)
    return SequenceToSequence(
        make(config),
        vocab_size=40,
        max_length=32,
        call=lambda module, source, source_mask, target, _: (
            module(source, attention_mask=source_mask.long(), decoder_input_ids=target).logits
        ),
        pads_source=("right",),  # positions count padding
        memory=lambda module: module.model.encoder,
        loss_call=lambda module, source, source_mask, ids, scored: (
            module(
                source,
                attention_mask=source_mask.long(),
                decoder_input_ids=ids[:, :-1],
                labels=ids[:, 1:].masked_fill(~scored[:, 1:], -100),
            ).loss
        ),
        cache=CachedDecoding(start_translation, step_translation),
        residuals=translation_blocks,
        has_dropout=True,  # functional
        build=lambda: make(config),
        fresh=True,
    )


def marian() -> SequenceToSequence:
    return translation_model("MarianMTModel", transformers.MarianConfig(**TRANSLATION))


def bart() -> SequenceToSequence:
    return translation_model("BartForConditionalGeneration", transformers.BartConfig(**TRANSLATION))


MODELS = {"gpt2": gpt2, "llama": llama, "marian": marian, "bart": bart}
NOT_APPLICABLE = {
    "gpt2": {"source seen", "encoder leak", "source padded right", "source padded left"},
    "llama": {"source seen", "encoder leak", "source padded right", "source padded left", "dropout on", "weights tied"},
    "marian": {"source padded left", "target padded left", "cached, rows chosen", "weights tied"},
    "bart": {"source padded left", "target padded left", "cached, rows chosen", "weights tied"},
}


@pytest.mark.parametrize("name", MODELS)
def test_every_applicable_check_passes(name: str) -> None:
    model: AuditedModel = MODELS[name]()
    report = audit(model)
    assert [(row.name, row.sentence, row.measured) for row in report.failures] == []
    assert {row.name for row in report.rows if row.status == "not applicable"} == NOT_APPLICABLE[name]


def test_positions_that_count_padding_are_noticed() -> None:
    broken = dataclasses.replace(
        gpt2(), masked_call=lambda module, ids, mask: module(ids, attention_mask=mask.long()).logits
    )
    assert [row.name for row in audit(broken, quick=True).failures] == ["target padded left"]
