"""Our translation model as a model of CTranslate2 (Klein et al. 2020), with the same weights, and its search."""

from collections.abc import Sequence
from pathlib import Path

import ctranslate2
import torch
from ctranslate2.specs import common_spec, model_spec, transformer_spec
from torch import nn

from peers.settings import LAYERS, Forced, Task, Translate, check_settings, position_table
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.nn.config import ActivationName
from transformer.nn.layers import TransformerLayer

ACTIVATIONS: dict[ActivationName, common_spec.Activation] = {
    "relu": common_spec.Activation.RELU,
    "gelu": common_spec.Activation.GELU,
    "gelu_tanh": common_spec.Activation.GELUTanh,
}


def save_for_ctranslate(folder: Path, model: EncoderDecoder, *, bos_id: int, eos_id: int, unk_id: int) -> None:
    """Write the model. Its tokens are called by their ids, so that no text is cut or joined on the way.

    Raises:
        ValueError: for settings that CTranslate2's Transformer does not have, or that are left out here.
    """
    config = model.config
    check_settings(config, LAYERS, "CTranslate2")
    spec = transformer_spec.TransformerSpec.from_config(
        (config.num_encoder_layers, config.num_decoder_layers),
        config.num_heads,
        pre_norm=True,
        activation=ACTIVATIONS[config.activation],
    )
    for theirs, layers, norm, embedding, position in (
        (spec.encoder, model.encoder_layers, model.encoder_norm, model.source_embedding, model.source_position),
        (spec.decoder, model.decoder_layers, model.decoder_norm, model.target_embedding, model.target_position),
    ):
        embeddings = theirs.embeddings[0] if theirs is spec.encoder else theirs.embeddings
        embeddings.weight = embedding.weight.detach().numpy()
        theirs.scale_embeddings = config.scale_embeddings
        theirs.position_encodings.encodings = position_table(position).numpy()
        _set_norm(theirs.layer_norm, norm)
        for their_layer, layer in zip(theirs.layer, layers, strict=True):
            _set_layer(their_layer, layer)
    spec.decoder.projection.weight = model.output.weight.detach().numpy()
    spec.register_source_vocabulary([str(index) for index in range(model.source_embedding.num_embeddings)])
    spec.register_target_vocabulary([str(index) for index in range(model.vocab_size)])
    spec.config.bos_token = spec.config.decoder_start_token = str(bos_id)
    spec.config.eos_token, spec.config.unk_token = str(eos_id), str(unk_id)
    spec.config.layer_norm_epsilon = config.norm_eps
    spec.validate()
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(str(folder))


def deviation(folder: Path, forced: Forced, eos_id: int) -> float:
    """Greatest difference of its log probabilities of the target tokens, the end tokens included, from ours."""
    translator = ctranslate2.Translator(str(folder), compute_type="float32")
    targets = [row[mask].tolist()[1:] for row, mask in zip(forced.target_BT, forced.target_mask_BT, strict=True)]
    sources = [row[mask].tolist() for row, mask in zip(forced.source_BS, forced.source_mask_BS, strict=True)]
    scores = translator.score_batch(named(sources), named(targets), max_input_length=0)
    log_probabilities_BTV = forced.logits_BTV.log_softmax(-1)
    greatest = 0.0
    for target, score, log_probabilities_TV in zip(targets, scores, log_probabilities_BTV, strict=True):
        labels_T = torch.tensor([*target, eos_id])
        ours_T = log_probabilities_TV[: len(labels_T)].gather(1, labels_T[:, None])[:, 0]
        greatest = max(greatest, float((torch.tensor(score.log_probs) - ours_T).abs().max()))
    return greatest


def load_translating(folder: Path, kind: str, threads: int) -> Translate:
    """Its search with its own stopping rule; ids become the names of its tokens, and those ids, within microseconds."""
    translator = ctranslate2.Translator(str(folder), compute_type=kind, inter_threads=1, intra_threads=threads)

    def translate(sources: Sequence[Sequence[int]], task: Task) -> list[list[int]]:
        results = translator.translate_batch(
            named(sources),
            beam_size=task.beam,
            length_penalty=1.0,
            max_batch_size=task.batch,
            max_input_length=0,  # nothing is cut
            max_decoding_length=task.limit(sources),
            min_decoding_length=task.min_tokens,
        )
        return [[int(token) for token in result.hypotheses[0]] for result in results]

    return translate


def named(rows: Sequence[Sequence[int]]) -> list[list[str]]:
    """The tokens' names in the saved model."""
    return [[str(index) for index in row] for row in rows]


def _set_layer(theirs: model_spec.LayerSpec, layer: TransformerLayer) -> None:
    attention, cross = layer.self_attention, layer.cross_attention
    _set_norm(theirs.self_attention.layer_norm, layer.self_residual.norm)
    _set_linear(theirs.self_attention.linear[0], attention.query_key_value)  # fused there as well
    _set_linear(theirs.self_attention.linear[1], attention.output)
    if cross is not None:
        _set_norm(theirs.attention.layer_norm, layer.cross_residual.norm)
        for linear, ours in zip(theirs.attention.linear, (cross.query, cross.key_value, cross.output), strict=True):
            _set_linear(linear, ours)
    _set_norm(theirs.ffn.layer_norm, layer.feed_forward_residual.norm)
    _set_linear(theirs.ffn.linear_0, layer.feed_forward.inner)
    _set_linear(theirs.ffn.linear_1, layer.feed_forward.outer)


def _set_linear(theirs: common_spec.LinearSpec, linear: nn.Linear) -> None:
    theirs.weight, theirs.bias = linear.weight.detach().numpy(), linear.bias.detach().numpy()


def _set_norm(theirs: common_spec.LayerNormSpec, norm: nn.Module) -> None:
    theirs.gamma, theirs.beta = norm.weight.detach().numpy(), norm.bias.detach().numpy()
