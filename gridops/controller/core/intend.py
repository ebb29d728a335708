"""Whether a commit becomes the intent in force: it validates as a whole, or it changes nothing but what tightens.

The shell reads the commit; this judges it. Root documents in it must continue the known chain, or the whole commit is
refused: a commit that touches trust has to be valid in itself. Where the root demands signed commits, the line from
what is in force to this commit must have been followed (`trust.line`), or it is not believed: then nothing of it
counts but a stricter mode, because stopping needs no key. What was accepted before stays in force.
"""

from __future__ import annotations

from dataclasses import dataclass

from gridops.base.codes.commits import COMMIT_UNREADABLE, INTAKE_REFUSED
from gridops.base.codes.trust import KEY_EXPUNGED, ROOT_VERSION
from gridops.base.errors import Bug, Refusal
from gridops.base.ids import CommitId
from gridops.controller.core import rows as r
from gridops.controller.core.catalogs import FILE, in_force
from gridops.controller.core.state import Released, State
from gridops.model.fleet import Drain
from gridops.model.intent import Intent
from gridops.model.policy import ModePolicy
from gridops.trust.line import Line
from gridops.trust.root import RootChain, genesis, walk

PROBLEMS_KEPT = 10
INTAKE = INTAKE_REFUSED.code
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
    catalog: str | None = None
    """The signed catalog as it stands there."""
    catalog_before: str | None = None
    """The one of the commit that was in force, where no line was followed: a journal that is gone knows of none."""
    mode_gone: CommitId | None = None
    """The commit that took the mode file away or made it unreadable, where there is none; None where nobody can say."""
    line: Line | None = None
    """How it follows from the commit accepted before; None where nothing demanded that commits are signed."""


@dataclass(frozen=True, slots=True)
class Judged:
    rows: tuple[r.Row, ...]
    chain: RootChain | None
    """The chain with the commit's root documents; None when nothing was accepted."""


def judge_commit(state: State, chain: RootChain, found: Found) -> Judged:
    """Rows for a commit: accepted, or refused with what it tightens. The same commit twice is no news."""
    quiet = state.refused is None and state.off_line is None and not _unread(chain, state, found)
    if state.accepted is not None and state.accepted.commit == found.commit and quiet:
        return Judged((), None)
    problems, advanced, released = list(found.problems), None, None
    try:
        _believed(chain, state, found)
        advanced = _chained(chain, state, found.roots)
    except Refusal as refusal:
        where = "" if _off_line(chain, found) is not None else "policies/trust/root: "
        problems.insert(0, f"{where}{refusal}")
    try:
        passed = found.line.catalog.text if found.line is not None else found.catalog_before
        texts = found.roots[len(state.roots) :]
        released = in_force(state, chain, texts, found.catalog, passed) if advanced else None
    except Refusal as refusal:
        problems, advanced = [f"{FILE}: {refusal}", *(p for p in problems if not p.startswith(FILE))], None
    if advanced is not None and found.line is None and advanced.root.signed_commits:
        raise Bug(f"commit {found.commit} demands signed commits, and the line to it was not followed")
    again = _again(state, found.intent)
    problems += again
    if found.intent is None or advanced is None or again:
        refused = _refused(found, problems, _off_line(chain, found))
        return Judged((*_news(state, refused), *_mode_alarm(state, found), *_disbelieved(state, found, refused)), None)
    alarms = (*_mode_alarm(state, found), *_rewritten(state, found), *_cleared(state, INTAKE))
    trust = (*_roots(state, found), *_catalog(state, released))
    return Judged((*trust, _accepted(state, found), *alarms), advanced)


def _again(state: State, intent: Intent | None) -> list[str]:
    """Host keys of a commit that were expunged, or signed over from, by an earlier one."""
    return [
        f"fleet.d/keys/{key.host}.yaml: {KEY_EXPUNGED.code}: the key of {key.host} is one that {state.ended[key.key]} "
        "was expunged with or signed over from, and such a key never returns"
        for key in (intent.desired.keys if intent is not None else ())
        if not key.expunged and key.key in state.ended
    ]


def _unread(chain: RootChain, state: State, found: Found) -> bool:
    """A commit that was accepted by a program that knew of no catalogs is read once more."""
    known = state.catalog.text if state.catalog is not None else None
    return found.catalog not in (None, known) and chain.root.catalog != 0


