"""Reported faults of translating, generating and scoring, by the id of their case."""

import os
import subprocess
import sys

import pytest
import torch

from transformer.bundle import save_bundle
from transformer.cli.translate import app
from transformer.decoding.config import GreedyConfig, SampleConfig
from transformer.inference.evaluation import evaluate_translation
from transformer.inference.generator import Generator
from transformer.inference.translator import Translator
from transformer.metrics.text import all_scores, bleu, check_pairs

QUICK = GreedyConfig(name="greedy", max_new_tokens=5)


@pytest.fixture(scope="session")
def folder(tiny_bundle, tmp_path_factory):
    """A bundle on disk; a model of 16 positions."""
    path = tmp_path_factory.mktemp("translator") / "bundle"
    save_bundle(path, tiny_bundle("encoder_decoder", max_length=16), "card")
    return path


# DATA-01: six lines with one character each that others take for a line end.
SIX_LINES = [f"ab{separator}cd {k}" for k, separator in enumerate("\u2028\u0085\u000b\u000c\u2029\u001c")]


def test_DATA_01_unicode_line_separators_in_a_file_and_on_standard_input(folder, run_tool, tmp_path):
    content = ("\n".join(SIX_LINES) + "\n").encode()
    (tmp_path / "six.txt").write_bytes(content)
    expected = Translator.load(folder).translate(SIX_LINES)
    assert len(set(expected)) > 1
    from_file = run_tool(app, [folder, tmp_path / "six.txt"])
    from_stdin = run_tool(app, [folder], input=content)
    for result in (from_file, from_stdin):
        assert result.exit_code == 0
        assert result.stdout_bytes.count(b"\n") == 6
        assert result.stdout_bytes.decode() == "".join(f"{line}\n" for line in expected)


def test_DATA_03_empty_source_lines_stay_empty(folder, run_tool):
    lines = ["", "Hallo", " ", "\t", "Welt", ""]
    result = run_tool(app, [folder], input="\n".join(lines).encode() + b"\n")
    outputs = result.stdout_bytes.decode().split("\n")
    assert result.exit_code == 0
    assert len(outputs) == 7  # and nothing after the last line end
    assert [place for place, output in enumerate(outputs[:6], 1) if output == ""] == [1, 3, 4, 6]
    hello, world = Translator.load(folder).translate(["Hallo", "Welt"])
    assert (outputs[1], outputs[4]) == (hello, world)


@pytest.mark.parametrize("as_file", [False, True])
def test_DATA_04_every_input_line_gets_an_output_line(folder, run_tool, tmp_path, as_file):
    """A model of 16 positions; the end token takes one of them."""
    lines = ["abc", "a" * 15, "b" * 16, "c" * 5000, "d" * 100_000, "abc"]
    content = "\n".join(lines).encode() + b"\n"
    (tmp_path / "lines.txt").write_bytes(content)
    result = run_tool(app, [folder, tmp_path / "lines.txt"]) if as_file else run_tool(app, [folder], input=content)
    assert result.exit_code == 0
    outputs = result.stdout_bytes.decode().split("\n")
    assert len(outputs) == 7
    assert outputs[:6] == Translator.load(folder).translate([line[:15] for line in lines])
    assert outputs[0] == outputs[5] != ""
    assert result.stderr.splitlines() == [
        "warning: line 3 has 16 tokens and is cut to the model's 15.",
        "warning: line 4 has 5000 tokens and is cut to the model's 15.",
        "warning: line 5 has 100000 tokens and is cut to the model's 15.",
    ]


def test_DATA_05_invalid_utf8_names_the_line(folder, run_tool, tmp_path):
    broken = b"gut\n\xff\xfe kaputt\nende\n"
    (tmp_path / "broken.txt").write_bytes(broken)
    for result, where in (
        (run_tool(app, [folder], input=broken), "standard input"),
        (run_tool(app, [folder, tmp_path / "broken.txt"]), str(tmp_path / "broken.txt")),
    ):
        assert result.exit_code == 2
        assert result.stdout_bytes == b""
        assert result.stderr == f"error: {where}, line 2: must be UTF-8, but is not: invalid start byte.\n"


C_LOCALE = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def _command(module, arguments, content=b""):
    """Run a command in the C locale; strict about bytes."""
    command = [sys.executable, "-m", module, *map(str, arguments)]
    return subprocess.run(command, env=os.environ | C_LOCALE, input=content, capture_output=True)


def test_DATA_05_utf8_in_and_out_under_the_c_locale(folder):
    """Also a fresh process: the saved model translates as the one in memory does."""
    lines = ["größe", "ä", "süß", "zwei katzen", "ein hund"]
    result = _command("transformer.cli.translate", [folder, "--device", "cpu"], "\n".join(lines).encode())
    assert result.returncode == 0, result.stderr
    assert result.stdout.decode("utf-8") == "".join(f"{line}\n" for line in Translator.load(folder).translate(lines))
    assert not result.stdout.isascii()


