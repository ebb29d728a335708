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
HORIZON_MS = 300_000
HORIZON_MAX_MS = 3_600_000
NOMINAL_MLANES = 100
WAITING_MLANES = 1_000
START_MAX_MS = 86_400_000
HOT_PPM = 8_000_000
FAILED_START_MS = 120_000
FAILURES_COUNTED = 4
LEAVE_AFTER = 3
FAILING_HOSTS = 4
OWNER_RETURNS_PPM = 200_000
THROTTLES_MORE_PPM = 100_000
LEARN_TRUSTED = 4
LEARN_VALID_MS = 2_592_000_000
LEARN_CAP_MS = 3_600_000
SPEED_TRUSTED = 8
SPEED_VALID_MS = 900_000
SLOWER_MAX_PPM = 3_000_000
HARDWARE_PPM = 20_000
MAIN_PART_PPM = 800_000
REVIEW_PPM = 200_000
SCARCE_KINDS = 48
VICTIM_AGE_MS = 900_000
VICTIM_GAIN_PPM = 2_000_000
VICTIMS = 3
VICTIM_CANDIDATES = 16
EXPIRIES = 1
GUESSED_PROFILES = 64


@dataclass(frozen=True, slots=True)
class Constant:
    """One row: what the number is, and what it does."""

    name: str
    value: int
    unit: str
    source: str
    doubled: str
    halved: str
    measured: str = ""
    """Seats and advices that halved and doubled values changed (`python -m bench.constants --yard none`)."""


