"""Fleets of any size as files in memory, made without chance: for benches and for tests of scale."""

from __future__ import annotations

import hashlib

HEAD = "apiVersion: gridops/v1\nkind: {kind}\n"


def fleet(hosts: int, profiles: int, hosts_per_file: int = 10) -> dict[str, str]:
    """A whole repository that validates without a finding."""
    files = {
        "policies/mode.yaml": HEAD.format(kind="Mode") + "scopes:\n  default: {mode: recommend}\n",
        "policies/planning.yaml": HEAD.format(kind="Planning") + "workloads: [general, coding]\n",
    }
    for first in range(0, hosts, hosts_per_file):
        numbers = range(first, min(first + hosts_per_file, hosts))
        body = "".join(_host(n) for n in numbers)
        files[f"fleet.d/rack-{first // hosts_per_file:04d}.yaml"] = HEAD.format(kind="Hosts") + "hosts:\n" + body
    for n in range(profiles):
        files[f"profiles.d/model-{n:04d}.yaml"] = HEAD.format(kind="Profile") + _profile(n)
    return files


def lines(files: dict[str, str]) -> int:
    return sum(text.count("\n") for text in files.values())


def _host(n: int) -> str:
    return f"""\
  host-{n:05d}:
    domains: {{rack: r{n // 16}, room: m{n // 256}}}
    devices:
      gpu0: {{kind: gpu, model: L40S, memory: 48GiB, peers: [gpu1]}}
      gpu1: {{kind: gpu, model: L40S, memory: 48GiB, peers: [gpu0]}}
      cpu0: {{kind: cpu, memory: {256 + n % 3 * 128}GiB, reserve: 16GiB}}
    runtimes: {{llama.cpp: {{backend: cuda}}, vllm: {{backend: cuda}}}}
    tags: [always-on]
    tier: internal
    max_replicas: {4 + n % 5}
    price_per_hour: 1.20
"""


def _profile(n: int) -> str:
    digest = hashlib.sha256(str(n).encode()).hexdigest()
    return f"""\
name: model-{n:04d}
serves: [model-{n:04d}-it]
modality: text
replicas: {{min: 1, max: 3}}
priority: {50 + n % 100}
spread: {{by: rack, min: 1}}
placement:
  require_tags: [always-on]
  tier: internal
workloads: {{general: 1.0, coding: 0.8}}
demand: {{utilization: 0.70, service: 8s, latency_slo: 5s}}
timing: {{load: 30s, warm: 5s, min_residency: 5m, drain: 2m}}
restart: {{max: 5, per: 10m, backoff: 2s}}
configs:
  q4-cuda:
    engine: llama.cpp
    backends: [cuda]
    artifact:
      format: gguf
      source: "hf://owner/model-{n:04d}@1a2b3c4d1a2b3c4d1a2b3c4d1a2b3c4d1a2b3c4d"
      files:
        - {{path: model-{n:04d}.gguf, sha256: {digest}, size: 18GiB}}
    context: 16384
    lanes: 4
    footprint: {{source: declared, device: 20GiB, host: 2GiB, kv_per_1k: 12MiB}}
    args: {{flash_attn: true}}
"""
