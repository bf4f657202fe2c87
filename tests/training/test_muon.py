"""Muon: its orthogonalisation, its updates, and which parameters it takes."""

import copy
import math

import pytest
import torch
from torch import nn

from transformer.models.config import DecoderOnlyConfig, EncoderDecoderConfig
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.training import muon
from transformer.training.muon import STEPS, A, B, C, Muon, orthogonalize
from transformer.training.optimizer_config import MuonConfig
from transformer.training.optimizers import build_optimizer, muon_groups

SETTINGS = {
    "learning_rate": 0.02,
    "momentum": 0.95,
    "weight_decay": 0.0,
    "betas": (0.9, 0.99),
    "eps": 1e-10,
    "fused": True,
}


@pytest.fixture(autouse=True)
def without_bf16(monkeypatch):
    """The same products on every processor."""
    monkeypatch.setattr(muon, "computes_bf16", lambda device: False)


@pytest.mark.parametrize(("rows", "columns"), [(24, 24), (24, 60), (60, 24)])
def test_products_are_in_bfloat16_where_the_device_has_it(monkeypatch, rows, columns):
    torch.manual_seed(0)
    matrix = torch.randn(rows, columns)
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    precise = orthogonalize(matrix[None])[0]
    monkeypatch.setattr(muon, "computes_bf16", lambda device: device.type == "cpu")
    rounded = orthogonalize(matrix[None])[0]
    assert rounded.dtype == torch.float32
    assert torch.equal(rounded, rounded.bfloat16().float())
    assert 1e-4 < (rounded - precise).norm() / precise.norm() < 0.05
    reached = torch.diagonal(left.T @ rounded @ right.T)[values > 0.01 * values.max()]
    assert ((reached > 0.6) & (reached < 1.21)).all()


@pytest.mark.parametrize(("rows", "columns"), [(24, 24), (24, 60), (60, 24)])
def test_singular_values_come_near_one_and_singular_vectors_stay(rows, columns):
    torch.manual_seed(0)
    matrix = torch.randn(rows, columns)
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    result = orthogonalize(matrix[None])[0]
    # In the basis of the singular vectors it is diagonal, with the polynomials of each singular value.
    diagonal = left.T @ result @ right.T
    expected = values / (values**8).sum() ** 0.125
    for _ in range(STEPS):
        expected = A * expected + B * expected**3 + C * expected**5
    torch.testing.assert_close(diagonal, torch.diag(expected), atol=2e-4, rtol=0)
    large = values > 0.01 * values.max()
    assert ((expected[large] > 0.65) & (expected[large] < 1.21)).all()


@pytest.mark.parametrize("columns", [32, 96])
@pytest.mark.parametrize("smallest", [1e-6, 1e-3, 3e-3, 1e-2, 0.1, 0.999])
def test_the_steepest_start_that_keeps_the_rest_near_one(smallest, columns):
    """Whatever the spectrum: what is 0.006 of the largest comes between 0.65 and 1.21, and nothing above."""
    torch.manual_seed(0)
    left, right = (torch.linalg.qr(torch.randn(size, 32, dtype=torch.float64)).Q for size in (32, columns))
    values = torch.logspace(0, math.log10(smallest), 32, dtype=torch.float64)
    result = orthogonalize((left @ torch.diag(values) @ right.T).float()[None])[0].double()
    reached = torch.diagonal(left.T @ result @ right)
    assert reached.max() < 1.21
    assert reached[values > 6e-3].min() > 0.65


def test_what_rounding_leaves_above_one_does_not_grow():
    """A matrix of one singular value is divided by just that value, and bfloat16 rounds to within 0.4%."""
    value = torch.linspace(1, 1.008, 50, dtype=torch.float64)
    for _ in range(STEPS):
        value = A * value + B * value**3 + C * value**5
    assert value.min() > 0.6
    assert value.max() < 1.21


