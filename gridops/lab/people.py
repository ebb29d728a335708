"""The people of a lab's fleet: they commit, review, approve, reject, freeze, and change their minds at bad moments.

Files are the YAML that operators write, read by the product's own loader; requests are signed as the CLI signs them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

from gridops.base.errors import Bug, Busy, Refusal
from gridops.base.ids import CommitId, Digest, EngineName, HostId, PersonName, PlanId, ProfileName, ScopeName
from gridops.base.units import render_instant
from gridops.controller import intake
from gridops.controller.core.intend import Found
from gridops.controller.lineage import Base
from gridops.files.load import check, load_tightening
from gridops.files.tree import MemoryTree
from gridops.files.trusted import root_texts
from gridops.lab.agenda import EPOCH_MS
from gridops.lab.dice import Dice
from gridops.lab.forge import Forge
from gridops.lab.head import Head, drive
from gridops.lab.host import SIGNED_CONTEXT
from gridops.lab.identity import signer_of
from gridops.lab.options import Options
from gridops.model.catalog import Catalog, Entry, Files
from gridops.model.plan import Plan, ReadSet
from gridops.model.profile import Artifact, ArtifactFile
from gridops.trust.approval import Approval, seal_approval
from gridops.trust.approved import tree_of
from gridops.trust.catalog import content
from gridops.trust.found import Founders, first_root, renewed_root
from gridops.trust.keys import MachineSigner, PersonSigner
from gridops.trust.operator import OperatorRequest, Verb, seal_operator
from gridops.trust.release import seal_catalog
from gridops.trust.root import TRUST, genesis, seal_root, walk

MIRA = PersonName("mira")
HEADER = "apiVersion: gridops/v1\nkind: "
CONTEXTS = (1024, 2048, 4096)
STORM = 10
MODES = ("observe", "recommend", "automatic")
VOLUNTARY = ("rebalance", "rollout", "scale_down", "remove")
"""What counts against the budget of disruptions, where there is one."""
CATALOG = f"{TRUST}catalog.json"
EVERYTHING = "[repair, scale_up, scale_down, rollout, rebalance, remove]"


@dataclass(frozen=True, slots=True)
class Keys:
    """Everybody's keys; the same in every run."""

    person: PersonSigner
    machine: MachineSigner
    root: str
    founder: PersonSigner

    @classmethod
    def made(cls, *, signed_commits: bool = False) -> Keys:
        person, machine = PersonSigner.from_seed(b"p" * 32), MachineSigner.from_seed(b"c" * 32)
        founder = PersonSigner.from_seed(b"r" * 32)
        founders = Founders(
            person=MIRA,
            root_key=founder.public,
            person_key=person.public,
            controller_key=machine.public,
            controller_tls="-----BEGIN CERTIFICATE-----\nlab\n-----END CERTIFICATE-----\n",
        )
        root = replace(first_root(founders, EPOCH_MS), signed_commits=signed_commits or None)
        return cls(person, machine, seal_root(root, founder), founder)


