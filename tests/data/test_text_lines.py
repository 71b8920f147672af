"""Every physical line of a text file is a row that is read, or one that is counted: whatever its quotes."""

import gzip
import itertools
from pathlib import Path

import numpy as np
import pytest

from recfusion.core.errors import InputError
from recfusion.data.options import Source
from recfusion.data.reading.reader import read_table
from recfusion.data.reading.text_lines import BROKEN, TextLayout, fields_of, line_blocks, line_cuts, split_lines

PIECES = ['"', '""', '\\"', ",", ";", "::", "|", "7", "ann", "é", " ", "\t", "\r", "x\x9c", "\x1f", "", '"a,b"', "4.5"]


def by_hand(line: str, separator: str) -> list[str] | None:
    """Return the fields of a line, letter by letter; None where its quotes do not pair."""
    fields, place, quoted = [], 0, False
    while True:
        if line.startswith('"', place):
            quoted, field, place = True, "", place + 1
            while True:
                end = line.find('"', place)
                if end < 0:
                    return None
                field, place = field + line[place:end], end + 1
                if not line.startswith('"', place):
                    break
                field, place = field + '"', place + 1
            if place < len(line) and not line.startswith(separator, place):
                return None
        else:
            end = line.find(separator, place)
            field, place = (line[place:], len(line)) if end < 0 else (line[place:end], end)
        fields.append(field)
        if place >= len(line):
            break
        place += len(separator)
    # Beside a quoted field, a stray quote makes a line doubtful.
    stray = quoted and any('"' in part for part in _unquoted(line, separator))
    return None if stray else fields


def _unquoted(line: str, separator: str) -> list[str]:
    parts, place = [], 0
    while place <= len(line):
        if line.startswith('"', place):
            place += 1
            while not (line[place] == '"' and line[place : place + 2] != '""'):
                place += 2 if line[place : place + 2] == '""' else 1
            place += 1 + len(separator)
        else:
            end = line.find(separator, place)
            end = len(line) if end < 0 else end
            parts.append(line[place:end])
            place = end + len(separator)
    return parts


def count_lines(body: bytes) -> int:
    return body.count(b"\n") + bool(body.rpartition(b"\n")[2])


def random_lines(rng: np.random.Generator, count: int) -> list[str]:
    return ["".join(rng.choice(PIECES, rng.integers(0, 9))) for _ in range(count)]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|", "::"])
def test_lines_are_divided_as_by_hand(separator: str) -> None:
    rng = np.random.default_rng(0)
    layout = TextLayout(separator, False, ("a", "b", "c"), 0)
    lines = [line.replace("\r", "") for line in random_lines(rng, 2000)] + ['"Lamp; large";"12"" disc"', "7::8::9"]
    found = split_lines("\n".join(lines).encode() + b"\n", layout, layout.columns).rows()
    for line, row in zip(lines, found, strict=True):
        fields = by_hand(line, separator)
        if fields is None:
            assert row == (None, None, None, BROKEN + line)
        else:
            assert [cell or None for cell in row] == [cell or None for cell in (fields + [None] * 4)[:4]], line


@pytest.mark.parametrize("seed", range(300))
def test_no_line_vanishes(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    separator = str(rng.choice([",", ";", "\t", "|", "::"]))
    header = separator.join(("user", "item", "rating")).encode()
    lines = random_lines(rng, int(rng.integers(1, 30)))
    lines += [separator.join(rng.choice(["7", '"a"', '"b', 'c"', "", '"x""y"', f'"u{separator}v"'], 3)) for _ in lines]
    ends = rng.choice(["\n", "\r\n"], len(lines)) if seed % 2 else ["\n"] * len(lines)
    body = "".join(line + end for line, end in zip(rng.permutation(lines), ends, strict=True)).encode()
    body = body.rstrip(b"\r\n") + b"!" if seed % 3 == 0 else body
    content = b"\xef\xbb\xbf" * (seed % 5 == 0) + b"\n\n" * (seed % 7 == 0) + header + b"\r\n" + body
    path = tmp_path / "table.csv"
    path.write_bytes(gzip.compress(content) if seed % 4 == 0 else content)
    found = [by_hand(line.rstrip("\r"), separator) for line in body.decode().split("\n")]
    if not any(fields is None or "".join(fields[:4]).strip() for fields in found):
        with pytest.raises(InputError, match="got none below"):
            read_table(path, Source(separator=separator, max_bad_share=1))
        return
    raw = read_table(path, Source(separator=separator, max_bad_share=1))
    assert raw.report.rows + raw.report.blank == count_lines(body)
    assert len(raw.rows) + raw.report.missing + raw.report.unparsable == raw.report.rows


@pytest.mark.parametrize("block_bytes", [3, 7, 1000])
def test_blocks_are_whole_lines_and_lose_nothing(tmp_path: Path, block_bytes: int) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes("\ufeff\nuser,item\r\nann,1\n\nbob,2".encode())
    blocks = list(line_blocks(path, 2, block_bytes))
    assert b"".join(blocks) == b"ann,1\n\nbob,2"
    assert all(block.endswith(b"\n") for block in blocks[:-1])
    assert b"".join(line_blocks(path, 0, block_bytes)) == b"\nuser,item\r\nann,1\n\nbob,2"
    assert not list(line_blocks(path, 9, block_bytes))


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("header", ["", "user,item\r\n", "# of a shop\n\nuser,item\n"])
def test_spans_of_any_size_have_each_line_once(tmp_path: Path, header: str, mark: str, end: str) -> None:
    path, skip = tmp_path / "table.csv", header.count("\n")
    body = f"ann,1\r\n\n\ufeffbob,22222222222222\n\r\ncy,3\n\n\nd{'é' * 20},4{end}"
    path.write_bytes(f"{mark}{header}{body}".encode())
    whole = b"".join(line_blocks(path, skip))
    assert whole == body.encode()
    for size in range(1, len(whole) + 2):
        cuts = line_cuts(path, skip, size)
        spans = [b"".join(line_blocks(path, span=span, block_bytes=5)) for span in itertools.pairwise(cuts)]
        assert b"".join(spans) == whole
        assert all(span.endswith(b"\n") for span in spans[:-1])
        assert all(len(span) >= size for span in spans[:-1])  # and so they are few
    assert len(line_cuts(path, skip, 1)) == count_lines(whole) + 1
    assert len(line_cuts(path, skip, len(whole))) == 2


def test_a_packed_file_is_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress(b"user,item\n" + b"ann,1\n" * 99))
    assert line_cuts(path, 1, 10) == ()


