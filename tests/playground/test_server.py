"""The page's server, asked without a browser."""

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.timeout(300)
def test_requests_of_other_sites_too_large_ones_and_files_are_refused(serve: Callable[..., Any]) -> None:
    served = serve()

    def status(path: str, data: bytes | None = None, host: str | None = None) -> int:
        headers = {"Content-Type": "application/json"} | ({} if host is None else {"Host": host})
        try:
            with urllib.request.urlopen(urllib.request.Request(served.url + path, data, headers)) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    assert status("/") == 200
    assert status("/", host="evil.example") == 400
    assert status("/gradio_api/queue/join", json.dumps({"data": ["a" * 300_000]}).encode()) == 413
    assert status("/gradio_api/upload", b"a") == 403
    # Pages about an interface load their scripts from elsewhere.
    assert [status(path) for path in ("/docs", "/redoc", "/openapi.json")] == [404, 404, 404]
    assert served.reached.read_text() == ""
    assert served.errors.read_text() == ""
