"""Kinds of `policies/`: Mode, Budgets, Planning, Approvals; each field declared once."""

from __future__ import annotations

from typing import Any

from gridops.base.codes import sense as sense_codes
from gridops.base.units import PPM
from gridops.files.diagnose import Related
from gridops.files.forms import CountOrShare, Weekly
from gridops.files.kinds_fleet import header
from gridops.files.reader import Reader
from gridops.files.scalars import Choice, Flag, Instant, Int, Name, Or, Price, Share, Size, Span, Text
from gridops.files.shape import Block, Field, ListOf, MapOf, Read, Shape
from gridops.model.policy import (
    ActionClass,
    ActionLimits,
    ApprovalPolicy,
    Automatic,
    BudgetPolicy,
    DisruptionBudget,
    FootprintMinima,
    Headroom,
    Heartbeat,
    LookAhead,
    MassStale,
    Mode,
    ModePolicy,
    MoveLimits,
    PlanningPolicy,
    Prefetch,
    PriceCeiling,
    Risk,
    RiskNeed,
    RoleMembers,
    ScopeBudgets,
    ScopeMode,
    Search,
    Window,
)  # fmt: skip
from gridops.model.profile import FootprintSource

_CLASSES = ListOf(Choice(ActionClass))


def _until_rule(read: Read, reader: Reader) -> None:
    if "after" in read.values and "until" not in read.values:
        reader.error(sense_codes.UNREACHABLE, read.key("after"), "`after` never comes", "add `until`")
    if "until" in read.values and "after" not in read.values:
        reader.error(sense_codes.UNREACHABLE, read.key("until"), "nothing happens at `until`", "add `after`")
    if read.get("after") is not None and read.get("after") is read.get("mode", Mode.RECOMMEND):
        reader.warn(sense_codes.UNREACHABLE, read.node("after"), "`after` is the mode that holds already")


_SCOPE_MODE = Block(
    "the mode",
    ScopeMode,
    Field("mode", Choice(Mode), "observe, recommend or automatic.", required=True),
    Field("reason", Text(), "Why; shown wherever the mode is shown."),
    Field("until", Instant(), "From then on `after` holds.", "until_ms"),
    Field("after", Choice(Mode), "The mode from `until` on."),
    Field(
        "automatic",
        Block(
            "automatic",
            Automatic,
            Field("allow", _CLASSES, "Classes of change that need no person."),
            Field("allow_displace", ListOf(Name("profile")), "Profiles that may displace others when they are loaded."),
            Field(
                "last_replica",
                Or("never", (), ListOf(Name("profile"))),
                "Profiles whose last replica may go without its name being typed.",
            ),
        ),
        "What automatic mode may do by itself.",
    ),
    rules=(_until_rule,),
)

MODE = Block(
    "the mode file",
    ModePolicy,
    *header("Mode"),
    Field("scopes", MapOf("scope", Name("scope"), _SCOPE_MODE, key_to="scope"), "Mode of each scope."),
    Field("default", Choice(Mode), "For scopes that are not named."),
)

_DISRUPTION = Block(
    "the disruption budget",
    DisruptionBudget,
    Field("reasons", ListOf(Choice(ActionClass), filled=True), "Classes that it bounds.", required=True),
    Field("max", CountOrShare(), "At once: a count, or a share of the wanted replicas.", "*", True),
    Field("during", Weekly(), "When it holds; outside the bound is 1."),
)

_SCOPE_BUDGETS = Block(
    "the budgets",
    ScopeBudgets,
    Field(
        "actions",
        Block(
            "actions",
            ActionLimits,
            Field("concurrent", Int(1, 10_000), "Commands at once in the scope; repair counts repair only."),
            Field("per_device", Int(1, 64), "At once on one device."),
            Field("transfers_per_host", Int(1, 64), "Downloads at once on one host."),
            Field("loads_per_artifact", Int(1, 10_000), "Hosts that fetch the same files at once."),
            Field("cooldown", Span(), "How soon the same step of a replica may be done again.", "cooldown_ms"),
        ),
        "How much may go on at once.",
    ),
    Field("disruptions", ListOf(_DISRUPTION), "How many replicas may be disturbed at once."),
    Field(
        "moves",
        Block(
            "moves",
            MoveLimits,
            Field("per_plan", Int(0, 10_000), "Moves that go on at once, those that have not arrived included."),
            Field("per_hour", Int(0, 100_000), "Moves within an hour."),
        ),
        "How many moves may be made.",
    ),
    Field(
        "price",
        Block(
            "price",
            PriceCeiling,
            Field("max_per_hour", Price(), "Ceiling for the scope's hosts in use.", "max_per_hour_micro", True),
            Field("unknown", Choice(("refuse", "allow")), "Hosts without a price."),
        ),
        "A ceiling; never removes what runs by itself.",
    ),
    Field(
        "windows",
        ListOf(
            Block(
                "the window",
                Window,
                Field("deny", Weekly(), "When nothing is done by itself.", required=True),
                Field("except", _CLASSES, "Classes that are done all the same.", "exclude"),
            )
        ),
        "Times in which nothing is done by itself.",
    ),
    Field(
        "projection",
        Block(
            "projection",
            None,
            Field("plan_file_every", Span(), "At most one plan document in so long.", "plan_file_every_ms"),
        ),
        "How often automatic decisions are written to git.",
        "*",
    ),
)

BUDGETS = Block(
    "the budgets file",
    BudgetPolicy,
    *header("Budgets"),
    Field("scopes", MapOf("scope", Name("scope"), _SCOPE_BUDGETS, key_to="scope"), "Budgets of each scope."),
)


