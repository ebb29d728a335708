"""A controller that plans nothing: it sends what the dice say, within what it may believe to be free.

The real controller's beat, outbox, journal and fold, with commands by chance instead of plans. It keeps one promise
that planning would keep for it: a start is only queued where it fits beside all that the host holds or may still be
made to hold. Whoever gives memory back too early is found by it.
"""

from __future__ import annotations

from collections.abc import Callable

from gridops.base.ids import ConfigName, Digest, EngineName, HostId, ProfileName, ReplicaId, ScopeName
from gridops.controller.core import rows as r
from gridops.controller.core.observe import unseen_success
from gridops.controller.planning import Planning
from gridops.controller.service import Controller, Opening
from gridops.controller.writer import Writer
from gridops.lab.dice import Dice
from gridops.lab.head import Head, Surroundings
from gridops.lab.host import CPU0, MIB, SIGNED_CONTEXT
from gridops.lab.people import file_of
from gridops.model.action import Action, Drain, Load, Operate, Unload, Warm
from gridops.model.plan import Launch
from gridops.model.policy import ActionClass
from gridops.model.profile import Artifact, Restart
from gridops.model.snapshot import Ownership, Residency, ResidencyState
from gridops.protocol import outbox as ob
from gridops.protocol.messages import Authority, AuthorityKind, GrantMode
from gridops.protocol.outbox import Cause, Outbox

SCOPE = ScopeName("talk")
PLAN = Digest("sha256:" + "0" * 64)
STANDING = Authority(kind=AuthorityKind.STANDING, action_class=ActionClass.REPAIR)
PATIENCE_MS = 60_000
WISHES = 3
"""So many hosts are looked at in one turn."""
MODELS = 4
RESTART = Restart(max=3, per_ms=120_000, backoff_ms=1_000)


class Sender(Controller):
    """Nothing that was queued needs a right to go on: there is no mode and no target."""

    def taken_back(self, *_: object, **__: object) -> tuple[r.Row, ...]:
        return ()


class SenderHead(Head):
    """Whoever sends now."""

    def __init__(self, around: Surroundings) -> None:
        self._wishes = Dice(around.options.seed, "wishes")
        self.replaced: Callable[[], None] = _nobody
        """Called when the journal is another one than before: whoever reads its rows begins anew."""
        super().__init__(around)

    def opened(self, opening: Opening) -> Controller:
        return Sender(opening)

    def turn(self, controller: Controller, planning: Planning) -> None:
        if controller.state.distrust is not None:
            self._rebuild(controller)
            return
        if self.kind:
            return
        hosts = sorted(controller.state.hosts)
        for _ in range(WISHES if hosts else 0):
            rows = self._wish(controller, self._wishes.one_of(hosts))
            controller.commit(rows, controller.now())

    def restore(self) -> None:
        """The disk is as it was some time ago, and a controller begins on it."""
        rows = self.platter.rows
        if self.current is None or not rows:
            return
        del rows[self._wishes.between(1, len(rows)) :]
        self.platter.saved = None
        self.platter.term = rows[-1][1]
        self.around.trace.add("controller", f"is restored to row {len(rows)}")
        self.around.trace.saw("restored from an old journal")
        self.replaced()
        self._gone(RuntimeError("its machine was replaced"))

    def _rebuild(self, controller: Controller) -> None:
        """People make the memory anew, as `gridops controller rebuild` does: nothing of the old journal counts."""
        state, now_ms = controller.state, controller.now()
        accepted = state.accepted
        assert accepted is not None  # nobody is heard before a commit is read
        self.around.trace.saw("rebuilt")
        self.current = self.planning = None
        self.platter.rows.clear()
        self.platter.saved = None
        # What was numbered before and no host has decided goes by a term that no host obeys any more.
        self.replaced()
        rows: list[r.Row] = [r.Started(version="lab")]
        rows += [r.RootTaken(version=n, text=text) for n, text in enumerate(state.roots, 1)]
        rows.append(r.IntentAccepted(commit=accepted.commit, subject="again", desired=accepted.desired))
        # People see to it that it is whole: a rebuild that is killed is begun again, and is no part of this.
        kind, self.kind = self.kind, True
        try:
            writer = Writer(self.authority(controller.soft.chain.root.controller_epoch))
            writer.record([*rows, r.Rebuilt()], now_ms)
            writer.flush()
        finally:
            self.kind = kind
        self.begin()

    # --- wishes -----------------------------------------------------------------------------------------------------

    def _wish(self, controller: Controller, host: HostId) -> tuple[r.Row, ...]:
        """One thing to send to a host, or one to take back."""
        state, dice = controller.state, self._wishes
        book = state.hosts[host]
        if state.term is None or not ob.ready(book.outbox, state.term) or state.held(host) is not None:
            return ()
        open_ = [e for e in book.outbox.entries if e.open and e.wanted is GrantMode.EXECUTE]
        if open_ and dice.happens(120_000):
            return (r.BodyVoided(host=host, seq=dice.one_of(open_).body.seq, why="by chance"),)
        action = self._action(controller, host)
        if action is None or ob.pending(book.outbox, ob.action_key(action)) is not None:
            return ()
        if len(ob.open_entries(book.outbox)) + len(book.outbox.unknown) >= OPEN_MOST:
            return ()
        cause = Cause(plan=PLAN, scope=SCOPE, authority=STANDING)
        _, body = ob.enqueue(book.outbox, action, cause, book.outbox.fleet, controller.now())
        return (r.BodyQueued(body=body, authority=STANDING),)

    def _action(self, controller: Controller, host: HostId) -> Action | None:
        dice, heard = self._wishes, controller.soft.hosts.get(host)
        if heard is None:
            return None
        n = dice.between(1, MODELS)
        profile, replica = ProfileName(f"model-{n}"), ReplicaId(f"model-{n}/1")
        mine = [x for x in heard.report.residencies if x.ownership is Ownership.MANAGED and x.incarnation is not None]
        serving = [x for x in mine if x.state is ResidencyState.READY]
        if serving and dice.happens(self.around.options.stops_ppm):
            return _called_otherwise(dice.one_of(serving), host)
        if mine and dice.happens(400_000):
            return _away(dice.one_of(mine), host, dice)
        if dice.happens(300_000):
            return Load(host=host, replica=replica, profile=profile, artifact=files(n))
        warm = start(host, n, self.around.options.replica_mib * MIB)
        return warm if self._fits(controller, host, warm) else None

    def _fits(self, controller: Controller, host: HostId, warm: Warm) -> bool:
        """Beside everything that is reported, and that commands may still start."""
        book, heard = controller.state.hosts[host], controller.soft.hosts[host]
        if book.outbox.unknown or unseen_success(book, controller.soft, host, controller.now(), PATIENCE_MS):
            return False
        holding = {x.incarnation: warm.device_bytes for x in heard.report.residencies}
        holding.update({e.digest: warm.device_bytes for e in _starts(book.outbox)})
        return sum(holding.values()) + warm.device_bytes <= self.around.options.host_mib * MIB


