"""Secrets that the service manager hands over: files of `$CREDENTIALS_DIRECTORY`, as LoadCredential= makes them.

Opened as suspiciously as the keyring's: a plain file under one name, of root or of whoever runs this, that nobody can
write and nobody else can read, in a folder that nobody else can look into. Systemd lets the service's account in by an
access list, which shows as a right of root's group to read. What is otherwise is refused with what is wrong, and never
passed over for another place: somebody meant this secret to come from here.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from gridops.base.errors import BadSetup

VARIABLE = "CREDENTIALS_DIRECTORY"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,127}")
_SECRET_BYTES = 1 << 20
"""As large as systemd lets all credentials of a unit be together."""
_MAKE = "let systemd make it: LoadCredential=, or LoadCredentialEncrypted="


def credential(name: str) -> Path | None:
    """Where the credential of this name lies, if one was handed over. Nothing of it was judged yet."""
    folder = os.environ.get(VARIABLE)
    if not folder or _NAME.fullmatch(name) is None:
        return None
    path = Path(folder) / name
    return path if os.path.lexists(path) else None


def read_credential(path: Path) -> bytes:
    """The content of a credential. Raises BadSetup that says what is wrong with it."""
    if not path.is_absolute():
        raise BadSetup(f"{VARIABLE} is {str(path.parent)!r}, which is no absolute path", hints=(_MAKE,))
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise BadSetup(f"cannot open {path.parent}: {error.strerror}", hints=(_MAKE,)) from error
    try:
        _judge(path.parent, os.fstat(folder), stat.S_IRGRP | stat.S_IXGRP | stat.S_IRWXU)
        return _read(path, folder)
    finally:
        os.close(folder)


def _read(path: Path, folder: int) -> bytes:
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = os.open(path.name, flags, dir_fd=folder)
    except OSError as error:
        raise BadSetup(f"cannot read {path}: {error.strerror}", hints=(_MAKE,)) from error
    try:
        _require_handed(path, os.fstat(descriptor))
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read(_SECRET_BYTES + 1)
    except OSError as error:
        raise BadSetup(f"cannot read {path}: {error.strerror}", hints=(_MAKE,)) from error
    finally:
        os.close(descriptor)
    if not content:
        raise BadSetup(f"{path} is empty", hints=("look at what LoadCredential= of the unit names",))
    if len(content) > _SECRET_BYTES:
        raise BadSetup(f"{path} is larger than any key")
    return content


def _require_handed(path: Path, info: os.stat_result) -> None:
    if not stat.S_ISREG(info.st_mode):
        raise BadSetup(f"{path} is not a regular file", hints=(_MAKE,))
    if info.st_nlink != 1:
        raise BadSetup(f"{path} has {info.st_nlink} hard links: it can be reached under another name", hints=(_MAKE,))
    _judge(path, info, stat.S_IRUSR | stat.S_IRGRP)


def _judge(path: Path, info: os.stat_result, most: int) -> None:
    """Whose it is, and that no mode lets in who is not meant."""
    if info.st_uid not in (0, os.geteuid()):
        raise BadSetup(f"{path} belongs to user {info.st_uid}, not to root nor to user {os.geteuid()}", hints=(_MAKE,))
    mode = stat.S_IMODE(info.st_mode)
    strangers = mode & stat.S_IRWXG and info.st_gid not in (0, os.getegid())
    if mode & ~most or strangers:
        whose = f" of group {info.st_gid}" if strangers else ""
        raise BadSetup(
            f"{path} can be read or changed by others (mode {mode:04o}{whose}, expected {most & 0o550:04o} or less)",
            hints=(_MAKE,),
        )
