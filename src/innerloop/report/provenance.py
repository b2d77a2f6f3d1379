"""What the numbers were made with, so that somebody else can make them again."""

from __future__ import annotations

import os
import platform
from datetime import datetime
from importlib import metadata

import numpy as np
import torch

from innerloop.runs import code_version


def provenance() -> dict[str, str]:
    """Names and values for the top of the page."""
    now = datetime.now().astimezone()
    return {
        "Written": f"{now.day} {now:%B %Y, %H:%M %Z}",
        "innerloop": _package_version(),
        "Code": code_version(),
        "Python": platform.python_version(),
        "PyTorch": torch.__version__,
        "NumPy": np.__version__,
        "Platform": f"{platform.system()} {platform.machine()}",
        "CPU threads": f"{torch.get_num_threads()} of {os.cpu_count()}",
    }


def _package_version() -> str:
    try:
        return metadata.version("innerloop")
    except metadata.PackageNotFoundError:
        return "from source, not installed"
