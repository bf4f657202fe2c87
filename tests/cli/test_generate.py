"""``transformer-generate`` in this process."""

import json
import os

import pytest

from transformer.bundle import save_bundle
from transformer.cli.generate import app
from transformer.decoding.config import GreedyConfig, SampleConfig
from transformer.inference.generator import Generator

LINES = ["once", "upon a", "time ä", "x"]
INPUT = "\n".join(LINES).encode() + b"\n"
SIX = ["--max-new-tokens", 6]


@pytest.fixture(scope="module")
def folder(tiny_bundle, tmp_path_factory):
    path = tmp_path_factory.mktemp("generator") / "bundle"
    save_bundle(path, tiny_bundle("decoder_only", characters="abcdefghijklmnopqrstuvwxyzä \n"), "card")
    return path


@pytest.fixture(scope="module")
def generator(folder):
    return Generator.load(folder)


def _sample(**settings):
    return SampleConfig(**{"name": "sample", "temperature": 0.8, "max_new_tokens": 6} | settings)


def _output(lines, answers):
    return "".join(f"{line + answer}\n".replace("\n", "\\n", (line + answer).count("\n"))
                   for line, answer in zip(lines, answers, strict=True))  # fmt: skip


@pytest.mark.parametrize(
    ("options", "decoding"),
    [
        ([], _sample()),
        (["--temperature", 0], GreedyConfig(name="greedy", max_new_tokens=6)),
        (["--temperature", 5, "--seed", 7], _sample(temperature=5.0, seed=7)),
        (["--temperature", 5, "--top-k", 2], _sample(temperature=5.0, top_k=2)),
        (["--temperature", 5, "--top-p", 0.3], _sample(temperature=5.0, top_p=0.3)),
        (["--max-new-tokens", 0], _sample(max_new_tokens=0)),
    ],
)
def test_options_choose_the_search(folder, generator, run_tool, options, decoding):
    result = run_tool(app, [folder, *SIX, *options], input=INPUT)
    assert result.exit_code == 0, result.stderr
    assert result.stdout_bytes.decode() == _output(LINES, generator.generate(LINES, decoding))
    assert result.stderr == ""


def test_the_options_make_a_difference(generator):
    """Else the test above could not fail."""
    searches = [
        _sample(),
        GreedyConfig(name="greedy", max_new_tokens=6),
        _sample(temperature=5.0, seed=7),
        _sample(temperature=5.0),
        _sample(temperature=5.0, top_k=2),
        _sample(temperature=5.0, top_p=0.3),
    ]
    assert len({tuple(generator.generate(LINES, search)) for search in searches}) == 6


@pytest.mark.parametrize("at_once", [1, 3])
def test_draws_do_not_depend_on_how_many_lines_are_read_at_once(folder, generator, run_tool, at_once):
    result = run_tool(app, [folder, *SIX, "--lines-at-once", at_once], input=INPUT)
    assert result.stdout_bytes.decode() == _output(LINES, generator.generate(LINES, _sample()))


def test_a_line_break_in_a_continuation_is_written_as_an_escape(folder, generator, run_tool):
    options = ["--temperature", 5, "--max-new-tokens", 12]
    lines = LINES * 5
    answers = generator.generate(lines, _sample(temperature=5.0, max_new_tokens=12))
    assert any("\n" in answer for answer in answers)
    result = run_tool(app, [folder, *options], input=("\n".join(lines) + "\n").encode())
    assert result.stdout_bytes.count(b"\n") == 20
    assert result.stdout_bytes.decode() == _output(lines, answers)
    result = run_tool(app, [folder, *options, "--output", "json"], input=("\n".join(lines) + "\n").encode())
    assert [json.loads(line) for line in result.stdout_bytes.decode().splitlines()] == [
        {"prompt": line, "continuation": answer} for line, answer in zip(lines, answers, strict=True)
    ]


def test_one_prompt_is_written_as_it_is(folder, generator, run_tool):
    prompt = "two\nlines ä"
    [answer] = generator.generate([prompt], _sample())
    result = run_tool(app, [folder, *SIX, "--prompt", prompt], input=b"not read\n")
    assert result.stdout_bytes.decode() == f"{prompt}{answer}\n"
    result = run_tool(app, [folder, *SIX, "--prompt", prompt, "--output", "json"])
    assert json.loads(result.stdout_bytes) == {"prompt": prompt, "continuation": answer}


def test_a_prompt_that_is_not_utf8_is_refused(folder, run_tool):
    result = run_tool(app, [folder, "--prompt", os.fsdecode(b"a\xff")])
    assert (result.exit_code, result.stderr) == (2, "error: --prompt must be UTF-8, but is not: invalid start byte.\n")


def test_a_file(folder, generator, run_tool, tmp_path):
    (tmp_path / "prompts.txt").write_bytes(INPUT)
    result = run_tool(app, [folder, *SIX, tmp_path / "prompts.txt"])
    assert result.stdout_bytes.decode() == _output(LINES, generator.generate(LINES, _sample()))


def test_a_blank_line_stays_blank(folder, run_tool):
    result = run_tool(app, [folder, *SIX], input=b"a\n\nb\n")
    assert result.exit_code == 0
    first, blank, third, rest = result.stdout_bytes.split(b"\n")
    assert (first[:1], blank, third[:1], rest) == (b"a", b"", b"b", b"")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prompt", "a", "file.txt"], "give either --prompt or files, not both"),
        (["--temperature", -1], "--temperature"),
        (["--top-k", 0], "--top-k"),
        (["--top-p", 0], "--top-p"),
        (["--top-p", 1.5], "--top-p"),
        (["--output", "yaml"], "--output"),
    ],
)
def test_wrong_options_end_with_status_2_and_a_sentence(folder, run_tool, options, message):
    result = run_tool(app, [folder, *options], input=INPUT)
    assert (result.exit_code, result.stdout_bytes) == (2, b"")
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_a_translation_bundle_is_one_line(tiny_bundle, run_tool, tmp_path):
    save_bundle(tmp_path, tiny_bundle("encoder_decoder"), "card")
    result = run_tool(app, [tmp_path], input=INPUT)
    expected = "error: this bundle holds a translation model; use transformer-translate.\n"
    assert (result.exit_code, result.stderr) == (2, expected)
