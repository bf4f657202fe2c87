"""`scripts/benchmark.py decode` and `decode-memory`: what they print, count and refuse."""

import gzip
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from importlib import import_module
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from transformer.bundle import save_bundle

SCRIPTS = Path(__file__).parents[1] / "scripts"
ENGLISH = ["a dog runs", "two men in black", "a man", "a girl sits on the sand"]
GERMAN = ["ein hund", "zwei", "ein mann", "ein kind am meer"]


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
    monkeypatch.setattr(import_module("decode_benchmark"), "Worker", Here)


@pytest.fixture
def corpus(tmp_path):
    """A folder of four sentence pairs."""
    for side, lines in (("en", ENGLISH), ("de", GERMAN)):
        text = "".join(line + "\n" for line in lines)
        (tmp_path / f"test_2016_flickr.{side}.gz").write_bytes(gzip.compress(text.encode()))
    return tmp_path


@pytest.fixture
def decode(tiny_bundle, corpus, tmp_path, monkeypatch):
    """Run the command on a bundle of random weights: status, output and figures."""
    monkeypatch.setattr(import_module("decode_benchmark"), "LM_TOKENS", 3)

    def run(*arguments, name="encoder_decoder", **settings):
        save_bundle(tmp_path / "bundle", tiny_bundle(name, **{"max_length": 32, **settings}), "card")
        file = tmp_path / "figures.json"
        fixed = ["decode", tmp_path / "bundle", corpus, "--json", file, "--beam", 2]
        result = CliRunner().invoke(
            import_module("benchmark").app, [*map(str, fixed), "--max-tokens", "6", "--repeats", "2", *arguments]
        )
        figures = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
        return result.exit_code, result.output, figures

    return run


def test_ours_alone(decode):
    status, output, written = decode("--no-peers", "--equal-length", "4", "--latency-lines", "2", "--threads", "1")
    assert status == 0, output
    figures = written["figures"]
    assert list(figures) == [
        "throughput",
        "equal_length",
        "latency",
        "language_model_batch_1",
        "language_model_batch_16",
    ]
    for part in figures.values():
        assert part[0]["name"] == "ours float32"
        assert part[0]["identical"] == 1
        assert {row["name"] for row in part} <= {"ours float32", "ours bf16", "ours int8"}  # as the machine can
        assert all(0 < row["seconds_min"] <= row["seconds"] <= row["seconds_max"] for row in part)
    equal, latency = figures["equal_length"][0], figures["latency"][0]
    assert equal["tokens_per_second"] == pytest.approx(4 * equal["sentences_per_second"])  # all have four tokens
    assert latency["sentences_per_second"] * latency["seconds"] == pytest.approx(2)
    assert "4 sentences, beam 2, batches of 64, every output of 4 tokens" in output
    assert written["settings"] == {"lines": 4, "beam": 2, "batch": 64, "threads": 1, "repeats": 2}


def test_peers_that_are_not_installed_are_left_out(decode, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec",
        lambda name, package=None: None if name in ("ctranslate2", "transformers") else found(name, package),
    )
    status, output, written = decode("--part", "latency")
    assert status == 0, output
    for peer in ("Hugging Face", "CTranslate2"):
        assert f"{peer} is not installed and left out; `make peers` installs it." in output
    assert list(written["figures"]) == ["latency"]
    assert all(row["name"].startswith("ours ") for row in written["figures"]["latency"])


def test_the_weights_of_each_precision_are_told(tiny_bundle, tmp_path):
    bundle, console = tiny_bundle("encoder_decoder", d_model=64, d_ff=4096), Console(file=StringIO())
    save_bundle(tmp_path, bundle, "card")
    import_module("decode_benchmark").our_ways(console, tmp_path, bundle.model)
    sizes = dict(re.findall(r"ours (\w+): (\d+\.\d) MB of weights", console.file.getvalue()))
    stored = sum(file.stat().st_size for file in tmp_path.glob("*.safetensors")) / 1e6
    assert float(sizes["float32"]) == pytest.approx(stored, rel=0.05)
    assert all(float(size) < 0.6 * stored for name, size in sizes.items() if name != "float32")


