"""The controller's TLS certificate at the command line: making one, and whether what the root pins still holds.

`trust init` makes the first, `trust rotate tls` the next; which of them counts stands in the root document. Private
keys are written here and nowhere shown.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from gridops.base.errors import Failed
from gridops.base.units import render_instant, render_ms
from gridops.cli.doctor import Finding
from gridops.controller.statedir import NEXT_TLS_CERT, NEXT_TLS_KEY, TLS_CERT, TLS_KEY, StateDir
from gridops.disk.atomic import write_atomic
from gridops.disk.keyring import create_secret
from gridops.model.fleet import FleetSettings
from gridops.trust.root import RootChain
from gridops.trust.tls import TlsIdentity, self_signed, valid_until_ms

TLS_DAYS = 825
WARN_MS = 60 * 86_400_000
"""So long before a certificate ends `trust doctor` says so. Double: for months; half: a holiday may be longer."""


def new_identity(settings: FleetSettings, now_ms: int) -> TlsIdentity:
    """A certificate for the names by which agents reach the controller, and its key."""
    host = urlsplit(settings.controller).hostname if settings.controller else None
    return self_signed(tuple(n for n in (host, os.uname().nodename.lower()) if n), now_ms, TLS_DAYS)


def next_certificate(folder: Path, settings: FleetSettings, now_ms: int) -> str:
    """The controller's next certificate, made here with its key unless both wait already."""
    if not any((folder / name).exists() for name in (TLS_KEY, TLS_CERT)):
        raise Failed(
            f"{folder / TLS_KEY}: missing, so this is not the controller's state folder; nothing was changed",
            hints=("run it on the controller's machine, or name the folder: --state DIR",),
        )
    waiting = StateDir(folder).next_tls()
    if waiting is not None:
        return waiting
    made = new_identity(settings, now_ms)
    (folder / NEXT_TLS_KEY).unlink(missing_ok=True)  # of a try that was interrupted: no certificate ever named it
    create_secret(folder / NEXT_TLS_KEY, made.key_pem)
    write_atomic(folder / NEXT_TLS_CERT, made.cert_pem.encode())
    return made.cert_pem


def certificates(chain: RootChain) -> Iterator[Finding]:
    """What `trust doctor` finds about them."""
    pins, now_ms = chain.root.controller_tls, time.time_ns() // 1_000_000
    if len(pins) > 1:
        what = "the rotation of the controller's certificate is not finished"
        yield Finding("warn", what, "gridops trust rotate tls --finish")
    for pem in pins[-1:]:
        try:
            end_ms = valid_until_ms(pem)
        except ValueError:
            yield Finding(
                "fail", "what the root pins as the controller's certificate is none", "gridops trust rotate tls"
            )
            continue
        left, end = end_ms - now_ms, render_instant(end_ms)
        if left <= 0:
            what = f"the controller's certificate ended at {end}; hosts go by the pin, other programs refuse it"
            yield Finding("warn", what, "gridops trust rotate tls")
        elif left < WARN_MS:
            yield Finding("warn", f"the controller's certificate ends in {render_ms(left)}", "gridops trust rotate tls")
        else:
            yield Finding("ok", f"the controller's certificate is good until {end}")
