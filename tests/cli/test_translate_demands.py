"""What ``transformer-translate`` is asked of its outputs, and what it tells about them."""

import json
import math

import pytest
import torch

from transformer.bundle import save_bundle
from transformer.cli.line_options import check_phrases_fit
from transformer.cli.translate import app
from transformer.decoding.config import BeamConfig, SampleConfig
from transformer.inference.alignment import align
from transformer.inference.constraints import Constraints
from transformer.inference.translator import Translator

LINES = ["ein hund", "", "zwei katzen", "wind und rad"]
SEARCH = {"name": "beam", "size": 4, "min_new_tokens": 3, "max_new_tokens": 20}


@pytest.fixture(scope="module")
def folders(tiny_bundle, tmp_path_factory):
    """Two bundles with the same tokenizers."""
    made = []
    for seed in (34, 35):
        made.append(tmp_path_factory.mktemp("bundles") / "bundle")
        bundle = tiny_bundle("encoder_decoder", seed=seed, characters="einhudzwkatr ", decoding=SEARCH)
        save_bundle(made[-1], bundle, "card")
    return made


@pytest.fixture(scope="module")
def translator(folders):
    return Translator.load(folders[0])


@pytest.fixture
def ask(run_tool, folders):
    """The lines of the output, for lines of text or JSON objects."""

    def ask(lines, *options):
        lines = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        content = "".join(f"{line}\n" for line in lines).encode()
        result = run_tool(app, [folders[0], *options], input=content)
        assert result.exit_code == 0, result.stderr
        answers = result.stdout_bytes.decode().split("\n")
        assert (len(answers), answers.pop()) == (len(lines) + 1, "")
        return answers

    return ask


def _texts(found):
    return [outputs[0].text for outputs in found]


def test_json_has_all_there_is_to_know(ask, translator):
    answers = [json.loads(line) for line in ask(LINES, "--output", "json")]
    assert any(answer["finished"] for answer in answers if answer["text"])
    assert not all(answer["finished"] for answer in answers)
    for number, (answer, line, [output]) in enumerate(zip(answers, LINES, translator.search(LINES), strict=True), 1):
        assert list(answer) == [
            *("line", "source", "text", "score", "log_probability", "finished", "tokens", "token_log_probabilities"),
        ]
        assert (answer["line"], answer["source"], answer["text"]) == (number, line, output.text)
        assert answer["score"] == pytest.approx(output.score, abs=1e-5)
        assert answer["log_probability"] == pytest.approx(sum(answer["token_log_probabilities"]), abs=1e-5)
        # characters are tokens of their own here
        assert "".join(answer["tokens"]) == output.text + ("</s>" if output.finished and line else "")
        assert len(answer["tokens"]) == len(answer["token_log_probabilities"])


def test_json_lines_keep_what_they_bring(ask):
    lines = [{"text": "ein\u2028\x85hund\n\r", "id": "a/7"}, {"id": 0, "text": ""}]
    answers = ask(lines, "--input", "json", "--output", "json")
    assert all(len(line.splitlines()) == 1 for line in answers)
    assert [{key: json.loads(line)[key] for key in ("source", "id")} for line in answers] == [
        {"source": line["text"], "id": line["id"]} for line in lines
    ]
    assert ask([{"text": line} for line in LINES], "--input", "json") == ask(LINES)


def test_n_best(ask, translator):
    answers = [json.loads(line) for line in ask(LINES, "--output", "json", "--nbest", 3)]
    expected = translator.search(LINES, num_best=3)
    assert [[each["text"] for each in answer["nbest"]] for answer in answers] == [
        [output.text for output in outputs] for outputs in expected
    ]
    assert [len(answer["nbest"]) for answer in answers] == [3, 1, 3, 3]
    for answer in answers:
        first = answer["nbest"][0]
        assert {key: answer[key] for key in first} == first
        scores = [each["score"] for each in answer["nbest"]]
        assert scores == sorted(scores, reverse=True)
    samples = ask(LINES, "--sample", "--output", "json", "--nbest", 5)
    drawn = translator.search(LINES, SampleConfig(name="sample", min_new_tokens=3, max_new_tokens=20), num_best=5)
    assert [[each["text"] for each in json.loads(line)["nbest"]] for line in samples] == [
        [output.text for output in outputs] for outputs in drawn
    ]