def _heartbeat_rule(read: Read, reader: Reader) -> None:
    every, stale = read.get("every", 10_000), read.get("stale_after", 90_000)
    if stale <= every:
        related = (Related(reader.source.place(read.node("every")), "one beat"),) if "every" in read.values else ()
        message = "a host would be stale between two of its beats"
        reader.error(sense_codes.MIN_ABOVE_MAX, read.node("stale_after"), message, "more than `every`", related=related)


PLANNING = Block(
    "the planning file",
    PlanningPolicy,
    *header("Planning"),
    Field(
        "headroom",
        Block(
            "headroom",
            Headroom,
            Field("memory", Share(high=PPM // 2), "Share of each device that stays free.", "memory_ppm"),
            Field("demand", Share(high=10 * PPM), "Load added to what was observed.", "demand_ppm"),
        ),
        "What is kept free.",
    ),
    Field(
        "heartbeat",
        Block(
            "heartbeat",
            Heartbeat,
            Field("every", Span(low=100), "How often a host reports; rarer beyond 1,000 hosts.", "every_ms"),
            Field("stale_after", Span(low=1_000), "Silence after which a host counts as lost.", "stale_after_ms"),
            Field("future_skew", Span(), "How far a host's clock may run ahead.", "future_skew_ms"),
            Field("recovery_grace", Span(), "Wait after a restart of the controller.", "recovery_grace_ms"),
            Field(
                "mass_stale",
                Block(
                    "mass_stale",
                    MassStale,
                    Field("share", Share(low=1, high=PPM), "Share of dedicated hosts.", "share_ppm"),
                    Field("at_least", Int(1, 20_000), "Hosts."),
                    Field("within", Span(low=1), "Time in which they fell silent.", "within_ms"),
                ),
                "Nothing destructive is planned when so many hosts fall silent at once.",
            ),
            rules=(_heartbeat_rule,),
        ),
        "When a host counts as present.",
    ),
    Field(
        "footprint",
        Block(
            "footprint",
            FootprintMinima,
            Field("minimum_for_spare", Choice(FootprintSource), "Least sure source that may use free memory."),
            Field("minimum_for_displacement", Choice(FootprintSource), "Least sure source that may displace others."),
        ),
        "How sure a footprint must be.",
    ),
    Field("tiers", ListOf(Name("tier"), ordered=True, filled=True), "Data tiers, least demanding first."),
    Field("workloads", ListOf(Name("workload")), "Kinds of work that demand is counted by."),
    Field(
        "look_ahead",
        Block(
            "look_ahead",
            LookAhead,
            Field("max", Span(), "How far predictions reach.", "max_ms"),
            Field("growth", Share(low=PPM), "Largest factor that a prediction may add.", "growth_ppm"),
        ),
        "Bounds of prediction.",
    ),
    Field(
        "prefetch",
        Block(
            "prefetch",
            Prefetch,
            Field("keep_free", Size(), "Disk that prefetching leaves free.", "keep_free_bytes"),
            Field("per_plan", Int(0, 100), "Prefetches in one plan."),
            Field("ttl", Span(), "How long a prefetched file stays unused.", "ttl_ms"),
        ),
        "Fetching before it is needed.",
    ),
    Field(
        "search",
        Block(
            "search",
            Search,
            Field("moves", Int(0, 10_000_000), "Moves tried."),
            Field("portfolios", Int(0, 1_000_000), "Portfolios tried."),
        ),
        "Work of the planner in counts, never in seconds.",
    ),
)


class _Need(Shape):
    """A count of approvals, or `root`; spreads over `need` and `root`."""

    _shape = Or("root", {"root": True}, Int(0, 100))
    word = _shape.word

    def read(self, node: Any, reader: Reader) -> Any:
        return self._shape.read(node, reader)

    def build(self, value: Any, reader: Reader) -> Any:
        built = self._shape.build(value, reader)
        return {"need": built} if isinstance(built, int) else built

    def export(self) -> dict[str, Any]:
        return self._shape.export()


def _risks(_read: Read, made: dict[str, Any], _reader: Reader) -> ApprovalPolicy:
    """A risk that is not named keeps its default need: leaving one out must not loosen it."""
    given = {need.risk: need for need in made.pop("risks", ())}
    needs = tuple(given.get(risk, ApprovalPolicy().need(risk)) for risk in Risk)
    return ApprovalPolicy(risks=needs, **made)


def _accept_rule(read: Read, reader: Reader) -> None:
    accept = read.get("accept")
    for value, node in zip(accept.values, accept.nodes, strict=True) if accept is not None else ():
        if value == "forge_review":
            message = "no forge is configured that could vouch for it"
            reader.error(sense_codes.NOT_OFFERED, node, message, "write signature")


APPROVALS = Block(
    "the approvals file",
    ApprovalPolicy,
    *header("Approvals"),
    Field(
        "risks",
        MapOf(
            "risk",
            Choice(Risk),
            Block(
                "the risk",
                RiskNeed,
                Field("need", _Need(), "Approvals needed, or `root`.", "*", True),
                Field("from", ListOf(Name("role")), "Roles whose people may approve.", "roles"),
            ),
            key_to="risk",
        ),
        "What each risk needs.",
    ),
    Field(
        "roles",
        MapOf("role", Name("role"), ListOf(Name("person")), make=lambda k, v: RoleMembers(role=k, people=v)),
        "People of each role, as the trust root names them.",
    ),
    Field("expire", Span(low=1_000), "How long an approval waits for its plan to become the target.", "expire_ms"),
    Field("execute_within", Span(low=1_000), "How long the target carries that authority.", "execute_within_ms"),
    Field(
        "author_may_approve",
        Flag(),
        "Whether who signs a commit may approve what it causes.",
    ),
    Field("accept", ListOf(Choice(("signature", "forge_review")), filled=True), "What counts as an approval."),
    rules=(_accept_rule,),
    make=_risks,
)
