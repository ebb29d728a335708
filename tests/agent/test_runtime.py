"""The pinned runtime: what the lock names, proved by digest through the real pip, whole or not there."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from gridops.base.errors import Failed
from gridops.base.ids import EngineName
from gridops_agent.cli import lifecycle
from gridops_agent.cli.entry import main
from gridops_agent.engines import engines, llama_cpp
from gridops_agent.life import runtime as runtimes
from gridops_agent.life.runtime import LOCK, install_runtime, is_current, pinned
from tests.agent.site import Site

WHEEL = "xllamacpp-2026.10.11549-py3-none-any.whl"
MODULE = "import sys\nprint('made')\n"


def wheel(folder: Path) -> tuple[Path, str]:
    """A wheel of the pinned name and version that holds next to nothing; its SHA-256."""
    folder.mkdir(exist_ok=True)
    info = "xllamacpp-2026.10.11549.dist-info"
    files = {
        "xllamacpp/__init__.py": MODULE,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: xllamacpp\nVersion: 2026.10.11549\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    for name, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(text)}")
    rows.append(f"{info}/RECORD,,")
    path = folder / WHEEL
    with zipfile.ZipFile(path, "w") as made:
        for name, text in {**files, f"{info}/RECORD": "\n".join(rows) + "\n"}.items():
            made.writestr(name, text)
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """pip is configured for a folder with that wheel, and for nothing else; the wheel's SHA-256."""
    path, digest = wheel(tmp_path / "wheels")
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(path.parent))
    return digest


def lock(tmp_path: Path, digest: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "llamacpp.lock"
    path.write_text(f"xllamacpp==2026.10.11549 \\\n    --hash=sha256:{digest}\n")
    monkeypatch.setattr(runtimes, "LOCK", path)


def test_the_lock_is_that_of_the_repository(repository: Path) -> None:
    extra = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["optional-dependencies"]["llamacpp"]
    assert [pinned()] == extra
    assert LOCK.read_text() in (repository / "requirements" / "run.txt").read_text()
    assert LOCK.read_text().count("--hash=sha256:") >= 4
    assert "http" not in LOCK.read_text(), "it names no index"


def test_what_the_lock_names_is_installed_and_found(
    site: Site, index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock(tmp_path, index, monkeypatch)
    assert "was installed into" in install_runtime(site.config)
    assert is_current(site.config)
    assert "already" in install_runtime(site.config)
    assert not (site.state / "runtime.part").exists()
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(llama_cpp.importlib.util, "find_spec", lambda name: None)
    without = engines({}, site.state / "nowhere")[EngineName("llama.cpp")]
    found = engines({}, site.config.runtime)[EngineName("llama.cpp")]
    assert without.runtimes() == ()
    assert [r.backend for r in found.runtimes()] == ["cpu"]
    program = found._program()  # type: ignore[attr-defined]
    assert program[-2:] == ("--runtime", str(site.config.runtime))


def test_the_wrapper_takes_the_wheel_from_where_it_is_told(
    site: Site, index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock(tmp_path, index, monkeypatch)
    install_runtime(site.config)
    wrapper = Path(llama_cpp.__file__).with_name("xll_server.py")
    words = ("--runtime", str(site.config.runtime), "-m", "x", "-a", "x", "--port", "1", "--api-key-file", "x")
    done = subprocess.run([sys.executable, "-P", str(wrapper), *words], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("made"), "the module from the folder, not the one that is installed"


@pytest.mark.parametrize("wrong", ["another digest", "no such version", "no index"])
def test_a_failure_changes_nothing_and_says_what_to_do(
    wrong: str, site: Site, index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock(tmp_path, "0" * 64 if wrong == "another digest" else index, monkeypatch)
    if wrong == "no such version":
        runtimes.LOCK.write_text(f"xllamacpp==1.0 \\\n    --hash=sha256:{index}\n")
    if wrong == "no index":
        monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    with pytest.raises(Failed, match="was not installed") as caught:
        install_runtime(site.config)
    assert f"gridops-agent runtime --state {site.state}" in caught.value.hints[0]
    assert not site.config.runtime.exists()
    assert not (site.state / "runtime.part").exists()
    assert "none. xllamacpp==" in lifecycle.install_found(site.config), "the host has joined all the same"
    assert main(["runtime", "--state", str(site.state)]) == 1


def test_a_newer_lock_replaces_the_runtime(
    site: Site, index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (site.config.runtime / "xllamacpp").mkdir(parents=True)
    (site.config.runtime / "old").touch()
    lock(tmp_path, index, monkeypatch)
    assert not is_current(site.config)
    install_runtime(site.config)
    assert not (site.config.runtime / "old").exists()
    assert not (site.state / "runtime.old").exists()
