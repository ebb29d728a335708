"""Many runs over the cores of this machine, told in the order of their seeds: what a batch says is what one core says.

A run is one thread and shares nothing with another, so a process takes the next one as soon as it is free. Called by
`python -m gridops.lab`; a run that broke a rule is run once more by whoever wants to see it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from itertools import islice

from gridops.lab.options import Options
from gridops.lab.run import Ran, run

AHEAD = 8
"""So many runs of each process are given out before the first of them is told."""


def cores() -> int:
    """How many processes can run side by side."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def runs(all_: Iterable[Options], jobs: int) -> Generator[Ran, None, None]:
    """How each went, without its lines. Whoever stops asking stops the rest."""
    if jobs == 1:
        yield from map(_brief, all_)
        return
    left = iter(all_)
    workers = ProcessPoolExecutor(jobs)
    try:
        given = deque(workers.submit(_brief, options) for options in islice(left, jobs * AHEAD))
        while given:
            first: Future[Ran] = given.popleft()
            yield first.result()
            given.extend(workers.submit(_brief, options) for options in islice(left, 1))
    finally:
        workers.shutdown(cancel_futures=True)


def _brief(options: Options) -> Ran:
    """Thousands of lines are written to be looked at, and in a batch nobody does."""
    return replace(run(options), lines=())
