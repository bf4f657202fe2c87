"""The causal language model as a whole."""

import math

import pytest
import torch

from transformer.models.config import DecoderOnlyConfig
from transformer.models.decoder_only import DecoderOnly

VOCAB = 11
POSITIONS = pytest.mark.parametrize("position", ["sinusoidal", "learned", "rotary", "alibi", "none"])


def _model(**changes) -> DecoderOnly:
    torch.manual_seed(0)
    settings = {"num_layers": 2, "d_model": 12, "num_heads": 3, "max_length": 16, "init_std": 0.3} | changes
    return DecoderOnly(DecoderOnlyConfig(name="decoder_only", **settings), VOCAB).double().eval()


def _tokens(batch: int = 2, length: int = 7) -> torch.Tensor:
    return torch.randint(VOCAB, (batch, length), generator=torch.Generator().manual_seed(length))


def test_logits_are_the_projected_hidden_states_and_weights_come_on_request():
    model, tokens = _model(), _tokens()
    logits, hidden = model(tokens), model.hidden(tokens)
    assert logits.shape == (2, 7, VOCAB)
    assert hidden.hidden_BLD.shape == (2, 7, 12)
    assert torch.equal(logits, hidden.hidden_BLD @ model.embedding.weight.T)
    assert hidden.weights == [None, None]
    explicit = model.hidden(tokens, backend="explicit")
    assert [weights.shape for weights in explicit.weights] == [(2, 3, 7, 7)] * 2
    assert (explicit.hidden_BLD - hidden.hidden_BLD).abs().max() < 1e-12


def test_next_logits_are_the_last_ones_and_nothing_else_is_projected():
    model, tokens = _model(), _tokens()
    assert (model.next_logits(tokens) - model(tokens)[:, -1]).abs().max() < 1e-12
    rows = []
    model.output.register_forward_hook(lambda module, arguments, result: rows.append(arguments[0].shape))
    model.next_logits(tokens)
    assert rows == [(2, 12)]


@POSITIONS
def test_no_position_depends_on_a_later_token(position):
    model, tokens = _model(position=position), _tokens()
    logits = model(tokens)
    for changed in range(7):
        other = tokens.clone()
        other[:, changed] = (other[:, changed] + 1) % VOCAB
        difference = (model(other) - logits).abs().amax((0, 2))
        assert difference[:changed].max() < 1e-12 if changed else True
        assert difference[changed] > 1e-6


@POSITIONS
@pytest.mark.parametrize("parts", [[1] * 7, [4, 3], [3, 1, 1, 2]])
@pytest.mark.parametrize("changes", [{}, {"num_kv_heads": 1, "qk_norm": True}, {"sliding_window": 3}])
def test_cached_steps_equal_the_whole_sequence_with_left_padding(position, parts, changes):
    model, tokens = _model(position=position, **changes), _tokens(3)
    real = torch.arange(7)[None] >= torch.tensor([0, 2, 5])[:, None]
    whole = model(tokens, real)
    cache, fed, logits = model.new_cache(), 0, []
    for length in parts:
        span = slice(fed, fed + length)
        logits.append(model(tokens[:, span], real[:, span], cache=cache))
        fed += length
        assert cache.length == fed
    assert (torch.cat(logits, 1) - whole)[real].abs().max() < 1e-10
    for row, padding in enumerate([0, 2, 5]):
        alone = model(tokens[row : row + 1, padding:])
        assert (whole[row, padding:] - alone[0]).abs().max() < 1e-10


def test_padding_on_the_right_changes_no_real_position():
    model, tokens = _model(position="learned"), _tokens()
    padded = torch.cat([tokens, torch.zeros(2, 4, dtype=torch.int64)], 1)
    real = torch.arange(11)[None].expand(2, -1) < 7
    assert (model(padded)[:, :7] - model(tokens)).abs().max() < 1e-12
    assert (model(padded, real)[:, :7] - model(tokens)).abs().max() < 1e-12


