"""Questions for another process: it imports this module within the time of its first question.

Nothing is imported here that a worker has not loaded already.
"""

from __future__ import annotations

import os
import time

import numpy as np


async def wanted() -> bool:
    return False


def process(_: object) -> int:
    return os.getpid()


def endless(_: object) -> None:
    while True:
        sum(range(1000))


def sleeping(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def big(megabytes: int) -> float:
    return float(np.ones(megabytes << 17).sum())


def refusing(error: Exception) -> None:
    raise error


def ending(code: int) -> None:
    os._exit(code)
