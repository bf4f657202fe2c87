"""The cache of prepared corpora: found again, never half used, and every damage noticed."""

import errno
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from transformer.data.preparation.cache import Cache, checksum_of

CONTENT = {"a.bin": b"\x00\x01abc", "b.txt": b"some text\n"}
SETTINGS = {"format": 1, "source": "x", "filters": {"max": 0.5, "names": ["é", None]}}


class Builder:
    """Writes the files and counts how often it was asked to."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, folder: Path) -> None:
        self.calls += 1
        assert list(folder.iterdir()) == []
        for name, content in CONTENT.items():
            (folder / name).write_bytes(content)


def check(folder: Path) -> None:
    """The files are there and complete."""
    assert {path.name for path in folder.iterdir()} == {*CONTENT, "manifest.json"}
    assert all((folder / name).read_bytes() == content for name, content in CONTENT.items())


def folders(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.is_dir())


def test_a_result_is_built_once_and_found_by_what_it_depends_on(tmp_path: Path) -> None:
    build = Builder()
    cache = Cache(tmp_path / "new" / "cache")
    first = cache.get("ids", SETTINGS, build)
    check(first)
    assert first.name.startswith("ids-")
    assert cache.get("ids", SETTINGS, build) == first
    reordered = dict(reversed(SETTINGS.items()))
    assert Cache(cache.folder).get("ids", reordered, build) == first
    assert build.calls == 1
    others = [
        cache.get("texts", SETTINGS, build),
        cache.get("ids", SETTINGS | {"format": 2}, build),
        cache.get("ids", SETTINGS | {"source": "y"}, build),
        cache.get("ids", SETTINGS | {"filters": {"max": 0.25, "names": ["é", None]}}, build),
        cache.get("ids", SETTINGS | {"filters": {"max": 0.5, "names": [None, "é"]}}, build),
    ]
    assert build.calls == 6
    assert folders(cache.folder) == sorted(path.name for path in [first, *others])


def test_the_manifest_says_what_a_folder_is_made_from(tmp_path: Path) -> None:
    folder = Cache(tmp_path).get("ids", SETTINGS, Builder())
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["depends_on"] == {"kind": "ids", **SETTINGS}
    assert {name: size for name, (size, _) in manifest["files"].items()} == {"a.bin": 5, "b.txt": 10}
    assert checksum_of(folder, "a.bin") == manifest["files"]["a.bin"][1]
    assert checksum_of(folder, "a.bin") != checksum_of(folder, "b.txt")


def test_any_flipped_bit_is_noticed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.fsync", lambda number: None)  # hundreds of them take seconds
    build, settings = Builder(), {"format": 1}
    folder = Cache(tmp_path).get("ids", settings, build)
    damaged = 0
    for name in [*CONTENT, "manifest.json"]:
        intact = (folder / name).read_bytes()
        for position in range(len(intact)):
            flipped = bytearray(intact)
            flipped[position] ^= 1 << position % 8
            (folder / name).write_bytes(flipped)
            caplog.clear()
            assert Cache(tmp_path).get("ids", settings, build) == folder
            damaged += 1
            assert build.calls == 1 + damaged, f"{name}, byte {position}"
            assert [record.levelno for record in caplog.records] == [logging.WARNING]
            check(folder)
            assert (folder / name).read_bytes() == intact
    assert damaged > 200


def test_a_flipped_bit_far_inside_a_large_file_is_noticed(tmp_path: Path) -> None:
    def build(folder: Path) -> None:
        (folder / "large").write_bytes(bytes(3_000_000))

    folder = Cache(tmp_path).get("ids", {}, build)
    with (folder / "large").open("r+b") as stream:
        stream.seek(2_999_999)
        stream.write(b"\x10")
    Cache(tmp_path).get("ids", {}, build)
    assert (folder / "large").read_bytes() == bytes(3_000_000)


def _cut(folder: Path) -> None:
    (folder / "b.txt").write_bytes(CONTENT["b.txt"][:-1])


def _lengthen(folder: Path) -> None:
    (folder / "b.txt").write_bytes(CONTENT["b.txt"] + b"\0")


def _remove(folder: Path) -> None:
    (folder / "b.txt").unlink()


def _replace_by_a_folder(folder: Path) -> None:
    (folder / "b.txt").unlink()
    (folder / "b.txt").mkdir()


def _manifest(content: bytes) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / "manifest.json").write_bytes(content)

    return damage


def _remove_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (_cut, "b.txt"),
        (_lengthen, "b.txt"),
        (_remove, "b.txt"),
        (_replace_by_a_folder, "b.txt"),
        (_remove_manifest, "manifest.json"),
        (_empty, "manifest.json"),
        *(
            (_manifest(content), "manifest.json")
            for content in (b"", b"{", b"{}", b"[]", b"null", b"\xff", b'{"files": {}}', b'{"files": ["b.txt"]}')
        ),
    ],
)
def test_damage_is_repaired_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], None], what: str
) -> None:
    build = Builder()
    folder = Cache(tmp_path).get("ids", SETTINGS, build)
    damage(folder)
    assert Cache(tmp_path).get("ids", SETTINGS, build) == folder
    assert build.calls == 2
    check(folder)
    assert caplog.messages == [f"the cache {folder} is damaged ({what}) and is made anew."]
    caplog.clear()
    Cache(tmp_path).get("ids", SETTINGS, build)
    assert (build.calls, caplog.messages) == (2, [])


@pytest.mark.parametrize("error", [ValueError("no text"), KeyboardInterrupt(), MemoryError()])
def test_a_build_that_fails_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    def fail(folder: Path) -> None:
        (folder / "a.bin").write_bytes(CONTENT["a.bin"])
        raise error

    cache = Cache(tmp_path)
    with pytest.raises(type(error)) as raised:
        cache.get("ids", SETTINGS, fail)
    assert raised.value is error
    assert folders(tmp_path) == []
    build = Builder()
    check(cache.get("ids", SETTINGS, build))
    assert build.calls == 1


def test_what_a_killed_build_has_left_is_never_used(tmp_path: Path) -> None:
    """Also if it had all files and its manifest already, and only the last step was missing."""
    build = Builder()
    folder = Cache(tmp_path).get("ids", SETTINGS, build)
    partial = folder.with_name(f"{folder.name}.partial")
    folder.rename(partial)
    (partial / "further").write_bytes(b"rest of an older version")
    check(Cache(tmp_path).get("ids", SETTINGS, build))
    assert build.calls == 2
    assert folders(tmp_path) == [folder.name]


PROGRAM = """
import sys, time
from pathlib import Path
from transformer.data.preparation.cache import Cache