def test_matrices_of_a_batch_do_not_influence_each_other():
    torch.manual_seed(0)
    matrices = torch.stack([torch.randn(8, 12), 100 * torch.randn(8, 12), torch.zeros(8, 12)])
    together = orthogonalize(matrices)
    for one, result in zip(matrices, together, strict=True):
        torch.testing.assert_close(orthogonalize(one[None])[0], result, atol=1e-5, rtol=0)
    assert torch.equal(together[2], torch.zeros(8, 12))


def test_updates_are_those_of_the_formula():
    """Momentum, Nesterov, decoupled decay and the scale of tall matrices, against a loop written out."""
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(30, 10, dtype=torch.float64).float())
    optimizer = Muon([(weight, (30,))], [{"params": [nn.Parameter(torch.zeros(3))], "lr": 0.1}],
                     **SETTINGS | {"weight_decay": 0.1})  # fmt: skip
    expected, momentum = weight.detach().clone(), torch.zeros(30, 10)
    for _ in range(3):
        gradient = torch.randn(30, 10)
        weight.grad = gradient.clone()
        optimizer.step()
        momentum = 0.95 * momentum + 0.05 * gradient
        update = orthogonalize((0.05 * gradient + 0.95 * momentum)[None])[0]
        expected = expected * (1 - 0.02 * 0.1) - 0.02 * math.sqrt(3) * update
        torch.testing.assert_close(weight.detach(), expected, atol=1e-5, rtol=0)


def test_agrees_with_the_optimizer_of_torch():
    """torch has other polynomials and rounds to bfloat16: both come near the nearest orthogonal matrix, not equally."""
    torch.manual_seed(0)
    ours, theirs = nn.Parameter(torch.randn(16, 48)), nn.Parameter(torch.empty(16, 48))
    theirs.data.copy_(ours)
    start = ours.detach().clone()
    optimizer = Muon([(ours, (16,))], [{"params": [nn.Parameter(torch.zeros(3))], "lr": 0.1}], **SETTINGS)
    reference = torch.optim.Muon([theirs], lr=0.02, momentum=0.95, weight_decay=0.0, nesterov=True)
    for _ in range(4):
        ours.grad = torch.randn(16, 48)
        theirs.grad = ours.grad.clone()
        optimizer.step()
        reference.step()
    moved, reference_moved = (ours - start).flatten(), (theirs - start).flatten()
    assert torch.cosine_similarity(moved, reference_moved, 0).item() > 0.97
    assert moved.norm().item() == pytest.approx(reference_moved.norm().item(), rel=0.3)


def test_parts_of_a_fused_projection_are_updated_as_if_they_stood_alone():
    torch.manual_seed(0)
    gradient, start = torch.randn(24, 8), torch.randn(24, 8)
    fused = nn.Parameter(start.clone())
    parts = [nn.Parameter(part.clone()) for part in start.split((8, 4, 12))]
    rest = [{"params": [nn.Parameter(torch.zeros(3))], "lr": 0.1}]
    one = Muon([(fused, (8, 4, 12))], rest, **SETTINGS)
    many = Muon([(part, (len(part),)) for part in parts], rest, **SETTINGS)
    fused.grad = gradient
    for part, piece in zip(parts, gradient.split((8, 4, 12)), strict=True):
        part.grad = piece
    one.step()
    many.step()
    torch.testing.assert_close(fused.detach(), torch.cat([part.detach() for part in parts]), atol=1e-6, rtol=0)
    whole = nn.Parameter(start.clone())
    whole.grad = gradient
    Muon([(whole, (24,))], rest, **SETTINGS).step()
    assert (whole - fused).abs().max() > 1e-3  # together they would be updated otherwise


def language_model(**changes) -> DecoderOnly:
    torch.manual_seed(0)
    sizes = {"num_layers": 2, "d_model": 16, "num_heads": 2, "max_length": 8, "d_ff": 24, "dropout": 0.0}
    return DecoderOnly(DecoderOnlyConfig(name="decoder_only", **sizes | changes), 11)


