"""A host takes another key between real processes: asked for by command, committed, and what runs is not touched."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from gridops.disk.keyring import read_secret
from gridops.trust.keys import MachineSigner
from gridops_agent.config import read_config
from gridops_agent.rekeying import next_signer
from tests.builders.tiny_gguf import write_tiny_gguf
from tests.crash.pair import AGENT, AGENTS, CONTROLLER, Bare, founded, paired, seed_of
from tests.crash.zygote import Nursery


def test_a_host_takes_its_next_key_when_people_commit_it_and_its_engine_runs_on(tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    model = write_tiny_gguf(tmp_path / "models" / "tiny.gguf")
    founded(tmp_path / "template", model)
    host, former = AGENTS[AGENT], MachineSigner.from_seed(seed_of(AGENT)).public
    with Nursery() as nursery:
        pair = paired(tmp_path / "story", tmp_path / "template", model, nursery)
        try:
            pair.serve()
            (engine,) = pair.engines()
            state = pair.state(AGENT)
            argv = (sys.executable, "-m", "gridops_agent", "rekey", "--state", str(state))
            told = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True, env={**os.environ})
            coming = next_signer(read_config(state))
            assert coming is not None
            assert coming.public.key_id in told.stdout, told.stdout
            head = f"apiVersion: gridops/v1\nkind: HostKey\nhost: {host}\n"
            text = f"{head}key: {coming.public.text}\nprevious: ['{former.text}']\n"
            Bare(pair.fleet).commit({f"fleet.d/keys/{host}.yaml": text}, "The next key")
            pair.until("the agent has taken it", lambda: not read_config(state).next_seed.exists())
            assert MachineSigner.from_seed(read_secret(read_config(state).seed)).public == coming.public
            here = f"host {host} is here"
            pair.until("it is heard with it", lambda: pair.words(CONTROLLER, 1 << 30).count(here) == 2)
            pair.until("what it runs is known", lambda: pair.ready() == 1)
            assert pair.engines() == [engine], "the very process"
            pair.want(0)
            pair.until("it obeys as ever", lambda: pair.ready() == 0 and not pair.engines())
            assert pair.ends == []
            for name in (CONTROLLER, AGENT):
                assert "Traceback" not in pair.words(name, 1 << 30), pair.words(name)
            pair.end()
        finally:
            pair.clear()
