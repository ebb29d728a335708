"""From files to intent: every field arrives where the model wants it, defaults hold, and places are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from gridops.base.errors import ConfigError
from gridops.base.ids import CommitId
from gridops.base.record import digest_of
from gridops.files.load import check, load, load_tightening
from gridops.files.tree import MemoryTree, WorkingTree
from gridops.model.fleet import DeviceKind, Drain, FleetSettings, HostClass
from gridops.model.intent import Desired
from gridops.model.policy import ActionClass, ApprovalPolicy, Mode, Risk
from gridops.model.profile import Downtime, FootprintSource, Profile, Timing
from tests.files.repo import APPROVALS, BUDGETS, DIGEST, DRAIN, FLEET, GOOD, HOSTS, MODE, PROFILE, added, checked

HEAD = "apiVersion: gridops/v1\n"
EVERYTHING = Path(__file__).parent / "everything"
"""Every field of every kind, once."""


def desired(files: dict[str, str]) -> Desired:
    found = checked(files)
    assert found.intent is not None, "\n".join(str(p) for p in found.problems)
    return found.intent.desired


def test_every_field_of_every_kind_arrives() -> None:
    intent = load(WorkingTree(EVERYTHING))
    made = intent.desired
    forge = made.host("forge")  # type: ignore[arg-type]
    assert forge is not None
    assert (forge.scope, forge.tier, forge.max_replicas, forge.price_per_hour_micro) == (
        "office",
        "confidential",
        6,
        800_000,
    )
    assert [(d.level, d.value) for d in forge.domains] == [("rack", "r1"), ("room", "no"), ("zone", "12")]
    gpu = forge.device("gpu0")  # type: ignore[arg-type]
    assert gpu is not None
    assert (gpu.kind, gpu.memory_bytes, gpu.model, gpu.numa, gpu.peers) == (
        DeviceKind.GPU,
        48 << 30,
        "RTX 6000 Ada",
        0,
        ("gpu1",),
    )
    assert forge.disk is not None
    assert (forge.disk.artifacts_bytes, forge.disk.keep_free_bytes) == (1800 << 30, 50 << 30)
    assert [(r.engine, r.backend) for r in forge.runtimes] == [("llama.cpp", "cuda"), ("vllm", "cuda")]
    assert [(link.name, link.rate_bps) for link in forge.links] == [("download", 10**9)]
    mac = made.host("ana-mac")  # type: ignore[arg-type]
    assert mac is not None
    assert mac.absence is not None
    assert (mac.host_class, mac.owner, mac.absence.replace_after_ms) == (HostClass.OPPORTUNISTIC, "ana", 600_000)
    assert mac.devices[0].gpu_share_ppm == 750_000
    cloud = made.host("cloud-eu")  # type: ignore[arg-type]
    assert cloud is not None
    assert (cloud.endpoint, cloud.models, cloud.credential) == (
        "https://inference.example/v1",
        ("gpt-oss-120b",),
        "secret:cloud-eu",
    )
    assert made.keys[0].previous == ("ed25519:" + "5b" * 32,)
    assert (made.keys[0].admitted_by, made.keys[0].admitted_at_ms, made.keys[0].expunged) == (
        "mira",
        1795943520000,
        False,
    )
    assert made.drains == (Drain(host=forge.id, reason="driver upgrade", by="mira", until_ms=1796025600000),)  # type: ignore[arg-type]
    assert made.fleet == FleetSettings(
        controller="https://gridops.office.example:7443",
        remote_url="git@forge.example:acme/fleet.git",
        remote_branch="main",
        fetch_every_ms=30_000,
        plans_branch="same",
        plans_path="plans",
        currency="CHF",
    )


def test_every_field_of_a_profile_arrives() -> None:
    coder = load(WorkingTree(EVERYTHING)).desired.profile("coder")  # type: ignore[arg-type]
    assert coder is not None
    assert (coder.scope, coder.serves, coder.replicas_min, coder.replicas_max) == ("office", ("gpt-oss-coder",), 1, 3)
    assert (coder.priority, coder.max_per_host, coder.downtime, coder.idle_unload_ms) == (
        100,
        1,
        Downtime.NEVER,
        3_600_000,
    )
    assert coder.spread is not None
    assert (coder.spread.by, coder.spread.min) == ("rack", 1)
    assert coder.placement.pins == ("forge",)
    assert (coder.colocation.max, coder.colocation.exclude) == (2, ("video-gen",))
    assert [(w.workload, w.score_ppm) for w in coder.workloads] == [("coding", 1_000_000), ("research", 800_000)]
    assert coder.demand.latency_slo_ms == 5_000
    assert coder.timing == Timing(
        load_ms=30_000, warm_ms=5_000, min_residency_ms=300_000, scale_down_after_ms=900_000, drain_ms=120_000
    )
    assert (coder.restart.max, coder.restart.per_ms, coder.restart.backoff_ms) == (5, 600_000, 2_000)
    assert coder.renamed_from == "old-coder"
    assert [c.name for c in coder.configs] == ["q8-cuda", "q4-cuda"], "order is preference"
    first = coder.configs[0]
    assert (first.devices.count, first.devices.shard, first.devices.uneven, first.devices.link) == (
        2,
        "tensor",
        False,
        "peer",
    )
    assert (first.heads.attention, first.heads.kv, first.heads.vision, first.heads.vocabulary) == (40, 8, 16, 152_064)
    assert first.footprint.kv_per_1k_bytes == 12 << 20
    assert [(a.name, a.value) for a in first.args] == [("flash_attn", "true"), ("threads", "8")]
    assert first.artifact.files[0].sha256 == f"sha256:{DIGEST}"
    assert first.artifact.files[0].size_bytes == 98_362_432
    assert coder.configs[1].footprint.source is FootprintSource.DERIVED


def test_every_field_of_the_policies_arrives() -> None:
    made = load(WorkingTree(EVERYTHING)).desired
    mode = made.mode.of(made.hosts[0].scope)
    assert (mode.mode, mode.after, mode.until_ms, mode.reason) == (
        Mode.RECOMMEND,
        Mode.AUTOMATIC,
        1797321600000,
        "first week",
    )
    assert mode.automatic.allow == (ActionClass.REPAIR, ActionClass.SCALE_UP)
    assert (mode.automatic.allow_displace, mode.automatic.last_replica) == (("coder",), ("video-gen",))
    assert made.mode.default is Mode.OBSERVE
    budget = made.budgets.of(made.hosts[0].scope)
    assert (budget.actions.concurrent, budget.actions.cooldown_ms, budget.moves.per_hour) == (3, 30_000, 11)
    assert [(d.max_count, d.max_ppm, d.during) for d in budget.disruptions] == [
        (None, 100_000, "Mon-Fri 08:00-18:00 Europe/Paris"), (2, None, None),
    ]  # fmt: skip
    assert budget.price is not None
    assert (budget.price.max_per_hour_micro, budget.price.unknown) == (6_000_000, "allow")
    assert budget.windows[0].exclude == (ActionClass.REPAIR,)
    assert budget.plan_file_every_ms == 60_000
    assert (made.planning.headroom.memory_ppm, made.planning.heartbeat.mass_stale.share_ppm) == (60_000, 250_000)
    assert made.planning.tiers == ("public", "internal", "confidential")
    assert made.planning.workloads == ("coding", "general", "research", "video")
    assert (made.planning.look_ahead.growth_ppm, made.planning.search.portfolios) == (1_500_000, 32)
    assert made.approvals.need(Risk.DESTRUCTIVE).need == 2
    assert made.approvals.need(Risk.TRUST).root
    assert made.approvals.members("oncall") == ("jon", "mira")
    assert (made.approvals.expire_ms, made.approvals.execute_within_ms) == (1_200_000, 43_200_000)
    protection = {c.host_class: c for c in made.protection.classes}
    assert protection["opportunistic"].battery.pause_ppm == 120_000
    assert protection["dedicated"].thermal.recover == 75


def test_what_is_left_out_gets_the_model_s_default() -> None:
    made = desired(dict(GOOD))
    coder = made.profiles[0]
    bare = Profile(name=coder.name, scope=coder.scope, configs=coder.configs)
    assert (coder.priority, coder.timing, coder.restart, coder.demand) == (100, Timing(), bare.restart, bare.demand)
    assert (coder.scope, coder.modality, coder.downtime) == ("default", bare.modality, bare.downtime)
    assert made.approvals == ApprovalPolicy()
    assert made.fleet == FleetSettings()


@pytest.mark.parametrize(
    ("written", "low", "high"),
    [("2", 2, 2), ("0", 0, 0), ("{min: 2}", 2, 2), ("{max: 3}", 1, 3), ("{max: 0}", 0, 0), ("{min: 0}", 0, 1)],
)
def test_replicas_may_be_one_number_or_two_bounds(written: str, low: int, high: int) -> None:
    profile = GOOD[PROFILE].replace("{min: 1, max: 2}", written)
    coder = desired({**GOOD, PROFILE: profile}).profiles[0]
    assert (coder.replicas_min, coder.replicas_max) == (low, high)


@pytest.mark.parametrize(("written", "value"), [("unlimited", None), ("3", 3)])
def test_a_host_may_hold_any_number_when_the_file_says_so(written: str, value: int | None) -> None:
    profile = GOOD[PROFILE].replace("max_per_host: 2", f"max_per_host: {written}")
    assert desired({**GOOD, PROFILE: profile}).profiles[0].max_per_host == value


def test_a_risk_that_is_not_named_keeps_its_default_need() -> None:
    text = HEAD + "kind: Approvals\nrisks:\n  routine: {need: 0}\nroles: {oncall: [mira]}\n"
    made = desired(added(APPROVALS, text)).approvals
    assert made.need(Risk.ROUTINE).need == 0
    assert made.need(Risk.DESTRUCTIVE) == ApprovalPolicy().need(Risk.DESTRUCTIVE)
    assert [n.risk for n in made.risks] == list(Risk)


def test_defaults_lie_under_each_host_and_are_replaced_key_by_key() -> None:
    hosts = HEAD + (
        "kind: Hosts\nscope: lab\ndefaults:\n  tags: [a]\n  domains: {room: b, rack: r0}\n"
        "  devices: {cpu0: {kind: cpu, memory: 8GiB, reserve: 1GiB}}\n"
        "hosts:\n  one: {}\n  two: {tags: [c], domains: {rack: r2}, devices: {cpu0: {memory: 16GiB}}}\n"
    )
    one, two = desired({HOSTS: hosts}).hosts
    assert (one.tags, one.scope, one.devices[0].memory_bytes) == (("a",), "lab", 8 << 30)
    assert (two.tags, two.domain("rack"), two.domain("room")) == (("c",), "r2", "b")
    assert (two.devices[0].memory_bytes, two.devices[0].reserve_bytes) == (16 << 30, 1 << 30)


def test_the_meaning_does_not_depend_on_the_order_of_files_or_fields() -> None:
    lines = GOOD[PROFILE].splitlines(keepends=True)
    moved = "".join([*lines[:2], lines[3], lines[2], *lines[4:]])
    split = {**GOOD, PROFILE: moved}
    split["fleet.d/a.yaml"], split[HOSTS] = split[HOSTS], HEAD + "kind: Hosts\nhosts: {}\n"
    assert digest_of(desired(split)) == digest_of(desired(dict(GOOD)))


def test_things_and_fields_are_marked_where_they_stand() -> None:
    intent = checked({**GOOD, DRAIN: HEAD + "kind: Drain\nhost: forge\nreason: x\n"}).intent
    assert intent is not None
    expected = {
        "hosts/forge": f"{HOSTS}:4:3",
        "hosts/forge/devices": f"{HOSTS}:6:7",
        "hosts/forge/tags": f"{HOSTS}:10:11",
        "profiles/coder": f"{PROFILE}:3:7",
        "profiles/coder/replicas": f"{PROFILE}:4:11",
        "profiles/coder/placement": f"{PROFILE}:6:3",
        "profiles/coder/configs/q4": f"{PROFILE}:9:3",
        "profiles/coder/configs/q4/context": f"{PROFILE}:15:14",
        "mode/default": f"{MODE}:4:3",
        "mode/default/mode": f"{MODE}:5:11",
        "drains/forge": f"{DRAIN}:3:7",
    }
    assert {path: str(intent.marks[path]) for path in expected} == expected


def test_a_field_that_comes_from_defaults_is_marked_there() -> None:
    hosts = HEAD + "kind: Hosts\ndefaults: {devices: {cpu0: {kind: cpu, memory: 8GiB}}}\nhosts:\n  one: {}\n"
    intent = checked({HOSTS: hosts}).intent
    assert intent is not None
    assert str(intent.marks["hosts/one/devices"]) == f"{HOSTS}:3:21"


def test_an_empty_tree_is_an_empty_set_and_no_error() -> None:
    found = check(MemoryTree({}))
    assert found.problems == ()
    assert found.intent is not None
    assert found.intent.desired == Desired()


def test_a_fleet_without_hosts_is_a_proposal_and_not_an_error_in_every_profile() -> None:
    assert checked({k: v for k, v in GOOD.items() if k != HOSTS}).errors == 0


def test_load_carries_the_commit_and_refuses_with_every_problem() -> None:
    commit = CommitId("4d1c0aa" + "0" * 33)
    intent = load(MemoryTree(GOOD), commit=commit, subject="raise coder", dirty=True)
    assert (intent.commit, intent.subject, intent.dirty) == (commit, "raise coder", True)
    broken = {**GOOD, MODE: "kind: Mod\n", PROFILE: GOOD[PROFILE].replace("cuda", "cudaa")}
    with pytest.raises(ConfigError) as caught:
        load(MemoryTree(broken))
    assert len(caught.value.problems) == 3
    assert "and 2 more" in caught.value.message
    assert caught.value.exit_code == 3


def test_warnings_do_not_keep_the_files_from_being_used() -> None:
    found = checked({**GOOD, BUDGETS: HEAD + "kind: Budgets\nscopes:\n  default: {price: {max_per_hour: 1}}\n"})
    assert found.warnings == 1
    assert found.intent is not None


def test_a_file_that_is_wrong_inside_causes_no_second_complaint_elsewhere() -> None:
    """Others may refer to a host whose own declaration is broken: it is known by name."""
    hosts = GOOD[HOSTS].replace("256GiB", "256")
    found = checked({**GOOD, HOSTS: hosts, DRAIN: HEAD + "kind: Drain\nhost: forge\nreason: x\n"})
    assert [p.code for p in found.problems] == ["GO112"]


class TestTheKillSwitch:
    """Mode and drains by themselves."""

    def test_they_hold_while_the_rest_of_the_commit_is_broken(self) -> None:
        files = {**GOOD, PROFILE: "{", FLEET: "kind: 3", MODE: GOOD[MODE].replace("recommend", "observe")}
        files[DRAIN] = HEAD + "kind: Drain\nhost: forge\nreason: smoke\n"
        mode, drains, problems = load_tightening(MemoryTree(files))
        assert mode is not None
        assert mode.scopes[0].mode is Mode.OBSERVE
        assert [d.host for d in drains] == ["forge"]
        assert problems == ()

    @pytest.mark.parametrize(
        "text", ["", "{", "kind: Mode\n", GOOD[MODE].replace("recommend", "automtic"), GOOD[PROFILE], "\0"]
    )
    def test_a_mode_file_that_is_wrong_in_any_way_is_no_mode(self, text: str) -> None:
        mode, _, problems = load_tightening(MemoryTree({**GOOD, MODE: text}))
        assert mode is None
        assert problems

    def test_a_missing_mode_file_is_no_mode_and_no_problem_of_a_file(self) -> None:
        assert load_tightening(MemoryTree({HOSTS: GOOD[HOSTS]})) == (None, (), ())

    def test_one_broken_drain_does_not_silence_the_others(self) -> None:
        files = {
            **GOOD,
            "fleet.d/drains/forge.yaml": HEAD + "kind: Drain\nhost: forge\nreason: smoke\n",
            "fleet.d/drains/ana-mac.yaml": HEAD + "kind: Drain\nhost: ana-mac\n",
        }
        mode, drains, problems = load_tightening(MemoryTree(files))
        assert mode is not None
        assert [d.host for d in drains] == ["forge"]
        assert [p.code for p in problems] == ["GO204"]

    def test_a_scope_nobody_knows_tightens_nothing_and_blocks_nothing(self) -> None:
        text = GOOD[MODE] + "  lab: {mode: observe}\n"
        mode, _, problems = load_tightening(MemoryTree({**GOOD, MODE: text}))
        assert mode is not None
        assert problems == ()


def test_every_host_that_cannot_run_a_profile_is_counted() -> None:
    """More kinds of reasons than are listed: those left over are still counted, the largest group stands first."""
    sizes = {f"h{n}": f"{n}GiB" for n in range(1, 8)} | {"h9": "1GiB"}
    hosts = HEAD + "kind: Hosts\nhosts:\n"
    for name, size in sizes.items():
        runtimes = "runtimes: {llama.cpp: {backend: cuda}}"
        hosts += f"  {name}: {{devices: {{gpu0: {{kind: gpu, memory: {size}}}}}, {runtimes}}}\n"
    profile = GOOD[PROFILE].replace("require_tags: [always-on]", "forbid_tags: [never]")
    found = check(MemoryTree({HOSTS: hosts, PROFILE: profile}))
    notes = next(p.notes for p in found.problems if p.code == "GO322")
    assert notes[0].startswith("2 hosts")
    assert notes[-1] == "3 hosts: for other reasons"
    assert sum(int(note.split()[0]) for note in notes) == len(sizes)
