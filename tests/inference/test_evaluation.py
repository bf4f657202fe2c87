"""Scores of a bundle against scores worked out one example at a time."""

import math

import pytest
import torch
import torch.nn.functional as F

from transformer.bundle import Bundle
from transformer.data.corpora import running_text
from transformer.data.corpora.document_config import PlainTextConfig
from transformer.data.corpora.pair_config import ParallelTextConfig, PhrasesConfig
from transformer.data.text_data import read_documents
from transformer.inference.evaluation import evaluate_language_model, evaluate_translation
from transformer.inference.generator import Generator
from transformer.inference.split import score_split
from transformer.inference.translator import Translator
from transformer.metrics.text import all_scores

SOURCES = ["abc def", "", "ghi", "a b c d e f g h i k l m n o p", "xyz"]
REFERENCES = ["cba", "x", "ihg ihg ihg ihg ihg ihg ihg ihg", "", "zyx zyx"]


def _loss_one_by_one(bundle, room):
    total, count = 0.0, 0
    for source, reference in zip(SOURCES, REFERENCES, strict=True):
        source_ids = [*bundle.source_tokenizer.encode(source)[:room], 2]
        target_ids = bundle.target_tokenizer.encode(reference)[:room]
        logits = bundle.model(torch.tensor([source_ids]), torch.tensor([[1, *target_ids]]))[0]
        total += float(F.cross_entropy(logits, torch.tensor([*target_ids, 2]), reduction="sum"))
        count += len(target_ids) + 1
    return total / count


@pytest.mark.parametrize("max_tokens_per_batch", [1, 30, 10_000])
def test_translation_scores(tiny_bundle, max_tokens_per_batch):
    bundle = tiny_bundle("encoder_decoder", dropout=0.5)
    bundle.model.train()  # scores are those of evaluation mode
    translator = Translator(bundle)
    evaluation = evaluate_translation(translator, SOURCES, REFERENCES, max_tokens_per_batch=max_tokens_per_batch)
    assert bundle.model.training
    assert evaluation.outputs == translator.translate(SOURCES)
    assert evaluation.outputs[1] == ""
    scores = {score.name: score.value for score in evaluation.scores}
    assert list(scores) == ["bleu", "chrf", "ter", "exact_match", "loss", "perplexity"]
    bundle.model.eval()
    with torch.no_grad():
        loss = _loss_one_by_one(bundle, room=23)  # of 24 positions; the longest reference has 31 characters
    assert scores["loss"] == pytest.approx(loss, rel=1e-5)
    assert scores["perplexity"] == pytest.approx(math.exp(loss), rel=1e-4)
    assert evaluation.scores[:4] == all_scores(evaluation.outputs, REFERENCES)


def test_perfect_references_score_full_marks(tiny_bundle):
    translator = Translator(tiny_bundle("encoder_decoder"))
    references = translator.translate(SOURCES)
    scores = {score.name: score.value for score in evaluate_translation(translator, SOURCES, references).scores}
    assert scores["exact_match"] == 100.0
    assert scores["chrf"] == pytest.approx(100.0)


@pytest.mark.parametrize("mark_documents", [False, True])
@pytest.mark.parametrize("max_tokens_per_batch", [1, 20, 4096])
def test_language_model_scores(tiny_bundle, mark_documents, max_tokens_per_batch):
    """Every token but the first is scored once, from the tokens of its window only."""
    bundle = tiny_bundle("decoder_only", max_length=7, dropout=0.5, mark_documents=mark_documents)
    bundle.model.train()
    texts = ["abc def ghi äöü", "", "xyz xyz"]
    scores = evaluate_language_model(Generator(bundle), texts, max_tokens_per_batch=max_tokens_per_batch)
    assert bundle.model.training
    bundle.model.eval()
    ids = []
    for text in texts:
        encoded = bundle.target_tokenizer.encode(text)
        ids += [1, *encoded, 2] if mark_documents else encoded
    assert len(ids) == (28 if mark_documents else 22)
    total = 0.0
    with torch.no_grad():
        for place in range(1, len(ids)):
            window = (place - 1) // 7 * 7
            logits = bundle.model(torch.tensor([ids[window:place]]))[0, -1]
            total += float(F.cross_entropy(logits, torch.tensor(ids[place])))
    values = {score.name: score.value for score in scores}
    assert values["loss"] == pytest.approx(total / (len(ids) - 1), rel=1e-5)
    assert values["perplexity"] == pytest.approx(math.exp(total / (len(ids) - 1)), rel=1e-4)
    assert values["bits_per_byte"] == pytest.approx(total / math.log(2) / 25, rel=1e-5)  # three letters of two bytes
    assert values["bits_per_character"] == pytest.approx(total / math.log(2) / 22, rel=1e-5)


@pytest.mark.parametrize("texts", [[], [""], ["a"], ["", "a"]])
def test_too_little_text_is_refused(tiny_bundle, texts):
    with pytest.raises(ValueError, match=r"must be at least 2 tokens to score, but there are [01]"):
        evaluate_language_model(Generator(tiny_bundle("decoder_only")), texts)


@pytest.fixture
def files(tmp_path):
    for name, lines in (("validation", 2), ("test", 4)):
        (tmp_path / f"{name}.a").write_text("abc\n" * lines)
        (tmp_path / f"{name}.b").write_text("cba\n" * lines)
    return tmp_path


