"""What every request goes through."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from transformer.playground.gate import MAX_REQUEST_BYTES, Gate, Message


async def echo(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    """Answers with the whole body that it got."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-own", b"1")]})
    await send({"type": "http.response.body", "body": body})


def asked(path: str, *chunks: bytes) -> tuple[int, dict[bytes, bytes], bytes, int]:
    """Status, headers and body of the answer to a request whose body comes in chunks, and how many were read."""
    parts: Iterator[tuple[int, bytes]] = iter(enumerate(chunks, start=1))
    sent: list[dict[str, Any]] = []
    read = 0

    async def receive() -> Message:
        nonlocal read
        read, chunk = next(parts)
        return {"type": "http.request", "body": chunk, "more_body": read < len(chunks)}

    async def send(message: Message) -> None:
        sent.append(dict(message))

    asyncio.run(Gate(echo)({"type": "http", "path": path}, receive, send))
    start, body = sent
    return start["status"], dict(start["headers"]), body["body"], read


def test_a_request_of_the_size_permitted_passes_whole() -> None:
    half = b"a" * (MAX_REQUEST_BYTES // 2)
    status, headers, body, _ = asked("/gradio_api/run", half, half)
    assert (status, body) == (200, 2 * half)
    assert headers[b"x-own"] == b"1"


def test_a_larger_one_is_refused_without_reading_on() -> None:
    status, _, body, read = asked("/gradio_api/run", b"a" * MAX_REQUEST_BYTES, b"a", *[b"a"] * 10)
    assert (status, body) == (413, b"a request must have 256 KiB at most, but has more.")
    assert read == 2


@pytest.mark.parametrize("path", ["/gradio_api/upload", "/upload/"])
def test_files_are_refused(path: str) -> None:
    status, _, body, _ = asked(path, b"a")
    assert (status, body) == (403, b"this page takes no files.")


def test_every_answer_tells_the_browser_to_load_nothing_from_elsewhere() -> None:
    for path in ("/", "/gradio_api/upload"):
        policy = asked(path, b"")[1][b"content-security-policy"].decode()
        assert "default-src 'self'" in policy
        assert "http" not in policy
        assert "*" not in policy
