"""What one run of the lab is made of. Drawn first from the seed; most runs have most faults switched off entirely.

A fleet in which everything fails at once never gets far enough to be interesting, so each kind of fault is present in
some runs and absent in others (swarm testing). `--set` and the shrinker replace single fields.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from gridops.base import limits
from gridops.base.ids import HostId, ScopeName
from gridops.lab.dice import Dice

OLD_FLEET = limits.DECIDED_KEPT + 50
"""Commands of a host that has forgotten the first of them."""


@dataclass(frozen=True, slots=True)
class Options:
    """Rates are in parts per million of the thing that may go wrong; times in milliseconds."""

    seed: int
    talk: bool = False
    """Only the talk of controller and hosts: commands come by chance, and nobody plans (`lab.talk`)."""
    hosts: int = 3
    laptops: int = 0
    """Of the hosts: machines of people, which say that they go to sleep."""
    lying: int = 0
    """Of the hosts: they say that they have twice the memory that they have."""
    profiles: int = 2
    host_mib: int = 3072
    replica_mib: int = 400
    beat_ms: int = 5_000
    chaos_ms: int = 240_000
    heal_ms: int = 240_000
    """So long the healed fleet has until everything wanted stands and nothing is owed."""
    automatic: bool = True
    """Automatic for everything; else people apply what is proposed."""
    cooldown_ms: int = 0
    catalog: bool = False
    """People have signed what may run; what they commit sometimes goes beyond it."""
    disruptions: int = 0
    """So many replicas may be disrupted at once by what is not repair; 0: no such budget."""
    commit_every_ms: int = 40_000
    rollouts_ppm: int = 0
    """Of the commits: they change how every model runs, all at once."""
    apply_after_ms: int = 4_000
    latency_ms: int = 40
    tail_ppm: int = 0
    """Messages that take up to twenty seconds."""
    drop_ppm: int = 0
    twice_ppm: int = 0
    replay_ppm: int = 0
    """Messages after which some older one is delivered once more."""
    cut_every_ms: int = 0
    """One host is cut off, one way or both, for seconds or minutes; 0: never."""
    agent_crash_ppm: int = 0
    """Of each write to a host's ledger: the agent is gone before or after it."""
    reboot_every_ms: int = 0
    controller_crash_ppm: int = 0
    """Of each write to the journal."""
    zombie_ppm: int = 0
    """Of the controllers that are gone: it was only asleep, and wakes beside its successor."""
    engine_death_every_ms: int = 0
    start_fails_ppm: int = 0
    never_ready_ppm: int = 0
    stubborn_ppm: int = 0
    """Of engines: they do not end when they are told to."""
    fetch_fails_ppm: int = 0
    lost_files_ppm: int = 0
    """Of the fetched files, at a reboot: the power was cut before they were on the disk."""
    late_approval_ppm: int = 0
    """Of the looks of people: what they sign is over before it arrives."""
    clock_step_every_ms: int = 0
    """The wall clock of one machine leaps by up to an hour."""
    sleep_every_ms: int = 0
    """One machine sleeps for seconds or minutes, with everything on it."""
    restore_every_ms: int = 0
    """The controller's journal is replaced by an older copy of it, and people rebuild."""

    signed_commits: bool = False
    """Every commit is signed, and the product's own intake reads them (`lab.forge`)."""
    renew_every_ms: int = 0
    """People sign the next root document, or the next catalog where there is one. Only with signed commits."""
    pusher_every_ms: int = 0
    """Somebody who may push, and lies: rewinds, unsigned commits, older documents. Only with signed commits."""
    thief_ppm: int = 0
    """Of directives: who holds the controller's key puts older documents of trust in."""
    forger_ppm: int = 0
    """Of directives: who holds the controller's key makes something of them that must be refused (`lab.forger`)."""
    usurper_ppm: int = 0
    """Of directives: who holds the controller's key gives commands of his own, and people have to act (`lab.usurper`).
    Not where `talk`."""
    past: int = 0
    """So many commands each host decided before the run, and no journal knows of them. Not where `talk`."""
    stops_ppm: int = 0
    """Of the commands of the talk: they take the name of what serves away, by nobody's word (the host's brake)."""
    twins_ppm: int = 0
    """Of the controllers that wake beside their successors: hosts hear both for a while before it writes."""
    disk_error_ppm: int = 0
    """Of the durable steps: the disk says no, and whoever wanted it goes on or ends."""
    bad_commit_ppm: int = 0
    """Of the commits: a file in them is wrong."""
    storm_every_ms: int = 0
    """Many commits within a second."""
    clock_drift_ppm: int = 0
    """The clocks of hosts go faster or slower by this."""
    freeze_every_ms: int = 0
    """The wall clock of one machine stands still for a while."""
    ask_every_ms: int = 0
    """Somebody asks a model; 0: nobody ever does."""
    lose_every_ms: int = 0
    """One host falls silent, and people write it off or expunge its key (`lab.losses`). Not where `talk`."""
    rekey_every_ms: int = 0
    """One host makes another key, signs it over, and people commit it (`lab.rekeys`). Not where `talk`."""
    forecast_every_ms: int = 0
    """Somebody asks what a forecast would change (`lab.forecasts`). Not where `talk`."""
    scopes: int = 1
    """Hosts and models by turns in so many scopes, each with its own mode, budgets and plans."""
    strike: int = 0
    """The durable step of the run that fails, counted from 1 (`lab.strikes`); 0: none."""
    strike_how: int = 0
    strike_again: int = 0
    """So many steps later one fails once more; 0: none does."""

    @property
    def stale_ms(self) -> int:
        """A host is silent when it was not heard for so long."""
        return max(15_000, 3 * self.beat_ms)

    @property
    def may_rebuild(self) -> bool:
        """Hosts may know of commands that the journal does not, and people mend that."""
        return bool(self.restore_every_ms or self.usurper_ppm or self.past)

    @property
    def host_names(self) -> tuple[HostId, ...]:
        return tuple(HostId(f"host-{n}") for n in range(1, self.hosts + 1))

    @property
    def scope_names(self) -> tuple[ScopeName, ...]:
        return (ScopeName("default"), ScopeName("second"), ScopeName("third"))[: self.scopes]

    def scope_of(self, name: str) -> ScopeName:
        """The scope of a host or a model, by its number."""
        return self.scope_names[(int(name.rpartition("-")[2]) - 1) % self.scopes]

    @property
    def laptop_names(self) -> tuple[HostId, ...]:
        return self.host_names[: self.laptops]

    @property
    def liars(self) -> tuple[HostId, ...]:
        return self.host_names[len(self.host_names) - self.lying :]


