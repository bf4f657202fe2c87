"""Properties of any small model: nothing depends on the future, the padding, the neighbours, or the cache."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from transformer.models.config import DecoderOnlyConfig, EncoderDecoderConfig
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder

VOCAB = 13
LONGEST = 6
few = settings(max_examples=50, derandomize=True, deadline=None, database=None)
seeds = st.integers(0, 2**16)


@pytest.fixture(scope="module", autouse=True)
def _float64_on_one_thread() -> Iterator[None]:
    dtype, threads = torch.get_default_dtype(), torch.get_num_threads()
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    yield
    torch.set_default_dtype(dtype)
    torch.set_num_threads(threads)


@st.composite
def stacks(draw: st.DrawFn) -> dict[str, object]:
    """Settings that both models share, in every combination."""
    heads = draw(st.sampled_from([1, 2, 4]))
    return {
        "num_heads": heads,
        "num_kv_heads": draw(st.sampled_from([n for n in (1, 2, 4) if heads % n == 0])),
        "d_model": heads * draw(st.sampled_from([2, 4])),
        "d_ff": draw(st.integers(1, 12)),
        "max_length": 16,
        "activation": draw(st.sampled_from(["relu", "gelu", "gelu_tanh", "swiglu"])),
        "norm": draw(st.sampled_from(["layer_norm", "rms_norm"])),
        "norm_position": draw(st.sampled_from(["pre", "post"])),
        "position": draw(st.sampled_from(["sinusoidal", "learned", "rotary", "alibi", "none"])),
        "bias": draw(st.booleans()),
        "qk_norm": draw(st.booleans()),
        "scale_embeddings": draw(st.booleans()),
        "initialization": "normal",
        "init_std": 0.3,  # larger than usual, so that every influence is visible
    }


@st.composite
def language_models(draw: st.DrawFn) -> DecoderOnly:
    data = {
        **draw(stacks()),
        "name": "decoder_only",
        "num_layers": draw(st.integers(1, 2)),
        "sliding_window": draw(st.sampled_from([None, 1, 2, 3])),
        "tie_embeddings": draw(st.booleans()),
    }
    torch.manual_seed(draw(seeds))
    return DecoderOnly(DecoderOnlyConfig.from_plain(data), VOCAB).eval()


@st.composite
def translation_models(draw: st.DrawFn) -> EncoderDecoder:
    data = {
        **draw(stacks()),
        "name": "encoder_decoder",
        "num_encoder_layers": draw(st.integers(1, 2)),
        "num_decoder_layers": draw(st.integers(1, 2)),
        "tie_embeddings": draw(st.sampled_from(["none", "decoder", "all"])),
    }
    torch.manual_seed(draw(seeds))
    return EncoderDecoder(EncoderDecoderConfig.from_plain(data), VOCAB, VOCAB).eval()


@st.composite
def sequences(draw: st.DrawFn) -> list[list[int]]:
    """One to four rows of different lengths."""
    row = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=LONGEST)
    return draw(st.lists(row, min_size=1, max_size=4))


def batched(rows: list[list[int]], pad: int, left: bool, extra: int = 0) -> tuple[Tensor, Tensor]:
    """Rows padded to one length on either side, and True for the real tokens."""
    length = max(map(len, rows)) + extra
    ids, real = torch.full((len(rows), length), pad), torch.zeros(len(rows), length, dtype=torch.bool)
    for index, row in enumerate(rows):
        place = slice(length - len(row), length) if left else slice(0, len(row))
        ids[index, place], real[index, place] = torch.tensor(row), True
    return ids, real


def assert_same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-10)


@given(language_models(), translation_models(), st.data())
@few
def test_no_output_depends_on_the_future(model: DecoderOnly, translation: EncoderDecoder, data: st.DataObject) -> None:
    ids = torch.tensor([data.draw(st.lists(st.integers(0, VOCAB - 1), min_size=2, max_size=LONGEST))])
    source = torch.tensor([data.draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=LONGEST))])
    place = data.draw(st.integers(1, ids.shape[1] - 1))
    changed = ids.clone()
    changed[:, place:] = (ids[:, place:] + data.draw(st.integers(1, VOCAB - 1))) % VOCAB
    assert_same(model(changed)[:, :place], model(ids)[:, :place])
    assert_same(translation(source, changed)[:, :place], translation(source, ids)[:, :place])
    assert not torch.equal(model(changed)[:, place], model(ids)[:, place])


@given(language_models(), sequences(), st.integers(0, VOCAB - 1), st.booleans(), st.integers(0, 4))
@few
def test_language_model_ignores_padding_and_neighbours(
    model: DecoderOnly, rows: list[list[int]], pad: int, left: bool, extra: int
) -> None:
    ids, real = batched(rows, pad, left, extra)
    logits = model(ids, real)
    for index, row in enumerate(rows):
        assert_same(logits[index, real[index]], model(torch.tensor([row]))[0])


@given(translation_models(), sequences(), st.integers(0, VOCAB - 1), st.booleans(), st.booleans(), st.data())
@few
def test_translation_model_ignores_padding_and_neighbours(
    model: EncoderDecoder, rows: list[list[int]], pad: int, left: bool, target_left: bool, data: st.DataObject
) -> None:
    row = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=LONGEST)
    targets = data.draw(st.lists(row, min_size=len(rows), max_size=len(rows)))
    source, source_real = batched(rows, pad, left)
    target, target_real = batched(targets, pad, target_left)
    logits = model(source, target, source_real, target_real)
    for index in range(len(rows)):
        alone = model(torch.tensor([rows[index]]), torch.tensor([targets[index]]))[0]
        assert_same(logits[index, target_real[index]], alone)


@given(language_models(), translation_models(), sequences(), st.data())
@few
def test_batch_order_is_only_an_order(
    model: DecoderOnly, translation: EncoderDecoder, rows: list[list[int]], data: st.DataObject
) -> None:
    order = data.draw(st.permutations(range(len(rows))))
    ids, real = batched(rows, 0, left=True)
    assert_same(model(ids[order], real[order]), model(ids, real)[order])
    expected = translation(ids, ids, real, real)[order]
    assert_same(translation(ids[order], ids[order], real[order], real[order]), expected)


@st.composite
def splits(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Chunk lengths, and a row of tokens of that many in all."""
    split = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    return split, draw(st.lists(st.integers(0, VOCAB - 1), min_size=sum(split), max_size=sum(split)))


