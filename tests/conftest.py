"""Rules for all tests, and the small models that many of them share."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:  # imported where they are used, so that tests without tensors start without loading torch
    import typer
    from click.testing import Result
    from torch import Tensor

    from transformer.bundle import Bundle
    from transformer.data.batches.config import BatchingConfig
    from transformer.data.config import TextDataConfig, TranslationDataConfig
    from transformer.data.preparation.report import CorpusReport
    from transformer.data.subwords.tokenizer import Tokenizer
    from transformer.data.translation_data import TranslationSetup

LETTERS = "abcdefghijklmnopqrstuvwxyzäöüß .0123456789EHKL"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests marked ``gpu`` where there is no CUDA device."""
    if item.get_closest_marker("gpu") is not None:
        import torch  # here, so that tests without tensors start without loading it

        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device")


@pytest.fixture(scope="session", autouse=True)
def _caches_of_their_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the user's caches, neither here nor in a process that it starts."""
    folder = tmp_path_factory.mktemp("caches")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        for name in ("HF_HOME", "HF_DATASETS_CACHE"):
            patch.delenv(name, raising=False)
        if "datasets" in sys.modules:  # it was told at its import, when the tests were collected
            patch.setattr(sys.modules["datasets"].config, "HF_DATASETS_CACHE", folder / "huggingface" / "datasets")
        yield


class TableModel:
    """A stand-in model: for each example a table from the text so far to the probabilities of the next token.

    Token 0 is the end token ``E``; 1, 2, 3, 4 are written ``a``, ``b``, ``c``, ``d``.
    """

    def __init__(self, tables: Sequence[Callable[[str], Sequence[float]]]) -> None:
        self.tables, self.texts = list(tables), [""] * len(tables)

    def start(self) -> Tensor:
        return self._logits()

    def step(self, tokens_M: Tensor, parents_M: Tensor) -> Tensor:
        parents = parents_M.tolist()
        self.texts = [self.texts[row] + "Eabcd"[token] for row, token in zip(parents, tokens_M.tolist(), strict=True)]
        self.tables = [self.tables[row] for row in parents]
        return self._logits()

    def _logits(self) -> Tensor:
        import torch

        rows = [table(text) for table, text in zip(self.tables, self.texts, strict=True)]
        return torch.tensor(rows, dtype=torch.float64).log()


@pytest.fixture(scope="session")
def table_model() -> type[TableModel]:
    """The class :class:`TableModel`."""
    return TableModel


@pytest.fixture(scope="session")
def random_table() -> Callable[[int, int, float], Callable[[str], list[float]]]:
    """Make a table of random probabilities over ``size`` tokens; a larger sharpness makes them less equal."""

    def make(seed: int, size: int, sharpness: float) -> Callable[[str], list[float]]:
        import numpy as np

        rows: dict[str, list[float]] = {}

        def table(text: str) -> list[float]:
            if text not in rows:
                place = int(text.translate(str.maketrans("Eabcd", "01234")) or 0) * 10 + len(text)
                weights = np.exp(sharpness * np.random.default_rng((seed, place)).normal(size=size))
                rows[text] = (weights / weights.sum()).tolist()
            return rows[text]

        return table

    return make


@pytest.fixture(scope="session")
def tiny_bundle() -> Callable[..., Bundle]:
    """Make a bundle with seeded random weights and one tokenizer of characters for both sides.

    ``settings`` change the model, which is untied and has large weights, so that its answers differ with its input.
    """

    def make(name: str, *, seed: int = 0, characters: str = LETTERS, decoding: Any = None,
             mark_documents: bool = False, **settings: Any) -> Bundle:  # fmt: skip
        import torch

        from transformer.bundle import Bundle, BundleConfig, build_model
        from transformer.data.subwords.config import CharConfig
        from transformer.data.subwords.tokenizer import Tokenizer

        layers = {"encoder_decoder": ("num_encoder_layers", "num_decoder_layers"), "decoder_only": ("num_layers",)}
        model = {"name": name, "d_model": 16, "num_heads": 2, "d_ff": 32, "max_length": 24, "dropout": 0.1}
        model["tie_embeddings"] = "none" if name == "encoder_decoder" else False
        model |= dict.fromkeys(layers[name], 1) | settings
        config = BundleConfig.from_plain(
            {
                "model": model,
                "data": {"name": "phrases" if name == "encoder_decoder" else "python_docs"},
                "decoding": {"name": "greedy"} if decoding is None else decoding,
                "mark_documents": mark_documents,
            }
        )
        tokenizer = Tokenizer.train(CharConfig(), [characters])
        torch.manual_seed(seed)
        built = build_model(config.model, tokenizer, tokenizer)
        with torch.no_grad():
            for parameter in built.parameters():
                parameter += 0.2 * torch.randn_like(parameter)
        return Bundle(config, built.eval(), tokenizer, tokenizer)

    return make


