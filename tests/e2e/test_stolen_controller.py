"""A thief has the controller's machine, with every key on it, and meets a host that holds a signed catalog.

He may start and stop what people signed. Nothing else ever runs, with the real agent, over real TLS: not other files
that lie on the host, no further argument, no more context, no catalog of his own and none of before.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from examples.demo.stage import Stage, free_port
from gridops.base.ids import Digest
from gridops.base.record import digest_of, to_bytes
from gridops.cli.person import chain_of
from gridops.controller.statedir import StateDir
from gridops.model.action import Load, Warm
from gridops.model.profile import Artifact, ArtifactFile, EngineArg
from gridops.protocol.messages import Body, Grant
from gridops.protocol.open import open_grant
from gridops.trust.catalog import content
from gridops.trust.envelope import seal
from gridops.trust.keys import PersonSigner
from gridops.trust.release import open_catalog, seal_catalog
from tests.builders.tiny_gguf import Shape, write_tiny_gguf
from tests.e2e.impostor import Impostor, Player, Recorder
from tests.e2e.office import AUTOMATIC, Office, opened

HOST = "alpha"
CATALOG = "policies/trust/catalog.json"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def fleet(models: Path) -> Iterator[Office]:
    def founded(stage: Stage) -> None:
        (stage.fleet / "policies/mode.yaml").write_text(AUTOMATIC)

    with opened(models, (HOST,), founded) as fleet:
        yield fleet


def signs(fleet: Office, *words: str) -> str:
    """Somebody with a release key makes the next catalog, and commits it. Its envelope."""
    fleet.stage.run("gridops", "trust", "catalog", "--write", *words)
    fleet.in_force(fleet.stage.commit("What may run"))
    return (fleet.stage.fleet / CATALOG).read_text().strip()


def seen(fleet: Office) -> dict[str, Any]:
    state = str(fleet.stage.agent_state(HOST))
    found: dict[str, Any] = json.loads(fleet.stage.run("gridops-agent", "status", "--state", state, "-o", "json"))
    return found


class Thief:
    """Commands in the chain of the host, each signed with the stolen key."""

    def __init__(self, last: Grant, recorder: Recorder) -> None:
        self._last = last
        self._recorder = recorder

    def command(self, action: Warm | Load, catalog: int | None) -> tuple[str, Digest]:
        now_ms = time.time_ns() // 1_000_000
        body: Body = replace(
            self._last.body,
            seq=self._last.body.seq + 1,
            prev=digest_of(self._last.body),
            action=action,
            catalog=catalog,
            precondition=(),
        )
        self._last = replace(self._last, body=body, issued_ms=now_ms, not_after_ms=now_ms + 300_000)
        return seal("grant", to_bytes(self._last), self._recorder.signer), digest_of(body)


def other_files(models: Path) -> Artifact:
    """A model that lies on the host beside the signed one."""
    raw = write_tiny_gguf(models / "other.gguf", shape=Shape(context=1_024)).path.read_bytes()

    digest = Digest("sha256:" + hashlib.sha256(raw).hexdigest())
    return Artifact(format="gguf", files=(ArtifactFile(path="other.gguf", sha256=digest, size_bytes=len(raw)),))


def test_a_thief_with_every_key_of_the_controller_runs_no_other_code(fleet: Office, models: Path) -> None:
    stage, story, keys = fleet.stage, fleet.story, StateDir(fleet.state)
    old = signs(fleet)
    newest = signs(fleet, "--allow", "tiny/cpu:threads=1..2")
    assert old != newest
    backstage = f"127.0.0.1:{free_port()}"
    recorder = Recorder(f"https://{backstage}", keys.tls_cert, keys.signer())
    stage.stop("controller")
    with Impostor(story.port, keys.tls_cert, keys.tls_key, recorder) as between:
        fleet.start_controller("--listen", backstage)
        stage.until("the controller answers", lambda: story.status()["controller"]["ready"])
        fleet.settle(tiny=1)
        stage.until("its last receipt is acknowledged", lambda: seen(fleet)["receipts_owed"] == 0)
        assert seen(fleet)["catalog"] == {"asked": 2, "version": 2}
        front = story.front(HOST)
        stage.stop("controller")
        given = [open_grant(text, (recorder.signer.public,)) for text in recorder.grants(HOST)]
        start = next(g for g in reversed(given) if isinstance(g.body.action, Warm))
        warm = start.body.action
        assert isinstance(warm, Warm)
        last = max(given, key=lambda g: g.body.seq)
        thief, before = Thief(last, recorder), sorted(story.engines())
        between.answer = player = Player(recorder, HOST, ((stage.fleet / "policies/trust/root/1.json").read_text(),))

        def launch(**changes: Any) -> Warm:
            return replace(warm, launch=replace(warm.launch, **changes))

        files = other_files(models)
        assert content(files) != content(warm.launch.artifact)
        wanted: dict[str, tuple[Warm | Load, int | None, str]] = {
            "files that lie there and nobody signed": (launch(artifact=files), 2, "not_in_catalog"),
            "the same, to be fetched": (
                Load(host=warm.host, replica=warm.replica, profile=warm.profile, artifact=files),
                2,
                "not_in_catalog",
            ),
            "an argument that the engine has": (
                launch(args=(*warm.launch.args, EngineArg(name="embeddings", value="true"))),
                2,
                "not_in_catalog",
            ),
            "an argument in an alias": (launch(profile="--rpc=127.0.0.1:1"), 2, "not_in_catalog"),
            "more threads than signed": (launch(args=(EngineArg(name="threads", value="3"),)), 2, "not_in_catalog"),
            "more context than signed": (launch(context=warm.launch.context + 1), 2, "not_in_catalog"),
            "more memory than signed": (replace(warm, device_bytes=warm.device_bytes * 2), 2, "not_in_catalog"),
            "under the catalog of before": (warm, 1, "old_catalog"),
            "as if there were no catalog": (launch(artifact=files), None, "old_catalog"),
        }
        for what, (action, catalog, code) in wanted.items():
            grant, body = thief.command(action, catalog)
            player.play(grants=(grant,))
            stage.until(f"a receipt for {what}", lambda body=body: body in player.receipts)
            receipt = player.receipts[body]
            assert (receipt["outcome"], receipt["code"]) == ("refused", code), (what, receipt)
            assert sorted(story.engines()) == before, what
        _catalogs(fleet, player, old)
        assert sorted(story.engines()) == before
        assert front.ask("tiny", "hello", tokens=2).status_code == 200, "what was signed goes on"
        player.play()
    fleet.start_controller()
    stage.until("the controller is believed again", lambda: seen(fleet)["talk"] == "fresh")


def _catalogs(fleet: Office, player: Player, old: str) -> None:
    """Catalogs that are none: the host says why, and holds on to its own."""
    chain = chain_of(fleet.stage.fleet)
    own = open_catalog(chain, (fleet.stage.fleet / CATALOG).read_text().strip())
    everything = replace(own, version=99)
    shown: dict[str, tuple[Callable[[], str], str]] = {
        "the one of before": (lambda: old, "old_catalog"),
        "signed by a person of his": (
            lambda: seal_catalog(everything, PersonSigner.from_seed(b"t" * 32)),
            "catalog_threshold",
        ),
        "signed by the controller": (lambda: seal("plan", to_bytes(everything), player.recorder.signer), "wrong_kind"),
    }
    for what, (make, code) in shown.items():
        player.play(catalog=make())

        def told(code: str = code) -> bool:
            return any(alarm.startswith(f"{code}:") for alarm in seen(fleet)["alarms"])

        fleet.stage.until(f"{code} for {what}", told)
        assert seen(fleet)["catalog"] == {"asked": 2, "version": 2}, what
