"""The kind Profile: what is wanted of a model, and its configs; each field declared once.

Rules here look at one profile; whether hosts can satisfy it is judged by `sense_placement`.
"""

from __future__ import annotations

import re
from typing import Any

from gridops.base.codes import files as codes
from gridops.base.codes import sense as sense_codes
from gridops.base.ids import ScopeName
from gridops.base.units import PPM
from gridops.files import near
from gridops.files.diagnose import Fix, Related, brief
from gridops.files.engine_facts import ENGINES, Values
from gridops.files.forms import CREDENTIAL, LABEL, MODEL_ID, RELATIVE, SOURCE, Arg, NumberOrBlock, Sha256
from gridops.files.kinds_fleet import BACKENDS, header
from gridops.files.nodes import Entry, Scalar
from gridops.files.reader import Reader, replace
from gridops.files.scalars import Choice, Flag, Int, Name, Or, Rate, Share, Size, Span
from gridops.files.shape import Block, Field, ListOf, MapOf, Read
from gridops.footprint.share import SHARE_ARGUMENTS
from gridops.model.profile import (
    Artifact,
    ArtifactFile,
    Colocation,
    Config,
    DemandRules,
    DeviceNeed,
    Downtime,
    EngineArg,
    Fill,
    Footprint,
    FootprintSource,
    Heads,
    Modality,
    PlacementRules,
    Profile,
    Restart,
    Spread,
    Timing,
    WorkloadScore,
)  # fmt: skip

REPLICAS_MAX = 10_000
OWN_ARGUMENTS = frozenset(
    {"alias", "api_key", "api_key_file", "context", "ctx_size", "host", "lanes", "metrics", "model", "n_ctx",
     "parallel", "port", "slots"}
)  # fmt: skip
"""What the agent passes to the engine by itself."""


def _bounds_rule(read: Read, reader: Reader) -> None:
    low, high = read.get("min"), read.get("max")
    if low is not None and high is not None and low > high:
        related = (Related(reader.source.place(read.node("max")), "the upper bound"),)
        reader.error(sense_codes.MIN_ABOVE_MAX, read.node("min"), f"min {low} is above max {high}", related=related)


def _bounds(_read: Read, made: dict[str, Any], _reader: Reader) -> dict[str, Any]:
    """Either bound may be left out: the other one, or one replica, stands for it."""
    low = made.get("replicas_min", min(1, made.get("replicas_max", 1)))
    return {"replicas_min": low, "replicas_max": made.get("replicas_max", max(low, 1))}


REPLICAS = NumberOrBlock(
    Int(0, REPLICAS_MAX),
    Block(
        "replicas",
        None,
        Field("min", Int(0, REPLICAS_MAX), "Kept at all times.", "replicas_min"),
        Field("max", Int(0, REPLICAS_MAX), "Never exceeded.", "replicas_max"),
        rules=(_bounds_rule,),
        make=_bounds,
    ),
    lambda n: {"replicas_min": n, "replicas_max": n},
)

_IMMUTABLE = re.compile(r"hf://[^@]+@[0-9a-f]{40}(?:/.*)?|oci://[^@]+@sha256:[0-9a-f]{64}|(?!hf:|oci:).*")


def _source_rule(read: Read, reader: Reader) -> None:
    """Hosts fetch from nothing that may move; whoever reads the file should not learn it from a failed load."""
    source = read.get("source")
    if isinstance(source, str) and _IMMUTABLE.fullmatch(source) is None:
        form = (
            "oci://REGISTRY/REPOSITORY@sha256:DIGEST" if source.startswith("oci:") else "hf://OWNER/REPO@ALL-40-DIGITS"
        )
        message = f"`{source.rpartition('@')[2]}` may move, so no host fetches from it"
        reader.warn(sense_codes.MUTABLE_SOURCE, read.node("source"), message, f"write {form}")


ARTIFACT = Block(
    "the artifact",
    Artifact,
    Field("format", Name("format"), "gguf, safetensors, ollama (from its registry) or workflow.", required=True),
    Field("source", SOURCE, "Where the files can be fetched; left out: found by digest on the host, or refused."),
    Field("credential", CREDENTIAL, "Name of the secret that the source asks for."),
    Field(
        "files",
        ListOf(
            Block(
                "the artifact file",
                ArtifactFile,
                Field("path", RELATIVE, "Path below the artifact folder.", required=True),
                Field("sha256", Sha256(), "The file's identity: its SHA-256.", "", True, codes.NO_IDENTITY),
                Field(
                    "size", Size(low=1), "Its size, such as 18GiB or 98362432B.", "size_bytes", True, codes.NO_IDENTITY
                ),
            ),
            filled=True,
        ),
        "The files with digest and size; several for split models.",
        required=True,
        lacking=codes.NO_IDENTITY,
    ),
    rules=(_source_rule,),
)


