"""Tells systemd how the service is doing (sd_notify). Silent where nobody listens."""

from __future__ import annotations

import os
import socket


def notify(text: str) -> None:
    """Send one message, such as `READY=1` or `STATUS=...`."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        try:
            sender.connect("\0" + address[1:] if address.startswith("@") else address)
            sender.sendall(text.encode())
        except OSError:
            return
