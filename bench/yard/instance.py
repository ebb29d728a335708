"""Placement instances made by seeded chance: hosts of eight kinds, models of twelve sizes, most running already.

One instance is one number triple (hosts, models, seed) and a tightness: demand over memory. The same numbers give the
same instance on every machine, so that an optimum found once can be kept. Called by the benches and by
tests/planner/test_yardsticks.py; knows nothing of gridops.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cached_property

Pair = tuple[int, int]
"""(model, host)."""

HOST_KINDS = (
    (8_000, 1, 2500, ("llamacpp",)),
    (16_000, 2, 3000, ("llamacpp", "ollama")),
    (24_000, 3, 3500, ("llamacpp", "vllm", "ollama")),
    (32_000, 3, 5000, ("llamacpp", "mlx")),
    (48_000, 4, 6000, ("llamacpp", "vllm")),
    (80_000, 6, 7000, ("vllm", "llamacpp")),
    (128_000, 6, 5500, ("mlx", "llamacpp")),
    (192_000, 8, 7000, ("vllm", "llamacpp")),
)
"""Memory in MB, slots, disk in MB/s, engines."""
HOST_ODDS = (3, 4, 6, 3, 3, 3, 2, 1)
MODEL_MB = (1200, 2500, 4900, 5200, 8200, 9500, 13500, 18600, 20000, 42500, 47000, 65000)
MODEL_ODDS = (2, 3, 5, 5, 4, 3, 3, 3, 3, 1.5, 1, 1)
ENGINES = ("llamacpp", "vllm", "mlx", "ollama")
ENGINE_ODDS = (6, 3, 1, 2)
WEIGHTS = (1, 2, 4, 8, 16)
DOMAIN_MINIMA = (1, 1, 2, 2, 3)
FIXED_START_S = 1.5
NOT_RUNNING = 0.3
GROWTH_MAX = 20_000


@dataclass(frozen=True, slots=True)
class Machine:
    mem: int
    slots: int
    domain: int
    rate: float
    """MB/s from disk to device."""
    engines: tuple[str, ...]


@dataclass(slots=True)
class Model:
    mem: int
    replicas: int
    weight: int
    domains: int
    """Replicas shall stand in at least so many failure domains (or in as many as there are replicas placed)."""
    engine: str


@dataclass(frozen=True)
class Instance:
    name: str
    machines: tuple[Machine, ...]
    models: tuple[Model, ...]
    excludes: frozenset[Pair]
    """Pairs of models that may not share a machine."""
    pins: frozenset[Pair]
    drained: frozenset[int]
    current: frozenset[Pair]

    @cached_property
    def allowed(self) -> frozenset[Pair]:
        """Where a model may stand: engine and size fit, and the machine is not drained, pins excepted."""
        return frozenset(
            (m, h)
            for m, model in enumerate(self.models)
            for h, machine in enumerate(self.machines)
            if model.engine in machine.engines
            and model.mem <= machine.mem
            and (h not in self.drained or (m, h) in self.pins)
        )

    @cached_property
    def total_weight(self) -> int:
        return sum(m.weight * m.replicas for m in self.models)

    def start_s(self, pair: Pair) -> float:
        """Seconds to start the model on the machine."""
        model, host = pair
        return self.models[model].mem / self.machines[host].rate + FIXED_START_S


def instance(hosts: int, models: int, seed: int, tightness: float) -> Instance:
    """The instance of these numbers. Every draw has its place in the order: moving one changes all that follow."""
    chance = random.Random(seed)
    domains = max(3, hosts // 8)
    machines = tuple(_machine(chance, domains) for _ in range(hosts))
    wanted = [_model(chance) for _ in range(models)]
    _grow(chance, wanted, tightness * sum(m.mem for m in machines), max(2, hosts // 2))
    for model in wanted:
        model.domains = min(model.replicas, chance.choice(DOMAIN_MINIMA), domains)
    drawn = [chance.sample(range(models), 2) for _ in range(models // 2)]
    excludes = frozenset((min(a, b), max(a, b)) for a, b in drawn)
    current = _running(chance, machines, wanted, excludes)
    pins = frozenset(chance.sample(sorted(current), min(len(current), models // 8)))
    drained = frozenset(chance.sample(range(hosts), max(1, hosts // 16)))
    name = f"{hosts}x{models}@{tightness:g}#{seed}"
    return Instance(name, machines, tuple(wanted), excludes, pins, drained, current)


def named(name: str) -> Instance:
    """The instance with this name, such as `16x8@0.7#3`."""
    size, _, rest = name.partition("@")
    tightness, _, seed = rest.partition("#")
    hosts, _, models = size.partition("x")
    return instance(int(hosts), int(models), int(seed), float(tightness))


def _machine(chance: random.Random, domains: int) -> Machine:
    mem, slots, rate, engines = chance.choices(HOST_KINDS, HOST_ODDS)[0]
    usable = int(mem * chance.uniform(0.8, 0.95))
    domain = chance.randrange(domains)
    return Machine(usable, slots, domain, rate * chance.uniform(0.6, 1.1), engines)


def _model(chance: random.Random) -> Model:
    size = chance.choices(MODEL_MB, MODEL_ODDS)[0] * chance.uniform(0.95, 1.25)
    engine = chance.choices(ENGINES, ENGINE_ODDS)[0]
    return Model(int(size), 1, chance.choice(WEIGHTS), 1, engine)


def _grow(chance: random.Random, models: list[Model], target_mb: float, most: int) -> None:
    """Raise replicas of models picked by chance until the demand is there."""
    for _ in range(GROWTH_MAX):
        if sum(m.mem * m.replicas for m in models) >= target_mb:
            return
        model = chance.choice(models)
        if model.replicas < most:
            model.replicas += 1


def _running(
    chance: random.Random, machines: tuple[Machine, ...], models: list[Model], excludes: frozenset[Pair]
) -> frozenset[Pair]:
    """What runs already: each wanted replica with seven chances in ten, wherever there is room."""
    free = [m.mem for m in machines]
    slots = [m.slots for m in machines]
    found: set[Pair] = set()
    foes: dict[int, set[int]] = {m: set() for m in range(len(models))}
    for a, b in excludes:
        foes[a].add(b)
        foes[b].add(a)
    for number, model in enumerate(models):
        for _ in range(model.replicas):
            if chance.random() < NOT_RUNNING:
                continue
            hosts = [
                h
                for h, machine in enumerate(machines)
                if model.engine in machine.engines
                and free[h] >= model.mem
                and slots[h] > 0
                and (number, h) not in found
                and not any((foe, h) in found for foe in foes[number])
            ]
            if hosts:
                host = chance.choice(hosts)
                found.add((number, host))
                free[host] -= model.mem
                slots[host] -= 1
    return frozenset(found)