def test_sources_are_sorted_with_their_references(tiny_bundle, corpus):
    sources, references = import_module("decode_benchmark").read(tiny_bundle("encoder_decoder"), corpus, 3)
    assert [len(source) for source in sources] == [6, 11, 17]  # characters and the end token
    assert references == ["ein mann", "ein hund", "zwei"]


@pytest.mark.parametrize(
    ("arguments", "settings", "words"),
    [
        (["--equal-length", "33"], {}, "error: outputs must be of 32 tokens at most, as many as the model can."),
        ([], {"name": "decoder_only"}, "must hold a translation model, but holds a language model."),
    ],
)
def test_refusals(decode, arguments, settings, words):
    status, output, written = decode("--no-peers", *arguments, **settings)
    assert (status, written) == (2, None)
    assert words in output


def test_figures_of_a_contest():
    contest = import_module("peers.contest")
    timed = {
        "ours": contest.Timed([2.0, 9.0, 1.0], [[4, 5], [6]]),
        "theirs": contest.Timed([4.0, 4.5, 3.0], [[4, 5], [6, 7, 8, 9]]),
    }
    ours, theirs = contest.rows(timed, ours="ours", bleu={"ours": 30.0, "theirs": 31.0})
    assert ours == {
        "name": "ours",
        "seconds": 2.0,
        "seconds_min": 1.0,
        "seconds_max": 9.0,
        "sentences_per_second": 1.0,
        "tokens_per_second": 1.5,
        "speed_ratios": {"theirs": 2.0},
        "identical": 1.0,
        "bleu": 30.0,
    }
    assert theirs["speed_ratios"] == {"ours": 0.5}
    assert theirs["tokens_per_second"] == 1.5
    assert theirs["identical"] == 0.5


def test_a_contest_goes_in_turn_and_wants_the_same_outputs_in_every_round():
    contest, calls = import_module("peers.contest"), []

    def steady():
        calls.append("steady")
        return contest.Answer([[1]], len(calls))

    def other():
        calls.append("other")
        return contest.Answer([[2]], 0.5)

    def changing():
        calls.append("changing")
        return contest.Answer([[len(calls)]], 0.5)

    timed = contest.in_turn({"steady": steady, "other": other}, 2)
    assert calls == ["steady", "other"] * 3
    assert timed["steady"].seconds == [3, 5]  # the first round is not counted
    assert timed["other"].outputs == [[2]]
    with pytest.raises(ValueError, match="changing gave other outputs in another round"):
        contest.in_turn({"changing": changing}, 2)


def test_errors_of_a_measuring_process_are_shown(tmp_path, monkeypatch, capfd):
    memory, script = import_module("decode_memory"), tmp_path / "script.py"
    script.write_text("import sys\nsys.exit('no memory is left')\n", encoding="utf-8")
    monkeypatch.setattr(memory, "__file__", str(script))
    with pytest.raises(subprocess.CalledProcessError):
        memory.peaks_of(memory.Variant.NOTHING, 10, 1, 10)
    assert "no memory is left" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_wide_beam_takes_no_copies_of_a_long_source():
    """Each in a process of its own; 10 copies of the keys and values are 61 MB."""
    memory = import_module("decode_memory")
    _, alone = memory.peaks_of(memory.Variant.NOTHING, 1000, 1, 10)
    _, searching = memory.peaks_of(memory.Variant.SEARCH, 1000, 10, 10)
    _, copies = memory.peaks_of(memory.Variant.COPIES, 1000, 10, 10)
    assert copies - alone > 50e6
    assert searching - alone < 30e6


@pytest.mark.slow
def test_a_contestant_runs_in_a_process_of_its_own():
    worker = import_module("peers.worker")
    with worker.Worker(_process_number, 1) as process:
        answers = [process([[5]]), process([[6]])]
    (one, first), (other, second) = [answer.outputs[0] for answer in answers]
    assert (first, second) == (5, 6)
    assert one == other != os.getpid()
    assert 0 <= answers[0].seconds < 5


def _process_number():
    return lambda rows: [[os.getpid(), *rows[0]]]
