"""``transformer-generate`` in this process."""

import json
import os

import pytest
from typer.testing import CliRunner

from transformer.bundle import save_bundle
from transformer.cli.generate import app
from transformer.decoding.config import BeamConfig, GreedyConfig, SampleConfig
from transformer.inference.constraints import Constraints
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
        (["--beam-size", 1], GreedyConfig(name="greedy", max_new_tokens=6)),
        (["--beam-size", 3], BeamConfig(name="beam", size=3, max_new_tokens=6)),
        (["--min-p", 0.3, "--epsilon", 0.05], _sample(min_p=0.3, epsilon=0.05)),
        (["--no-repeat-ngram", 1, "--min-new-tokens", 5], _sample(no_repeat_ngram=1, min_new_tokens=5)),
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
    objects = [json.loads(line) for line in result.stdout_bytes.decode().splitlines()]
    assert [(each["prompt"], each["continuation"]) for each in objects] == list(zip(lines, answers, strict=True))


def test_one_prompt_is_written_as_it_is(folder, generator, run_tool):
    prompt = "two\nlines ä"
    [answer] = generator.generate([prompt], _sample())
    result = run_tool(app, [folder, *SIX, "--prompt", prompt], input=b"not read\n")
    assert result.stdout_bytes.decode() == f"{prompt}{answer}\n"
    result = run_tool(app, [folder, *SIX, "--prompt", prompt, "--output", "json"])
    found = json.loads(result.stdout_bytes)
    assert (found["line"], found["prompt"], found["continuation"]) == (1, prompt, answer)


def test_json_has_all_there_is_to_know(folder, generator, run_tool):
    options = [*SIX, "--seed", 3, "--output", "json"]
    result = run_tool(app, [folder, *options, "--nbest", 3], input=INPUT + b"\n")
    answers = [json.loads(line) for line in result.stdout_bytes.decode().splitlines()]
    expected = generator.search([*LINES, ""], _sample(seed=3), num_best=3)
    assert len({output.text for output in expected[0]}) == 3  # independent samples
    for number, (answer, line, outputs) in enumerate(zip(answers, [*LINES, ""], expected, strict=True), start=1):
        keys = ["continuation", "score", "log_probability", "finished", "tokens", "token_log_probabilities"]
        assert list(answer) == ["line", "prompt", *keys, "nbest"]
        assert (answer["line"], answer["prompt"]) == (number, line)
        assert {key: answer[key] for key in keys} == answer["nbest"][0]
        for each, output in zip(answer["nbest"], outputs, strict=True):
            assert (each["continuation"], each["finished"]) == (output.text, output.finished)
            assert "".join(each["tokens"][: len(output.tokens)]) == output.text
            assert len(each["tokens"]) == len(each["token_log_probabilities"])
            assert each["log_probability"] == pytest.approx(sum(each["token_log_probabilities"]), abs=1e-4)
    alone = run_tool(app, [folder, *options], input=INPUT + b"\n")
    for line, answer in zip(alone.stdout_bytes.splitlines(), answers, strict=True):
        single = json.loads(line)
        assert list(single) == [key for key in answer if key != "nbest"]
        for key, value in single.items():  # a batch of another size is added up in another order
            is_number = key in ("score", "log_probability", "token_log_probabilities")
            assert value == (pytest.approx(answer[key], abs=1e-4) if is_number else answer[key])


def test_json_lines_and_phrases(folder, generator, run_tool, tmp_path):
    (tmp_path / "banned.txt").write_text("a\n", encoding="utf-8")
    lines = [{"text": "once", "banned": ["b"], "id": 5}, {"text": "upon\n", "required": [["x y", "zz"]], "id": "u"}]
    content = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
    options = ["--input", "json", "--output", "json", "--banned", tmp_path / "banned.txt", "--beam-size", 3]
    result = run_tool(app, [folder, *SIX, *options], input=content)
    assert result.exit_code == 0, result.stderr
    answers = [json.loads(line) for line in result.stdout_bytes.splitlines()]
    constraints = [Constraints(banned=("a", "b")), Constraints((("x y", "zz"),), banned=("a",))]
    beam = BeamConfig(name="beam", size=3, max_new_tokens=6)
    expected = generator.search(["once", "upon\n"], beam, constraints=constraints)
    assert [answer["continuation"] for answer in answers] == [outputs[0].text for outputs in expected]
    assert [(answer["prompt"], answer["id"]) for answer in answers] == [("once", 5), ("upon\n", "u")]
    assert ["missing" in answer for answer in answers] == [False, True]


