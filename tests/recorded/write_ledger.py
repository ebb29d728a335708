"""Records the ledger of an agent, beside those of earlier ones: `python -m tests.recorded.write_ledger NAME`.

The story is that of the first recorded ledger: two warm residencies, one of them drained, an unload that was accepted
and has no outcome, and four receipts. `tests/agent/test_upgrade.py` reads it as an older agent's.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import Any

from gridops_agent.effects import Effects
from tests.agent.site import Site, done
from tests.agent.site import hear as heard
from tests.builders.tiny_gguf import write_tiny_gguf

RECORDED = Path(__file__).parents[1] / "agent" / "recorded"
ELSEWHERE = "/srv/gridops"
"""Instead of the folders of the machine on which it was recorded."""


async def told(site: Site) -> None:
    async with site.agent() as agent:
        answers = [await done(agent, site, site.warm(number=1)), await done(agent, site, site.warm(number=2))]
        answers.append(await done(agent, site, site.load()))
        answers.append(await done(agent, site, site.drain(answers[1].body)))
        unload = site.body(site.unload(answers[1].body))

        async def never(_: Effects, body: object) -> None:
            await asyncio.sleep(0)

        Effects._command = never  # type: ignore[method-assign,assignment]
        await heard(agent, site, site.grant(unload))


def write(name: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch).resolve()
        (root / "models").mkdir()
        site = Site(root / "state", write_tiny_gguf(root / "models" / "tiny.gguf")).join()
        try:
            asyncio.run(told(site))
        finally:
            site.end()
        database = sqlite3.connect(site.config.ledger)
        (form,) = database.execute("PRAGMA user_version").fetchone()
        (table,) = database.execute("SELECT sql FROM sqlite_master WHERE type = 'table'").fetchone()
        found = database.execute("SELECT kind, key, value FROM entry ORDER BY kind, key").fetchall()
        database.close()
    rows: list[list[Any]] = [
        [kind, _moved(key, root), _moved(value.decode(), root), None] for kind, key, value in found
    ]
    text = json.dumps({"form": form, "rows": rows, "table": table}, indent=0, sort_keys=True, ensure_ascii=False)
    (RECORDED / f"{name}.json").write_text(text + "\n", "utf-8")


def _moved(text: str, root: Path) -> str:
    return text.replace(str(root), ELSEWHERE).replace(str(Path(sys.executable).resolve()), "/usr/bin/python3")


if __name__ == "__main__":
    write(sys.argv[1])
