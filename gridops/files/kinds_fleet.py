"""Kinds of `fleet.d/` and `policies/fleet.yaml`: Fleet, Hosts, HostKey, Drain; each field declared once.

`merge` lays a file's `defaults` under each of its hosts. Rules here look at one host; `sense_*` looks across.
"""

from __future__ import annotations

import re
from typing import Any

from gridops.base.codes import files as codes
from gridops.base.codes import sense as sense_codes
from gridops.base.units import PPM
from gridops.files import near
from gridops.files.diagnose import Related
from gridops.files.forms import BRANCH, CREDENTIAL, HOST_KEY, HTTPS, LABEL, MODEL_ID, URL, Header
from gridops.files.reader import BAD, Reader
from gridops.files.scalars import Choice, Flag, Instant, Int, Name, Pattern, Price, Rate, Share, Size, Span, Text
from gridops.files.shape import Block, Field, ListOf, MapOf, Read, Table
from gridops.model.fleet import (
    Absence,
    Device,
    DeviceKind,
    Disk,
    Domain,
    Drain,
    FleetSettings,
    Host,
    HostClass,
    HostKey,
    Link,
    OnReturn,
    Runtime,
)  # fmt: skip

_NUMBERED = re.compile(r"[0-9]+(\.[0-9]+)?")
"""What follows the kind in a device's name: its number, and for an instance of a card a number on that card."""
LEVELS = ("floor", "person", "rack", "room")
BACKEND_KINDS: dict[str, tuple[DeviceKind, ...]] = {
    "cann": (DeviceKind.GPU,),
    "cpu": (DeviceKind.CPU, DeviceKind.UNIFIED),
    "cuda": (DeviceKind.GPU, DeviceKind.UNIFIED),
    "metal": (DeviceKind.UNIFIED,),
    "mps": (DeviceKind.UNIFIED,),
    "rocm": (DeviceKind.GPU, DeviceKind.UNIFIED),
    "vulkan": (DeviceKind.GPU, DeviceKind.UNIFIED),
}
"""Which kinds of device a backend uses; a test keeps it equal to the planner's own table."""
BACKENDS = tuple(BACKEND_KINDS)


def header(kind: str) -> tuple[Field, Field]:
    return (
        Field("apiVersion", Header("gridops/v1"), "Version of this file's format.", "-", True, None),
        Field("kind", Header(kind), "What this file says.", "-", True, None),
    )


def _device_rule(read: Read, reader: Reader) -> None:
    memory, reserve = read.get("memory"), read.get("reserve")
    if memory is not None and reserve is not None and reserve >= memory:
        related = (Related(reader.source.place(read.node("memory")), "all there is"),)
        reader.error(sense_codes.RESERVE, read.node("reserve"), "the reserve leaves no memory", related=related)
    if "gpu_share" in read.values and read.get("kind") not in (None, DeviceKind.UNIFIED):
        reader.error(codes.NOT_HERE, read.key("gpu_share"), "`gpu_share` belongs to devices of kind unified")


DEVICE = Block(
    "the device",
    Device,
    Field("kind", Choice(DeviceKind), "gpu, cpu (the host's RAM) or unified.", required=True),
    Field("memory", Size(low=1), "A ceiling: a host may report less, never more.", "memory_bytes", True),
    Field("reserve", Size(), "Memory that models never get.", "reserve_bytes"),
    Field("model", Text(), "Name of the product."),
    Field("backend", Choice(BACKENDS), "The only backend that can use it, where a host has cards of several makers."),
    Field("numa", Int(0, 1_023), "NUMA domain that the device hangs on."),
    Field("pcie", Rate(low=1), "Rate at which it reaches the host's memory, such as 32GB/s.", "pcie_bps"),
    Field("parent", Name("device"), "The card that it is an instance of (MIG); that card then takes nothing itself."),
    Field("peers", ListOf(Name("device")), "Devices of this host that it reaches over a fast link."),
    Field("gpu_share", Share(low=1, high=PPM), "Share of unified memory that GPU work may use.", "gpu_share_ppm"),
    rules=(_device_rule,),
    merged=True,
)

ABSENCE = Block(
    "absence",
    Absence,
    Field("replace_after", Span(), "Absence after which its replicas are replaced.", "replace_after_ms", True),
    Field("on_return", Choice(OnReturn), "Which replica yields when the host comes back."),
    merged=True,
)

_EXTERNAL_ONLY = ("endpoint", "models", "credential")
_ACTUATED_ONLY = ("devices", "disk", "runtimes", "max_replicas", "absence", "owner")


