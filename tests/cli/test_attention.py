"""``transformer-attention`` in this process."""

import json
import math

import pytest
from matplotlib.image import imread

from transformer.bundle import save_bundle
from transformer.cli.attention import app
from transformer.inference.attention_maps import text_attention, translation_attention
from transformer.inference.generator import Generator
from transformer.inference.translator import Translator

SEARCH = {"name": "greedy", "max_new_tokens": 5}
ONE = ["--layers", 2, "--heads", "mean"]  # one small picture of a kind


@pytest.fixture(scope="module")
def folder(tiny_bundle, tmp_path_factory):
    path = tmp_path_factory.mktemp("translator") / "bundle"
    bundle = tiny_bundle("encoder_decoder", seed=3, decoding=SEARCH, num_encoder_layers=2, num_decoder_layers=3)
    save_bundle(path, bundle, "card")
    return path


@pytest.fixture(scope="module")
def text_folder(tiny_bundle, tmp_path_factory):
    path = tmp_path_factory.mktemp("generator") / "bundle"
    save_bundle(path, tiny_bundle("decoder_only", seed=3, num_layers=2, mark_documents=True), "card")
    return path


def objects(result):
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout_bytes.decode().splitlines()]


def refusal(result):
    assert (result.exit_code, result.stdout) == (2, "")
    return result.stderr


def test_json_has_all_weights_with_their_tokens(folder, run_tool):
    [found] = objects(run_tool(app, [folder, "--output", "json", "--text", "ei b", "--target", "egg"]))
    maps = translation_attention(Translator.load(folder), "ei b", "egg").maps
    assert (found["line"], found["source"], found["target"]) == (1, "ei b", "egg")
    assert [each["kind"] for each in found["maps"]] == ["encoder", "decoder", "cross"]
    for plain, expected in zip(found["maps"], maps, strict=True):
        assert plain["queries"] == [token._asdict() for token in expected.query_tokens]
        assert plain["keys"] == [token._asdict() for token in expected.key_tokens]
        layers = range(1, expected.num_layers + 1)
        assert [(head["layer"], head["head"]) for head in plain["heads"]] == [
            (layer, head) for layer in layers for head in ("mean", 1, 2)
        ]
        for head in plain["heads"]:
            weights_HQK = expected.weights_LHQK[head["layer"] - 1]
            weights_QK = weights_HQK.mean(0) if head["head"] == "mean" else weights_HQK[head["head"] - 1]
            assert head["weights"] == [pytest.approx(row, abs=1e-6) for row in weights_QK.tolist()]
    cross = found["maps"][2]
    assert [token["text"] for token in cross["queries"]] == ["e", "g", "g", "</s>"]
    assert [token["text"] for token in cross["keys"]] == ["e", "i", "␣", "b", "</s>"]


def test_json_has_entropies_and_strongest_links(folder, run_tool):
    arguments = [folder, "--output", "json", "--text", "ei b", "--target", "egg", "--kind", "cross", "--heads", "2"]
    [found] = objects(run_tool(app, arguments))
    [cross] = found["maps"]
    assert [(head["layer"], head["head"]) for head in cross["heads"]] == [(1, 2), (2, 2), (3, 2)]
    for head in cross["heads"]:
        rows = head["weights"]
        nats = [-sum(w * math.log(w) for w in row if w > 0) for row in rows]
        assert head["entropy"] == pytest.approx(sum(nats) / 4, abs=1e-3)
        assert head["entropy_share"] == pytest.approx(sum(nats) / 4 / 1.609438, abs=1e-3)
        assert head["strongest"] == [
            {"query": place, "key": row.index(max(row)), "weight": max(row)} for place, row in enumerate(rows)
        ]


