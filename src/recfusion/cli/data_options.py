"""The choice of data of a command: `request_options` gives the command an option for each field."""

from collections.abc import Collection

from pydantic import BaseModel

from recfusion.cli.output import working
from recfusion.data.features import with_features
from recfusion.data.interactions import Interactions, Signal
from recfusion.data.load import load
from recfusion.data.options import Preparation, SignalChoice, Source, SplitPlan
from recfusion.data.signals import EVERY, parse_signals


class DataChoice(BaseModel, frozen=True):
    """The values of the data options of a command."""

    source: Source
    preparation: Preparation
    plan: SplitPlan
    used: SignalChoice

    @property
    def signals(self) -> str:
        """The signals that are used."""
        return self.used.signals

    def load(self, reads: Collection[Signal] = EVERY) -> Interactions:
        """Read and prepare the data, with features if they are requested and a model `reads` them."""
        parse_signals(self.signals)  # fail before reading data
        with working(f"Reading {self.source.label}"):
            return with_features(load(self.source, self.preparation), self.signals, reads)
