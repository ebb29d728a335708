"""What is published: the OpenAPI document and the schemas of records, the metrics page, the log, the events."""

from __future__ import annotations

import io
import json
import logging
import re

import jsonschema
import pytest

from gridops.base.canon import digest_bytes
from gridops.base.ids import Digest, HostId
from gridops.base.record import adapter, to_data
from gridops.controller import documents as d
from gridops.controller import log, views
from gridops.controller.core import rows as r
from gridops.controller.core.events import words
from gridops.controller.core.row_kinds import KINDS
from gridops.controller.endpoints import ROUTES
from gridops.controller.measures import metrics
from gridops.controller.metrics import Counters, Family, Histogram, render
from gridops.controller.openapi import document
from gridops.protocol.messages import Transfer
from tests.controller.fleet import Desk


def test_the_openapi_document_is_whole_and_its_schemas_are_schemas() -> None:
    made = document(ROUTES)
    assert made["openapi"] == "3.1.0"
    schemas = made["components"]["schemas"]
    for name, schema in schemas.items():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert name
    wanted = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(made)))
    assert wanted <= set(schemas)
    assert {(method, path) for path, item in made["paths"].items() for method in item} >= {
        (route.method.lower(), route.path) for route in ROUTES
    }
    ids = [op["operationId"] for item in made["paths"].values() for op in item.values() if "operationId" in op]
    assert len(ids) == len(set(ids))


def test_every_answer_is_what_its_published_schema_says(desk: Desk) -> None:
    desk.settle(2)
    desk.apply()
    desk.settle(3)
    view = desk.controller.view()
    answers = {
        "StatusDoc": views.status(view),
        "SnapshotDoc": views.snapshot(view),
        "PlansDoc": views.plans(view),
        "PlanDoc": views.plan(view, desk.book().target, desk.controller.signer),
        "PendingListDoc": views.pending(view),
    }
    made = document(ROUTES)
    for name, answer in answers.items():
        schema = {"$ref": f"#/components/schemas/{name}", "components": made["components"]}
        jsonschema.Draft202012Validator(schema).validate(to_data(answer))


def test_status_tells_what_a_host_fetches_while_it_is_heard(desk: Desk) -> None:
    moving = Transfer(artifact=Digest(digest_bytes(b"x")), source="hf", done_bytes=3, size_bytes=9)
    desk.fleet.agents["alpha"].room.transfers = (moving,)
    desk.settle(2)
    shown = {h.host: h for h in views.status(desk.controller.view()).hosts}
    assert shown[HostId("alpha")].transfers == (moving,)
    assert shown[HostId("alpha")].disk_free_bytes == 100 << 30
    assert shown[HostId("beta")].transfers == ()
    desk.clock.pass_by(600_000)
    desk.beat("beta")
    shown = {h.host: h for h in views.status(desk.controller.view()).hosts}
    assert (shown[HostId("alpha")].heard, shown[HostId("alpha")].transfers) == (False, ())


def test_only_signed_bodies_change_anything() -> None:
    writing = [route for route in ROUTES if route.method != "GET"]
    assert {route.path for route in writing} == {"/v1/beat", "/v1/join", "/v1/operator"}
    for route in writing:
        assert route.request is not None
        fields = adapter(route.request).json_schema()["properties"]
        assert set(fields) <= {"request", "heartbeat", "receipts"}
    assert all(route.limit <= 4 << 20 for route in writing)


LINE = re.compile(r'[a-z_]+(\{[a-z_]+="(?:[^"\\\n]|\\.)*"(,[a-z_]+="(?:[^"\\\n]|\\.)*")*\})? -?[0-9.e+-]+')


def test_the_metrics_page_is_in_the_text_format_with_the_names_of_the_design(desk: Desk) -> None:
    desk.settle(3)
    page = metrics(desk.controller.view(), desk.controller.counters, desk.planning.durations)
    for line in page.splitlines():
        assert line.startswith("# ") or LINE.fullmatch(line), line
    for name in (
        "gridops_build_info", "gridops_reconcile_total", "gridops_reconcile_duration_seconds_bucket",
        "gridops_plan_decisions", "gridops_plan_pending_since_timestamp_seconds", "gridops_replans_suppressed_total",
        "gridops_replicas_desired", "gridops_replicas_ready", "gridops_replicas_unplaced", "gridops_mode_info",
        "gridops_freeze_overdue", "gridops_host_draining", "gridops_agent_last_seen_timestamp_seconds",
        "gridops_key_expiry_timestamp_seconds",
    ):  # fmt: skip
        assert f"\n{name}" in f"\n{page}", name


def test_labels_are_escaped_and_empty_families_are_left_out() -> None:
    page = render([Family("a", "gauge", "A.", [("", {"x": 'q"\\\n'}, 1.0)]), Family("b", "gauge", "B.", [])])
    assert page == '# HELP a A.\n# TYPE a gauge\na{x="q\\"\\\\\\n"} 1\n'


def test_a_histogram_is_cumulative() -> None:
    made = Histogram()
    for seconds in (0.001, 0.2, 99.0):
        made.observe(seconds)
    values = {labels.get("le", suffix): value for suffix, labels, value in made.samples({})}
    assert values["0.005"] == 1
    assert values["0.25"] == 2
    assert values["+Inf"] == values["_count"] == 3
    assert Counters().of("x") == []


def test_the_log_is_text_for_people_and_json_for_machines() -> None:
    for plain, expected in ((True, "watching"), (False, '"event": "start"')):
        out = io.StringIO()
        log.begin(out, plain=plain)
        logging.getLogger("gridops.watch").info("watching %s", "main\x1b[2J", extra={"event": "start"})
        assert expected in out.getvalue()
        assert "\x1b" not in out.getvalue()
        assert out.getvalue().count("\n") == 1
    logging.getLogger("gridops").handlers.clear()


def test_every_row_with_a_meaning_for_people_has_words(desk: Desk) -> None:
    silent = {
        r.Started, r.HeadSeen, r.TermSeen, r.NonceUsed, r.PlanWritten, r.ResultWritten, r.StateWritten,
    }  # fmt: skip
    desk.settle(2)
    desk.apply()
    desk.settle()
    assert {e.kind for e in desk.controller.events.after(0)} >= {
        "intent", "proposed", "target_set", "command", "receipt", "apply_ended", "host",
    }  # fmt: skip
    for kind in KINDS.values():
        if kind in silent:
            continue
        assert any(kind.__name__ in line for line in _matched()), kind


def _matched() -> list[str]:
    import inspect

    from gridops.controller.core import events

    return [line for line in inspect.getsource(events).splitlines() if "case r." in line]


def test_words_never_raise_for_a_row_of_any_kind() -> None:
    assert words(r.Thawed(by="mira")) == ("thawed", "every scope thawed by mira")  # type: ignore[arg-type]
    assert words(r.Started(version="0.1.0")) is None


@pytest.mark.parametrize("document_of", [d.StatusDoc, d.PlanDoc, d.EventsDoc, d.SnapshotDoc])
def test_documents_name_their_schema_and_major(document_of: type[object]) -> None:
    schema = adapter(document_of).json_schema()
    assert re.fullmatch(r"gridops\.[a-z]+/\d+", schema["properties"]["schema"]["default"])