def _pairs(folder, **test):
    return ParallelTextConfig(
        folder=str(folder), train_source="test.a", train_target="test.b", validation_source="validation.a",
        validation_target="validation.b", **test,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("split", "has_test", "used", "lines"),
    [
        ("test", True, "test", 4),
        (None, True, "test", 4),
        (None, False, "validation", 2),
        ("validation", True, "validation", 2),
    ],
)
def test_a_split_of_pairs(tiny_bundle, files, caplog, split, has_test, used, lines):
    bundle = tiny_bundle("encoder_decoder")
    data = _pairs(files, test_source="test.a", test_target="test.b") if has_test else _pairs(files)
    scored = score_split(bundle, data, split)
    assert scored.split == used
    stands_in = ["`data` has no test split: its validation split is scored, by which a run chooses its weights."]
    assert [record.getMessage() for record in caplog.records] == ([] if has_test else stands_in)
    assert scored.sources == ["abc"] * lines
    assert scored.references == ["cba"] * lines
    assert scored.outputs == Translator(bundle).translate(["abc"] * lines)
    assert scored.scores == evaluate_translation(Translator(bundle), ["abc"] * lines, ["cba"] * lines).scores


@pytest.mark.parametrize(
    ("split", "test", "used", "lines"),
    [
        ("test", "test.a", "test", 4),
        (None, "test.a", "test", 4),
        (None, None, "validation", 2),
        ("validation", "test.a", "validation", 2),
    ],
)
def test_a_split_of_texts(tiny_bundle, files, caplog, split, test, used, lines):
    bundle = tiny_bundle("decoder_only")
    data = PlainTextConfig(folder=str(files), train="test.b", validation="validation.a", test=test)
    scored = score_split(bundle, data, split)
    assert (scored.split, scored.outputs) == (used, [])
    assert len(caplog.records) == (test is None)
    assert scored.scores == evaluate_language_model(Generator(bundle), ["abc\n" * lines], max_tokens_per_batch=2048)


def test_a_split_that_is_asked_for_but_not_there_is_refused(tiny_bundle, files):
    """Validation scores must not be taken for those of the test set."""
    texts = PlainTextConfig(folder=str(files), train="test.b", validation="validation.a")
    for bundle, data in ((tiny_bundle("encoder_decoder"), _pairs(files)), (tiny_bundle("decoder_only"), texts)):
        with pytest.raises(ValueError, match=r"^`data` has no test split to score\.$"):
            score_split(bundle, data, "test")


def test_references_cut_for_the_loss_are_told_of(tiny_bundle, caplog):
    translator = Translator(tiny_bundle("encoder_decoder"))  # 24 positions, one of them for the end
    evaluate_translation(translator, ["a"] * 5, ["b" * 23, "b" * 24, "b", "b" * 40, "b" * 23])
    assert [record.getMessage() for record in caplog.records] == [
        "2 of 5 references have more than the model's 23 tokens and are cut for the loss (not for the other scores), "
        "the first in line 2."
    ]
    caplog.clear()
    evaluate_translation(translator, ["a"], ["b" * 23])
    assert caplog.records == []


def test_pairs_without_the_tag_of_training_are_refused(tiny_bundle, files):
    bundle = tiny_bundle("encoder_decoder")
    tagged = bundle.config.model_copy(update={"data": PhrasesConfig(tag="<2de>")})
    data = _pairs(files)
    with pytest.raises(ValueError, match=r"tagged as in training \('<2de>'\), but one is without a tag\.$"):
        score_split(Bundle(tagged, bundle.model, bundle.source_tokenizer, bundle.target_tokenizer), data, "validation")
    with pytest.raises(ValueError, match=r"tagged as in training \(without a tag\), but one is tagged '<2de>'\.$"):
        score_split(bundle, data.model_copy(update={"tag": "<2de>"}), "validation")


def test_running_text_is_one_document_a_file_where_documents_are_marked(tiny_bundle, tmp_path, monkeypatch):
    read_pieces = running_text.read_pieces
    monkeypatch.setattr(running_text, "read_pieces", lambda path: read_pieces(path, size=16))
    texts = ["".join(f"line {number}\n" for number in range(10)), "abc\ndef\n"]
    for name, text in zip("ab", texts, strict=True):
        (tmp_path / f"{name}.txt").write_text(text)
    data = PlainTextConfig(folder=str(tmp_path), train="a.txt", test=("a.txt", "b.txt"))
    assert len(read_documents(data, "test")) > 2  # pieces
    for mark_documents in (False, True):
        bundle = tiny_bundle("decoder_only", mark_documents=mark_documents)
        expected = evaluate_language_model(Generator(bundle), texts, max_tokens_per_batch=2048)
        assert score_split(bundle, data, "test").scores == expected


def test_data_of_the_other_kind_is_refused(tiny_bundle, files):
    texts = PlainTextConfig(folder=str(files), train="test.a", validation="validation.a")
    with pytest.raises(ValueError, match=r"translates and needs sentence pairs, but `data.name` is plain_text"):
        score_split(tiny_bundle("encoder_decoder"), texts, "test")
    with pytest.raises(ValueError, match=r"is a language model and needs texts, but `data.name` is parallel_text"):
        score_split(tiny_bundle("decoder_only"), _pairs(files), "test")
