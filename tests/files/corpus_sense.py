"""Broken files, sense: sense across values and files."""

from __future__ import annotations

from gridops.base.codes import sense as s
from tests.files.repo import (
    APPROVALS,
    BUDGETS,
    DIGEST,
    GOOD,
    HOST_KEY,
    HOSTS,
    KEY,
    MODE,
    PLANNING,
    PROFILE,
    PROTECTION,
    added,
    appended,
    changed,
)
from tests.files.row import EXTERNAL, HEAD, SECOND_PROFILE, Row

OTHER_KEY = "ed25519:" + "5b" * 32


def _with_keys(of_the_mac: str, of_the_forge: str) -> dict[str, str]:
    """The good fleet with the keys of its two hosts."""
    mac = f"{HEAD}kind: HostKey\nhost: ana-mac\n{of_the_mac}"
    return added(HOST_KEY, f"{HEAD}kind: HostKey\nhost: forge\n{of_the_forge}") | {"fleet.d/keys/ana-mac.yaml": mac}


SENSE: dict[str, Row] = {
    "host in two files": Row(
        added(
            "fleet.d/more.yaml",
            f"{HEAD}kind: Hosts\nhosts:\n  forge: {{devices: {{cpu0: {{kind: cpu, memory: 1GiB}}}}}}\n",
        ),
        s.HOST_TWICE,
        "fleet.d/more.yaml:4:3",
        "forge",
    ),
    "profile in two files": Row(added("profiles.d/z.yaml", GOOD[PROFILE]), s.PROFILE_TWICE, "profiles.d/z.yaml:3:7"),
    "id served by two profiles": Row(
        added("profiles.d/chat.yaml", SECOND_PROFILE + "serves: [coder]\n"),
        s.SERVES_TWICE,
        "profiles.d/chat.yaml:17:10",
        "coder",
    ),
    "min above max": Row(changed(PROFILE, "{min: 1, max: 2}", "{min: 3, max: 2}"), s.MIN_ABOVE_MAX, f"{PROFILE}:4:17"),
    "stale before the next beat": Row(
        added(PLANNING, f"{HEAD}kind: Planning\nheartbeat: {{every: 60s, stale_after: 30s}}\n"),
        s.MIN_ABOVE_MAX,
        f"{PLANNING}:3:38",
    ),
    "pause below throttle": Row(
        added(
            PROTECTION, f"{HEAD}kind: Protection\nclasses:\n  dedicated: {{memory: {{throttle: 95%, pause: 85%}}}}\n"
        ),
        s.MIN_ABOVE_MAX,
        f"{PROTECTION}:4:34",
    ),
    "reserve of everything": Row(
        changed(HOSTS, "reserve: 16GiB", "reserve: 256GiB"), s.RESERVE, f"{HOSTS}:8:50", "no memory"
    ),
    "scope without hosts": Row(
        changed(PROFILE, "name: coder", "name: coder\nscope: defualt"),
        s.UNKNOWN_SCOPE,
        f"{PROFILE}:4:8",
        "did you mean `default`?",
    ),
    "mode of a scope that is not there": Row(
        appended(MODE, "  lab: {mode: observe}\n"), s.UNKNOWN_SCOPE, f"{MODE}:6:3", "no effect", severity="warning"
    ),
    "mode of a misspelt scope": Row(
        changed(MODE, "  default:", "  defualt:"), s.UNKNOWN_SCOPE, f"{MODE}:4:3", "did you mean `default`?"
    ),
    "pin to an unknown host": Row(
        changed(PROFILE, "placement:", "placement:\n  pins: [froge]"),
        s.UNKNOWN_HOST,
        f"{PROFILE}:6:10",
        "did you mean `forge`?",
    ),
    "drain of an unknown host": Row(
        added("fleet.d/drains/anvil.yaml", f"{HEAD}kind: Drain\nhost: anvil\nreason: x\n"),
        s.UNKNOWN_HOST,
        "fleet.d/drains/anvil.yaml:3:7",
        "hosts: ana-mac, forge",
    ),
    "key of an unknown host": Row(
        added("fleet.d/keys/anvil.yaml", f"{HEAD}kind: HostKey\nhost: anvil\nkey: {KEY}\n"),
        s.UNKNOWN_HOST,
        "fleet.d/keys/anvil.yaml:3:7",
        severity="warning",
    ),
    "one key for two hosts": Row(
        _with_keys(f"key: {KEY}\n", f"key: {KEY}\n"), s.HOST_KEY_AGAIN, f"{HOST_KEY}:4:6", "is that of ana-mac"
    ),
    "the key of a host that was expunged": Row(
        _with_keys(f"key: {KEY}\nexpunged: true\n", f"key: {KEY}\n"),
        s.HOST_KEY_AGAIN,
        f"{HOST_KEY}:4:6",
        "ana-mac was expunged with",
    ),
    "a key that another host has signed over from": Row(
        _with_keys(f"key: {OTHER_KEY}\nprevious: ['{KEY}']\n", f"key: {KEY}\n"),
        s.HOST_KEY_AGAIN,
        f"{HOST_KEY}:4:6",
        "ana-mac has signed over from",
    ),
    "a key that its own host has signed over from": Row(
        added(HOST_KEY, f"{HEAD}kind: HostKey\nhost: forge\nkey: {KEY}\nprevious: ['{KEY}']\n"),
        s.HOST_KEY_AGAIN,
        f"{HOST_KEY}:4:6",
        "forge has signed over from",
    ),
    "excludes a profile that is not there": Row(
        appended(PROFILE, "colocation: {exclude: [chat]}\n"),
        s.UNKNOWN_PROFILE,
        f"{PROFILE}:17:24",
        "no profile `chat`",
        severity="warning",
    ),
    "excludes a misspelt profile": Row(
        {**appended(PROFILE, "colocation: {exclude: [chta]}\n"), "profiles.d/chat.yaml": SECOND_PROFILE},
        s.UNKNOWN_PROFILE,
        f"{PROFILE}:17:24",
        "did you mean `chat`?",
    ),
    "denies a misspelt host": Row(
        changed(PROFILE, "placement:", "placement:\n  deny_hosts: [ana-mca]"),
        s.UNKNOWN_HOST,
        f"{PROFILE}:6:16",
        "did you mean `ana-mac`?",
    ),
    "consent for an unknown profile": Row(
        changed(MODE, "recommend", "recommend\n    automatic: {last_replica: [codr]}"),
        s.UNKNOWN_PROFILE,
        f"{MODE}:6:32",
        "`coder`",
        severity="warning",
    ),
    "tier outside the order": Row(
        changed(HOSTS, "confidential", "secret"), s.UNKNOWN_TIER, f"{HOSTS}:11:11", "confidential"
    ),
    "workload that is not counted": Row(
        {**appended(PROFILE, "workloads: {codign: 1.0}\n"), PLANNING: f"{HEAD}kind: Planning\nworkloads: [coding]\n"},
        s.UNKNOWN_WORKLOAD,
        f"{PROFILE}:17:13",
        "`coding`",
    ),
    "role of nobody": Row(
        added(
            APPROVALS,
            f"{HEAD}kind: Approvals\nrisks:\n  routine: {{need: 1, from: [oncal]}}\nroles: {{oncall: [mira]}}\n",
        ),
        s.UNKNOWN_ROLE,
        f"{APPROVALS}:4:29",
        "did you mean `oncall`?",
    ),
    "more approvals than people": Row(
        added(
            APPROVALS,
            f"{HEAD}kind: Approvals\nrisks:\n  routine: {{need: 2, from: [oncall]}}\nroles: {{oncall: [mira]}}\n",
        ),
        s.ROSTER,
        f"{APPROVALS}:4:19",
        "mira",
    ),
    "pin to a denied host": Row(
        changed(PROFILE, "placement:", "placement:\n  pins: [forge]\n  deny_hosts: [forge]"),
        s.PIN,
        f"{PROFILE}:6:10",
        "denied",
        alone=False,
    ),
    "pin to a host without the runtime's backend": Row(
        changed(PROFILE, "require_tags: [always-on]", "pins: [ana-mac]"), s.PIN, f"{PROFILE}:6:10", "built for metal"
    ),
    "pin to an external host": Row(
        {**changed(PROFILE, "require_tags: [always-on]", "pins: [cloud]"), HOSTS: GOOD[HOSTS] + EXTERNAL},
        s.PIN,
        f"{PROFILE}:6:10",
        "never actuated",
    ),
    "pin to a host that is too small": Row(
        {
            **changed(PROFILE, "placement:", "placement:\n  pins: [forge]"),
            HOSTS: GOOD[HOSTS].replace("48GiB, peers", "16GiB, peers"),
        },
        s.PIN,
        f"{PROFILE}:6:10",
        "16 GiB",
        alone=False,
    ),
    "spread over domains that do not exist": Row(
        appended(PROFILE, "spread: {by: rack, min: 2}\n"),
        s.SPREAD,
        f"{PROFILE}:17:25",
        "1 of level rack",
        severity="warning",
    ),
    "no host has the backend": Row(
        changed(PROFILE, "[cuda]", "[rocm]"), s.NOWHERE, f"{PROFILE}:3:7", "built for cuda", severity="warning"
    ),
    "more replicas than places": Row(
        changed(PROFILE, "{min: 1, max: 2}", "5"), s.TOO_FEW_HOSTS, f"{PROFILE}:4:11", "5 replicas", severity="warning"
    ),
    "footprint that nobody can compute": Row(
        changed(PROFILE, "{source: declared, device: 20GiB}", "{source: derived}"),
        s.FOOTPRINT_UNKNOWN,
        f"{PROFILE}:16:5",
        "kv_per_1k",
        severity="warning",
    ),
    "one file name, two digests": Row(
        added("profiles.d/chat.yaml", SECOND_PROFILE.replace(DIGEST, "c" * 64)),
        s.TWO_DIGESTS,
        f"{PROFILE}:14:42",
        "coder.gguf",
        severity="warning",
    ),
    "renamed from a living profile": Row(
        {**appended(PROFILE, "renamed_from: chat\n"), "profiles.d/chat.yaml": SECOND_PROFILE},
        s.RENAMED_FROM,
        f"{PROFILE}:17:15",
        "still",
    ),
    "excludes itself": Row(
        appended(PROFILE, "colocation: {exclude: [coder]}\n"), s.CONTRADICTION, f"{PROFILE}:17:24", "max_per_host"
    ),
    "source that may move": Row(
        changed(PROFILE, "format: gguf", "format: gguf\n      source: hf://owner/repo@main"),
        s.MUTABLE_SOURCE,
        f"{PROFILE}:14:15",
        "40-DIGITS",
        severity="warning",
    ),
    "image by a tag": Row(
        changed(PROFILE, "format: gguf", "format: gguf\n      source: oci://registry.example/models/tiny:latest"),
        s.MUTABLE_SOURCE,
        f"{PROFILE}:14:15",
        "sha256:DIGEST",
        severity="warning",
    ),
    "peer that is no device": Row(
        changed(HOSTS, "48GiB, peers: [gpu1]", "48GiB, peers: [gpu3]"), s.PEER, f"{HOSTS}:6:48", alone=False
    ),
    "peer of one side only": Row(
        changed(HOSTS, ", peers: [gpu0]", ""), s.PEER, f"{HOSTS}:6:48", "two ends", severity="warning"
    ),
    "instance of no card": Row(
        changed(HOSTS, "48GiB, peers: [gpu1]", "48GiB, parent: gpu3, peers: [gpu1]"),
        s.INSTANCE,
        f"{HOSTS}:6:48",
        "not another device",
    ),
    "instance of itself": Row(
        changed(HOSTS, "48GiB, peers: [gpu1]", "48GiB, parent: gpu0, peers: [gpu1]"),
        s.INSTANCE,
        f"{HOSTS}:6:48",
        "not another device",
    ),
    "instance of the host's memory": Row(
        changed(HOSTS, "48GiB, peers: [gpu1]", "48GiB, parent: cpu0, peers: [gpu1]"),
        s.INSTANCE,
        f"{HOSTS}:6:48",
        "whole GPUs",
    ),
    "instances larger than their card": Row(
        changed(HOSTS, "gpu1: {kind: gpu, memory: 48GiB", "gpu1: {kind: gpu, parent: gpu0, memory: 49GiB"),
        s.INSTANCE,
        f"{HOSTS}:7:47",
        "more memory",
    ),
    "external host without endpoint": Row(
        appended(HOSTS, "  cloud: {class: external}\n"), s.NO_ENDPOINT, f"{HOSTS}:18:3"
    ),
    "laptop of nobody": Row(changed(HOSTS, "    owner: ana\n", ""), s.NO_OWNER, f"{HOSTS}:13:3"),
    "author below signed commits": Row(
        added(APPROVALS, f"{HEAD}kind: Approvals\nauthor_may_approve: false\n"),
        s.NOT_OFFERED,
        f"{APPROVALS}:3:21",
        "where commits are signed",
    ),
    "review of no forge": Row(
        added(APPROVALS, f"{HEAD}kind: Approvals\naccept: [forge_review]\n"), s.NOT_OFFERED, f"{APPROVALS}:3:10"
    ),
    "after without until": Row(
        changed(MODE, "recommend", "recommend\n    after: automatic"), s.UNREACHABLE, f"{MODE}:6:5", "until"
    ),
    "until without after": Row(
        changed(MODE, "recommend", "recommend\n    until: 2027-01-01T00:00:00Z"), s.UNREACHABLE, f"{MODE}:6:5", "after"
    ),
    "price ceiling over unknown prices": Row(
        added(BUDGETS, f"{HEAD}kind: Budgets\nscopes:\n  default: {{price: {{max_per_hour: 6.00}}}}\n"),
        s.NO_PRICE,
        f"{BUDGETS}:4:13",
        "ana-mac, forge",
        severity="warning",
    ),
    "device named after another kind": Row(
        changed(HOSTS, "cpu0: {kind: cpu, memory: 256GiB", "gpu2: {kind: cpu, memory: 256GiB"),
        s.DEVICE,
        f"{HOSTS}:8:7",
        "cpu0",
    ),
    "memory counted twice": Row(
        changed(HOSTS, "75%}}", "75%}, cpu0: {kind: cpu, memory: 48GiB}}"),
        s.DEVICE,
        f"{HOSTS}:16:89",
        "twice",
        severity="warning",
    ),
    "window in prose": Row(
        added(BUDGETS, f"{HEAD}kind: Budgets\nscopes:\n  default: {{windows: [{{deny: at night}}]}}\n"),
        s.WINDOW,
        f"{BUDGETS}:4:30",
    ),
    "window in an invented zone": Row(
        added(
            BUDGETS,
            f'{HEAD}kind: Budgets\nscopes:\n  default: {{windows: [{{deny: "Mon-Fri 08:00-18:00 Europe/Pariss"}}]}}\n',
        ),
        s.WINDOW,
        f"{BUDGETS}:4:30",
        "Pariss",
    ),
    "engine misspelt in a config": Row(
        changed(PROFILE, "engine: llama.cpp", "engine: lama.cpp"),
        s.UNKNOWN_ENGINE,
        f"{PROFILE}:10:13",
        "did you mean `llama.cpp`?",
        fix="engine: llama.cpp",
        alone=False,
    ),
    "half the name of an engine": Row(
        changed(PROFILE, "engine: llama.cpp", "engine: llama"),
        s.UNKNOWN_ENGINE,
        f"{PROFILE}:10:13",
        "did you mean `llama.cpp`?",
        alone=False,
    ),
    "engine misspelt on a host": Row(
        changed(HOSTS, "runtimes: {llama.cpp: {backend: cuda}}", "runtimes: {llama.cp: {backend: cuda}}"),
        s.UNKNOWN_ENGINE,
        f"{HOSTS}:9:16",
        "did you mean `llama.cpp`?",
        alone=False,
    ),
    "engine misspelt on a host beside the right one": Row(
        changed(HOSTS, "llama.cpp: {backend: cuda}", "llama.cpp: {backend: cuda}, lama.cpp: {backend: cpu}"),
        s.UNKNOWN_ENGINE,
        f"{HOSTS}:9:44",
        "did you mean `llama.cpp`?",
    ),
    "engine that no agent knows": Row(
        changed(HOSTS, "llama.cpp: {backend: cuda}", "llama.cpp: {backend: cuda}, mindie: {backend: cuda}"),
        s.UNKNOWN_ENGINE,
        f"{HOSTS}:9:44",
        "engines: comfyui, llama.cpp, ollama, sglang, vllm",
        severity="warning",
    ),
    "format misspelt": Row(
        changed(PROFILE, "format: gguf", "format: ggfu"),
        s.ENGINE_FORMAT,
        f"{PROFILE}:13:15",
        "did you mean `gguf`?",
        fix="format: gguf",
    ),
    "format of another engine": Row(
        changed(PROFILE, "format: gguf", "format: safetensors"),
        s.ENGINE_FORMAT,
        f"{PROFILE}:13:15",
        "llama.cpp cannot read the format `safetensors`",
        severity="warning",
    ),
}
