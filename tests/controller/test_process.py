"""The real process over real TLS: killed between any two steps it repeats nothing, and it ends as it is told."""

from __future__ import annotations

import signal
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from gridops.base.errors import Refusal
from gridops.base.ids import PlanId
from gridops.base.record import from_data
from gridops.model.plan import Plan, ReadSet
from tests.controller.fleet import AUTOMATIC, Fleet, profile
from tests.controller.watching import Watch, gridops, now_ms


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    fleet = Fleet(tmp_path, now_ms=now_ms() - 60_000)
    fleet.begin()
    made = Watch(fleet)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.kill()


def beat(watch: Watch, *hosts: str) -> None:
    for name in hosts or tuple(watch.fleet.agents):
        watch.fleet.agents[name].talk(watch.post, now_ms())


def scope(watch: Watch) -> dict[str, object]:
    found = watch.get("/v1/status")["scopes"][0]
    assert isinstance(found, dict)
    return found


def apply(watch: Watch, names: tuple[str, ...] = ()) -> dict[str, object]:
    """What `gridops apply` does: read the plan, sign what it binds to, send."""
    waits = watch.until(lambda: scope(watch).get("proposal"))
    document = watch.get(f"/v1/plans/{waits['id']}")
    plan = from_data(Plan, document["plan"])
    reads = from_data(ReadSet, document["binding"]["reads"])
    approval = watch.fleet.approval(plan, now_ms(), reads=reads, names=names)
    answer = watch.operator(watch.fleet.request("apply", now_ms(), plan=PlanId(plan.id), approvals=(approval,)))
    assert isinstance(answer, dict)
    return answer


def beating(watch: Watch, question: object, seconds: float = 30.0) -> object:
    """Poll both hosts until the answer is true."""

    def ask() -> object:
        beat(watch)
        return question()  # type: ignore[operator]

    return watch.until(ask, seconds)


def ready(watch: Watch) -> list[str]:
    return sorted(r for a in watch.fleet.agents.values() for r, s in a.replicas().items() if s == "ready")


def test_killed_between_any_two_steps_it_repeats_no_effect(watch: Watch) -> None:
    fleet = watch.fleet
    watch.start()
    beating(watch, lambda: scope(watch).get("proposal"))
    watch.kill()  # a proposal waits
    watch.start()
    beating(watch, lambda: watch.http.get("/readyz").status_code == 200)
    assert apply(watch)["applied"]
    watch.kill()  # the target is set, nothing was sent
    watch.start()
    agents = list(fleet.agents.values())
    beating(watch, lambda: any(k == "load" for a in agents for k, _ in a.executed))
    watch.kill()  # the host has acted, its receipt was not sent
    watch.start()
    beating(watch, lambda: any(k == "warm" for a in agents for k, _ in a.executed))
    beat(watch)
    watch.kill()  # the receipt of the start was acknowledged
    watch.start()
    beating(watch, lambda: (scope(watch).get("apply") or {}).get("outcome") == "done")  # type: ignore[attr-defined]
    assert ready(watch) == ["coder/1"]
    assert sorted(k for a in agents for k, _ in a.executed) == ["load", "warm"]
    assert sum(len(a.room.spawned) for a in agents) == 1
    fleet.commit({"policies/mode.yaml": AUTOMATIC, "profiles.d/coder.yaml": profile(replicas=2)})
    beating(watch, lambda: ready(watch) == ["coder/1", "coder/2"])
    log = watch.log.read_text()
    watch.end()
    assert sum(len(a.room.spawned) for a in agents) == 2
    for secret in ("gk1_test", fleet.seed.hex(), "PRIVATE KEY"):
        assert secret not in log


def test_a_local_commit_is_seen_within_a_moment(watch: Watch) -> None:
    watch.start()
    watch.until(lambda: watch.get("/v1/status")["intent"].get("commit"))
    commit = watch.fleet.commit({"README.md": "hello\n"}, "hello")
    began = time.monotonic()
    watch.until(lambda: watch.get("/v1/status")["intent"].get("commit") == commit)
    assert time.monotonic() - began < 5.0, "about 0.3 s on an idle machine"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_it_ends_cleanly_when_told(watch: Watch, number: int, code: int) -> None:
    watch.start()
    assert watch.end(number) == code
    assert "Traceback" not in watch.log.read_text()


def test_a_taken_port_and_a_missing_key_are_bad_set_ups(watch: Watch) -> None:
    fleet = watch.fleet
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ran = gridops(fleet, "watch", "--state", str(fleet.state), "--listen", address)
    assert ran.returncode == 78
    assert f"cannot listen on {address}" in ran.stderr
    (fleet.state / "keys" / "controller.seed").unlink()
    ran = gridops(fleet, "watch", "--state", str(fleet.state))
    assert ran.returncode == 78
    assert "controller.seed: missing" in ran.stderr


def test_once_looks_plans_and_ends(watch: Watch) -> None:
    ran = gridops(watch.fleet, "watch", "--once", "--state", str(watch.fleet.state))
    assert ran.returncode == 0, ran.stderr
    assert "intent" in ran.stderr