def test_escaped_quotes_cost_their_own_lines_only(tmp_path: Path) -> None:
    lines = [f'"{276725 + n}";"03454510{n:03}X";"{n % 11}"' for n in range(1000)]
    for n in range(14):
        lines[50 * n + 20] = f'"{n}";"\\"03454510{n}";"5"'
    path = tmp_path / "BX-Book-Ratings.csv"
    path.write_text('"User-ID";"ISBN";"Book-Rating"\r\n' + "\r\n".join(lines) + "\r\n")
    raw = read_table(path)
    assert (raw.report.rows, len(raw.rows), raw.report.missing, raw.report.unparsable) == (1000, 986, 0, 14)
    [note] = [note for note in raw.report.notes if "left out" in note]
    assert note.startswith("line 22 has a double quote that is not closed")
    assert "034545100" not in note  # whatever stands in a line may be somebody's
    with pytest.raises(InputError, match=r"not closed.*: .*034545100"):
        read_table(path, Source(max_bad_share=0.01))


def test_a_quote_that_closes_lines_later_swallows_nothing(tmp_path: Path) -> None:
    lines = [f"u{n},i{n}" for n in range(300)]
    lines.insert(100, 'u,"open')
    lines.insert(201, 'closed",i')
    path = tmp_path / "table.csv"
    path.write_text("user,item\n" + "\n".join(lines))
    raw = read_table(path)
    assert (len(raw.rows), raw.report.unparsable) == (301, 1)  # of the second, the quote is a letter of its id
    assert 'closed"' in raw.rows["user"].to_list()


def test_separators_of_several_letters_divide_lines(tmp_path: Path) -> None:
    path = tmp_path / "ratings.dat"
    path.write_text(
        "".join(f"{n}::{n + 1193}::{n % 5 + 1}::97830{n:04}\n" for n in range(20)) + '3::"a::b"::4::978300761\n'
    )
    guessed, asked = read_table(path), read_table(path, Source(separator="::"))
    assert guessed.rows.equals(asked.rows)
    assert guessed.rows.row(1) == (1, "1194", 2.0, 978300001)
    assert guessed.rows["item"][-1] == "a::b"
    other = tmp_path / "other.csv"
    other.write_text(path.read_text().replace("::", "é\t"))
    assert read_table(other, Source(separator="é\\t")).rows.drop("item").equals(asked.rows.drop("item"))


def test_fields_of_one_line_follow_the_same_rule() -> None:
    assert fields_of('1::"a::b"::c\r', "::") == ["1", "a::b", "c "]
    assert fields_of('ann;"Lamp; large";"12"" disc"', ";") == ["ann", "Lamp; large", '12" disc']
    assert fields_of("a,b\r", ",") == ["a", "b"]


def test_ids_that_would_make_two_lines_of_one_are_unparsable(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(b"user,item\n" + b"1,2\n" * 20_000 + b"3,a\0b\n4,a\rb\n")
    raw = read_table(path)
    assert (len(raw.rows), raw.report.unparsable) == (20_000, 2)


def test_a_line_without_an_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recfusion.data.reading.text_lines.LONGEST_LINE", 50)
    path = tmp_path / "table.csv"
    path.write_text("user,item\n1,2\n" + "x" * 100)
    with pytest.raises(InputError, match="got one of more than 50 bytes"):
        list(line_blocks(path, 1, 20))


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("user,item\n" + "1,2\n" * 1000)
    blocks = line_blocks(path, 1, 100)
    next(blocks)
    with path.open("r+") as file:
        file.truncate(400)
    with pytest.raises(InputError, match="changed while it was read: read a copy, or wait for its writer"):
        list(blocks)