def build(folder):
    with open(sys.argv[2], "a") as calls:
        calls.write("x")
    (folder / "a.bin").write_bytes(b"\\0\\1")
    print("building", flush=True)
    time.sleep(float(sys.argv[3]))
    (folder / "a.bin").write_bytes(b"\\0\\1abc")
    (folder / "b.txt").write_bytes(b"some text\\n")

print(Cache(Path(sys.argv[1])).get("ids", {"format": 1}, build), flush=True)
"""


def start(cache: Path, calls: Path, seconds: float) -> "subprocess.Popen[str]":
    arguments = [sys.executable, "-c", PROGRAM, str(cache), str(calls), str(seconds)]
    path = os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path})


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_process_killed_while_it_builds_blocks_nobody(tmp_path: Path) -> None:
    with start(tmp_path / "cache", tmp_path / "calls", 60) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "building\n"
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert [name for name in folders(tmp_path / "cache") if not name.endswith(".partial")] == []
    build = Builder()
    check(Cache(tmp_path / "cache").get("ids", {"format": 1}, build))
    assert build.calls == 1
    assert not [name for name in folders(tmp_path / "cache") if name.endswith(".partial")]


def test_processes_that_need_the_same_folder_build_it_once(tmp_path: Path) -> None:
    processes = [start(tmp_path / "cache", tmp_path / "calls", 0.3) for _ in range(3)]
    outputs = [process.communicate(timeout=60)[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert (tmp_path / "calls").read_text(encoding="utf-8") == "x"
    assert sorted(map(len, outputs)) == [1, 1, 2]  # the one that built it said so
    assert len({lines[-1] for lines in outputs}) == 1
    check(Path(outputs[0][-1]))


def test_threads_that_need_the_same_folder_build_it_once(tmp_path: Path) -> None:
    build, gate, found = Builder(), threading.Barrier(4), []

    def get() -> None:
        gate.wait()
        found.append(Cache(tmp_path).get("ids", SETTINGS, build))

    threads = [threading.Thread(target=get) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert build.calls == 1
    assert len(set(found)) == 1
    assert len(found) == 4


def test_a_full_disk_is_one_sentence(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "a.bin").write_bytes(b"\0")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    message = f"^The cache folder '{tmp_path}' is full; preparation.cache_folder chooses another.$"
    with pytest.raises(ValueError, match=message):
        Cache(tmp_path).get("ids", {}, fill)
    assert folders(tmp_path) == []


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    message = r"^The cache folder '.*file' cannot be written: File exists; preparation.cache_folder chooses another.$"
    with pytest.raises(ValueError, match=message):
        Cache(tmp_path / "file").get("ids", {}, Builder())

    def refuse(*arguments: object, **settings: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(ValueError, match=r"'.*new' cannot be written: Permission denied; preparation"):
        Cache(tmp_path / "new").get("ids", {}, Builder())
