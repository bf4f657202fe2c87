"""What is made sure of before a run on pairs: vocabularies of both sides, a test set that can be scored."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from transformer.data.batches.config import BatchingConfig, PreparationConfig
from transformer.data.config import TranslationDataConfig
from transformer.data.run_preparation import RunLimits
from transformer.data.subwords.config import BpeConfig, ByteConfig, TokenizerConfig
from transformer.data.translation_data import TranslationSetup, prepare_translation

PAIRS = [(f"number {number}", f"Nummer {number}") for number in range(50)]


def prepare(
    plain: dict[str, Any], cache: Path, tokenizer: TokenizerConfig | None = None, *, streaming: bool = False
) -> TranslationSetup:
    config: TranslationDataConfig = TypeAdapter(TranslationDataConfig).validate_python(plain)
    return prepare_translation(
        config,
        tokenizer or ByteConfig(),
        BatchingConfig(max_tokens_per_batch=2000),
        PreparationConfig(streaming=streaming, shuffle_buffer=500 if streaming else None, cache_folder=str(cache)),
        RunLimits(60, 1, 100, None),
        stored=None,
        progress=lambda *_: None,
    )


def corpus(folder: Path, pairs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Plain settings of a corpus with two validation pairs."""
    for name, some in (("train", pairs), ("val", pairs[:2])):
        lines = "".join(f"{source}\t{target}\n" for source, target in some)
        (folder / f"{name}.tsv").write_text("en\tde\n" + lines, encoding="utf-8")
    files = {"folder": str(folder), "train": "train.tsv", "validation": "val.tsv"}
    return {"name": "tsv", **files, "source_column": "en", "target_column": "de"}


def folders(cache: Path, kind: str) -> set[str]:
    return {path.name for path in cache.iterdir() if path.is_dir() and path.name.startswith(f"{kind}-")}


@pytest.mark.parametrize("streaming", [False, True])
def test_a_joint_vocabulary_is_learnt_from_both_sides(tmp_path: Path, streaming: bool) -> None:
    """Also where there are so many texts that only every second is taken, whose sides take turns."""
    pairs = [("elephant giraffe", "Nashorn Flusspferd")] * 300
    bpe = BpeConfig(vocab_size=400, max_training_texts=150)
    setup = prepare(corpus(tmp_path, pairs), tmp_path / "cache", bpe, streaming=streaming)
    for text in pairs[0]:
        assert len(setup.tokenizers.source.encode(text)) == 2


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("one\teins\nzwei\n", "must have"),
        (b"one\t\xff\n", "must be UTF-8, but line 2 is not"),
        ("", "must have examples"),
    ],
)
def test_a_faulty_test_set_is_refused_before_the_training(tmp_path: Path, test: str | bytes, message: str) -> None:
    plain = corpus(tmp_path, PAIRS) | {"test": "test.tsv"}
    (tmp_path / "test.tsv").write_bytes(b"en\tde\n" + (test if isinstance(test, bytes) else test.encode()))
    with pytest.raises(ValueError, match=message):
        prepare(plain, tmp_path / "cache")


def test_the_cache_may_be_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    prepare(corpus(tmp_path, PAIRS), Path("~/cache"))
    assert folders(tmp_path / "home" / "cache", "texts")
    assert not (tmp_path / "~").exists()
