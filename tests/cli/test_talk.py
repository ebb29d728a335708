"""What setting-up commands tell people: within the terminal, the answer before what to do next, commands that work."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from gridops.cli.output import Context


@pytest.fixture
def terminal(monkeypatch) -> None:
    """Both streams are a terminal of 80 columns."""
    monkeypatch.setattr(Context, "columns", lambda self: 80)
    monkeypatch.setattr(Context, "talk_columns", lambda self: 80)


def widest(answer) -> int:
    return max(len(line) for line in (answer.out + answer.err).splitlines())


def test_what_keys_can_do_is_told_within_the_terminal(terminal, trusted, call, tmp_path, monkeypatch) -> None:
    shown = call("-C", trusted.root, "trust", "show")
    assert widest(shown) <= 80
    assert "policies/mode.yaml allows without an approval" in " ".join(shown.out.split())
    assert widest(call("-C", trusted.root, "trust", "renew")) <= 80
    (trusted.root / "policies/trust/root/1.json").unlink()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRIDOPS_KEYS", "keys")
    made = call("-C", trusted.root, "trust", "init", "--person", "mira", "--state", "s")
    assert made.code == 0, made.err
    assert widest(made) <= 80


def test_a_rebuild_is_told_within_the_terminal_but_its_command_is_never_broken(terminal, trusted, call) -> None:
    answer = call("-C", trusted.root, "controller", "rebuild", "--state", trusted.state)
    *told, command = answer.out.splitlines()
    assert max(len(line) for line in told) <= 80
    assert command == f"Start it: gridops -C {trusted.root} watch --state {trusted.state}"


def test_a_pipe_gets_each_sentence_on_one_line(trusted, call) -> None:
    shown = call("-C", trusted.root, "trust", "show").out
    assert "Hosts obey commands of classes that policies/mode.yaml allows without an approval.\n" in shown


def test_an_admission_is_told_within_the_terminal_and_names_the_commit(terminal, trusted, call, controller) -> None:
    devices = [{"id": f"gpu{n}", "total_bytes": 24 << 30} for n in range(8)]
    entry = {
        "host": "alpha",
        "host_key": f"ed25519:{'ab' * 32}",
        "fingerprint": f"sha256:{'cd' * 32}",
        "facts": {"platform": "linux-x86_64", "devices": devices},
    }
    controller.answers["/v1/pending"] = (200, {"pending": [entry]})
    admitted = call("-C", trusted.root, "host", "admit", "alpha")
    assert admitted.code == 0, admitted.err
    assert widest(admitted) <= 80
    assert "git add fleet.d/keys/alpha.yaml && git commit -m 'Admit alpha'" in admitted.err


def test_the_commit_of_a_drain_can_be_pasted_whatever_the_reason_holds(fleet, call, git) -> None:
    reason = 'it\'s $(hot), "very"'
    answer = call("-C", fleet, "drain", "alpha", "--reason", reason)
    assert answer.code == 0
    command = answer.err.split("then: ", 1)[1].strip()
    subprocess.run(["sh", "-c", command], cwd=fleet, check=True, capture_output=True)
    assert git(fleet, "log", "-1", "--format=%s") == f"Drain alpha: {reason}"
    assert shlex.split(command)[-1] == f"Drain alpha: {reason}"


def test_a_drain_says_what_it_wrote_before_what_comes_next(fleet, call, monkeypatch) -> None:
    order = []
    monkeypatch.setattr(Context, "say", lambda self, *lines, level=0: order.append("say"))
    monkeypatch.setattr(Context, "emit", lambda self, forms: order.append("emit"))
    call("-C", fleet, "drain", "alpha", "--reason", "fan alarm")
    assert order == ["emit", "say"]


def test_a_key_that_was_signed_over_to_is_admitted_with_the_former_one_beside_it(trusted, call, controller) -> None:
    former, coming = f"ed25519:{'ab' * 32}", f"ed25519:{'cd' * 32}"
    entry = {
        "host": "alpha",
        "host_key": coming,
        "fingerprint": f"sha256:{'cd' * 32}",
        "former": former,
        "facts": {"platform": "linux-x86_64", "devices": []},
    }
    controller.answers["/v1/pending"] = (200, {"pending": [entry]})
    file = trusted.root / "fleet.d/keys/alpha.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    head = "apiVersion: gridops/v1\nkind: HostKey\nhost: alpha\n"
    for text in (
        f"{head}key: ed25519:{'ef' * 32}\n",
        f"{head}key: {former}\nexpunged: true\n",
    ):
        file.write_text(text)
        refused = call("-C", trusted.root, "host", "admit", "alpha")
        assert refused.code != 0
        assert "does not sign over from the key in fleet.d/keys/alpha.yaml" in " ".join(refused.err.split())
        assert file.read_text() == text
    file.write_text(f"{head}key: {former}\nprevious: ['ed25519:{'12' * 32}']\n")
    admitted = call("-C", trusted.root, "host", "admit", "alpha")
    assert admitted.code == 0, admitted.err
    assert "its present key signed over to this one" in " ".join(admitted.err.split())
    said = file.read_text()
    assert f"key: {coming}" in said
    assert said.index("12" * 32) < said.index("ab" * 32) < len(said), "the newest of the former ones last"
