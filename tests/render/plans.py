"""Hand-made plans for tests of rendering and of plan documents: the story of ux.md, and a plan of any size."""

from __future__ import annotations

from dataclasses import replace

from gridops.base.ids import Digest, replica_id
from gridops.model.plan import (
    Assignment,
    Cause,
    CauseKind,
    Change,
    Choice,
    Cost,
    Decision,
    DecisionKind,
    Generation,
    HostLine,
    IntentRef,
    Launch,
    Plan,
    PlannerRef,
    ProfileDigest,
    ReadSet,
    Report,
    Seat,
    Shortfall,
    SnapshotRef,
    Term,
    Terms,
    Unplaced,
)
from gridops.model.policy import ActionClass, Risk
from gridops.model.profile import Artifact, ArtifactFile
from gridops.model.snapshot import SnapshotSource

GIB = 1 << 30
NOW = 1_795_943_220_000  # 2026-11-29T09:07:00Z
OBSERVED = NOW - 360_000
COMMIT = "4d1c0aa61f1f7c0e4f5e8d0b9c5a2b3d4e6f7a81"
DECISIONS = Digest("sha256:7f3a2c19" + "d0" * 28)


def digest(seed: str) -> Digest:
    return Digest("sha256:" + (seed.encode().hex() + "0" * 64)[:64])


def launch(profile: str) -> Launch:
    file = ArtifactFile(path=f"{profile}-q4.gguf", sha256=digest(profile), size_bytes=18 * GIB)
    artifact = Artifact(format="gguf", files=(file,), source=f"hf://example/{profile}@1a2b3c4")
    return Launch(
        profile=profile, config="q4-cuda", engine="llama.cpp", backend="cuda", artifact=artifact, context=16384, lanes=4
    )


def decision(n: int, kind: DecisionKind, replica: str, cause: Cause, **more: object) -> Decision:
    profile = replica.partition("/")[0]
    classes = {
        DecisionKind.PLACE: ActionClass.SCALE_UP,
        DecisionKind.MOVE: ActionClass.REPAIR,
        DecisionKind.CHANGE: ActionClass.ROLLOUT,
        DecisionKind.REMOVE: ActionClass.REMOVE,
        DecisionKind.CANNOT_PLACE: ActionClass.SCALE_UP,
    }
    fields: dict[str, object] = {"action_class": classes[kind], "risk": Risk.ROUTINE, "change_set": n, **more}
    return Decision(n=n, kind=kind, replica=replica, profile=profile, cause=cause, **fields)  # type: ignore[arg-type]


