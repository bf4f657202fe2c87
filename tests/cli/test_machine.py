"""Machines and durations in words."""

import platform
from pathlib import Path

import pytest
import torch

from transformer.cli.machine import in_words, machine_in_words, processor_name, versions


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (125, "2 min 05 s"), (3599, "59 min 59 s"),
     (7504, "2 h 05 min"), (100_000, "27 h 46 min")],
)  # fmt: skip
def test_durations(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


def test_the_processor_is_named_by_its_maker(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel\t\t: 85\nmodel name\t: Some  CPU @ 2.80GHz\nmodel name\t: Other\n")
    assert processor_name(info) == "Some CPU @ 2.80GHz"
    info.write_text("processor\t: 0\n")
    assert processor_name(info) == (platform.processor() or platform.machine())
    assert processor_name(tmp_path / "missing") == processor_name(info)


def test_the_machine_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    for threads, words in ((1, "1 thread"), (3, "3 threads")):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        assert machine_in_words("cpu", "32-true") == f"{processor_name()}, {words}, 32-true"
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device.index}")
    assert machine_in_words("cuda:1", "bf16-mixed") == "GPU 1, bf16-mixed"


def test_versions_are_those_of_the_packages() -> None:
    found = versions()
    assert found["python"] == platform.python_version()
    assert found["torch"] == torch.__version__
    assert {"lightning", "tokenizers", "datasets", "sacrebleu", "hydra-core", "numpy"} <= set(found)
