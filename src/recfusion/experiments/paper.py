"""The paper's numbers as data: its tables of results, of counts and of parameters, by the registry's names."""

from collections.abc import Mapping
from dataclasses import dataclass

from recfusion.core.errors import choices
from recfusion.data.protocol import Protocol
from recfusion.data.settings import Preparation, SplitPlan

# "Recall" in the paper is calibrated: hits / min(K, held-out).
METRICS = ("calibrated_recall@20", "calibrated_recall@50", "ndcg@100")


@dataclass(frozen=True)
class PaperTable:
    """One of the paper's tables of results, in percent; the values of a model follow METRICS."""

    name: str  # of the reproduction
    title: str
    data: str  # in the catalog
    values: Mapping[str, tuple[float, float, float]]


@dataclass(frozen=True)
class Counts:
    """Active users, active items and interactions of one part of a data set."""

    users: int
    items: int
    interactions: int


TABLES: Mapping[str, PaperTable] = {
    table.name: table
    for table in (
        PaperTable(
            "ml1m",
            "ML-1M, medians of ten splits",
            "ml-1m",
            {
                "random": (0.87, 1.71, 1.73),
                "popularity": (16.77, 24.30, 21.44),
                "codigem": (21.04, 31.67, 28.00),
                "recfusion": (29.02, 40.03, 36.14),
                "multvae": (31.43, 42.89, 37.87),
                "recvae": (35.61, 47.79, 41.81),
                "slim": (34.23, 45.25, 40.14),
                "ease": (35.76, 46.92, 42.24),
            },
        ),
        PaperTable(
            "ablation",
            "ML-1M, the variants of RecFusion",
            "ml-1m",
            {
                "recfusion-unet1d": (4.45, 7.77, 6.99),
                "recfusion-unet2d": (6.47, 9.08, 9.03),
                "recfusion-t": (14.03, 17.80, 16.59),
                "recfusion-var": (16.71, 24.73, 21.63),
                "recfusion-bin": (17.59, 23.53, 21.94),
                "recfusion": (30.91, 41.76, 37.44),
            },
        ),
        PaperTable(
            "ml25m",
            "ML-25M",
            "ml-25m",
            {
                "random": (0.13, 0.30, 0.24),
                "popularity": (16.63, 24.43, 19.69),
                "recfusion": (33.21, 45.44, 37.31),
                "codigem": (34.05, 45.84, 37.90),
                "multvae": (35.12, 48.09, 39.12),
                "ease": (40.02, 52.71, 43.84),
            },
        ),
        PaperTable(
            "netflix",
            "Netflix",
            "netflix",
            {
                "random": (0.18, 0.32, 0.31),
                "popularity": (11.73, 17.48, 15.89),
                "codigem": (25.54, 33.48, 29.08),
                "recfusion": (29.68, 37.63, 32.87),
                "multvae": (31.61, 40.61, 35.23),
                "ease": (36.19, 44.49, 39.35),
            },
        ),
    )
}

# Every rating counts here: the paper's table of counts, unlike its tables of results, has no threshold. The folds of
# validation and test are counted by what a model is shown (about 80 % of the histories).
COUNTS: Mapping[str, Mapping[str, Counts]] = {
    "ml-1m": {
        "train": Counts(4_832, 3_416, 798_608),
        "valid": Counts(604, 3_158, 76_513),
        "test": Counts(604, 3_282, 84_772),
    },
    "ml-25m": {
        "train": Counts(130_032, 32_718, 19_924_515),
        "valid": Counts(16_254, 24_818, 1_999_297),
        "test": Counts(16_255, 25_597, 2_030_221),
    },
    "netflix": {
        "train": Counts(378_389, 17_769, 80_418_808),
        "valid": Counts(47_299, 17_761, 8_011_940),
        "test": Counts(47_299, 17_759, 8_060_214),
    },
}

# On ML-1M with every rating; the paper's commas are misplaced ("141,021,8").
PARAMETERS: Mapping[str, int] = {"recfusion": 1_410_218, "multvae": 4_464_216, "codigem": 5_603_886}


@dataclass(frozen=True)
class PaperValues:
    """The paper's values of a comparison's models, as shares of 1."""

    title: str
    models: dict[str, dict[str, float]]  # label -> metric -> value


def paper_values(protocol: Protocol, names: Mapping[str, str], table: str | None = None) -> PaperValues | None:
    """Return the paper's values of some models, which `names` takes from their labels to their names.

    They come from `table`, one of TABLES, and for models that it lacks from the other tables of the same data. Under
    another protocol than the paper's there are none: numbers under different protocols are not compared.
    """
    if table is not None and table not in TABLES:
        raise choices("table of the paper", table, TABLES)
    tables = [found for found in TABLES.values() if found.data == protocol.name]
    tables.sort(key=lambda found: found.name != table)
    if not _is_the_paper_s(protocol):
        return None
    models, used = {}, []
    for label, name in names.items():
        found = next((found for found in tables if name in found.values), None)
        if found is not None:
            models[label] = dict(zip(METRICS, (value / 100 for value in found.values[name]), strict=True))
            used.append(found.title)
    return PaperValues("; ".join(dict.fromkeys(used)), models) if models else None


def _is_the_paper_s(protocol: Protocol) -> bool:
    """Return whether data was prepared and split as in the paper: for star ratings, auto is the threshold of 4."""
    preparation = protocol.preparation
    if preparation.min_rating == 4:
        preparation = preparation.model_copy(update={"min_rating": "auto"})
    return preparation == Preparation() and protocol.plan == SplitPlan() and set(METRICS) <= set(protocol.metrics)
