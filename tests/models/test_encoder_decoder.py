"""The encoder-decoder as a whole."""

import math

import pytest
import torch

from transformer.models.config import EncoderDecoderConfig
from transformer.models.encoder_decoder import EncoderDecoder

SOURCE_VOCAB, TARGET_VOCAB = 13, 11
POSITIONS = pytest.mark.parametrize("position", ["sinusoidal", "learned", "rotary", "alibi", "none"])


def _model(**changes) -> EncoderDecoder:
    torch.manual_seed(0)
    settings = {"d_model": 12, "num_heads": 3, "max_length": 16, "tie_embeddings": "none", "dropout": 0.0} | changes
    config = EncoderDecoderConfig(name="encoder_decoder", num_encoder_layers=2, num_decoder_layers=3, **settings)
    return EncoderDecoder(config, SOURCE_VOCAB, TARGET_VOCAB).double().eval()


def _ids(vocab_size: int, length: int, batch: int = 2) -> torch.Tensor:
    return torch.randint(vocab_size, (batch, length), generator=torch.Generator().manual_seed(length))


def test_shapes_with_unequal_lengths_and_vocabularies():
    model, source, target = _model(num_kv_heads=1), _ids(SOURCE_VOCAB, 8), _ids(TARGET_VOCAB, 5)
    assert model(source, target).shape == (2, 5, TARGET_VOCAB)
    encoded = model.encode(source, backend="explicit")
    assert encoded.memory_BSD.shape == (2, 8, 12)
    assert [weights.shape for weights in encoded.weights] == [(2, 3, 8, 8)] * 2
    decoded = model.decode(target, encoded.memory_BSD, backend="explicit")
    assert decoded.hidden_BTD.shape == (2, 5, 12)
    assert [weights.shape for weights in decoded.self_weights] == [(2, 3, 5, 5)] * 3
    assert [weights.shape for weights in decoded.cross_weights] == [(2, 3, 5, 8)] * 3
    logits = decoded.hidden_BTD @ model.output.weight.T
    assert (model(source, target) - logits).abs().max() < 1e-12


@POSITIONS
def test_a_target_token_changes_no_earlier_logits_and_a_source_token_changes_all(position):
    model, source, target = _model(position=position), _ids(SOURCE_VOCAB, 8), _ids(TARGET_VOCAB, 5)
    logits = model(source, target)
    for changed in range(5):
        other = target.clone()
        other[:, changed] = (other[:, changed] + 1) % TARGET_VOCAB
        difference = (model(source, other) - logits).abs().amax((0, 2))
        assert (difference[:changed] < 1e-12).all()
        assert difference[changed] > 1e-6
    for changed in range(8):
        other = source.clone()
        other[:, changed] = (other[:, changed] + 1) % SOURCE_VOCAB
        assert (model(other, target) - logits).abs().amax((0, 2)).min() > 1e-9


@POSITIONS
@pytest.mark.parametrize("norm_position", ["pre", "post"])
def test_neither_source_nor_target_padding_changes_an_example(position, norm_position):
    model = _model(position=position, norm_position=norm_position)
    source, target = _ids(SOURCE_VOCAB, 8, 3), _ids(TARGET_VOCAB, 5, 3)
    source_real = torch.arange(8)[None] < torch.tensor([8, 3, 1])[:, None]
    target_real = torch.arange(5)[None] >= torch.tensor([0, 2, 4])[:, None]  # on the left
    logits = model(source, target, source_real, target_real)
    for row, (source_length, padding) in enumerate([(8, 0), (3, 2), (1, 4)]):
        alone = model(source[row : row + 1, :source_length], target[row : row + 1, padding:])
        assert (logits[row, padding:] - alone[0]).abs().max() < 1e-10
    unmasked = model(source, target, None, target_real)
    assert (unmasked - logits)[1:].abs().max() > 1e-3


@POSITIONS
@pytest.mark.parametrize("parts", [[1] * 5, [2, 3], [3, 1, 1]])
def test_cached_steps_equal_teacher_forcing(position, parts):
    model = _model(position=position, num_kv_heads=1, qk_norm=True)
    source, target = _ids(SOURCE_VOCAB, 8), _ids(TARGET_VOCAB, 5)
    source_real = torch.arange(8)[None] < torch.tensor([8, 3])[:, None]
    whole = model(source, target, source_real)
    memory, cache, fed, hidden = model.encode(source, source_real).memory_BSD, model.new_cache(), 0, []
    for length in parts:
        step = model.decode(target[:, fed : fed + length], memory, source_real, cache=cache)
        hidden.append(step.hidden_BTD)
        fed += length
    assert (model.output(torch.cat(hidden, 1)) - whole).abs().max() < 1e-10


