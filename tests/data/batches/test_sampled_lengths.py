"""How much room batches leave for texts that are cut at random."""

from pathlib import Path

import numpy as np
import pytest

from transformer.data.batches.config import BatchingConfig, PreparationConfig
from transformer.data.batches.pairs import CorpusPairs, FittedPairs, PairTokenizers, example_random
from transformer.data.batches.sampled_lengths import lengths_with_room
from transformer.data.corpora.pair_config import TsvConfig
from transformer.data.corpora.sources import open_source
from transformer.data.preparation.cache import Cache
from transformer.data.preparation.ids import prepare_ids
from transformer.data.preparation.texts import prepare_texts
from transformer.data.run_preparation import RunLimits
from transformer.data.subwords.config import BpeConfig
from transformer.data.subwords.tokenizer import Tokenizer
from transformer.data.translation_data import prepare_translation

WORDS = ("number", "sentence", "further", "words", "following", "another")


def pairs_of(folder: Path, dropout: float, limit: int = 200) -> FittedPairs:
    """2,000 pairs, every fourth source a long one, and targets of other words."""
    rows = []
    for number in range(2000):
        count = 3 + number % 5 + 12 * (number % 4 == 0)
        source = " ".join(WORDS[(number + 5 * step) % 6] for step in range(count))
        rows.append((f"{source} {number}", " ".join("aber" for _ in range(1 + number % 9))))
    (folder / "train.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in rows), encoding="utf-8")
    config = TsvConfig(folder=str(folder), train="train.tsv")
    bpe = Tokenizer.train(BpeConfig(vocab_size=400), [text for row in rows for text in row])
    source, cache = open_source("corpus", config, "train"), Cache(folder / "cache")
    assert source is not None
    texts = prepare_texts(source, config, cache, lambda *_: None)
    ids = prepare_ids(texts, [bpe, bpe], cache, lambda *_: None, mark_documents=False)
    pairs = CorpusPairs([ids], [None], PairTokenizers(bpe, bpe), dropout=dropout)
    return FittedPairs(pairs, limit, ("training", "the limit"), "skip")


@pytest.mark.parametrize("dropout", [0.05, 0.2])
def test_few_draws_are_longer_and_the_room_is_no_more_than_that_takes(tmp_path: Path, dropout: float) -> None:
    pairs = pairs_of(tmp_path, dropout)
    planned = lengths_with_room(pairs, 200, seed=3)
    drawn = [pairs.sampled(number, example_random(8, 1, number)) for number in range(2000)]
    lengths = np.array([(len(source) + 1, len(target) + 1) for source, target in drawn])
    for side in (0, 1):
        for long in (False, True):  # the deviation grows more slowly than the length
            some = (np.arange(2000) % 4 == 0) == long
            assert (lengths[some, side] > planned[some, side]).mean() < 0.08
        assert lengths[:, side].mean() > 1.02 * pairs.lengths_N2[:, side].mean()
        deviation = (
            lengths[:, side] - lengths[:, side].mean() * pairs.lengths_N2[:, side] / pairs.lengths_N2[:, side].mean()
        ).std()
        assert planned[:, side].mean() < lengths[:, side].mean() + 3 * deviation + 1
    assert (planned >= pairs.lengths_N2).all()


def test_no_length_is_above_the_limit_and_a_seed_gives_the_same(tmp_path: Path) -> None:
    pairs = pairs_of(tmp_path, 0.2, limit=40)
    planned = lengths_with_room(pairs, 40, seed=3)
    assert planned.max() == 40
    assert planned.dtype == pairs.lengths_N2.dtype
    assert np.array_equal(planned, lengths_with_room(pairs, 40, seed=3))
    assert not np.array_equal(planned, lengths_with_room(pairs, 40, seed=4))


def test_with_dropout_of_merges_nearly_every_text_is_cut_anew_in_every_epoch(tmp_path: Path) -> None:
    """Full batches of the usual lengths would have no room for it, and take most texts as they usually are."""
    words = ["number", "and", "on", "sentence", "with", "further", "words"]
    sources = [" ".join(words[(number * step) % 7] for step in range(1, 9)) + f" {number}" for number in range(600)]
    lines = [f"{source}\tNummer {number} und so weiter\n" for number, source in enumerate(sources)]
    (tmp_path / "train.tsv").write_text("".join(lines), encoding="utf-8")
    data, budget = TsvConfig(folder=str(tmp_path), train="train.tsv", validation="train.tsv"), 1000
    setup = prepare_translation(
        data,
        BpeConfig(vocab_size=400, dropout=0.1),
        BatchingConfig(max_tokens_per_batch=budget),
        PreparationConfig(cache_folder=str(tmp_path / "cache")),
        RunLimits(100, seed=1, max_batches=None, max_epochs=2),
        stored=None,
        progress=lambda *_: None,
    )
    bpe, cuts = setup.tokenizers.source, [dict[int, list[int]]() for _ in range(2)]
    num_first = setup.data.train_batches(1).num_batches(0)
    sizes = []
    for number, batch in enumerate(setup.data.train_dataloader()):
        sizes.append(max(batch.source_BS.numel(), batch.target_BT.numel()))
        for index, ids, mask in zip(batch.index_B.tolist(), batch.source_BS, batch.source_mask_BS, strict=True):
            cuts[number >= num_first][index] = ids[mask].tolist()[:-1]
    assert max(sizes) <= budget
    usual = [bpe.encode(source) for source in sources]
    assert [[bpe.decode(epoch[index]) for index in range(600)] for epoch in cuts] == [sources, sources]
    for epoch in cuts:
        assert sum(epoch[index] != usual[index] for index in range(600)) > 500
    assert sum(cuts[0][index] != cuts[1][index] for index in range(600)) > 500
    assert sum(map(len, cuts[0].values())) > 1.05 * sum(map(len, usual))
