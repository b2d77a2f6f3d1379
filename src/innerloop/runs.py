"""Results on disk, found again by what produced them.

A run is a folder whose name is a hash of its config. Asking for the same thing again finds it;
changing anything does not. Every write is atomic: a temporary file in the same folder, flushed to
disk, then renamed over the target.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch


class OutputError(OSError):
    """A folder or file for results cannot be written."""


@cache
def code_version() -> str:
    """A hash of every source file that numbers come from.

    The report, the command line and the benchmarks only show numbers, and are left out.
    """
    package = Path(__file__).parent
    shown_only = {"report", "benchmarks", "cli"}
    digest = hashlib.sha256(torch.__version__.encode())
    for path in sorted(package.rglob("*.py")):
        relative = path.relative_to(package)
        if relative.parts[0].removesuffix(".py") not in shown_only:
            digest.update(str(relative).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


class RunStore:
    """A folder of runs."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, config: Mapping[str, Any]) -> Path:
        """Where the run with this config belongs; it need not exist."""
        key = json.dumps(config, sort_keys=True)
        name = str(config.get("id", "run")).replace("/", "-")
        return self.root / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


def writable_folder(path: Path) -> Path:
    """The folder, made if need be, after trying that a file can be written into it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise OutputError(f"cannot write to the folder {path}: {error.strerror}") from error
    return path


def require_writable(name: str, path: Path) -> None:
    """Refuses what cannot be written or replaced as a file, before the work that it is for.

    A pipe would be waited on for ever, and a folder or a device is not ours to replace.
    """
    if path.exists() and not path.is_file():
        raise OutputError(f"{name} must be a file that can be written, got {path}")
    writable_folder(path.parent)


def write_atomic(path: Path, content: str | bytes) -> None:
    """Writes the whole file or nothing, even if the machine stops half way."""
    data = content.encode() if isinstance(content, str) else content
    writable_folder(path.parent)
    try:
        _write_and_rename(path, data)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}") from error


def _write_and_rename(path: Path, data: bytes) -> None:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def read_json(path: Path) -> Any | None:
    """The content of a JSON file; None if there is no such file or what is in it is no JSON."""
    try:
        # A regular file: reading anything else, such as a pipe, may wait for ever.
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return None
