"""Lines answered by processes of their own: pipes, interruptions, terminals. Answers are upper case, without torch."""

import codecs
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from transformer.bundle import save_bundle
from transformer.inference.translator import Translator

pty = pytest.importorskip("pty", reason="needs terminals of its own")

PROGRAM = """
import sys, time
from pathlib import Path
from transformer.cli.console import one_line_errors
from transformer.cli.line_answers import Answer
from transformer.cli.session import answer_lines

def answer(lines, first):
    if "slow" in lines:
        time.sleep(30)
    if "wrong" in lines:
        raise ValueError(f"line {first}: wrong.")
    return [Answer(line.upper() * int(repeat), str(len(line))) for line in lines]

repeat, at_once, alignments, *files = sys.argv[1:]
with one_line_errors():
    answer_lines([Path(file) for file in files], answer, at_once=int(at_once), greeting="Hello.",
                 alignments=Path(alignments) if alignments else None)
"""


def _command(*files, at_once=3, repeat=1, alignments=""):
    return [sys.executable, "-c", PROGRAM, *map(str, (repeat, at_once, alignments, *files))]


def _start(*files, unbuffered="", **options):
    return subprocess.Popen(
        _command(*files, **options),
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_an_answer_does_not_wait_for_more_lines():
    with _start(at_once=1000) as process:
        for line in (b"one\n", b"two\nthree\n"):
            process.stdin.write(line)
            process.stdin.flush()
            assert b"".join(process.stdout.readline() for _ in range(line.count(b"\n"))) == line.upper()
        process.stdin.close()
        assert (process.stdout.read(), process.stderr.read(), process.wait()) == (b"", b"", 0)


@pytest.mark.parametrize("at_once", [1, 1000])
def test_ten_thousand_lines_through_a_pipe(tmp_path, at_once):
    lines = ["" if number % 9 == 0 else f"line {number} \r\x00\x1b\x0c\u2028\x85." for number in range(10_000)]
    content = "".join(f"{line}\n" for line in lines)
    command = _command(at_once=at_once, alignments=tmp_path / "alignments")
    done = subprocess.run(command, input=content.encode(), capture_output=True, check=True)
    assert done.stdout.decode() == content.upper()
    assert (tmp_path / "alignments").read_text() == "".join(f"{len(line)}\n" for line in lines)
    assert done.stderr == b""


def test_ctrl_c_leaves_the_lines_that_were_answered():
    with _start() as process:
        process.stdin.write(b"a\nb\nc\nslow\n")
        process.stdin.flush()
        first = [process.stdout.readline() for _ in range(3)]
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert (first, process.stdout.read()) == ([b"A\n", b"B\n", b"C\n"], b"")
        assert (process.stderr.read(), process.wait()) == (b"", 130)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_ctrl_c_while_lines_are_being_written_leaves_them_whole(tmp_path, unbuffered):
    """A pipe is full after 64 KiB, in the middle of the first line."""
    with _start(repeat=100_000, alignments=tmp_path / "alignments", unbuffered=unbuffered) as process:
        process.stdin.write(b"a\nb\nc\nd\n")
        process.stdin.flush()
        assert process.stdout.read(1) == b"A"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert process.poll() is None
        rest = process.stdout.read()
        assert process.wait() == 130
    assert [(line[:1], len(line)) for line in rest.splitlines(keepends=True)] == [
        (b"A", 100_000),
        (b"B", 100_001),
        (b"C", 100_001),
    ]
    assert rest.endswith(b"\n")
    assert (tmp_path / "alignments").read_bytes() == b"1\n1\n1\n"


def test_a_second_ctrl_c_does_not_wait():
    with _start(repeat=100_000) as process:
        process.stdin.write(b"a\nb\nc\n")
        process.stdin.flush()
        assert process.stdout.read(1) == b"A"
        for _ in range(2):
            time.sleep(0.3)
            process.send_signal(signal.SIGINT)
        process.stdout.close()
        assert process.wait(timeout=60) == 130


def test_the_command_ends_silently_where_nobody_reads(tmp_path):
    (tmp_path / "lines").write_bytes(b"line\n" * 100_000)
    with _start(tmp_path / "lines") as process:
        assert process.stdout.readline() == b"LINE\n"
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == (b"", 141)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is full")
def test_a_full_disk_is_one_line(tmp_path):
    (tmp_path / "lines").write_bytes(b"line\n")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(_command(tmp_path / "lines"), stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (
        2,
        b"error: the output cannot be written: No space left on device.\n",
    )


class Terminal:
    """What a program shows on a terminal of its own, and what is typed there."""

    def __init__(self, master):
        self._master, self.shown = master, ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()  # a read may end inside of a character

    def type(self, text):
        os.write(self._master, text.encode())

    def interrupt(self):
        """Ctrl-C, once the program waits: Python notices one that comes just before that at the next key only."""
        time.sleep(0.5)
        self.type("\x03")

    def wait_for(self, pattern, seconds=30):
        """Wait until the pattern is on the screen, after all that was waited for before; return what is before it."""
        end = time.monotonic() + seconds
        while (found := re.search(pattern, self.shown, re.DOTALL)) is None:
            ready = select.select([self._master], [], [], max(end - time.monotonic(), 0))[0]
            assert ready, f"{pattern!r} is not in {self.shown!r}"
            try:
                self.shown += self._decoder.decode(os.read(self._master, 4096))
            except OSError:  # the program has ended
                raise AssertionError(f"{pattern!r} is not in {self.shown!r}") from None
        before, self.shown = self.shown[: found.start()], self.shown[found.end() :]
        return before


@contextmanager
def _terminal(command, home, **streams) -> Iterator[tuple[Terminal, subprocess.Popen]]:
    master, slave = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "XDG_STATE_HOME": str(home), "LC_ALL": "C.UTF-8"}
    given = {"stdin": slave, "stdout": slave, "stderr": slave} | streams
    # The terminal has to be the one that the process belongs to, or Ctrl-C would reach nobody.
    own = "import fcntl, os, sys, termios; "
    own += f"fcntl.ioctl({slave}, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-c", own, *command], env=environment, start_new_session=True, pass_fds=[slave], **given
    )
    os.close(slave)
    try:
        yield Terminal(master), process
    finally:
        process.kill()
        process.wait()
        os.close(master)


