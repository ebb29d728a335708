"""gridops decides which AI models are resident on which machines, and makes it so, declaratively."""

__version__ = "0.1.0"