def test_a_cache_whose_rows_were_selected_continues_those_rows():
    """One token at a time: their queries are those of one attention, which would answer later ones like the first."""
    model, source, target = _model(), _ids(SOURCE_VOCAB, 8), _ids(TARGET_VOCAB, 5)
    memory, cache = model.encode(source).memory_BSD, model.new_cache()
    model.decode(target[:, :3], memory, cache=cache)
    rows = torch.tensor([1, 0, 1])
    cache.select(rows)
    tokens = torch.tensor([[4], [5], [6]])
    step = model.decode(tokens, memory[rows], cache=cache).hidden_BTD
    whole = model.decode(torch.cat([target[rows, :3], tokens], 1), memory[rows]).hidden_BTD
    assert (step[:, 0] - whole[:, 3]).abs().max() < 1e-12
    with pytest.raises(ValueError, match="must have one query each, but have 2: decode the tokens one by one"):
        model.decode(target[rows, 3:], memory[rows], cache=cache)


def test_ties():
    untied, decoder = _model(), _model(tie_embeddings="decoder")
    assert untied.output.weight is not untied.target_embedding.weight
    assert decoder.output.weight is decoder.target_embedding.weight
    assert decoder.source_embedding.weight.shape == (SOURCE_VOCAB, 12)
    config = untied.config.model_copy(update={"tie_embeddings": "all"})
    everything = EncoderDecoder(config, 9, 9)
    assert everything.output.weight is everything.target_embedding.weight is everything.source_embedding.weight
    with pytest.raises(ValueError, match="the source has 13 tokens and the target 11"):
        EncoderDecoder(config, SOURCE_VOCAB, TARGET_VOCAB)


def test_post_norm_has_no_last_norm_and_pre_norm_has_two():
    names = {name for name, _ in _model(norm_position="pre").named_parameters()}
    assert {"encoder_norm.weight", "decoder_norm.weight"} <= names
    names = {name for name, _ in _model(norm_position="post").named_parameters()}
    assert not {"encoder_norm.weight", "decoder_norm.weight"} & names


def test_learned_positions_of_the_two_sides_are_separate():
    model = _model(position="learned")
    assert model.source_position.embedding.weight is not model.target_position.embedding.weight


def test_the_rotary_base_reaches_the_angles_of_both_sides():
    for base, expected in [({"rotary_base": 500.0}, math.cos(7 / 500**0.5)), ({}, math.cos(0.07))]:
        model = _model(position="rotary", **base)
        for position in (model.source_position, model.target_position):
            assert position.cos_LE[7, 1].item() == pytest.approx(expected, abs=1e-7)


def test_every_dropout_acts_in_training_and_none_in_evaluation():
    source, target = _ids(SOURCE_VOCAB, 8), _ids(TARGET_VOCAB, 5)
    for name in ("dropout", "attention_dropout", "activation_dropout"):
        model = _model(**{name: 0.4})
        assert torch.equal(model(source, target), _model()(source, target))
        model.train()
        assert not torch.equal(model(source, target), model(source, target))


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (torch.zeros(1, 17, dtype=torch.int64), _ids(11, 5, 1), "the sequence has 17 tokens, but `max_length` is 16"),
        (_ids(13, 5, 1), torch.zeros(1, 17, dtype=torch.int64), "the sequence has 17 tokens, but `max_length` is 16"),
        (torch.tensor([[12, 13]]), _ids(11, 5, 1), r"from 0 to 12 .* but range from 12 to 13"),
        (_ids(13, 5, 1), torch.tensor([[3, 12]]), r"from 0 to 10 .* but range from 3 to 12"),
        (_ids(13, 5, 1), torch.tensor([[-100, 3]]), r"from 0 to 10 .* but range from -100 to 3"),
        (_ids(13, 5, 1)[..., None], _ids(11, 5, 1), r"shape \(batch, length\), but have \(1, 5, 1\)"),
        (torch.zeros(1, 0, dtype=torch.int64), _ids(11, 5, 1), "at least one token"),
    ],
)
def test_sequences_it_cannot_read_are_refused(source, target, message):
    with pytest.raises(ValueError, match=message):
        _model()(source, target)


def test_masks_of_another_shape_are_refused():
    model, source, target = _model(), _ids(SOURCE_VOCAB, 8), _ids(TARGET_VOCAB, 5)
    with pytest.raises(ValueError, match=r"token ids' shape \(2, 8\), but is torch.bool of shape \(2, 7\)"):
        model(source, target, torch.ones(2, 7, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"token ids' shape \(2, 5\), but is torch.int64 of shape \(2, 5\)"):
        model(source, target, None, torch.ones(2, 5, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"`mask` must have shape .* but has \(2, 1, 1, 7\)"):
        model.decode(target, model.encode(source).memory_BSD, torch.ones(2, 7, dtype=torch.bool))
