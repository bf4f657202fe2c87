"""Pipes, models and numbers of ``transformer-score``."""

import json
import math
import os
import subprocess
import sys

import pytest
import torch

from transformer.bundle import save_bundle
from transformer.cli.score import app
from transformer.inference import precision, scorer
from transformer.inference.generator import Generator
from transformer.inference.precision import set_precision
from transformer.inference.scorer import ForcedScore, score_texts, score_translations
from transformer.inference.translator import Translator

SOURCES, TARGETS = ["ein hund", "", "zwei katzen"], ["a dog", "cat", ""]
TSV = "".join(f"{source}\t{target}\n" for source, target in zip(SOURCES, TARGETS, strict=True)).encode()


@pytest.fixture(scope="module")
def folders(tiny_bundle, tmp_path_factory):
    """Two translation bundles with the same tokenizers, and a language model."""
    made = []
    for name, seed in (("encoder_decoder", 3), ("encoder_decoder", 4), ("decoder_only", 5)):
        made.append(tmp_path_factory.mktemp("bundles") / "bundle")
        save_bundle(made[-1], tiny_bundle(name, seed=seed), "card")
    return made


def _numbers(result):
    assert result.exit_code == 0, result.stderr
    return [float(line) for line in result.stdout_bytes.decode().splitlines()]


@pytest.mark.skipif(os.name != "posix", reason="only there can a pipe be waited for")
@pytest.mark.parametrize(("kind", "line"), [(0, b"ein hund\ta dog\n"), (2, b"ein hund\n")])
def test_a_score_does_not_wait_for_more_lines(folders, kind, line):
    command = [sys.executable, "-m", "transformer.cli.score", str(folders[kind]), "--device", "cpu"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        answers = []
        for _ in range(2):
            process.stdin.write(line)
            process.stdin.flush()
            answers.append(process.stdout.readline())
        assert answers[0] == answers[1]
        assert math.isfinite(float(answers[0]))
        process.stdin.write(line + b"\xff\n")
        process.stdin.close()
        assert process.wait() == 2
        assert process.stderr.read().startswith(b"error: standard input, line 4: must be UTF-8")


def test_ensembles(folders, run_tool):
    options = ["--ensemble", folders[1], "--ensemble", folders[1]]
    together = Translator.load(folders[0], ensemble=[folders[1]] * 2)
    expected = [score.score for score in score_translations(together, SOURCES, TARGETS)]
    scores = _numbers(run_tool(app, [folders[0], *options], input=TSV))
    assert scores == pytest.approx(expected, abs=1e-5)
    assert scores != _numbers(run_tool(app, [folders[0]], input=TSV))


def test_precision(folders, run_tool, monkeypatch):
    monkeypatch.setattr(precision, "computes_bf16", lambda device: True)  # slower elsewhere, but the same
    translator, generator = Translator.load(folders[0]), Generator.load(folders[2])
    exact = [score.score for score in score_translations(translator, SOURCES, TARGETS)]
    translator.models[0] = set_precision(translator.model, "bf16")
    generator.model = set_precision(generator.model, "bf16")
    expected = [score.score for score in score_translations(translator, SOURCES, TARGETS)]
    scores = _numbers(run_tool(app, [folders[0], "--precision", "bf16"], input=TSV))
    assert scores == pytest.approx(expected, abs=1e-5)
    assert scores != pytest.approx(exact, abs=1e-5)
    lines = "".join(f"{source}\n" for source in SOURCES[::2]).encode()
    expected = [score.perplexity for score in score_texts(generator, SOURCES[::2])]
    assert _numbers(run_tool(app, [folders[2], "--precision", "bf16"], input=lines)) == pytest.approx(expected, 1e-5)


def test_threads(folders, run_tool):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(before + 1)
        _numbers(run_tool(app, [folders[0], "--threads", before + 2], input=TSV))
        assert torch.get_num_threads() == before + 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("kind", ["score_translations", "score_texts"])
def test_no_infinity_in_json(folders, run_tool, monkeypatch, kind):
    """JSON has none, and many a reader refuses what Python writes for it."""
    impossible = ForcedScore(["a", "</s>"], [-0.5, -math.inf], -math.inf, -math.inf)
    monkeypatch.setattr(scorer, kind, lambda *_, **__: [impossible])
    folder, line = (folders[0], b"a\ta\n") if kind == "score_translations" else (folders[2], b"a\n")
    result = run_tool(app, [folder, "--output", "json"], input=line)

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    record = json.loads(result.stdout_bytes, parse_constant=refuse)
    assert record["token_log_probabilities"] == [-0.5, None]
    assert [record[key] for key in ("log_probability", "score")] == [None, None]
    assert record.get("perplexity", None) is None
    assert _numbers(run_tool(app, [folder, "--no-normalize"], input=line)) == [-math.inf]
