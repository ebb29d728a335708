"""The planner's constants, each with its unit, where it comes from, and what twice or half of it would change.

Read by the rooms of the planner; a number that steers a choice and stands neither here nor in a policy file is a fault.
What people should be able to set stands in `policies/planning.yaml` or in a profile instead, and its default there.
"""

from __future__ import annotations

from dataclasses import dataclass

LATENCY_PRESSURE_PPM = 2_000_000
ERROR_PRESSURE_PPM = 500_000
ERROR_NOTICED_PPM = 10_000
WEAK_CONFIDENCE_PPM = 500_000
FORECAST_VALID_MS = 300_000
HARM_LATENCY_PPM = 100_000_000
START_HOSTS = 64


@dataclass(frozen=True, slots=True)
class Constant:
    """One row: what the number is, and what it does."""

    name: str
    value: int
    unit: str
    source: str
    doubled: str
    halved: str


TABLE: tuple[Constant, ...] = (
    Constant(
        "LATENCY_PRESSURE_PPM",
        LATENCY_PRESSURE_PPM,
        "ppm of the demand",
        "bound of the earlier allocator: p95 over the objective counts as at most twice the demand",
        "a p95 of 4 objectives asks for 4 times the replicas instead of 2, also where more do not cure it",
        "latency adds nothing, not even the safety replica",
    ),
    Constant(
        "ERROR_PRESSURE_PPM",
        ERROR_PRESSURE_PPM,
        "ppm added to the demand",
        "bound of the earlier allocator: errors count as at most half the demand again",
        "a profile whose every request fails asks for 2 times the replicas instead of 1.5",
        "it asks for 1.25 times",
    ),
    Constant(
        "ERROR_NOTICED_PPM",
        ERROR_NOTICED_PPM,
        "ppm of the requests",
        "one in a hundred, the usual error budget of a service; fewer are clients and accidents",
        "two in a hundred fail before the safety replica comes",
        "one error among 200 requests keeps a spare replica standing",
    ),
    Constant(
        "WEAK_CONFIDENCE_PPM",
        WEAK_CONFIDENCE_PPM,
        "ppm",
        "evidence that is as likely wrong as right buys one canary and no more",
        "only certainty scales an inferred demand beyond one replica",
        "a guess that is right one time in four fills several hosts",
    ),
    Constant(
        "FORECAST_VALID_MS",
        FORECAST_VALID_MS,
        "ms since the newest observation",
        "five buckets of demand history; below one hour nothing beats assuming that what was so is so still",
        "replicas go on following numbers that are ten minutes old when whoever counts requests has died",
        "two late buckets stop growth",
    ),
    Constant(
        "HARM_LATENCY_PPM",
        HARM_LATENCY_PPM,
        "ppm of the objective",
        "bound of the earlier allocator; a hundred times late is late enough",
        "a profile with an objective of milliseconds wins every tie against a slow one that is as far behind",
        "the same at fifty times late: ties fall to the errors earlier",
    ),
    Constant(
        "START_HOSTS",
        START_HOSTS,
        "hosts per config",
        "bound of work: hosts asked for the fastest start, those with the artifact and then the fastest links first",
        "larger fleets pay twice for each profile whose demand rises",
        "where few hosts are allowed, the profile's own `timing.load` is taken more often",
    ),
)
