"""The page in a process of its own that may reach no other machine, and a browser that may neither."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

LOOPBACK_ONLY = Path(__file__).parent / "loopback_only.py"


class Served(NamedTuple):
    """A page: where it is, the addresses that its server wanted to reach, and what it wrote to standard error."""

    url: str
    reached: Path
    errors: Path


@pytest.fixture(scope="session")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Served]]:
    """Start ``transformer-playground`` with arguments; the processes end with the tests."""
    pytest.importorskip("gradio", reason="needs the extra `playground`")
    processes = []

    def start(*arguments: object) -> Served:
        folder = tmp_path_factory.mktemp("playground")
        reached, errors = folder / "reached.txt", folder / "errors.txt"
        reached.touch()
        command = [sys.executable, str(LOOPBACK_ONLY), str(reached), "playground", "--port", "0", *map(str, arguments)]
        with errors.open("w") as stream:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stream, text=True)
        processes.append(process)
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:"), errors.read_text()
        return Served(url, reached, errors)

    yield start
    for process in processes:
        process.terminate()
        process.communicate(timeout=30)


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """Debian's Chromium or another, without a window."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    path = next(
        (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
    )
    if path is None:
        pytest.skip("needs chromium")
    with playwright.sync_playwright() as running:
        # Its sandbox is for pages of strangers, and not to be had in a container.
        opened = running.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-background-networking"])
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser: "Browser") -> "Iterator[Callable[..., Page]]":
    """Open an address; at the end, it is an error if the page asked for anything from elsewhere or wrote an error."""
    contexts, elsewhere, errors = [], [], []

    def open_at(url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> "Page":
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
        )
        contexts.append(context)

        def check(route: "Route") -> None:
            if route.request.url.startswith(f"{url}/"):
                route.continue_()
            else:
                elsewhere.append(route.request.url)
                route.abort()

        context.route("**/*", check)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(url)
        page.get_by_role("tab").first.wait_for()
        return page

    yield open_at
    for context in contexts:
        context.close()
    assert elsewhere == []
    assert errors == []
