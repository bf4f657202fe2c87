"""The check of the tests themselves: a process that may reach no other machine."""

import subprocess
import sys
from pathlib import Path

import pytest

LOOPBACK_ONLY = Path(__file__).parent / "loopback_only.py"


@pytest.mark.parametrize(
    ("code", "reached"),
    [
        ("socket.create_connection(('192.0.2.1', 80), timeout=1)", "socket.getaddrinfo 192.0.2.1\n"),
        ("socket.socket().connect(('192.0.2.1', 80))", "socket.connect 192.0.2.1\n"),
        ("socket.gethostbyname('example.org')", "socket.gethostbyname example.org\n"),
        ("socket.socket(type=socket.SOCK_DGRAM).sendto(b'', ('192.0.2.1', 80))", "socket.sendto 192.0.2.1\n"),
        ("socket.create_server(('0.0.0.0', 0))", "socket.bind 0.0.0.0\n"),
    ],
)
def test_other_machines_are_refused_and_reported(tmp_path: Path, code: str, reached: str) -> None:
    report = tmp_path / "reached.txt"
    start = f"import runpy, socket; runpy.run_path({str(LOOPBACK_ONLY)!r})['refuse_others']({str(report)!r}); "
    result = subprocess.run([sys.executable, "-c", start + code], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert report.read_text() == reached


def test_this_machine_is_not(tmp_path: Path) -> None:
    report = tmp_path / "reached.txt"
    start = f"import runpy, socket; runpy.run_path({str(LOOPBACK_ONLY)!r})['refuse_others']({str(report)!r}); "
    code = "server = socket.create_server(('127.0.0.1', 0)); socket.create_connection(server.getsockname())"
    subprocess.run([sys.executable, "-c", start + code], check=True)
    assert not report.exists()