TABLE: tuple[Constant, ...] = (
    Constant(
        "LATENCY_PRESSURE_PPM",
        LATENCY_PRESSURE_PPM,
        "ppm of the demand",
        "bound of the earlier allocator: p95 over the objective counts as at most twice the demand",
        "a p95 of 4 objectives asks for 4 times the replicas instead of 2, also where more do not cure it",
        "latency adds nothing, not even the safety replica",
        "half: 2 of 264 seats; twice: 28 of 264 seats, 4 advices",
    ),
    Constant(
        "ERROR_PRESSURE_PPM",
        ERROR_PRESSURE_PPM,
        "ppm added to the demand",
        "bound of the earlier allocator: errors count as at most half the demand again",
        "a profile whose every request fails asks for 2 times the replicas instead of 1.5",
        "it asks for 1.25 times",
        "half: nothing; twice: 19 of 264 seats, +2 unplaced",
    ),
    Constant(
        "ERROR_NOTICED_PPM",
        ERROR_NOTICED_PPM,
        "ppm of the requests",
        "one in a hundred, the usual error budget of a service; fewer are clients and accidents",
        "two in a hundred fail before the safety replica comes",
        "one error among 200 requests keeps a spare replica standing",
        "half: 4 advices; twice: 4 advices",
    ),
    Constant(
        "WEAK_CONFIDENCE_PPM",
        WEAK_CONFIDENCE_PPM,
        "ppm",
        "evidence that is as likely wrong as right buys one canary and no more",
        "only certainty scales an inferred demand beyond one replica",
        "a guess that is right one time in four fills several hosts",
        "half: 32 of 264 seats, +2 unplaced, 4 advices; twice: 85 of 264 seats, 2 advices",
    ),
    Constant(
        "FORECAST_VALID_MS",
        FORECAST_VALID_MS,
        "ms since the newest observation",
        "five buckets of demand history; below one hour nothing beats assuming that what was so is so still",
        "replicas go on following numbers that are ten minutes old when whoever counts requests has died",
        "two late buckets stop growth",
        "nothing in these fleets",
    ),
    Constant(
        "HARM_LATENCY_PPM",
        HARM_LATENCY_PPM,
        "ppm of the objective",
        "bound of the earlier allocator; a hundred times late is late enough",
        "a profile with an objective of milliseconds wins every tie against a slow one that is as far behind",
        "the same at fifty times late: ties fall to the errors earlier",
        "nothing in these fleets",
    ),
    Constant(
        "START_HOSTS",
        START_HOSTS,
        "hosts per config",
        "bound of work: hosts asked for the fastest start, those with the artifact and then the fastest links first",
        "larger fleets pay twice for each profile whose demand rises",
        "where few hosts are allowed, the profile's own `timing.load` is taken more often",
        "nothing in these fleets",
    ),
    Constant(
        "HORIZON_MS",
        HORIZON_MS,
        "ms",
        "how long a seat is judged for where no forecast says it: the minimum residency of profiles",
        "a host twice as slow costs 60 request-seconds instead of 30 and outweighs a fetch",
        "it costs 15: files that are there win against a host twice as fast",
        "half: nothing; twice: 2 of 264 seats",
    ),
    Constant(
        "HORIZON_MAX_MS",
        HORIZON_MAX_MS,
        "ms",
        "an hour: beyond it placements are made anew anyway",
        "a forecast of two hours weighs a slower host twice as heavily as its first hour does",
        "a forecast of an hour counts as one of half an hour",
        "nothing in these fleets",
    ),
    Constant(
        "NOMINAL_MLANES",
        NOMINAL_MLANES,
        "milli-lanes",
        "a tenth of a lane is busy where no forecast speaks: enough to tell hosts apart, too little to outweigh files",
        "measured slowness without a forecast counts as 0.2 lanes would",
        "it counts as 0.05 lanes would",
        "half: nothing; twice: 2 of 264 seats",
    ),
    Constant(
        "WAITING_MLANES",
        WAITING_MLANES,
        "milli-lanes",
        "one: a replica is started for one request at least",
        "starts and waits count twice against slowness wherever less than two lanes are offered",
        "they count half where less than half a lane is offered",
        "half: 2 of 264 seats; twice: 20 of 264 seats",
    ),
    Constant(
        "START_MAX_MS",
        START_MAX_MS,
        "ms",
        "a day: longer starts are all alike, and sums stay within 64 bits",
        "starts of one and of two days are told apart",
        "starts of half a day and of a day are not",
        "nothing in these fleets",
    ),
    Constant(
        "HOT_PPM",
        HOT_PPM,
        "ppm",
        "bound of the earlier allocator: high demand makes speed at most 8 times as important",
        "the demand of 16 replicas counts twice as much as that of 8",
        "speed matters no more at 8 replicas' worth of demand than at 4",
        "half: 20 of 264 seats; twice: 26 of 264 seats",
    ),
    Constant(
        "FAILED_START_MS",
        FAILED_START_MS,
        "ms per failed attempt",
        "the cap of four such outweighs any usual fetch, as in the earlier allocator; the host stays the fallback",
        "one failure outweighs a fetch of 4 minutes",
        "one failure outweighs a fetch of 1 minute",
        "half: 18 of 264 seats; twice: nothing",
    ),
    Constant(
        "FAILURES_COUNTED",
        FAILURES_COUNTED,
        "attempts",
        "with the row above at most 8 minutes, so that a better repaired host is not lost for a month",
        "a host that fails often is as bad as a fetch of 16 minutes",
        "as bad as one of 4 minutes",
        "half: 18 of 264 seats; twice: 15 of 264 seats",
    ),
    Constant(
        "LEAVE_AFTER",
        LEAVE_AFTER,
        "attempts",
        "two may be bad luck, and with the first waits of the back-off a third comes after 90 s; "
        "no more than FAILURES_COUNTED, so that a host that was left is also ranked as one",
        "a broken host is left after six attempts and 15 minutes of back-off",
        "one mishap, such as a registry that was away for a moment, moves a replica",
        "nothing in these fleets; where starts fail: half: left after 1 attempt; twice: after 6",
    ),
    Constant(
        "FAILING_HOSTS",
        FAILING_HOSTS,
        "hosts",
        "what fails on four hosts and comes up on none has its fault in itself more likely than in the hosts",
        "a broken model tours eight hosts before people are told that it is the model",
        "with two broken hosts a third that is well is not tried",
        "nothing in these fleets; of ten hosts on which it fails: half: 2 are tried; twice: 8",
    ),
    Constant(
        "OWNER_RETURNS_PPM",
        OWNER_RETURNS_PPM,
        "ppm within the horizon",
        "one in five costs a restart: below half a warm time, so that it never outweighs what is there",
        "a person's machine that warms wins by a tenth of a warm time against a server with the files",
        "the same order; only the shown harm is less",
        "half: 2 of 264 seats; twice: 38 of 264 seats",
    ),
    Constant(
        "THROTTLES_MORE_PPM",
        THROTTLES_MORE_PPM,
        "ppm within the horizon",
        "half as likely as an owner's return, as half the memory is left",
        "a throttled server equals a person's machine",
        "the same order; only the shown harm is less",
        "nothing in these fleets",
    ),
    Constant(
        "LEARN_TRUSTED",
        LEARN_TRUSTED,
        "samples",
        "of the earlier allocator: four starts say what a fifth will take",
        "the link's own rate still has half a say after four starts",
        "two starts replace it",
        "half: 33 of 264 seats, 4 advices; twice: 37 of 264 seats",
    ),
    Constant(
        "LEARN_VALID_MS",
        LEARN_VALID_MS,
        "ms",
        "30 days: drivers, disks and networks change",
        "a time of a month ago still counts",
        "a host that is used once in three weeks never learns",
        "half: 46 of 264 seats, 2 advices; twice: 42 of 264 seats, 4 advices",
    ),
    Constant(
        "LEARN_CAP_MS",
        LEARN_CAP_MS,
        "ms",
        "an hour: whatever took longer was an accident",
        "accidents of two hours teach",
        "fetches of 40 minutes over slow links teach nothing",
        "half: 12 of 264 seats; twice: 12 of 264 seats, 4 advices",
    ),
    Constant(
        "SPEED_TRUSTED",
        SPEED_TRUSTED,
        "samples",
        "of the earlier allocator",
        "eight answers leave half the say to the hardware",
        "four are enough",
        "nothing in these fleets",
    ),
    Constant(
        "SPEED_VALID_MS",
        SPEED_VALID_MS,
        "ms",
        "of the earlier allocator: a quarter of an hour, as load and heat change",
        "a measurement of 15 minutes ago has half its weight",
        "one of 7.5 minutes ago has none",
        "half: 49 of 264 seats; twice: 61 of 264 seats",
    ),
    Constant(
        "SLOWER_MAX_PPM",
        SLOWER_MAX_PPM,
        "ppm of a request's time",
        "four times as long as the fastest: slower is overload, which is no property of a host",
        "a host 7 times as slow is told from one 4 times as slow",
        "hosts 2.5 and 4 times as slow are alike",
        "nothing in these fleets",
    ),
    Constant(
        "HARDWARE_PPM",
        HARDWARE_PPM,
        "ppm of a request's time",
        "never outweighs the default fetch of 30 s below 5 times the demand of one replica",
        "the largest guess outweighs that fetch at 2.5 times the demand of a replica",
        "no guess ever outweighs that fetch: only ties",
        "half: 68 of 264 seats; twice: 63 of 264 seats",
    ),
    Constant(
        "MAIN_PART_PPM",
        MAIN_PART_PPM,
        "ppm",
        "decoding reads all weights for each token: most of a request is memory, of an image compute",
        "compute and memory cannot be told apart: the rest would be negative",
        "a card with little bandwidth and much compute is taken for text",
        "half: 51 of 264 seats; twice: 23 of 264 seats",
    ),
    Constant(
        "REVIEW_PPM",
        REVIEW_PPM,
        "ppm of the proposed host's harm",
        "a fifth: above the noise of measured speeds",
        "a proposal holds against a host that is better by two fifths",
        "measurements that jitter by more than a tenth overturn it",
        "half: 24 of 264 seats; twice: 19 of 264 seats",
    ),
    Constant(
        "SCARCE_KINDS",
        SCARCE_KINDS,
        "kinds of replicas",
        "bound of work: what a seat takes from others is counted for those whose places are dearest",
        "fleets of many kinds pay twice for each seat; openb fills no further (96.1, 94.3, 95.9 %)",
        "fleets of many kinds leave out more of what has room almost anywhere; openb fills as far",
        "nothing in these fleets",
    ),
    Constant(
        "VICTIM_AGE_MS",
        VICTIM_AGE_MS,
        "ms",
        "of the earlier allocator: what was fetched for a guess gets a quarter of an hour to be right",
        "a wrong guess blocks its bytes for half an hour",
        "guesses displace each other within 8 minutes",
        "nothing in these fleets",
    ),
    Constant(
        "VICTIM_GAIN_PPM",
        VICTIM_GAIN_PPM,
        "ppm of the value per byte",
        "of the earlier allocator: twice the worth, or the transfer is not paid",
        "only four times the value displaces",
        "a value as good as equal displaces: transfers without end",
        "nothing in these fleets",
    ),
    Constant(
        "VICTIMS",
        VICTIMS,
        "artifacts",
        "of the earlier allocator: one wave",
        "six small artifacts make way for a large one",
        "one does",
        "nothing in these fleets",
    ),
    Constant(
        "VICTIM_CANDIDATES",
        VICTIM_CANDIDATES,
        "artifacts",
        "bound of work: 696 groups of up to three",
        "5,488 groups are compared for each full host",
        "of more than 8 artifacts some are never looked at",
        "nothing in these fleets",
    ),
    Constant(
        "EXPIRIES",
        EXPIRIES,
        "artifacts per plan",
        "of the earlier allocator: one at a time",
        "two go at once",
        "none ever goes: the disk fills with wrong guesses",
        "half: 8 advices; twice: 6 advices",
    ),
    Constant(
        "GUESSED_PROFILES",
        GUESSED_PROFILES,
        "profiles per plan",
        "bound of work: those with most at stake; one prefetch comes of them",
        "large fleets look at twice as many before each guess",
        "a small artifact of the 40th profile by stake is never found",
        "nothing in these fleets",
    ),
)