def test_each_line_has_an_object_and_may_have_its_target(folder, run_tool, tmp_path):
    (tmp_path / "lines.tsv").write_text("ei\tegg\nrad\n", encoding="utf-8")
    for arguments, given in (([tmp_path / "lines.tsv"], b""), ([], b"ei\tegg\nrad\n")):
        arguments = [folder, *arguments, "--output", "json", "--kind", "decoder", *ONE]
        first, second = objects(run_tool(app, arguments, input=given))
        assert (first["line"], first["source"], first["target"]) == (1, "ei", "egg")
        assert (second["line"], second["source"]) == (2, "rad")
        assert second["target"] == Translator.load(folder).translate(["rad"])[0]
    assert not (tmp_path / "attention").exists()


def test_a_language_model_has_the_attention_of_its_decoder(text_folder, run_tool):
    [found] = objects(run_tool(app, [text_folder, "--output", "json"], input=b"ab\tc\n"))
    assert (found["prompt"], "target" in found) == ("ab\tc", False)
    [decoder] = found["maps"]
    [expected] = text_attention(Generator.load(text_folder), "ab\tc").maps
    assert decoder["kind"] == "decoder"
    assert decoder["keys"][0]["piece"] == "<s>"
    assert decoder["heads"][1]["weights"] == [
        pytest.approx(row, abs=1e-6) for row in expected.weights_LHQK[0, 0].tolist()
    ]
    assert decoder["heads"][1]["weights"][0][1:] == [0.0] * (len(decoder["keys"]) - 1)


def test_tables_are_at_most_80_columns_wide_and_pictures_are_named(folder, run_tool, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run_tool(app, [folder, "--text", "ein hund b", "--target", "a dog", "--kind", "cross,encoder", *ONE])
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[:2] == ["source: ein hund b", "target: a dog"]
    assert "Encoder self-attention, 11 × 11 tokens" in lines
    assert "Strongest alignments: cross-attention, layer 2, mean" in lines
    assert lines[-2:] == ["attention/encoder-layer2.png", "attention/cross-layer2.png"]
    heights, widths, _ = zip(*(imread(tmp_path / line).shape for line in lines[-2:]), strict=True)
    assert min(widths) >= 600
    assert heights[0] > heights[1] > 300  # of 11 and of 6 rows
    assert sorted(path.name for path in (tmp_path / "attention").iterdir()) == [
        "cross-layer2.png",
        "encoder-layer2.png",
    ]


def test_tables_show_the_strongest_links(folder, run_tool, tmp_path):
    arguments = ["--text", "ei b", "--target", "egg", "--kind", "cross", "--layers", "3", "--heads", "1"]
    result = run_tool(app, [folder, *arguments, "--output-folder", tmp_path, "--format", "svg"])
    assert result.exit_code == 0, result.stderr
    cross = translation_attention(Translator.load(folder), "ei b", "egg").maps[2]
    keys = ["e", "i", "␣", "b", "</s>"]
    head_QK, mean_QK = cross.weights_LHQK[2, 0], cross.weights_LHQK[2].mean(0)
    strongest = int(head_QK.flatten().argmax())
    link = f"{['e', 'g', 'g', '</s>'][strongest // 5]} → {keys[strongest % 5]} {float(head_QK.max()):.2f}"
    assert link in result.stdout
    *_, end = [line.split() for line in result.stdout.splitlines() if line.startswith("</s>")]
    weights, places = mean_QK[3].topk(2)
    assert end == ["</s>", keys[places[0]], f"{weights[0]:.2f}", keys[places[1]], f"{weights[1]:.2f}"]
    assert (tmp_path / "cross-layer3.svg").read_text(encoding="utf-8").startswith("<?xml")


def test_pictures_of_lines_are_in_folders_of_their_own(text_folder, run_tool, tmp_path):
    arguments = [text_folder, *ONE, "--output", "json", "--output-folder", tmp_path / "made"]
    assert len(objects(run_tool(app, arguments, input=b"ab\nc\n"))) == 2
    made = sorted(str(path.relative_to(tmp_path / "made")) for path in (tmp_path / "made").rglob("*.png"))
    assert made == ["line-1/decoder-layer2.png", "line-2/decoder-layer2.png"]


def test_characters_that_no_font_has_are_told_with_the_way_out(tiny_bundle, run_tool, tmp_path, monkeypatch):
    monkeypatch.setattr("transformer.attention_maps.fonts.findSystemFonts", list)
    save_bundle(tmp_path / "bundle", tiny_bundle("decoder_only", characters="你好"), "card")
    result = run_tool(app, [tmp_path / "bundle", "--text", "你好", "--heads", "mean", "--output-folder", tmp_path])
    assert result.exit_code == 0
    [warning] = result.stderr.splitlines()
    assert warning.startswith("warning: no installed font has 你 好; tokens with them are labelled by their places")
    assert warning.endswith("or name the file of one with --font.")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "b"], "--target needs --text; lines have it behind a tab."),
        (["lines.txt", "--text", "b"], "--text takes the place of files; give one of them."),
        (
            ["--text", "b", "--output", "json", "--font", "x.ttf"],
            "--font has no effect without pictures; add ",
        ),
        (["--text", "b", "--output", "json", "--format", "png"], "--format has no effect without pictures; add "),
        (["--text", "b", "--font", "x.ttf"], "x.ttf must be a font (TTF, OTF or TTC), but cannot be read"),
        (["--text", "b", "--layers", "4"], "--layers must be from 1 to 2 for encoder self-attention, but has 4."),
        (["--text", "b", "--heads", "3"], "--heads must be from 1 to 2 for encoder self-attention, but has 3."),
        (["--text", "b", "--layers", "x"], "--layers must be a list such as 1,3-4 (or all), but is 'x'."),
        (["--text", "b", "--heads", "x"], "--heads must be a list such as 1,3-4 (or all, mean), but is 'x'."),
        (
            ["--text", "b", "--kind", "cross,x"],
            "--kind must be of those that the model has (encoder, decoder, cross)",
        ),
        (["--text", " "], "line 1: the source is blank"),
        (["--text", "a\nb"], "--text and --target must be one line each: a translation model reads line by line."),
        (["--text", "b", "--target", "a\nb"], "--text and --target must be one line each"),
        (["--text", "b", "--tag", "<2de>"], "sources must be tagged as in training"),
    ],
)
def test_what_has_no_effect_or_no_meaning_is_refused(folder, run_tool, arguments, message):
    assert message in refusal(run_tool(app, [folder, *arguments]))


