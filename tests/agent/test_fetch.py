"""Fetching from servers that cut, lie, stall, change and send too much: the right bytes arrive, or none do."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from gridops.base.errors import Refusal
from gridops.model.profile import Artifact
from gridops_agent.artifacts import TakenBack
from gridops_agent.artifacts.wire import origin as origin_of
from tests.agent.origin import Asked, Origin, Trick, serving, until
from tests.agent.shelf import Desk, artifact, file_of

BODY = bytes(range(256)) * 2_000
HALF = len(BODY) // 2


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "host")


@pytest.fixture
def origin() -> Iterator[Origin]:
    with serving(**{"m.gguf": BODY}) as made:
        yield made


def wanted(origin: Origin, body: bytes = BODY, **more: str) -> Artifact:
    return artifact(file_of("m.gguf", body), source=f"{origin.url}/m.gguf", **more)


def refused(desk: Desk, of: Artifact, code: str) -> Refusal:
    with pytest.raises(Refusal) as caught:
        desk.fetch(of)
    assert caught.value.code == code, caught.value
    return caught.value


def test_a_file_comes_over_http_and_is_published_under_its_digest(desk: Desk, origin: Origin) -> None:
    found = desk.fetch(wanted(origin))
    assert found.read_bytes() == BODY
    assert desk.left() == [found.parent.name]
    desk.fetch(wanted(origin))
    assert len(origin.asked) == 1, "what is here is not asked for again"


def test_a_certificate_that_nobody_here_trusts_ends_the_source_and_says_what_to_do(
    desk: Desk, origin: Origin, tmp_path: Path
) -> None:
    origin.speak_tls(tmp_path)
    refusal = refused(desk, wanted(origin), "fetch_failed")
    assert "does not trust" in refusal.message
    assert "SSL_CERT_FILE" in refusal.hints[0]
    assert refusal.evidence == (), "nothing is said twice"
    assert origin.asked == []


def test_several_files_come_from_below_the_source_by_their_paths(desk: Desk, origin: Origin) -> None:
    origin.files = {"/models/a/1.bin": b"one", "/models/b%20c.bin": b"two"}
    both = artifact(file_of("a/1.bin", b"one"), file_of("b c.bin", b"two"), source=f"{origin.url}/models")
    found = desk.fetch(both)
    assert (found.read_bytes(), (found.parent.parent / "b c.bin").read_bytes()) == (b"one", b"two")


def test_a_cut_transfer_goes_on_where_it_was_cut(desk: Desk, origin: Origin) -> None:
    origin.tricks = [Trick(cut_after=HALF), Trick(cut_after=1_000)]
    assert desk.fetch(wanted(origin)).read_bytes() == BODY
    assert origin.ranges() == ["", f"bytes={HALF}-", f"bytes={HALF + 1_000}-"]
    assert origin.asked[1].headers["if-range"].startswith('"')


def test_what_a_failed_fetch_brought_is_kept_for_the_next_load_and_hashed_again(desk: Desk, origin: Origin) -> None:
    origin.tricks = [Trick(cut_after=HALF), *(Trick(status=503) for _ in range(4))]
    refused(desk, wanted(origin), "fetch_failed")
    assert desk.parts()[-1] == BODY[:HALF] or BODY[:HALF] in desk.parts()
    assert desk.fetch(wanted(origin)).read_bytes() == BODY
    assert origin.ranges()[-1] == f"bytes={HALF}-"
    assert [name for name in desk.left() if name.startswith(".")] == []


def test_a_part_that_rotted_on_disk_is_noticed_and_begun_anew(desk: Desk, origin: Origin) -> None:
    origin.tricks = [Trick(cut_after=HALF), *(Trick(status=503) for _ in range(4))]
    refused(desk, wanted(origin), "fetch_failed")
    part = next(p for p in desk.cache.rglob("m.gguf"))
    part.write_bytes(b"\xff" * HALF)
    assert desk.fetch(wanted(origin)).read_bytes() == BODY
    assert origin.ranges()[-2:] == [f"bytes={HALF}-", ""]


def test_a_file_changed_between_two_requests_is_told_by_its_validator(desk: Desk, origin: Origin) -> None:
    old = b"\0" * len(BODY)
    origin.files["/m.gguf"] = old

    def change() -> None:
        origin.files["/m.gguf"] = BODY

    origin.tricks = [Trick(cut_after=HALF, then=change)]
    assert desk.fetch(wanted(origin)).read_bytes() == BODY
    assert origin.ranges() == ["", f"bytes={HALF}-"], "the server answered the second one with the whole"


def test_a_mixture_of_two_files_is_begun_anew_and_not_held_against_the_source(desk: Desk, origin: Origin) -> None:
    origin.files["/m.gguf"] = b"\0" * len(BODY)

    def change() -> None:
        origin.files["/m.gguf"] = BODY

    origin.tricks = [Trick(cut_after=HALF, then=change), Trick(ignore_if_range=True)]
    assert desk.fetch(wanted(origin)).read_bytes() == BODY
    assert origin.ranges() == ["", f"bytes={HALF}-", ""]


def test_a_server_without_ranges_sends_the_whole_again(desk: Desk, origin: Origin) -> None:
    origin.tricks = [Trick(cut_after=HALF), Trick(ignore_range=True)]
    assert desk.fetch(wanted(origin)).read_bytes() == BODY


@pytest.mark.parametrize(
    "wrong",
    [f"bytes 0-{len(BODY) - 1}/{len(BODY)}", f"bytes 7-{len(BODY) - 1}/{len(BODY)}", "bytes */9", "nonsense"],
)
def test_another_range_than_was_asked_for_is_not_believed(desk: Desk, origin: Origin, wrong: str) -> None:
    origin.tricks = [Trick(cut_after=HALF), Trick(content_range=wrong)]
    assert desk.fetch(wanted(origin)).read_bytes() == BODY
    assert origin.ranges()[2] == "", "it begins at the beginning"


def test_a_range_that_ends_beyond_the_file_is_a_lie(desk: Desk, origin: Origin) -> None:
    origin.tricks = [Trick(cut_after=HALF), Trick(content_range=f"bytes {HALF}-{len(BODY) + 9}/{len(BODY) + 10}")]
    refused(desk, wanted(origin), "wrong_digest")
    assert desk.left() == []


def test_a_part_longer_than_what_the_server_has_now_begins_anew(desk: Desk, origin: Origin) -> None:
    origin.tricks = [Trick(cut_after=HALF), Trick(status=416), Trick()]
    assert desk.fetch(wanted(origin)).read_bytes() == BODY
    assert origin.ranges() == ["", f"bytes={HALF}-", ""]


@pytest.mark.parametrize("length", [len(BODY) - 1, len(BODY) + 1])
def test_a_length_that_is_not_the_files_ends_the_source_at_once(desk: Desk, origin: Origin, length: int) -> None:
    origin.tricks = [Trick(length=length)]
    refused(desk, wanted(origin), "wrong_digest")
    assert (len(origin.asked), desk.left()) == (1, [])


def test_more_than_was_promised_is_not_taken(desk: Desk, origin: Origin) -> None:
    origin.tricks = [Trick(length=-1, more=b"and more" * 100_000)]
    refusal = refused(desk, wanted(origin), "wrong_digest")
    assert "more than" in refusal.message
    assert desk.left() == []


def test_a_source_without_a_length_that_ends_too_early_is_asked_for_the_rest(desk: Desk, origin: Origin) -> None:
    origin.tricks = [Trick(length=-1, cut_after=HALF)]
    assert desk.fetch(wanted(origin)).read_bytes() == BODY


def test_wrong_content_is_not_kept_and_never_replaces_what_is_there(desk: Desk, origin: Origin) -> None:
    kept = desk.fetch(wanted(origin))
    other = bytes(reversed(BODY))
    origin.tricks = [Trick(body=BODY)]
    refused(desk, wanted(origin, other), "wrong_digest")
    assert kept.read_bytes() == BODY
    assert desk.left() == [kept.parent.name]


def test_a_source_that_stalls_is_tried_again_and_then_given_up(desk: Desk, origin: Origin) -> None:
    origin.tricks = [Trick(stall_after=HALF)]
    assert desk.fetch(wanted(origin)).read_bytes() == BODY
    assert origin.ranges() == ["", f"bytes={HALF}-"]


def test_a_source_that_trickles_is_as_good_as_dead(desk: Desk, origin: Origin) -> None:
    desk.with_(retries=0)
    origin.tricks = [Trick(trickle=True)]
    began = time.monotonic()
    refusal = refused(desk, wanted(origin), "fetch_failed")
    assert "only" in refusal.message
    assert time.monotonic() - began < 5


def test_a_server_that_never_answers_is_left_after_bounded_tries(desk: Desk, origin: Origin) -> None:
    origin.answer = lambda asked: Trick(status=503, headers={"Retry-After": "0"})
    refusal = refused(desk, wanted(origin), "fetch_failed")
    assert "503" in refusal.message
    assert len(origin.asked) == 4, "the first try and three more"


@pytest.mark.parametrize(
    ("status", "code"), [(401, "no_credential"), (403, "no_credential"), (404, "no_artifact"), (400, "fetch_failed")]
)
def test_an_answer_that_will_not_change_is_not_asked_for_again(
    desk: Desk, origin: Origin, status: int, code: str
) -> None:
    origin.answer = lambda asked: Trick(status=status)
    refused(desk, wanted(origin), code)
    assert len(origin.asked) == 1


def test_a_compressed_answer_is_not_taken_for_the_file(desk: Desk, origin: Origin) -> None:
    origin.tricks = [Trick(headers={"Content-Encoding": "gzip"})]
    refused(desk, wanted(origin), "fetch_failed")
    assert origin.asked[0].headers["accept-encoding"] == "identity"


HOSTILE: dict[str, Trick] = {
    "a redirect to half an address": Trick(status=302, headers={"Location": "http://["}),
    "a redirect to no port": Trick(status=302, headers={"Location": "http://127.0.0.1:99999/m.gguf"}),
    "a redirect to a name with a space": Trick(status=302, headers={"Location": "http://a b/m.gguf"}),
    "a redirect to bytes": Trick(status=302, headers={"Location": "http://\xff\xfe/m.gguf"}),
    "a redirect to nothing": Trick(status=302, headers={"Location": ""}),
    "a redirect to a file": Trick(status=302, headers={"Location": "file:///etc/passwd"}),
    "a redirect to a long name": Trick(status=302, headers={"Location": f"http://{'a' * 300}/m.gguf"}),
    "later, in other digits": Trick(status=503, headers={"Retry-After": "\xb2"}),
    "later, in very many digits": Trick(status=503, headers={"Retry-After": "9" * 5_000}),
    "words that are no words": Trick(status=404, headers={"X-Error-Message": "\xff\xfe\xed\xa0\x80"}),
    "a validator of bytes": Trick(headers={"ETag": '"\xff\xfe"'}, cut_after=HALF),
    "an encoding of bytes": Trick(headers={"Content-Encoding": "\xff"}),
    "a type of bytes": Trick(headers={"Content-Type": "text/plain; charset=\xff"}),
    "a range without end": Trick(status=206, headers={"Content-Range": f"bytes 0-{'9' * 30}/*"}),
    "a range of other digits": Trick(status=206, headers={"Content-Range": "bytes \xb2-3/4"}),
}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_whatever_the_head_of_an_answer_says_the_file_is_right_or_refused_in_words(
    desk: Desk, origin: Origin, name: str
) -> None:
    trick = HOSTILE[name]
    for always in (False, True):
        origin.tricks, origin.answer = ([], lambda _: trick) if always else ([trick], None)
        try:
            assert desk.fetch(wanted(origin)).read_bytes() == BODY
        except Refusal as refusal:
            refusal.message.encode("utf-8")
            assert all(name.endswith(".part") for name in desk.left()), "what was not proved is not published"


# -- redirects and secrets --------------------------------------------------------------------------------------------


def to(url: str) -> Trick:
    return Trick(status=302, headers={"Location": url})


def test_a_credential_is_sent_to_its_own_server_and_to_no_other(desk: Desk, origin: Origin) -> None:
    desk.secret("hub", "tell-nobody\n")
    origin.tricks = [to("/again"), to(f"{origin.other_url}/m.gguf")]
    assert desk.fetch(wanted(origin, credential="secret:hub")).read_bytes() == BODY
    shown = [asked.headers.get("authorization") for asked in origin.asked]
    assert shown == ["Bearer tell-nobody", "Bearer tell-nobody", None]


def test_another_port_or_scheme_is_another_server() -> None:
    assert origin_of("https://a.example/x") == origin_of("https://a.example:443/y")
    assert origin_of("https://a.example") != origin_of("https://a.example:8443")
    assert origin_of("https://a.example") != origin_of("https://b.a.example")


def test_a_secret_that_others_can_read_is_refused_and_not_shown(desk: Desk, origin: Origin) -> None:
    desk.secret("hub", "tell-nobody", mode=0o644)
    refusal = refused(desk, wanted(origin, credential="secret:hub"), "no_credential")
    assert "chmod 600" in refusal.hints[0]
    assert "tell-nobody" not in f"{refusal.message}{refusal.evidence}{refusal.hints}"
    assert origin.asked == []


@pytest.mark.parametrize("name", ["secret:../hub", "secret:", "hub", "secret:a/b"])
def test_a_credential_is_a_name_in_the_secrets_folder(desk: Desk, origin: Origin, name: str) -> None:
    refused(desk, wanted(origin, credential=name), "no_credential")


def test_a_redirect_to_plain_http_elsewhere_is_not_followed(desk: Desk, origin: Origin) -> None:
    origin.tricks = [to("http://models.example/m.gguf")]
    refused(desk, wanted(origin), "bad_source")


def test_redirects_are_bounded(desk: Desk, origin: Origin) -> None:
    origin.answer = lambda asked: to("/again")
    refused(desk, wanted(origin), "fetch_failed")
    assert len(origin.asked) == 6


def test_plain_http_is_for_this_machine_alone_and_only_where_it_was_said(desk: Desk, origin: Origin) -> None:
    refused(desk.with_(plain_loopback=False), wanted(origin), "bad_source")
    assert origin.asked == []


def test_an_address_in_an_error_shows_nothing_that_was_signed_into_it(desk: Desk, origin: Origin) -> None:
    origin.answer = lambda asked: None if "sig" in asked.path else to(f"{origin.url}/gone?sig=tell-nobody")
    refusal = refused(desk, wanted(origin), "no_artifact")
    assert "tell-nobody" not in f"{refusal.message}{refusal.evidence}"


# -- stopping, pace, progress -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dropped", [False, True])
def test_a_fetch_ends_at_once_when_it_is_taken_back_and_goes_on_later_unless_it_was_dropped(
    desk: Desk, origin: Origin, dropped: bool
) -> None:
    desk.with_(stall_ms=60_000)
    origin.tricks = [Trick(stall_after=HALF)]
    stop = Event()
    came = lambda: [len(part) for part in desk.parts()][-1:] == [HALF]  # noqa: E731
    threading.Thread(target=lambda: (until(came, "bytes"), stop.set())).start()
    began = time.monotonic()
    with pytest.raises(TakenBack):
        desk.fetch(wanted(origin), stop)
    assert time.monotonic() - began < 5
    assert [len(part) for part in desk.parts()][-1:] == [HALF]
    if dropped:
        desk.shelf().drop(wanted(origin))
        assert desk.left() == []
    assert desk.fetch(wanted(origin)).read_bytes() == BODY
    assert origin.ranges()[-1] == ("" if dropped else f"bytes={HALF}-")


def test_the_bandwidth_limit_holds(desk: Desk, origin: Origin) -> None:
    desk.with_(rate_bps=len(BODY) * 8)
    began = time.monotonic()
    desk.fetch(wanted(origin))
    assert time.monotonic() - began > 0.8, "a second's worth of bytes"


def test_progress_is_shown_while_it_goes_on_and_gone_when_it_is_over(desk: Desk, origin: Origin) -> None:
    desk.with_(stall_ms=60_000)
    origin.tricks = [Trick(stall_after=HALF)]
    stop, shelf = Event(), desk.shelf()
    seen: list[tuple[str, int, int]] = []

    def look() -> None:
        until(lambda: any(p.done_bytes == HALF for p in shelf.transfers()), "progress")
        seen.extend((p.source, p.done_bytes, p.size_bytes) for p in shelf.transfers())
        stop.set()

    threading.Thread(target=look).start()
    with pytest.raises(TakenBack):
        shelf.obtain(wanted(origin), stop)
    assert seen == [("https", HALF, len(BODY))]
    assert shelf.transfers() == ()


def test_a_file_that_lies_here_as_part_of_something_else_is_not_fetched_again(desk: Desk, origin: Origin) -> None:
    origin.files = {"/m/a": b"shared", "/m/b": b"first", "/m/c": b"second"}
    desk.fetch(artifact(file_of("a", b"shared"), file_of("b", b"first"), source=f"{origin.url}/m"))
    desk.fetch(artifact(file_of("a", b"shared"), file_of("c", b"second"), source=f"{origin.url}/m"))
    assert [asked.path for asked in origin.asked] == ["/m/a", "/m/b", "/m/c"]


# -- crashes ----------------------------------------------------------------------------------------------------------


class Crash(BaseException):
    """What a power failure would be."""


@pytest.mark.parametrize("at", range(6))
def test_a_crash_at_any_point_of_publishing_leaves_the_old_or_the_new(
    desk: Desk, origin: Origin, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """Every call that publishing makes is where the machine may stop; a rotten older copy stands in the way."""
    found = desk.fetch(wanted(origin))
    found.write_bytes(b"rotten" + BODY[6:])
    calls = 0

    def crashing(real: object) -> object:
        def call(*args: object, **more: object) -> object:
            nonlocal calls
            calls += 1
            if calls == at + 1:
                raise Crash
            return real(*args, **more)  # type: ignore[operator]

        return call

    with monkeypatch.context() as broken:
        broken.setattr("gridops_agent.artifacts.shelf.sync_directory", crashing(lambda path: None))
        broken.setattr("gridops_agent.artifacts.shelf.set_aside", crashing(_aside))
        broken.setattr("gridops_agent.artifacts.shelf.os.rename", crashing(os.rename))
        broken.setattr("gridops_agent.artifacts.shelf.shutil.rmtree", lambda *args, **more: None)
        broken.setattr(Path, "unlink", lambda *args, **more: None)
        with contextlib.suppress(Crash):
            desk.fetch(wanted(origin))
    assert not found.exists() or found.read_bytes() in (BODY, b"rotten" + BODY[6:])
    assert desk.fetch(wanted(origin)).read_bytes() == BODY


def _aside(path: Path, *_: object) -> None:
    path.rename(path.with_name("aside"))


def test_nothing_is_written_through_a_link_in_the_staging_folder(desk: Desk, origin: Origin) -> None:
    origin.tricks = [Trick(cut_after=HALF), *(Trick(status=503) for _ in range(4))]
    refused(desk, wanted(origin), "fetch_failed")
    part, victim = next(p for p in desk.cache.rglob("m.gguf")), desk.home / "victim"
    victim.write_bytes(b"mine")
    part.unlink()
    part.symlink_to(victim)
    refused(desk, wanted(origin), "fetch_failed")
    assert victim.read_bytes() == b"mine"


def test_every_request_names_what_it_wants_and_nothing_about_the_host(desk: Desk, origin: Origin) -> None:
    desk.fetch(wanted(origin))
    asked: Asked = origin.asked[0]
    assert set(asked.headers) == {"host", "accept", "accept-encoding", "user-agent"}
    assert asked.headers["user-agent"] == "gridops-agent"