def draw(seed: int) -> Options:
    """The options of a seed."""
    drawn = _usurped(_drawn(seed))
    keys = Dice(seed, "options: keys of hosts")
    return replace(drawn, rekey_every_ms=keys.one_of((30_000, 70_000))) if keys.happens(100_000) else drawn


def _drawn(seed: int) -> Options:
    dice = Dice(seed, "options")

    def sometimes(*values: int) -> int:
        return dice.one_of(values) if dice.happens(450_000) else 0

    drawn = Options(
        seed=seed,
        hosts=dice.between(1, 5),
        profiles=dice.between(1, 4),
        beat_ms=dice.one_of((2_000, 5_000, 10_000)),
        automatic=dice.happens(600_000),
        cooldown_ms=dice.one_of((0, 0, 10_000)),
        commit_every_ms=dice.one_of((20_000, 40_000, 90_000)),
        apply_after_ms=dice.one_of((1_000, 4_000, 20_000)),
        latency_ms=dice.one_of((5, 40, 400)),
        tail_ppm=sometimes(10_000, 100_000),
        drop_ppm=sometimes(20_000, 200_000),
        twice_ppm=sometimes(20_000, 200_000),
        replay_ppm=sometimes(20_000, 200_000),
        cut_every_ms=sometimes(30_000, 90_000),
        agent_crash_ppm=sometimes(10_000, 50_000),
        reboot_every_ms=sometimes(60_000, 150_000),
        controller_crash_ppm=sometimes(5_000, 30_000),
        zombie_ppm=dice.one_of((0, 500_000)),
        engine_death_every_ms=sometimes(15_000, 60_000),
        start_fails_ppm=sometimes(50_000, 400_000),
        never_ready_ppm=sometimes(50_000, 200_000),
        stubborn_ppm=sometimes(50_000, 300_000),
        fetch_fails_ppm=sometimes(50_000, 300_000),
        clock_step_every_ms=sometimes(60_000, 120_000),
        lost_files_ppm=sometimes(200_000, 1_000_000),
        late_approval_ppm=sometimes(100_000, 500_000),
        sleep_every_ms=sometimes(40_000, 90_000),
        laptops=dice.one_of((0, 0, 1, 2)),
        lying=dice.one_of((0, 0, 0, 1)),
        disruptions=dice.one_of((0, 0, 1, 2)),
        host_mib=dice.one_of((1000, 3072, 3072)),
        rollouts_ppm=dice.one_of((0, 500_000)),
        catalog=dice.happens(300_000),
    )
    return _with_more(drawn)


