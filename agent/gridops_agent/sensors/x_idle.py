"""Prints how long the X server has had no input, in ms. Run as a program: Xlib ends its process when the server goes.

Started by `idle` where neither `xprintidle` nor `xssstate` is installed; needs libX11 and libXss. Prints nothing when
it cannot tell.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import sys


class _Info(ctypes.Structure):
    """XScreenSaverInfo."""

    _fields_ = (
        ("window", ctypes.c_ulong),
        ("state", ctypes.c_int),
        ("kind", ctypes.c_int),
        ("since", ctypes.c_ulong),
        ("idle", ctypes.c_ulong),
        ("event_mask", ctypes.c_ulong),
    )


def idle_ms() -> int | None:
    """Idle time of the display that the environment names."""
    try:
        x11, xss = ctypes.CDLL("libX11.so.6"), ctypes.CDLL("libXss.so.1")
    except OSError:
        return None
    x11.XOpenDisplay.restype = ctypes.c_void_p
    x11.XOpenDisplay.argtypes = (ctypes.c_char_p,)
    x11.XDefaultRootWindow.restype = ctypes.c_ulong
    x11.XDefaultRootWindow.argtypes = (ctypes.c_void_p,)
    xss.XScreenSaverAllocInfo.restype = ctypes.POINTER(_Info)
    xss.XScreenSaverQueryInfo.argtypes = (ctypes.c_void_p, ctypes.c_ulong, ctypes.POINTER(_Info))
    display = x11.XOpenDisplay(None)
    if not display:
        return None
    info = xss.XScreenSaverAllocInfo()
    answered = xss.XScreenSaverQueryInfo(display, x11.XDefaultRootWindow(display), info)
    return int(info.contents.idle) if answered else None


if __name__ == "__main__":
    told = idle_ms()
    if told is not None:
        sys.stdout.write(f"{told}\n")