def test_a_draft_changes_no_most_probable_token(folder, tiny_bundle, generator, run_tool, tmp_path):
    draft = tiny_bundle("decoder_only", seed=5, characters="abcdefghijklmnopqrstuvwxyzä \n", d_model=8)
    save_bundle(tmp_path, draft, "card")
    options = ["--temperature", 0, *SIX, "--draft", tmp_path, "--draft-tokens", 2]
    result = run_tool(app, [folder, *options], input=INPUT)
    assert result.exit_code == 0, result.stderr
    greedy = GreedyConfig(name="greedy", max_new_tokens=6)
    assert result.stdout_bytes.decode() == _output(LINES, generator.generate(LINES, greedy))


def test_a_bundle_that_samples_has_its_own_way(tiny_bundle, run_tool, tmp_path):
    own = {"name": "sample", "temperature": 5.0, "top_k": 3, "max_new_tokens": 6}
    save_bundle(tmp_path, tiny_bundle("decoder_only", decoding=own), "card")
    for options, changes in (([], {}), (["--top-k", 2], {"top_k": 2}), (["--temperature", 0.1], {"temperature": 0.1})):
        result = run_tool(app, [tmp_path, *options], input=INPUT)
        expected = Generator.load(tmp_path).generate(LINES, SampleConfig.from_plain(own | changes))
        assert result.stdout_bytes.decode() == _output(LINES, expected)


def test_no_character_makes_a_line_of_its_own(folder, run_tool):
    lines = "a\rb\n\x00\x1b[0m\nc\x0c\u2028d\x85\n"
    result = run_tool(app, [folder, *SIX], input=lines.encode())
    assert len(result.stdout_bytes.decode().splitlines()) == 3


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
        ([], "a beam search, but the search is sample; add a --beam-size of 2 or more."),
        (["--beam-size", 1], "a beam search, but the search is greedy; add a --beam-size of 2 or more."),
        (
            ["--beam-size", 2, "--groups", 2, "--diversity", 1],
            "a beam without groups, but it has 2; add --groups 1 --diversity 0.",
        ),
    ],
)
def test_a_search_that_cannot_see_to_required_phrases_names_the_line(folder, run_tool, options, message):
    lines = b'{"text": "a", "required": []}\n{"text": "b", "required": ["a"]}\n'
    result = run_tool(app, [folder, "--input", "json", *options], input=lines)
    sentence = f"error: line 2: 'required' needs {message}\n"
    assert (result.exit_code, result.stdout_bytes, result.stderr) == (2, b"", sentence)


def test_help_says_what_a_draft_does_to_the_draws():
    told = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "300", "TERM": "dumb"})
    [line] = [line for line in told.stdout.splitlines() if "--seed" in line]
    assert "With --draft they are others than without." in line


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prompt", "a", "file.txt"], "give either --prompt or files, not both"),
        (["--prompt", "a", "--input", "json"], "give either --prompt or --input json, not both"),
        (["--draft-tokens", 3], "--draft-tokens has no effect without --draft; leave it out."),
        (["--length-penalty", 1], "--length-penalty has no effect in sampling"),
        (["--nbest", 2], "--nbest needs --output json"),
        (["--ordered"], "--ordered has no effect"),
        (["--beam-size", 2, "--nbest", 3, "--output", "json"], "--nbest must be 2 at most (the beam's size), but is 3"),
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
