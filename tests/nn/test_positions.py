"""Position encodings."""

import math

import pytest
import torch

from transformer.nn.cache import DecoderCache
from transformer.nn.positions import (
    NO_SIGNALS,
    AlibiPosition,
    LearnedPosition,
    NoPosition,
    RotaryPosition,
    Rotation,
    SinusoidalPosition,
    build_position_encoding,
    check_length,
    place_segments,
    place_tokens,
    positions_in_segments,
    positions_of,
    rotate,
)


@pytest.mark.parametrize("width", [1, 2, 5, 8])
def test_sinusoidal_equals_the_formula_at_every_column(width):
    encoding = SinusoidalPosition(9, width)
    added = encoding.embed(torch.zeros(1, 9, width, dtype=torch.float64), torch.arange(9)[None])[0]
    for time in range(9):
        for column in range(width):
            angle = time / 10000 ** (2 * (column // 2) / width)
            expected = math.sin(angle) if column % 2 == 0 else math.cos(angle)
            assert added[time, column].item() == pytest.approx(expected, abs=1e-7)  # a float32 table


def test_sinusoidal_at_width_four_by_hand():
    table = SinusoidalPosition(8, 4).table_LD
    assert table[0].tolist() == [0.0, 1.0, 0.0, 1.0]
    assert table[1].tolist() == pytest.approx([0.8414710, 0.5403023, 0.0099998, 0.9999500], abs=1e-6)
    assert table[7].tolist() == pytest.approx([0.6569866, 0.7539023, 0.0699428, 0.9975510], abs=1e-6)


def test_sinusoidal_far_positions_are_computed_in_float64():
    """In float32, 100000 / 10000^(2i/d) is off by up to 4e-3 radians before the sine is taken."""
    table = SinusoidalPosition(100_001, 6).table_LD
    angle = 100_000 / 10000 ** (2 / 6)
    assert table[100_000, 2].item() == pytest.approx(math.sin(angle), abs=1e-7)


def test_sinusoidal_is_neither_trained_nor_saved():
    encoding = SinusoidalPosition(9, 4)
    assert list(encoding.parameters()) == []
    assert encoding.state_dict() == {}


def test_sinusoidal_adds_each_row_its_own_positions():
    encoding = SinusoidalPosition(9, 4)
    positions = torch.tensor([[0, 1, 2], [0, 0, 1]])
    x = torch.full((2, 3, 4), 5.0)
    assert torch.equal(encoding.embed(x, positions), encoding.table_LD[positions] + 5.0)
    assert encoding.embed(x.bfloat16(), positions).dtype == torch.bfloat16


def test_learned_adds_the_vector_of_each_position():
    torch.manual_seed(0)
    encoding = LearnedPosition(6, 4)
    added = encoding.embed(torch.zeros(1, 3, 4), torch.tensor([[5, 0, 5]]))[0]
    assert torch.equal(added, encoding.embedding.weight[[5, 0, 5]])
    assert [parameter.shape for parameter in encoding.parameters()] == [(6, 4)]
    assert encoding.signals(torch.zeros(1, 3), torch.zeros(1, 3)) == NO_SIGNALS


def test_rotary_rotates_each_pair_as_a_complex_number():
    torch.manual_seed(0)
    encoding = RotaryPosition(40, 6, base=100.0)
    x = torch.randn(2, 3, 4, 6, dtype=torch.float64)  # batch, heads, length, head size
    positions = torch.tensor([[0, 1, 2, 39], [7, 7, 8, 9]])
    rotation = encoding.signals(positions, positions).rotation
    rotated = rotate(x, rotation)
    for pair in range(3):  # the partner of column i is column i + 3
        angles = positions.double() * 100.0 ** (-2 * pair / 6)
        turned = torch.complex(x[..., pair], x[..., pair + 3]) * torch.exp(1j * angles)[:, None]
        assert (rotated[..., pair] - turned.real).abs().max() < 1e-6
        assert (rotated[..., pair + 3] - turned.imag).abs().max() < 1e-6


def test_rotary_uses_query_positions_and_keeps_dtype_and_embeddings():
    encoding = RotaryPosition(10, 2, base=10000.0)
    rotation = encoding.signals(torch.tensor([[4]]), torch.arange(5)[None]).rotation
    assert rotation.cos.flatten().tolist() == pytest.approx([math.cos(4)], abs=1e-7)
    assert rotate(torch.ones(1, 1, 1, 2, dtype=torch.float16), rotation).dtype == torch.float16
    x = torch.randn(1, 5, 8)
    assert encoding.embed(x, torch.arange(5)[None]) is x
    assert encoding.state_dict() == {}


def test_rotate_by_a_quarter_turn():
    quarter = Rotation(torch.zeros(1, 1, 1, 2), torch.ones(1, 1, 1, 2))
    x = torch.tensor([1.0, 2.0, 3.0, 4.0]).view(1, 1, 1, 4)
    assert rotate(x, quarter).flatten().tolist() == [-3.0, -4.0, 1.0, 2.0]


def test_alibi_subtracts_slope_times_distance():
    bias = AlibiPosition(8).signals(torch.tensor([[2, 3]]), torch.arange(4)[None]).bias_BHQK
    assert bias.shape == (1, 8, 2, 4)
    assert bias[0, 0].tolist() == [[-1.0, -0.5, 0.0, -0.5], [-1.5, -1.0, -0.5, 0.0]]  # slope 1/2
    assert bias[0, 7, 1].tolist() == [-3 / 256, -2 / 256, -1 / 256, 0.0]  # slope 1/256
    assert AlibiPosition(4).slopes_H.tolist() == [1 / 4, 1 / 16, 1 / 64, 1 / 256]


def test_alibi_distances_skip_padding():
    positions = positions_of(torch.tensor([[False, False, True, True]]))
    bias = AlibiPosition(1).signals(positions[:, -1:], positions).bias_BHQK
    assert bias[0, 0, 0, 2:].tolist() == [-1 / 256, 0.0]


def test_no_position_changes_nothing():
    x = torch.randn(1, 5, 8)
    encoding = NoPosition()
    assert encoding.embed(x, torch.arange(5)[None]) is x
    assert encoding.signals(torch.arange(5)[None], torch.arange(5)[None]) == NO_SIGNALS


def test_positions_count_real_tokens_only():
    real = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]], dtype=torch.bool)
    assert positions_of(real).tolist() == [[0, 0, 0, 1], [0, 1, 2, 3], [0, 1, 1, 1], [0, 0, 0, 0]]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_positions_restart_in_every_segment(dtype):
    segments = torch.tensor([[1, 1, 1, 2, 3, 3, 0, 0], [0, 0, 1, 1, 0, 4, 4, 4], [7] * 8, [0] * 8], dtype=dtype)
    positions = positions_in_segments(segments)
    assert positions.tolist() == [[0, 1, 2, 0, 0, 1, 0, 0], [0, 0, 0, 1, 0, 0, 1, 2], [*range(8)], [0] * 8]
    assert positions.dtype == torch.int64
    assert positions_in_segments(segments[:, :1]).tolist() == [[0]] * 4


