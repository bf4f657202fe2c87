"""The audit of modules that it was told little about: torch's own layers, dropout and positions of other kinds."""

import torch
from torch import Tensor, nn

from transformer.audit.model import CausalLanguageModel
from transformer.audit.outcome import CheckResult
from transformer.audit.run import audit
from zoo.plain import Plain


class Torch(nn.Module):
    """The layers that torch brings along, copies of one another."""

    def __init__(self, *, as_tuple: bool = False) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.embedding, self.output, self.as_tuple = nn.Embedding(11, 16), nn.Linear(16, 11), as_tuple

    def forward(self, ids: Tensor) -> Tensor | tuple[Tensor]:
        hidden = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1)
        logits = self.output(self.layers(self.embedding(ids), mask=hidden))
        return (logits,) if self.as_tuple else logits


def test_layers_that_begin_equal_are_no_untied_copies() -> None:
    torch.manual_seed(0)
    report = audit(CausalLanguageModel(Torch(), vocab_size=11, max_length=16))
    assert report.passed, report.failures


def test_outputs_that_are_no_tensor_are_the_adapters_matter() -> None:
    model = Torch(as_tuple=True)
    [failure] = audit(CausalLanguageModel(model, vocab_size=11, max_length=16)).failures
    assert failure.sentence == (
        "the call must give the logits as a tensor, but gives a tuple; take them out of it in `call`"
    )

    def call(module: nn.Module, ids: Tensor) -> Tensor:
        return module(ids)[0]  # type: ignore[no-any-return]

    assert audit(CausalLanguageModel(model, vocab_size=11, max_length=16, call=call)).passed


class TorchDropout(Torch):
    """Dropout of the attention's weights alone, which torch's module keeps as a number."""

    def __init__(self) -> None:
        super().__init__()
        for module in self.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0


class FunctionalDropout(Plain):
    def forward(self, ids: Tensor) -> Tensor:
        return nn.functional.dropout(super().forward(ids), 0.1, self.training)


def test_dropout_that_is_no_module_of_its_own() -> None:
    def row_of(module: nn.Module, has_dropout: bool | None = None) -> CheckResult:
        model = CausalLanguageModel(module, vocab_size=11, max_length=16, has_dropout=has_dropout)
        return next(row for row in audit(model, quick=True).rows if row.name == "dropout on")

    assert row_of(TorchDropout()).status == "pass"
    silent = row_of(FunctionalDropout())
    assert silent.sentence == "no module with dropout was found; if there is dropout, say so (`has_dropout`)"
    assert row_of(FunctionalDropout(), True).status == "pass"
    assert row_of(Plain(), True).status == "fail"
    assert row_of(Plain(), False).sentence == "the model has no dropout"


class FewPositions(Plain):
    """Learned positions, fewer than the adapter promises."""

    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Embedding(12, 11)

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(ids) + self.position(torch.arange(ids.shape[1]))


def test_input_too_long_for_the_module_is_told_as_such() -> None:
    [failure] = audit(CausalLanguageModel(FewPositions(), vocab_size=11, max_length=16)).failures
    assert failure.name == "runs"
    assert failure.sentence == (
        "an input of 16 tokens, which `max_length` allows, raised IndexError: index out of range in self"
    )
    assert audit(CausalLanguageModel(FewPositions(), vocab_size=11, max_length=12)).passed


def test_frozen_module_needs_no_gradient() -> None:
    model = Plain().requires_grad_(False)
    report = audit(CausalLanguageModel(model, vocab_size=11, max_length=16))
    assert report.passed
    assert "no parameter is trained" in {row.sentence for row in report.rows if row.name == "gradients flow"}
