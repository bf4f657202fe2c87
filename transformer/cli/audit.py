"""``transformer-audit``: behavioural checks of a model, trained or not."""

import json
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from transformer.cli.console import one_line_errors, set_up_logging
from transformer.cli.line_options import Threads, set_threads

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

FAILED = 1
FILE_WIDTH = 140  # of a table that is not shown at a terminal


@app.command()
def audit(
    target: Annotated[
        list[str],
        typer.Argument(
            help="A bundle, a run's folder (its last checkpoint), a checkpoint of a run, or settings of a training run "
            "for new weights: experiment=phrases_en_de model.num_encoder_layers=2.",
            show_default=False,
        ),
    ],
    output: Annotated[
        Literal["text", "json"], typer.Option(help="text: a table; json: one object with all numbers.")
    ] = "text",
    quick: Annotated[
        bool, typer.Option("--quick", help="Only the checks that a training run starts with, on short inputs.")
    ] = False,
    config_dir: Annotated[
        Path | None, typer.Option(help="Folder of YAML files of your own, beside the settings.", show_default=False)
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "cpu",
    threads: Threads = None,
) -> None:
    """Check what a model's outputs do when its inputs change.

    Later tokens, padding, the rest of the batch and the cache must not change an output; the source, earlier tokens and
    all parameters must. Ends with status 1 if a check fails.
    """
    with one_line_errors():
        set_threads(threads)

        # Imported late: torch takes seconds, and --help needs none.
        from transformer.audit.run import audit as run_audit
        from transformer.cli.audit_tables import print_report
        from transformer.cli.audit_target import find_target
        from transformer.cli.device import choose_device

        set_up_logging()
        where = choose_device(device)
        if where == "mps":
            raise ValueError("the audit needs float64, which mps does not have; use --device cpu.")
        found = find_target(target, config_dir)
        report = run_audit(found.model, quick=quick, device=where)
        if output == "json":
            plain = report.to_plain()
            plain = {"target": found.name, **plain, "notes": [*found.notes, *plain["notes"]]}
            print(json.dumps(plain, ensure_ascii=False, allow_nan=False))
        else:
            console = Console(width=None if sys.stdout.isatty() else FILE_WIDTH, highlight=False)
            print_report(found.name, report, list(found.notes), console)
    if not report.passed:
        sys.exit(FAILED)


def main() -> None:
    """Entry point."""
    app()


if __name__ == "__main__":
    main()
