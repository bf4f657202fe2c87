"""A session that is asked about whole outputs against the model without a cache."""

import random

import pytest
import torch

from transformer.models.drafting import RewindableSteps

KINDS = pytest.mark.parametrize(
    "settings",
    [
        {"position": "rotary"},
        {"position": "rotary", "sliding_window": 3, "num_layers": 2},
        {"position": "learned"},
        {"position": "alibi"},
        {"position": "sinusoidal", "sliding_window": 1},
        {"position": "none", "num_kv_heads": 1},
    ],
    ids=str,
)


@KINDS
def test_equals_the_model_without_a_cache_in_any_order_of_questions(tiny_bundle, settings):
    """Outputs that go on, change, become shorter, and that are asked for again."""
    model = tiny_bundle("decoder_only", **settings).model
    generator = random.Random(0)
    for prompt in ([5], [7, 8, 9, 5]):
        session = RewindableSteps(model, prompt, torch.device("cpu"))
        output = []
        for _ in range(40):
            output = output[: generator.randint(0, len(output))]
            output += generator.choices(range(5, 12), k=min(generator.randint(0, 4), session.room - len(output)))
            count = generator.randint(1, len(output) + 1)
            with torch.no_grad():
                found = session.next_logits(output, count)
                expected = model(torch.tensor([[*prompt, *output]]))[0, -count:]
            assert found.shape == expected.shape
            assert torch.allclose(found, expected, atol=1e-5)


def test_only_what_is_new_is_read(tiny_bundle):
    model = tiny_bundle("decoder_only").model
    read = []
    model.embedding.register_forward_pre_hook(lambda module, arguments: read.append(arguments[0].tolist()))
    session = RewindableSteps(model, [5, 6], torch.device("cpu"))
    for output, count, expected in (
        ([], 1, [5, 6]),
        ([7], 1, [7]),
        ([7, 8, 9, 10], 4, [7, 8, 9, 10]),  # the logits behind 7 are wanted again
        ([7, 8, 11], 1, [11]),
        ([7, 8, 11, 5, 5], 2, [5, 5]),
        ([7], 1, [7]),
        ([8], 2, [6, 8]),
    ):
        session.next_logits(output, count)
        assert read.pop() == [expected]


def test_room_is_what_the_prompt_leaves(tiny_bundle):
    model = tiny_bundle("decoder_only", max_length=8).model
    assert RewindableSteps(model, [5, 6, 7], torch.device("cpu")).room == 5
    assert RewindableSteps(model, [5] * 11, torch.device("cpu")).room == -3
    session = RewindableSteps(model, [5, 6, 7], torch.device("cpu"))
    session.next_logits([5] * 5, 1)
    with pytest.raises(ValueError, match="the sequence has 9 tokens, but `max_length` is 8"):
        session.next_logits([5] * 6, 1)
    assert torch.equal(session.next_logits([5] * 5, 6), session.next_logits([5] * 5, 6))


def test_a_refused_question_leaves_the_session_as_it_was(tiny_bundle):
    model = tiny_bundle("decoder_only", max_length=8).model
    session, fresh = (RewindableSteps(model, [5, 6, 7], torch.device("cpu")) for _ in range(2))
    session.next_logits([5, 8], 1)
    with pytest.raises(ValueError, match="token ids"):
        session.next_logits([5, 8, 100_000], 1)
    with pytest.raises(ValueError, match="the sequence has 9 tokens"):
        session.next_logits([5, 8, 5, 5, 5, 5], 1)
    assert torch.allclose(session.next_logits([5, 8, 9], 2), fresh.next_logits([5, 8, 9], 2), atol=1e-6)
