"""`python -m gridops.lab SEED [COUNT]`: run seeds, and shrink and show the first that breaks a rule.

`--talk` runs the world in which nobody plans. `--every-write SEED` runs one short story as often as it takes durable
steps, and lets each of them fail in each way. `--line "SEED | OPTIONS"` runs one run that is written down, `--until N`
stops it before step N and shows what had happened. Exit code 0: every rule held; 1: one did not; 2: a wrong call. For
developers: nothing of a real fleet is read or touched.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable

from gridops.lab.options import Options, draw, draw_talk, read, written
from gridops.lab.run import Ran, run, shrunk
from gridops.lab.strikes import every, short_story

USAGE = """usage: python -m gridops.lab [--talk] SEED [COUNT]
       python -m gridops.lab --every-write SEED
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
        case ["--every-write", seed] if seed.isdigit():
            story = short_story(int(seed))
            return _many(every(story, run(story).writes))
        case ["--talk", *rest] if _numbers(rest):
            return _many(draw_talk(seed) for seed in _seeds(rest))
        case rest if _numbers(rest):
            return _many(draw(seed) for seed in _seeds(rest))
    sys.stderr.write(USAGE)
    return 2


def _numbers(words: list[str]) -> bool:
    return 1 <= len(words) <= 2 and all(word.isdigit() for word in words)


def _seeds(words: list[str]) -> range:
    first, count = int(words[0]), int(words[1]) if len(words) == 2 else 1
    return range(first, first + count)


def _one(line: str, until: int | None) -> int:
    try:
        options = read(line)
    except ValueError as error:
        sys.stderr.write(f"{error}\n{USAGE}")
        return 2
    ran = run(options, until)
    _show(ran)
    return 0 if ran.broken is None else 1


def _many(all_: Iterable[Options]) -> int:
    tally: Counter[str] = Counter()
    count = 0
    for options in all_:
        count += 1
        ran = run(options)
        tally.update(ran.tally)
        if ran.broken is not None:
            _show(run(shrunk(options)))
            return 1
    seen = "".join(f"  {times:>6} {name}\n" for name, times in sorted(tally.items()))
    sys.stdout.write(f"{count} runs: every rule held. Seen:\n{seen}")
    return 0


def _show(ran: Ran) -> None:
    lines = "\n".join(ran.lines[-SHOWN:])
    verdict = ran.broken or "every rule held so far"
    sys.stdout.write(
        f"{lines}\n\n{written(ran.options)}\nfingerprint {ran.fingerprint}, {ran.steps} steps\n{verdict}\n"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
