"""A controller's journal is replaced by an older copy of itself, and people make its memory anew (rules S5, S11).

In the talk `sender` does the same to a controller that plans nothing. Here it plans: what it decided since the copy was
made is forgotten, its hosts know better, and it says that it is older than they are, or goes on where nothing was lost.
People then rebuild as `gridops.controller.rebuild` does: from git, with the plan that was applied last, or without.
"""

from __future__ import annotations

from collections.abc import Callable

from gridops.base.errors import Failed, Refusal
from gridops.base.ids import ScopeName
from gridops.controller.core import rows as r
from gridops.controller.core.intend import chain_of, judge_commit
from gridops.controller.lineage import Base
from gridops.controller.service import Controller
from gridops.controller.writer import Writer
from gridops.lab.dice import Dice
from gridops.lab.disk import Authority, Journal, Platter
from gridops.lab.head import Head
from gridops.model.plan import Plan

NOTICE_MS = 6_000
"""So often people look whether the controller trusts its own memory."""


class Older:
    """Whoever puts the copy in the journal's place, and those who mend it."""

    def __init__(self, head: Head, dice: Dice, replaced: Callable[[bool], None]) -> None:
        self._head = head
        self._dice = dice
        self._replaced = replaced
        self._applied: dict[ScopeName, tuple[Plan, int]] = {}
        """What lay in git when the journal was lost."""

    def restore(self) -> None:
        """The disk is as it was some time ago, and a controller begins on it."""
        head, platter = self._head, self._head.platter
        rows, ends, controller = platter.rows, platter.ends, head.current
        if controller is None or controller.state.distrust is not None or not ends:
            return
        self._lies_in_git(controller)
        del ends[self._dice.between(max(1, len(ends) // 2), len(ends)) :]
        del rows[ends[-1] :]
        platter.saved = None
        platter.term = rows[-1][1]
        head.around.trace.add("controller", f"is restored to row {len(rows)}")
        head.around.trace.saw("a fleet was restored from an old journal")
        self._replaced(False)
        head.stop(RuntimeError("its machine was replaced"))

    def mend(self) -> None:
        """Where the controller says that it is older than the fleet, its memory is made anew."""
        controller = self._head.current
        if controller is not None and controller.state.distrust is not None:
            if not self._head.around.options.restore_every_ms:  # its journal is whole: somebody else spoke to hosts
                self._lies_in_git(controller)
            self._rebuild(controller)

    def _lies_in_git(self, controller: Controller) -> None:
        """Of some scopes people find the plan that was applied last."""
        for scope, book in controller.state.scopes.items():
            if book.target is not None and self._dice.happens(700_000):
                self._applied[scope] = book.target, controller.now()

    def _rebuild(self, controller: Controller) -> None:
        head, now_ms = self._head, controller.now()
        made = self._anew(now_ms)
        if made is None:
            return  # the newest commit does not do: people put it right, and come back
        platter = head.platter
        platter.rows[:], platter.ends[:], platter.term, platter.saved = made.rows, made.ends, made.term, None
        head.around.trace.saw("a fleet was rebuilt")
        self._replaced(True)
        head.stop(RuntimeError("people rebuild it"))

    def _anew(self, now_ms: int) -> Platter | None:
        """What `rebuild` writes; None while the newest commit is not to be believed."""
        head, kept = self._head, self._head.platter.accepted
        roots = kept.roots if kept is not None else head.around.roots()
        try:
            chain = chain_of(roots)
            commit = head.around.read(head.around.tip(), Base(kept.commit if kept is not None else None, chain, roots))
        except (Failed, Refusal):
            return None
        made = Platter()
        writer = Writer(Authority(Journal(made, lambda: None), chain.root.controller_epoch))
        rows: list[r.Row] = [r.Started(version="lab")]
        writer.record([*rows, *(r.RootTaken(version=n, text=text) for n, text in enumerate(roots, 1))], now_ms)
        writer.record(judge_commit(writer.state, chain, commit).rows, now_ms)
        if writer.state.accepted is None:
            return None
        for _, (plan, applied_ms) in sorted(self._applied.items()):
            writer.record((r.TargetRestored(plan=plan, applied_ms=applied_ms),), now_ms)
        writer.record((r.Rebuilt(plans=tuple(plan.id for plan, _ in self._applied.values())),), now_ms)
        writer.flush()
        return made