def _with_more(drawn: Options) -> Options:
    """What came later has streams of its own, so that most seeds stay what they were."""
    scopes = min(2, drawn.hosts, drawn.profiles) if Dice(drawn.seed, "options: scopes").happens(200_000) else 1
    asks = Dice(drawn.seed, "options: callers")
    ask_every_ms = asks.one_of((500, 2_000)) if asks.happens(200_000) else 0
    losses = Dice(drawn.seed, "options: losses")
    lose_every_ms = losses.one_of((40_000, 90_000)) if losses.happens(150_000) else 0
    drawn = replace(drawn, scopes=scopes, ask_every_ms=ask_every_ms, lose_every_ms=lose_every_ms)
    foreseen = Dice(drawn.seed, "options: forecasts").happens(150_000)
    drawn = replace(drawn, forecast_every_ms=30_000 if foreseen else 0)
    drawn = _restored(_with_rare(drawn))
    dice = Dice(drawn.seed, "options: trust")
    if not dice.happens(250_000):
        return drawn
    return replace(
        drawn,
        signed_commits=True,
        renew_every_ms=dice.one_of((0, 30_000, 60_000)),
        pusher_every_ms=dice.one_of((0, 15_000, 40_000)),
        thief_ppm=dice.one_of((0, 50_000)),
    )


def _restored(drawn: Options) -> Options:
    """A tenth of the fleets lose the journal of a controller whose clock is right: see `draw_talk`."""
    if not Dice(drawn.seed, "options: older journals").happens(100_000):
        return drawn
    return replace(drawn, restore_every_ms=90_000, clock_step_every_ms=0, freeze_every_ms=0, zombie_ppm=0)


def _usurped(drawn: Options) -> Options:
    """In one of fourteen fleets a thief gives commands of his own. People rebuild there: see `_restored`."""
    dice = Dice(drawn.seed, "options: usurpers")
    if not dice.happens(70_000):
        return drawn
    often, past = dice.one_of((20_000, 60_000)), dice.one_of((0, 0, OLD_FLEET))
    steady = replace(drawn, clock_step_every_ms=0, freeze_every_ms=0, zombie_ppm=0)
    return replace(steady, usurper_ppm=often, past=past)


