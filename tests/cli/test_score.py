"""``transformer-score`` in this process."""

import gzip
import json

import pytest
from typer.testing import CliRunner

from transformer.bundle import Bundle, save_bundle
from transformer.cli.score import app
from transformer.data.corpora.pair_config import MixtureConfig, PhrasesConfig
from transformer.data.subwords.config import CharConfig
from transformer.data.subwords.tokenizer import Tokenizer
from transformer.decoding.config import BeamConfig
from transformer.inference.generator import Generator
from transformer.inference.scorer import score_texts, score_translations
from transformer.inference.translator import Translator

SEARCH = {"name": "beam", "size": 3, "normalization": "average", "length_penalty": 0.5}
PAIRS = [("ein hund", "a dog"), ("", "cat"), ("zwei katzen", ""), ("  ", " "), ("ei", "egg"), ("rad", "ein rad")]
SOURCES, TARGETS = [source for source, _ in PAIRS], [target for _, target in PAIRS]
TSV = "".join(f"{source}\t{target}\n" for source, target in PAIRS).encode()
TEXTS = ["ein hund", "", "e", "zwei  katzen", "\t"]
LINES = "".join(f"{text}\n" for text in TEXTS).encode()


@pytest.fixture(scope="module")
def folder(tiny_bundle, tmp_path_factory):
    path = tmp_path_factory.mktemp("translator") / "bundle"
    save_bundle(path, tiny_bundle("encoder_decoder", seed=3, decoding=SEARCH), "card")
    return path


@pytest.fixture(scope="module")
def expected(folder):
    return score_translations(Translator.load(folder), SOURCES, TARGETS)


@pytest.fixture(scope="module")
def text_folder(tiny_bundle, tmp_path_factory):
    path = tmp_path_factory.mktemp("generator") / "bundle"
    save_bundle(path, tiny_bundle("decoder_only", seed=3, decoding=SEARCH), "card")
    return path


def _numbers(result):
    assert result.exit_code == 0, result.stderr
    return [float(line) for line in result.stdout_bytes.decode().splitlines()]


def test_one_normalised_score_a_line(folder, expected, run_tool):
    scores = _numbers(run_tool(app, [folder], input=TSV))
    assert scores == pytest.approx([score.score for score in expected], abs=1e-5)
    assert _numbers(run_tool(app, [folder, "--normalize"], input=TSV)) == scores
    longest = expected[0]
    assert scores[0] == pytest.approx(longest.log_probability / 6**0.5, abs=1e-5)  # a, space, d, o, g, end


def test_log_probabilities(folder, expected, run_tool):
    numbers = _numbers(run_tool(app, [folder, "--no-normalize"], input=TSV))
    assert numbers == pytest.approx([score.log_probability for score in expected], abs=1e-5)


def test_another_length_penalty(folder, tiny_bundle, run_tool, tmp_path):
    translator = Translator.load(folder)
    search = BeamConfig.from_plain(SEARCH | {"length_penalty": 1.5})
    wanted = [score.score for score in score_translations(translator, SOURCES, TARGETS, search)]
    assert _numbers(run_tool(app, [folder, "--length-penalty", 1.5], input=TSV)) == pytest.approx(wanted, abs=1e-5)
    save_bundle(tmp_path, tiny_bundle("encoder_decoder", seed=3), "card")  # its search is greedy
    search = BeamConfig(name="beam", length_penalty=1.5)
    wanted = [score.score for score in score_translations(translator, SOURCES, TARGETS, search)]
    assert _numbers(run_tool(app, [tmp_path, "--length-penalty", 1.5], input=TSV)) == pytest.approx(wanted, abs=1e-5)


def test_json_has_every_number(folder, expected, run_tool):
    result = run_tool(app, [folder, "--output", "json"], input=TSV)
    records = [json.loads(line) for line in result.stdout_bytes.decode().splitlines()]
    for record, pair, score in zip(records, PAIRS, expected, strict=True):
        assert (record["source"], record["target"]) == pair
        assert record["tokens"] == [*pair[1], "</s>"]
        assert record["token_log_probabilities"] == pytest.approx(score.token_log_probabilities, abs=1e-5)
        assert record["log_probability"] == pytest.approx(score.log_probability, abs=1e-5)
        assert record["score"] == pytest.approx(score.score, abs=1e-5)
        assert record["length"] == len(pair[1]) + 1
        assert len(record) == 7