def translation_model(**changes) -> EncoderDecoder:
    torch.manual_seed(0)
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 2, "d_model": 16, "num_heads": 2, "max_length": 8}
    return EncoderDecoder(EncoderDecoderConfig(name="encoder_decoder", **sizes | changes), 11, 11)


@pytest.mark.parametrize(
    ("model", "num_matrices", "num_embeddings", "num_outputs"),
    [
        (language_model(), 8, 2, 0),  # learned positions, tied
        (language_model(tie_embeddings=False, position="rotary"), 8, 1, 1),
        (language_model(activation="swiglu", num_kv_heads=1), 8, 2, 0),
        (translation_model(), 4 + 2 * 7, 1, 0),
        (translation_model(tie_embeddings="none"), 4 + 2 * 7, 2, 1),
    ],
)
def test_every_parameter_has_its_place(model, num_matrices, num_embeddings, num_outputs):
    groups = muon_groups(model)
    assert [len(group) for group in groups[:3]] == [num_matrices, num_embeddings, num_outputs]
    placed = [p for p, _ in groups.matrices] + groups.embeddings + groups.outputs + groups.others
    assert sorted(map(id, placed)) == sorted(map(id, model.parameters()))
    assert all(sum(rows) == len(matrix) for matrix, rows in groups.matrices)
    assert all(parameter.dim() == 1 for parameter in groups.others)


def test_fused_projections_have_their_parts():
    groups = muon_groups(language_model(activation="swiglu", num_kv_heads=1))
    assert [rows for _, rows in groups.matrices[:4]] == [(16, 8, 8), (16,), (24, 24), (16,)]
    groups = muon_groups(translation_model())
    assert [rows for _, rows in groups.matrices[4:11]] == [(16, 16, 16), (16,), (16,), (16, 16), (16,), (64,), (16,)]


CONFIG = MuonConfig(
    name="muon", learning_rate=0.02, embedding_learning_rate=0.01, output_learning_rate=0.004, other_learning_rate=0.005
)


def train(model: DecoderOnly, optimizer: torch.optim.Optimizer, steps: range) -> list[float]:
    losses = []
    for step in steps:
        tokens = torch.randint(11, (4, 8), generator=torch.Generator().manual_seed(step)).sort().values
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("tied", [True, False])
def test_a_stored_state_goes_on_exactly(tied):
    model = language_model(tie_embeddings=tied)
    optimizer = build_optimizer(CONFIG, model, fused=True)
    train(model, optimizer, range(5))
    other = copy.deepcopy(model)
    resumed = build_optimizer(CONFIG, other, fused=True)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert train(model, optimizer, range(5, 9)) == train(other, resumed, range(5, 9))
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


def test_each_group_follows_its_own_learning_rate():
    """A schedule that multiplies the rates of the shared groups reaches AdamW too, also after loading a state."""
    model = language_model(tie_embeddings=False)
    optimizer = build_optimizer(CONFIG, model, fused=True)
    assert [group["lr"] for group in optimizer.param_groups] == [0.02, 0.01, 0.004, 0.005]
    optimizer.load_state_dict(optimizer.state_dict())
    for group in optimizer.param_groups[1:]:
        group["lr"] = 0.0
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    train(model, optimizer, range(1))
    moved = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert moved == {name for name in before if "layers" in name and "norm" not in name and "bias" not in name}


def test_it_learns_in_fewer_steps_than_it_begins_with():
    model = language_model(tie_embeddings=False, zero_outputs=True)
    losses = train(model, build_optimizer(CONFIG, model, fused=True), range(60))
    assert losses[0] == pytest.approx(math.log(11), abs=1e-5)  # a zero output layer
    assert sum(losses[-5:]) / 5 < 0.75 * losses[0]


def test_parameters_without_gradient_stay():
    """As in a step that skips a layer."""
    model = language_model()
    optimizer = build_optimizer(CONFIG, model, fused=True)
    train(model, optimizer, range(2))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer.zero_grad()
    model.output.weight.grad = torch.ones_like(model.output.weight)
    optimizer.step()
    changed = {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}
    assert changed == {"embedding.weight"}