def test_rebuild_while_the_controller_runs_is_busy_and_afterwards_restarts_no_engine(watch: Watch) -> None:
    fleet = watch.fleet
    watch.start()
    beating(watch, lambda: scope(watch).get("proposal"))
    apply(watch)
    beating(watch, lambda: (scope(watch).get("apply") or {}).get("outcome") == "done")  # type: ignore[attr-defined]
    watch.until(lambda: "result.yaml" in fleet.git("log", "--branches", "--name-only", "--format="))
    assert gridops(fleet, "controller", "rebuild", "--state", str(fleet.state)).returncode == 75
    (fleet.state / "journal.sqlite").unlink()
    watch.kill()
    ran = gridops(fleet, "controller", "rebuild", "--state", str(fleet.state))
    assert ran.returncode == 0, ran.stderr
    assert "1 replica\n" in ran.stdout
    done = [a.executed[:] for a in fleet.agents.values()]
    watch.start()
    beating(watch, lambda: scope(watch)["models"][0]["ready"] == 1)  # type: ignore[index]
    for _ in range(5):
        beat(watch)
        time.sleep(0.1)
    assert [a.executed for a in fleet.agents.values()] == done
    fleet.commit({"policies/mode.yaml": AUTOMATIC, "profiles.d/coder.yaml": profile(replicas=2)})
    beating(watch, lambda: ready(watch) == ["coder/1", "coder/2"])
    watch.end()


def test_the_listener_refuses_what_nobody_signed_and_answers_in_json(watch: Watch) -> None:
    watch.start()
    watch.until(lambda: watch.get("/v1/status")["intent"].get("commit"))
    _refuses_mutations(watch)
    _bounds_bodies(watch)
    _speaks_only_tls_1_3(watch)
    _serves_reads(watch)
    watch.end()


def _refuses_mutations(watch: Watch) -> None:
    fleet = watch.fleet
    unsigned = {
        "/v1/operator": {"request": "{}"},
        "/v1/join": {"request": "{}"},
        "/v1/beat": {"heartbeat": "{}"},
    }
    for path, body in unsigned.items():
        answer = watch.http.post(path, json=body)
        assert answer.status_code in (400, 401, 403, 409), path
        assert answer.json()["error"]["code"] in ("bad_envelope", "bad_schema"), answer.text
        assert watch.http.get(path).status_code == 405
    for path, body in (("/v1/operator", b"not json"), ("/v1/operator", b"[]"), ("/v1/beat", b'{"more": 1}')):
        answer = watch.http.post(path, content=body)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "bad_request"
    stranger = type(fleet.person).from_seed(b"q" * 32)
    answer = watch.http.post(
        "/v1/operator", json={"request": fleet.request("freeze", now_ms(), signer=stranger, reason="x")}
    )
    assert answer.status_code == 401
    assert answer.json()["error"]["exit_code"] == 4
    assert scope(watch)["mode"]["effective"] == "recommend"  # type: ignore[index]


def _bounds_bodies(watch: Watch) -> None:
    answer = watch.http.post("/v1/operator", content=b"x" * (3 << 20))
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "too_large"

    def endless() -> Iterator[bytes]:
        for _ in range(64):
            yield b"y" * (64 << 10)

    try:
        answer = watch.http.post("/v1/operator", content=endless())
        assert answer.status_code == 413
    except httpx.HTTPError:
        pass  # the listener may hang up before we have said everything


def _speaks_only_tls_1_3(watch: Watch) -> None:
    where = urlsplit(watch.url)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection((where.hostname, where.port), 5) as raw, pytest.raises((ssl.SSLError, OSError)):
        context.wrap_socket(raw)


def _serves_reads(watch: Watch) -> None:
    assert watch.http.get("/nowhere").json()["error"]["code"] == "not_found"
    assert watch.http.get("/v1/events?after=x").status_code == 400
    assert watch.http.get("/v1/plans/ffffffff").json()["error"]["code"] == "GO424"
    events = watch.get("/v1/events?after=0")
    assert events["events"][0]["n"] <= events["newest"]
    assert watch.get(f"/v1/events?after={events['newest']}")["events"] == []
    assert watch.get("/healthz") == {"status": "ok", "reasons": []}
    ready = watch.http.get("/readyz")
    assert ready.status_code == 503, "admitted hosts have not spoken, and the journal knows nothing of them"
    assert ready.json()["reasons"][0].startswith("not heard since the start: ")
    assert watch.get("/v1/roots")["roots"] == [watch.fleet.root_text]
    page = watch.http.get("/metrics").text
    assert 'gridops_mode_info{scope="default",mode="recommend"} 1' in page
    assert 'gridops_refusals_total{code="bad_envelope"}' in page
    assert page.endswith("\n")
    paths = watch.get("/openapi.json")["paths"]
    assert "/v1/status" in paths


def test_an_agent_that_is_not_admitted_is_told_so(watch: Watch) -> None:
    watch.fleet.commit({"fleet.d/keys/beta.yaml": None})
    watch.start()
    watch.until(lambda: watch.get("/v1/status")["intent"].get("commit"))
    with pytest.raises(Refusal) as no:
        beat(watch, "beta")
    assert no.value.code == "not_admitted"
    beat(watch, "alpha")
    watch.end()