def _footprint_rule(read: Read, reader: Reader) -> None:
    source = read.get("source")
    if source is FootprintSource.DECLARED and "device" not in read.values:
        reader.error(codes.MISSING_FIELD, read.anchor, "a declared footprint lacks `device`", "memory per device")
    if source in (FootprintSource.MEASURED, FootprintSource.UNKNOWN):
        hint = "write declared or derived"
        reader.error(codes.CHOICE, read.node("source"), f"`{source}` is not for people to write", hint)


FOOTPRINT = Block(
    "the footprint",
    Footprint,
    Field("source", Choice(FootprintSource), "declared (these numbers hold) or derived (computed).", required=True),
    Field("device", Size(low=1), "Resident memory per device.", "device_bytes"),
    Field("host", Size(), "RAM of the host, on top.", "host_bytes"),
    Field("kv_per_1k", Size(), "Cache per 1000 tokens of context.", "kv_per_1k_bytes"),
    Field("fixed_per_sequence", Size(), "Memory per lane that does not grow.", "fixed_per_sequence_bytes"),
    Field("spike_per_lane", Size(), "Short peaks per lane.", "spike_per_lane_bytes"),
    rules=(_footprint_rule,),
)


def _args_rule(read: Read, reader: Reader) -> None:
    args = read.get("args")
    facts = ENGINES.get(read.get("engine", ""))
    known = facts.args if facts is not None else None
    for name, entry in args.entries.items() if args is not None else ():
        if name.replace("-", "_") in SHARE_ARGUMENTS.values():
            hint = "it follows from the footprint: what is planned, of what the card has"
            reader.error(codes.OWN_ARGUMENT, entry.key, f"argument `{name}` is written from the plan", hint)
        elif name.replace("-", "_") in OWN_ARGUMENTS:
            reader.error(codes.OWN_ARGUMENT, entry.key, f"argument `{name}` is set by gridops itself")
        elif known is not None and name not in known:
            close = near.nearest(name, known)
            hint = f"did you mean `{close}`?" if close is not None else ""
            free = close is not None and close not in args.entries
            fix = Fix(f"rename to `{close}`", (replace(entry.key, close),)) if close is not None and free else None
            notes = (f"arguments: {', '.join(sorted(known))}",) if known else (f"{read.get('engine')} takes none",)
            message = f"{read.get('engine')} has no argument `{name}` here"
            say = reader.error if close is not None else reader.warn
            say(codes.UNKNOWN_ARGUMENT, entry.key, message, hint, notes=notes, fix=fix)
        elif known is not None and isinstance(args.values.get(name), str):
            _value_rule(reader, entry, known[name], args.values[name])


def _value_rule(reader: Reader, entry: Entry, allowed: Values, value: str) -> None:
    """A slip is an error with its repair; else a newer agent may know the word, and an older one refuses it."""
    if allowed.allow(value):
        return
    message = f"`{brief(value)}` is nothing that `{entry.key.value}` may be"
    close = near.nearest(value, allowed.words)
    if close is None or not isinstance(entry.value, Scalar):
        reader.warn(codes.ARGUMENT_VALUE, entry.value, message, allowed.says)
    else:
        fix = Fix(f"write `{close}`", (replace(entry.value, close),))
        reader.error(codes.ARGUMENT_VALUE, entry.value, message, f"did you mean `{close}`?", fix=fix)


def _devices_rule(read: Read, reader: Reader) -> None:
    for name in ("shard", "link", "numa") if read.get("count", 1) == 1 else ():
        if name in read.values:
            reader.warn(sense_codes.UNREACHABLE, read.key(name), f"`{name}` has no effect on one device")


CONFIG = Block(
    "the config",
    Config,
    Field("engine", Name("engine"), "llama.cpp, vllm, sglang, ollama or comfyui.", required=True),
    Field("backends", ListOf(Choice(BACKENDS), ordered=True, filled=True), "Builds of the engine.", required=True),
    Field("artifact", ARTIFACT, "The immutable model files.", required=True),
    Field("context", Int(1, 16_777_216), "Tokens that all its lanes hold together.", required=True),
    Field("lanes", Int(1, 4_096), "Generations at the same time."),
    Field(
        "devices",
        Block(
            "devices",
            DeviceNeed,
            Field("count", Int(1, 64), "Devices of one host."),
            Field("shard", Choice(("tensor", "pipeline", "layer")), "How the model is cut; else as the engine does."),
            Field("uneven", Flag(), "True when devices of different size will do."),
            Field("link", Choice(("peer", "any")), "peer asks for a fast link between all of them."),
            Field("numa", Choice(("same",)), "same asks for devices of one NUMA domain."),
            Field("pcie", Rate(low=1), "Rate at which each reaches the host's memory at least.", "pcie_bps"),
            rules=(_devices_rule,),
        ),
        "How many devices of one host it needs.",
    ),
    Field(
        "heads",
        Block(
            "heads",
            Heads,
            Field("attention", Int(1, 65_536), "Attention heads."),
            Field("kv", Int(1, 65_536), "Key and value heads."),
            Field("vision", Int(1, 65_536), "Heads of the vision tower."),
            Field("vocabulary", Int(1, 16_777_216), "Size of the vocabulary."),
        ),
        "What limits sharding; read from the artifact when absent.",
    ),
    Field("footprint", FOOTPRINT, "What it costs in memory.", required=True),
    Field(
        "args",
        MapOf("argument", Name("argument"), Arg(), make=lambda k, v: EngineArg(name=k, value=v)),
        "Engine arguments by their portable name.",
    ),
    rules=(_args_rule,),
)

