"""A port for a server that starts later, in a process of its own."""

import random
import socket

BELOW_EPHEMERAL = range(20_000, 32_000)
"""Linux gives outgoing connections ports from 32,768 on: of these, nothing takes one before its server does."""


def free_port() -> int:
    """A port of the loopback interface that nobody listens on now."""
    for port in random.SystemRandom().sample(BELOW_EPHEMERAL, 100):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OSError("a hundred ports were tried, and all are in use")
