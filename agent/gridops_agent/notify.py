"""Tells systemd how the service is doing (sd_notify). Silent where nobody listens; never waits for who listens."""

from __future__ import annotations

import os
import socket


def notify(text: str) -> None:
    """Send one message, such as `READY=1` or `STATUS=...`. One that would have to wait is dropped."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        try:
            sender.connect("\0" + address[1:] if address.startswith("@") else address)
            sender.sendall(text.encode())
        except OSError:
            return


def watchdog_s() -> float | None:
    """How long this process may be silent before systemd ends it; None when nobody watches it."""
    watched = os.environ.get("WATCHDOG_PID", "")
    span = os.environ.get("WATCHDOG_USEC", "")
    if not span.isdigit() or int(span) == 0 or (watched and watched != str(os.getpid())):
        return None
    return int(span) / 1_000_000
