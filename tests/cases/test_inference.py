"""Reported faults of translating, generating and scoring, by the id of their case."""

import logging
import os
import subprocess
import sys

import pytest
import torch
from datasets import Dataset

from transformer.bundle import save_bundle
from transformer.cli.translate import app
from transformer.data.batching import collate_translation
from transformer.data.config import BatchingConfig
from transformer.data.datamodule import TextData, TranslationData, encode_documents
from transformer.decoding.config import GreedyConfig, SampleConfig
from transformer.inference.evaluation import evaluate_translation
from transformer.inference.generator import Generator
from transformer.inference.translator import Translator
from transformer.metrics.text import all_scores, bleu, check_pairs
from transformer.training.config import TrainConfig
from transformer.training.translation import TranslationTask

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
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)], env=os.environ | C_LOCALE, input=content, capture_output=True
    )


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


def test_ATT_06_generating_uses_evaluation_mode_and_restores_the_mode(tiny_bundle):
    bundle = _dropout_everywhere(tiny_bundle, "decoder_only")
    generator = Generator(bundle)
    sampling = SampleConfig(name="sample", seed=3)
    expected = generator.generate(["abc", "def"], sampling)
    bundle.model.train()
    assert all(generator.generate(["abc", "def"], sampling) == expected for _ in range(3))
    assert bundle.model.training
    with pytest.raises(ValueError, match="empty"):
        generator.generate([""])
    assert bundle.model.training


# TOK-03: <s> is 1, </s> is 2.


def _record(embedding):
    """All ids that the embedding will be asked for."""
    asked = []
    embedding.register_forward_pre_hook(lambda module, arguments: asked.append(arguments[0].tolist()))
    return asked


def test_TOK_03_one_start_and_one_end_in_training_batches(tiny_bundle):
    tokenizer = tiny_bundle("encoder_decoder").target_tokenizer
    hallo = tokenizer.encode("hallo")
    pairs = Dataset.from_dict({"source": ["hallo"], "target": ["hallo"]})
    data = TranslationData(
        pairs, pairs, tokenizer, tokenizer, BatchingConfig(max_tokens_per_batch=50), max_length=24, seed=1, max_epochs=1
    )
    for split in ("train", "validation"):
        batch = data.collate([data.examples(split)[0]])
        assert batch.source_BS.tolist() == [[*hallo, 2]]
        assert batch.target_BT.tolist() == [[1, *hallo]]
        assert batch.labels_BT.tolist() == [[*hallo, 2]]


def test_TOK_03_one_start_when_translating_also_in_validation(tiny_bundle):
    bundle = tiny_bundle("encoder_decoder")
    hallo = bundle.source_tokenizer.encode("hallo")
    read, written = _record(bundle.model.source_embedding), _record(bundle.model.target_embedding)
    Translator(bundle).translate(["hallo"], QUICK)
    assert read == [[[*hallo, 2]]]
    translated = list(written)
    assert [row for step in translated for row in step].count([1]) == 1
    assert translated[0] == [[1]]

    config = TrainConfig.from_plain(
        {
            "data": {"name": "phrases"},
            "tokenizer": {"name": "char"},
            "batching": {"max_tokens_per_batch": 100},
            "model": bundle.config.model.to_plain(),
            "optimizer": {"name": "adamw", "learning_rate": 0.001},
            "scheduler": {"name": "constant"},
            "trainer": {"max_steps": 1},
            "decoding": {"name": "greedy"},
        }
    )
    task = TranslationTask(config, bundle.model, bundle.target_tokenizer, [("hallo", "hallo")]).eval()
    read.clear()
    written.clear()
    with torch.inference_mode():
        batch = collate_translation([(0, hallo, hallo)], pad_id=0, bos_id=1, eos_id=2)
        task.validation_step(batch, 0)
    assert read == [[[*hallo, 2]]] * 2  # for the loss and for the translation
    assert written[0] == [[1, *hallo]]
    assert written[1] == [[1]]
    assert written[1 : 1 + len(translated)] == translated  # the same beginning as in translating
    assert [row for step in written for row in step].count([1]) == 1


def test_TOK_03_a_prompt_begins_as_training_texts_do_and_has_no_end(tiny_bundle):
    bundle = tiny_bundle("decoder_only", mark_documents=True)
    tokenizer = bundle.target_tokenizer
    hallo = tokenizer.encode("hallo")
    stream = encode_documents(["hallo", "hallo"], tokenizer, mark_documents=True)
    assert stream.ids.tolist() == [1, *hallo, 2] * 2
    data = TextData(stream, stream, tokenizer, BatchingConfig(max_tokens_per_batch=24), max_length=6, seed=1, max_epochs=1)
    assert data.collate([data.examples("validation")[0]]).tokens_BL.tolist() == [[1, *hallo]]
    asked = _record(bundle.model.embedding)
    Generator(bundle).generate(["hallo"], QUICK)
    assert asked[0] == [[1, *hallo]]
    plain = tiny_bundle("decoder_only")
    asked = _record(plain.model.embedding)
    Generator(plain).generate(["hallo"], QUICK)
    assert asked[0] == [hallo]


# TOK-04 c: nine tokens and a model of eight positions. (a is among the cases of bundles.)


@pytest.mark.parametrize("position", ["sinusoidal", "learned", "rotary", "alibi", "none"])
def test_TOK_04_c_sequences_beyond_the_positions(tiny_bundle, caplog, position):
    bundle = tiny_bundle("encoder_decoder", max_length=8, position=position)
    nine, eight = torch.full((1, 9), 5), torch.full((1, 8), 5)
    for source, target in ((nine, eight), (eight, nine)):
        with pytest.raises(ValueError, match="the sequence has 9 tokens, but `max_length` is 8"):
            bundle.model(source, target)
    language_model = tiny_bundle("decoder_only", max_length=8, position=position).model
    with pytest.raises(ValueError, match="the sequence has 9 tokens, but `max_length` is 8"):
        language_model(nine)
    with caplog.at_level(logging.WARNING):
        [output] = Translator(bundle).translate(["abcdefghi"])
    assert caplog.messages == ["line 1 has 9 tokens and is cut to the model's 7."]
    assert [output] == Translator(bundle).translate(["abcdefg"])


@pytest.mark.parametrize(("over_long", "done"), [(None, "are left out"), ("skip", "are left out"), ("truncate", "are cut")])
def test_TOK_04_c_over_long_pairs_in_training_and_validation(tiny_bundle, caplog, over_long, done):
    tokenizer = tiny_bundle("encoder_decoder").target_tokenizer
    pairs = Dataset.from_dict({"source": ["abc", "a"], "target": ["abc", "abcdefghi"]})
    batching = BatchingConfig(max_tokens_per_batch=50, over_long=over_long)
    with caplog.at_level(logging.WARNING):
        data = TranslationData(pairs, pairs, tokenizer, tokenizer, batching, max_length=8, seed=1, max_epochs=1)
    found = "pairs are longer than `max_length` (8 tokens), the first is pair 2 with 10 tokens; they"
    assert caplog.messages == [f"1 of 2 training {found} {done}.", f"1 of 2 validation {found} are cut."]
    assert len(data.examples("train")) == (2 if over_long == "truncate" else 1)
    assert data.examples("validation").lengths_N2.max() == 8
    with pytest.raises(ValueError, match=r"1 of 2 training pairs .* with 10 tokens\."):
        TranslationData(pairs, pairs, tokenizer, tokenizer, BatchingConfig(max_tokens_per_batch=50, over_long="error"),
                        max_length=8, seed=1, max_epochs=1)  # fmt: skip