def _host_rule(read: Read, reader: Reader) -> None:
    host_class = read.get("class", HostClass.DEDICATED)
    external = host_class is HostClass.EXTERNAL
    if external and "endpoint" not in read.values:
        reader.error(sense_codes.NO_ENDPOINT, read.anchor, "an external host needs an `endpoint`")
    if host_class is HostClass.OPPORTUNISTIC and "owner" not in read.values:
        message = "an opportunistic host needs an `owner`"
        reader.error(sense_codes.NO_OWNER, read.anchor, message, "it yields to that person")
    for name in _ACTUATED_ONLY if external else _EXTERNAL_ONLY:
        if name in read.entries:
            reader.error(codes.NOT_HERE, read.key(name), f"`{name}` has no meaning on a host of class {host_class}")
    if "absence" in read.entries and host_class is HostClass.DEDICATED:
        reader.error(codes.NOT_HERE, read.key("absence"), "`absence` has no meaning on a host of class dedicated")
    if not external and "devices" not in read.entries:
        reader.error(codes.MISSING_FIELD, read.anchor, "the host lacks `devices`", "what could run on it otherwise?")
    _levels(read.get("domains"), reader)
    _devices(read.get("devices"), reader)


def _levels(domains: Table | None, reader: Reader) -> None:
    for name, entry in domains.entries.items() if domains is not None else ():
        close = None if name in LEVELS else near.nearest(name, LEVELS)
        if close is not None:
            reader.warn(codes.CHOICE, entry.key, f"level `{name}` is not a usual one", f"did you mean `{close}`?")


def _devices(devices: Table | None, reader: Reader) -> None:
    if devices is None:
        return
    pools: list[str] = []
    for name, device in devices.values.items():
        if not isinstance(device, Read):
            continue
        kind = device.get("kind")
        if kind is not None and not _NUMBERED.fullmatch(name.removeprefix(str(kind))):
            other = any(name.startswith(str(k)) for k in DeviceKind)
            say = reader.error if other else reader.warn
            hint = f"hosts report it as `{kind}0`"
            say(sense_codes.DEVICE, device.anchor, f"device `{name}` is of kind {kind}", hint)
        if kind in (DeviceKind.CPU, DeviceKind.UNIFIED):
            if pools:
                hint = f"`{pools[0]}` is the host's memory already"
                reader.warn(sense_codes.DEVICE, device.anchor, f"`{name}` counts the host's memory twice", hint)
            pools.append(name)
        _peers(name, device, devices, reader)
        _parent(name, device, devices, reader)


def _peers(name: str, device: Read, devices: Table, reader: Reader) -> None:
    listed = device.get("peers")
    for peer, node in zip(listed.values, listed.nodes, strict=True) if listed is not None else ():
        other = devices.values.get(peer)
        if peer == name or other is None:
            close = near.nearest(peer, devices.values.keys())
            hint = f"did you mean `{close}`?" if close else f"devices: {', '.join(sorted(devices.values))}"
            reader.error(sense_codes.PEER, node, f"`{peer}` is not another device of this host", hint)
        elif isinstance(other, Read) and ((back := other.get("peers")) is None or name not in back.values):
            reader.warn(sense_codes.PEER, node, f"`{peer}` does not list `{name}` as a peer", "a link has two ends")


def _parent(name: str, device: Read, devices: Table, reader: Reader) -> None:
    """An instance names the card it is cut from: a whole GPU of the same host."""
    parent = device.get("parent")
    if parent is None:
        return
    card, node = devices.values.get(parent), device.node("parent")
    if parent == name or card is None:
        hint = f"devices: {', '.join(sorted(devices.values))}"
        reader.error(sense_codes.INSTANCE, node, f"`{parent}` is not another device of this host", hint)
        return
    if not isinstance(card, Read):
        return
    if card.get("parent") is not None or {card.get("kind"), device.get("kind")} != {DeviceKind.GPU}:
        reader.error(sense_codes.INSTANCE, node, f"`{parent}` cannot have instances like this", "only whole GPUs do")
        return
    parts = [d for d in devices.values.values() if isinstance(d, Read) and d.get("parent") == parent]
    sizes, whole = [d.get("memory") for d in parts], card.get("memory")
    if parts[-1] is device and whole is not None and None not in sizes and sum(sizes) > whole:
        message = f"the instances of `{parent}` have more memory than it has itself"
        reader.error(sense_codes.INSTANCE, device.node("memory"), message)


