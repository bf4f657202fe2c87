"""The audit as a library: a user's own module, what it leaves alone, what it says, and what it refuses."""

import copy
import dataclasses
import json
import math
import random
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from transformer.audit.checks.decoding import splits
from transformer.audit.model import AuditedModel, CausalLanguageModel
from transformer.audit.outcome import Measurement
from transformer.audit.run import CHECKS, audit
from transformer.audit.sampling import Sampling, spread
from transformer.audit.subject import Subject, larger, other_ids, padded, smaller
from zoo.decoder import Decoder, language_model
from zoo.plain import Plain
from zoo.translator import translation_model

README = Path(__file__).parents[2] / "README.md"


def test_plain_module_needs_three_arguments() -> None:
    report = audit(CausalLanguageModel(Plain().float(), vocab_size=11, max_length=16))
    assert report.passed
    missing = {row.name: row.sentence for row in report.rows if row.status == "not applicable"}
    assert {name for name in missing if not name.startswith("source")} == {
        "dropout on", "encoder leak", "target padded left", "cached", "cached, padded", "cached, rows chosen",
        "cached, two sessions", "fully masked rows", "residual kept", "weights tied", "saved and loaded", "label shift",
        "padding unscored", "initial loss", "initial scale",
    }  # fmt: skip
    assert missing["cached"] == "the adapter gives no decoding with a cache (`cache`)"
    assert missing["label shift"] == "the adapter gives no loss (`loss_call`)"
    assert all(missing.values())


class FarLeak(Plain):
    """The 41st token is seen by all."""

    def forward(self, ids: Tensor) -> Tensor:
        logits = super().forward(ids)
        return logits + self.output(self.embedding(ids[:, 40:41])) if ids.shape[1] > 40 else logits


class EachAlone(Plain):
    def forward(self, ids: Tensor) -> Tensor:
        return self.output(self.embedding(ids))  # type: ignore[no-any-return]


@pytest.mark.parametrize(("module", "check"), [(FarLeak, "future changed"), (EachAlone, "past seen")])
def test_what_only_long_inputs_or_later_outputs_show(module: type[Plain], check: str) -> None:
    report = audit(CausalLanguageModel(module().float(), vocab_size=11, max_length=64))
    assert [row.name for row in report.failures] == [check]


def test_readme_example_catches_a_deliberate_leak(capsys: pytest.CaptureFixture[str]) -> None:
    torch.set_default_dtype(torch.float32)
    section = README.read_text(encoding="utf-8").partition("\n## The audit\n")[2].partition("\n## ")[0]
    code, printed = re.search(r"```python\n(.*?)```\n\n    ([^\n]+)\n", section, re.DOTALL).groups()  # type: ignore[union-attr]
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out == f"{printed}\n"
    assert "future changed" in printed


@pytest.mark.parametrize("make", [language_model, translation_model])
def test_audit_leaves_the_module_and_all_random_numbers_alone(make: object) -> None:
    model: AuditedModel = make()  # type: ignore[operator]
    model.module.train()
    weights = copy.deepcopy(model.module.state_dict())
    first = next(model.module.parameters())
    first.grad = torch.ones_like(first)
    torch.manual_seed(5)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]
    with torch.no_grad():
        assert audit(model).passed
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]
    assert model.module.training
    assert torch.equal(first.grad, torch.ones_like(first))
    assert all(parameter.grad is None for parameter in list(model.module.parameters())[1:])
    assert not any(each._forward_hooks for each in model.module.modules())
    assert all(torch.equal(weights[name], tensor) for name, tensor in model.module.state_dict().items())


def test_report_is_the_same_each_time_and_plain() -> None:
    model = language_model()
    one, two = audit(model), audit(model)
    assert one.rows == two.rows
    plain = json.loads(json.dumps(one.to_plain(), allow_nan=False))
    assert plain["passed"] is True
    assert [row["name"] for row in plain["checks"]] == [check.name for check in CHECKS]
    assert plain["checks"][0] == {
        "name": "runs", "theme": "basics", "status": "pass", "measured": 0, "tolerance": 0, "at_least": False,
        "sentence": "logits that are not finite, over 4 shapes of the input",
    }  # fmt: skip


def test_numbers_that_are_not_finite_keep_no_bound() -> None:
    class Undefined(Decoder):
        def forward(self, ids: Tensor, *rest: object) -> Tensor:
            return super().forward(ids) * (torch.nan if ids.shape[1] == 5 else 1.0)

    report = audit(language_model(Undefined, masked_call=None, cache=None, loss_call=None))
    assert [row.name for row in report.failures] == ["stepwise"]  # the only one with a sequence of five
    plain = json.loads(json.dumps(report.to_plain(), allow_nan=False))
    assert next(row["measured"] for row in plain["checks"] if row["name"] == "stepwise") == "nan"
    assert not Measurement(math.nan, 1.0, "").passed
    assert not Measurement(math.nan, 0.0, "", at_least=True).passed
    for order in ((math.nan, 1.0), (1.0, math.nan)):
        assert math.isnan(larger(*order))
        assert math.isnan(smaller(*order))
    assert (larger(1.0, 2.0), smaller(1.0, 2.0)) == (2.0, 1.0)


