"""The last word about a host is that of a person at it: the commands drain, pause, quarantine and resume.

They write and remove one file; a running agent follows within a second, and one that starts later finds it.
"""

from __future__ import annotations

from typing import Annotated

import typer

from gridops.base import limits
from gridops.base.units import parse_ms, render_ms
from gridops_agent.cli.options import State, config_of, examples
from gridops_agent.cli.report import Usage
from gridops_agent.core.protection import OverrideKind

Reason = Annotated[str, typer.Option("--reason", help="Why; shown to whoever asks for this host.", metavar="TEXT")]
For = Annotated[
    str | None, typer.Option("--for", help="How long, sleep included [default: until resume].", metavar="TIME")
]
SAID = {
    OverrideKind.DRAIN: "takes no new work; what runs goes on, and models stay in memory",
    OverrideKind.PAUSE: "takes no new work; once it is idle its models give their memory back",
    OverrideKind.QUARANTINE: "takes no new work until it is released; nothing of it is touched",
}


def add(app: typer.Typer) -> None:
    """Put the four commands into the program."""
    app.command(
        epilog=examples(
            'gridops-agent drain --reason "taking it home" --for 1h',
            'gridops-agent drain --reason "new power supply"',
            "gridops-agent resume",
        )
    )(drain)
    app.command(
        epilog=examples(
            'gridops-agent pause --reason "I need the memory"',
            'gridops-agent pause --reason "on battery" --for 90m',
            "gridops-agent resume",
        )
    )(pause)
    app.command(
        epilog=examples(
            'gridops-agent quarantine --reason "smells of smoke"',
            'gridops-agent quarantine --reason "under investigation" --for 1d',
            "gridops-agent resume",
        )
    )(quarantine)
    app.command(epilog=examples("gridops-agent resume", "gridops-agent resume --state /tmp/a", "gridops-agent status"))(
        resume
    )


def drain(reason: Reason, for_: For = None, state: State = None) -> None:
    """Take no new work on this host. What runs goes on; models stay in memory."""
    _say(OverrideKind.DRAIN, reason, for_, state)


def pause(reason: Reason, for_: For = None, state: State = None) -> None:
    """Take no new work, and give the models' memory back once they are idle."""
    _say(OverrideKind.PAUSE, reason, for_, state)


def quarantine(reason: Reason, for_: For = None, state: State = None) -> None:
    """Fence this host until it is released. Nothing that is on it is touched."""
    _say(OverrideKind.QUARANTINE, reason, for_, state)


def resume(state: State = None) -> None:
    """Take a drain, pause or quarantine back. What safety says on this host holds all the same."""
    from gridops_agent.overrides import take_back
    from gridops_agent.statefolder import is_running

    config = config_of(state)
    if not take_back(config.override):
        print(f"{config.host}: nothing was said that could be taken back")
        return
    print(f"{config.host}: taken back{_when(is_running(config))}")


def _say(kind: OverrideKind, reason: str, for_: str | None, state: State) -> None:
    from gridops_agent.clock import SystemClock
    from gridops_agent.overrides import Wish, say
    from gridops_agent.statefolder import is_running

    wish = Wish(kind, _reason(reason), _span(for_))
    config = config_of(state)
    say(config.override, wish, SystemClock())
    until = f"for {render_ms(wish.for_ms)}" if wish.for_ms is not None else "until `gridops-agent resume`"
    print(f"{config.host}: {kind} {until}{_when(is_running(config))}")
    print(f"  {SAID[kind]}")


def _when(running: bool) -> str:
    return ", within a second" if running else ", as soon as an agent runs here (none does)"


def _reason(text: str) -> str:
    words = " ".join(text.split())
    if not words or not words.isprintable() or len(words) > limits.OVERRIDE_REASON_CHARS:
        hint = f"one line of at most {limits.OVERRIDE_REASON_CHARS} characters that others will understand"
        raise Usage("`--reason` says nothing that could be shown", hints=(hint,))
    return words


def _span(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        span = parse_ms(text)
    except ValueError as error:
        raise Usage(f"`--for`: {error}", hints=("such as 90m, 8h or 2d",)) from error
    if not 1_000 <= span <= limits.OVERRIDE_MS:
        raise Usage(
            f"`--for` is from 1s to {render_ms(limits.OVERRIDE_MS)}, not {text}",
            hints=("leave it out: then it holds until `gridops-agent resume`",),
        )
    return span
