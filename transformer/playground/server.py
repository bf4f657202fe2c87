"""Serves the page: from this machine alone unless asked otherwise, and without any other."""

import ipaddress
import os
import socket
from collections.abc import Callable

import gradio as gr
import uvicorn
from fastapi import FastAPI
from fastapi.middleware.trustedhost import TrustedHostMiddleware

from transformer.playground.gate import Gate
from transformer.playground.style import CSS, theme

MAX_WAITING = 16
MAX_VISITORS = 64  # whose attention maps are kept in memory, the latest ones


def is_local(host: str) -> bool:
    """Whether only programs of this machine reach a server at the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen(host: str, port: int) -> socket.socket:
    """Take the port; 0 takes a free one.

    Raises:
        ValueError: the address is not this machine's, or the port is taken or not permitted.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)  # its own text says the address again
        raise ValueError(
            f"the page cannot be served at {host}, port {port}: {reason}. Choose others with --host and --port."
        ) from error


def address(listening: socket.socket) -> str:
    """Where a browser finds the page."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def application(page: gr.Blocks, *, local: bool) -> Gate:
    """The page as an ASGI application.

    Args:
        page: what to serve.
        local: answer only requests to this machine's own names, so that no other web site can reach the page through
            a name of its own that leads here.
    """
    # The pages about an interface, which FastAPI would serve, load scripts from elsewhere.
    silent = {"docs_url": None, "redoc_url": None, "openapi_url": None}
    outer = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    if local:
        outer.add_middleware(TrustedHostMiddleware, allowed_hosts=["localhost", "127.0.0.1", "[::1]"])
    page.state_session_capacity = MAX_VISITORS
    page.queue(max_size=MAX_WAITING, default_concurrency_limit=1)
    mounted = gr.mount_gradio_app(
        outer,
        page,
        path="/",
        footer_links=[],
        run_history=False,
        app_kwargs=silent,
        ssr_mode=False,
        mcp_server=False,
        enable_monitoring=False,
        theme=theme(),
        css=CSS,
    )
    return Gate(mounted)


def serve(page: gr.Blocks, listening: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until interrupted.

    Args:
        page: what to serve.
        listening: from :func:`listen`.
        ready: called when requests are answered.

    Raises:
        KeyboardInterrupt: at Ctrl-C, when the server has stopped.
    """
    local = is_local(listening.getsockname()[0])
    # Browsers keep a connection open as long as the page is; the end need not wait for them.
    config = uvicorn.Config(application(page, local=local), log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    ready()
    server.run(sockets=[listening])