def story() -> Plan:
    """One place, one move, two changes, one removal of a last replica, one replica that fits nowhere."""
    intent = CauseKind.INTENT
    decisions = (
        decision(
            1,
            DecisionKind.PLACE,
            "llama-70b/5",
            Cause(kind=intent, detail="replicas 4 => 5", at="profiles.d/llama-70b.yaml:8:11"),
            target=Seat(host="eu1-gpu-09", devices=("gpu0", "gpu1")),
            cost=Cost(copy_bytes=132 * GIB, start_ms=232_000),
        ),
        decision(
            2,
            DecisionKind.MOVE,
            "qwen-32b/2",
            Cause(kind=CauseKind.DRAIN, detail="host is draining: fan alarm", at="fleet.d/drains/eu1-gpu-03.yaml:3:1"),
            source=Seat(host="eu1-gpu-03", devices=("gpu4",)),
            target=Seat(host="eu1-gpu-11", devices=("gpu2",)),
            cost=Cost(copy_bytes=62 * GIB, start_ms=107_000),
        ),
        *(
            decision(
                n,
                DecisionKind.CHANGE,
                f"whisper/{n - 2}",
                Cause(kind=intent, detail="lanes 16 => 24", at="profiles.d/whisper.yaml:12:5"),
                source=Seat(host=f"eu1-gpu-0{n + 2}", devices=("gpu7",)),
                target=Seat(host=f"eu1-gpu-0{n + 2}", devices=("gpu7",)),
                changes=(Change(field="lanes", old="16", new="24"),),
                cost=Cost(start_ms=18_000, dip=1),
            )
            for n in (3, 4)
        ),
        decision(
            5,
            DecisionKind.REMOVE,
            "bge-m3/1",
            Cause(kind=intent, detail="profile removed"),
            source=Seat(host="eu1-gpu-02", devices=("gpu3",)),
            last_replica=True,
            risk=Risk.DESTRUCTIVE,
        ),
        decision(
            6,
            DecisionKind.CANNOT_PLACE,
            "mixtral/2",
            Cause(kind=intent, detail="replicas 1 => 2", at="profiles.d/mixtral.yaml:6:11"),
        ),
    )
    full = {"code": "GO601", "detail": "GPU memory", "need": 47 * GIB, "have": int(37.4 * GIB), "unit": "bytes"}
    lines = (
        *(HostLine(host=f"eu1-gpu-{n:02}", **full) for n in (1, 2, 4, 5, 6, 8, 11, 12)),
        HostLine(host="eu1-gpu-03", code="GO603", detail="draining"),
    )
    report = Report(
        unplaced=(
            Unplaced(
                replica="mixtral/2",
                code="GO601",
                detail="fits on none of 12 hosts",
                hosts=lines,
                nearest="eu1-gpu-12",
                short_bytes=int(9.6 * GIB),
            ),
        ),
        choices=(
            Choice(
                replica="llama-70b/5",
                host="eu1-gpu-09",
                runner_up="eu1-gpu-10",
                terms=(
                    Term(name="domain shortfall", winner=0, runner_up=1),
                    Term(name="start", winner=232_000, runner_up=232_000),
                ),
                fits=4,
                rejected=lines,
            ),
        ),
        shortfalls=(
            Shortfall(profile="llama-70b", code="GO611", detail="stands in fewer racks than wanted", want=3, have=2),
        ),
        unchanged=36,
    )
    placement = tuple(
        Assignment(
            replica=replica_id(p, n),
            profile=p,
            seat=Seat(host=f"eu1-gpu-{h:02}", devices=("gpu0",)),
            launch=digest(p),
            device_bytes=20 * GIB,
            host_bytes=2 * GIB,
        )
        for p, n, h in (
            ("llama-70b", 1, 1),
            ("llama-70b", 2, 4),
            ("llama-70b", 3, 7),
            ("llama-70b", 4, 8),
            ("llama-70b", 5, 9),
            ("mixtral", 1, 10),
            ("qwen-32b", 1, 1),
            ("qwen-32b", 2, 11),
            ("qwen-32b", 3, 5),
            ("whisper", 1, 5),
            ("whisper", 2, 6),
        )
    )
    profiles = ("llama-70b", "mixtral", "qwen-32b", "whisper")
    return Plan(
        id="20261129T0907Z-7f3a2c19",
        fleet=digest("fleet"),
        scope="prod-eu",
        created_ms=NOW,
        parent=digest("parent"),
        intent=IntentRef(digest=digest("intent"), commit=COMMIT, subject="Fifth llama-70b, drop bge-m3"),
        snapshot=SnapshotRef(source=SnapshotSource.LIVE, observed_ms=OBSERVED, digest=digest("snap")),
        planner=PlannerRef(version="1.4.2", evaluated=412),
        decisions_digest=DECISIONS,
        reads=ReadSet(
            profiles=tuple(ProfileDigest(profile=p, digest=digest(p)) for p in profiles),
            hosts=(Generation(host="eu1-gpu-02", generation=118), Generation(host="eu1-gpu-09", generation=64)),
        ),
        decisions=decisions,
        placement=placement,
        launches=tuple(launch(p) for p in profiles),
        terms=tuple(Terms(profile=p, serves=(p,), replicas_min=1, priority=100) for p in profiles),
        report=report,
    )


def quiet() -> Plan:
    """A plan without decisions."""
    return replace(story(), decisions=(), report=Report(unchanged=42))


def many(count: int) -> Plan:
    """A plan of `count` placements with long names, one of which tries to break Markdown."""
    made = tuple(
        decision(
            n,
            DecisionKind.PLACE,
            f"model-with-quite-a-long-name-{n:04}/1",
            Cause(
                kind=CauseKind.INTENT,
                detail="replicas 0 => 1",
                at=f"profiles.d/model-with-quite-a-long-name-{n:04}.yaml:8:11",
            ),
            target=Seat(host=f"host-with-a-long-name-{n % 64:03}", devices=("gpu0",)),
            cost=Cost(copy_bytes=n * GIB, start_ms=5_000),
        )
        for n in range(1, count + 1)
    )
    return replace(story(), decisions=made, report=Report(unchanged=0))
