"""The long run: ten minutes with somebody between a controller and a host, and then a count on both sides."""

from __future__ import annotations

import os
from pathlib import Path

from tests.crash.between import TO_BYTES, TO_MESSAGES
from tests.crash.weather import blown

SECONDS = 60 * float(os.environ.get("WEATHER_MINUTES", "10"))
SEED = int(os.environ.get("WEATHER_SEED", "1"))


def test_ten_minutes_of_it_double_nothing_and_lose_nothing(tmp_path: Path) -> None:
    done, counted = blown(tmp_path, SECONDS, SEED)
    print(f"\n{dict(sorted(done.items()))}; {counted}")
    missing = (set(TO_MESSAGES) | set(TO_BYTES)) - set(done)
    assert len(missing) <= 2, f"too little happened to prove anything: {missing}"
