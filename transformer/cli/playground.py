"""``transformer-playground``: a local web page to look at attention and to try a bundle."""

import importlib.util
import os
from pathlib import Path
from typing import Annotated

import typer

from transformer.cli.console import one_line_errors, set_up_logging
from transformer.cli.line_options import Device, Threads, load_for, set_threads

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def playground(
    bundle: Annotated[
        Path | None,
        typer.Argument(help="Folder of a trained model, to try it; none: only the five steps.", show_default=False),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to serve at; any other than this machine's own lets others use the page.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to serve at; 0 takes a free one.")] = 7860,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Serve a web page: attention in five steps, with numbers of your own, and what a trained model makes of your text.

    The address goes to standard output; Ctrl-C ends it. Nothing is loaded from or sent to the internet.
    """
    with one_line_errors():
        if importlib.util.find_spec("gradio") is None:
            raise ValueError(
                "the playground needs Gradio, which comes with the extra `playground`; in a clone: "
                "pip install -e '.[playground]'."
            )
        set_threads(threads)
        # Gradio asks for its newest version and reports its use unless told not to before it is imported.
        os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
        os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"

        # Imported late: these take seconds, and --help needs none.
        from transformer.cli.device import choose_device
        from transformer.playground.app import build_page
        from transformer.playground.server import address, is_local, listen, serve
        from transformer.playground.trial import Trial

        set_up_logging()
        where = choose_device(device)
        trial = None if bundle is None else Trial(load_for(bundle, "float32", where), where)
        with listen(host, port) as listening:
            page = build_page(trial)
            if not is_local(host):
                typer.echo(
                    f"warning: {host} is not only this machine's address: everyone who reaches it can use this page, "
                    "without a password.",
                    err=True,
                )
            serve(page, listening, lambda: typer.echo(address(listening)))


def main() -> None:
    """Entry point."""
    app()


if __name__ == "__main__":
    main()
