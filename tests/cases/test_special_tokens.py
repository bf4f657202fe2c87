"""Reported faults of special tokens and lengths between data, training and inference, by the id of their case."""

import logging
import re

import pytest
import torch

from transformer.data.batches.buckets import BatchPlan
from transformer.data.batches.collate import collate_translation
from transformer.data.batches.config import BatchingConfig
from transformer.data.batches.documents import encode_documents
from transformer.data.text_data import scored_batches
from transformer.decoding.config import GreedyConfig
from transformer.inference.generator import Generator
from transformer.inference.translator import Translator
from transformer.training.config import TrainConfig
from transformer.training.translation import TranslationTask

QUICK = GreedyConfig(name="greedy", max_new_tokens=5)

# TOK-03: <s> is 1, </s> is 2.


def _record(embedding):
    """All ids that the embedding will be asked for."""
    asked = []
    embedding.register_forward_pre_hook(lambda module, arguments: asked.append(arguments[0].tolist()))
    return asked


def test_TOK_03_one_start_and_one_end_in_training_batches(tiny_bundle, translation_setup):
    tokenizer = tiny_bundle("encoder_decoder").target_tokenizer
    hallo = tokenizer.encode("hallo")
    data = translation_setup([("hallo", "hallo")], tokenizer, BatchingConfig(max_tokens_per_batch=50), 24).data
    for loader in (data.train_dataloader(), data.val_dataloader()):
        [batch] = loader
        assert batch.source_BS.tolist() == [[*hallo, 2]]
        assert batch.target_BT.tolist() == [[1, *hallo]]
        assert batch.labels_BT.tolist() == [[*hallo, 2]]


def test_TOK_03_one_start_when_translating_also_in_validation(tiny_bundle):
    bundle = tiny_bundle("encoder_decoder")
    hallo = bundle.source_tokenizer.encode("hallo")
    read, written = _record(bundle.model.source_embedding), _record(bundle.model.target_embedding)
    Translator(bundle).translate(["hallo"], QUICK)
    assert read == [[[*hallo, 2]]]
    translated = list(written)
    assert [row for step in translated for row in step].count([1]) == 1
    assert translated[0] == [[1]]

    config = TrainConfig.from_plain(
        {
            "data": {"name": "phrases"},
            "tokenizer": {"name": "char"},
            "batching": {"max_tokens_per_batch": 100},
            "model": bundle.config.model.to_plain(),
            "optimizer": {"name": "adamw", "learning_rate": 0.001},
            "scheduler": {"name": "constant"},
            "trainer": {"max_steps": 1},
            "decoding": {"name": "greedy"},
        }
    )
    task = TranslationTask(config, bundle.model, bundle.target_tokenizer, [("hallo", "hallo")]).eval()
    read.clear()
    written.clear()
    with torch.inference_mode():
        batch = collate_translation([(0, hallo, hallo)], pad_id=0, bos_id=1, eos_id=2)
        task.validation_step(batch, 0)
    assert read == [[[*hallo, 2]]] * 2  # for the loss and for the translation
    assert written[0] == [[1, *hallo]]
    assert written[1] == [[1]]
    assert written[1 : 1 + len(translated)] == translated  # the same beginning as in translating
    assert [row for step in written for row in step].count([1]) == 1


def test_TOK_03_a_prompt_begins_as_training_texts_do_and_has_no_end(tiny_bundle):
    bundle = tiny_bundle("decoder_only", mark_documents=True)
    tokenizer = bundle.target_tokenizer
    hallo = tokenizer.encode("hallo")
    documents = encode_documents(["hallo", "hallo"], tokenizer, mark_documents=True)
    assert documents.ids == [[1, *hallo, 2]] * 2
    for packing, tokens in ((False, [1, *hallo, 2, 1, *hallo]), (True, [1, *hallo, 1, *hallo])):
        examples, [parts], _ = scored_batches(documents, tokenizer, length=16, rows=1, packing=packing)
        batch = examples[BatchPlan(0, parts)]
        assert batch.tokens_BL[batch.scored_BL].tolist() == tokens
    asked = _record(bundle.model.embedding)
    Generator(bundle).generate(["hallo"], QUICK)
    assert asked[0] == [[1, *hallo]]
    plain = tiny_bundle("decoder_only")
    asked = _record(plain.model.embedding)
    Generator(plain).generate(["hallo"], QUICK)
    assert asked[0] == [hallo]


# TOK-04 c: nine tokens and a model of eight positions. (a is among the cases of bundles.)


@pytest.mark.parametrize("position", ["sinusoidal", "learned", "rotary", "alibi", "none"])
def test_TOK_04_c_sequences_beyond_the_positions(tiny_bundle, caplog, position):
    bundle = tiny_bundle("encoder_decoder", max_length=8, position=position)
    nine, eight = torch.full((1, 9), 5), torch.full((1, 8), 5)
    for source, target in ((nine, eight), (eight, nine)):
        with pytest.raises(ValueError, match="the sequence has 9 tokens, but `max_length` is 8"):
            bundle.model(source, target)
    language_model = tiny_bundle("decoder_only", max_length=8, position=position).model
    with pytest.raises(ValueError, match="the sequence has 9 tokens, but `max_length` is 8"):
        language_model(nine)
    with caplog.at_level(logging.WARNING):
        [output] = Translator(bundle).translate(["abcdefghi"])
    assert caplog.messages == ["line 1 has 9 tokens and is cut to the model's 7."]
    assert [output] == Translator(bundle).translate(["abcdefg"])


@pytest.mark.parametrize(
    ("over_long", "done"), [(None, "are left out"), ("skip", "are left out"), ("truncate", "are cut")]
)
def test_TOK_04_c_over_long_pairs_in_training_and_validation(tiny_bundle, translation_setup, caplog, over_long, done):
    tokenizer = tiny_bundle("encoder_decoder").target_tokenizer
    pairs = [("abc", "abc"), ("a", "abcdefghi")]
    with caplog.at_level(logging.WARNING):
        batching = BatchingConfig(max_tokens_per_batch=50, over_long=over_long)
        data = translation_setup(pairs, tokenizer, batching, 8).data
    found = "pairs are longer than `max_length` (8 tokens), the first is"
    assert [re.sub(r"'/\S*/", "'", message) for message in caplog.messages] == [
        f"1 of 2 training {found} 'pairs.jsonl', line 2, with 10 tokens; they {done}.",
        f"1 of 2 validation {found} number 2, with 10 tokens; they are cut.",
    ]
    [training], [validation] = data.train_dataloader(), data.val_dataloader()
    assert sorted(training.index_B.tolist()) == ([0, 1] if over_long == "truncate" else [0])
    assert training.target_BT.shape[1] == (8 if over_long == "truncate" else 4)
    assert (sorted(validation.index_B.tolist()), validation.target_BT.shape[1]) == ([0, 1], 8)
    with pytest.raises(ValueError, match=r"1 of 2 training pairs .* with 10 tokens\."):
        translation_setup(pairs, tokenizer, BatchingConfig(max_tokens_per_batch=50, over_long="error"), 8)
