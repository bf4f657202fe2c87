"""From settings to the parts that a run is made of: tokenizers, data, model."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from transformer.data.corpora.document_config import HubTextConfig, PlainTextConfig, PythonDocsConfig
from transformer.data.subwords.tokenizer import Tokenizer
from transformer.training.config import TrainConfig
from transformer.training.parts import RunParts, build_parts

Settings = Callable[..., dict[str, Any]]


def parts_of(plain: dict[str, Any], folder: Path, *, resume: bool = False) -> RunParts:
    """With a cache of its own beside the run's folder."""
    preparation = {"cache_folder": str(folder.parent / "cache"), **plain.get("preparation", {})}
    config = TrainConfig.from_plain({**plain, "preparation": preparation})
    return build_parts(config, folder, lambda *_: None, resume=resume)


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("streaming", [True, False])
def test_one_or_two_tokenizers(run_settings: Settings, tmp_path: Path, joint: bool, streaming: bool) -> None:
    tokenizer = {"name": "char", "joint": joint}
    changes: dict[str, Any] = {"tokenizer": tokenizer, "model.tie_embeddings": "all" if joint else "decoder"}
    changes["preparation.streaming"] = streaming
    tokenizers = parts_of(run_settings("translation", changes), tmp_path / "run").tokenizers
    assert (tokenizers.source is tokenizers.target) == joint
    known = [tokenizer.unk_id not in tokenizer.encode("ß") for tokenizer in tokenizers]
    assert known == ([True, True] if joint else [False, True])  # English has no ß


def test_tokenizers_of_an_earlier_start_are_used_again(
    run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = run_settings("translation", {"tokenizer": {"name": "bpe", "vocab_size": 300}})
    run = tmp_path / "run"
    first = parts_of(plain, run).tokenizers
    trained = []
    original = Tokenizer.train
    monkeypatch.setattr(Tokenizer, "train", lambda *given: trained.append(given) or original(*given))
    # The run's own ones, also where they are others than those of the cache: its weights were trained with them.
    other = parts_of({**plain, "tokenizer": {"name": "bpe", "vocab_size": 310}}, tmp_path / "other").tokenizers
    assert (first.target.vocab_size, other.target.vocab_size, len(trained)) == (300, 310, 1)
    (run / "tokenizers" / "tokenizer.json").write_bytes(
        (tmp_path / "other" / "tokenizers" / "tokenizer.json").read_bytes()
    )
    written = (run / "tokenizers" / "tokenizer.json").stat().st_mtime_ns
    again = parts_of(plain, run, resume=True).tokenizers
    assert (run / "tokenizers" / "tokenizer.json").stat().st_mtime_ns == written  # a kill cannot spoil them
    assert again.source is again.target
    assert again.target.fingerprint() == other.target.fingerprint()
    # A run killed while it wrote them has only the folder that they are written to before they get their name.
    (run / "tokenizers").rename(run / ".tokenizersleft")
    (run / ".tokenizersleft" / "tokenizer.json").write_text("{", encoding="utf-8")
    assert parts_of(plain, run).tokenizers.target.fingerprint() == first.target.fingerprint()
    # A run that had not saved anything begins anew as it is told now, whatever it had been told before.
    (run / "tokenizers" / "tokenizer.json").write_bytes((tmp_path / "other/tokenizers/tokenizer.json").read_bytes())
    assert parts_of(plain, run).tokenizers.target.fingerprint() == first.target.fingerprint()
    assert len(trained) == 1  # the cache has them


def test_tokenizers_are_learnt_once_for_all_runs_with_the_same_texts(
    run_settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = run_settings("translation", {"tokenizer": {"name": "bpe", "vocab_size": 300}})
    trained = []
    original = Tokenizer.train
    monkeypatch.setattr(Tokenizer, "train", lambda *given: trained.append(given) or original(*given))
    first = parts_of(plain, tmp_path / "one").tokenizers
    assert parts_of(plain, tmp_path / "two").tokenizers.target.fingerprint() == first.target.fingerprint()
    assert len(trained) == 1
    parts_of({**plain, "data": {**plain["data"], "seed": 2}}, tmp_path / "three")
    assert len(trained) == 2


def test_which_texts_stand_between_start_and_end_tokens() -> None:
    texts = {"name": "plain_text", "train": "a", "validation": "b"}
    assert PythonDocsConfig().marks_documents
    assert HubTextConfig(dataset="a").marks_documents
    assert PlainTextConfig.from_plain({**texts, "documents": "line"}).marks_documents
    assert PlainTextConfig.from_plain({**texts, "documents": "file"}).marks_documents
    assert not PlainTextConfig.from_plain({**texts, "documents": "running"}).marks_documents
    assert not PlainTextConfig.from_plain(texts).marks_documents


@pytest.mark.parametrize(("documents", "marks"), [("running", 0), ("file", 1), ("line", 3)])
def test_documents_are_marked_in_training_and_validation(
    run_settings: Settings, tmp_path: Path, documents: str, marks: int
) -> None:
    (tmp_path / "three.txt").write_text("one\ntwo\nthree\n", encoding="utf-8")
    data = {"name": "plain_text", "folder": str(tmp_path), "train": "three.txt", "validation": "three.txt"}
    changes = {"data": {**data, "documents": documents}, "trainer.max_steps": None, "trainer.max_epochs": 1}
    parts = parts_of(run_settings("text", changes), tmp_path / "run")
    tokenizer = parts.tokenizers.target
    for loader in (parts.data.val_dataloader(), parts.data.train_dataloader()):
        batches = list(loader)  # the text is shorter than a window
        tokens = torch.cat([batch.tokens_BL[batch.scored_BL] for batch in batches]).tolist()
        labels = torch.cat([batch.labels_BL[batch.scored_BL] for batch in batches]).tolist()
        assert tokens.count(tokenizer.bos_id) == marks
        assert labels.count(tokenizer.eos_id) == marks


def test_the_report_is_of_the_training_set_and_a_stream_has_none(run_settings: Settings, tmp_path: Path) -> None:
    plain = run_settings("translation")
    report = parts_of(plain, tmp_path / "run").report
    assert report is not None
    assert [(corpus.name, corpus.read, corpus.kept) for corpus in report.corpora] == [("phrases", 60, 60)]
    assert [(side.name, side.texts) for side in report.sides] == [("source", 60), ("target", 60)]
    stream = parts_of({**plain, "preparation": {"streaming": True}}, tmp_path / "stream")
    assert stream.report is None


def test_the_first_weights_depend_on_the_seed_alone(run_settings: Settings, tmp_path: Path) -> None:
    def weights(name: str, **changes: Any) -> torch.Tensor:
        torch.manual_seed(len(name))  # the state of the global generator must not matter
        task = parts_of(run_settings("translation", changes), tmp_path / name).task
        return torch.cat([parameter.detach().flatten() for parameter in task.model.parameters()])

    one = weights("one")
    assert torch.equal(one, weights("again"))
    assert torch.equal(one, weights("stream", **{"preparation.streaming": True}))
    assert not torch.equal(one, weights("other", seed=2))