def test_alignments_are_a_file_with_a_line_for_each_line(ask, translator, tmp_path):
    expected = align(translator, LINES, [outputs[0].tokens for outputs in translator.search(LINES)])
    assert ask(LINES, "--alignments", tmp_path / "links", "--lines-at-once", 2) == translator.translate(LINES)
    links = (tmp_path / "links").read_text().split("\n")
    assert links == [*(each.pharaoh for each in expected), ""]
    assert links[1] == ""
    assert "-0" in links[0]
    answers = ask(LINES, "--alignments", tmp_path / "again", "--output", "json")
    assert [json.loads(line)["alignment"] for line in answers] == [[list(link) for link in e.links] for e in expected]
    assert (tmp_path / "again").read_text() == (tmp_path / "links").read_text()


def test_attention(ask, translator):
    answers = [json.loads(line) for line in ask(LINES, "--attention", "--output", "json", "--nbest", 2)]
    for line, answer, outputs in zip(LINES, answers, translator.search(LINES, num_best=2), strict=True):
        for each, output in zip(answer["nbest"], outputs, strict=True):
            [expected] = align(translator, [line], [output.tokens])
            assert each["alignment"] == [list(link) for link in expected.links]
            assert each["attention"]["source_tokens"] == [*line, "</s>"]
            assert "".join(each["attention"]["target_tokens"]) == output.text
            difference = torch.tensor(each["attention"]["weights"]) - torch.tensor(expected.weights)
            assert difference.abs().sum() < 1e-3
            assert all(math.isclose(sum(row), 1, abs_tol=1e-4) for row in each["attention"]["weights"])


def test_phrases_and_beginnings(ask, translator, tmp_path):
    (tmp_path / "glossary.tsv").write_text("Hund\tta ta|wiek\nkatzen\tandi\n", encoding="utf-8")
    (tmp_path / "banned.txt").write_text("u\n\nei\n", encoding="utf-8")
    glossary, banned = ["--glossary", tmp_path / "glossary.tsv"], ["--banned", tmp_path / "banned.txt"]
    constraints = [Constraints((("ta ta", "wiek"),)), Constraints(), Constraints((("andi",),)), Constraints()]
    found = ask(LINES, *glossary)
    assert found == _texts(translator.search(LINES, constraints=constraints))
    assert "ta ta" in found[0] or "wiek" in found[0]
    assert "andi" in found[2]
    assert ask(LINES, *banned) == _texts(translator.search(LINES, constraints=[Constraints(banned=("u", "ei"))] * 4))
    started = ask(LINES, "--prefix", "wei ", *banned)
    assert [text[:4] for text in started] == ["wei ", "", "wei ", "wei "]
    both = Constraints(banned=("u", "ei"), prefix="wei ")
    assert started == _texts(translator.search(LINES, constraints=[both] * 4))


def test_json_lines_have_demands_of_their_own(ask, translator, tmp_path):
    (tmp_path / "banned.txt").write_text("u\n", encoding="utf-8")
    lines = [
        {"text": "ein hund", "required": ["wa", ["ka", "ta"]], "ordered": True},
        {"text": "ein hund", "required": ["wa", ["ka", "ta"]], "ordered": False, "banned": ["i"]},
        {"text": "ein hund", "prefix": "zu"},
        {"text": "ein hund"},
    ]
    constraints = [
        Constraints((("wa",), ("ka", "ta")), ordered=True, banned=("u",)),
        Constraints((("wa",), ("ka", "ta")), banned=("u", "i")),
        Constraints(banned=("u",), prefix="zu"),
        Constraints(banned=("u",), prefix="an"),
    ]
    options = ["--input", "json", "--output", "json", "--banned", tmp_path / "banned.txt", "--prefix", "an"]
    constraints[:2] = [Constraints(c.required, c.ordered, c.banned, "an") for c in constraints[:2]]
    answers = [json.loads(line) for line in ask(lines, *options)]
    texts = [line["text"] for line in lines]
    assert [answer["text"] for answer in answers] == _texts(translator.search(texts, constraints=constraints))
    assert [answer.get("missing") for answer in answers] == [[], [], None, None]
    # cut before it could have them
    [cut] = ask([{"text": "", "required": [["wa", "ka"]]}], "--input", "json", "--output", "json")
    assert json.loads(cut)["missing"] == [["wa", "ka"]]


