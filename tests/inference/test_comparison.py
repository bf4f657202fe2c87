"""Bundles that are to be scored on the same texts, and what is refused before any is."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from transformer.bundle import Bundle, save_bundle
from transformer.data.corpora.document_config import PlainTextConfig
from transformer.data.corpora.pair_config import ParallelTextConfig
from transformer.inference.comparison import first_difference, load_candidates, same_model
from transformer.inference.split import PairSplit, TextSplit

PAIRS = {"one": (["abc", "d"], ["x", "y"]), "two": (["abc", "d"], ["x", "z"]), "three": (["abc"], ["x"])}


@pytest.fixture
def save(tiny_bundle: Callable[..., Bundle], tmp_path: Path) -> Callable[..., str]:
    """Save a bundle trained on some data, and give its folder."""
    for name, sides in PAIRS.items():
        for side, lines in zip("ab", sides, strict=True):
            (tmp_path / f"{name}.{side}").write_text("\n".join(lines) + "\n")

    def make(folder: str, kind: str = "encoder_decoder", data: Any = None, **settings: Any) -> str:
        bundle = tiny_bundle(kind, **settings)
        if data is not None:
            config = bundle.config.model_copy(update={"data": data})
            bundle = Bundle(config, bundle.model, bundle.source_tokenizer, bundle.target_tokenizer)
        save_bundle(tmp_path / folder, bundle, "card")
        return str(tmp_path / folder)

    return make


def corpus(folder: Path, name: str, train: str = "one", **settings: Any) -> ParallelTextConfig:
    files = {"train_source": f"{train}.a", "train_target": f"{train}.b"}
    files |= {"test_source": f"{name}.a", "test_target": f"{name}.b"}
    return ParallelTextConfig(folder=str(folder), **files, **settings)


def test_bundles_trained_on_other_data_but_tested_on_the_same(save: Callable[..., str], tmp_path: Path) -> None:
    first = save("first", data=corpus(tmp_path, "two"))
    second = save("second", data=corpus(tmp_path, "two", train="three"))
    candidates = load_candidates([first, second], None, "test")
    assert [candidate.folder for candidate in candidates] == [first, second]
    for candidate in candidates:
        assert candidate.texts == PairSplit("test", ["abc", "d"], ["x", "z"], [None, None], "13a")
    # Other data than that of training, for both.
    candidates = load_candidates([first, second], corpus(tmp_path, "three"), "test")
    assert all(isinstance(each.texts, PairSplit) and each.texts.sources == ["abc"] for each in candidates)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        (
            "two",
            {},
            r"the test split of \S+first differs from the test split of \S+second, first in sentence 2\.",
        ),
        ("three", {}, r"the test split of \S+first has 2 sentences and the test split of \S+second has 1\. Choose"),
        ("one", {"bleu_tokenize": "intl"}, r"\S+first and \S+second name different tokenizers for BLEU, 13a and intl"),
    ],
)
def test_other_test_sets_are_refused(
    save: Callable[..., str], tmp_path: Path, name: str, settings: dict[str, Any], message: str
) -> None:
    folders = [save("first", data=corpus(tmp_path, "one"))]
    folders.append(save("second", data=corpus(tmp_path, name, **settings), seed=1))
    with pytest.raises(ValueError, match=message):
        load_candidates(folders, None, "test")


def test_other_texts_of_language_models_are_refused(save: Callable[..., str], tmp_path: Path) -> None:
    data = [PlainTextConfig(folder=str(tmp_path), train="one.a", test=f"{name}.a") for name in ("one", "two", "three")]
    folders = [save(f"lm{seed}", "decoder_only", data[seed], seed=seed) for seed in range(3)]
    assert [each.texts for each in load_candidates(folders[:2], None, "test")] == [TextSplit("test", ["abc\nd\n"])] * 2
    with pytest.raises(ValueError, match=r"the test split of \S+lm0 differs from the test split of \S+lm2\."):
        load_candidates(folders, None, "test")


def test_models_of_two_kinds_are_refused(save: Callable[..., str]) -> None:
    folders = [save("first"), save("second", "decoder_only")]
    message = r"of one kind, but \S+first is a translation model and \S+second is a language model\.$"
    with pytest.raises(ValueError, match=message):
        load_candidates(folders, None, "test")


def test_the_same_model_twice_is_refused(save: Callable[..., str]) -> None:
    folders = [save("first"), save("other", seed=1), save("copy")]
    with pytest.raises(ValueError, match=r"must be different models, but \S+first and \S+copy are the same\.$"):
        load_candidates(folders, None, "test")


def test_a_folder_that_is_no_bundle_and_an_unknown_tag(save: Callable[..., str], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a bundle"):
        load_candidates([save("first"), str(tmp_path)], None, "test")
    with pytest.raises(ValueError, match=r"tagged as in training \(without a tag\), but one is tagged '<2de>'\.$"):
        load_candidates([save("second")], corpus(tmp_path, "one", tag="<2de>"), "test")


def test_differences_of_bundles(tiny_bundle: Callable[..., Bundle], tmp_path: Path) -> None:
    bundle, other_seed = tiny_bundle("encoder_decoder"), tiny_bundle("encoder_decoder", seed=1)
    assert first_difference(bundle, other_seed) is None
    assert not same_model(bundle, other_seed)
    assert same_model(bundle, tiny_bundle("encoder_decoder"))
    with torch.no_grad():
        next(iter(other_seed.model.parameters())).copy_(next(iter(bundle.model.parameters())))
    assert not same_model(bundle, other_seed)
    assert first_difference(bundle, tiny_bundle("encoder_decoder", dropout=0.2)) == "model.dropout"
    assert first_difference(bundle, tiny_bundle("encoder_decoder", characters="abc")) == "source tokenizer"
    # Data that have only moved are the same.
    data = [corpus(folder, "one") for folder in (tmp_path, tmp_path / "moved")]
    moved = [
        Bundle(bundle.config.model_copy(update={"data": each}), bundle.model, *[bundle.target_tokenizer] * 2)
        for each in data
    ]
    assert first_difference(*moved) is None