def test_a_prompt_with_history(tmp_path):
    with _terminal(_command(), tmp_path) as (terminal, process):
        terminal.wait_for("Hello. Ctrl-D ends.\r\n")
        terminal.wait_for("> ")
        for line, answer in (("grün", "GRÜN"), ("", ""), ("a b", "A B")):
            terminal.type(f"{line}\n")
            terminal.wait_for(f"\n{answer}\r\n.*> ")
        terminal.type("\x1b[A\x1b[Dx\n")  # the line before, and an x before its last letter
        terminal.wait_for("\nA XB\r\n.*> ")
        terminal.type("wrong\n")
        terminal.wait_for("\nerror: line 5: wrong.\r\n.*> ")
        terminal.type("half")
        terminal.wait_for("half")
        terminal.interrupt()
        terminal.wait_for("given up; Ctrl-C once more, or Ctrl-D, ends.\r\n.*> ")
        terminal.type("\x1b[A\n")  # what was given up is no line
        terminal.wait_for("\nerror: line 5: wrong.\r\n.*> ")
        terminal.type("\x04")
        assert process.wait(timeout=60) == 0
    history = (tmp_path / "trueformer" / "history").read_text(encoding="utf-8").splitlines()
    assert [line for line in history if line != "_HiStOrY_V2_"] == ["grün", "a b", "a xb", "wrong"]
    with _terminal(_command(), tmp_path) as (terminal, process):
        terminal.wait_for("> ")
        terminal.type("\x1b[A\x1b[A\n")
        terminal.wait_for("\nA XB\r\n.*> ")
        terminal.type("slow\n")
        terminal.interrupt()
        terminal.wait_for("given up.*> ")
        terminal.interrupt()
        assert process.wait(timeout=60) == 130


def test_a_history_that_cannot_be_kept_is_no_error(tmp_path):
    (tmp_path / "trueformer").write_bytes(b"a file where the folder would be")
    with _terminal(_command(), tmp_path) as (terminal, process):
        terminal.wait_for("> ")
        terminal.type("a\n")
        terminal.wait_for("\nA\r\n.*> ")
        terminal.type("\x04")
        assert process.wait(timeout=60) == 0
        assert "rror" not in terminal.shown


def test_a_prompt_is_no_result(tmp_path):
    """Typed at a terminal, written to a file."""
    with (
        (tmp_path / "results").open("wb") as results,
        _terminal(_command(), tmp_path, stdout=results) as (terminal, process),
    ):
        for line in ("a", "b"):
            terminal.wait_for("> ")
            terminal.type(f"{line}\n")
        terminal.wait_for("> ")
        terminal.type("\x04")
        assert process.wait(timeout=60) == 0
    assert (tmp_path / "results").read_bytes() == b"A\nB\n"


def test_a_bar_for_files_beside_a_terminal(tmp_path):
    (tmp_path / "lines").write_bytes(b"a\n" * 7 + b"b")
    with (tmp_path / "results").open("wb") as results:
        command = _command(tmp_path / "lines", tmp_path / "lines", at_once=2)
        with _terminal(command, tmp_path, stdout=results) as (terminal, process):
            terminal.wait_for("16/16.*lines.*left")
            assert process.wait(timeout=60) == 0
        assert (tmp_path / "results").read_bytes() == (b"A\n" * 7 + b"B\n") * 2
        with _terminal(command, tmp_path) as (terminal, process):  # both would be on the same screen
            terminal.wait_for("A\r\n" * 7 + "B\r\n" + "A\r\n" * 7 + "B\r\n")
            assert process.wait(timeout=60) == 0
            assert "lines" not in terminal.shown


def test_translations_at_a_terminal(tiny_bundle, tmp_path):
    folder = tmp_path / "bundle"
    save_bundle(folder, tiny_bundle("encoder_decoder"), "card")
    command = [sys.executable, "-m", "transformer.cli.translate", str(folder), "--device", "cpu"]
    expected = Translator.load(folder).translate(["ein hund"])[0]
    assert expected
    with _terminal(command, tmp_path) as (terminal, process):
        terminal.wait_for("Each line is translated by .*> ", seconds=60)
        terminal.type("ein hund\n")
        terminal.wait_for(f"ein hund\r\n.*{re.escape(expected)}\r\n.*> ")
        terminal.type("x" * 30 + "\n")
        terminal.wait_for("warning: line 2 has 30 tokens and is cut to the model's 23.\r\n.*> ")
        terminal.type("\x04")
        assert process.wait(timeout=60) == 0