@pytest.fixture
def training_rows(tmp_path: Path) -> Callable[..., tuple[list[tuple[str, ...]], CorpusReport]]:
    """Read the training rows of a single corpus that its filters keep, and the report on the others."""
    from transformer.data.corpora.sources import open_source
    from transformer.data.preparation.cache import Cache
    from transformer.data.preparation.texts import prepare_texts

    def read(config: TranslationDataConfig | TextDataConfig) -> tuple[list[tuple[str, ...]], CorpusReport]:
        source = open_source("corpus", config, "train")
        texts = prepare_texts(source, config, Cache(tmp_path / "cache"), lambda what, done, total: None)
        return [texts.table.texts(row) for row in range(len(texts.table))], texts.report

    return read


@pytest.fixture
def translation_setup(tmp_path: Path) -> Callable[..., TranslationSetup]:
    """Make what a run of one epoch needs of pairs, which are its training and its validation pairs."""
    from transformer.data.batches.config import PreparationConfig
    from transformer.data.batches.pairs import PairTokenizers
    from transformer.data.corpora.pair_config import JsonlConfig
    from transformer.data.run_preparation import RunLimits
    from transformer.data.subwords.config import ByteConfig
    from transformer.data.translation_data import prepare_translation

    def make(pairs: Sequence[tuple[str, str]], tokenizer: Tokenizer, batching: BatchingConfig,
             max_length: int) -> TranslationSetup:  # fmt: skip
        lines = [json.dumps({"source": source, "target": target}) + "\n" for source, target in pairs]
        (tmp_path / "pairs.jsonl").write_text("".join(lines), encoding="utf-8")
        data = JsonlConfig(folder=str(tmp_path), train="pairs.jsonl", validation="pairs.jsonl")
        limits = RunLimits(max_length, seed=1, max_batches=None, max_epochs=1)
        stored = PairTokenizers(tokenizer, tokenizer)
        return prepare_translation(
            data, ByteConfig(), batching, PreparationConfig(), limits, stored=stored, progress=lambda *_: None
        )

    return make


@pytest.fixture
def run_tool() -> Iterator[Callable[..., Result]]:
    """Run a line tool in this process: ``run_tool(app, arguments, input=bytes)``; loggers are put back afterwards.

    It runs on the CPU unless another ``device`` is given.
    """
    from typer.testing import CliRunner

    names = ("transformer", "lightning.pytorch", "lightning.fabric", "datasets")
    loggers = [logging.getLogger(name) for name in names]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]

    def run(app: typer.Typer, arguments: Sequence[object], input: bytes = b"", device: str = "cpu") -> Result:
        return CliRunner().invoke(app, [*map(str, arguments), "--device", device], input=input)

    yield run
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


@pytest.fixture
def run_settings(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Make the plain settings of a training run that takes about a second, changed by dotted names."""

    def make(kind: str = "translation", changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
        model: dict[str, Any] = {"d_model": 16, "num_heads": 2, "d_ff": 32, "dropout": 0.0}
        plain: dict[str, Any] = {
            "optimizer": {"name": "adamw", "learning_rate": 1e-2},
            "scheduler": {"name": "inverse_sqrt", "warmup_steps": 2},
            "trainer": {"max_steps": 4, "accelerator": "cpu", "devices": 1, "precision": "32-true"},
            "validation": {"every_n_steps": 2, "num_shown": 1},
            "decoding": {"name": "greedy", "max_new_tokens": 4},
            "tokenizer": {"name": "byte"},
        }
        if kind == "translation":
            plain["data"] = {"name": "phrases", "num_train": 60, "num_validation": 4, "num_test": 4}
            plain["batching"] = {"max_tokens_per_batch": 600}
            layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
            plain["model"] = {"name": "encoder_decoder", "max_length": 160, **layers, **model}
            plain["validation"]["num_generated"] = 2
        else:
            text = "the quick brown fox jumps over the lazy dog. " * 20
            (tmp_path / "text.txt").write_text(text, encoding="utf-8")
            plain["data"] = {"name": "plain_text", "folder": str(tmp_path), "train": "text.txt"}
            plain["data"]["validation_fraction"] = 0.2
            plain["batching"] = {"max_tokens_per_batch": 64}
            plain["model"] = {"name": "decoder_only", "num_layers": 1, "max_length": 16, "position": "rotary", **model}
        plain["trainer"]["log_every_n_steps"] = 1
        for name, value in (changes or {}).items():
            *path, last = name.split(".")
            inner = plain
            for part in path:
                inner = inner.setdefault(part, {})
            inner[last] = value
        return plain

    return make


class CommandResult(NamedTuple):
    """Exit status and what was written."""

    status: int
    out: str
    err: str


@pytest.fixture
def run_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., CommandResult]]:
    """Run a Hydra command in this process and an empty folder: ``run_command(main, *arguments)``."""
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.hydra_config import HydraConfig

    folder = tmp_path / "cwd"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    names = ("root", "transformer", "lightning.pytorch", "lightning.fabric", "datasets")
    loggers = [logging.getLogger(name) for name in names]
    before = [(logger.handlers[:], logger.propagate, logger.level) for logger in loggers]

    def run(main: Callable[[], None], *arguments: str) -> CommandResult:
        monkeypatch.setattr("sys.argv", ["command", *arguments])
        capsys.readouterr()
        status = 0
        try:
            main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        return CommandResult(status, *capsys.readouterr())

    yield run
    GlobalHydra.instance().clear()
    HydraConfig.instance().cfg = None
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)
