"""The controller under load, question by question. Prints, never judges.

python -m bench.load beats               100 heartbeats a second of 1,000 hosts
python -m bench.load stress              600 a second for a minute: loss and growth
python -m bench.load receipts            500 receipts at once
python -m bench.load commands            from command to receipt, hosts polling as they are told
python -m bench.load all                 all of these on one fleet, and the failover

--hosts N --rate N --seconds N --models N      other sizes
--profile FILE                                 cProfile of the controller's process, written when it ends
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.load import stages
from bench.load.plans import plans
from bench.load.site import Crowded, Process

STAGES = {
    "beats": (stages.beats,),
    "stress": (stages.stress,),
    "commands": (stages.commands,),
    "receipts": (stages.receipts,),
    "failover": (stages.failover,),
    "start": (stages.start,),
    "all": (stages.commands, stages.beats, stages.stress, stages.receipts, stages.failover, stages.start),
}


async def run(chosen: argparse.Namespace, folder: Path) -> None:
    began = time.monotonic()
    fleet = Crowded(folder, chosen.hosts, chosen.models, every=chosen.every)
    fleet.found()
    site = stages.Site(fleet, Process(fleet, chosen.profile, chosen.code), chosen)
    site.process.start()
    try:
        print(f"{chosen.hosts} hosts, {chosen.models} models; ready to begin after {time.monotonic() - began:.1f} s")
        await stages.arrive(site)
        for stage in STAGES[chosen.stage]:
            await stage(site)
    finally:
        await site.crowd.leave()
        if site.process.process is not None and site.process.process.poll() is None:
            site.process.end()
        if chosen.log:
            sys.stderr.write(site.process.log.read_text())


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="bench.load", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stage", choices=[*STAGES, "plan"])
    parser.add_argument("--hosts", type=int, default=1_000)
    parser.add_argument("--models", type=int, default=20)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--every", default="10s")
    parser.add_argument("--profile", type=Path)
    parser.add_argument("--code", type=Path, help="a checkout whose controller is measured instead of this one's")
    parser.add_argument("--log", action="store_true", help="the controller's log at the end, on stderr")
    chosen = parser.parse_args(arguments)
    if chosen.stage == "plan":
        plans()
        return
    folder = Path(tempfile.mkdtemp(prefix="load-"))
    try:
        asyncio.run(run(chosen, folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"load average at the end: {', '.join(f'{part:.1f}' for part in os.getloadavg())}")


if __name__ == "__main__":
    main(sys.argv[1:])