@given(language_models(), splits(), st.integers(0, 2), st.lists(st.integers(0, 1), min_size=1, max_size=3))
@few
def test_language_model_in_chunks(
    model: DecoderOnly, chunks: tuple[list[int], list[int]], pads: int, rows: list[int]
) -> None:
    split, tokens = chunks
    ids, real = batched([tokens, tokens[: max(1, len(tokens) - pads)]], 0, left=True)
    cache, outputs = model.new_cache(), []
    for chunk, mask in zip(ids.split(split, dim=1), real.split(split, dim=1), strict=True):
        outputs.append(model(chunk, mask, cache=cache))
    assert_same(torch.cat(outputs, dim=1)[real], model(ids, real)[real])
    cache.select(torch.tensor(rows))  # as a beam search does: rows are dropped, moved and repeated
    last = torch.full((len(rows), 1), 5)
    whole = torch.cat([ids[rows], last], dim=1)
    whole_real = torch.cat([real[rows], torch.ones_like(last, dtype=torch.bool)], dim=1)
    assert_same(model.next_logits(last, cache=cache), model(whole, whole_real)[:, -1])


@given(translation_models(), sequences(), splits(), st.data())
@few
def test_translation_model_in_chunks(
    model: EncoderDecoder, sources: list[list[int]], chunks: tuple[list[int], list[int]], data: st.DataObject
) -> None:
    split, tokens = chunks
    source, real = batched(sources, 0, left=False)
    target = torch.tensor([tokens] * len(sources))
    memory, cache = model.encode(source, real).memory_BSD, model.new_cache()
    outputs = [model.decode(chunk, memory, real, cache=cache).hidden_BTD for chunk in target.split(split, dim=1)]
    assert_same(model.output(torch.cat(outputs, dim=1)), model(source, target, real))
    rows = data.draw(st.lists(st.integers(0, len(sources) - 1), min_size=1, max_size=3))
    cache.select(torch.tensor(rows))
    last = torch.full((len(rows), 1), 5)
    stepped = model.decode(last, memory[rows], real[rows], cache=cache).hidden_BTD
    whole = torch.cat([target[rows], last], dim=1)
    assert_same(model.output(stepped)[:, -1], model(source[rows], whole, real[rows])[:, -1])
