"""The commands of the agent. Each parses, calls one function, prints, and returns an exit code."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gridops import __version__
from gridops.base.errors import GridopsError
from gridops_agent.cli import handover, lifecycle, qualify, weigh, words
from gridops_agent.cli.lifecycle import install_found, tell_start
from gridops_agent.cli.options import State, config_of, examples, folder
from gridops_agent.cli.report import INTERRUPTED, Usage, report, report_bug
from gridops_agent.config import (
    DEFAULT_FRONT,
    DEFAULT_PORTS,
    Config,
    check_controller,
    check_front,
    default_state,
    parse_ports,
    parse_share,
)

_UsageError: type[Exception] = typer.BadParameter.__bases__[0]

app = typer.Typer(
    name="gridops-agent",
    help="The host agent of gridops: runs engines, obeys signed commands that it pulls, protects its machine.",
    epilog="Exit codes: 0 ok, 1 failed, 4 refused, 64 wrong call, 69 unreachable, 70 fault, 75 busy, 78 bad set-up.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def run(args: Sequence[str]) -> int:
    """One call. Whatever happens becomes an exit code."""
    as_json = ("json" in args and ("-o" in args or "--output" in args)) or "-ojson" in args
    try:
        answer = typer.main.get_command(app).main(
            list(args) or ["--help"], prog_name="gridops-agent", standalone_mode=False
        )
        sys.stdout.flush()
        return answer if isinstance(answer, int) else 0
    except _UsageError as error:
        words: Any = error
        message = str(words.format_message()).strip().rstrip(".")
        at = words.ctx.command_path if getattr(words, "ctx", None) is not None else "gridops-agent"
        hint = f"see: {at} --help"
        return report(Usage(message[:1].lower() + message[1:], hints=(hint,)), as_json)
    except GridopsError as error:
        return report(error, as_json)
    except (KeyboardInterrupt, typer.Abort):
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as fault:  # noqa: BLE001 - the one place where a fault of ours becomes an exit code
        return report_bug(fault, args)


@app.command(
    epilog=examples(
        "gridops-agent join gj1.4ab1...forge.Zk3... --controller https://gridops.office.example:7443",
        "gridops-agent join - --controller https://10.0.0.2:7443 --artifacts /srv/models < token",
        "gridops-agent join TOKEN --controller https://127.0.0.1:7443 --state /tmp/a --share 1/4 --no-service",
    )
)
def join(
    token: Annotated[str, typer.Argument(help="The one-use token of `gridops host invite`; - reads it from stdin.")],
    controller: Annotated[str, typer.Option(help="URL of the controller.", metavar="URL")],
    state: State = None,
    share: Annotated[str, typer.Option(help="Part of this machine's memory that is this host's.")] = "1",
    artifacts: Annotated[
        list[Path] | None, typer.Option(help="A folder with model files (repeatable).", metavar="DIR", parser=folder)
    ] = None,
    front: Annotated[
        str, typer.Option(help="Where clients reach the models; port 0 chooses one.", metavar="HOST:PORT")
    ] = DEFAULT_FRONT,
    ports: Annotated[
        str, typer.Option(help="Loopback ports for engines.", metavar="A-B")
    ] = f"{DEFAULT_PORTS[0]}-{DEFAULT_PORTS[1]}",
    no_service: Annotated[bool, typer.Option("--no-service", help="Do not install a service.")] = False,
    no_runtime: Annotated[
        bool, typer.Option("--no-runtime", help="Neither look for an engine nor install it.")
    ] = False,
) -> None:
    """Make this machine a host of a fleet. It does nothing until its key is committed."""
    from gridops.trust.join import parse_token
    from gridops_agent.joining import join as join_fleet

    parsed = parse_token(sys.stdin.readline() if token == "-" else token)
    config = Config(
        state=(state or default_state()).absolute(),
        controller=_given(lambda: check_controller(controller)),
        host=parsed.host,
        fleet=parsed.fleet,
        artifact_folders=tuple(_folder(path) for path in artifacts or ()),
        share=_given(lambda: parse_share(share)),
        ports=_given(lambda: parse_ports(ports)),
        front=_given(lambda: check_front(front)),
    )
    joined = asyncio.run(join_fleet(config, parsed, __version__))
    print(f"This host: {joined.host}")
    print(f"Host key:  {joined.key.text}")
    print(f"           {joined.key.key_id}")
    if not no_runtime:
        found = ", ".join(joined.runtimes)
        print(f"Engines:   {found or install_found(config)}")
    print("\nCompare the key with what the controller shows, then admit it by a commit:")
    print(f"  gridops host admit {joined.host}")
    if not tell_start(config, no_service):
        raise typer.Exit(1)


@app.command(
    name="run",
    epilog=examples(
        "gridops-agent run",
        "gridops-agent run --state /var/lib/gridops-agent/forge",
        "gridops-agent run --state /tmp/a -v",
    ),
)
def run_agent(
    state: State = None,
    verbose: Annotated[int, typer.Option("-v", "--verbose", count=True, help="Say more on stderr.")] = 0,
) -> None:
    """Run in the foreground until SIGTERM or Ctrl-C (systemd runs this). Engines go on when it leaves."""
    from gridops_agent.life.logs import keep_log
    from gridops_agent.shell import Agent

    config = config_of(state)
    _log(verbose)
    keep_log(config.log)

    async def serve() -> None:
        async with Agent(config, __version__) as agent:
            await agent.run()

    asyncio.run(serve())


@app.command(
    epilog=examples(
        "gridops-agent once",
        "gridops-agent once --state /tmp/a",
        "gridops-agent once -v 2> once.log",
    )
)
def once(
    state: State = None,
    verbose: Annotated[int, typer.Option("-v", "--verbose", count=True, help="Say more on stderr.")] = 0,
) -> None:
    """Ask the controller once, carry out what it wants, deliver the receipts, and leave."""
    from gridops_agent.shell import Agent

    config = config_of(state)
    _log(verbose)

    async def ask() -> str:
        async with Agent(config, __version__) as agent:
            return await agent.once()

    print(f"controller: {asyncio.run(ask())}")


@app.command(
    epilog=examples(
        "gridops-agent status",
        "gridops-agent status --state /tmp/a",
        "gridops-agent status -o json",
    )
)
def status(
    state: State = None,
    output: Annotated[str, typer.Option("-o", "--output", help="text or json.")] = "text",
) -> None:
    """What this host holds, and how it stands with its controller. Answers also when no agent runs."""
    from gridops_agent.clock import SystemClock
    from gridops_agent.statefolder import is_running
    from gridops_agent.status import status as seen_here
    from gridops_agent.status_lines import render

    if output not in ("text", "json"):
        raise Usage(f"`{output}` is not an output format", hints=("there are: text, json",))
    config = config_of(state)
    seen = seen_here(config, is_running(config))
    if output == "json":
        print(json.dumps(seen, indent=2, sort_keys=True))
    else:
        print(render(seen, SystemClock().wall_ms()), end="")


@app.command(
    epilog=examples(
        "gridops-agent stop",
        "gridops-agent stop --state /tmp/a",
        "gridops-agent stop --force",
    )
)
def stop(
    state: State = None,
    force: Annotated[bool, typer.Option("--force", help="Also what works or hangs: work in flight is cut.")] = False,
) -> None:
    """End the engines of a host whose agent does not run. `run` starts them again, since they are still wanted."""
    from gridops_agent.stopping import stop_engines

    lines, left = asyncio.run(stop_engines(config_of(state), force))
    print("\n".join(lines) or "no engine runs")
    if left:
        raise typer.Exit(1)


words.add(app)
lifecycle.add(app)
app.command(epilog=qualify.EPILOG)(qualify.qualify)
weigh.add(app)
handover.add(app)


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise Usage(f"{path} is not a folder", hints=("--artifacts names an existing folder with model files",))
    return path.absolute()


def _given(read: Any) -> Any:
    """A flag's value; what is wrong with it is a wrong call."""
    try:
        return read()
    except ValueError as error:
        raise Usage(str(error)) from error


def _log(verbose: int) -> None:
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("gridops_agent").setLevel(level)
