"""What the commands print: progress and messages to standard error, results to standard output."""

import logging
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

USAGE_ERROR, INTERRUPTED = 2, 130


def messages() -> Console:
    """The console for everything but results; in the other processes of a run it shows nothing."""
    # Written to a file, tables get room for sacreBLEU's signatures.
    terminal = sys.stderr.isatty()
    return Console(stderr=True, soft_wrap=not terminal, width=None if terminal else 120, quiet=not is_main_process())


class _OneLine(logging.Handler):
    """Our own warnings, one plain line each."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"{record.levelname.lower()}: {record.getMessage()}", file=sys.stderr)


def set_up_logging() -> None:
    """Show our own warnings; keep the libraries' chatter away."""
    root = logging.getLogger("transformer")
    root.handlers, root.propagate = [_OneLine()], False
    root.setLevel(logging.INFO if is_main_process() else logging.ERROR)
    for name in ("lightning.pytorch", "lightning.fabric", "datasets", "huggingface_hub", "httpx", "matplotlib"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", category=FutureWarning)


def is_main_process() -> bool:
    """Whether this is the only process of a run, or the first of a run on several devices; the others stay silent."""
    ranks = ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID")
    return all(os.environ.get(name, "0") == "0" for name in ranks)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """A ValueError is the user's business: print its sentence and end with status 2. Ctrl-C ends with status 130."""
    try:
        yield
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(USAGE_ERROR)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