class Repository:
    """The operators' files and their newest commit."""

    def __init__(self, options: Options, keys: Keys) -> None:
        self.options = options
        self.replicas = {ProfileName(f"model-{n}"): 1 for n in range(1, options.profiles + 1)}
        self.contexts = dict.fromkeys(self.replicas, 2048)
        self.modes = dict.fromkeys(options.scope_names, "automatic" if options.automatic else "recommend")
        self.drains: set[HostId] = set()
        self.keys = {name: [signer_of(name).public.text] for name in options.host_names}
        """Of each host, the one that counts last."""
        self.expunged: set[HostId] = set()
        """Whose key counts no more, for ever."""
        self._undeclared: set[HostId] = set()
        self.roots = [keys.root]
        self.catalogs = [_signed(options, keys, 1)] if options.catalog else []
        self.forge = Forge() if options.signed_commits else None
        self.line: list[CommitId] = []
        """What people committed, oldest first."""
        self._keys = keys
        self._read: dict[CommitId, Found] = {}
        self.commit("begin")

    @property
    def hosts(self) -> tuple[HostId, ...]:
        return self.options.host_names

    @property
    def tip(self) -> CommitId:
        """Where the branch stands."""
        return self.forge.tip if self.forge is not None else self.line[-1]

    def commit(self, subject: str, *, bad: bool = False) -> None:
        """What stands now becomes the newest commit; a bad one has a file that cannot be meant."""
        files = self._files() | (
            {"profiles.d/slip.yaml": f"{HEADER}Profile\nname: slip\nreplicas: many\n"} if bad else {}
        )
        if self.forge is not None:
            raw = {path: text.encode() if isinstance(text, str) else text for path, text in files.items()}
            self.forge.tip = self.forge.commit(raw, self.line[-1:], subject, self._keys.person)
            self.line.append(self.forge.tip)
            return
        name = CommitId(hashlib.sha256(f"{self.options.seed}/{len(self.line) + 1}".encode()).hexdigest()[:40])
        tree = MemoryTree(files)
        checked, (mode, drains, _) = check(tree), load_tightening(tree)
        if checked.intent is None and not bad:
            raise Bug(f"the lab's own files are wrong: {[str(p) for p in checked.problems]}")
        intent = checked.intent and replace(checked.intent, commit=name, subject=subject, dirty=False)
        problems = tuple(str(p) for p in checked.problems if p.severity == "error")
        catalog = self.catalogs[-1] if self.catalogs else None
        found = Found(name, subject, "mira", intent, problems, mode, drains, (self.roots[0],), catalog=catalog)
        self._read = {name: found}
        self.line.append(name)

    def read(self, commit: CommitId, base: Base) -> Found:
        """The newest commit, as the controller reads it."""
        return intake.look(self.forge, commit, base) if self.forge is not None else self._read[commit]

    def standing_roots(self) -> tuple[str, ...]:
        """The root documents at the branch's newest commit."""
        return (self.roots[0],) if self.forge is None else root_texts(self.forge.tree(self.forge.tip))

    def follows(self, before: CommitId | None, commit: CommitId) -> bool:
        """People made it, and not before the other one."""
        if commit not in self.line:
            return False
        return before is None or self.line.index(before) <= self.line.index(commit)

    def renew(self, dice: Dice, now_ms: int) -> None:
        """People sign the next catalog, or the next root document, and commit it."""
        if self.catalogs and dice.happens(500_000):
            self.catalogs.append(_signed(self.options, self._keys, len(self.catalogs) + 1))
            self.commit(f"catalog {len(self.catalogs)}")
            return
        chain = walk(genesis(self.roots[0]), self.roots[1:])
        self.roots.append(seal_root(renewed_root(chain, EPOCH_MS + now_ms), self._keys.founder))
        self.commit(f"root {len(self.roots)}")

    def expunge(self, host: HostId, *, undeclared: bool) -> None:
        """Its key counts no more; some people also take the host out of `fleet.d`."""
        self.expunged.add(host)
        self.drains.discard(host)
        if undeclared:
            self._undeclared.add(host)
        self.commit(f"{host} is expunged")

    def _files(self) -> dict[str, bytes | str]:
        options = self.options
        fleet = f"{HEADER}Fleet\ncontroller: https://127.0.0.1:7443\n"
        defaults = "defaults: {runtimes: {llama.cpp: {backend: cpu}}, disk: {artifacts: 100GiB}}"
        modes = "".join(f"  {scope}: {self._mode(scope)}\n" for scope in options.scope_names)
        actions = f"{{concurrent: 4, per_device: 1, cooldown: {options.cooldown_ms}ms}}"
        budgets = "".join(f"  {s}:\n    actions: {actions}\n{self._budget()}" for s in options.scope_names)
        beat = f"every: {options.beat_ms}ms, stale_after: {options.stale_ms}ms, recovery_grace: 5s"
        risks = "".join(f"  {risk}: {{need: 1, from: [oncall]}}\n" for risk in ("routine", "disruptive", "destructive"))
        files: dict[str, bytes | str] = {
            "policies/fleet.yaml": fleet,
            "policies/mode.yaml": f"{HEADER}Mode\nscopes:\n{modes}default: recommend\n",
            "policies/planning.yaml": f"{HEADER}Planning\nheartbeat: {{{beat}}}\n",
            "policies/approvals.yaml": f"{HEADER}Approvals\nrisks:\n{risks}roles: {{oncall: [mira]}}\n",
            "policies/budgets.yaml": f"{HEADER}Budgets\nscopes:\n{budgets}",
        }
        for number, scope in enumerate(options.scope_names):
            mine = [name for name in self.hosts[number :: options.scopes] if name not in self._undeclared]
            hosts = "".join(f"  {name}: {self._host(name)}\n" for name in mine)
            file = f"fleet.d/hosts{number or ''}.yaml"
            files[file] = f"{HEADER}Hosts\n{self._in(scope)}{defaults}\nhosts:\n{hosts}"
        if self.catalogs or self.forge is not None:
            files |= {f"{TRUST}root/{n}.json": text for n, text in enumerate(self.roots, 1)}
        if self.catalogs:
            files[CATALOG] = self.catalogs[-1]
        for name in self.hosts:
            *former, key = self.keys[name]
            more = "expunged: true\n" if name in self.expunged else ""
            more += f"previous: {former}\n" if former else ""
            files[f"fleet.d/keys/{name}.yaml"] = f"{HEADER}HostKey\nhost: {name}\nkey: {key}\n{more}"
        for name in sorted(self.drains):
            until = render_instant(EPOCH_MS + 86_400_000)
            files[f"fleet.d/drains/{name}.yaml"] = (
                f"{HEADER}Drain\nhost: {name}\nreason: lab\nby: mira\nuntil: {until}\n"
            )
        for profile, count in self.replicas.items():
            files[f"profiles.d/{profile}.yaml"] = self._profile(profile, count)
        return files

    def _host(self, name: HostId) -> str:
        laptop = "class: opportunistic, owner: ana, absence: {replace_after: 20s, on_return: keep_newest}, "
        devices = f"devices: {{cpu0: {{kind: cpu, memory: {self.options.host_mib}MiB}}}}"
        return f"{{{laptop if name in self.options.laptop_names else ''}{devices}}}"

    def _in(self, scope: ScopeName) -> str:
        """Where there is only one, nobody names it."""
        return f"scope: {scope}\n" if self.options.scopes > 1 else ""

    def _mode(self, scope: ScopeName) -> str:
        mode = self.modes[scope]
        allow = f"{{allow: {EVERYTHING}, last_replica: [{', '.join(self.replicas)}]}}"
        return f"{{mode: {mode}, automatic: {allow}}}" if mode == "automatic" else f"{{mode: {mode}}}"

    def _budget(self) -> str:
        most = self.options.disruptions
        reasons = ", ".join(VOLUNTARY)
        return f"    disruptions: [{{reasons: [{reasons}], max: {most}}}]\n" if most else ""

    def _profile(self, name: ProfileName, replicas: int) -> str:
        file = file_of(name)
        return (
            f"{HEADER}Profile\nname: {name}\n{self._in(self.options.scope_of(name))}replicas: {replicas}\n"
            "timing: {load: 2s, warm: 3s, min_residency: 0ms, scale_down_after: 0ms, drain: 5s}\n"
            "restart: {max: 3, per: 2m, backoff: 1s}\n"
            f"configs:\n  q4:\n    engine: llama.cpp\n    backends: [cpu]\n"
            f"    artifact: {{format: gguf, files: [{{path: {file.path}, sha256: {file.sha256}, size: 100MiB}}]}}\n"
            f"    context: {self.contexts[name]}\n    lanes: 1\n"
            f"    footprint: {{source: declared, device: {self.options.replica_mib}MiB}}\n"
        )


