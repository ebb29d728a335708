"""A controller, two hosts and the line between them, on which somebody keeps everything that was ever said.

The controller stands on its journal, each host on its ledger; the talk is the product's own on both sides. `Line` plays
a story step by step, and `heard` holds each message with its kind. What a network can do with them is a test's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from gridops.base import limits
from gridops.base.ids import HostId
from gridops.base.record import to_bytes
from gridops.protocol.messages import Beat, Facts, JoinRequest, Rekey
from gridops.protocol.open import open_directive
from gridops.trust.envelope import seal
from gridops.trust.join import join_key, parse_token, request_mac
from gridops.trust.keys import MachineSigner
from gridops.trust.release import seal_catalog
from gridops.trust.root import seal_root
from tests.attacks.durable import durable
from tests.attacks.place import CPU, Place, payload_of
from tests.controller.fleet import OBSERVE, RECOMMEND, Desk, Fleet, profile
from tests.trust import catalogs

HOSTS = ("alpha", "beta")
NEWCOMER = MachineSigner.from_seed(b"w" * 32)
NEXT = MachineSigner.from_seed(b"x" * 32)


@dataclass(frozen=True)
class Message:
    """Something signed that went over the wire or lies in git."""

    kind: str
    host: str
    """Which host it is of or for; empty where it is for nobody in particular."""
    text: str


class _Recorded(Fleet):
    """The fleet's people, whose requests and approvals are kept."""

    line: Line

    def request(self, *args: object, **fields: object) -> str:
        return self.line.keep("operator", "", super().request(*args, **fields))  # type: ignore[arg-type]

    def approval(self, *args: object, **fields: object) -> str:
        return self.line.keep("approval", "", super().approval(*args, **fields))  # type: ignore[arg-type]


