"""Test sets in files of one's own."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transformer.bundle import Bundle, save_bundle
from transformer.data.corpora.document_config import PlainTextConfig, TextMixtureConfig
from transformer.data.corpora.pair_config import MixtureConfig, PhrasesConfig
from transformer.inference.comparison import load_candidates
from transformer.inference.evaluation import evaluate_language_model, evaluate_translation
from transformer.inference.generator import Generator
from transformer.inference.own_files import PairFiles, TextFiles, read_files, read_translations
from transformer.inference.split import PairSplit, TextSplit, score_on
from transformer.inference.translator import Translator

Make = Callable[..., Bundle]
BOM = "\ufeff"


@pytest.fixture
def files(tmp_path: Path) -> PairFiles:
    """Two sentences with two references each, as Windows and compression tools leave them."""
    (tmp_path / "source").write_bytes(f"{BOM}abc\r\nd\u2028e\r\n".encode())
    (tmp_path / "one").write_text(f"{BOM}c\u2028b\x85a\ne")
    (tmp_path / "two.gz").write_bytes(gzip.compress(b"cab\nd e\n"))
    return PairFiles(tmp_path / "source", (tmp_path / "one", tmp_path / "two.gz"))


def with_data(bundle: Bundle, data: Any) -> Bundle:
    config = bundle.config.model_copy(update={"data": data})
    return Bundle(config, bundle.model, bundle.source_tokenizer, bundle.target_tokenizer)


def test_pairs_are_scored_as_the_same_texts_are(tiny_bundle: Make, files: PairFiles) -> None:
    bundle = tiny_bundle("encoder_decoder")
    texts = read_files(bundle.config, files)
    sources, first, second = ["abc", "d\u2028e"], ["c\u2028b\x85a", "e"], ["cab", "d e"]
    assert texts == PairSplit(None, sources, first, [None, None], "13a", [second])
    scored = score_on(bundle, texts)
    expected = evaluate_translation(Translator(bundle), sources, first, more_references=[second])
    assert (scored.split, scored.outputs, scored.scores) == (None, expected.outputs, expected.scores)
    assert scored.more_references == [second]
    by_name = {score.name: score.signature for score in scored.scores}
    assert by_name["bleu"].startswith("nrefs:2|")
    assert by_name["loss"] == "nats per target token, no smoothing, first of 2 references"
    alone = score_on(bundle, read_files(bundle.config, files._replace(references=files.references[:1])))
    assert alone.scores[4].value == scored.scores[4].value
    assert alone.scores[4].signature == "nats per target token, no smoothing"


def test_the_tokenizer_of_bleu_is_that_of_the_bundles_data(tiny_bundle: Make, files: PairFiles) -> None:
    bundle = with_data(tiny_bundle("encoder_decoder"), PhrasesConfig(bleu_tokenize="char"))
    texts = read_files(bundle.config, files)
    assert isinstance(texts, PairSplit)
    assert texts.bleu_tokenize == "char"


def test_the_only_tag_of_training_is_that_of_all_sources(tiny_bundle: Make, files: PairFiles, tmp_path: Path) -> None:
    bundle = tiny_bundle("encoder_decoder")
    one = with_data(bundle, PhrasesConfig(tag="<2de>")).config
    two = MixtureConfig(corpora={tag: PhrasesConfig(tag=tag) for tag in ("<2de>", "<2fr>")})
    both = with_data(bundle, two)
    for config, tag, expected in ((one, None, "<2de>"), (both.config, "<2fr>", "<2fr>"), (both.config, None, None)):
        texts = read_files(config, files._replace(tag=tag))
        assert isinstance(texts, PairSplit)
        assert texts.tags == [expected] * 2
    save_bundle(tmp_path / "both", both, "card")
    with pytest.raises(ValueError, match=r"tagged as in training \('<2de>', '<2fr>'\), but one is without a tag\.$"):
        load_candidates([str(tmp_path / "both")], None, None, files)


def test_texts_are_a_document_a_file_or_a_line_as_in_training(tiny_bundle: Make, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"{BOM}ab\n\ncd\n")
    (tmp_path / "b.txt").write_text("ef")
    files = TextFiles((tmp_path / "a.txt", tmp_path / "b.txt"))
    bundle = tiny_bundle("decoder_only", mark_documents=True)
    assert read_files(bundle.config, files) == TextSplit(None, ["ab\n\ncd\n", "ef"])
    scored = score_on(bundle, read_files(bundle.config, files))
    assert scored.split is None
    assert scored.scores == evaluate_language_model(Generator(bundle), ["ab\n\ncd\n", "ef"], max_tokens_per_batch=2048)
    by_line = with_data(bundle, PlainTextConfig(train="x", validation="x", documents="line"))
    assert read_files(by_line.config, files) == TextSplit(None, ["ab", "cd", "ef"])
    corpora = {name: PlainTextConfig(train="x", validation="x", documents="line") for name in ("one", "two")}
    mixed = with_data(bundle, TextMixtureConfig(corpora=corpora))
    assert read_files(mixed.config, files) == TextSplit(None, ["ab", "cd", "ef"])
    other = with_data(
        bundle, TextMixtureConfig(corpora=corpora | {"three": PlainTextConfig(train="x", documents="file")})
    )
    assert read_files(other.config, files) == TextSplit(None, ["ab\n\ncd\n", "ef"])


def test_files_that_do_not_fit_are_refused(tiny_bundle: Make, files: PairFiles, tmp_path: Path) -> None:
    translates, continues = tiny_bundle("encoder_decoder").config, tiny_bundle("decoder_only").config
    with pytest.raises(ValueError, match="this bundle translates: give it `source` and `reference`, not `text`"):
        read_files(translates, TextFiles((files.source,)))
    with pytest.raises(ValueError, match="this bundle is a language model: give it `text`, not `source` and"):
        read_files(continues, files)
    (tmp_path / "short").write_text("x\n")
    message = r"short must have one reference a line for each of the 2 lines of \S+source, but has 1 lines\.$"
    with pytest.raises(ValueError, match=message):
        read_files(translates, files._replace(references=(*files.references, tmp_path / "short")))
    with pytest.raises(ValueError, match="none' does not exist"):
        read_files(translates, files._replace(source=tmp_path / "none"))


def test_bundles_are_scored_on_the_same_files(tiny_bundle: Make, files: PairFiles, tmp_path: Path) -> None:
    """Whatever each was trained on."""
    bundles = [with_data(tiny_bundle("encoder_decoder", seed=seed), PhrasesConfig(seed=seed)) for seed in (1, 2)]
    folders = [str(tmp_path / f"b{seed}") for seed in (1, 2)]
    for folder, bundle in zip(folders, bundles, strict=True):
        save_bundle(Path(folder), bundle, "card")
    candidates = load_candidates(folders, None, None, files)
    assert [candidate.texts for candidate in candidates] == [read_files(bundles[0].config, files)] * 2
    chinese = PhrasesConfig(bleu_tokenize="zh")
    save_bundle(tmp_path / "zh", with_data(tiny_bundle("encoder_decoder", seed=3), chinese), "card")
    with pytest.raises(ValueError, match="name different tokenizers for BLEU, 13a and zh"):
        load_candidates([folders[0], str(tmp_path / "zh")], None, None, files)


def test_translations_of_another_system(tmp_path: Path) -> None:
    path = tmp_path / "other.txt"
    path.write_bytes("eins\n\nzwei\u2028drei\r\n".encode())
    assert read_translations(path, 3, "ref.de") == ["eins", "", "zwei\u2028drei"]
    path.write_bytes(f"{BOM}eins\nzwei".encode())
    assert read_translations(path, 2, "ref.de") == ["eins", "zwei"]
    with pytest.raises(
        ValueError, match=r"other\.txt must have one .* each of the 3 sentences of ref\.de, but has 2 lines\.$"
    ):
        read_translations(path, 3, "ref.de")
    path.write_bytes(b"\xff\n")
    with pytest.raises(ValueError, match=r"other\.txt' must be UTF-8, but line 1 is not"):
        read_translations(path, 1, "ref.de")
    path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"other\.txt' is empty"):
        read_translations(path, 1, "ref.de")
