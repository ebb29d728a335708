"""The controller is known by its pinned certificate; what it answers becomes an answer or one of our errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from gridops.base.errors import BadSetup, Busy, Failed, Refusal, Unreachable
from gridops.cli import client as module
from gridops.cli.client import Client, connect, root_of
from gridops.cli.output import Context, Usage
from gridops.trust.tls import self_signed
from tests.cli.conftest import serve


@pytest.fixture
def reached(trusted, controller) -> Client:
    return connect(Context(directory=trusted.root))


def test_the_pinned_controller_is_asked(reached, controller) -> None:
    controller.answers["/v1/status"] = (200, {"schema": "gridops.status/1"})
    assert reached.get("/v1/status", after=3) == {"schema": "gridops.status/1"}
    assert controller.asked == [("/v1/status?after=3", None)]


def test_a_request_is_posted_as_it_was_signed(reached, controller) -> None:
    controller.answers["/v1/operator"] = (200, {"ok": True})
    assert reached.operator('{"payload": "..."}') == {"ok": True}
    assert controller.asked == [("/v1/operator", {"request": '{"payload": "..."}'})]


@pytest.mark.parametrize(
    ("exit_code", "kind"), [(4, Refusal), (75, Busy), (69, Unreachable), (1, Failed), (None, Refusal), (3, Refusal)]
)
def test_an_error_of_the_controller_becomes_ours(exit_code, kind, reached, controller) -> None:
    error = {"code": "GO412", "message": "out of date", "evidence": ["a"], "hints": ["b"], "exit_code": exit_code}
    controller.answers["/v1/operator"] = (409, {"error": error})
    with pytest.raises(kind) as raised:
        reached.operator("x")
    assert raised.value.message == "out of date"
    assert raised.value.hints == ("b",)
    if kind is Refusal:
        assert (raised.value.code, raised.value.evidence) == ("GO412", ("a",))


@pytest.mark.parametrize(
    "answer", [(200, "<html>"), (502, "<html>"), (500, {"oops": 1}), (404, {"error": "x"}), (400, [1])]
)
def test_an_answer_that_is_none_of_ours_is_unreachable(answer, reached, controller) -> None:
    controller.answers["/v1/status"] = answer
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1"):
        reached.get("/v1/status")


def test_an_endless_answer_is_cut_off(reached, controller, monkeypatch) -> None:
    monkeypatch.setattr(module, "ANSWER_BYTES", 1000)
    controller.answers["/v1/status"] = (200, {"x": "y" * 5000})
    with pytest.raises(Unreachable, match="more than 1000 bytes"):
        reached.get("/v1/status")


def test_another_certificate_is_refused_before_anything_is_sent(trusted, tmp_path) -> None:
    stranger = self_signed(["127.0.0.1"], 0, 100_000)
    (tmp_path / "cert").write_text(stranger.cert_pem)
    (tmp_path / "key").write_bytes(stranger.key_pem)
    for server in serve(tmp_path / "cert", tmp_path / "key"):
        client = connect(Context(directory=trusted.root), server.url)
        with pytest.raises(Unreachable, match="not the one that the trust root pins"):
            client.operator("secret request")
        assert server.asked == []


def test_nobody_home_is_unreachable_and_says_where(trusted) -> None:
    with pytest.raises(Unreachable, match=r"https://127\.0\.0\.1:9: no answer"):
        connect(Context(directory=trusted.root), "https://127.0.0.1:9").get("/v1/status")


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "ftp://x", "127.0.0.1:7443", "https://"])
def test_only_https_is_spoken(url, trusted) -> None:
    with pytest.raises(Usage, match="expected https"):
        connect(Context(directory=trusted.root), url)


def test_a_fleet_without_controller_or_root_says_what_to_write(trusted, fleet) -> None:
    file = fleet / "policies/fleet.yaml"
    file.write_text("apiVersion: gridops/v1\nkind: Fleet\n")
    with pytest.raises(Failed, match="names no controller"):
        connect(Context(directory=fleet))
    (fleet / "policies/trust/root/1.json").unlink()
    with pytest.raises(Failed, match="no root of trust"):
        connect(Context(directory=fleet), "https://127.0.0.1:9")


def test_a_broken_pin_is_a_bad_setup() -> None:
    with pytest.raises(BadSetup, match="no certificate"):
        Client("https://127.0.0.1:9", ("-----BEGIN CERTIFICATE-----\nxx\n-----END CERTIFICATE-----\n",)).get("/")


def test_the_fleet_is_found_from_a_folder_inside_it(fleet) -> None:
    assert root_of(fleet / "policies").resolve() == fleet.resolve()
    assert root_of(fleet) == fleet
    assert root_of(Path("/")) == Path("/")
