"""JoeyNMT's own trainer (Kreutzer et al. 2019) on the same ids: its data set, its batches, its model, its steps."""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from joeynmt.config import parse_global_args, set_validation_args
from joeynmt.prediction import prepare
from joeynmt.training import TrainManager

from peers.laps import NOTHING, Amount, Lap, Trained
from peers.machine import Memory, forget_peak, peak, synchronize, taken
from peers.stored import load_pairs, load_translating

PAD, EOS = 1, 3  # its own numbers of special symbols: unknown, padding, start, end
NEVER = 1_000_000  # steps


class JoeyTrainer:
    """Runs laps with JoeyNMT's :class:`TrainManager`; float32 on a CPU, where it has nothing else.

    Every id becomes a word of its text files, so its own vocabulary has one entry for each.

    Args:
        folder: of what all contestants share.
        work: an empty folder for its files.
        smoothing: of labels.
        max_tokens: of a batch, padded, on its longer side; `batch_type: token`.
        device: of the steps.
    """

    def __init__(self, folder: Path, work: Path, smoothing: float, max_tokens: int, device: torch.device) -> None:
        self.device, self.amount = device, NOTHING
        work.mkdir(parents=True, exist_ok=True)
        model = load_translating(folder)
        pairs = load_pairs(folder)
        for side, rows in (("a", pairs.sources), ("b", pairs.targets)):
            text = "".join(" ".join(f"t{number}" for number in row) + "\n" for row in rows)
            for split, kept in (("train", text), ("dev", text.partition("\n")[0] + "\n")):
                (work / f"{split}.{side}").write_text(kept, encoding="utf-8")
        (work / "vocabulary.txt").write_text("".join(f"t{n}\n" for n in range(model.vocab_size)), encoding="utf-8")
        logging.disable(logging.WARNING)
        arguments = parse_global_args(_settings(work, model.config, smoothing, max_tokens, device), mode="train")
        arguments.model_dir.mkdir(exist_ok=True)
        joey, self.training, self.validation, _ = prepare(arguments, rank=0, mode="train")
        self.manager = TrainManager(
            rank=0,
            model=joey,
            model_dir=arguments.model_dir,
            device=arguments.device,
            n_gpu=arguments.n_gpu,
            num_workers=0,
            autocast=arguments.autocast,
            seed=1,
            train_args=arguments.train,
            dev_args=set_validation_args(arguments.test),
        )
        # Every lap would end with one, which is no part of training.
        self.manager._save_checkpoint = lambda new_best, score: None
        self._collate: Callable[..., Any] = self.training.collate_fn
        self.training.collate_fn = self._counted

    def __call__(self, lap: Lap | None) -> Trained | None:
        """See :data:`peers.laps.Contestant`; it has another smoothing, so there is no loss to compare."""
        if lap is None:
            return None
        manager = self.manager
        manager.args = manager.args._replace(max_updates=manager.stats.steps + lap.steps)
        manager.stats.is_max_update = False
        self.amount = NOTHING
        before = taken(self.device)
        forget_peak(self.device)
        synchronize(self.device)
        start = time.perf_counter()
        manager.train_and_validate(self.training, self.validation)
        synchronize(self.device)
        seconds = time.perf_counter() - start
        return Trained(seconds, self.amount, Memory(before, peak(self.device)))

    def _counted(self, *arguments: Any, **settings: Any) -> Any:
        batch = self._collate(*arguments, **settings)
        real = int((batch.src != PAD).sum()), int(batch.ntokens)
        self.amount = self.amount.plus(Amount(real[0], batch.src.numel(), real[1], batch.trg.numel()))
        return batch


def _settings(work: Path, model: Any, smoothing: float, max_tokens: int, device: torch.device) -> dict[str, Any]:
    side = {"max_length": model.max_length, "level": "word", "voc_file": str(work / "vocabulary.txt")}
    stack = {
        "type": "transformer",
        "num_heads": model.num_heads,
        "embeddings": {"embedding_dim": model.d_model, "scale": model.scale_embeddings, "dropout": model.dropout},
        "hidden_size": model.d_model,
        "ff_size": model.ff_width,
        "dropout": model.dropout,
        "layer_norm": model.norm_position,
        "activation": model.activation,
    }
    return {
        "name": "benchmark",
        "model_dir": str(work / "model"),
        "use_cuda": device.type == "cuda",
        "fp16": False,
        "normalization": "tokens",
        "random_seed": 1,
        "data": {
            "train": str(work / "train"),
            "dev": str(work / "dev"),
            "dataset_type": "plain",
            "src": {"lang": "a", **side},
            "trg": {"lang": "b", **side},
        },
        "testing": {"eval_metrics": []},
        "training": {
            "optimizer": "adamw",
            "learning_rate": 1e-4,
            "scheduling": "warmupinversesquareroot",
            "learning_rate_warmup": 1000,
            "label_smoothing": smoothing,
            "clip_grad_norm": 1.0,
            "batch_size": max_tokens,
            "batch_type": "token",
            "epochs": NEVER,
            "validation_freq": NEVER,
            "logging_freq": 100,
        },
        "model": {
            "tied_embeddings": True,
            "tied_softmax": True,
            "encoder": {**stack, "num_layers": model.num_encoder_layers},
            "decoder": {**stack, "num_layers": model.num_decoder_layers},
        },
    }