class Line:
    """The story, told as far as somebody asks."""

    def __init__(self, folder: Path) -> None:
        self.heard: dict[str, Message] = {}
        self.told = 0
        self.fleet = _Recorded(folder)
        self.fleet.line = self
        self.fleet.begin()
        self.keep("root", "", self.fleet.root_text)
        empty = catalogs.catalog(self.fleet.chain.fleet)
        self.keep("catalog", "", seal_catalog(empty, self.fleet.person))
        self.desk = Desk(self.fleet)
        self.places = {name: self._place(folder, name) for name in HOSTS}

    def _place(self, folder: Path, name: str) -> Place:
        signer = self.fleet.agents[name].signer
        return Place(folder / name, self.fleet.chain, HostId(name), signer, clock=self.desk.clock, devices=(CPU,))

    def close(self) -> None:
        self.desk.controller.close()
        for place in self.places.values():
            place.close()

    def keep(self, kind: str, host: str, text: str) -> str:
        self.heard.setdefault(text, Message(kind, host, text))
        return text

    def recorded(self) -> list[Message]:
        """What somebody between has: of each kind and each host, the oldest three and the newest three."""
        kept: dict[tuple[str, str], list[Message]] = {}
        for message in self.heard.values():
            kept.setdefault((message.kind, message.host), []).append(message)
        return [m for found in kept.values() for m in (found if len(found) < 6 else (*found[:3], *found[-3:]))]

    # -- the line ------------------------------------------------------------------------------------------------------

    def post(self, beat: Beat) -> str:
        """One poll on its way, and its answer."""
        host = payload_of(beat.heartbeat)["host"]
        self.keep("heartbeat", host, beat.heartbeat)
        binding = payload_of(beat.heartbeat)["inventory"].get("binding")
        if binding is not None:
            self.keep("tls-binding", host, binding)
        for receipt in beat.receipts:
            self.keep("receipt", host, receipt)
        answer = self.keep("directive", host, self.desk.post(beat))
        for grant in open_directive(answer, (self.desk.controller.signer.public,)).grants:
            self.keep("grant", host, grant)
        return answer

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.desk.clock.pass_by(1_000)
            for place in self.places.values():
                said = place.poll(self.post)
                assert said == [], (place.identity.host, said)
            self.desk.pass_()

    def calms(self) -> None:
        """Both hosts are heard again. The very first word of a run, played again to a controller that has begun since,
        passes for a new run that says nothing; the true one is heard again when it has gone on for so many words."""
        for _ in range(limits.STRAYS_PROVE):
            self.desk.clock.pass_by(1_000)
            said = [place.poll(self.post) for place in self.places.values()]
            assert all(codes in ([], ["replayed"]) for codes in said), said
        self.turn()

    def journal(self) -> str:
        return durable(self.fleet.state / "journal.sqlite")

    # -- the story -----------------------------------------------------------------------------------------------------

    @property
    def steps(self) -> dict[str, object]:
        return {
            "both have spoken": lambda: self.turn(3),
            "a stranger asked to join, and a host for its next key": self._join,
            "a model runs": self._run,
            "all is acknowledged": lambda: self.turn(2),
            "a command was taken back": self._void,
            "the model has ended": self._end,
            "an agent began anew": self._restart,
            "the controller began anew": self._began,
            "the controller's epoch was raised": self._epoch,
        }

    def at(self, wanted: str) -> Line:
        """Tell the story up to this step."""
        names = list(self.steps)
        while self.told <= names.index(wanted):
            self.steps[names[self.told]]()  # type: ignore[operator]
            self.told += 1
        return self

    def _join(self) -> None:
        token = self.desk.ask("invite", host="gamma", ttl_ms=3_600_000)["token"]
        parsed, key = parse_token(token), NEWCOMER.public.text
        request = JoinRequest(
            fleet=parsed.fleet,
            host=HostId("gamma"),
            host_key=key,
            nonce="n" * 24,
            facts=Facts(devices=(), runtimes=(), agent_version="0.1.0", platform="linux"),
            mac=request_mac(join_key(parsed.secret), parsed.fleet, key, "n" * 24),
        )
        self.desk.controller.join(self.keep("join", "", seal("join", to_bytes(request), NEWCOMER)))
        self._sign_over("alpha")

    def _sign_over(self, host: str) -> None:
        """A host asks for its next key, and nobody commits it."""
        signer, fleet, key = self.places[host].signer, self.fleet.chain.fleet, NEXT.public.text
        over = Rekey(fleet=fleet, host=HostId(host), host_key=signer.public.text, next_key=key, nonce="r" * 24)
        request = JoinRequest(
            fleet=fleet,
            host=HostId(host),
            host_key=key,
            nonce="r" * 24,
            facts=Facts(devices=(), runtimes=(), agent_version="0.1.0", platform="linux"),
            mac="",
            over=self.keep("rekey", host, seal("rekey", to_bytes(over), signer)),
        )
        self.desk.controller.join(self.keep("join", host, seal("join", to_bytes(request), NEXT)))

    def _apply(self, **names: object) -> None:
        plan = self.desk.proposal()
        self.keep("plan", "", seal("plan", to_bytes(plan), self.desk.controller.signer))
        self.desk.apply(plan, **names)  # type: ignore[arg-type]

    def running(self) -> list[str]:
        return sorted(str(held.replica) for place in self.places.values() for held in place.host.held.values())

    def _run(self) -> None:
        self.turn(2)
        self._apply()
        self.turn(8)
        assert self.running() == ["coder/1"]

    def _void(self) -> None:
        """Applied, and taken back by a commit before any host has heard of it."""
        self.desk.commit({"profiles.d/spare.yaml": profile("spare", 1)})
        self.turn(2)
        self._apply()
        self.desk.pass_()
        self.desk.commit({"policies/mode.yaml": OBSERVE})
        self.turn(4)
        assert "voided" in {r.outcome for place in self.places.values() for r in place.host.receipts.kept}
        self.desk.commit({"policies/mode.yaml": RECOMMEND, "profiles.d/spare.yaml": profile("spare", 0)})
        self.turn(4)

    def _end(self) -> None:
        self.desk.commit({"profiles.d/coder.yaml": profile(replicas=0)})
        self.turn(3)
        self._apply(names=("coder", "spare"))
        self.turn(12)
        assert self.running() == []

    def _restart(self) -> None:
        self.places["alpha"].restart()
        self.turn(2)

    def _began(self) -> None:
        self.desk.restart()
        self.turn(3)

    def _epoch(self) -> None:
        root = replace(self.fleet.chain.root, version=2, fleet=self.fleet.chain.fleet, controller_epoch=2)
        text = self.keep("root", "", seal_root(root, self.fleet.root_signer))
        self.desk.commit({"policies/trust/root/2.json": text})
        self.turn(4)
        assert all(place.host.fence.term.epoch == 2 for place in self.places.values())