HOST = Block(
    "the host",
    Host,
    Field("class", Choice(HostClass), "dedicated, opportunistic (yields to its owner) or external.", "host_class"),
    Field("owner", Name("person"), "To whom an opportunistic host yields."),
    Field("endpoint", URL, "Where an external host answers."),
    Field("models", ListOf(MODEL_ID), "Ids that an external endpoint serves."),
    Field("credential", CREDENTIAL, "Name of a secret that lies on the host that uses it."),
    Field(
        "domains",
        MapOf("level", Name("level"), LABEL, make=lambda k, v: Domain(level=k, value=v)),
        "What fails together with it: rack, room, floor, person.",
    ),
    Field("devices", MapOf("device", Name("device"), DEVICE, key_to="id", filled=True), "Memory pools, as ceilings."),
    Field(
        "disk",
        Block(
            "disk",
            Disk,
            Field("artifacts", Size(), "Room for model files.", "artifacts_bytes", True),
            Field("keep_free", Size(), "What must stay free on that disk.", "keep_free_bytes"),
            merged=True,
        ),
        "Room for model files.",
    ),
    Field(
        "runtimes",
        MapOf(
            "engine",
            Name("engine"),
            Block(
                "the runtime",
                Runtime,
                Field("backend", Choice(BACKENDS), "What the engine was built for.", required=True),
                merged=True,
            ),
            key_to="engine",
        ),
        "Engines that the host can run.",
    ),
    Field("tags", ListOf(LABEL), "Words that placement rules ask for."),
    Field("tier", Name("tier"), "Data tier of the host, ordered in `policies/planning.yaml`."),
    Field("max_replicas", Int(0, 256), "Most live residencies on this host, external ones included."),
    Field("price_per_hour", Price(), "Counted while the host holds a managed residency.", "price_per_hour_micro"),
    Field(
        "links",
        MapOf("link", Name("link"), Rate(low=1), make=lambda k, v: Link(name=k, rate_bps=v)),
        "What is known of the network, for start-up estimates.",
    ),
    Field("absence", ABSENCE, "What the absence of an opportunistic host means."),
    rules=(_host_rule,),
    merged=True,
)

HOSTS = Block(
    "the file",
    None,
    *header("Hosts"),
    Field("scope", Name("scope"), "Scope of all hosts of this file; `default` when left out."),
    Field("defaults", HOST, "Merged under each host of this file."),
    Field("hosts", MapOf("host", Name("host"), HOST), "The hosts by name.", required=True),
)

FLEET = Block(
    "the fleet",
    FleetSettings,
    *header("Fleet"),
    Field("controller", HTTPS, "Where agents and the command line find the controller."),
    Field(
        "remote",
        Block(
            "remote",
            None,
            Field("url", Text(), "Repository to fetch from; left out: the checkout itself.", "remote_url"),
            Field("branch", BRANCH, "Branch that holds intent.", "remote_branch"),
            Field("fetch_every", Span(low=1_000), "How often to look for new commits.", "fetch_every_ms"),
        ),
        "Where commits come from.",
        "*",
    ),
    Field(
        "plans",
        Block(
            "plans",
            None,
            Field("branch", BRANCH, "Branch for plan documents, or `same`.", "plans_branch"),
            Field("path", BRANCH, "Folder for plan documents when the branch is `same`.", "plans_path"),
        ),
        "Where plan documents go.",
        "*",
    ),
    Field("currency", Pattern("a currency", r"[A-Z]{3}", "EUR"), "One for the fleet."),
)

HOST_KEY_KIND = Block(
    "the host key",
    HostKey,
    *header("HostKey"),
    Field("host", Name("host"), "The host that holds the key.", required=True),
    Field("key", HOST_KEY, "The host's public key.", required=True),
    Field("previous", ListOf(HOST_KEY, ordered=True), "Keys that this host signed over from."),
    Field("expunged", Flag(), "True releases what the host held, for ever."),
    Field(
        "admitted",
        Block(
            "admitted",
            None,
            Field("by", Name("person"), "Who admitted the host.", "admitted_by"),
            Field("at", Instant(), "When the host was admitted.", "admitted_at_ms"),
        ),
        "Who admitted the host, and when.",
        "*",
    ),
)

DRAIN = Block(
    "the drain",
    Drain,
    *header("Drain"),
    Field("host", Name("host"), "The host to empty.", required=True),
    Field("reason", Text(), "Why; shown wherever the drain is shown.", required=True),
    Field("by", Name("person"), "Who asked for it."),
    Field("until", Instant(), "From then on the host is used again.", "until_ms"),
)


def merge(base: Read | None, over: Read) -> Read:
    """`over` with the fields of `base` that it does not set; maps merge key by key, all else is replaced whole."""
    if base is None:
        return over
    values = {**base.values, **{k: _merged(base.values.get(k, BAD), v) for k, v in over.values.items()}}
    return Read(over.block, values, {**base.entries, **over.entries}, over.anchor)


def _merged(base: Any, over: Any) -> Any:
    if isinstance(base, Read) and isinstance(over, Read):
        return merge(base, over)
    if isinstance(base, Table) and isinstance(over, Table):
        values = {**base.values, **{k: _merged(base.values.get(k, BAD), v) for k, v in over.values.items()}}
        return Table(values, {**base.keys, **over.keys}, {**base.entries, **over.entries})
    return over
