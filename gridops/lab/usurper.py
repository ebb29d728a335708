"""A thief with the controller's key who commands hosts himself: what each of them must refuse (B5, 6 and 10 to 13).

He reads what hosts and controller say to one another, so number, term and chain of what he signs are right, and one
thing is not: nobody approved it, no catalog has it, it does not fit, the world has moved on, or its number was decided
long ago. What is refused for good uses up a number of which the controller knows nothing. It says so, and people
rebuild it or take the host's own account of its commands (`older`, `people`). Nothing of it may begin (`refusals`).
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from gridops.base import limits
from gridops.base.ids import Digest, HostId, ProfileName, ReplicaId
from gridops.base.record import digest_of, from_bytes, to_bytes
from gridops.lab.dice import Dice
from gridops.lab.host import CPU0, MIB, SIGNED_CONTEXT, LabHost
from gridops.lab.options import Options
from gridops.lab.refusals import Refusals
from gridops.lab.sender import PLAN, STANDING, files, start
from gridops.model.action import Action, DeviceGeneration, Drain, Load, Unload
from gridops.model.policy import ActionClass
from gridops.protocol.fence import Decided
from gridops.protocol.messages import Authority, AuthorityKind, Body, Directive, Grant, GrantMode
from gridops.trust.envelope import seal
from gridops.trust.keys import MachineSigner

KEPT = 20
VALID_MS = 60_000
NOBODY = ReplicaId("nobody/1")
MODEL = 9
"""A model that no file of the lab has."""
UNAPPROVED = Authority(kind=AuthorityKind.APPROVAL, action_class=ActionClass.REMOVE)


@dataclass(frozen=True, slots=True)
class _Wrong:
    """A command that must be refused."""

    body: Body
    authority: Authority = STANDING
    for_good: bool = True


class Usurper:
    """One of them, in one run."""

    def __init__(
        self, options: Options, machine: MachineSigner, hosts: Mapping[HostId, LabHost], refusals: Refusals
    ) -> None:
        self._options = options
        self._machine = machine
        self._hosts = hosts
        self._refusals = refusals
        self._dice = Dice(options.seed, "usurper")
        self._seen: dict[HostId, list[Grant]] = {}
        """What the controller granted lately."""

    def passes_on(self, host: HostId, envelope: str) -> str:
        """A directive on its way to a host."""
        if not self._options.usurper_ppm:
            return envelope
        said = from_bytes(Directive, b64decode(json.loads(envelope)["payload"]))
        granted = [from_bytes(Grant, b64decode(json.loads(text)["payload"])) for text in said.grants]
        self._seen[host] = [*self._seen.get(host, []), *granted][-KEPT:]
        if not self._dice.happens(self._options.usurper_ppm):
            return envelope
        grant = self._command(self._hosts[host], said)
        if grant is None:
            return envelope
        mine = seal("grant", to_bytes(grant), self._machine)
        grants = (mine, *said.grants)[: limits.GRANTS_PER_DIRECTIVE]
        return seal("directive", to_bytes(replace(said, grants=grants)), self._machine)

    def _command(self, at: LabHost, said: Directive) -> Grant | None:
        kinds: tuple[Callable[[LabHost], _Wrong | Body | None], ...] = (
            self._again,
            self._another,
            self._long_ago,
            self._under_an_old_catalog,
            self._beyond_the_catalog,
            self._without_approval,
            self._with_an_approval_of_another,
            self._too_large,
            self._for_another_world,
        )
        made = self._dice.one_of(kinds)(at)
        if made is None:
            return None
        body, authority = (made, STANDING) if isinstance(made, Body) else (made.body, made.authority)
        if isinstance(made, _Wrong):
            self._refusals.must_be(at.name, digest_of(body), for_good=made.for_good)
        return Grant(
            fleet=said.fleet,
            body=body,
            term=said.term,
            mode=GrantMode.EXECUTE,
            issued_ms=said.now_ms,
            not_after_ms=said.now_ms + VALID_MS,
            authority=authority,
        )

    # --- numbers (check 6) ------------------------------------------------------------------------------------------

    def _again(self, at: LabHost) -> Body | None:
        """One that is decided, as it was: its stored outcome answers it, and nothing is done twice (S3)."""
        decided = {known.body for known in at.host.fence.decided}
        seen = [grant.body for grant in self._seen.get(at.name, ()) if digest_of(grant.body) in decided]
        if not seen:
            return None
        at.around.trace.saw("a command that was decided came again")
        return self._dice.one_of(seen)

    def _another(self, at: LabHost) -> _Wrong | None:
        """Another one by a number that is decided."""
        decided = at.host.fence.decided
        if not decided:
            return None
        known: Decided = self._dice.one_of(decided)
        return _Wrong(replace(self._body(at, self._load(at)), seq=known.seq), for_good=False)

    def _long_ago(self, at: LabHost) -> _Wrong | None:
        """One by a number of which nothing is kept any more."""
        oldest = at.host.fence.decided[0].seq if at.host.fence.decided else 1
        if oldest == 1:
            return None
        seq = self._dice.between(1, oldest - 1)
        return _Wrong(replace(self._body(at, self._load(at)), seq=seq), for_good=False)

    # --- what may run at all (check 10) -----------------------------------------------------------------------------

    def _under_an_old_catalog(self, at: LabHost) -> _Wrong | None:
        known = at.host.known.catalog
        if known is None:
            return None
        return _Wrong(replace(self._body(at, self._load(at)), catalog=known.version - 1))

    def _beyond_the_catalog(self, at: LabHost) -> _Wrong | None:
        """More context than was signed, or files that were not."""
        if at.host.known.catalog is None:
            return None
        warm = start(at.name, self._model(), self._replica_bytes, 2 * SIGNED_CONTEXT)
        return _Wrong(self._body(at, warm if self._dice.happens(500_000) else self._load(at, MODEL)))

    # --- whose word it is (check 11) --------------------------------------------------------------------------------

    def _without_approval(self, at: LabHost) -> _Wrong:
        """It ends what runs: cutting callers off by nobody's word, or by an approval that is not shown."""
        held = self._dice.one_of(tuple(at.host.held.values())) if at.host.held else None
        replica, incarnation = (held.replica, held.body) if held is not None else (NOBODY, PLAN)
        profile = ProfileName(replica.rpartition("/")[0])
        if self._dice.happens(500_000):
            cuts = Unload(host=at.name, replica=replica, profile=profile, incarnation=incarnation, force=True)
            return _Wrong(self._body(at, cuts))
        drain = Drain(host=at.name, replica=replica, profile=profile, incarnation=incarnation, grace_ms=1)
        return _Wrong(self._body(at, drain), UNAPPROVED)

    def _with_an_approval_of_another(self, at: LabHost) -> _Wrong | None:
        """What people approved was about another replica."""
        stolen = [
            grant
            for grants in self._seen.values()
            for grant in grants
            if grant.authority.kind is AuthorityKind.APPROVAL and grant.authority.approvals
        ]
        if not stolen:
            return None
        grant, n = self._dice.one_of(stolen), self._model()
        warm = replace(start(at.name, n, self._replica_bytes), replica=ReplicaId(f"model-{n}/{MODEL}"))
        return _Wrong(self._body(at, warm), grant.authority)

    # --- what the host itself objects to (checks 12 and 13) ---------------------------------------------------------

    def _too_large(self, at: LabHost) -> _Wrong:
        return _Wrong(self._body(at, start(at.name, self._model(), 5 * self._options.host_mib * MIB)))

    def _for_another_world(self, at: LabHost) -> _Wrong:
        """It was planned for a device that has changed since."""
        past = DeviceGeneration(device=CPU0, generation=at.host.generation(CPU0) - 1)
        return _Wrong(replace(self._body(at, self._load(at)), precondition=(past,)))

    # --- what is right of it ----------------------------------------------------------------------------------------

    @property
    def _replica_bytes(self) -> int:
        return self._options.replica_mib * MIB

    def _model(self) -> int:
        return self._dice.between(1, self._options.profiles)

    def _load(self, at: LabHost, n: int | None = None) -> Load:
        n = n or self._model()
        profile = ProfileName(f"model-{n}")
        return Load(host=at.name, replica=ReplicaId(f"{profile}/1"), profile=profile, artifact=files(n))

    def _body(self, at: LabHost, action: Action) -> Body:
        """The next one of this host's chain."""
        fence, catalog = at.host.fence, at.host.known.catalog
        return Body(
            fleet=fence.fleet,
            host=at.name,
            host_key=fence.host_key,
            seq=fence.head.seq + 1,
            prev=fence.head.body,
            scope=self._options.scope_of(at.name),
            plan=PLAN if not self._seen.get(at.name) else self._plan(at.name),
            action=action,
            catalog=catalog.version if catalog is not None else None,
        )

    def _plan(self, host: HostId) -> Digest:
        return self._seen[host][-1].body.plan