def _catalog(state: State, released: Released | None) -> tuple[r.Row, ...]:
    if released == state.catalog:
        return ()
    return (r.CatalogTaken(version=released.version, text=released.text) if released else r.CatalogTaken(version=0),)


def judge_unread(state: State, chain: RootChain, found: Found) -> tuple[r.Row, ...]:
    """A commit that could not be read to the end is refused until it can be, with what it tightens."""
    if state.accepted is not None and state.accepted.commit == found.commit:
        return ()
    refused = _refused(found, list(found.problems), _off_line(chain, found))
    return (*_news(state, refused), *_mode_alarm(state, found))


def _believed(chain: RootChain, state: State, found: Found) -> None:
    """Where commits must be signed: the line was followed, from what is in force, to this one. Raises Refusal."""
    if found.line is not None and found.line.refusal is not None:
        raise found.line.refusal
    if not chain.root.signed_commits:
        return
    before = state.accepted.commit if state.accepted is not None else None
    line = found.line
    if line is None or line.tip != found.commit or (before is not None and line.base != before):
        raise Refusal(COMMIT_UNREADABLE.code, f"commit {found.commit[:12]} was not verified from what is in force")


def _off_line(chain: RootChain, found: Found) -> str | None:
    """The code by which a commit is not believed at all; None where it is, whatever is wrong with what it says."""
    if found.line is not None:
        return found.line.refusal.code if found.line.refusal is not None else None
    return COMMIT_UNREADABLE.code if chain.root.signed_commits else None


def chain_of(roots: tuple[str, ...]) -> RootChain:
    """The verified chain of root documents, root 1 first. Raises Refusal."""
    return walk(genesis(roots[0]), roots[1:])


def _chained(chain: RootChain, state: State, roots: tuple[str, ...]) -> RootChain:
    known = tuple(state.roots)
    if roots[: len(known)] != known:
        at = next((n for n, (a, b) in enumerate(zip(roots, known, strict=False), 1) if a != b), len(roots) + 1)
        raise Refusal(ROOT_VERSION.code, f"root {at} is missing or was replaced; root documents are only ever added")
    return walk(chain, roots[len(known) :], added=True)


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
        signers=found.line.signers or None if found.line is not None else None,
    )


def _refused(found: Found, problems: list[str], off_line: str | None) -> r.IntentRefused:
    """What nobody signed may only stop: its mode counts where it is tighter, and its drains, which move models, not."""
    return r.IntentRefused(
        commit=found.commit,
        subject=found.subject[:200],
        problems=tuple(text[:500] for text in problems[:PROBLEMS_KEPT]),
        count=len(problems),
        mode=found.mode,
        drains=found.drains if off_line is None else (),
        off_line=off_line,
    )


def _news(state: State, refused: r.IntentRefused) -> tuple[r.Row, ...]:
    """Nothing where the same commit was refused in the same words; another word of it may be said at the next look."""
    last = state.refused if refused.off_line is None else state.off_line
    if refused.off_line is None and state.off_line is not None:
        last = None  # the tip is believed again
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
        anew = found.line.anew if found.line is not None else None
        by = "the branch was rewritten or rewound" if anew is None else f"root {anew} lets the line begin anew"
        text = f"{found.commit[:8]} does not follow {state.accepted.commit[:8]}: {by}"
        return (r.AlarmRaised(key=REWRITTEN, text=text),)
    return _cleared(state, REWRITTEN)


def _disbelieved(state: State, found: Found, refused: r.IntentRefused) -> tuple[r.Row, ...]:
    """The alarm of a commit that is not believed; a commit that is, and says something wrong, ends it."""
    if refused.off_line is None:
        return _cleared(state, INTAKE)
    stays = f"{state.accepted.commit[:8]} stays in force" if state.accepted is not None else "nothing is in force"
    text = f"commit {found.commit[:12]} is not believed ({refused.problems[0]}): {stays}"
    standing = state.alarms.get(INTAKE)
    return () if standing is not None and standing.text == text else (r.AlarmRaised(key=INTAKE, text=text),)


def _cleared(state: State, key: str) -> tuple[r.Row, ...]:
    return (r.AlarmCleared(key=key),) if key in state.alarms else ()
