"""Whether a commit becomes the intent in force: it validates as a whole, or it changes nothing but what tightens.

The shell reads the commit; this judges it. Root documents in it must continue the known chain, or the whole commit is
refused: a commit that touches trust has to be valid in itself. What was accepted before stays in force.
"""

from __future__ import annotations

from dataclasses import dataclass

from gridops.base.codes.trust import ROOT_VERSION
from gridops.base.errors import Refusal
from gridops.base.ids import CommitId
from gridops.controller.core import rows as r
from gridops.controller.core.state import State
from gridops.model.fleet import Drain
from gridops.model.intent import Intent
from gridops.model.policy import ModePolicy
from gridops.trust.root import RootChain, genesis, walk

PROBLEMS_KEPT = 10
REWRITTEN = "history_rewritten"
MODE = "mode_file"


@dataclass(frozen=True, slots=True)
class Found:
    """One commit as it was read."""

    commit: CommitId
    subject: str
    author: str
    intent: Intent | None
    problems: tuple[str, ...]
    """Errors, most important first; empty when `intent` is there."""
    mode: ModePolicy | None
    """The mode file by itself; None when it is missing or cannot be read."""
    drains: tuple[Drain, ...]
    roots: tuple[str, ...]
    """Texts of the root documents from 1 on, in order, as far as they are there."""
    descends: bool = True
    """It follows the commit accepted before."""
    mode_gone: CommitId | None = None
    """The commit that took the mode file away or made it unreadable, where there is none; None where nobody can say."""


@dataclass(frozen=True, slots=True)
class Judged:
    rows: tuple[r.Row, ...]
    chain: RootChain | None
    """The chain with the commit's root documents; None when nothing was accepted."""


def judge_commit(state: State, chain: RootChain, found: Found) -> Judged:
    """Rows for a commit: accepted, or refused with what it tightens. The same commit twice is no news."""
    if state.accepted is not None and state.accepted.commit == found.commit and state.refused is None:
        return Judged((), None)
    problems, advanced = list(found.problems), None
    try:
        advanced = _chained(chain, state, found.roots)
    except Refusal as refusal:
        problems.insert(0, f"policies/trust/root: {refusal}")
    if found.intent is None or advanced is None:
        refused = _refused(found, problems)
        return Judged((*_news(state, refused), *_mode_alarm(state, found)), None)
    return Judged(
        (*_roots(state, found), _accepted(state, found), *_mode_alarm(state, found), *_rewritten(state, found)),
        advanced,
    )


def judge_unread(state: State, found: Found) -> tuple[r.Row, ...]:
    """A commit that could not be read to the end is refused until it can be, with what it tightens."""
    if state.accepted is not None and state.accepted.commit == found.commit:
        return ()
    return (*_news(state, _refused(found, list(found.problems))), *_mode_alarm(state, found))


def chain_of(roots: tuple[str, ...]) -> RootChain:
    """The verified chain of root documents, root 1 first. Raises Refusal."""
    return walk(genesis(roots[0]), roots[1:])


def _chained(chain: RootChain, state: State, roots: tuple[str, ...]) -> RootChain:
    known = tuple(state.roots)
    if roots[: len(known)] != known:
        at = next((n for n, (a, b) in enumerate(zip(roots, known, strict=False), 1) if a != b), len(roots) + 1)
        raise Refusal(ROOT_VERSION.code, f"root {at} is missing or was replaced; root documents are only ever added")
    return walk(chain, roots[len(known) :])


def _roots(state: State, found: Found) -> tuple[r.Row, ...]:
    known = len(state.roots)
    return tuple(r.RootTaken(version=known + n, text=text) for n, text in enumerate(found.roots[known:], 1))


def _accepted(state: State, found: Found) -> r.IntentAccepted:
    assert found.intent is not None  # judge_commit asked before
    same = state.accepted is not None and state.accepted.desired == found.intent.desired
    return r.IntentAccepted(
        commit=found.commit,
        subject=found.subject[:200],
        desired=None if same else found.intent.desired,
        mode_missing=found.mode is None,
    )


def _refused(found: Found, problems: list[str]) -> r.IntentRefused:
    return r.IntentRefused(
        commit=found.commit,
        subject=found.subject[:200],
        problems=tuple(text[:500] for text in problems[:PROBLEMS_KEPT]),
        count=len(problems),
        mode=found.mode,
        drains=found.drains,
    )


def _news(state: State, refused: r.IntentRefused) -> tuple[r.Row, ...]:
    """Nothing where the same commit was refused in the same words; another word of it may be said at the next look."""
    last = state.refused
    same = last is not None and (last.commit, last.subject, last.problems, last.count, last.mode, last.drains) == (
        (refused.commit, refused.subject, refused.problems, refused.count, refused.mode, refused.drains)
    )
    return () if same else (refused,)


def _mode_alarm(state: State, found: Found) -> tuple[r.Row, ...]:
    if found.mode is None:
        standing = state.alarms.get(MODE)
        if standing is not None and found.mode_gone is None:
            return ()
        since = (found.mode_gone or found.commit)[:8]
        text = f"policies/mode.yaml is missing or unreadable since {since}: nothing is looser than recommend"
        # A file that was unreadable first and is gone now is another fault: the alarm names who caused it.
        return (r.AlarmRaised(key=MODE, text=text),) if standing is None or standing.text != text else ()
    return (r.AlarmCleared(key=MODE),) if MODE in state.alarms else ()


def _rewritten(state: State, found: Found) -> tuple[r.Row, ...]:
    if not found.descends and state.accepted is not None:
        text = f"{found.commit[:8]} does not follow {state.accepted.commit[:8]}: the branch was rewritten or rewound"
        return (r.AlarmRaised(key=REWRITTEN, text=text),)
    return (r.AlarmCleared(key=REWRITTEN),) if REWRITTEN in state.alarms else ()
