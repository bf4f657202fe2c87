"""Pictures of attention while a model is trained."""

import importlib.util
import io
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger, WandbLogger
from matplotlib.image import imread
from rich.console import Console

from transformer.data.batches.collate import TextBatch, collate_texts, collate_translation
from transformer.training.attention_pictures import AttentionPictures, _log_image, attention_pictures
from transformer.training.config import TrainConfig
from transformer.training.run import train

WITHOUT_TENSORBOARD = importlib.util.find_spec("tensorboard") is None
TENSORBOARD, CSV, WANDB = ({"name": name} for name in ("tensorboard", "csv", "wandb"))


def run(settings, folder):
    return train(TrainConfig.from_plain(settings), folder, Console(file=io.StringIO()))


@pytest.mark.parametrize(
    ("kind", "names"), [("translation", ["cross", "decoder", "encoder"]), ("language_model", ["decoder"])]
)
def test_asked_for_there_are_files_of_every_validation_and_the_same_weights(run_settings, tmp_path, kind, names):
    plain = run(run_settings(kind), tmp_path / "plain")
    watched = run(run_settings(kind, {"validation.attention": True}), tmp_path / "watched")
    files = sorted(path.name for path in (tmp_path / "watched" / "attention").iterdir())
    assert files == [f"{name}-step={step}.png" for name in names for step in (2, 4)]
    assert imread(tmp_path / "watched" / "attention" / files[0]).shape[2] == 4
    assert not (tmp_path / "plain" / "attention").exists()
    for one, other in zip(plain.bundle.model.parameters(), watched.bundle.model.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.skipif(WITHOUT_TENSORBOARD, reason="needs tensorboard")
def test_tensorboard_gets_them_unasked(run_settings, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run(run_settings("translation", {"loggers": [{"name": "tensorboard"}]}), tmp_path)
    events = EventAccumulator(str(tmp_path / "tensorboard"), size_guidance={"images": 0})
    events.Reload()
    assert sorted(events.Tags()["images"]) == ["attention/cross", "attention/decoder", "attention/encoder"]
    assert [image.step for image in events.Images("attention/cross")] == [2, 4]
    assert not (tmp_path / "attention").exists()


@pytest.mark.parametrize(
    ("wanted", "loggers", "is_made", "with_files"),
    [
        (None, [], False, False),
        (None, [CSV], False, False),
        (None, [CSV, TENSORBOARD], True, False),
        (None, [WANDB], True, False),
        (False, [TENSORBOARD], False, False),
        (True, [], True, True),
        (True, [WANDB], True, True),
    ],
)
def test_they_are_made_for_loggers_that_take_images_unless_told_otherwise(
    run_settings, tmp_path, wanted, loggers, is_made, with_files
):
    settings = run_settings("translation", {"loggers": loggers, "validation.attention": wanted})
    callbacks = attention_pictures(TrainConfig.from_plain(settings), None, tmp_path)
    assert [callback.folder for callback in callbacks] == [tmp_path / "attention" if with_files else None] * is_made


def test_wandb_gets_pixels_and_the_step_and_csv_nothing(monkeypatch, tmp_path):
    calls = []
    monkeypatch.setattr(WandbLogger, "log_image", lambda self, *args, **options: calls.append((args, options)))
    pixels = np.zeros((2, 3, 3), dtype=np.uint8)
    _log_image(object.__new__(WandbLogger), "attention/cross", pixels, 7)
    _log_image(CSVLogger(tmp_path), "attention/cross", pixels, 7)
    assert calls == [(("attention/cross", [pixels]), {"step": 7})]


def read(*batches):
    """The example that is chosen from batches."""
    callback, trainer = AttentionPictures(None, None), SimpleNamespace(is_global_zero=True)
    callback.on_validation_start(trainer, None)
    for number, batch in enumerate(batches):
        callback.on_validation_batch_end(trainer, None, None, batch, number)
    return callback._example


def pairs(*examples):
    return collate_translation(examples, pad_id=0, bos_id=1, eos_id=2)


def test_the_first_example_that_fits_is_taken_as_the_model_reads_it():
    batches = pairs((4, [9], [9]), (3, [5, 6], [7, 8, 9])), pairs((1, [5] * 40, [6]), (2, [5], [6] * 40))
    assert read(*batches) == ([5, 6, 2], [1, 7, 8, 9, 2])
    assert read(*reversed(batches)) == ([5, 6, 2], [1, 7, 8, 9, 2])


def test_if_none_fits_the_shortest_is_taken():
    assert read(pairs((1, [5] * 50, [6]), (2, [5], [7] * 40))) == ([5, 2], [1, *[7] * 40, 2])


def test_of_a_text_the_beginning_of_its_first_document_is_taken():
    ids = list(range(10, 60))
    assert read(collate_texts([(0, [4, 5, 6]), (3, ids)], 0), collate_texts([(9, ids)], 0)) == ([], [4, 5])
    assert read(collate_texts([(0, ids)], 0)) == ([], ids[:32])
    row, ones = torch.tensor([[4, 5, 6, 7]]), torch.ones(1, 4, dtype=torch.bool)
    packed = TextBatch(torch.tensor([0, 1]), row, row, ones, torch.tensor([[1, 1, 2, 2]]))
    assert read(packed) == ([], [4, 5])
