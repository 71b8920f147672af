"""Time limits that a busy machine does not shorten."""

import subprocess
import time
from contextlib import suppress

import psutil

HANG = 30.0  # seconds after which a command or an answer counts as hanging
_TICK = 0.1


def ends_within(process: subprocess.Popen[str], seconds: float = HANG) -> bool:
    """Return whether a process ends before it has computed or slept for some seconds; its wait for a core is free."""
    spent = used = 0.0
    while process.poll() is None and spent < seconds:
        time.sleep(_TICK)
        with suppress(psutil.Error):  # it has ended
            own = psutil.Process(process.pid)
            tree = [own, *own.children(recursive=True)]
            before, used = used, sum(sum(one.cpu_times()[:2]) for one in tree)
            asleep = all(one.status() != psutil.STATUS_RUNNING for one in tree)
            spent += max(used - before, _TICK if asleep else 0.0)
    return process.poll() is not None
