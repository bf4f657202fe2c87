"""What only a CUDA device can show; skipped without one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from transformer.bundle import Bundle
from transformer.decoding.config import BeamConfig, DecodingConfig, GreedyConfig, SampleConfig
from transformer.inference.constraints import Constraints
from transformer.inference.generator import Generator
from transformer.inference.precision import set_precision
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
        changes: dict[str, Any] = {"trainer.max_steps": steps, "trainer.accelerator": "gpu"}
        changes |= {"trainer.precision": precision, "ema": {"decay": 0.9}}
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


@pytest.mark.parametrize(
    "decoding",
    [
        GreedyConfig(name="greedy", no_repeat_ngram=2, repetition_penalty=1.2),
        BeamConfig(name="beam", size=4, coverage_penalty=0.1),
        BeamConfig(name="beam", size=4, groups=2, diversity=0.5),
        SampleConfig(name="sample", top_k=5, seed=3),
    ],
    ids=["greedy", "beam", "groups", "sample"],
)
def test_searches_give_what_they_give_on_the_cpu(tiny_bundle: Callable[..., Bundle], decoding: DecodingConfig) -> None:
    texts = ["abc def", "h", "gfedcba abc", "bb"]
    for name, user in (("encoder_decoder", Translator), ("decoder_only", Generator)):
        if name == "decoder_only" and isinstance(decoding, BeamConfig) and decoding.coverage_penalty > 0:
            continue
        found = [user(tiny_bundle(name), device).search(texts, decoding) for device in ("cpu", "cuda")]
        assert [best[0].tokens for best in found[0]] == [best[0].tokens for best in found[1]]
        for on_cpu, on_cuda in zip(*found, strict=True):
            assert on_cuda[0].score == pytest.approx(on_cpu[0].score, abs=1e-3)


def test_phrases_and_ensembles_on_the_device(tiny_bundle: Callable[..., Bundle]) -> None:
    demands = [Constraints(required=(("ab",),), banned=("c",)), Constraints(prefix="ba")]
    bundles = [tiny_bundle("encoder_decoder", seed=seed) for seed in (1, 2)]
    beam = BeamConfig(name="beam", size=4)
    found = []
    for device in ("cpu", "cuda"):
        translator = Translator(bundles[0], device, ensemble=bundles[1:])
        found.append(translator.translate(["abc def", "hgf"], beam, constraints=demands))
    assert found[0] == found[1]
    assert found[0][1].startswith("ba")


def test_a_model_in_bf16_answers(tiny_bundle: Callable[..., Bundle]) -> None:
    bundle = tiny_bundle("encoder_decoder", d_model=64, num_heads=4)
    in_bf16 = Bundle(bundle.config, set_precision(bundle.model, "bf16", "cuda"), bundle.source_tokenizer,
                     bundle.target_tokenizer)  # fmt: skip
    assert in_bf16.model.output.weight.dtype == torch.bfloat16
    [[best]] = Translator(in_bf16, "cuda").search(["abc def"], BeamConfig(name="beam", size=4))
    assert best.tokens
