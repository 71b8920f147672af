"""Jobs that restart where they stopped: each stage is a Parquet folder that counts once Spark has marked it whole."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from recfusion.core.errors import InputError
from recfusion.core.jobs import JOB, STAGES, claim

_WHOLE = "_SUCCESS"  # Spark's own marker


@dataclass(frozen=True)
class Stages:
    """The stages of one job, in its output folder until it is done."""

    session: SparkSession
    folder: Path

    @classmethod
    def of(cls, session: SparkSession, folder: Path, job: dict[str, Any]) -> "Stages":
        """Return the stages of a job, those that are there already too; another job's folder is refused."""
        claim(folder, job)
        return cls(session, folder)

    @contextmanager
    def given_up_if_refused(self) -> Iterator[None]:
        """Leave no work behind where the input or the options are refused: the corrected job may have the folder."""
        try:
            yield
        except InputError:
            self.clear()
            if not any(self.folder.glob("part-*.parquet")):
                (self.folder / JOB).unlink(missing_ok=True)
            raise

    def place(self, name: str) -> Path:
        """Return a stage's folder."""
        return self.folder / STAGES / name

    def is_whole(self, name: str) -> bool:
        """Return whether all of a stage is there."""
        return (self.place(name) / _WHOLE).is_file()

    def ensure(self, name: str, make: Callable[[], DataFrame], *, by: str | None = None) -> None:
        """Make a stage's rows where they are not there; `by` divides them into a folder for each value."""
        if not self.is_whole(name):
            writer = make().write.mode("overwrite")
            (writer.partitionBy(by) if by else writer).parquet(address(self.place(name)))

    def frame(self, name: str, make: Callable[[], DataFrame]) -> DataFrame:
        """Return a stage's rows, made where they are not there."""
        self.ensure(name, make)
        return self.read(name)

    def read(self, name: str) -> DataFrame:
        """Return the rows of a stage that is there."""
        return self.session.read.parquet(address(self.place(name)))

    def publish(self, names: list[str]) -> None:
        """Move the files of finished stages into the job's folder, numbered in their order."""
        files = [file for name in names for file in sorted(self.place(name).glob("part-*.parquet"))]
        already = len(list(self.folder.glob("part-*.parquet")))  # of a run that was stopped right here
        for number, file in enumerate(files, start=already):
            file.replace(self.folder / f"part-{number:05d}.parquet")

    def clear(self) -> None:
        """Remove what only the way to the result needed."""
        shutil.rmtree(self.folder / STAGES, ignore_errors=True)


def address(path: Path) -> str:
    """Return a path as Spark takes it whatever its default file system is; it wants no characters escaped."""
    return f"file://{path.absolute()}"
