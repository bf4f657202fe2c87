"""Run a command that may reach no other machine: ``python loopback_only.py FILE command ...``.

Every address outside of this machine that the process looks up, connects to, sends to or listens at is written to the
file, a line each, and refused.
"""

import sys
from typing import Any

HERE = {"127.0.0.1", "::1", "localhost", "", None}
WITH_ADDRESS = {"socket.connect", "socket.sendto", "socket.sendmsg", "socket.bind"}
WITH_NAME = {"socket.getaddrinfo", "socket.gethostbyname"}


def refuse_others(file: str) -> None:
    """From now on, in this process."""

    def check(event: str, arguments: tuple[Any, ...]) -> None:
        place: object = None
        if event in WITH_ADDRESS and isinstance(arguments[1], tuple):
            place = arguments[1][0]
        elif event in WITH_NAME:
            place = arguments[0].decode() if isinstance(arguments[0], bytes) else arguments[0]
        if place not in HERE:
            with open(file, "a", encoding="utf-8") as report:
                report.write(f"{event} {place}\n")
            raise PermissionError(f"{event} {place}")

    sys.addaudithook(check)


if __name__ == "__main__":
    report, sys.argv = sys.argv[1], sys.argv[2:]
    refuse_others(report)
    from transformer.cli.playground import main

    main()
