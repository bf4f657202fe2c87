"""What the benchmarks count: operations by formula against torch's counter, data sheets, memory, attention, sizes."""

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode
from typer.testing import CliRunner

from transformer.data.batches.collate import TextBatch
from transformer.models.config import DecoderOnlyConfig, EncoderDecoderConfig
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.nn.loss import cross_entropy

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.fixture(autouse=True)
def _scripts(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(SCRIPTS), *sys.path])


def counted(loss):
    """Operations of a loss and its gradients, by torch."""
    counter = FlopCounterMode(display=False)
    with sdpa_kernel(SDPBackend.MATH), counter:  # the counter knows no fused attention of a CPU
        loss().backward()
    return counter.get_total_flops()


@pytest.mark.parametrize("heads", [{}, {"num_kv_heads": 1}, {"activation": "swiglu"}])
def test_operations_of_a_translation_step(heads):
    flops = import_module("peers.flops")
    config = EncoderDecoderConfig(
        name="encoder_decoder", num_encoder_layers=2, num_decoder_layers=1, d_model=32, num_heads=4, d_ff=48,
        max_length=40, **heads,
    )  # fmt: skip
    model = EncoderDecoder(config, 60, 60)
    source, target = torch.randint(60, (3, 31)), torch.randint(60, (3, 17))

    def loss():
        memory = model.encode(source).memory_BSD
        hidden = model.decode(target, memory).hidden_BTD
        return cross_entropy(hidden, model.output.weight, target, torch.ones_like(target, dtype=torch.bool)).loss

    formula = flops.step_flops(config, 60, [flops.Lengths(31, 17)] * 3)
    assert formula == pytest.approx(counted(loss), rel=0.02)


def test_operations_of_a_language_model_step():
    flops = import_module("peers.flops")
    config = DecoderOnlyConfig(name="decoder_only", num_layers=3, d_model=32, num_heads=2, max_length=64, bias=False)
    model, tokens = DecoderOnly(config, 70), torch.randint(70, (2, 64))
    batch = TextBatch(torch.arange(2), tokens, tokens, torch.ones_like(tokens, dtype=torch.bool))

    def loss():
        hidden = model.hidden(batch.tokens_BL).hidden_BLD
        return cross_entropy(hidden, model.output.weight, batch.labels_BL, batch.scored_BL).loss

    formula = flops.step_flops(config, 70, [flops.Lengths(0, 64)] * 2)
    assert formula == pytest.approx(counted(loss), rel=0.02)


def test_products_are_measured():
    flops, machine = import_module("peers.flops"), import_module("peers.machine")
    shapes = flops.Shapes({flops.Product(64, 32, 48): 2})
    for precision in machine.Precision:
        assert 1e6 < flops.measured_flops(shapes, torch.device("cpu"), precision) < 1e15


class Products(TorchDispatchMode):
    """Counts matrix products; the clock that it gives goes on by a second for each, and by an hour for each wait."""

    def __init__(self):
        super().__init__()
        self.count, self.waits = 0, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count += function is torch.ops.aten.mm.default
        return function(*args, **(kwargs or {}))

    def wait(self, device):
        self.waits += 1

    def clock(self):
        return self.count + 3600 * self.waits


def test_a_gpu_is_given_many_products_before_it_is_waited_for(monkeypatch):
    flops, machine = import_module("peers.flops"), import_module("peers.machine")
    assert flops.CALLS == {"cpu": 1, "cuda": 50}
    shapes = flops.Shapes({flops.Product(4, 2, 3): 2})
    with Products() as products:
        monkeypatch.setattr(flops, "synchronize", products.wait)
        monkeypatch.setattr(flops.time, "perf_counter", products.clock)
        for calls in (1, 50):
            monkeypatch.setitem(flops.CALLS, "cpu", calls)
            products.count = products.waits = 0
            measured = flops.measured_flops(shapes, torch.device("cpu"), machine.Precision.FP32, repeats=3)
            # Three products, each timed four times; the wait for the last of each timing is part of its time.
            assert (products.count, products.waits) == (12 * calls, 24)
            assert measured == pytest.approx(48 / (1 + 3600 / calls))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H200", 989e12),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA H100 NVL", 835e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA A100 80GB PCIe", 312e12),
        ("NVIDIA A100-PCIE-40GB", 312e12),
        ("NVIDIA L4", 121e12),
        ("NVIDIA L40S", 362e12),
        ("NVIDIA L40", None),
        ("NVIDIA GeForce RTX 4090", 165.2e12),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 3090 Ti", None),
        ("NVIDIA H100 Unheard", None),
        ("NVIDIA Unheard 1", None),
        ("CPU", None),
    ],
)
def test_data_sheets(name, expected):
    machine = import_module("peers.machine")
    assert machine.peak_flops(name, machine.Precision.BF16) == expected