def draw_talk(seed: int) -> Options:
    """The options of a seed of the world in which nobody plans."""
    drawn = _drawn(seed)
    dice = Dice(seed, "talk")
    restored = dice.happens(333_000)
    drawn = replace(
        drawn,
        talk=True,
        disk_error_ppm=0,
        bad_commit_ppm=0,
        storm_every_ms=0,
        lose_every_ms=0,
        forecast_every_ms=0,
        chaos_ms=60_000,
        heal_ms=150_000,
        hosts=dice.between(1, 3),
        laptops=0,
        catalog=False,
        ask_every_ms=0,
        signed_commits=False,
        scopes=1,
        renew_every_ms=0,
        pusher_every_ms=0,
        thief_ppm=0,
        beat_ms=dice.one_of((2_000, 5_000)),
        cut_every_ms=dice.one_of((0, 20_000, 40_000)),
        restore_every_ms=40_000 if restored else 0,
        # A controller that forgot how fast its clock once was is not believed until that time has come: an hour.
        clock_step_every_ms=0 if restored else drawn.clock_step_every_ms,
        # Its machine was replaced: nobody who slept there wakes up beside it.
        zombie_ppm=0 if restored else drawn.zombie_ppm,
    )
    if not Dice(seed, "options: stops").happens(100_000):
        return drawn
    # One host, where much serves and is heard: only there so many are stopped that its brake matters.
    quick = replace(drawn, hosts=1, beat_ms=2_000, host_mib=3072, start_fails_ppm=0, never_ready_ppm=0)
    return replace(quick, stops_ppm=500_000, cut_every_ms=0, sleep_every_ms=0, reboot_every_ms=0)


def _with_rare(drawn: Options) -> Options:
    """Faults that a third of the fleets meet at all, and then some of them."""
    dice = Dice(drawn.seed, "options: rare")
    if not dice.happens(333_000):
        return drawn

    def sometimes(*values: int) -> int:
        return dice.one_of(values) if dice.happens(450_000) else 0

    return replace(
        drawn,
        forger_ppm=sometimes(20_000, 100_000),
        twins_ppm=sometimes(500_000, 1_000_000),
        disk_error_ppm=sometimes(5_000, 30_000),
        bad_commit_ppm=sometimes(100_000, 300_000),
        storm_every_ms=sometimes(40_000, 90_000),
        clock_drift_ppm=sometimes(5_000, 50_000),
        freeze_every_ms=sometimes(30_000, 90_000),
    )


_NO_FAULTS = ("rollouts_ppm", "renew_every_ms")
FAULTS = tuple(
    name
    for name in (f.name for f in fields(Options))
    if name.endswith(("_ppm", "_every_ms")) and name not in _NO_FAULTS
)
"""The fields that make things go wrong, and how often people change their minds."""


def written(options: Options) -> str:
    """The options as one line that a person can keep: what is not as usual, after the seed."""
    usual = Options(seed=options.seed)
    named = [(f.name, getattr(options, f.name)) for f in fields(Options)]
    told = [f"{name}={int(value)}" for name, value in named if value != getattr(usual, name)]
    return f"{options.seed} | {' '.join(told)}"


def read(line: str) -> Options:
    """The options of such a line. Raises ValueError where it names none of them."""
    seed, _, told = line.partition("|")
    options = Options(seed=int(seed))
    kinds = {f.name: type(getattr(options, f.name)) for f in fields(Options)}
    for word in told.split():
        name, _, value = word.partition("=")
        if name not in kinds or not value.isdigit():
            raise ValueError(f"`{word}` is no option of a run: expected NAME=NUMBER, with one of {', '.join(kinds)}")
        options = with_(options, name, kinds[name](int(value)))
    return options


def calm(options: Options) -> Options:
    """The same fleet with nothing going wrong."""
    for name in FAULTS:
        if name != "commit_every_ms":
            options = with_(options, name, 0)
    return options


def with_(options: Options, name: str, value: int) -> Options:
    """The options with one field replaced."""
    changed: dict[str, Any] = {name: value}
    return replace(options, **changed)
