"""Artifacts of a host: `shelf` is the face; it finds, fetches, proves and deletes the files that models are made of."""

from gridops_agent.artifacts.find import TakenBack
from gridops_agent.artifacts.shelf import Artifacts, Ways

__all__ = ["Artifacts", "TakenBack", "Ways"]
