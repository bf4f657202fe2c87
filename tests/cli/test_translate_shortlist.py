"""``transformer-translate --shortlist``."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from transformer.bundle import load_bundle, save_bundle
from transformer.cli.translate import app
from transformer.inference.constraints import Constraints
from transformer.inference.shortlist import Shortlist
from transformer.inference.translation_table import PairSample
from transformer.inference.translator import Translator

LINES = ["ein hund", "", "zwei katzen", "wind und rad"]
SEARCH = {"name": "beam", "size": 4, "min_new_tokens": 3, "max_new_tokens": 20}


@pytest.fixture(scope="module")
def folder(tiny_bundle, tmp_path_factory):
    path = tmp_path_factory.mktemp("translator") / "bundle"
    save_bundle(path, tiny_bundle("encoder_decoder", seed=34, characters="einhudzwkatr ", decoding=SEARCH), "card")
    return path


@pytest.fixture
def shortlist(folder):
    """In the bundle's folder: a few tokens, of which the model's own answers have more."""
    bundle = load_bundle(folder)
    source, target = bundle.source_tokenizer, bundle.target_tokenizer
    pairs = PairSample()
    pairs.add(source.encode("ein hund"), target.encode("zr"))
    learnt = Shortlist.learn(pairs, source, target, per_token=1, frequent=1)
    # Single letters are always on the list; here they would be all that there are.
    shortlist = replace(learnt, always=np.array(target.control_ids))
    shortlist.save(folder, source, target)
    yield shortlist
    (folder / "shortlist.safetensors").unlink()


def _output(lines):
    return "".join(f"{line}\n" for line in lines).encode()


def test_only_tokens_on_the_list(folder, shortlist, run_tool):
    result = run_tool(app, [folder, "--shortlist"], input=_output(LINES))
    bundle = load_bundle(folder)
    expected = Translator(bundle, shortlist=shortlist).translate(LINES)
    assert result.stdout_bytes == _output(expected)
    assert expected != Translator(bundle).translate(LINES)


def test_there_must_be_one(folder, run_tool):
    result = run_tool(app, [folder, "--shortlist"], input=b"a\n")
    sentence = f"{folder} has no shortlist.safetensors; transformer-shortlist makes one."
    assert (result.exit_code, result.stderr) == (2, f"error: {sentence}\n")


@pytest.mark.parametrize("option", ["--banned", "--prefix"])
def test_options_that_would_leave_it_without_effect_are_refused(folder, shortlist, run_tool, tmp_path, option):
    (tmp_path / "banned.txt").write_text("u\n")
    value = tmp_path / "banned.txt" if option == "--banned" else "ein"
    result = run_tool(app, [folder, "--shortlist", option, value], input=_output(LINES))
    sentence = f"--shortlist has no effect with {option}, which makes all lines be searched in all tokens; "
    sentence += "leave one of them out."
    assert (result.exit_code, result.stdout_bytes, result.stderr) == (2, b"", f"error: {sentence}\n")


def test_lines_with_phrases_are_searched_in_all_tokens_and_help_says_so(folder, shortlist, run_tool):
    lines = [{"text": LINES[0], "required": ["wa"]}, {"text": LINES[2]}]
    content = _output(json.dumps(line) for line in lines)
    result = run_tool(app, [folder, "--shortlist", "--input", "json"], input=content)
    bundle = load_bundle(folder)
    [with_phrase] = Translator(bundle).translate([LINES[0]], constraints=[Constraints((("wa",),))])
    assert result.stdout_bytes == _output([with_phrase, *Translator(bundle, shortlist=shortlist).translate([LINES[2]])])
    told = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "400", "TERM": "dumb"})
    assert "Lines with phrases, of the glossary or of their own, are searched in all tokens." in told.stdout