def test_what_a_line_cannot_have_names_it(run_tool, folders):
    for lines, options, message in (
        (b'{"text": "a"}\n{"txt": "a"}\n', [], "line 2: 'text' must be given, but is missing."),
        (b'{"text": "a", "required": [""]}\n', [], "line 1: "),
        (b'{"text": "a", "tag": "<2de>"}\n', [], "sources must be tagged as in training (without a tag)"),
    ):
        result = run_tool(app, [folders[0], "--input", "json", *options], input=lines)
        assert (result.exit_code, result.stdout_bytes) == (2, b"")
        assert message in result.stderr
        assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--beam-size", 1], "a beam search, but the search is greedy; add a --beam-size of 2 or more."),
        (["--sample"], "a beam search, but the search is sample; add a --beam-size of 2 or more."),
        (["--mbr", 2], "a beam search, but the search is mbr; add a --beam-size of 2 or more."),
        (["--groups", 2, "--diversity", 1], "a beam without groups, but it has 2; add --groups 1 --diversity 0."),
    ],
)
def test_a_search_that_cannot_see_to_required_phrases_names_the_line(run_tool, folders, options, message):
    lines = b'{"text": "a", "required": []}\n{"text": "b"}\n{"text": "c", "required": ["a"]}\n'
    result = run_tool(app, [folders[0], "--input", "json", *options], input=lines)
    sentence = f"error: line 3: 'required' needs {message}\n"
    assert (result.exit_code, result.stdout_bytes, result.stderr) == (2, b"", sentence)


def test_a_glossary_needs_a_beam(run_tool, folders, tmp_path):
    (tmp_path / "glossary.tsv").write_text("a\tb\n", encoding="utf-8")
    result = run_tool(app, [folders[0], "--glossary", tmp_path / "glossary.tsv", "--beam-size", 1], input=b"a\n")
    sentence = "--glossary needs a beam search, but the search is greedy; add a --beam-size of 2 or more."
    assert (result.exit_code, result.stderr) == (2, f"error: {sentence}\n")
    options = ["--groups", 2, "--diversity", 0.5]
    result = run_tool(app, [folders[0], "--glossary", tmp_path / "glossary.tsv", *options], input=b"b\n")
    sentence = "--glossary needs a beam without groups, but it has 2; add --groups 1 --diversity 0."
    assert (result.exit_code, result.stderr) == (2, f"error: {sentence}\n")
    with pytest.raises(ValueError, match=r"^--glossary needs a beam of 2 or more, but the bundle's has 1; add a"):
        check_phrases_fit(BeamConfig(name="beam", size=1), "--glossary")


def test_alignments_do_not_overwrite_what_is_to_be_translated(run_tool, folders, tmp_path):
    (tmp_path / "lines").write_text("a\n")
    for name, message in (("lines", "is a file to be translated; name another."), ("no/folder", "cannot be written")):
        result = run_tool(app, [folders[0], tmp_path / "lines", "--alignments", tmp_path / name])
        assert (result.exit_code, result.stdout_bytes) == (2, b"")
        assert message in result.stderr
    assert (tmp_path / "lines").read_text() == "a\n"
    result = run_tool(app, [folders[0], tmp_path / "missing", "--alignments", tmp_path / "lines"])
    sentence = f"error: The file {str(tmp_path / 'missing')!r} does not exist.\n"
    assert (result.exit_code, result.stderr) == (2, sentence)
    (tmp_path / "phrases").write_text("a\tb\n")
    (tmp_path / "same").symlink_to(tmp_path / "phrases")
    for option in ("--glossary", "--banned"):
        options = [option, tmp_path / "phrases", "--alignments", tmp_path / "same"]
        result = run_tool(app, [folders[0], *options], input=b"a\n")
        sentence = f"error: --alignments {tmp_path / 'same'} is the file of {option}; name another.\n"
        assert (result.exit_code, result.stdout_bytes, result.stderr) == (2, b"", sentence)
        assert (tmp_path / "phrases").read_text() == "a\tb\n"


def test_alignments_of_several_outputs_warn_once(run_tool, folders):
    lines = b"ein\nhund\tein\n\n" + b"d" * 30 + b"\n"
    options = ["--nbest", 3, "--output", "json", "--attention", "--lines-at-once", 2]
    result = run_tool(app, [folders[0], *options], input=lines)
    assert result.stderr.splitlines() == [
        "warning: line 2 reads 'hund<unk>ein' to the model; words are numbered as there.",
        "warning: line 4 has 30 tokens and is cut to the model's 23.",
        "warning: line 4 has 30 source tokens, of which the first 23 are aligned.",
    ]
    assert [len(json.loads(line)["nbest"]) for line in result.stdout_bytes.splitlines()] == [3, 3, 1, 3]


def test_ensembles(ask, folders):
    together = Translator.load(folders[0], ensemble=[folders[1], folders[1]])
    found = ask(LINES, "--ensemble", folders[1], "--ensemble", folders[1])
    assert found == together.translate(LINES)
    assert found != ask(LINES)


def test_speed_options(ask, translator):
    before = torch.get_num_threads()
    try:
        found = ask(LINES, "--threads", 1, "--precision", "float32")
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)
    assert found == translator.translate(LINES, BeamConfig.from_plain(SEARCH))
