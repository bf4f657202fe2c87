"""Opens a file whatever its compression, and says in one sentence what is wrong with it."""

import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol, cast

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

FORMATS: Mapping[str, str] = {".gz": "gzip", ".xz": "xz", ".zst": "Zstandard"}
"""What a file is by the end of its name. With any other name it is not compressed."""

_DAMAGE = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, zstd.ZstdError)
_CHUNK = 1 << 18


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """The content of a file as bytes, decompressed; of several gzip members, xz streams or frames, all of them.

    Raises:
        ValueError: The file is missing, a folder or not readable; or, while it is being read, damaged, cut short or
            not in the format that its name tells.
    """
    with named_faults(path):
        file = path.open("rb", buffering=0)
    with file:
        yield cast(BinaryIO, io.BufferedReader(_NamedFaults(path, _content(file, path.suffix)), _CHUNK))


@contextmanager
def named_faults(path: Path) -> Iterator[None]:
    """Turns what reading a file raises into a ValueError that names the file."""
    try:
        yield
    except FileNotFoundError:
        raise ValueError(f"The file {str(path)!r} does not exist.") from None
    except IsADirectoryError:
        raise ValueError(f"{str(path)!r} must be a file, but is a folder.") from None
    except _DAMAGE as error:
        raise ValueError(
            f"The file {str(path)!r} must be {FORMATS[path.suffix]} by its name, but is damaged or no "
            f"{FORMATS[path.suffix]}: {str(error).rstrip('.')}."
        ) from error
    except OSError as error:
        raise ValueError(f"The file {str(path)!r} cannot be read: {error.strerror or error}.") from error


def _content(file: io.RawIOBase, suffix: str) -> io.RawIOBase | io.BufferedIOBase:
    match suffix:
        case ".gz":
            return gzip.GzipFile(fileobj=file, mode="rb")
        case ".xz":
            return _Frames(file, lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ))
        case ".zst":
            return _Frames(file, zstd.ZstdDecompressor)
        case _:
            return file


class _NamedFaults(io.RawIOBase):
    """A stream with :func:`named_faults`, whenever they come up."""

    def __init__(self, path: Path, stream: io.RawIOBase | io.BufferedIOBase) -> None:
        self._path = path
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int | None:  # type: ignore[override]
        with named_faults(self._path):
            return self._stream.readinto(buffer)


class _Decompressor(Protocol):
    """Decompresses one frame."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Frames(io.RawIOBase):
    """Frames one after another. Zero bytes between and after them are padding; anything else there is damage.

    The standard library's own file class takes what follows a complete xz stream, and is none, for the end of the
    file: a damaged second stream would go missing without a word.
    """

    def __init__(self, stream: io.RawIOBase, start: Callable[[], _Decompressor]) -> None:
        self._stream = stream
        self._start = start
        self._frame: _Decompressor | None = None
        self._input = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while True:
            if not self._input and (self._frame is None or self._frame.needs_input):
                self._input = self._stream.read(_CHUNK) or b""
                if not self._input:
                    if self._frame is not None:
                        raise EOFError("it ends too early")
                    return 0
            if self._frame is None:
                self._input = self._input.lstrip(b"\0")
                if not self._input:
                    continue
                self._frame = self._start()
            data = self._frame.decompress(self._input, len(buffer))
            self._input = b""
            if self._frame.eof:
                self._input, self._frame = self._frame.unused_data, None
            if data:
                buffer[: len(data)] = data
                return len(data)