def test_model_that_raises_fails_with_its_message() -> None:
    class Raising(Decoder):
        def forward(self, ids: Tensor, *rest: object) -> Tensor:
            raise KeyError("no such head")

    report = audit(language_model(Raising))
    assert [row.name for row in report.failures] == ["runs"]
    assert report.row("runs").sentence == "the model raised KeyError: 'no such head'"
    assert {row.sentence for row in report.rows[1:]} == {"left out, because `runs` fails"}


def test_module_without_float64_is_compared_in_float32() -> None:
    class Single(Decoder):
        def forward(self, ids: Tensor, *rest: object) -> Tensor:
            x = self.embedding(ids)
            return x @ torch.ones(16, 20, dtype=torch.float32) + super().forward(ids)

    report = audit(language_model(Single, masked_call=None, cache=None, loss_call=None))
    assert report.failures == []
    assert "the module does not run in float64; outputs were compared in float32" in report.notes
    assert 1e-6 < (report.row("stepwise").tolerance or 0) < 1e-2


def test_less_precision_inside_widens_the_tolerance() -> None:
    class Inside(Decoder):
        def visible(self, real: Tensor, num_new: int) -> Tensor:
            return super().visible(real, num_new)

        def forward(self, ids: Tensor, *rest: object) -> Tensor:
            return super().forward(ids, *rest).float().double()  # type: ignore[arg-type]

    exact = audit(language_model()).row("stepwise").tolerance
    widened = audit(language_model(Inside)).row("stepwise").tolerance
    assert exact is not None
    assert widened is not None
    assert exact < 1e-9 < 1e-7 < widened < 1e-3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 3}, "`vocab_size` must be at least 4 to be audited, but is 3."),
        ({"max_length": 2}, "`max_length` must be at least 4 to be audited, but is 2."),
        ({"pad_id": 20}, "`pad_id` must be from 0 to 19, but is 20."),
        (
            {"tied": (("embedding.weight", "head.weight"),)},
            "`tied` names the parameter `head.weight`, which the module",
        ),
    ],
)
def test_settings_that_do_not_fit(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        dataclasses.replace(language_model(), **changes)


def test_module_that_cannot_be_copied() -> None:
    class Fixed(Decoder):
        def __deepcopy__(self, memo: object) -> "Fixed":
            raise TypeError("one of a kind")

    with pytest.raises(ValueError, match="the module cannot be copied, which the audit must do: one of a kind"):
        audit(language_model(Fixed))


def test_what_is_sampled_is_said() -> None:
    model = dataclasses.replace(language_model(), vocab_size=20, max_length=16)
    quick, full = Sampling.of(model, quick=True), Sampling.of(model, quick=False)
    assert quick.notes(model) == [
        "the longest sequence tried has 5 of 16 tokens",
        "ids are drawn at random; 6 of 20 labels were tried",
    ]
    assert full.notes(model) == [
        "4 of 15 positions of a long sequence were changed",
        "ids are drawn at random; 16 of 20 labels were tried",
    ]
    assert (full.target_length, full.source_length, full.padding, full.long_length) == (8, 7, 3, 16)


def test_inputs_never_hold_padding_ids() -> None:
    for pad_id in (0, 3, 10):
        model = CausalLanguageModel(Plain(), vocab_size=11, max_length=16, pad_id=pad_id)
        subject = Subject(model, Sampling.of(model, quick=True), torch.device("cpu"))
        ids = subject.ids(50, 8, 11, salt=9)
        assert set(ids.flatten().tolist()) == set(range(11)) - {pad_id}
        for step in (1, 4):
            others = other_ids(ids, 11, pad_id, step)
            assert set(others.flatten().tolist()) == set(range(11)) - {pad_id}
            assert bool((others != ids).all())


def test_small_parts() -> None:
    assert splits(3) == [[3], [1, 2], [2, 1], [1, 1, 1]]
    assert len(splits(5)) == 16
    assert spread(4, 0, 9) == [0, 3, 6, 9]
    assert spread(9, 2, 5) == [2, 3, 4, 5]
    ids, real = torch.tensor([[5, 6]]), torch.ones(1, 2, dtype=torch.bool)
    left, right = padded(ids, real, 2, "left", 0), padded(ids, real, 1, "right", 9)
    assert (left[0].tolist(), left[1].tolist()) == ([[0, 0, 5, 6]], [[False, False, True, True]])
    assert (right[0].tolist(), right[1].tolist()) == ([[5, 6, 9]], [[True, True, False]])