OPEN_MOST = 6


def _nobody() -> None:
    """Nobody reads along."""


def _starts(outbox: Outbox) -> list[ob.Entry]:
    return [e for e in ob.open_entries(outbox) if isinstance(e.body.action, Warm)]


def _away(held: Residency, host: HostId, dice: Dice) -> Action | None:
    if held.replica is None or held.incarnation is None:
        return None
    profile = ProfileName(held.replica.split("/")[0])
    if held.state is ResidencyState.READY and dice.happens(500_000):
        return Drain(host=host, replica=held.replica, profile=profile, incarnation=held.incarnation, grace_ms=5_000)
    return Unload(host=host, replica=held.replica, profile=profile, incarnation=held.incarnation)


def _called_otherwise(held: Residency, host: HostId) -> Action | None:
    """The name by which people knew it goes: the host counts that as a model taken out of service."""
    if held.replica is None or held.incarnation is None:
        return None
    profile, _, number = held.replica.rpartition("/")
    return Operate(
        host=host,
        replica=ReplicaId(f"{profile}/{3 - int(number)}"),
        profile=ProfileName(profile),
        incarnation=held.incarnation,
        serves=(profile,),
        restart=RESTART,
        drain_ms=5_000,
    )


def files(n: int) -> Artifact:
    """What model `n` is made of."""
    return Artifact(format="gguf", files=(file_of(f"model-{n}"),))


def start(host: HostId, n: int, device_bytes: int, context: int = SIGNED_CONTEXT) -> Warm:
    """A start of model `n` as the files of the lab have it."""
    profile = ProfileName(f"model-{n}")
    launch = Launch(
        profile=profile,
        config=ConfigName("q4"),
        engine=EngineName("llama.cpp"),
        backend="cpu",
        artifact=files(n),
        context=context,
        lanes=1,
    )
    return Warm(
        host=host,
        replica=ReplicaId(f"model-{n}/1"),
        profile=profile,
        launch=launch,
        devices=(CPU0,),
        device_bytes=device_bytes,
        host_bytes=0,
        serves=(profile,),
        restart=RESTART,
        drain_ms=5_000,
        warm_ms=3_000,
    )