def test_two_files_or_one(folder, expected, run_tool, tmp_path):
    (tmp_path / "source.gz").write_bytes(gzip.compress("".join(f"{text}\n" for text in SOURCES).encode()))
    (tmp_path / "target").write_bytes("\n".join(TARGETS).encode())  # without a line break at the end
    (tmp_path / "pairs.tsv.gz").write_bytes(gzip.compress(TSV))
    wanted = pytest.approx([score.score for score in expected], abs=1e-5)
    assert _numbers(run_tool(app, [folder, tmp_path / "source.gz", tmp_path / "target"], input=b"not read")) == wanted
    assert _numbers(run_tool(app, [folder, tmp_path / "pairs.tsv.gz"], input=b"not read")) == wanted


def test_tabs_in_two_files_are_text(folder, run_tool, tmp_path):
    for name, text in (("source", "a\tb\n"), ("target", "b\ta\n")):
        (tmp_path / name).write_text(text)
    result = run_tool(app, [folder, tmp_path / "source", tmp_path / "target", "--output", "json"])
    record = json.loads(result.stdout_bytes)
    assert (record["source"], record["target"]) == ("a\tb", "b\ta")


@pytest.mark.parametrize("options", [["--lines-at-once", 1], ["--lines-at-once", 4], ["--max-tokens-per-batch", 1]])
def test_speed_options_change_nothing(folder, expected, run_tool, options):
    numbers = _numbers(run_tool(app, [folder, *options], input=TSV))
    assert numbers == pytest.approx([score.score for score in expected], abs=1e-4)


def test_lines_are_written_as_they_are_read(folder, run_tool):
    """What comes before a faulty line in earlier chunks is out already."""
    result = run_tool(app, [folder, "--lines-at-once", 2], input=TSV + b"no tab\n")
    assert (result.exit_code, result.stdout_bytes.count(b"\n")) == (2, 6)
    assert result.stderr == "error: standard input, line 7: must be source TAB target, but has 0 tabs.\n"


def test_many_lines(folder, run_tool):
    lines = [f"zeile {number}\tline {number}\n" for number in range(1300)]
    assert len(_numbers(run_tool(app, [folder], input="".join(lines).encode()))) == 1300


def test_no_input_no_output(folder, text_folder, run_tool):
    for path in (folder, text_folder):
        result = run_tool(app, [path])
        assert (result.exit_code, result.stdout_bytes, result.stderr) == (0, b"", "")


@pytest.mark.parametrize(("first", "second"), [(3, 5), (5, 3), (0, 1)])
def test_files_of_different_lengths(folder, run_tool, tmp_path, first, second):
    paths = [tmp_path / "source", tmp_path / "target"]
    for path, count in zip(paths, (first, second), strict=True):
        path.write_text("a\n" * count)
    result = run_tool(app, [folder, *paths, "--lines-at-once", 1])
    assert (result.exit_code, result.stdout_bytes) == (2, b"")  # nothing is scored before
    assert result.stderr == (
        f"error: both files must have the same number of lines, but {str(paths[0])!r} has {first} and "
        f"{str(paths[1])!r} has {second}.\n"
    )


def test_json_has_no_characters_that_end_a_line_elsewhere(folder, run_tool):
    result = run_tool(app, [folder, "--output", "json"], input="a\u2028b\tb\x85a\n".encode())
    [line] = result.stdout_bytes.decode().splitlines()
    assert (json.loads(line)["source"], json.loads(line)["target"]) == ("a\u2028b", "b\x85a")


@pytest.mark.parametrize("tabs", [0, 2])
def test_a_line_without_exactly_one_tab(folder, run_tool, tmp_path, tabs):
    (tmp_path / "pairs.tsv").write_text("a\tb\n" + "\t".join("cde"[: tabs + 1]) + "\n")
    result = run_tool(app, [folder, tmp_path / "pairs.tsv"])
    where = f"{tmp_path / 'pairs.tsv'}, line 2"
    assert (result.exit_code, result.stdout_bytes) == (2, b"")
    assert result.stderr == f"error: {where}: must be source TAB target, but has {tabs} tabs.\n"


def test_what_the_model_has_no_room_for_is_refused_with_its_line(folder, text_folder, run_tool):
    result = run_tool(app, [folder, "--lines-at-once", 2], input=b"a\tb\n" * 2 + b"a\t" + b"b" * 24 + b"\n")
    message = "error: line 3: the target must have at most the model's 23 tokens, but has 24.\n"
    assert (result.exit_code, result.stdout_bytes.count(b"\n"), result.stderr) == (2, 2, message)
    result = run_tool(app, [text_folder, "--lines-at-once", 2], input=b"a\n" * 3 + b"b" * 26 + b"\n")
    message = "error: line 4: the text must have at most the model's 25 tokens, but has 26.\n"
    assert (result.exit_code, result.stdout_bytes.count(b"\n"), result.stderr) == (2, 2, message)


