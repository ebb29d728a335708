"""Projection of plans into git: what was decided and done, for people to read. Git is no bus and holds no lock.

Called by the controller (write) and the CLI (read). Everything goes through plumbing and a compare-and-swap of the
branch, so two writers never lose a file. Where a branch is checked out, its index and files follow (`files.follow`),
so that a person's next commit does not undo ours. A failed push is a value: it never blocks a repair.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from gridops.base import limits
from gridops.base.errors import Failed
from gridops.base.ids import CommitId, PlanId, ScopeName, is_name
from gridops.base.record import Malformed, from_bytes, to_bytes
from gridops.files.branch import Branch, Writing
from gridops.files.git import Checkout, Entry, list_files, read_blobs
from gridops.files.plandoc import message_lines, render_plan
from gridops.files.print_yaml import print_yaml
from gridops.model.plan import Plan
from gridops.model.snapshot import Snapshot, SnapshotSource

PLANS_BRANCH = "gridops/plans"
STATE_BRANCH = "gridops/state"
SAME = "same"
"""As branch name: plans lie under `path` on the watched branch itself."""
PLAN_BRANCH_FILES = 400_000
"""About a hundred thousand plans: years, after which the branch is begun anew."""
_PLAN_ID = re.compile(r"[0-9]{8}T[0-9]{4}(?:[0-9]{2})?Z-[0-9a-f]{8}")
_SHORT = 8


class Stored(NamedTuple):
    """A plan as it lies in git: the text for people, the signed envelope, the approvals."""

    yaml: str
    envelope: str
    approvals: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PlanPlace:
    """Where a stored plan lies."""

    id: PlanId
    scope: ScopeName
    finished: bool
    """A result was written."""


class PlanBranch:
    """The plans of a fleet on one branch. `watched` is needed for `same` only: the branch that people commit to."""

    def __init__(
        self, checkout: Checkout, branch: str = PLANS_BRANCH, *, path: str = "plans", watched: str | None = None
    ) -> None:
        if branch == SAME and watched is None:
            watched = checkout.branch()
        self.checkout = checkout
        self.path = path.strip("/")
        name = watched if branch == SAME else branch
        if name is None:
            raise Failed(f"{checkout.where.shown}: plans go to the watched branch, but HEAD is detached")
        self.branch = Branch(checkout, name)
        self.state = Branch(checkout, STATE_BRANCH)

    def write(self, plan: Plan, envelope: str, approvals: Sequence[str] = ()) -> CommitId | None:
        """Write a plan and its signatures. None when the branch holds exactly this already."""
        folder = self._folder(plan.scope, plan.id)
        files = {f"{folder}/plan.yaml": render_plan(plan).encode()}
        for role, text in [("controller", envelope), *(("approve", text) for text in approvals)]:
            files[f"{folder}/sigs/{role}.{_signer(text)}.json"] = text.encode()
        return self.branch.commit(Writing(files=files, message="\n".join(message_lines(plan)), at_ms=plan.created_ms))

    def write_result(self, plan_id: PlanId, result: Mapping[str, Any], *, at_ms: int | None = None) -> CommitId | None:
        """Write what became of a plan beside it. Raises Failed when the plan is not there."""
        place = self.find(plan_id)
        text = f"# Result of {place.id}, printed from the journal.\n" + print_yaml(dict(result))
        message = f"result {place.scope} {place.id}\n\nGridops-Plan: {place.id}"
        file = f"{self._folder(place.scope, place.id)}/result.yaml"
        return self.branch.commit(Writing(files={file: text.encode()}, message=message, at_ms=at_ms))

    def places(self) -> tuple[PlanPlace, ...]:
        """Every stored plan, oldest first (by id)."""
        found: dict[tuple[str, str], bool] = {}
        for path in self._files():
            parts = path.removeprefix(self.path + "/").split("/")
            if len(parts) >= 3 and _PLAN_ID.fullmatch(parts[1]) and is_name(parts[0]):
                key = (parts[1], parts[0])
                found[key] = found.get(key, False) or parts[2:] == ["result.yaml"]
        return tuple(PlanPlace(PlanId(i), ScopeName(s), done) for (i, s), done in sorted(found.items()))

    def list(self) -> tuple[PlanId, ...]:
        """Ids of all stored plans, oldest first."""
        return tuple(dict.fromkeys(place.id for place in self.places()))

    def find(self, text: str, scope: ScopeName | None = None) -> PlanPlace:
        """The plan with this id, id prefix or digest prefix. Raises Failed when there is none, or more than one.

        Equal decisions have equal short digests: a whole short digest names the newest plan of its scope.
        """
        places = [p for p in self.places() if scope is None or p.scope == scope]
        digits = text.removeprefix("sha256:")[:_SHORT]
        exact = [p for p in places if p.id == text]
        hits = exact or [p for p in places if p.id.startswith(text) or p.id.partition("-")[2].startswith(digits)]
        if not text or not hits:
            hints = ("see what there is: gridops plans list",)
            raise Failed(f"no plan `{text}` on branch {self.branch.name}", hints=hints)
        whole = len(text.removeprefix("sha256:")) >= _SHORT and text.partition("T")[1] == ""
        if len(hits) > 1 and not (whole and len({(p.scope, p.id.partition("-")[2]) for p in hits}) == 1):
            shown = ", ".join(f"{p.scope} {p.id}" for p in hits[-5:])
            message = f"`{text}` names {len(hits)} plans on branch {self.branch.name}: {shown}"
            raise Failed(message, hints=("write more of the id, or name the scope: --scope",))
        return hits[-1]

    def read(self, text: str, scope: ScopeName | None = None) -> Stored:
        """A stored plan by id, unique prefix or short digest. Nothing is verified here: `plandoc.read_plan` does."""
        place = self.find(text, scope)
        folder = self._folder(place.scope, place.id)
        files = self._contents(folder)
        sigs = [p for p in sorted(files) if p.startswith(f"{folder}/sigs/")]
        envelope = next((p for p in sigs if p.startswith(f"{folder}/sigs/controller.")), None)
        plan = files.get(f"{folder}/plan.yaml")
        if plan is None or envelope is None:
            missing = "plan.yaml" if plan is None else "sigs/controller.*.json"
            raise Failed(f"{folder}/{missing}: missing on branch {self.branch.name}")
        approvals = tuple(files[p].decode("utf-8", "replace") for p in sigs if p.startswith(f"{folder}/sigs/approve."))
        return Stored(plan.decode("utf-8", "replace"), files[envelope].decode("utf-8", "replace"), approvals)

    def plan_file(self, place: PlanPlace) -> str:
        """Path of a plan's text on the branch, for messages."""
        return f"{self._folder(place.scope, place.id)}/plan.yaml"

    def result_text(self, place: PlanPlace) -> str | None:
        """The result of a plan as text, or None when there is none yet."""
        folder = self._folder(place.scope, place.id)
        raw = self._contents(folder).get(f"{folder}/result.yaml") if place.finished else None
        return None if raw is None else raw.decode("utf-8", "replace")

    def texts(self, places: Iterable[PlanPlace]) -> dict[PlanPlace, tuple[str, str | None]]:
        """Text and result of many plans in one go, for lists. Nothing is verified."""
        tip = self.branch.newest()
        entries = {} if tip is None else list_files(self.checkout.where, tip, (self.path,), PLAN_BRANCH_FILES)
        wanted: dict[PlanPlace, tuple[Entry | None, Entry | None]] = {}
        for place in places:
            folder = self._folder(place.scope, place.id)
            files = (f"{folder}/plan.yaml", f"{folder}/result.yaml")
            wanted[place] = (_bounded(entries.get(files[0])), _bounded(entries.get(files[1])))
        oids = sorted({entry.oid for pair in wanted.values() for entry in pair if entry is not None})
        blobs = {oid: raw.decode("utf-8", "replace") for oid, raw in read_blobs(self.checkout.where, oids).items()}
        return {
            place: ("" if text is None else blobs[text.oid], None if result is None else blobs[result.oid])
            for place, (text, result) in wanted.items()
        }

    def write_state(self, scope: ScopeName, snapshot: Snapshot) -> CommitId | None:
        """Replace the newest material snapshot of a scope: always one commit without parents. None when it is equal."""
        raw = to_bytes(snapshot)
        text = json.dumps(json.loads(raw), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        message = "state: the newest material snapshot of each scope"
        writing = Writing(files={_state_file(scope): text.encode()}, message=message, at_ms=snapshot.observed_ms)
        return self.state.commit(writing, orphan=True)

    def read_state(self, scope: ScopeName) -> Snapshot | None:
        """The stored snapshot of a scope, marked as coming from git; None when there is none."""
        tip = self.state.newest()
        file = _state_file(scope)
        entry = None if tip is None else list_files(self.checkout.where, tip, (file,)).get(file)
        if entry is None:
            return None
        if entry.size > limits.PLAN_BYTES:
            raise Failed(f"{file} on branch {STATE_BRANCH}: {entry.size} bytes, at most {limits.PLAN_BYTES} are read")
        try:
            snapshot = from_bytes(Snapshot, read_blobs(self.checkout.where, [entry.oid])[entry.oid])
        except Malformed as error:
            raise Failed(f"{file} on branch {STATE_BRANCH}: {error}") from error
        return replace(snapshot, source=SnapshotSource.STATE)

    def _folder(self, scope: str, plan_id: str) -> str:
        if not is_name(scope) or not _PLAN_ID.fullmatch(plan_id):
            raise Failed(f"`{scope}/{plan_id}` is no place for a plan")
        return f"{self.path}/{scope}/{plan_id}"

    def _files(self) -> tuple[str, ...]:
        tip = self.branch.newest()
        return () if tip is None else tuple(list_files(self.checkout.where, tip, (self.path,), PLAN_BRANCH_FILES))

    def _contents(self, folder: str) -> dict[str, bytes]:
        tip = self.branch.newest()
        found = {} if tip is None else list_files(self.checkout.where, tip, (folder,))
        giant = next((p for p, e in sorted(found.items()) if e.size > 2 * limits.PLAN_BYTES), None)
        if giant is not None:
            raise Failed(f"{giant} on branch {self.branch.name}: larger than any plan")
        blobs = read_blobs(self.checkout.where, sorted({e.oid for e in found.values()}))
        return {path: blobs[entry.oid] for path, entry in found.items()}


def _state_file(scope: ScopeName) -> str:
    if not is_name(scope):
        raise Failed(f"`{scope}` is no scope")
    return f"state/{scope}.json"


def _bounded(entry: Entry | None) -> Entry | None:
    return entry if entry is not None and entry.size <= 2 * limits.PLAN_BYTES else None


def _signer(envelope: str) -> str:
    """First digits of the key that an envelope claims: a file name, not a proof."""
    try:
        keyid = json.loads(envelope)["signatures"][0]["keyid"]
        digits = str(keyid).removeprefix("sha256:")[:_SHORT]
    except (ValueError, LookupError, TypeError):
        digits = ""
    return digits if re.fullmatch(r"[0-9a-f]{8}", digits) else "unknown"