def file_of(name: str) -> ArtifactFile:
    """The one file of a model."""
    sha = hashlib.sha256(name.encode()).hexdigest()
    return ArtifactFile(path=f"{name}.gguf", sha256=Digest(f"sha256:{sha}"), size_bytes=100 << 20)


def _signed(options: Options, keys: Keys, version: int) -> str:
    """A catalog with every model, none with more context than `SIGNED_CONTEXT`."""
    files = [file_of(f"model-{n}") for n in range(1, options.profiles + 1)]
    entries = tuple(
        Entry(
            name=file.path.removesuffix(".gguf"),
            engine=EngineName("llama.cpp"),
            backends=("cpu",),
            artifacts=(Files(name=file.path, content=content(Artifact(format="gguf", files=(file,)))),),
            context=SIGNED_CONTEXT,
            lanes=1,
            device_bytes=options.replica_mib << 20,
            host_bytes=0,
        )
        for file in files
    )
    fleet = genesis(keys.root).fleet
    return seal_catalog(Catalog(fleet=fleet, version=version, issued_ms=EPOCH_MS, entries=entries), keys.person)


class People:
    """Those who commit, and those who are on call."""

    def __init__(self, repository: Repository, keys: Keys, head: Head) -> None:
        self.repository = repository
        self.calm = False
        self._keys = keys
        self._head = head
        self._fleet = genesis(keys.root).fleet
        self._dice = Dice(repository.options.seed, "people")
        self._scopes = Dice(repository.options.seed, "scopes")
        self._slips = Dice(repository.options.seed, "slips")
        self._renewals = Dice(repository.options.seed, "renewals")

    def change_their_minds(self) -> None:
        """One commit of some kind."""
        dice, repository = self._dice, self.repository
        profile, kind = dice.one_of(tuple(repository.replicas)), dice.between(1, 10)
        if dice.happens(repository.options.rollouts_ppm):
            repository.contexts = {name: dice.one_of(CONTEXTS) for name in repository.replicas}
            what = "a new context for every model"
        elif kind <= 5:
            repository.replicas[profile] = dice.between(0, min(3, repository.options.hosts))
            what = f"{profile}: {repository.replicas[profile]} replicas"
        elif kind <= 7:
            repository.contexts[profile] = dice.one_of(CONTEXTS)
            what = f"{profile}: context {repository.contexts[profile]}"
        elif kind == 8:
            scope, mode = self._scopes.one_of(tuple(repository.modes)), dice.one_of(MODES)
            repository.modes[scope] = mode
            what = f"mode {mode}" + (f" of {scope}" if len(repository.modes) > 1 else "")
        else:
            host = dice.one_of(repository.hosts)
            repository.drains = (repository.drains ^ {host}) - repository.expunged
            what = f"drain of {host} {'begins' if host in repository.drains else 'ends'}"
        bad = self._slips.happens(repository.options.bad_commit_ppm)
        repository.commit(what, bad=bad)
        self._say(what + (", with a slip" if bad else ""))

    def storm(self) -> None:
        """Somebody's script commits and commits."""
        for n in range(STORM):
            self._head.around.agenda.after(n * 90, self._hurry)

    def _hurry(self) -> None:
        if not self.calm:
            self.change_their_minds()

    def renew(self) -> None:
        """Documents of trust have a life of their own."""
        self.repository.renew(self._renewals, self._head.around.agenda.now_ms)
        self._say(f"root {len(self.repository.roots)}, catalog {len(self.repository.catalogs)}")

    def look(self) -> None:
        """On call looks at what is proposed, and mostly applies it."""
        for scope in self.repository.options.scope_names:
            self._look_at(scope)

    def write_off(self, host: HostId) -> bool:
        """Somebody believes that a host will not come back; whether the controller took it."""
        return self._head.current is not None and self._ask("write_off", host=host, reason="it is gone")

    def look_at_hosts(self) -> None:
        """Somebody has looked at each host whose commands an alarm has stopped, and takes its own account of them."""
        controller = self._head.current
        for host, book in sorted(controller.state.hosts.items()) if controller is not None else ():
            if book.outbox.held is not None and self.write_off(host):
                self._head.around.trace.saw("people believed a host that was held")

    def _look_at(self, scope: ScopeName) -> None:
        controller = self._head.current
        book = controller.state.scopes.get(scope) if controller is not None else None
        if controller is None or book is None or book.proposal is None:
            return
        plan = book.proposal.plan
        if not self.calm and self._dice.happens(80_000):
            self._ask("reject", plan=plan.id)
            return
        if not self.calm and self._dice.happens(self.repository.options.late_approval_ppm):
            late = self._approval(plan, plan.reads, controller.now(), lasts_ms=-1)
            if not self._ask("apply", plan=plan.id, approvals=(late,)):
                self._head.around.trace.saw("an approval was over when it came")
            return
        newest = controller.soft.scope(scope).candidate
        same = newest is not None and newest.decisions_digest == plan.decisions_digest
        reads = newest.reads if newest is not None and same else plan.reads
        self._ask("apply", plan=plan.id, approvals=(self._approval(plan, reads, controller.now()),))

    def _approval(self, plan: Plan, reads: ReadSet, now_ms: int, lasts_ms: int = 600_000) -> str:
        names = sorted({d.profile for d in plan.to_do if d.last_replica})
        approval = Approval(
            fleet=plan.fleet,
            scope=plan.scope,
            decisions_digest=plan.decisions_digest,
            decisions_tree=tree_of(plan),
            reads=reads,
            decision="approve",
            approver=MIRA,
            last_replicas=tuple(ProfileName(name) for name in names),
            issued_ms=min(now_ms, now_ms + lasts_ms),
            not_after_ms=now_ms + lasts_ms,
        )
        return seal_approval(approval, self._keys.person)

    def _ask(self, verb: Verb, *, plan: PlanId | None = None, host: HostId | None = None, **fields: Any) -> bool:
        """Whether the controller took it."""
        head = self._head
        controller, planning = head.current, head.planning
        assert controller is not None
        assert planning is not None
        now_ms = controller.now()
        request = OperatorRequest(
            fleet=self._fleet,
            verb=verb,
            by=MIRA,
            nonce=self._dice.token(),
            issued_ms=now_ms,
            not_after_ms=now_ms + 300_000,
            plan=plan,
            host=host,
            **fields,
        )
        sealed = seal_operator(request, self._keys.person)
        try:
            head.guarded(controller, lambda: drive(planning.operator(sealed)))
        except Busy as busy:
            self._say(f"{verb} has to wait: {busy.message}")
            return False
        except Refusal as refusal:
            self._say(f"{verb} is refused: {refusal.code}")
            head.around.trace.saw(refusal.code)
            return False
        self._say(f"{verb} {plan or host}")
        return True

    def _say(self, what: str) -> None:
        self._head.around.trace.add("people", what)
