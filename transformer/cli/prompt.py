"""A conversation at a terminal: a line is typed, its answer comes at once."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import platformdirs

PROMPT, HISTORY_LINES = "> ", 1000


def converse(answer: Callable[[str, int], None], greeting: str) -> None:
    """Answer typed lines until Ctrl-D. Ctrl-C gives up the present line, and ends the command if repeated.

    A line that is refused is no end either: what is wrong with it is said.

    Args:
        answer: gets a line and its number and writes what it has to say.
        greeting: shown first, on standard error.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed twice.
    """
    print(f"{greeting} Ctrl-D ends.", file=sys.stderr)
    given_up, number = False, 1
    with _line_editing() as ask:
        while True:
            try:
                typed = ask()
                given_up = False
                if typed is None:
                    print(file=sys.stderr)
                    return
                for line in typed.split("\n"):  # several, if they were pasted
                    answer(line, number)
                    number += 1
            except KeyboardInterrupt:
                print(file=sys.stderr)
                if given_up:
                    raise
                print("given up; Ctrl-C once more, or Ctrl-D, ends.", file=sys.stderr)
                given_up = True
            except UnicodeDecodeError as error:
                print(f"error: the line must be UTF-8, but is not: {error.reason}.", file=sys.stderr)
            except ValueError as error:
                print(f"error: {error}", file=sys.stderr)


@contextlib.contextmanager
def _line_editing() -> Iterator[Callable[[], str | None]]:
    """What asks for a line, None at the end; with the history of earlier conversations where there is one."""
    if not sys.stdout.isatty():  # Python would write the prompt into the results
        yield _ask_plainly
        return
    try:
        import readline
    except ImportError:  # Windows has editing of its own
        yield _ask
        return
    readline.parse_and_bind("bind ^I ed-insert" if "libedit" in (readline.__doc__ or "") else "tab: tab-insert")
    history = history_file()
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    try:
        yield _ask
    finally:
        with contextlib.suppress(OSError):
            history.parent.mkdir(parents=True, exist_ok=True)
            readline.set_history_length(HISTORY_LINES)
            readline.write_history_file(history)


def history_file() -> Path:
    """Where typed lines are kept, the last 1000."""
    return Path(platformdirs.user_state_dir("trueformer", appauthor=False)) / "history"


def _ask() -> str | None:
    try:
        return _checked(input(PROMPT))
    except EOFError:
        return None


def _ask_plainly() -> str | None:
    print(PROMPT, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    return _checked(line.removesuffix("\n")) if line else None


def _checked(line: str) -> str:
    """The line, which the locale may have read as something else than UTF-8."""
    return line.encode("utf-8", "surrogateescape").decode("utf-8")
