"""One story with one failure in it, told and audited; many of them beside each other."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.builders.tiny_gguf import Made
from tests.crash.pair import AGENT, CONTROLLER, Pair, audit, founded, paired
from tests.crash.zygote import Nursery

AT_ONCE = 4
"""Stories beside each other: each waits more than it computes."""


@dataclass(frozen=True, slots=True)
class Case:
    """Which process fails, at which pass of which point, and how."""

    process: str
    point: str
    nth: int
    how: str

    def __str__(self) -> str:
        return f"{self.process} {self.point}:{self.nth}:{self.how}"


class Lives:
    """A place for stories. `listed` tells one without a failure, and counts the points that it passes."""

    def __init__(self, root: Path, model: Made, nursery: Nursery) -> None:
        self._root, self._model, self._nursery = root, model, nursery
        self._made = 0
        founded(root / "template", model)

    def pair(self) -> Pair:
        self._made += 1
        return paired(self._root / f"story-{self._made}", self._root / "template", self._model, self._nursery)

    def listed(self) -> dict[str, Counter[str]]:
        """How often each process passes each point."""
        pair = self.pair()
        files = {name: self._root / f"{name}.points" for name in (CONTROLLER, AGENT)}
        pair.armed = {name: f"list:{file}" for name, file in files.items()}
        try:
            pair.tell()
            assert pair.ends == [], "without a failure nothing ends by itself"
            audit(pair)
            return {name: Counter(file.read_text().split()) for name, file in files.items()}
        finally:
            pair.clear()

    def live(self, case: Case) -> tuple[bool, list[tuple[str, int]]]:
        """Tell the story with one failure; whether it came, and how processes ended. Raises AssertionError."""
        pair = self.pair()
        pair.armed[case.process] = f"{case.point}:{case.nth}:{case.how}"
        try:
            pair.tell()
            audit(pair)
            fired = pair.fired(case.process)
            if fired:
                ended_as_it_must(pair, case)
            return fired, pair.ends
        finally:
            pair.clear()

    def live_all(self, cases: Iterable[Case]) -> Iterator[tuple[Case, bool, str]]:
        """Each case, whether its failure came, and what was wrong (empty: nothing)."""
        with ThreadPoolExecutor(AT_ONCE) as threads:
            yield from threads.map(self._judged, list(cases))

    def _judged(self, case: Case) -> tuple[Case, bool, str]:
        try:
            return case, self.live(case)[0], ""
        except AssertionError as wrong:
            return case, True, f"{case}: {wrong}"


def ended_as_it_must(pair: Pair, case: Case) -> None:
    """Killed is killed; a controller whose journal fails stops and names it, and one whose note of it fails goes on;
    an agent serves on, whatever fails."""
    ends = [code for name, code in pair.ends if name == case.process]
    if case.how in ("kill", "killed"):
        assert ends[:1] == [-9], ends
    elif case.process == CONTROLLER and case.point.startswith("journal."):
        # Met while it was told to end, it may be gone by that word before it has said its own.
        assert ends in ([] if case.how == "enospc" else [1], [-signal.SIGTERM]), ends
        assert "journal.sqlite" in pair.words(CONTROLLER, 1_000)
    elif case.process == CONTROLLER:
        assert ends == [], "it goes by what it has, and writes the note at the next look"
        assert case.point.split(".", 2)[2] in pair.words(CONTROLLER, 30_000), "and says what it could not write"
    else:
        assert len(ends) <= 1, ends
    others = [name for name, code in pair.ends if name != case.process and code != -signal.SIGTERM]
    assert others == [], f"the other one ended too: {others}"