def test_refusals_of_lines_name_them(folder, run_tool):
    result = run_tool(app, [folder, "--output", "json"], input=b"a\tb\tc\n")
    assert "error: line 1: must be source TAB target, but has 2 tabs." in refusal(result)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "b"], "--target has no effect for a language model; leave it out."),
        (["--tag", "<2de>"], "--tag has no effect for a language model; leave it out."),
        (["--kind", "cross"], "--kind must be of those that the model has (decoder), but has 'cross'."),
    ],
)
def test_options_of_translation_are_refused_for_a_language_model(text_folder, run_tool, arguments, message):
    assert message in refusal(run_tool(app, [text_folder, "--text", "b", *arguments]))


def test_a_folder_that_cannot_be_written_is_an_error_in_one_line(text_folder, run_tool, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    result = run_tool(app, [text_folder, "--text", "b", *ONE, "--output-folder", tmp_path / "file"])
    assert result.exit_code == 2
    assert f"error: {tmp_path / 'file'}: the pictures cannot be written: " in result.stderr


def test_a_picture_too_large_to_draw_names_the_way_out(text_folder, run_tool, tmp_path, monkeypatch):
    monkeypatch.setattr("transformer.attention_maps.drawing.MIN_CELL", 5000.0)
    monkeypatch.setattr("transformer.attention_maps.drawing.MAX_CELL", 5000.0)
    result = run_tool(app, [text_folder, "--text", "the cat", "--output-folder", tmp_path / "pictures"])
    assert result.exit_code == 2
    assert "pixels is too large" in result.stderr
    assert result.stderr.endswith(" Choose fewer heads with --heads, or --format svg.\n")
