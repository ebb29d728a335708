"""`gridops plans` and `gridops explain`: only what verifies is shown, and the chain is walked backwards."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridops.base.record import from_data, to_bytes
from gridops.cli import exits
from gridops.files.branch import Writing
from gridops.files.git import Checkout
from gridops.files.projection import PlanBranch
from gridops.model.plan import Plan, Retirement
from gridops.trust.envelope import seal
from gridops.trust.keys import MachineSigner
from tests.cli.test_plan import _record, enlarge
from tests.render.plans import quiet, story


@pytest.fixture
def stored(trusted) -> Plan:
    plan = replace(story(), fleet=trusted.fleet)
    trusted.write(plan)
    return plan


def test_stored_plans_are_listed_with_their_results(trusted, stored, call) -> None:
    other = replace(quiet(), fleet=trusted.fleet, id="20261129T1007Z-00000000", scope="lab")
    trusted.write(other)
    trusted.branch().write_result(stored.id, {"outcome": "done"})
    lines = call("-C", trusted.root, "plans", "list").out.splitlines()
    assert lines[0].split() == ["PLAN", "SCOPE", "RESULT", "DECISIONS"]
    assert lines[1].split()[:3] == [stored.id, "prod-eu", "done"]
    assert lines[1].endswith("1 place, 1 move, 2 change, 1 remove, 1 not placed")
    assert lines[2].split()[:2] == [other.id, "lab"]
    document = call("-C", trusted.root, "--scope", "lab", "plans", "list", "-o", "json").json
    assert document["plans"] == [{"id": other.id, "scope": "lab", "headline": "no changes", "outcome": None}]


def test_a_plan_that_was_applied_names_the_one_that_was_carried_out(trusted, stored, call) -> None:
    stamp, _, digest = stored.id.partition("-")
    applied = replace(stored, id=f"20991129T1007Z-{digest}")
    elsewhere = replace(stored, id=f"20991129T1008Z-{digest}", scope="lab")
    trusted.write(applied)
    trusted.write(elsewhere)
    trusted.branch().write_result(applied.id, {"outcome": "done"})
    found = call("-C", trusted.root, "plans", "list", "-o", "json").json["plans"]
    assert {(p["id"], p["outcome"], p.get("carried_out_as")) for p in found} == {
        (stored.id, None, applied.id), (applied.id, "done", None), (elsewhere.id, None, None),
    }  # fmt: skip
    lines = call("-C", trusted.root, "plans", "list").out.splitlines()
    assert next(line for line in lines if line.startswith(stamp)).split()[2:4] == ["see", "20991129T1007Z"]


def test_a_stored_plan_is_shown_in_every_form(trusted, stored, call) -> None:
    text = call("-C", trusted.root, "plans", "show", "7f3a2c19").out
    assert "llama-70b/5" in text
    assert text.rstrip().endswith("Result: none yet; nobody applied it.")
    document = call("-C", trusted.root, "plans", "show", "7f3a", "-o", "json").json
    assert from_data(Plan, {k: v for k, v in _record(document).items() if k not in ("outcome", "result")}) == stored
    assert call("-C", trusted.root, "plans", "show", "7f3a", "-o", "yaml").out.startswith("# 7f3a2c19 prod-eu: ")
    assert call("-C", trusted.root, "plans", "show", "7f3a", "-o", "markdown").out.startswith("<!-- gridops:plan")
    trusted.branch().write_result(stored.id, {"outcome": "done", "steps": []})
    assert "outcome: done" in call("-C", trusted.root, "plans", "show", "7f3a").out


RESULT = {
    "applied_ms": 4099115220000,
    "applied": "2099-11-29T10:07:00Z",
    "by": "ana",
    "approved_by": ["ana", "mira"],
    "outcome": "done",
    "ended": "2099-11-29T10:09:00Z",
}


def test_a_plan_that_was_applied_says_when_by_whom_as_which_and_how_it_ended(trusted, stored, call) -> None:
    applied = replace(stored, id=f"20991129T1007Z-{stored.id.rpartition('-')[2]}")
    trusted.write(applied)
    trusted.branch().write_result(applied.id, RESULT)
    said = "Result: applied 2099-11-29T10:07:00Z by ana, approved by ana, mira"
    shown = call("-C", trusted.root, "plans", "show", stored.id).out
    assert f"{said} as {applied.id}: done.\n  gridops plans show {applied.id}\n" in shown
    assert f"{said}: done.\n" in call("-C", trusted.root, "plans", "show", applied.id).out
    assert f"{said} as" in call("-C", trusted.root, "plans", "show", stored.id, "-o", "markdown").out
    document = call("-C", trusted.root, "plans", "show", stored.id, "-o", "json").json
    assert document["outcome"] is None
    assert document["result"] == {
        "plan": applied.id, "outcome": "done", "applied": RESULT["applied"], "ended": RESULT["ended"],
        "by": "ana", "approved_by": ["ana", "mira"],
    }  # fmt: skip


def test_an_apply_of_other_decisions_or_another_scope_is_not_the_result_of_a_plan(trusted, stored, call) -> None:
    for other in (replace(stored, id="20991129T1007Z-00000000"), replace(stored, id=stored.id, scope="lab")):
        trusted.write(other)
        folder = f"plans/{other.scope}/{other.id}"
        trusted.branch().branch.commit(
            Writing(files={f"{folder}/result.yaml": b"outcome: done\n"}, message="a result of something else")
        )
    shown = call("-C", trusted.root, "--scope", "prod-eu", "plans", "show", stored.id).out
    assert "Result: none yet" in shown


def test_a_result_that_cannot_be_read_says_so_and_hides_nothing(trusted, stored, call) -> None:
    file = f"plans/{stored.scope}/{stored.id}/result.yaml"
    trusted.branch().branch.commit(Writing(files={file: b"outcome: [\n"}, message="torn"))
    shown = call("-C", trusted.root, "plans", "show", stored.id).out
    assert "Result: applied: outcome not known.\noutcome: [" in shown


def test_a_hand_edited_plan_is_refused_by_name_and_line(trusted, stored, call) -> None:
    branch = trusted.branch()
    file = f"plans/prod-eu/{stored.id}/plan.yaml"
    text = branch.read(stored.id).yaml.replace("eu1-gpu-09", "eu1-gpu-10", 1)
    branch.branch.commit(Writing(files={file: text.encode()}, message="looks better"))
    for args in (["plans", "show", "7f3a"], ["plans", "diff", "7f3a", "7f3a"], ["explain", "a/1", "--plan", "7f3a"]):
        answer = call("-C", trusted.root, *args, "-o", "json")
        assert answer.code == exits.REFUSED
        assert answer.json["error"]["code"] == "GO415"
        assert answer.json["error"]["subject"] == file
        assert "eu1-gpu-10" in "".join(answer.json["error"]["evidence"])


def test_a_plan_by_a_stranger_or_of_another_place_is_refused(trusted, stored, call) -> None:
    stranger = MachineSigner.from_seed(b"s" * 32)
    other = replace(stored, id="20261129T0908Z-c08e11d4", decisions_digest="sha256:c08e11d4" + "00" * 28)
    sealed = seal("plan", to_bytes(other), stranger)
    trusted.branch().write(other, sealed)
    answer = call("-C", trusted.root, "plans", "show", "c08e11d4", "-o", "json")
    assert (answer.code, answer.json["error"]["code"]) == (exits.REFUSED, "bad_signature")
    branch = trusted.branch()
    moved = {
        f"plans/lab/{stored.id}/{name}": text.encode()
        for name, text in zip(("plan.yaml", "sigs/controller.0.json"), branch.read(stored.id)[:2], strict=True)
    }
    branch.branch.commit(Writing(files=moved, message="moved"))
    answer = call("-C", trusted.root, "--scope", "lab", "plans", "show", stored.id, "-o", "json")
    assert (answer.code, answer.json["error"]["code"]) == (exits.REFUSED, "GO415")


def test_without_plans_or_root_it_says_what_is_missing(fleet, call) -> None:
    assert "No plans on branch gridops/plans." in call("-C", fleet, "plans", "list").out
    answer = call("-C", fleet, "plans", "show", "7f3a")
    assert (answer.code, "gridops plans list" in answer.err) == (exits.FAILED, True)
    PlanBranch(Checkout(fleet)).write(story(), '{"signatures": []}')
    answer = call("-C", fleet, "plans", "show", "7f3a")
    assert (answer.code, "no root of trust" in answer.err) == (exits.FAILED, True)


def test_two_plans_are_compared_decision_by_decision(trusted, stored, call) -> None:
    moved = replace(stored.decisions[0], target=replace(stored.decisions[0].target, host="eu1-gpu-12"))
    other = replace(
        stored,
        id="20261129T0915Z-c08e11d4",
        decisions_digest="sha256:c08e11d4" + "00" * 28,
        decisions=(moved, *stored.decisions[1:4]),
    )
    trusted.write(other)
    answer = call("-C", trusted.root, "plans", "diff", "7f3a2c19", "c08e11d4", "--detailed-exitcode")
    assert answer.code == exits.CHANGES
    lines = answer.out.splitlines()
    assert any(line.startswith("  * + llama-70b/5") and "other host" in line for line in lines)
    assert any(line.startswith("    > qwen-32b/2") and line.endswith("same") for line in lines)
    assert lines[-1] == "3 of 6 decisions differ."
    document = call("-C", trusted.root, "plans", "diff", "7f3a2c19", "c08e11d4", "-o", "json").json
    likeness = {r["replica"]: r["likeness"] for r in document["replicas"]}
    assert likeness["llama-70b/5"] == "other_host"
    assert likeness["bge-m3/1"] == "only_in_the_first"
    same = call("-C", trusted.root, "plans", "diff", "7f3a2c19", "7f3a2c19", "--detailed-exitcode")
    assert same.code == exits.OK
    assert "The decisions are the same." in same.out


def test_a_placed_replica_is_explained_back_to_its_commit(fleet, call, git) -> None:
    text = call("-C", fleet, "explain", "smollm/1").out
    assert text.startswith("smollm/1 => alpha")
    assert "because  profile is new   profiles.d/smollm.yaml:" in text
    assert f'{git(fleet, "rev-parse", "HEAD")[:7]} "First fleet"' in text
    assert "2 hosts fit; alpha was chosen, next best beta" in text
    assert "decided  " in text
    document = call("-C", fleet, "explain", "smollm/1", "-o", "json").json
    assert document["choice"]["host"] == "alpha"
    assert document["decision"]["cause"]["at"].startswith("profiles.d/smollm.yaml:")


def test_an_unplaced_replica_is_explained_host_by_host(fleet, call, git) -> None:
    enlarge(fleet, git)
    answer = call("-C", fleet, "explain", "smollm/5")
    assert answer.code == exits.OK
    assert answer.out.startswith("smollm/5 => nowhere")
    assert "alpha, beta" in answer.out
    assert "gridops rule GO" in answer.out


def test_a_stored_plan_explains_its_own_replicas(trusted, stored, call) -> None:
    text = call("-C", trusted.root, "explain", "mixtral/2", "--plan", "7f3a2c19").out
    assert text.startswith("mixtral/2 => nowhere")
    assert "8 hosts" in text
    assert "It stood there before" in call("-C", trusted.root, "explain", "qwen-32b/1", "--plan", "7f3a2c19").out


def test_a_replica_that_is_in_no_plan_is_told_apart(trusted, stored, call) -> None:
    retired = replace(
        stored, id="20261129T0920Z-7f3a2c19", retirements=(Retirement(profile="bge-m3", since_ms=1),), decisions=()
    )
    trusted.write(retired)
    where = ["-C", trusted.root, "explain", "--plan", retired.id]
    assert "it is retired until" in call(*where, "bge-m3/1").err
    assert "of whisper there are whisper/1, whisper/2" in call(*where, "whisper/9").err
    assert "did you mean `whisper/1`?" in call(*where, "whispr/1").err
    assert "it is retired until" in call(*where, "bge-m3").err
    assert "did you mean `whisper`?" in call(*where, "whispr").err
    assert call(*where, "whisper/x").code == exits.USAGE


def test_a_profile_lists_its_replicas_with_where_state_reason_and_the_command_for_more(fleet, call, git) -> None:
    enlarge(fleet, git)
    answer = call("-C", fleet, "explain", "smollm")
    assert answer.code == exits.OK
    head, _, *rows, _, more = answer.out.splitlines()
    assert head.startswith("smollm: 5 replicas, plan ")
    assert rows[0].split() == ["REPLICA", "WHERE", "STATE", "REASON"]
    assert [row.split()[0] for row in rows[1:]] == [f"smollm/{n}" for n in range(1, 6)]
    placed, left_out = rows[1].split(maxsplit=3), rows[5].split(maxsplit=3)
    assert placed[1:3] == ["alpha", "unknown"]
    assert placed[3] == "place: profile is new"
    assert left_out[1] == "nowhere"
    assert left_out[3].startswith("fits on none of 2 hosts")
    assert more.startswith("More: gridops explain smollm/")
    assert call("-C", fleet, *more.split()[2:]).out.splitlines()[0].split()[:3] == [more.split()[-1], "=>", "nowhere"]
    document = call("-C", fleet, "explain", "smollm", "-o", "json").json
    assert (document["schema"], document["hypothetical"]) == ("gridops.explain-profile/1", True)
    assert document["replicas"][4]["where"] is None
    assert document["replicas"][4]["more"] == "gridops explain smollm/5"


def test_a_stored_plan_lists_replicas_and_says_how_to_read_more_of_it(trusted, stored, call) -> None:
    text = call("-C", trusted.root, "explain", "mixtral", "--plan", "7f3a2c19").out
    assert "mixtral/2  nowhere" in text
    assert "9.7 GiB short" in text
    assert text.endswith("More: gridops explain --plan 7f3a2c19 mixtral/2\n")
