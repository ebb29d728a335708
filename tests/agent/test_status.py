"""The document of `gridops-agent status`: its fields stay, and people read in it what keeps a model from serving."""

from __future__ import annotations

from gridops_agent.status import status
from gridops_agent.status_lines import render
from tests.agent.site import Site, command, receipt

STATUS_FIELDS = {
    "alarms", "catalog", "controller", "devices", "disk_free_bytes", "endpoint", "external", "fleet", "generation",
    "handed_over", "heard_ms", "host", "host_class", "host_key", "last_command", "left_ms", "open_commands", "override",
    "pid", "prefetched", "reasons", "receipts_owed", "repinned", "residencies", "root_version", "running", "runtimes",
    "schema", "state", "state_folder", "state_free_bytes", "talk", "transfers", "unread",
}  # fmt: skip
RESIDENCY_FIELDS = {
    "code", "detail", "device_bytes", "devices", "in_flight", "incarnation", "keeper", "kept_as", "owed", "pid", "port",
    "recorded", "replica", "restarts", "restarts_allowed", "restarts_counted", "retry_at_ms", "since_ms", "state",
}  # fmt: skip


async def test_programs_find_in_status_what_they_found_before(site: Site) -> None:
    """Fields of `gridops.agent-status/1` are added and never taken away: a new one is added here with its commit."""
    async with site.agent() as agent:
        await receipt(agent, await command(agent, site, site.warm()))
    seen = status(site.config, running=False)
    assert seen["schema"] == "gridops.agent-status/1"
    assert seen.keys() >= STATUS_FIELDS
    (row,) = seen["residencies"]
    assert row.keys() >= RESIDENCY_FIELDS
    assert (row["keeper"], row["owed"], row["restarts_allowed"]) == ("child", [], 3)


def test_people_read_what_keeps_a_residency_from_serving(site: Site) -> None:
    seen = status(site.config, running=False)
    row = dict.fromkeys(RESIDENCY_FIELDS) | {
        "replica": "tiny/1", "state": "warming", "recorded": "warming", "in_flight": 0, "restarts": 2,
        "restarts_counted": 1, "restarts_allowed": 3, "retry_at_ms": 61_000, "keeper": "unit", "kept_as": "x.service",
        "owed": [{"device": "gpu0", "bytes": 1 << 30, "pids": [7]}, {"device": "gpu1", "bytes": None, "pids": []}],
    }  # fmt: skip
    text = render({**seen, "residencies": [row], "left_ms": 5}, 1_000)
    for words in (
        "restarted 2 times  as unit x.service",
        "1 of 3 restarts used",
        "1 GiB on gpu0 has to come back before a start there",
        "an unknown amount on gpu1",
        "it has left its fleet",
    ):
        assert words in text