def test_a_tag(tiny_bundle, run_tool, tmp_path):
    plain = tiny_bundle("encoder_decoder")
    tokenizer = Tokenizer.train(CharConfig(), ["abcdefgh "], tags=["<2de>", "<2fr>"])
    data = MixtureConfig(corpora={tag[2:4]: PhrasesConfig(tag=tag) for tag in ("<2de>", "<2fr>")})
    model = type(plain.model)(plain.model.config, tokenizer.vocab_size, tokenizer.vocab_size).eval()
    config = plain.config.model_copy(update={"data": data})
    save_bundle(tmp_path, Bundle(config, model, tokenizer, tokenizer), "card")
    numbers = []
    for tag in ("<2de>", "<2fr>"):
        [score] = score_translations(Translator.load(tmp_path), ["abc"], ["cab"], tags=[tag])
        numbers += _numbers(run_tool(app, [tmp_path, "--tag", tag], input=b"abc\tcab\n"))
        assert numbers[-1] == pytest.approx(score.score, abs=1e-5)
    assert numbers[0] != numbers[1]
    result = run_tool(app, [tmp_path], input=b"abc\tcab\n")
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "sources must be tagged as in training" in result.stderr


def test_texts_by_a_language_model(text_folder, run_tool, tmp_path):
    scores = score_texts(Generator.load(text_folder), TEXTS)
    numbers = _numbers(run_tool(app, [text_folder], input=LINES))
    assert numbers == pytest.approx([score.perplexity for score in scores], rel=1e-5, nan_ok=True)
    assert numbers[1] != numbers[1]  # nothing to score: NaN
    numbers = _numbers(run_tool(app, [text_folder, "--no-normalize", "--lines-at-once", 2], input=LINES))
    assert numbers == pytest.approx([score.log_probability for score in scores], abs=1e-4)
    (tmp_path / "a").write_bytes(LINES)
    (tmp_path / "b.gz").write_bytes(gzip.compress(LINES))
    (tmp_path / "c").write_bytes(LINES)
    files = [tmp_path / "a", tmp_path / "b.gz", tmp_path / "c"]
    assert _numbers(run_tool(app, [text_folder, "--no-normalize", *files])) == pytest.approx(numbers * 3, abs=1e-4)
    result = run_tool(app, [text_folder, "--output", "json"], input=LINES)
    records = [json.loads(line) for line in result.stdout_bytes.decode().splitlines()]
    for record, text, score in zip(records, TEXTS, scores, strict=True):
        assert (record["text"], record["tokens"], record["length"]) == (text, score.tokens, score.length)
        assert record["token_log_probabilities"] == pytest.approx(score.token_log_probabilities, abs=1e-5)
        assert record["score"] == pytest.approx(score.score, abs=1e-4)
        assert record["perplexity"] == (pytest.approx(score.perplexity, rel=1e-4) if score.tokens else None)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (
            "pairs",
            ["--output", "json", "--no-normalize"],
            "--normalize and --no-normalize have no effect with --output",
        ),
        ("texts", ["--output", "json", "--normalize"], "--normalize and --no-normalize have no effect with --output"),
        ("pairs", ["--no-normalize", "--length-penalty", 1], "--length-penalty has no effect with --no-normalize"),
        ("texts", ["--length-penalty", 1], "--length-penalty has no effect for a language model"),
        ("texts", ["--tag", "<2de>"], "--tag has no effect for a language model"),
        ("texts", ["--ensemble", "other"], "--ensemble has no effect for a language model"),
        ("pairs", ["--ensemble", "missing"], "missing is not a bundle: it has no config.json."),
        ("pairs", ["--threads", 0], "--threads"),
        ("pairs", ["--precision", "fp8"], "--precision"),
        ("pairs", ["a", "b", "c"], "one file or two (sources and targets), but 3 are given"),
        ("pairs", ["missing.txt"], "The file 'missing.txt' does not exist"),
        ("pairs", ["--length-penalty", -1], "--length-penalty"),
        ("pairs", ["--lines-at-once", 0], "--lines-at-once"),
        ("pairs", ["--output", "yaml"], "--output"),
    ],
)
def test_wrong_options_end_with_status_2_and_a_sentence(folder, text_folder, run_tool, kind, options, message):
    result = run_tool(app, [folder if kind == "pairs" else text_folder, *options], input=TSV)
    assert (result.exit_code, result.stdout_bytes) == (2, b"")
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_help_gives_defaults_and_units():
    result = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == 0
    for text in ("perplexity", "[default: (normalize)]", "[default: 2048]", "[default: (the bundle's search)]"):
        assert text in result.stdout
