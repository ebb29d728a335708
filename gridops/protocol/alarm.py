"""An alarm: something that must not be, found while reading what the other side said. A value, never an exception.

Made by `outbox`, `receipts` and `fresh`; the shells show it until it is resolved and journal it. Raising instead would
let one odd message stop the reading of the next ones.
"""

from __future__ import annotations

from gridops.base.codes import Code
from gridops.base.ids import HostId
from gridops.base.record import record


@record
class Alarm:
    """`code` is registered in `base.codes`; `detail` is one sentence with the numbers."""

    code: str
    host: HostId
    detail: str


def alarm(code: Code, host: HostId, detail: str) -> Alarm:
    return Alarm(code=code.code, host=host, detail=detail)
