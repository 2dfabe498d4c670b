"""Ports for processes that a measurement starts."""

import socket


def free_port() -> int:
    """A port of the loopback address that nobody listens on now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
