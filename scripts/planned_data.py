"""Write the CSV files of the two planned data sets that are published in forms we do not read.

    python scripts/planned_data.py douban training_test_dataset.mat     # gcmc/data/douban of riannevdberg/gc-mc
    python scripts/planned_data.py citeulike-a users.dat                # of js05212/citeulike-a

The file goes to results/NAME.csv, where results/NAME.toml expects it. Douban needs `pip install h5py`.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results"


def douban(path: Path) -> Iterator[str]:
    """A row for each entry of the matrix M (users x items) other than 0. MATLAB stores it by columns."""
    import h5py  # not one of the development packages

    with h5py.File(path) as file:
        ratings = file["M"][()].T  # (users, items)
    yield "user,item,rating"
    for user, item in zip(*ratings.nonzero(), strict=True):
        yield f"{user},{item},{ratings[user, item]:g}"


def citeulike_a(path: Path) -> Iterator[str]:
    """A row for each article behind the number of a line."""
    yield "user,item"
    for user, line in enumerate(path.read_text(encoding="ascii").splitlines()):
        for item in line.split()[1:]:
            yield f"{user},{item}"


READERS = {"douban": douban, "citeulike-a": citeulike_a}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=READERS)
    parser.add_argument("source", type=Path)
    options = parser.parse_args()
    target = RESULTS / f"{options.name}.csv"
    rows = list(READERS[options.name](options.source))
    target.write_text("\n".join(rows) + "\n", encoding="ascii")
    print(f"{target}: {len(rows) - 1:,} rows")
    return 0


if __name__ == "__main__":
    sys.exit(main())
