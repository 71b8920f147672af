"""A worker process of a service that tests can kill; several share the model folder and the event store."""

import multiprocessing
import os
import signal
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

from recfusion.server.config import Settings
from running import Client, running

# A clean process imports the service once and is forked for each worker: polars has no threads then.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["recfusion.server.app", "recfusion.models.linear.ease", "uvicorn", "running"])


def _serve(document: str, port: Connection) -> None:
    with running(Settings.model_validate_json(document)) as client:
        port.send(client.port)
        signal.pause()


@dataclass(frozen=True)
class Worker:
    """A process that serves on a port of its own."""

    process: BaseProcess
    client: Client

    @classmethod
    def start(cls, settings: Settings) -> "Worker":
        mine, its = _CONTEXT.Pipe()
        process = _CONTEXT.Process(target=_serve, args=(settings.model_dump_json(), its), daemon=True)
        process.start()
        its.close()
        assert mine.poll(60), "the worker did not start"
        return cls(process, Client(mine.recv()))

    def kill(self) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.join(60)
