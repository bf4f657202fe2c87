"""`transformer-playground` without a browser."""

import ast
import socket
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from transformer.cli.playground import app

PACKAGE = Path(__file__).parents[2] / "transformer"


def run(*arguments: object) -> tuple[int, str]:
    """Exit status and what went to standard error."""
    result = CliRunner().invoke(app, [*map(str, arguments)])
    return result.exit_code, result.stderr


def test_without_the_extra_it_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    assert run() == (
        2,
        "error: the playground needs Gradio, which comes with the extra `playground`; in a clone: "
        "pip install -e '.[playground]'.\n",
    )


def test_no_other_part_of_the_package_loads_gradio() -> None:
    names = ("gradio", "fastapi", "uvicorn", "transformer.playground")
    for path in PACKAGE.rglob("*.py"):
        if path.parent.name != "playground":
            body = ast.parse(path.read_text(encoding="utf-8")).body
            loaded = [each.module or "" for each in body if isinstance(each, ast.ImportFrom)]
            loaded += [alias.name for each in body if isinstance(each, ast.Import) for alias in each.names]
            assert [name for name in loaded if name.startswith(names)] == [], path


class TestWithGradio:
    """What comes after Gradio has been loaded."""

    @pytest.fixture(autouse=True)
    def _needs_gradio(self) -> None:
        pytest.importorskip("gradio", reason="needs the extra `playground`")

    def test_a_port_that_is_taken_is_named(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            status, errors = run("--port", port)
        assert status == 2
        assert errors.startswith(f"error: the page cannot be served at 127.0.0.1, port {port}: ")
        assert errors.endswith(". Choose others with --host and --port.\n")

    def test_a_folder_without_a_bundle_is_refused(self, tmp_path: Path) -> None:
        assert run(tmp_path) == (2, f"error: {tmp_path} is not a bundle: it has no config.json.\n")

    @pytest.mark.parametrize(
        ("host", "warned"), [("127.0.0.1", False), ("localhost", False), ("127.0.0.2", False), ("0.0.0.0", True)]
    )
    def test_an_address_that_others_reach_is_warned_of(
        self, monkeypatch: pytest.MonkeyPatch, host: str, warned: bool
    ) -> None:
        from transformer.playground import app as page
        from transformer.playground import server

        monkeypatch.setattr(page, "build_page", lambda trial: None)
        monkeypatch.setattr(server, "serve", lambda page, listening, ready: ready())
        result = CliRunner().invoke(app, ["--host", host, "--port", "0"])
        assert result.exit_code == 0
        assert result.stdout.startswith("http://127.0.0." if host != "0.0.0.0" else "http://0.0.0.0:")
        warning = (
            "warning: 0.0.0.0 is not only this machine's address: everyone who reaches it can use this page, without a "
            "password.\n"
        )
        assert result.stderr == (warning if warned else "")
