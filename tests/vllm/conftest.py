"""Collects this folder only where an interpreter with vLLM is named: it is 3.5 GB, and nobody has it by accident."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("TEST_VLLM_PYTHON") else ["test_*.py"]
