"""``transformer-translate`` in this process."""

import gzip

import pytest

from transformer.bundle import save_bundle
from transformer.cli.translate import app
from transformer.decoding.config import BeamConfig, GreedyConfig, MbrConfig, SampleConfig
from transformer.inference.translator import Translator

BUNDLE_SEARCH = {"name": "beam", "size": 3, "normalization": "average", "length_penalty": 0.5}


@pytest.fixture(scope="module")
def folder(tiny_bundle, tmp_path_factory):
    path = tmp_path_factory.mktemp("translator") / "bundle"
    save_bundle(
        path, tiny_bundle("encoder_decoder", seed=12, characters="einhudzwkatr", decoding=BUNDLE_SEARCH), "card"
    )
    return path


@pytest.fixture(scope="module")
def translator(folder):
    return Translator.load(folder)


LINES = ["ein hund", "", "zwei katzen", "drei", "  ", "vier mal vier", "wind", "rad", "ei", "zehn", "teich"]
INPUT = "\n".join(LINES).encode() + b"\n"


def _output(lines):
    return "".join(f"{line}\n" for line in lines).encode()


@pytest.mark.parametrize(
    ("options", "decoding"),
    [
        ([], None),
        (["--beam-size", 1], GreedyConfig(name="greedy")),
        (["--beam-size", 6], BeamConfig.from_plain(BUNDLE_SEARCH | {"size": 6})),
        (
            ["--beam-size", 6, "--length-penalty", 0, "--normalization", "gnmt"],
            BeamConfig(name="beam", size=6, length_penalty=0.0),
        ),
        (["--coverage-penalty", 2], BeamConfig.from_plain(BUNDLE_SEARCH | {"coverage_penalty": 2})),
        (["--patience", 3], BeamConfig.from_plain(BUNDLE_SEARCH | {"patience": 3})),
        (["--groups", 3, "--diversity", 2], BeamConfig.from_plain(BUNDLE_SEARCH | {"groups": 3, "diversity": 2})),
        (["--no-repeat-ngram", 1], BeamConfig.from_plain(BUNDLE_SEARCH | {"no_repeat_ngram": 1})),
        (["--repetition-penalty", 3], BeamConfig.from_plain(BUNDLE_SEARCH | {"repetition_penalty": 3})),
        (["--min-length-factor", 1.5], BeamConfig.from_plain(BUNDLE_SEARCH | {"min_length_factor": 1.5})),
        (["--max-length-factor", 0.5], BeamConfig.from_plain(BUNDLE_SEARCH | {"max_length_factor": 0.5})),
        (["--min-new-tokens", 9], BeamConfig.from_plain(BUNDLE_SEARCH | {"min_new_tokens": 9})),
        (["--sample"], SampleConfig(name="sample")),
        (["--sample", "--seed", 5, "--top-k", 4], SampleConfig(name="sample", seed=5, top_k=4)),
        (["--sample", "--temperature", 3, "--top-p", 0.8], SampleConfig(name="sample", temperature=3.0, top_p=0.8)),
        (["--sample", "--min-p", 0.3, "--epsilon", 0.1], SampleConfig(name="sample", min_p=0.3, epsilon=0.1)),
        (["--mbr", 4], MbrConfig(name="mbr", samples=4)),
        (["--mbr", 4, "--mbr-utility", "bleu"], MbrConfig(name="mbr", samples=4, utility="bleu")),
        (["--max-new-tokens", 4], BeamConfig.from_plain(BUNDLE_SEARCH | {"max_new_tokens": 4})),
        (["--beam-size", 1, "--max-new-tokens", 4], GreedyConfig(name="greedy", max_new_tokens=4)),
        (["--max-new-tokens", 0], GreedyConfig(name="greedy", max_new_tokens=0)),
    ],
)
def test_options_choose_the_search(folder, translator, run_tool, options, decoding):
    result = run_tool(app, [folder, *options], input=INPUT)
    assert result.exit_code == 0, result.stderr
    assert result.stdout_bytes == _output(translator.translate(LINES, decoding))
    assert result.stderr == ""


def test_the_options_make_a_difference(translator):
    """Else the test above could not fail."""
    searches = [GreedyConfig(name="greedy"), BeamConfig(name="beam", size=6), SampleConfig(name="sample", seed=5)]
    searches += [BeamConfig.from_plain(BUNDLE_SEARCH | change) for change in ({}, {"size": 6}, {"min_new_tokens": 9})]
    searches += [
        BeamConfig.from_plain(BUNDLE_SEARCH | change) for change in ({"max_new_tokens": 4}, {"no_repeat_ngram": 1})
    ]
    searches += [MbrConfig(name="mbr", samples=4, utility=utility) for utility in ("chrf", "bleu")]
    assert len({tuple(translator.translate(LINES, search)) for search in searches}) == len(searches)


