"""`python -m gridops.lab SEED [COUNT]`: run seeds, and shrink and show the first that breaks a rule.

`--talk` runs the world in which nobody plans. `--every-write SEED` runs one short story as often as it takes durable
steps, and lets each of them fail in each way. Runs are spread over all cores, or over `--jobs N`. `--line "SEED |
OPTIONS"` runs one run that is written down, `--until N` stops it before step N and shows what had happened. Exit code
0: every rule held; 1: one did not; 2: a wrong call. For developers: nothing of a real fleet is read or touched.
"""

from __future__ import annotations

import sys
from collections import Counter

from gridops.lab.options import Options, draw, draw_talk, read, written
from gridops.lab.run import Ran, run, shrunk
from gridops.lab.spread import cores, runs
from gridops.lab.strikes import every, short_story

USAGE = """usage: python -m gridops.lab [--jobs N] [--talk] SEED [COUNT]
       python -m gridops.lab [--jobs N] --every-write SEED
       python -m gridops.lab --line "SEED | NAME=NUMBER ..." [--until STEP]
"""
SHOWN = 60


def main(words: list[str]) -> int:
    """Run what the words ask for."""
    match words:
        case ["--line", line]:
            return _one(line, None)
        case ["--line", line, "--until", step] if step.isdigit():
            return _one(line, int(step))
        case ["--jobs", jobs, *rest] if jobs.isdigit() and int(jobs) and _seeded(rest):
            return _many(_drawn(rest), int(jobs))
        case rest if _seeded(rest):
            return _many(_drawn(rest), cores())
    sys.stderr.write(USAGE)
    return 2


def _seeded(words: list[str]) -> bool:
    if words[:1] == ["--every-write"]:
        return len(words) == 2 and words[1].isdigit()
    numbers = words[1:] if words[:1] == ["--talk"] else words
    return 1 <= len(numbers) <= 2 and all(word.isdigit() for word in numbers)


def _drawn(words: list[str]) -> list[Options]:
    """The options of each run that is asked for."""
    if words[0] == "--every-write":
        story = short_story(int(words[1]))
        return list(every(story, run(story).writes))
    talk = words[0] == "--talk"
    first, *count = (int(word) for word in words[talk:])
    return [(draw_talk if talk else draw)(seed) for seed in range(first, first + (count[0] if count else 1))]


def _one(line: str, until: int | None) -> int:
    try:
        options = read(line)
    except ValueError as error:
        sys.stderr.write(f"{error}\n{USAGE}")
        return 2
    ran = run(options, until)
    _show(ran)
    return 0 if ran.broken is None else 1


def _many(all_: list[Options], jobs: int) -> int:
    tally: Counter[str] = Counter()
    for ran in runs(all_, max(1, min(jobs, len(all_)))):
        tally.update(ran.tally)
        if ran.broken is not None:
            _show(run(shrunk(ran.options)))
            return 1
    seen = "".join(f"  {times:>6} {name}\n" for name, times in sorted(tally.items()))
    sys.stdout.write(f"{len(all_)} runs: every rule held. Seen:\n{seen}")
    return 0


def _show(ran: Ran) -> None:
    lines = "\n".join(ran.lines[-SHOWN:])
    verdict = ran.broken or "every rule held so far"
    sys.stdout.write(
        f"{lines}\n\n{written(ran.options)}\nfingerprint {ran.fingerprint}, {ran.steps} steps\n{verdict}\n"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
