"""Somebody who may push, and a thief with the controller's key: whatever stood once is offered again (rule S12).

Neither holds a key of people beyond what people sign by mistake: an old branch of theirs, an old tree merged. What
they do lasts until people push again. `acceptance` sees to it that nothing of it was believed.
"""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import replace
from typing import TYPE_CHECKING

from gridops.base.ids import CommitId, PersonName
from gridops.base.record import from_bytes, to_bytes
from gridops.lab.agenda import EPOCH_MS
from gridops.lab.dice import Dice
from gridops.lab.forge import Forge
from gridops.lab.people import CATALOG, Keys, Repository
from gridops.lab.trace import Trace
from gridops.protocol.messages import Directive
from gridops.trust.amend import added
from gridops.trust.envelope import seal
from gridops.trust.found import renewed_root
from gridops.trust.keys import PersonSigner
from gridops.trust.root import TRUST, RoleName, genesis, seal_root, walk

if TYPE_CHECKING:
    from gridops.lab.stage import Stage

JON = PersonName("jon")
STRANGER = PersonSigner.from_seed(b"s" * 32)
RIGHT_MS = (5_000, 40_000)
"""So soon people notice, and put the branch right."""


class Pusher:
    """Who may push."""

    def __init__(self, repository: Repository, forge: Forge, keys: Keys, stage: Stage) -> None:
        self._repository = repository
        self._forge = forge
        self._keys = keys
        self._stage = stage
        self._agenda, self._trace = stage.agenda, stage.trace
        self._dice = Dice(repository.options.seed, "pusher")
        self._stolen = Dice(repository.options.seed, "stolen roots")

    def push(self) -> None:
        """One wrong thing, until people put it right."""
        forge, line = self._forge, self._repository.line
        files = forge.files(line[-1])
        files["profiles.d/README.md"] = self._dice.token().encode()
        old = self._dice.one_of(line)
        kind = self._dice.between(1, 8)
        if kind == 2 and not self._left_behind(old):
            kind = 1
        match kind:
            case 1:
                forge.tip, what = old, "is rewound"
            case 2:
                forge.tip, what = forge.commit(files, [old], "side", self._keys.person), "is an old branch"
            case 3:
                forge.tip, what = forge.commit(files, [line[-1]], "unsigned", None), "is a commit that nobody signed"
            case 4:
                forge.tip, what = forge.commit(files, [line[-1]], "stranger", STRANGER), "is a commit of a stranger"
            case 5:
                under = forge.commit(files, [line[-1]], "unsigned", None)
                forge.tip = forge.commit(files, [under], "above", self._keys.person)
                what = "has an unsigned commit below the newest"
            case 6:
                files = {p: raw for p, raw in files.items() if not p.startswith(TRUST)}
                files |= {p: raw for p, raw in forge.files(old).items() if p.startswith(TRUST)}
                forge.tip, what = forge.commit(files, [line[-1]], "merge", self._keys.person), "has trust of before"
            case 7:
                files |= {p: raw for p, raw in forge.files(old).items() if p == CATALOG}
                forge.tip, what = forge.commit(files, [line[-1]], "older", self._keys.person), "has a catalog of before"
            case _:
                files = self._own_root(files)
                forge.tip, what = forge.commit(files, [line[-1]], "own", STRANGER), "brings its own root"
        self._trace.add("branch", what)
        self._trace.saw(f"the branch {what}")
        if kind in (2, 6, 7) and self._is_theirs():
            line.append(forge.tip)
        self._agenda.after(self._dice.between(*RIGHT_MS), self.put_right)

    def _left_behind(self, old: CommitId) -> bool:
        """It lies before what is in force. A branch of people that grows from what is in force is as good as theirs,
        and the next commits of people would have to go on from it."""
        line, commit = self._repository.line, self._stage.acceptance.commit
        return commit in line and line.index(old) < line.index(commit)

    def _is_theirs(self) -> bool:
        """Signed by people, on the newest commit, and nothing older in it: it is as good as any other of theirs."""
        forge, newest = self._forge, self._repository.line[-1]
        now, before = forge.files(forge.tip), forge.files(newest)
        same = all(now.get(p) == before.get(p) for p in now.keys() | before.keys() if p.startswith(TRUST))
        return same and forge.first_parents(forge.tip, 2)[0] == newest

    def put_right(self) -> None:
        """The branch is what people made of it."""
        self._forge.tip = self._repository.line[-1]

    def _own_root(self, files: dict[str, bytes]) -> dict[str, bytes]:
        """One that nobody signed who may; or one that people did sign, and that names the very key that brings it."""
        roots, now_ms = self._repository.roots, EPOCH_MS + self._agenda.now_ms
        chain = walk(genesis(roots[0]), roots[1:])
        if self._stolen.happens(500_000):
            own = added(chain, JON, STRANGER.public, [RoleName.CHANGE], now_ms)
            text = seal_root(own, self._keys.founder)
        else:
            own = renewed_root(chain, now_ms)
            text = seal_root(own, STRANGER)
        return files | {f"{TRUST}root/{own.version}.json": text.encode()}


class Thief:
    """Who holds the controller's key, sits on the wire, and would like hosts to go by what was good once."""

    def __init__(self, repository: Repository, keys: Keys, trace: Trace) -> None:
        self._repository = repository
        self._keys = keys
        self._trace = trace
        self._dice = Dice(repository.options.seed, "thief")

    def passes_on(self, envelope: str) -> str:
        """A directive on its way to a host."""
        if not self._dice.happens(self._repository.options.thief_ppm):
            return envelope
        said = from_bytes(Directive, b64decode(json.loads(envelope)["payload"]))
        roots, catalogs = self._repository.roots, self._repository.catalogs
        said = replace(said, roots=tuple(roots[: self._dice.between(0, len(roots))]))
        said = replace(said, catalog=self._dice.one_of(catalogs) if catalogs else None)
        self._trace.saw("a thief passed older documents on")
        return seal("directive", to_bytes(said), self._keys.machine)
