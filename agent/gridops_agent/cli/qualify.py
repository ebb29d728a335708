"""`gridops-agent qualify`: the whole life of an engine with a model, for real, with signed evidence at the end."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from gridops import __version__
from gridops.base.ids import Digest, is_digest
from gridops.base.units import PPM, render_ms
from gridops.model.profile import EngineArg
from gridops_agent.cli.options import State, config_of, examples
from gridops_agent.cli.report import Usage

EPILOG = examples(
    "gridops-agent qualify llama.cpp /models/coder.gguf --context 8192 --lanes 2",
    "gridops-agent qualify llama.cpp /models/coder.gguf --backend cuda --device gpu0",
    "gridops-agent qualify ollama ollama://llama3.2:3b --digest sha256:a80c... --backend cuda --device gpu0",
)


def qualify(
    engine: Annotated[str, typer.Argument(metavar="ENGINE", help="Name that configs use.")],
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A file, a folder, or ollama://NAME:TAG.")],
    backend: Annotated[str, typer.Option("--backend", help="Build of the engine: cpu, cuda and so on.")] = "cpu",
    context: Annotated[int, typer.Option("--context", min=1, help="Tokens of context.")] = 4096,
    lanes: Annotated[int, typer.Option("--lanes", min=1, help="Generations at the same time.")] = 1,
    device: Annotated[list[str] | None, typer.Option("--device", help="A card to run on; repeat for several.")] = None,
    arg: Annotated[list[str] | None, typer.Option("--arg", metavar="NAME=VALUE", help="An engine argument.")] = None,
    digest: Annotated[str | None, typer.Option("--digest", help="The digest a registry gives the model.")] = None,
    share: Annotated[float, typer.Option("--share", min=0, max=1, help="Part of a card, for engines told one.")] = 0,
    state: State = None,
) -> None:
    """Run an engine's whole life with a model on this host, measure its memory, and sign what was found."""
    from gridops.protocol.qualification import Found
    from gridops_agent.qualify_setup import Wish
    from gridops_agent.qualify_setup import qualify as run

    if digest is not None and not is_digest(digest):
        raise Usage(f"`{digest}` is not a digest, such as sha256:...")
    wish = Wish(
        engine=engine,
        model=model,
        backend=backend,
        context=context,
        lanes=lanes,
        devices=tuple(device or ()),
        args=tuple(_arg(one) for one in arg or ()),
        digest=Digest(digest) if digest is not None else None,
        share_ppm=int(share * PPM),
    )

    def say(found: Found) -> None:
        word = "ok" if found.passed else "FAILED"
        print(f"{found.step.value:<10} {word:<6} {render_ms(found.took_ms):>8}  {found.detail}", flush=True)

    made = asyncio.run(run(config_of(state), wish, __version__, say))
    print(f"{'qualified' if made.outcome.passed else 'not qualified'}; evidence: {made.file}")
    if not made.outcome.passed:
        raise typer.Exit(1)


def _arg(text: str) -> EngineArg:
    name, sign, value = text.partition("=")
    if not name or not sign:
        raise Usage(f"`{text}` is not an argument, such as threads=4")
    return EngineArg(name=name, value=value)