def test_DATA_05_a_prompt_under_the_c_locale(tiny_bundle, tmp_path):
    save_bundle(tmp_path, tiny_bundle("decoder_only"), "card")
    arguments = [tmp_path, "--prompt", "größe", "--temperature", "0", "--max-new-tokens", "5", "--device", "cpu"]
    result = _command("transformer.cli.generate", arguments)
    assert result.returncode == 0, result.stderr
    [continuation] = Generator.load(tmp_path).generate(["größe"], QUICK)
    assert result.stdout.decode("utf-8") == f"größe{continuation}\n"


def test_DATA_09_hypotheses_and_references_are_counted_before_scoring(tiny_bundle):
    with pytest.raises(ValueError, match="as many hypotheses as references, but there are 2 and 3"):
        check_pairs(["a", "b"], ["a", "b", "c"])
    with pytest.raises(ValueError, match="as many hypotheses as references, but there are 2 and 3"):
        all_scores(["a", "b"], ["a", "b", "c"])
    check_pairs(["a"] * 3, ["b"] * 3)
    translator = Translator(tiny_bundle("encoder_decoder"))
    for sources, references, message in (
        (["a", "b"], ["a", "b", "c"], "there are 2 and 3"),
        (["a", "b", "c"], ["a", "b"], "there are 3 and 2"),
        ([], [], "nothing to score"),
    ):
        with pytest.raises(ValueError, match=message):
            evaluate_translation(translator, sources, references)


# EVAL-01
HYPOTHESES = ["The dog bit the man.", "It was not very surprising.", "The man had bitten the dog first."]
REFERENCES = ["The dog bit the man.", "It was not unexpected.", "The man bit him first."]


def test_EVAL_01_one_reference_for_each_hypothesis():
    score = bleu(HYPOTHESES, REFERENCES)
    assert score.value == pytest.approx(43.587859, abs=1e-6)
    for order in ([1, 0, 2], [2, 1, 0], [1, 2, 0]):
        permuted = bleu([HYPOTHESES[k] for k in order], [REFERENCES[k] for k in order])
        assert permuted.value == pytest.approx(score.value, abs=1e-9)
    assert score.signature.startswith("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    with pytest.raises(ValueError, match="there are 3 and 1"):
        bleu(HYPOTHESES, REFERENCES[:1])


# ATT-06


def _dropout_everywhere(tiny_bundle, name):
    return tiny_bundle(name, dropout=0.5, attention_dropout=0.5, activation_dropout=0.5)


def _forward(bundle):
    ids = torch.tensor([[5, 6, 7, 8], [9, 8, 7, 6]])
    return bundle.model(ids, ids) if bundle.config.model.name == "encoder_decoder" else bundle.model(ids)


@pytest.mark.parametrize("name", ["encoder_decoder", "decoder_only"])
def test_ATT_06_ten_outputs_in_evaluation_mode_are_bitwise_equal(tiny_bundle, name):
    bundle = _dropout_everywhere(tiny_bundle, name)
    with torch.no_grad():
        outputs = [_forward(bundle) for _ in range(10)]
        assert all(torch.equal(output, outputs[0]) for output in outputs)
        bundle.model.train()
        assert not torch.equal(_forward(bundle), _forward(bundle))


def test_ATT_06_translating_uses_evaluation_mode_and_restores_the_mode(tiny_bundle):
    bundle = _dropout_everywhere(tiny_bundle, "encoder_decoder")
    translator = Translator(bundle)
    expected = translator.translate(["abc", "def"])
    assert not bundle.model.training
    bundle.model.train()
    bundle.model.encoder_norm.eval()
    assert all(translator.translate(["abc", "def"]) == expected for _ in range(3))
    assert bundle.model.training
    assert bundle.model.decoder_layers[0].training
    assert not bundle.model.encoder_norm.training
    assert Translator(bundle).translate(["abc", "def"]) == expected
    assert bundle.model.training


def test_ATT_06_generating_uses_evaluation_mode_and_restores_the_mode(tiny_bundle, monkeypatch):
    bundle = _dropout_everywhere(tiny_bundle, "decoder_only")
    generator = Generator(bundle)
    sampling = SampleConfig(name="sample", seed=3)
    expected = generator.generate(["abc", "def"], sampling)
    bundle.model.train()
    assert all(generator.generate(["abc", "def"], sampling) == expected for _ in range(3))
    assert bundle.model.training
    monkeypatch.setattr(bundle.model, "next_logits", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        generator.generate(["abc"])
    assert bundle.model.training
