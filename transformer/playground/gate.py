"""What every request to the page goes through: a limit of its size, and headers that keep the browser here."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

MAX_REQUEST_BYTES = 256 * 1024

# The browser itself refuses to load anything from elsewhere, whatever a library's page may ask for.
_HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; frame-ancestors 'none'; form-action 'self'",
    ),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
]


class Gate:
    """An ASGI application around another: it refuses too large requests and all uploads.

    Args:
        application: gets what passes.
        max_bytes: of a request's body.
    """

    def __init__(self, application: Application, max_bytes: int = MAX_REQUEST_BYTES) -> None:
        self._application, self._max_bytes = application, max_bytes

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *_HEADERS]
            await send(message)

        if scope["path"].rstrip("/").endswith("/upload"):
            await _refuse(send_with_headers, 403, "this page takes no files.")
            return
        read, size = [], 0
        while True:
            message = await receive()
            read.append(message)
            size += len(message.get("body", b""))
            if size > self._max_bytes:
                limit = self._max_bytes // 1024
                await _refuse(send_with_headers, 413, f"a request must have {limit} KiB at most, but has more.")
                return
            if message["type"] != "http.request" or not message.get("more_body", False):
                break
        rest = iter(read)

        async def receive_again() -> Message:
            return next(rest, None) or await receive()

        await self._application(scope, receive_again, send_with_headers)


async def _refuse(send: Send, status: int, sentence: str) -> None:
    body = sentence.encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
