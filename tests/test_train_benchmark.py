"""`scripts/benchmark.py train-translation` and `train-lm`: equal batches, equal losses, what they count and refuse."""

import gzip
import json
import platform
import sys
import time
from importlib import import_module
from io import StringIO
from pathlib import Path

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from transformer.data.batches.collate import TextBatch, TranslationBatch

SCRIPTS = Path(__file__).parents[1] / "scripts"
has_glibc = platform.libc_ver()[0] == "glibc"
WORDS = ["a dog runs", "two men in black sit", "a girl on the sand", "the man has a red hat and a blue coat"]


class Here:
    """Stands in for a contestant's process, which takes seconds to start."""

    def __init__(self, build, threads):
        self.run = build()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def __call__(self, *arguments):
        start = time.perf_counter()
        return import_module("peers.contest").Answer(self.run(*arguments), time.perf_counter() - start)


@pytest.fixture(autouse=True)
def _scripts(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(SCRIPTS), *sys.path])
    for name in ("train_translation_benchmark", "train_lm_benchmark"):
        monkeypatch.setattr(import_module(name), "Worker", Here)


@pytest.fixture
def corpus(tmp_path):
    """A folder as Multi30k's: 120 pairs of several lengths."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    for split, count in (("train", 120), ("val", 4), ("test_2016_flickr", 4)):
        for side, mark in (("en", "."), ("de", " !")):
            lines = [f"{WORDS[n % 4]} {' '.join(str(n)) * (n % 3)}{mark}\n" for n in range(count)]
            (folder / f"{split}.{side}.gz").write_bytes(gzip.compress("".join(lines).encode()))
    return folder


@pytest.fixture
def shared(corpus, tmp_path):
    """What the contestants of a tiny race are built from."""
    benchmark, machine = import_module("train_translation_benchmark"), import_module("peers.machine")
    size = benchmark.Size(d_model=16, layers=1, vocab_size=270, max_tokens=256)
    return benchmark.prepare(corpus, size, tmp_path, machine.DeviceName.CPU)


@pytest.fixture
def few(monkeypatch):
    """Leaves out what takes long to start: compilation, and libraries of others."""
    benchmark = import_module("train_translation_benchmark")
    ways = {name: way for name, way in benchmark.ours_training.WAYS.items() if "compiled" not in name}
    monkeypatch.setattr(benchmark.ours_training, "WAYS", ways)
    monkeypatch.setattr(benchmark, "PACKAGES", {})


def race_of(corpus, *options):
    fixed = ["train-translation", corpus, "--d-model", 16, "--layers", 1, "--vocab-size", 270, "--steps", 1]
    more = ["--max-tokens-per-batch", 256, "--rounds", 1, "--precision", "fp32", "--part", "identical", "--threads", 1]
    result = CliRunner().invoke(import_module("benchmark").app, [*map(str, (*fixed, *more, *options))])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.usefixtures("few")
def test_a_whole_race(corpus, tmp_path):
    file = tmp_path / "figures.json"
    shown = race_of(corpus, "--json", file)
    rows = json.loads(file.read_text(encoding="utf-8"))["figures"]["identical_fp32"]
    names = [row["name"] for row in rows]
    assert names[:3] == ["ours, plain loop", "ours, Lightning", "torch.nn.Transformer"]
    if has_glibc:
        assert names[3:] == ["torch.nn.Transformer, memory kept"]
        assert "let the C library keep freed memory" in " ".join(shown.split())
    for row in rows:
        assert 0 < row["tokens_per_second_min"] <= row["tokens_per_second"] <= row["tokens_per_second_max"]
        assert 0 <= row["target_padding"] < 0.5
        assert row["fastest_peer"] == "torch.nn.Transformer"
    # All had the same batches.
    assert len({(row["target_padding"], row["source_padding"]) for row in rows}) == 1


@pytest.mark.usefixtures("few")
def test_a_race_without_peers_has_no_column_of_them(corpus):
    shown = race_of(corpus, "--no-peers")
    assert "| ours, Lightning " in shown
    assert "fastest peer" not in shown
    assert "None" not in shown


@pytest.mark.skipif(not has_glibc, reason="another C library")
def test_a_peer_is_built_once_the_c_library_has_been_told_to_keep_memory(monkeypatch):
    kept_memory, told = import_module("peers.kept_memory"), []
    monkeypatch.setattr(kept_memory, "keep_freed_memory", lambda: told.append("told"))
    assert kept_memory.with_kept_memory(lambda: [*told, "built"]) == ["told", "built"]
    machine = import_module("peers.machine")
    assert kept_memory.has_effect(machine.DeviceName.CPU)
    assert not kept_memory.has_effect(machine.DeviceName.CUDA)


def test_every_pair_is_stored_once_in_batches_and_by_itself(shared):
    stored = import_module("peers.stored")
    batches, pairs = stored.load_batches(shared.folder, TranslationBatch), stored.load_pairs(shared.folder)
    assert sorted(torch.cat([batch.index_B for batch in batches]).tolist()) == list(range(120))
    from_batches = sorted(
        tuple(row[mask].tolist())
        for batch in batches
        for row, mask in zip(batch.labels_BT, batch.scored_BT, strict=True)
    )
    assert from_batches == sorted((*target, pairs.special.eos_id) for target in pairs.targets)


@pytest.mark.parametrize("kind", ["m2m100", "marian", "torch"])
def test_peers_start_with_our_loss(shared, kind):
    """Also with other weights than zero biases and unit gains, which would hide what is left out."""
    stored, machine = import_module("peers.stored"), import_module("peers.machine")
    model = stored.load_translating(shared.folder)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    stored.save_model(shared.folder, model)
    place = torch.device("cpu"), machine.Precision.FP32, None
    if kind == "torch":
        loop = import_module("peers.torch_training").translating(shared.folder, 0.1, *place)
    else:
        pytest.importorskip("transformers")
        training = import_module("peers.hugging_face_training")
        loop = training.translating(getattr(training, kind), shared.folder, 0.1, *place)
    assert loop.check.loss == pytest.approx(loop.check.expected, rel=1e-5)
    assert loop.model.training
    rates = {module.p for module in loop.model.modules() if isinstance(module, torch.nn.Dropout)}
    if kind == "torch":
        assert rates == {0.1, 0.0}
        assert {m.dropout for m in loop.model.modules() if isinstance(m, torch.nn.MultiheadAttention)} == {0.0}
    else:
        assert (loop.model.config.dropout, loop.model.config.attention_dropout) == (0.1, 0.0)
        assert loop.model.config.encoder_layerdrop == loop.model.config.decoder_layerdrop == 0


def test_a_lap_trains_and_counts_tokens_without_padding(shared):
    stored, laps = import_module("peers.stored"), import_module("peers.laps")
    precision = import_module("peers.machine").Precision.FP32
    loop = import_module("peers.torch_training").translating(shared.folder, 0.1, torch.device("cpu"), precision, None)
    before = [parameter.detach().clone() for parameter in loop.parameters]
    trained = loop(laps.Lap(first=1, steps=2))
    batches = stored.load_batches(shared.folder, TranslationBatch)[1:3]
    assert trained.amount.target == sum(int(batch.scored_BT.sum()) for batch in batches)
    assert trained.amount.target_positions == sum(batch.labels_BT.numel() for batch in batches)
    assert trained.amount.source == sum(int(batch.source_mask_BS.sum()) for batch in batches)
    assert all(not torch.equal(one, two) for one, two in zip(before, loop.parameters, strict=True))


def test_padded_batches_have_every_pair_once_an_epoch(shared):
    padded, stored = import_module("peers.padded"), import_module("peers.stored")
    laps, pairs = import_module("peers.laps"), stored.load_pairs(shared.folder)
    batches, amount = padded.padded_batches(pairs, 30, lambda batch: batch)(laps.Lap(0, 4))
    made = list(batches)
    assert sorted(torch.cat([batch.index_B for batch in made]).tolist()) == list(range(120))
    assert [len(batch.index_B) for batch in made] == [30] * 4
    assert amount().target == sum(len(target) + 1 for target in pairs.targets)
    assert amount().target_positions == sum(batch.labels_BT.numel() for batch in made)


def test_the_shipped_transformer_train_is_timed_by_its_own_report(shared):
    laps, machine = import_module("peers.laps"), import_module("peers.machine")
    runs = import_module("train_translation_benchmark")._ours_whole(shared, machine.Precision.FP32)
    trained = runs(laps.Lap(0, 2))
    assert trained.seconds > 0
    assert 0 < trained.amount.target <= trained.amount.target_positions <= 2 * 256


@pytest.mark.slow
def test_language_models_start_with_our_loss(tmp_path):
    benchmark, machine = import_module("train_lm_benchmark"), import_module("peers.machine")
    laps, text = import_module("peers.laps"), tmp_path / "input.txt"
    text.write_text("To be, or not to be, that is the question.\n" * 100, encoding="utf-8")
    shared = benchmark.prepare_nano(text, tmp_path / "shared", machine.DeviceName.CPU)
    names = benchmark.contestants(shared, machine.Precision.FP32, nano=True, peers=True, hugging_face=True)
    for name, build in names.items():
        if name.startswith("Hugging"):
            pytest.importorskip("transformers")
        contestant = build()
        check = contestant(None)
        assert check.loss == pytest.approx(check.expected, rel=1e-5), name
        trained = contestant(laps.Lap(1, 2))
        assert trained.seconds > 0
        if "recipe" not in name:
            assert trained.amount.target == 2 * 12 * 64, name
    stored = import_module("peers.stored").load_batches(shared.folder, TextBatch)
    assert stored[0].tokens_BL.shape == (12, 64)


def test_another_loss_is_refused():
    race, laps = import_module("peers.race"), import_module("peers.laps")
    console = Console(file=StringIO())
    assert race.check_losses(console, {"a": lambda lap: laps.Check(5.0, 5.0001), "b": lambda lap: None}) == {"a": 5.0}
    for loss in (5.01, float("nan")):
        with pytest.raises(ValueError, match="b does not compute the same"):
            race.check_losses(console, {"b": lambda lap, loss=loss: laps.Check(loss, 5.0)})


def test_figures_of_a_race():
    race, laps, machine = (import_module(f"peers.{name}") for name in ("race", "laps", "machine"))

    def rounds(*seconds):
        amount, memory = laps.Amount(30, 40, 100, 125), machine.Memory(1000, 5000)
        return [laps.Trained(value, amount, memory) for value in seconds]

    laps_of = {"ours": rounds(1, 2, 4), "slow": rounds(4, 4, 4), "fast": rounds(2, 2, 2)}
    result = race.Result(laps_of, [600.0, 500.0, 10], dict.fromkeys(laps_of, 800))
    ours, slow, fast = race.figures(result, race.Ceiling(5.0, None, 1000.0), ["slow", "fast"])
    assert ours["tokens_per_second"] == 50
    assert (ours["tokens_per_second_min"], ours["tokens_per_second_max"]) == (25, 100)
    assert ours["fastest_peer"] == "fast"
    assert ours["times_fastest_peer"] == 1.0  # by round 2, 1 and 0.5
    assert ours["speed_ratios"] == {"slow": 2.0, "fast": 1.0}
    assert ours["target_padding"] == pytest.approx(0.2)
    assert ours["source_padding"] == pytest.approx(0.25)
    assert ours["share_of_products"] == pytest.approx(0.5)  # 50 tokens of 5 operations beside 500
    assert ours["mfu"] == pytest.approx(0.25)
    assert (ours["peak_bytes"], ours["bytes_before"]) == (5000, 800)
    assert slow["times_fastest_peer"] == 0.5
    assert fast["times_fastest_peer"] == 1.0
    # Who has a setting that he does not come with is compared with, but is not the fastest as users run it.
    ours, slow, fast = race.figures(result, race.Ceiling(5.0, None, 1000.0), ["slow", "fast"], ["fast"])
    assert {row["fastest_peer"] for row in (ours, slow, fast)} == {"slow"}
    assert ours["speed_ratios"] == {"slow": 2.0, "fast": 1.0}
    assert (slow["times_fastest_peer"], fast["times_fastest_peer"]) == (1.0, 2.0)
    assert race.titled("a race", result) == "a race; its matrix products alone: 0 GFLOP/s"
    assert race.titled("a race", result._replace(products=[2e12, 3e12, 9e12])).endswith(": 3,000 GFLOP/s")
    assert race.titled("a race", result._replace(products=[])) == "a race"


def test_contestants_go_in_turn_and_the_first_round_does_not_count():
    race, laps, machine = (import_module(f"peers.{name}") for name in ("race", "laps", "machine"))
    asked = []

    def contestant(name):
        def ask(lap):
            asked.append((name, *lap))
            return laps.Trained(1.0, laps.Amount(0, 0, lap.steps, lap.steps), machine.Memory(0, 0))

        return ask

    contestants = {"a": contestant("a"), "b": contestant("b")}
    result = race.run(Console(file=StringIO()), contestants, race.Plan(2, 5, 10), race.Ceiling(1.0, None, None))
    assert asked == [(name, first, steps) for first, steps in ((0, 2), (5, 5), (10, 5)) for name in "ab"]
    assert [lap.amount.target for lap in result.laps["a"]] == [5, 5]
    asked.clear()
    race.run(Console(file=StringIO()), contestants, race.Plan(9, 5, 0), race.Ceiling(1.0, None, None))
    assert len(asked) == 4  # always one round that counts


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("command", ["train-translation", "train-lm"])
def test_a_gpu_that_is_not_there_is_refused(command, corpus):
    result = CliRunner().invoke(import_module("benchmark").app, [command, str(corpus), "--device", "cuda"])
    assert result.exit_code == 2
    assert "`--device cuda` needs a CUDA GPU, but this machine has none." in result.output
