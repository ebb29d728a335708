"""Memory bandwidth and compute of well-known devices: what a host's speed is guessed from before it is measured.

Published figures, rounded; a device that is not here is unknown, which is neither fast nor slow. Used by `speed`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Device:
    """GB/s of memory, and dense 16-bit TFLOPS of its shaders (None: not published)."""

    bandwidth: int
    tflops: int | None


_TABLE = """
gtx 1080 ti|484|     rtx 2080 ti|616|27      rtx 3070|448|20           rtx 3070 mobile|448|16   rtx 3080|760|30
rtx 3090|936|36      rtx 4060|272|15         rtx 4060 ti|288|22        rtx 4070 mobile|256|16   rtx 4090|1010|83
rtx 4090 mobile|576|33  rtx 5060 ti|448|24   rtx 5070 mobile|384|13    rtx 5080|960|56          rtx 5090|1790|105
rtx 5090 mobile|896|32  rx 7900 xtx|960|123  rx 9070 xt|645|97         arc a 770|512|39         arc b 580|456|27
rtx a 6000|768|39    rtx 6000 ada|960|91     rtx pro 6000|1790|126     arc pro b 60|456|25      gb 10|273|30
orin nano|102|4      orin nx|102|4           agx orin|205|11           p 100|732|19             t 4|320|65
v 100|898|31         a 2|200|5               a 10|600|31               a 10 g|600|32            l 4|300|30
l 40 s|864|92        l 40|864|91             a 30|933|10               a 100|1940|78            a 100 sxm|2040|78
h 100|2040|205       h 100 sxm|3360|268      h 200|4890|268            b 200|7700|              b 300|7750|
gb 200|8000|         gb 300|8000|            mi 300 x|5300|654         m 1|68|3                 m 1 pro|200|
m 1 max|400|         m 1 ultra|800|          m 2|100|4                 m 2 pro|200|             m 2 max|400|
m 2 ultra|800|       m 3|100|                m 3 pro|150|6             m 3 max|400|             m 3 ultra|819|
m 4|120|             m 4 pro|273|            m 4 max|546|14            m 5|153|                 max+ 395|256|30
890 m|120|12
"""


def _read() -> dict[tuple[str, ...], Device]:
    found = {}
    for entry in re.split(r"\s{2,}|\n", _TABLE.strip()):
        name, bandwidth, tflops = entry.strip().split("|")
        found[tuple(name.split())] = Device(int(bandwidth), int(tflops) if tflops else None)
    return found


_KNOWN = _read()
_LONGEST = max(map(len, _KNOWN))


def known_device(name: str | None) -> Device | None:
    """The device that a driver's or a person's name means: the longest known name in it, word by word."""
    words = re.findall(r"[a-z]+\+?|[0-9]+", (name or "").lower().replace("laptop", "mobile"))
    for length in range(_LONGEST, 0, -1):
        for at in range(len(words) - length + 1):
            found = _KNOWN.get(tuple(words[at : at + length]))
            if found is not None:
                return found
    return None
