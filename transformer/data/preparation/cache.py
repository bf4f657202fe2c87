"""Results of preparation on disk: found again by what they were made from, complete or not there at all."""

import errno
import json
import logging
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import platformdirs
import xxhash
from filelock import FileLock

log = logging.getLogger(__name__)

MANIFEST = "manifest.json"
BLOCK = 1 << 20


def default_folder() -> Path:
    """The user's cache folder."""
    return Path(platformdirs.user_cache_dir("trueformer", appauthor=False))


class Cache:
    """Folders of files, each named by a digest of everything that its content depends on.

    A folder is built under another name, gets a manifest with the size and checksum of every file, and is renamed at
    the end: a process killed at any moment leaves no folder that looks complete. Every use checks sizes and checksums
    once; what does not fit is built anew. Processes that need the same folder wait for the one that builds it.

    Args:
        folder: where the folders are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._checked: set[Path] = set()

    def get(self, kind: str, depends_on: Mapping[str, object], build: Callable[[Path], None]) -> Path:
        """The folder of a result; `build` fills an empty one if it is not there yet.

        Args:
            kind: what it is, in a word, for people who look into the cache.
            depends_on: everything that the content depends on, as plain data.
            build: writes the files.

        Raises:
            ValueError: The cache cannot be written, or `build` raises it.
        """
        key = json.dumps({"kind": kind, **depends_on}, sort_keys=True, ensure_ascii=False)
        digest = xxhash.xxh3_128_hexdigest(key.encode("utf-8", "surrogatepass"))
        path = self.folder / f"{kind}-{digest}"
        if path in self._checked:
            return path
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with FileLock(self.folder / f"{kind}-{digest}.lock"):
                if not self._is_complete(path, key):
                    self._build(path, key, build)
        except OSError as error:
            what = "is full" if error.errno == errno.ENOSPC else f"cannot be written: {error.strerror or error}"
            raise ValueError(
                f"The cache folder {str(self.folder)!r} {what}; preparation.cache_folder chooses another."
            ) from error
        self._checked.add(path)
        return path

    def _is_complete(self, path: Path, key: str) -> bool:
        if not path.is_dir():
            return False
        try:
            manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
            expected = manifest["files"]
            damaged = [name for name, entry in expected.items() if not _fits(path / name, entry)]
            if manifest["depends_on"] != json.loads(key):
                damaged.append(MANIFEST)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            damaged = [MANIFEST]
        if damaged:
            log.warning("the cache %s is damaged (%s) and is made anew.", path, ", ".join(damaged))
        return not damaged

    def _build(self, path: Path, key: str, build: Callable[[Path], None]) -> None:
        partial = path.with_name(f"{path.name}.partial")
        for leftover in (path, partial):  # of a killed process, or damaged; the lock is ours
            if leftover.exists():
                shutil.rmtree(leftover)
        partial.mkdir()
        try:
            build(partial)
            files = {file.name: _entry(file) for file in sorted(partial.iterdir())}
            manifest = {"depends_on": json.loads(key), "files": files}
            with (partial / MANIFEST).open("w", encoding="utf-8") as stream:
                json.dump(manifest, stream, indent=1)
                stream.flush()
                os.fsync(stream.fileno())
            partial.rename(path)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def checksum_of(folder: Path, name: str) -> str:
    """The checksum of a file of a complete folder, as its manifest has it."""
    manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    return str(manifest["files"][name][1])


def _fits(path: Path, entry: object) -> bool:
    try:
        return _entry(path) == entry
    except OSError:
        return False


def _entry(path: Path) -> list[int | str]:
    """Size and checksum of a file."""
    checksum = xxhash.xxh3_128()
    with path.open("rb") as stream:
        while block := stream.read(BLOCK):
            checksum.update(block)
    return [path.stat().st_size, checksum.hexdigest()]
