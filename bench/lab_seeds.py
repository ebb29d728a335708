"""Runs seeds of the lab and prints one line of JSON a seed: CPU seconds, fingerprint of the trace, what broke.

`bench.lab` starts it, once for each checkout and process: by its path, so that the lab that is measured is the one that
PYTHONPATH names. The first two runs are not counted: they pay for imports and caches.
"""

from __future__ import annotations

import json
import sys
import time

from gridops.lab.options import draw, draw_talk
from gridops.lab.run import run


def main(words: list[str]) -> None:
    world, first, count = words[0], int(words[1]), int(words[2])
    drawn = draw_talk if world == "talk" else draw
    for _ in range(2):
        run(drawn(first))
    print(json.dumps("warm"), flush=True)
    sys.stdin.readline()  # processes that are measured together begin together
    for seed in range(first, first + count):
        options, began = drawn(seed), time.process_time()
        ran = run(options)
        print(json.dumps([time.process_time() - began, ran.fingerprint, ran.steps, ran.broken]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
