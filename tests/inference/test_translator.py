"""Translating texts with a bundle of random weights."""

import logging
import random
import re

import pytest
import torch

from transformer.bundle import Bundle, save_bundle
from transformer.data.corpora.pair_config import MixtureConfig, PhrasesConfig
from transformer.data.subwords.config import CharConfig
from transformer.data.subwords.tokenizer import Tokenizer
from transformer.decoding.config import BeamConfig, GreedyConfig, SampleConfig
from transformer.inference.translator import Translator

GREEDY = GreedyConfig(name="greedy")
SEARCHES = pytest.mark.parametrize(
    "decoding",
    [GREEDY, BeamConfig(name="beam", size=3), SampleConfig(name="sample", temperature=1.5, seed=4)],
    ids=["greedy", "beam", "sample"],
)


def _lines(count, seed=0):
    generator = random.Random(seed)
    return ["".join(generator.choices("abcdefgh ", k=generator.randint(1, 22))) + "x" for _ in range(count)]


@SEARCHES
def test_a_line_does_not_depend_on_the_others(tiny_bundle, decoding):
    translator, lines = Translator(tiny_bundle("encoder_decoder")), _lines(12)
    together = translator.translate(lines, decoding)
    assert len(set(together)) > 6
    assert translator.translate(lines, decoding, max_tokens_per_batch=1) == together
    assert translator.translate(lines, decoding, max_tokens_per_batch=50) == together
    for number in range(12):
        assert translator.translate([lines[number]], decoding, first_line=number + 1) == [together[number]]
    with_blanks = [text for line in lines for text in (line, "", " ")]
    if decoding.name == "sample":  # the number of a line, blank ones counted, decides its draws
        alone = [translator.translate([line], decoding, first_line=3 * k + 1)[0] for k, line in enumerate(lines)]
        assert translator.translate(with_blanks, decoding)[::3] == alone != together
    else:
        assert translator.translate(lines[::-1], decoding) == together[::-1]
        assert translator.translate(with_blanks, decoding)[::3] == together
    assert translator.translate(with_blanks, decoding)[1::3] == [""] * 12


def test_greedy_translation_equals_a_loop_without_cache_or_batch(tiny_bundle):
    bundle = tiny_bundle("encoder_decoder")
    lines = _lines(6, seed=1)
    outputs = Translator(bundle).translate(lines, GREEDY)
    for line, output in zip(lines, outputs, strict=True):
        source = [*bundle.source_tokenizer.encode(line), 2]
        target = [1]
        for _ in range(min(20 + 2 * len(source), 24)):
            logits = bundle.model(torch.tensor([source]), torch.tensor([target]))[0, -1]
            logits[[0, 1]] = -torch.inf  # padding and the start token are no text
            token = int(logits.argmax())
            if token == 2:
                break
            target.append(token)
        assert bundle.target_tokenizer.decode(target[1:]) == output


def test_the_bundles_search_is_the_default(tiny_bundle):
    decoding = {"name": "greedy", "max_new_tokens": 2}
    translator = Translator(tiny_bundle("encoder_decoder", decoding=decoding))
    lines = _lines(4)
    assert translator.translate(lines) == [output[:2] for output in translator.translate(lines, GREEDY)]


@pytest.mark.parametrize("blank", ["", " ", "\t", "\u00a0 \u2003", "\u2028"])
def test_blank_for_blank(tiny_bundle, blank):
    translator = Translator(tiny_bundle("encoder_decoder"))
    assert translator.translate([blank]) == [""]
    assert translator.translate([blank, "abc", blank]) == ["", *translator.translate(["abc"]), ""]


def test_no_line_gives_no_line(tiny_bundle):
    assert Translator(tiny_bundle("encoder_decoder")).translate([]) == []


def test_an_over_long_source_is_cut_and_said_so(tiny_bundle, caplog):
    translator = Translator(tiny_bundle("encoder_decoder", max_length=8))
    lines = ["abcdefg", "abcdefgh", "hgfedcbaabc"]
    with caplog.at_level(logging.WARNING):
        outputs = translator.translate(["", *lines], first_line=100)
    assert caplog.messages == [
        "line 102 has 8 tokens and is cut to the model's 7.",
        "line 103 has 11 tokens and is cut to the model's 7.",
    ]
    assert outputs == ["", *translator.translate(["abcdefg", "abcdefg", "hgfedcb"])]


def test_a_line_break_in_an_output_becomes_a_space(tiny_bundle):
    outputs = []
    for seed in range(6):
        bundle = tiny_bundle("encoder_decoder", characters="\n", seed=seed)
        outputs += Translator(bundle).translate(["\n a", "a\n", "b"])
    assert any(" " in output for output in outputs)  # no other token is written as a space
    assert not any("\n" in output for output in outputs)


def test_separate_vocabularies(tiny_bundle):
    joint = tiny_bundle("encoder_decoder")
    target = Tokenizer.train(CharConfig(), ["uvwxyz"])
    model = type(joint.model)(joint.model.config, joint.source_tokenizer.vocab_size, target.vocab_size).eval()
    translator = Translator(Bundle(joint.config, model, joint.source_tokenizer, target))
    output = translator.translate(["abc"])[0].replace("<unk>", "")
    assert output
    assert set(output) <= set("uvwxyz")


