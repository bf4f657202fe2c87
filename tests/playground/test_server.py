"""The page's server, asked without a browser."""

import json
import subprocess
import sys
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


@pytest.mark.timeout(300)
def test_only_so_many_visitors_maps_are_kept() -> None:
    program = """
from transformer.playground.app import build_page
from transformer.playground.server import MAX_VISITORS, application
from transformer.playground.text_page import FORGOTTEN, _draw

page = build_page(None)
application(page, local=True)
for visitor in range(MAX_VISITORS + 2):
    page.state_holder[str(visitor)]
assert len(page.state_holder.session_data) <= MAX_VISITORS + 1
assert "0" not in page.state_holder and str(MAX_VISITORS + 1) in page.state_holder
assert _draw(None, "cross", "mean", "mean") == FORGOTTEN
"""
    subprocess.run([sys.executable, "-c", program], check=True)