def test_the_longest_segment_counts_not_the_row():
    tokens, segments = torch.zeros(2, 6, dtype=torch.int64), torch.tensor([[1, 1, 1, 0, 0, 0], [1, 1, 2, 2, 2, 3]])
    positions = place_segments(tokens, segments, None, None, 3)
    assert positions.tolist() == [[0, 1, 2, 0, 0, 0], [0, 1, 0, 1, 2, 0]]
    with pytest.raises(ValueError, match="segment 1 of row 0 has 3 tokens, but `max_length` is 2"):
        place_segments(tokens, segments, None, None, 2)
    with pytest.raises(ValueError, match="segment 2 of row 1 has 4 tokens, but `max_length` is 3"):
        place_segments(tokens, torch.tensor([[1, 1, 1, 0, 0, 0], [1, 1, 2, 2, 2, 2]]), None, None, 3)


def test_segments_are_checked_before_they_place_anything():
    tokens, segments = torch.zeros(1, 4, dtype=torch.int64), torch.tensor([[1, 2, 1, 0]])
    with pytest.raises(ValueError, match="must be contiguous"):
        place_segments(tokens, segments, None, None, 9)
    for mask, cache in ((segments > 0, None), (None, DecoderCache(1))):
        with pytest.raises(ValueError, match="segments exclude a mask and a cache"):
            place_segments(tokens, torch.ones_like(tokens), mask, cache, 9)


def test_positions_of_new_tokens_follow_those_in_the_cache():
    cache = DecoderCache(1)
    place_tokens(torch.zeros(2, 3, dtype=torch.long), None, cache, 9)
    queries, keys, key_mask = place_tokens(torch.zeros(2, 2, dtype=torch.long), None, cache, 9)
    assert (queries.tolist(), keys.tolist(), key_mask) == ([[3, 4]], [[0, 1, 2, 3, 4]], None)
    assert cache.length == 5


