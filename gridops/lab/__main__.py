"""`python -m gridops.lab SEED [COUNT]`: run seeds, and shrink and show the first that breaks a rule.

Exit code 0: every rule held; 1: one did not. For developers: nothing of a real fleet is read or touched.
"""

from __future__ import annotations

import sys
from collections import Counter

from gridops.lab.options import draw
from gridops.lab.run import Ran, run, shrunk

USAGE = "usage: python -m gridops.lab SEED [COUNT]"
SHOWN = 60


def main(words: list[str]) -> int:
    """Run `COUNT` seeds from `SEED` on."""
    if not 1 <= len(words) <= 2 or not all(word.isdigit() for word in words):
        sys.stderr.write(f"{USAGE}\n")
        return 2
    first, count = int(words[0]), int(words[1]) if len(words) == 2 else 1
    tally: Counter[str] = Counter()
    for seed in range(first, first + count):
        ran = run(draw(seed))
        tally.update(ran.tally)
        if ran.broken is not None:
            _show(run(shrunk(ran.options)))
            return 1
    seen = "".join(f"  {times:>6} {name}\n" for name, times in sorted(tally.items()))
    sys.stdout.write(f"{count} seeds from {first} on: every rule held. Seen:\n{seen}")
    return 0


def _show(ran: Ran) -> None:
    lines = "\n".join(ran.lines[-SHOWN:])
    sys.stdout.write(f"{lines}\n\n{ran.options}\nfingerprint {ran.fingerprint}, {ran.steps} steps\n{ran.broken}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
