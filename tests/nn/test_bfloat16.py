"""Which devices compute in bfloat16."""

import pytest
import torch

from transformer.nn.bfloat16 import computes_bf16


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [
        ({"avx512_f": True, "avx512_vnni": True, "avx512_bf16": False, "amx_bf16": False}, False),
        ({"avx512_bf16": True, "amx_bf16": False}, True),
        ({"avx512_bf16": False, "amx_bf16": True}, True),
        ({"neon": True, "bf16": True}, True),
        ({"neon": True, "bf16": False}, False),
        ({}, False),
    ],
)
def test_the_processor_says_whether_it_computes_bf16(
    monkeypatch: pytest.MonkeyPatch, capabilities: dict[str, bool], expected: bool
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert computes_bf16(torch.device("cpu")) is expected