def test_batches_arrive_in_their_order_and_whole():
    machine = import_module("peers.machine")
    batches = [TextBatch(*(torch.full((2, 3), number) for _ in range(4))) for number in range(5)]
    arrived = list(machine.moved(iter(batches), torch.device("cpu")))
    assert [int(batch.labels_BL[0, 0]) for batch in arrived] == [0, 1, 2, 3, 4]
    assert all(batch.segments_BL is None for batch in arrived)
    assert list(machine.moved([], torch.device("cpu"))) == []


def run_alone(program):
    """Run it in a process of its own: training, once in a process, lets it keep freed memory for good."""
    environment = os.environ | {"PYTHONPATH": str(SCRIPTS)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_peak_memory_is_of_what_came_since():
    run_alone("""
import torch
from peers import machine

device = torch.device("cpu")
block = torch.ones(30_000_000)  # 120 MB
del block
machine.forget_peak(device)
before = machine.taken(device)
assert machine.peak(device) - before < 50e6
block = torch.ones(30_000_000)
assert machine.peak(device) - before > 100e6
""")


def test_ways_to_attend_agree_and_are_timed(tmp_path):
    file = tmp_path / "figures.json"
    command = ["attention", "--batch", "3", "--heads", "2", "--head-size", "8", "--length", "6", "--repeats", "2",
               "--threads", "1", "--json", str(file)]  # fmt: skip
    result = CliRunner().invoke(import_module("benchmark").app, command)
    assert result.exit_code == 0, result.output
    figures = json.loads(file.read_text(encoding="utf-8"))["figures"]
    assert {kind: len(rows) for kind, rows in figures.items()} == {"fp32": 15, "bf16": 15}
    assert all(0 < row["ms_min"] <= row["ms"] <= row["ms_max"] for rows in figures.values() for row in rows)


def test_another_attention_is_refused(monkeypatch):
    benchmark, machine = import_module("attention_benchmark"), import_module("peers.machine")
    blind = benchmark.Case("all", 6, 6, causal=False, padded=False)
    monkeypatch.setitem(benchmark.WAYS, "ours", lambda inputs, case: benchmark.ours(inputs, blind))
    causal = benchmark.Case("causal", 6, 6, causal=True, padded=False)
    with pytest.raises(ValueError, match="ours does not compute the same"):
        benchmark.timed(causal, (2, 2, 4), machine.Precision.FP32, torch.device("cpu"), 1)


@pytest.mark.parametrize("module", ["memory_benchmark", "decode_memory"])
def test_freed_memory_is_given_back_in_the_processes_whose_peak_is_measured(module, monkeypatch):
    """glibc would keep freed blocks for later, and the peak would be of those too."""
    benchmark, given = import_module(module), {}

    def run(command, **settings):
        given.update(settings["env"])
        return SimpleNamespace(stdout="12 34" if module == "decode_memory" else "12")

    monkeypatch.setattr(benchmark.subprocess, "run", run)
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "123456")
    monkeypatch.setenv("SOMETHING", "else")
    if module == "decode_memory":
        assert benchmark.peaks_of(benchmark.Variant.NOTHING, 10, 1, 5) == (12, 34)
    else:
        machine, size = import_module("peers.machine"), benchmark.Size(2, 3, 4)
        where = machine.Precision.FP32, machine.DeviceName.CPU
        assert benchmark.peak_of(benchmark.Who.OURS, size, 8, 1, *where, loss=True) == 12
    assert (given["MALLOC_MMAP_THRESHOLD_"], given["MALLOC_TRIM_THRESHOLD_"]) == ("65536", "0")
    assert given["SOMETHING"] == "else"


@pytest.mark.parametrize("text", ["128x32", "0x2x3", "axbxc", "1x2x3x4"])
def test_sizes_that_are_none(text):
    result = CliRunner().invoke(import_module("benchmark").app, ["memory", "--size", text])
    assert result.exit_code == 2
    assert "`--size` must be like 128x32x8000" in result.output


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_our_loss_takes_less_memory_than_all_logits():
    """Gradients and logits of 64 x 32 positions and 8,000 tokens are 66 MB each in float32."""
    run_alone("""
import torch
import memory_benchmark as memory
from peers import machine

ours, torchs = (
    memory.run(who, memory.Size(64, 32, 8000), 16, 1, machine.Precision.FP32, torch.device("cpu"), loss=True)
    for who in (memory.Who.OURS, memory.Who.TORCH)
)
assert ours + 60e6 < torchs, (ours, torchs)
""")