@pytest.mark.parametrize("options", [["--lines-at-once", 1], ["--lines-at-once", 4], ["--max-tokens-per-batch", 1]])
def test_speed_options_change_nothing(folder, translator, run_tool, options):
    result = run_tool(app, [folder, *options], input=INPUT)
    assert result.stdout_bytes == _output(translator.translate(LINES))


def test_DEC_06_many_lines_in_chunks(folder, translator, run_tool):
    lines = ["" if number % 4 == 0 else f"zeile {number}" for number in range(1, 1301)]
    options = ["--beam-size", 1, "--max-new-tokens", 3, "--lines-at-once", 1024]
    result = run_tool(app, [folder, *options], input=_output(lines))
    assert result.stdout_bytes.count(b"\n") == 1300
    assert result.stdout_bytes == _output(translator.translate(lines, GreedyConfig(name="greedy", max_new_tokens=3)))


def test_several_files_plain_and_packed(folder, translator, run_tool, tmp_path):
    (tmp_path / "a.txt").write_bytes(b"eins\nzwei")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"drei\n"))
    result = run_tool(app, [folder, tmp_path / "a.txt", tmp_path / "b.txt.gz"], input=b"not read\n")
    assert result.stdout_bytes == _output(translator.translate(["eins", "zwei", "drei"]))


def test_no_input_no_output(folder, run_tool):
    result = run_tool(app, [folder])
    assert (result.exit_code, result.stdout_bytes, result.stderr) == (0, b"", "")


def test_warnings_go_to_standard_error_with_the_number_of_the_line(folder, run_tool):
    result = run_tool(app, [folder, "--lines-at-once", 2], input=b"a\nb\n" + b"c" * 30 + b"\n")
    assert result.stdout_bytes.count(b"\n") == 3
    assert result.stderr == "warning: line 3 has 30 tokens and is cut to the model's 23.\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--length-penalty", 1, "--beam-size", 1], "--length-penalty has no effect in greedy search"),
        (["--temperature", 1], "--temperature has no effect in beam search; leave it out, or add --sample."),
        (["--sample", "--mbr", 4], "--sample and --mbr are different searches; give one of them."),
        (["--nbest", 2], "--nbest needs --output json, because plain text has one line per line."),
        (["--nbest", 4, "--output", "json"], "--nbest must be 3 at most (the beam's size), but is 4."),
        (["--attention"], "--attention needs --output json; alignments as plain text go to --alignments FILE."),
        (["--ordered"], "--ordered has no effect without required phrases; they come from --glossary or --input json."),
        (["--sample", "--epsilon", 0], "--epsilon must be greater than 0, but is 0."),
        (["--banned", "no such file"], "The file 'no such file' does not exist."),
        (["--threads", 0], "--threads"),
        (["--precision", "fp8"], "--precision"),
        (["--beam-size", 0], "--beam-size"),
        (["--max-new-tokens", -1], "--max-new-tokens"),
        (["--lines-at-once", 0], "--lines-at-once"),
        (["--no-such-option"], "--no-such-option"),
    ],
)
def test_wrong_options_end_with_status_2_and_a_sentence(folder, run_tool, options, message):
    result = run_tool(app, [folder, *options], input=INPUT)
    assert (result.exit_code, result.stdout_bytes) == (2, b"")
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_a_missing_file_is_one_line(folder, run_tool, tmp_path):
    result = run_tool(app, [folder, tmp_path / "missing.txt"])
    assert result.exit_code == 2
    assert result.stderr == f"error: The file {str(tmp_path / 'missing.txt')!r} does not exist.\n"
    assert result.stderr.count("\n") == 1


def test_what_is_no_translation_bundle_is_one_line(tiny_bundle, run_tool, tmp_path):
    result = run_tool(app, [tmp_path])
    assert (result.exit_code, result.stderr) == (2, f"error: {tmp_path} is not a bundle: it has no config.json.\n")
    save_bundle(tmp_path, tiny_bundle("decoder_only"), "card")
    result = run_tool(app, [tmp_path])
    expected = "error: this bundle holds a language model; use transformer-generate.\n"
    assert (result.exit_code, result.stderr) == (2, expected)


def test_help_gives_defaults_and_units():
    from typer.testing import CliRunner

    result = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == 0
    for text in (
        "20 and 2 for each",
        "[default: 2048]",
        "Padded source tokens",
        "auto, cpu, cuda",
        *("Input and output", "Beam search", "Sampling", "Length and repetition", "Phrases", "Model and speed"),
    ):
        assert text in result.stdout