def test_a_sliding_window_hides_tokens_further_back():
    model, tokens = _model(sliding_window=2, num_layers=1, position="none"), _tokens(1)
    weights = model.hidden(tokens, backend="explicit").weights[0]
    assert (weights[0, 0] > 0).tolist() == [[q - 2 < k <= q for k in range(7)] for q in range(7)]
    other = tokens.clone()
    other[0, 0] = (other[0, 0] + 1) % VOCAB
    difference = (model(other) - model(tokens)).abs().amax(-1)[0]
    assert difference[1] > 1e-6
    assert difference[2:].max() == 0


def test_a_window_as_long_as_the_sequence_changes_nothing():
    tokens = _tokens()
    assert (_model(sliding_window=7)(tokens) - _model()(tokens)).abs().max() < 1e-12


def test_tied_output_is_the_very_same_parameter():
    model = _model()
    assert model.output.weight is model.embedding.weight
    assert _model(tie_embeddings=False).output.weight is not _model(tie_embeddings=False).embedding.weight


def test_every_dropout_acts_in_training_and_none_in_evaluation():
    model = _model(dropout=0.3, attention_dropout=0.3, activation_dropout=0.3)
    tokens = _tokens()
    assert torch.equal(model(tokens), _model(dropout=0.0)(tokens))
    model.train()
    assert not torch.equal(model(tokens), model(tokens))


def test_scaled_embeddings_are_scaled():
    tokens = _tokens(1, 1)
    plain, scaled = _model(position="none"), _model(position="none", scale_embeddings=True)
    assert torch.equal(scaled.embedding(tokens), plain.embedding(tokens) * 12**0.5)


def test_the_rotary_base_reaches_the_angles():
    assert _model(position="rotary", rotary_base=500.0).position.cos_LE[7, 1].item() == pytest.approx(
        math.cos(7 / 500**0.5), abs=1e-7
    )
    assert _model(position="rotary").position.cos_LE[7, 1].item() == pytest.approx(math.cos(0.07), abs=1e-7)


def test_length_counts_what_the_cache_holds_and_a_refusal_leaves_the_cache_usable():
    model, tokens = _model(), _tokens(1, 16)
    cache = model.new_cache()
    model(tokens[:, :15], cache=cache)
    with pytest.raises(ValueError, match="the sequence has 17 tokens, but `max_length` is 16"):
        model(tokens[:, :2], cache=cache)
    with pytest.raises(ValueError, match=r"from 0 to 10 \(a vocabulary of 11\), but range from 11 to 11"):
        model(torch.tensor([[11]]), cache=cache)
    last = model(tokens[:, 15:], cache=cache)
    assert (last - model(tokens)[:, 15:]).abs().max() < 1e-12
    with pytest.raises(ValueError, match="the sequence has 17 tokens, but `max_length` is 16"):
        model(torch.zeros(1, 17, dtype=torch.int64))


@pytest.mark.parametrize("shape", [(2, 8), (2, 6), (1, 7), (3, 7)])
def test_a_mask_of_another_shape_is_refused(shape):
    with pytest.raises(ValueError, match=r"token ids' shape \(2, 7\), but is torch.bool of shape"):
        _model()(_tokens(), torch.ones(shape, dtype=torch.bool))


def test_with_a_cache_a_mask_over_all_positions_is_refused():
    """It would be taken for the mask of new tokens, and one token would come back as several."""
    model, tokens = _model(), _tokens()
    cache = model.new_cache()
    model(tokens[:, :6], torch.ones(2, 6, dtype=torch.bool), cache=cache)
    with pytest.raises(ValueError, match=r"token ids' shape \(2, 1\), but is torch.bool of shape \(2, 7\)"):
        model(tokens[:, 6:], torch.ones(2, 7, dtype=torch.bool), cache=cache)


def test_the_saved_state_holds_parameters_only():
    for position in ("sinusoidal", "rotary", "alibi"):
        model = _model(position=position, tie_embeddings=False)
        assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}
