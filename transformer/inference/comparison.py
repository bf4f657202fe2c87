"""Several bundles on one test set: everything that can be wrong is said before the first one is scored."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch

from transformer.bundle import Bundle, load_bundle
from transformer.data.config import DataConfig
from transformer.data.corpora.rows import Split
from transformer.inference.own_files import PairFiles, TextFiles, read_files
from transformer.inference.split import PairSplit, TextSplit, read_split
from transformer.inference.translator import Translator


class Candidate(NamedTuple):
    """A bundle, the folder that it is in, and what it is to be scored on."""

    folder: str
    bundle: Bundle
    texts: PairSplit | TextSplit


def load_candidates(
    folders: Sequence[str],
    data: DataConfig | None,
    split: Split | None,
    files: PairFiles | TextFiles | None = None,
) -> list[Candidate]:
    """Load bundles that are to be scored on the same texts.

    Args:
        folders: of the bundles.
        data: the corpus; default: what each was trained with, where the split must hold the same texts.
        split: which part of it, as for :func:`~transformer.inference.split.read_split`.
        files: what to score on instead of a corpus.

    Raises:
        ValueError: a folder is no bundle, two hold the same model, some translate and others do not, their texts
            differ, or do not fit.
    """
    bundles = {folder: load_bundle(folder) for folder in folders}
    first = bundles[folders[0]]
    for place, folder in enumerate(folders):
        for other in folders[:place]:
            if same_model(bundles[folder], bundles[other]):
                raise ValueError(f"the bundles must be different models, but {other} and {folder} are the same.")
        if type(bundles[folder].model) is not type(first.model):
            kinds = (_kind(first), _kind(bundles[folder]))
            raise ValueError(
                f"the bundles must be of one kind, but {folders[0]} is {kinds[0]} and {folder} is {kinds[1]}."
            )
    candidates: list[Candidate] = []
    read: list[tuple[DataConfig, bool, PairSplit | TextSplit]] = []
    for folder, bundle in bundles.items():
        own, marks = bundle.config.data if data is None else data, bundle.config.mark_documents
        texts = next((known for corpus, marked, known in read if (corpus, marked) == (own, marks)), None)
        if files is not None:
            texts = read_files(bundle.config, files)
        elif texts is None:
            texts = read_split(bundle.config, own, split)
            read.append((own, marks, texts))
        candidate = Candidate(folder, bundle, texts)
        if candidates:
            check_same_texts(candidates[0], candidate)
        if isinstance(texts, PairSplit):
            Translator(bundle).encode([""] * len(set(texts.tags)), list(dict.fromkeys(texts.tags)))  # unknown tags
        candidates.append(candidate)
    return candidates


def check_same_texts(one: Candidate, other: Candidate) -> None:
    """Raises ValueError if two bundles would be scored on different texts, or their BLEU would not be the same."""
    first, second = one.texts, other.texts
    where = f"the bundles must be scored on the same texts, but {_texts_of(one)}"
    hint = "Choose one corpus for all with data=..."
    if isinstance(first, TextSplit):
        assert isinstance(second, TextSplit), "they are of one kind"
        if "".join(first.texts) != "".join(second.texts):
            raise ValueError(f"{where} differs from {_texts_of(other)}. {hint}")
        return
    assert isinstance(second, PairSplit), "they are of one kind"
    pairs = [list(zip(each.sources, each.references, strict=True)) for each in (first, second)]
    if len(pairs[0]) != len(pairs[1]):
        raise ValueError(f"{where} has {len(pairs[0])} sentences and {_texts_of(other)} has {len(pairs[1])}. {hint}")
    line = next((line for line, (a, b) in enumerate(zip(*pairs, strict=True), start=1) if a != b), None)
    if line is not None:
        raise ValueError(f"{where} differs from {_texts_of(other)}, first in sentence {line}. {hint}")
    if first.bleu_tokenize != second.bleu_tokenize:
        raise ValueError(
            f"the data of {one.folder} and {other.folder} name different tokenizers for BLEU, {first.bleu_tokenize} "
            f"and {second.bleu_tokenize}. Choose one for all with bleu_tokenize=..."
        )


def same_model(one: Bundle, other: Bundle) -> bool:
    """Whether two bundles have the same settings, tokenizers and weights."""
    weights, others = dict(one.model.named_parameters()), dict(other.model.named_parameters())
    return (
        first_difference(one, other) is None
        and weights.keys() == others.keys()
        and all(torch.equal(weight, others[name]) for name, weight in weights.items())
    )


def first_difference(one: Bundle, other: Bundle) -> str | None:
    """A setting in which two bundles differ, as a dotted path; None if only their weights may differ.

    Where the data lay is no difference.
    """
    for path in _differences("", one.config.to_plain(), other.config.to_plain()):
        if not path.endswith(".folder"):
            return path
    for side in ("source", "target"):
        first, second = getattr(one, f"{side}_tokenizer"), getattr(other, f"{side}_tokenizer")
        if first.fingerprint() != second.fingerprint():
            return f"{side} tokenizer"
    return None


def _texts_of(candidate: Candidate) -> str:
    split = candidate.texts.split
    return f"what {candidate.folder} reads" if split is None else f"the {split} split of {candidate.folder}"


def _kind(bundle: Bundle) -> str:
    return "a translation model" if bundle.config.model.name == "encoder_decoder" else "a language model"


def _differences(path: str, one: Any, other: Any) -> Iterator[str]:
    if not (isinstance(one, dict) and isinstance(other, dict)):
        if one != other:
            yield path
        return
    for key in dict.fromkeys([*one, *other]):
        yield from _differences(f"{path}.{key}" if path else key, one.get(key), other.get(key))
