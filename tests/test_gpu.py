"""What only a CUDA device can show; skipped without one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from transformer.inference.generator import Generator
from transformer.inference.translator import Translator
from transformer.nn.attention import attention
from transformer.training.config import TrainConfig
from transformer.training.run import train

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_both_backends_agree_on_the_device(dtype: torch.dtype, causal: bool, masked: bool) -> None:
    torch.manual_seed(1)
    query, key, value = (torch.randn(3, 4, length, 64, device="cuda", dtype=dtype) for length in (64, 96, 96))
    mask = torch.rand(3, 1, 1, 96, device="cuda") < 0.7 if masked else None
    if mask is not None:
        mask[1] = False  # a row of the batch that may attend to nothing
    fused = attention(query, key, value, mask=mask, causal=causal).output
    explicit = attention(query, key, value, mask=mask, causal=causal, backend="explicit").output
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(fused, explicit, rtol=tolerance, atol=tolerance)
    if masked:
        assert not fused[1].any()


@pytest.mark.parametrize("kind", ["translation", "text"])
@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed", "32-true"])
def test_trains_and_resumes_on_the_device(
    run_settings: Callable[..., dict[str, Any]], tmp_path: Path, kind: str, precision: str
) -> None:
    def config(steps: int) -> TrainConfig:
        changes = {"trainer.max_steps": steps, "trainer.accelerator": "gpu", "trainer.precision": precision}
        return TrainConfig.from_plain(run_settings(kind, changes))

    train(config(3), tmp_path, Console(quiet=True))
    result = train(config(6), tmp_path, Console(quiet=True), resume=True)
    assert (result.steps, result.device) == (6, "cuda:0")
    bundle = result.bundle
    if kind == "translation":
        texts = ["the answer is five", "we meet at noon"]
        assert Translator(bundle, "cuda").translate(texts) == Translator(bundle, "cpu").translate(texts)
    else:
        assert len(Generator(bundle, "cuda").generate(["the quick", "a"])) == 2