@pytest.fixture
def tagged_translator(tiny_bundle):
    """Make a translator that was trained on a corpus for each of some tags."""

    def make(*tags):
        plain = tiny_bundle("encoder_decoder")
        tokenizer = Tokenizer.train(CharConfig(), ["abcdefgh "], tags=sorted({*tags} - {None}))
        data = MixtureConfig(corpora={str(number): PhrasesConfig(tag=tag) for number, tag in enumerate(tags)})
        model = type(plain.model)(plain.model.config, tokenizer.vocab_size, tokenizer.vocab_size).eval()
        config = plain.config.model_copy(update={"data": data})
        return Translator(Bundle(config, model, tokenizer, tokenizer))

    return make


def test_sources_stand_behind_their_tags(tagged_translator):
    translator = tagged_translator("<2de>", None, "<2fr>")
    tokenizer = translator.bundle.source_tokenizer
    ids = tokenizer.encode("abc")
    german, french = tokenizer.tag_id("<2de>"), tokenizer.tag_id("<2fr>")
    tags = ["<2fr>", None, "<2de>"]
    assert translator.encode(["abc"] * 3, tags) == [[french, *ids], ids, [german, *ids]]
    assert translator.encode(["abc"] * 2, None) == [ids, ids]  # some had none in training


def test_the_only_tag_needs_not_be_given(tagged_translator):
    translator = tagged_translator("<2de>", "<2de>")
    german = translator.bundle.source_tokenizer.tag_id("<2de>")
    [ids] = translator.encode(["abc"], None)
    assert ids == [german, *translator.bundle.source_tokenizer.encode("abc")]
    assert translator.translate(["abc", "b"]) == translator.translate(["abc", "b"], tags=["<2de>"] * 2)


@pytest.mark.parametrize(
    ("known", "tags", "trained", "given"),
    [
        (["<2de>"], [None], "'<2de>'", "without a tag"),
        (["<2de>"], ["<2de>", "<2fr>"], "'<2de>'", "tagged '<2fr>'"),
        (["<2de>", "<2fr>"], None, "'<2de>', '<2fr>'", "without a tag"),
        (["<2de>", "<2fr>"], ["<2fr>", None], "'<2de>', '<2fr>'", "without a tag"),
        (["<2de>", None], ["<2xx>"], "'<2de>', without a tag", "tagged '<2xx>'"),
        ([None], ["<2de>"], "without a tag", "tagged '<2de>'"),
    ],
)
def test_tags_that_were_not_trained_with_are_refused(tagged_translator, known, tags, trained, given):
    texts = ["abc"] * (1 if tags is None else len(tags))
    translator, message = tagged_translator(*known), f"sources must be tagged as in training ({trained}), but one is"
    with pytest.raises(ValueError, match=f"^{re.escape(message)} {given}\\.$"):
        translator.encode(texts, tags)
    with pytest.raises(ValueError, match=f"^{re.escape(message)} {given}\\.$"):
        translator.translate(texts, tags=tags)


def test_a_tag_of_the_vocabulary_alone_is_refused(tagged_translator):
    """Vocabularies of others have special tokens that no source began with."""
    trained = tagged_translator("<2de>", "<2fr>")
    config = trained.bundle.config.model_copy(update={"data": PhrasesConfig(tag="<2de>")})
    tokenizer = trained.bundle.source_tokenizer
    with pytest.raises(ValueError, match=r"tagged as in training \('<2de>'\), but one is tagged '<2fr>'\.$"):
        Translator(Bundle(config, trained.model, tokenizer, tokenizer)).encode(["abc"], ["<2fr>"])


def test_a_language_model_is_refused(tiny_bundle):
    with pytest.raises(ValueError, match="holds a language model; use transformer-generate"):
        Translator(tiny_bundle("decoder_only"))


def test_load(tiny_bundle, tmp_path):
    bundle = tiny_bundle("encoder_decoder")
    save_bundle(tmp_path / "bundle", bundle, "card")
    assert Translator.load(tmp_path / "bundle").translate(_lines(3)) == Translator(bundle).translate(_lines(3))
    with pytest.raises(ValueError, match=r"is not a bundle: it has no config.json"):
        Translator.load(tmp_path)


@pytest.mark.parametrize(("num_best", "rows"), [(1, 6), (2, 3), (6, 1), (7, 1)])
def test_samples_count_as_rows_of_a_batch(tiny_bundle, monkeypatch, num_best, rows):
    """Lines of seven characters and the end token: six of them fill a batch of 48 tokens."""
    translator, batches = Translator(tiny_bundle("encoder_decoder")), []
    searched = translator._search
    monkeypatch.setattr(
        translator, "_search", lambda sources, *rest: batches.append(len(sources)) or searched(sources, *rest)
    )
    sampling = SampleConfig(name="sample", max_new_tokens=3)
    found = translator.search(["abcdefg"] * 6, sampling, num_best=num_best, max_tokens_per_batch=48)
    assert max(batches) == rows
    assert [len(outputs) for outputs in found] == [num_best] * 6


def test_blank_lines_do_not_share_their_answer(tiny_bundle):
    one, two = Translator(tiny_bundle("encoder_decoder")).search(["", " "])
    assert one == two
    assert one is not two
