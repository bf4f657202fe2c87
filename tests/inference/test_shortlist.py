"""Vocabulary shortlists."""

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from transformer.data.subwords.config import BpeConfig, CharConfig
from transformer.data.subwords.tokenizer import Tokenizer
from transformer.inference.shortlist import SHORTLIST, Shortlist
from transformer.inference.translation_table import PairSample

SOURCES = ["rot", "blau", "rot blau", "blau rot", "gelb", "gelb rot"] * 3
TARGETS = ["red", "blue", "red blue", "blue red", "yellow", "yellow red"] * 3


@pytest.fixture(scope="module")
def tokenizers():
    config = BpeConfig(vocab_size=280)
    return Tokenizer.train(config, SOURCES), Tokenizer.train(config, TARGETS)


def sample(source, target):
    pairs = PairSample()
    for ids in zip(source.encode_batch(SOURCES), target.encode_batch(TARGETS), strict=True):
        pairs.add(*ids)
    return pairs


@pytest.fixture(scope="module")
def learnt(tokenizers):
    return Shortlist.learn(sample(*tokenizers), *tokenizers, per_token=1, frequent=0)


def small(joint=False):
    """Token 1 translates to 5 and 3, token 2 to nothing, token 3 to 7."""
    starts, targets = np.array([0, 0, 2, 2, 3]), np.array([5, 3, 7], np.int32)
    return Shortlist(np.array([0, 2]), starts, targets, joint, 10)


def test_a_source_has_the_translations_of_its_tokens_and_what_is_always_there():
    assert small().for_source([]).tolist() == [0, 2]
    assert small().for_source([1]).tolist() == [0, 2, 3, 5]
    assert small().for_source([3, 2, 1, 3]).tolist() == [0, 2, 3, 5, 7]


def test_with_one_vocabulary_a_source_has_its_own_tokens_too():
    assert small(joint=True).for_source([1, 3]).tolist() == [0, 1, 2, 3, 5, 7]


def test_a_batch_is_the_union_and_says_what_is_whose():
    sources = [[1], [3], [2], [3, 1]]
    batch = small().for_batch(sources)
    assert batch.columns_C.tolist() == [0, 2, 3, 5, 7]
    for source, allowed_C in zip(sources, batch.allowed_BC, strict=True):
        assert batch.columns_C[allowed_C].tolist() == small().for_source(source).tolist()


def test_the_best_translations_are_learnt(learnt, tokenizers):
    source, target = tokenizers
    for text, translation in [("rot", "red"), ("blau", "blue"), ("gelb", "yellow")]:
        (token,), ids = source.encode(text), set(learnt.for_source(source.encode(text)).tolist())
        assert set(target.encode(translation)) <= ids, text
        assert learnt.starts[token + 1] - learnt.starts[token] == 1
    words = {target.encode(word)[0] for word in ("red", "blue", "yellow")}
    assert not words <= set(learnt.for_source(source.encode("rot")).tolist())


def test_anything_can_be_spelt_and_ended(learnt, tokenizers):
    _, target = tokenizers
    ids = set(learnt.for_source([]).tolist())
    assert {*target.control_ids, target.unk_id} <= ids
    spelt = [target.encode(character) for character in "aZ9!"]
    assert all(set(each) <= ids for each in spelt)
    assert len(learnt.always) == 4 + 256


def test_frequent_tokens_are_always_there(tokenizers):
    source, target = tokenizers
    none, two = (Shortlist.learn(sample(source, target), source, target, frequent=n).always for n in (0, 2))
    counts = np.bincount(np.concatenate(sample(source, target).targets), minlength=target.vocab_size)
    most = np.argsort(-counts, kind="stable")[:2]
    assert set(two.tolist()) == set(none.tolist()) | set(most.tolist())
    every = Shortlist.learn(sample(source, target), source, target, frequent=10_000).always
    assert len(every) < target.vocab_size  # what never occurs is not frequent


def test_a_vocabulary_of_characters_keeps_its_single_bytes_only():
    tokenizer = Tokenizer.train(CharConfig(), ["abcä日本"])
    pairs = PairSample()
    pairs.add(tokenizer.encode("ab"), tokenizer.encode("ä"))
    always = Shortlist.learn(pairs, tokenizer, tokenizer, frequent=0).always
    assert set(tokenizer.encode("abc")) <= set(always.tolist())
    assert set(tokenizer.encode("ä日本")).isdisjoint(always.tolist())


def test_it_comes_back_from_its_file(learnt, tokenizers, tmp_path):
    learnt.save(tmp_path, *tokenizers)
    loaded = Shortlist.load(tmp_path, *tokenizers)
    for text in SOURCES:
        ids = tokenizers[0].encode(text)
        assert loaded.for_source(ids).tolist() == learnt.for_source(ids).tolist()
    assert (loaded.joint, loaded.target_vocab_size) == (False, tokenizers[1].vocab_size)


def test_one_tokenizer_for_both_sides_is_a_joint_vocabulary(tokenizers, tmp_path):
    source = tokenizers[0]
    made = Shortlist.learn(sample(source, source), source, source)
    made.save(tmp_path, source, source)
    assert made.joint
    assert Shortlist.load(tmp_path, source, source).joint


def test_it_fits_its_own_tokenizers_only(learnt, tokenizers, tmp_path):
    learnt.save(tmp_path, *tokenizers)
    with pytest.raises(ValueError, match=r"shortlist\.safetensors was made for other tokenizers; make it anew"):
        Shortlist.load(tmp_path, *reversed(tokenizers))


def test_what_is_no_shortlist_is_refused(tokenizers, tmp_path):
    with pytest.raises(ValueError, match=r"has no shortlist\.safetensors; transformer-shortlist makes one"):
        Shortlist.load(tmp_path, *tokenizers)
    (tmp_path / SHORTLIST).write_bytes(b"no tensors")
    with pytest.raises(ValueError, match="is not a readable shortlist"):
        Shortlist.load(tmp_path, *tokenizers)
    save_file({"always": np.zeros(1)}, tmp_path / SHORTLIST)
    with pytest.raises(ValueError, match="is not a shortlist that this version can read"):
        Shortlist.load(tmp_path, *tokenizers)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("starts", lambda starts: starts[:-1]),
        ("starts", lambda starts: starts + 1),
        ("starts", lambda starts: np.concatenate([starts[:1], starts[-1:], starts[2:]])),
        ("targets", lambda targets: targets + 100_000),
        ("targets", lambda targets: targets[:-1]),
        ("always", lambda always: always - 1000),
    ],
)
def test_damaged_numbers_are_refused(learnt, tokenizers, tmp_path, name, change):
    learnt.save(tmp_path, *tokenizers)
    tensors = load_file(tmp_path / SHORTLIST)
    from safetensors import safe_open

    with safe_open(tmp_path / SHORTLIST, framework="numpy") as file:
        metadata = file.metadata()
    save_file({**tensors, name: np.ascontiguousarray(change(tensors[name]))}, tmp_path / SHORTLIST, metadata=metadata)
    with pytest.raises(ValueError, match="is damaged: its numbers do not fit together"):
        Shortlist.load(tmp_path, *tokenizers)