PLACEMENT = Block(
    "placement",
    PlacementRules,
    Field("require_tags", ListOf(LABEL), "Tags that the host must have, all of them."),
    Field("forbid_tags", ListOf(LABEL), "Tags that the host must not have."),
    Field("tier", Name("tier"), "Lowest data tier that the host must have."),
    Field("allow_hosts", ListOf(Name("host")), "Only these; empty: any."),
    Field("deny_hosts", ListOf(Name("host")), "Never these."),
    Field("pins", ListOf(Name("host")), "Each is a floor of one replica on exactly that host."),
    Field("fill", Choice(Fill), "Of equally good hosts and devices: tight takes the fullest, even the emptiest."),
)

PROFILE = Block(
    "the profile",
    Profile,
    *header("Profile"),
    Field("name", Name("profile"), "Name of the profile; clients may ask for it.", required=True),
    Field("scope", Name("scope"), "Scope whose hosts it uses; `default` when left out."),
    Field("serves", ListOf(MODEL_ID), "Further ids that clients may ask for."),
    Field("modality", Choice(Modality), "What it produces."),
    Field("replicas", REPLICAS, "How many copies: one number, or {min, max}.", "*"),
    Field("priority", Int(0), "Higher is served first when memory is short."),
    Field(
        "spread",
        Block(
            "spread",
            Spread,
            Field("by", Name("level"), "Failure domain: rack, room, floor or person.", required=True),
            Field("min", Int(1, 1_000), "Different domains wanted.", required=True),
        ),
        "Keeps replicas apart.",
    ),
    Field("placement", PLACEMENT, "Which hosts may run it."),
    Field("max_per_host", Or("unlimited", None, Int(1, 256)), "Most replicas on one host."),
    Field(
        "colocation",
        Block(
            "colocation",
            Colocation,
            Field("max", Or("unlimited", None, Int(1, 256)), "Most profiles on its host, itself included."),
            Field("exclude", ListOf(Name("profile")), "Profiles that it never shares a host with, both ways."),
        ),
        "Who may run beside it.",
    ),
    Field(
        "workloads",
        MapOf(
            "workload",
            Name("workload"),
            Share(low=1, high=PPM),
            make=lambda k, v: WorkloadScore(workload=k, score_ppm=v),
        ),
        "How well it suits each kind of work, above 0 and up to 1.",
    ),
    Field(
        "demand",
        Block(
            "demand",
            DemandRules,
            Field("utilization", Share(low=1, high=PPM), "Share of its lanes that may be busy.", "utilization_ppm"),
            Field("service", Span(low=1), "Expected time of one request.", "service_ms"),
            Field("latency_slo", Span(low=1), "Latency that users accept.", "latency_slo_ms"),
            Field(
                "queue_per_replica",
                Int(1),
                "Waiting requests for each lane that should stand; from so many on, one replica more.",
            ),
        ),
        "How load turns into replicas.",
    ),
    Field(
        "timing",
        Block(
            "timing",
            Timing,
            Field("load", Span(), "Expected time to fetch and verify the files.", "load_ms"),
            Field("warm", Span(), "Expected time from start to ready.", "warm_ms"),
            Field("min_residency", Span(), "Kept at least so long once ready.", "min_residency_ms"),
            Field("scale_down_after", Span(), "Idle time before a surplus replica goes.", "scale_down_after_ms"),
            Field("drain", Span(), "Grace for requests in flight.", "drain_ms"),
        ),
        "Expected times and waits.",
    ),
    Field(
        "restart",
        Block(
            "restart",
            Restart,
            Field("max", Int(0, 1_000), "Starts within `per` before the host gives up."),
            Field("per", Span(low=1_000), "The time in which `max` counts.", "per_ms"),
            Field("backoff", Span(), "First wait, doubled each time.", "backoff_ms"),
        ),
        "Keep-alive by the host itself.",
    ),
    Field("downtime", Choice(Downtime), "never refuses to stop the old copy before the new one runs."),
    Field("idle_unload", Or("never", None, Span(low=60_000)), "Unload after such quiet.", "idle_unload_ms"),
    Field("renamed_from", Name("profile"), "Its replicas are taken over, not rebuilt."),
    Field(
        "configs",
        MapOf("config", Name("config"), CONFIG, key_to="name", ordered=True, filled=True),
        "Runnable variants in order of preference.",
        required=True,
    ),
    make=lambda read, made, reader: Profile(**{"scope": ScopeName("default"), **made}),
)
