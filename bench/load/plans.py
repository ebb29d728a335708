"""What a plan costs on the controller's own way: from the snapshot of what hosts said to the row that sets a target.

In one process, without a listener: the fleet's hosts speak to the controller directly, then one look at whether a plan
is due is measured, with everything in it: the fingerprint, the inputs, the planner, the checker, and what follows.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

from bench.load.site import Crowded
from gridops.controller.clock import MachineClock
from tests.controller.fleet import DEFAULT, Desk, run

CASES = ((5, 2, "the first of a process"), (50, 20, "< 100 ms"), (500, 200, "< 2000 ms"), (1_000, 20, ""))
"""Hosts, models, and what is wanted."""


def plans() -> None:
    """Each case: the first plan, the pass that queues its commands, and a look when nothing has changed."""
    print("CPU ms of a plan on the controller's own way: first plan, its pass, an idle look, an idle pass")
    for hosts, models, wanted in CASES:
        folder = Path(tempfile.mkdtemp(prefix="load-"))
        try:
            costs = _costs(folder, hosts, models)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        shown = "  ".join(f"{1000 * cost:8.1f}" for cost in costs)
        print(f"  {f'{hosts} hosts, {models} models':44} {shown:44} {wanted}", flush=True)


def _costs(folder: Path, hosts: int, models: int) -> list[float]:
    fleet = Crowded(folder, hosts, models)
    fleet.found()
    desk = Desk(fleet, clock=MachineClock())  # type: ignore[arg-type]
    for _ in range(2):
        desk.beat()
    fleet.want(max(1, hosts // models))
    desk.look()
    costs = []
    for look in (True, False):
        for step in (_consider, _reconcile):
            began = time.process_time()
            step(desk)
            costs.append(time.process_time() - began)
        for _ in range(8 if look else 0):
            desk.beat()
            desk.pass_()
    desk.controller.close()
    return costs


def _consider(desk: Desk) -> None:
    run(desk.planning.consider(DEFAULT))


def _reconcile(desk: Desk) -> None:
    desk.controller.reconcile(DEFAULT)
