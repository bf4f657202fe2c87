"""``transformer-shortlist`` in this process."""

import gzip
import logging

import pytest
from typer.testing import CliRunner

from transformer.bundle import load_bundle, save_bundle
from transformer.cli.shortlist import app
from transformer.inference.shortlist import SHORTLIST, Shortlist
from transformer.inference.translation_table import PairSample

SOURCES = ["rot", "blau", "", "rot blau", "gelb", "grau"]
TARGETS = ["red", "blue", "nothing", "red blue", "yellow", "  "]


@pytest.fixture(autouse=True)
def _loggers():
    logger = logging.getLogger("transformer")
    before = logger.handlers, logger.propagate, logger.level
    yield
    logger.handlers, logger.propagate = before[:2]
    logger.setLevel(before[2])


@pytest.fixture
def bundle(tiny_bundle, tmp_path):
    save_bundle(tmp_path / "bundle", tiny_bundle("encoder_decoder"), "card")
    return tmp_path / "bundle"


@pytest.fixture
def files(tmp_path):
    (tmp_path / "s.txt").write_text("".join(f"{line}\n" for line in SOURCES), encoding="utf-8")
    (tmp_path / "t.txt.gz").write_bytes(gzip.compress("".join(f"{line}\n" for line in TARGETS).encode()))
    return tmp_path / "s.txt", tmp_path / "t.txt.gz"


def run(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_it_writes_what_the_library_learns(bundle, files):
    result = run(bundle, *files, "--per-token", 2, "--frequent", 3)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == "learnt from 4 pairs; 2 with a blank side left out\n"
    assert result.stdout.startswith(f"{bundle / SHORTLIST}: ")
    assert result.stdout.endswith(" tokens for a source on average\n")
    loaded = load_bundle(bundle)
    tokenizers = loaded.source_tokenizer, loaded.target_tokenizer
    pairs = PairSample()
    for source, target in zip(SOURCES, TARGETS, strict=True):
        if source and target.strip():
            pairs.add(tokenizers[0].encode(source), tokenizers[1].encode(target))
    expected = Shortlist.learn(pairs, *tokenizers, per_token=2, frequent=3)
    written = Shortlist.load(bundle, *tokenizers)
    for name in ("always", "starts", "targets"):
        assert getattr(written, name).tolist() == getattr(expected, name).tolist()
    assert written.joint


def test_the_bundle_still_loads_and_is_not_overwritten_by_chance(bundle, files):
    assert run(bundle, *files).exit_code == 0
    before = (bundle / SHORTLIST).read_bytes()
    result = run(bundle, *files, "--per-token", 1)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"error: {bundle / SHORTLIST} exists already; --force overwrites it.\n"
    assert (bundle / SHORTLIST).read_bytes() == before
    assert run(bundle, *files, "--per-token", 1, "--force").exit_code == 0
    assert (bundle / SHORTLIST).read_bytes() != before


@pytest.mark.parametrize("shorter", ["source", "target"])
def test_files_of_different_lengths_are_refused(bundle, files, tmp_path, shorter):
    short = tmp_path / "short.txt"
    short.write_text("ein\nhund\n", encoding="utf-8")
    both = (short, files[1]) if shorter == "source" else (files[0], short)
    other = files[1] if shorter == "source" else files[0]
    result = run(bundle, *both)
    expected = f"error: both files must have the same number of lines, but {str(short)!r} has 2 and "
    expected += f"{str(other)!r} has more.\n"
    assert (result.exit_code, result.stderr) == (2, expected)
    assert not (bundle / SHORTLIST).exists()


def test_blank_files_are_refused(bundle, tmp_path):
    blank = tmp_path / "blank.txt"
    blank.write_text("\n\n", encoding="utf-8")
    result = run(bundle, blank, blank)
    expected = "error: a translation table needs at least one pair of texts that are not empty.\n"
    assert (result.exit_code, result.stderr) == (2, expected)


def test_a_language_model_is_refused(tiny_bundle, files, tmp_path):
    save_bundle(tmp_path / "lm", tiny_bundle("decoder_only"), "card")
    result = run(tmp_path / "lm", *files)
    expected = "error: this bundle holds a language model; a shortlist is for translation.\n"
    assert (result.exit_code, result.stderr) == (2, expected)


def test_a_missing_file_is_one_line(bundle, files, tmp_path):
    result = run(bundle, files[0], tmp_path / "none.txt")
    expected = f"error: The file {str(tmp_path / 'none.txt')!r} does not exist.\n"
    assert (result.exit_code, result.stderr) == (2, expected)


@pytest.mark.parametrize("options", [("--per-token", 0), ("--frequent", -1), ("--no-such-option",)])
def test_wrong_options_end_with_status_2(bundle, files, options):
    result = run(bundle, *files, *options)
    assert result.exit_code == 2
    assert options[0] in result.stderr
