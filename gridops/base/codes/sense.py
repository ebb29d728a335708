"""Codes of what cannot be meant: GO3xx, sense across values and files.

The text and schema of one file stand in `files`. Numbers are stable: one that is retired is never given again.
"""

from __future__ import annotations

from gridops.base.codes import Code

HOST_TWICE = Code(
    "GO301",
    "host declared twice",
    "A host stands in one file. Two declarations would need a rule about which one wins.",
    "Remove one of them.",
)
PROFILE_TWICE = Code(
    "GO302",
    "profile declared twice",
    "A profile name is unique in the fleet, also across scopes: clients ask for it.",
    "Rename or remove one of them.",
)
SERVES_TWICE = Code(
    "GO303",
    "two profiles serve the same id",
    "A client that asks for the id could be answered by either model.",
    "Let one profile serve it.",
)
MIN_ABOVE_MAX = Code(
    "GO304",
    "lower bound above upper bound",
    "No value lies between the two.",
    "Swap or correct the bounds.",
)
RESERVE = Code(
    "GO305",
    "reserve leaves no memory",
    "What is reserved is not available to models; here nothing is left.",
    "Lower the reserve or correct the memory.",
)
UNKNOWN_SCOPE = Code(
    "GO310",
    "unknown scope",
    "Nothing is placed across scopes, so a profile in a scope without hosts can never run.",
    "Correct the name, or declare hosts in that scope.",
)
UNKNOWN_HOST = Code(
    "GO311",
    "unknown host",
    "No file in `fleet.d/` declares a host of this name.",
    "Correct the name, or declare the host.",
)
UNKNOWN_PROFILE = Code(
    "GO312",
    "unknown profile",
    "No file in `profiles.d/` declares a profile of this name, so the rule has no effect.",
    "Correct the name, or remove it.",
)
UNKNOWN_TIER = Code(
    "GO313",
    "unknown data tier",
    "Tiers are ordered in `policies/planning.yaml`; a name outside that order cannot be compared.",
    "Use one of the tiers, or add this one to `tiers`.",
)
UNKNOWN_WORKLOAD = Code(
    "GO314",
    "unknown workload",
    "Workloads are named in `policies/planning.yaml`; demand is never counted under another name.",
    "Use one of the workloads, or add this one to `workloads`.",
)
UNKNOWN_ROLE = Code(
    "GO315",
    "unknown role",
    "Nobody is in a role that `roles` does not name, so the approval could never be given.",
    "Correct the name, or add the role to `roles`.",
)
UNKNOWN_PERSON = Code(
    "GO316",
    "unknown person",
    "Approvals are signed with keys that the trust root lists by person; this name has no key there.",
    "Correct the name, or add the person's key to the trust root.",
)
PIN = Code(
    "GO320",
    "pin that can never hold",
    "A pin asks for a replica on exactly that host, and a rule of the same files forbids it.",
    "Remove the pin, or the rule that the message names.",
)
SPREAD = Code(
    "GO321",
    "spread that the fleet cannot meet",
    "Fewer failure domains hold suitable hosts than the profile wants. Replicas are placed, the shortfall is reported.",
    "Declare `domains` on more hosts, or lower `spread.min`.",
)
NOWHERE = Code(
    "GO322",
    "no host can run it",
    "No host of the scope has a runtime, backend, tags, tier and memory that any config accepts.",
    "Add a config for a backend that the fleet has, or a host for this profile.",
)
TOO_FEW_HOSTS = Code(
    "GO323",
    "fewer places than replicas",
    "The hosts that could run it, times `max_per_host`, are fewer than the replicas wanted.",
    "Lower `replicas` (its `min`, where it has one), raise `max_per_host`, or add hosts.",
)
FOOTPRINT_UNKNOWN = Code(
    "GO324",
    "footprint unknown",
    "A footprint that is unknown is never taken for zero: the config is not placed anywhere.",
    "Declare the footprint, or what the message names, so that it can be computed.",
)
TWO_DIGESTS = Code(
    "GO325",
    "one file name with two digests",
    "Two configs name the same model file but expect different content. One of them may be out of date.",
    "Check which digest is right; different versions deserve different file names.",
)
RENAMED_FROM = Code(
    "GO326",
    "renamed from something that still exists",
    "A profile takes over the replicas of its old name; both existing at once would fight over them.",
    "Delete the old profile, or remove `renamed_from`.",
)
CONTRADICTION = Code(
    "GO327",
    "rules that contradict each other",
    "Nothing can satisfy both.",
    "Remove one of the two.",
)
MUTABLE_SOURCE = Code(
    "GO328",
    "source may move",
    "A branch, a tag or part of a commit's hash may name something else tomorrow. The digest keeps a wrong file from "
    "being started, but hosts do not fetch from a source that may move, so a load would be refused.",
    "Write all 40 digits of the commit, or an image by its digest: `oci://registry/repository@sha256:...`.",
)
PEER = Code(
    "GO331",
    "device peers do not match",
    "A fast link has two ends; when only one names the other, sharding over it may be refused.",
    "List each device as a peer of the other.",
)
INSTANCE = Code(
    "GO342",
    "instances do not match their card",
    "An instance takes its memory from a card of the same host; counted twice, it would be given away twice.",
    "Let `parent` name the whole GPU, and let the instances' memory add up to no more than the card's.",
)
NO_ENDPOINT = Code(
    "GO332",
    "external host without endpoint",
    "An external host is used through its endpoint; without one it offers nothing.",
    "Add `endpoint: https://...`.",
)
NO_OWNER = Code(
    "GO333",
    "opportunistic host without owner",
    "The host yields to its owner; without a name nobody can be asked or told.",
    "Add `owner: NAME`.",
)
ROSTER = Code(
    "GO335",
    "more approvals than people",
    "The approval could never be complete.",
    "Lower `need`, or add people to the roles in `from`.",
)
NOT_OFFERED = Code(
    "GO336",
    "asks for what cannot be checked",
    "The rule rests on something this version does not verify, so it would promise a protection that is not there.",
    "Use the value that the message names.",
)
UNREACHABLE = Code(
    "GO337",
    "can never take effect",
    "The two fields only have a meaning together.",
    "Add the missing field, or remove this one.",
)
NO_PRICE = Code(
    "GO339",
    "price unknown under a price ceiling",
    "With `unknown: refuse`, a host without a price takes no new replicas.",
    "Add `price_per_hour` to the host (0 is a price), or set `unknown: allow`.",
)
DEVICE = Code(
    "GO340",
    "device id and kind disagree",
    "A device is known as gpu0, cpu0 or unified0; the host reports it by that name.",
    "Name the device after its kind, with a number.",
)
WINDOW = Code(
    "GO341",
    "not a time window",
    "Windows name days, times of day and a zone; a guess would open or close them at the wrong hour.",
    "Write `Mon-Fri 08:00-18:00 Europe/Paris`, or `Fri 15:00 - Mon 06:00 Europe/Paris`.",
)
UNKNOWN_ENGINE = Code(
    "GO343",
    "unknown engine",
    "No agent of this version starts an engine of this name, so what asks for it is refused on every host.",
    "Correct the name, or use one of the engines that the message names.",
)
ENGINE_FORMAT = Code(
    "GO344",
    "format that the engine cannot read",
    "The engine's adapter takes other files than these, so the config would be refused on every host.",
    "Name the format that the engine reads and files of that format, or another engine.",
)
ENGINE_CANNOT = Code(
    "GO345",
    "the engine cannot do that",
    "Every host would refuse the config, or start something that nobody can use as the profile promises: its engine "
    "works on fewer lanes or devices, lacks a file without which it reads nothing, or produces something else.",
    "Write what the message names, or take another engine.",
)
HOST_KEY_AGAIN = Code(
    "GO346",
    "host key that speaks for somebody already",
    "A key is one machine's: it speaks for one host, and once it has been signed over or expunged it speaks for nobody "
    "any more, under any name.",
    "Join the machine anew, so that it makes a key of its own: `gridops host invite HOST`.",
)