def test_padding_takes_no_position():
    cache = DecoderCache(1)
    real = torch.tensor([[True, True, True], [False, False, True]])
    place_tokens(torch.zeros(2, 3, dtype=torch.long), real, cache, 4)
    queries, keys, key_mask = place_tokens(torch.zeros(2, 1, dtype=torch.long), None, cache, 4)
    assert (queries.tolist(), keys.tolist()) == ([[3], [1]], [[0, 1, 2, 3], [0, 0, 0, 1]])
    assert key_mask.tolist() == [[1, 1, 1, 1], [0, 0, 1, 1]]
    cache.select(torch.tensor([1]))  # without the long row, the short one may grow further
    queries, _, _ = place_tokens(torch.zeros(1, 1, dtype=torch.long), None, cache, 4)
    assert queries.tolist() == [[2]]


def test_a_refused_call_leaves_the_cache_as_it_was():
    cache = DecoderCache(1)
    place_tokens(torch.zeros(1, 3, dtype=torch.long), torch.tensor([[False, True, True]]), cache, 4)
    with pytest.raises(ValueError, match="the sequence has 5 tokens, but `max_length` is 4"):
        place_tokens(torch.zeros(1, 3, dtype=torch.long), None, cache, 4)
    assert (cache.length, cache.key_mask_BK.tolist()) == (3, [[0, 1, 1]])


def test_a_sequence_that_is_too_long_is_refused_with_both_numbers():
    check_length(8, 8)
    with pytest.raises(ValueError, match="the sequence has 9 tokens, but `max_length` is 8"):
        check_length(9, 8)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("sinusoidal", SinusoidalPosition),
        ("learned", LearnedPosition),
        ("rotary", RotaryPosition),
        ("alibi", AlibiPosition),
        ("none", NoPosition),
    ],
)
def test_each_name_builds_its_encoding(name, kind):
    built = build_position_encoding(name, max_length=7, d_model=12, num_heads=3, rotary_base=100.0)
    assert type(built) is kind


def test_the_builder_passes_the_sizes_on():
    sizes = {"max_length": 7, "d_model": 12, "num_heads": 3, "rotary_base": 100.0}
    assert build_position_encoding("sinusoidal", **sizes).table_LD.shape == (7, 12)
    assert build_position_encoding("learned", **sizes).embedding.weight.shape == (7, 12)
    assert build_position_encoding("alibi", **sizes).slopes_H.shape == (3,)
    rotary = build_position_encoding("rotary", **sizes)
    assert rotary.cos_LE.shape == (7, 2)  # head size 4, two pairs
    assert rotary.cos_LE[1].tolist() == pytest.approx([math.cos(1), math.cos(0.1)], abs=1e-7)


def test_rotation_of_16_bit_heads_uses_exact_angles_and_its_gradient_turns_back():
    torch.manual_seed(0)
    rotation = RotaryPosition(5000, 8, 10000.0).signals(torch.tensor([[4321, 4322]]), torch.tensor([[4321]])).rotation
    heads = torch.randn(2, 3, 2, 8)
    low = heads.bfloat16()
    exact = rotate(low.float(), rotation)
    assert rotate(low, rotation).dtype == torch.bfloat16
    torch.testing.assert_close(rotate(low, rotation), exact.bfloat16(), atol=0, rtol=0)
    x = heads.double().requires_grad_()
    precise = type(rotation)(rotation.cos.double(), rotation.sin.double())
    assert torch.autograd.gradcheck(lambda x: rotate(x, precise), x)
    assert torch.autograd.gradgradcheck(lambda x: rotate(x, precise), x)


def test_rotation_is_compiled_without_a_break():
    torch.manual_seed(0)
    rotation = RotaryPosition(9, 8, 10000.0).signals(torch.arange(5)[None], torch.arange(5)[None]).rotation
    compiled = torch.compile(rotate, backend="eager", fullgraph=True)  # an error where the graph breaks
    for dtype in (torch.float32, torch.bfloat16):
        x, own = (torch.randn(2, 3, 5, 8).to(dtype).requires_grad_() for _ in range(2))
        own.data.copy_(x.data)
        compiled(x, rotation).square().sum().backward()
        rotate(own, rotation).square().sum().backward()
        torch.testing.assert_close(compiled(x, rotation), rotate(own, rotation))
        torch.testing.assert_close(x.grad, own.grad)
