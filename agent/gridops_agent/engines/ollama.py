"""Ollama: a loopback service that keeps models in a store of its own. We bring them into its memory and out of it.

A model is named exactly (`ollama://NAME:TAG`) and proved by the digest that its registry gives it; a tag that already
stands for another digest is refused, since pulling would replace what somebody else uses. The profile's name is made a
second name of the same manifest. Nothing is ever deleted. It is called by the documented HTTP API alone, and what it
cannot be held to (lanes, a context that its own configuration sets) is asked for and refused if it differs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import aiohttp

from gridops.base.codes import host as codes
from gridops.base.errors import Refusal
from gridops.base.ids import Digest, is_digest
from gridops.model.plan import Launch
from gridops.model.profile import Artifact
from gridops_agent.engines import flags
from gridops_agent.engines.asking import Said, good, models, question
from gridops_agent.engines.base import Abilities, Door, Start
from gridops_agent.engines.loopback import Loopback

NAME = re.compile(r"ollama://([a-z0-9][a-z0-9._/-]{0,127}:[A-Za-z0-9][A-Za-z0-9._-]{0,127})")
"""A name with its tag: without one Ollama takes `latest`, which moves."""
_LOAD = aiohttp.ClientTimeout(total=900)
_PULL = aiohttp.ClientTimeout(total=None, connect=10, sock_read=None)
FOR_EVER = -1
"""`keep_alive` of a model that stays until it is taken out."""


class Ollama(Loopback):
    """The Ollama adapter for one address."""

    abilities = Abilities(
        formats=frozenset({"ollama"}),
        modalities=frozenset({"text", "embedding"}),
        keyed=False,
        counts_work=False,
        takes_share=False,
        shards=False,
        drains_on_term=False,
        own_store=True,
    )

    _NAME = "ollama"

    def objection(self, launch: Launch) -> str | None:
        artifact = launch.artifact
        if artifact.format not in self.abilities.formats:
            return f"ollama takes models of its registry (format ollama), not {artifact.format}"
        if len(artifact.files) != 1 or NAME.fullmatch(artifact.source or "") is None:
            return (
                "ollama needs exactly one file (the registry's digest of the model) and a source with a tag, "
                f"such as ollama://llama3.2:3b, not {artifact.source or 'none'}"
            )
        if launch.lanes != 1:
            return f"ollama does not say how many lanes it runs: write lanes: 1, not {launch.lanes}"
        if launch.devices.count != 1:
            return f"ollama is not cut over {launch.devices.count} devices: write count: 1"
        return flags.objection("ollama", {}, launch)

    async def alive(self, http: aiohttp.ClientSession) -> str | None:
        said = await question(http, f"{self._address}/api/version")
        version = said.json.get("version") if said is not None and isinstance(said.json, dict) else None
        return version if isinstance(version, str) and version else None

    # --- its store ------------------------------------------------------------------------------------------------

    async def stored(self, http: aiohttp.ClientSession) -> tuple[Digest, ...]:
        rows = await self._rows(http, "tags") or ()
        return tuple(sorted({digest for row in rows if (digest := _digest(row)) is not None}))

    async def fetch(self, http: aiohttp.ClientSession, artifact: Artifact) -> int | None:
        model, wanted = _named(artifact), artifact.files[0].sha256
        there = await self._tag(http, model)
        if there is not None:
            _require(model, there, wanted, "it is not pulled over")
            return None
        said = await question(http, f"{self._address}/api/pull", send={"model": model, "stream": False}, patience=_PULL)
        if said is None or said.status != 200 or not _succeeded(said):
            raise Refusal(codes.NO_ARTIFACT.code, f"ollama could not pull {model}: {_error(said)}")
        came = await self._tag(http, model)
        if came is None:
            raise Refusal(codes.NO_ARTIFACT.code, f"ollama pulled {model} and does not list it")
        _require(model, came, wanted, "it stays there unused")
        return artifact.files[0].size_bytes

    async def verify(self, http: aiohttp.ClientSession, start: Start) -> str:
        artifact = start.launch.artifact
        model, wanted = _named(artifact), artifact.files[0].sha256
        found = await self._tag(http, model)
        if found is None:
            raise Refusal(codes.NO_ARTIFACT.code, f"ollama has no {model}")
        return _require(model, found, wanted, "it is not used")

    # --- its memory -----------------------------------------------------------------------------------------------

    async def bring(self, http: aiohttp.ClientSession, start: Start) -> None:
        identity = await self.verify(http, start)
        model, alias = _named(start.launch.artifact), f"{start.alias}:latest"
        taken = await self._tag(http, alias)
        if taken is None:
            send = {"source": model, "destination": alias}
            said = await question(http, f"{self._address}/api/copy", send=send)
            if said is None or said.status != 200:
                raise Refusal(codes.START_FAILED.code, f"ollama could not name {model} {alias}: {_error(said)}")
            taken = await self._tag(http, alias)
        if taken is None:
            raise Refusal(codes.START_FAILED.code, f"ollama does not list {alias}")
        _require(alias, taken, Digest(identity), "somebody else's model is not replaced")
        said = await self._memory(http, alias, FOR_EVER, _LOAD)
        if said is None or said.status != 200:
            raise Refusal(codes.START_FAILED.code, f"ollama could not load {model}: {_error(said)}")
        held = await self._loaded(http, alias, Digest(identity)) or {}
        context = held.get("context_length")
        if isinstance(context, int) and context != start.launch.context:
            await self._memory(http, alias, 0, _LOAD)
            raise Refusal(
                codes.START_FAILED.code,
                f"ollama gives {model} {context} tokens of context instead of {start.launch.context}: "
                "set OLLAMA_CONTEXT_LENGTH of the service, or the model's num_ctx",
            )

    async def drop(self, http: aiohttp.ClientSession, door: Door) -> None:
        await self._memory(http, f"{door.alias}:latest", 0, _LOAD)

    async def dropped(self, http: aiohttp.ClientSession, door: Door) -> bool:
        rows = await self._rows(http, "ps")
        return rows is not None and _ours(rows, door) is None

    async def listed(self, http: aiohttp.ClientSession, door: Door) -> bool:
        rows = await self._rows(http, "ps")
        if rows is None or _ours(rows, door) is None:
            return False
        names = (door.alias, f"{door.alias}:latest")
        return any(row.get("id") in names for row in await models(http, self._address, {}))

    async def busy(self, http: aiohttp.ClientSession, door: Door) -> int | None:
        return None  # no call of its API says what it works on

    async def _memory(
        self, http: aiohttp.ClientSession, model: str, keep: int, patience: aiohttp.ClientTimeout
    ) -> Said | None:
        """A request without a prompt: it only sets how long the model stays. 0: not at all, from when it is idle."""
        return await question(
            http, f"{self._address}/api/generate", send={"model": model, "keep_alive": keep}, patience=patience
        )

    async def _loaded(self, http: aiohttp.ClientSession, alias: str, digest: Digest) -> Mapping[str, Any] | None:
        rows = await self._rows(http, "ps") or ()
        return next((row for row in rows if row.get("name") == alias or _digest(row) == digest), None)

    async def _tag(self, http: aiohttp.ClientSession, model: str) -> Digest | None:
        """The digest of a name in its store; None when it has none of it. Raises Refusal when it cannot be asked."""
        rows = await self._rows(http, "tags")
        if rows is None:
            raise Refusal(codes.START_FAILED.code, f"ollama does not answer at {self._address}")
        row = next((row for row in rows if model in (row.get("name"), row.get("model"))), None)
        if row is None:
            return None
        digest = _digest(row)
        if digest is None:
            raise Refusal(codes.WRONG_DIGEST.code, f"ollama lists {model} without a digest")
        return digest

    async def _rows(self, http: aiohttp.ClientSession, what: str) -> tuple[Mapping[str, Any], ...] | None:
        found = await good(http, f"{self._address}/api/{what}")
        rows = found.get("models") if isinstance(found, dict) else None
        return tuple(row for row in rows if isinstance(row, dict)) if isinstance(rows, list) else None


def _named(artifact: Artifact) -> str:
    match = NAME.fullmatch(artifact.source or "")
    if match is None or len(artifact.files) != 1:
        raise Refusal(codes.NO_ARTIFACT.code, f"`{artifact.source}` is not ollama://NAME:TAG with one digest")
    return match.group(1)


def _digest(row: Mapping[str, Any]) -> Digest | None:
    said = str(row.get("digest", ""))
    full = said if said.startswith("sha256:") else f"sha256:{said}"
    return Digest(full) if is_digest(full) else None


def _require(model: str, found: Digest, wanted: Digest, then: str) -> str:
    if found != wanted:
        raise Refusal(codes.WRONG_DIGEST.code, f"ollama's {model} has {found}, expected {wanted}; {then}")
    return found


def _ours(rows: tuple[Mapping[str, Any], ...], door: Door) -> Mapping[str, Any] | None:
    """The row of what is in memory for a door. One manifest in memory shows under the name that was asked first."""
    digest = door.launch.artifact.files[0].sha256 if door.launch is not None else None
    names = (door.alias, f"{door.alias}:latest")
    return next((r for r in rows if r.get("name") in names or (digest is not None and _digest(r) == digest)), None)


def _succeeded(said: Said) -> bool:
    return isinstance(said.json, dict) and said.json.get("status") == "success"


def _error(said: Said | None) -> str:
    if said is None:
        return "no answer"
    words = said.json.get("error") if isinstance(said.json, dict) else None
    return str(words or f"HTTP {said.status}")[:200]
