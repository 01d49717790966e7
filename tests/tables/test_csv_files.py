"""CSV files: no line changes what another one is, and no record fails the scan or is shown.

The oracle reads one line at a time, in Python, and shares nothing with DuckDB or with ``csv``.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.guards.mutants import Without, each, lose_a_truth

import tightbudget as tb
from tightbudget.tables import Table
from tightbudget.tables.opening import opened
from tightbudget.tables.source import Contribution

EACH_ROW = Contribution(unit=None, rows=1, groups=1)
NAMES = ["id", "name", "x"]
HEADER = b"id,name,x\n"
# what lines are drawn from: each of it means something to a reader of CSV files, or to no reader
PIECES = [
    *(b"a", b"7", b"1.5", b" ", b",", b",", b'"', b'"', b'""', b"\\", b'\\"', b"'", b"#", b";"),
    *(b"\t", b"\0", b"\x01", b"\xff", b"\xc3\xa9", b"\xef\xbb\xbf", b"\xc2\xa0", b"NULL", b"\x0b"),
]
ENDS = [b"\n", b"\r\n", b"\r"]


def values_of(line: bytes) -> tuple[str | None, ...] | None:
    """The three values of one line; None if it is no row."""
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return None
    text = text.partition("\x01")[0]
    if not text:
        return None
    values, rest = [], text
    while True:
        inside, begins = "", rest.lstrip(" ")
        if begins.startswith('"'):
            begins, closed = begins[1:], False
            while begins and not closed:
                if begins.startswith('""'):
                    inside, begins = inside + '"', begins[2:]
                elif begins[0] == '"':
                    begins, closed = begins[1:].lstrip(" "), True
                else:
                    inside, begins = inside + begins[0], begins[1:]
            if not closed or not (begins == "" or begins[0] == ","):
                return None
            rest = begins
        else:
            inside, rest = rest.partition(",")[0], rest[len(rest.partition(",")[0]) :]
            if '"' in inside:
                return None
        values.append(inside or None)
        if not rest:
            break
        rest = rest[1:]
    return tuple(values) if len(values) == len(NAMES) else None


def rows_of(path: Path, data: bytes, **more: Any) -> Counter[Any]:
    """The rows that a file of these bytes has, as DuckDB reads it."""
    path.write_bytes(data)
    source = opened(path, {}, **more)
    columns = source._columns(source.table)
    return Counter(zip(*columns.values(), strict=True))


def by_lines(data: bytes) -> Counter[Any]:
    """The rows of each line by itself."""
    found = (values_of(line) for line in re.split(b"[\r\n]", data)[1:])
    return Counter(row for row in found if row is not None)


line = st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join)
row = st.lists(
    st.sampled_from([b"", b"a", b"7", b'"b,c"', b'"d""e"', b' "f" ', b" g ", b'""', b'"\\"', b"h"]),
    min_size=3,
    max_size=3,
).map(b",".join)
# all values in quotes, and none with a comma: they are read in ways of their own
quoted = st.lists(
    st.sampled_from([b'""', b'","', b'","', b'",,"', b'" "', b'"a"', b'"b,c"', b'"\\"', b'","","']),
    min_size=3,
    max_size=3,
).map(b",".join)
plain = st.lists(
    st.sampled_from([b"", b" ", b"a", b'""', b'"b"', b'"b\\"', b"' c'", b'" d "', b"\xff"]),
    min_size=2,
    max_size=4,
).map(b",".join)
lines = st.lists(st.one_of(line, row, quoted, plain), max_size=60)


def each_line_is_a_row_by_itself(examples: int, path: Path) -> None:
    """So one line more adds its own row, and changes no other."""

    @settings(max_examples=examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(drawn=lines, end=st.sampled_from(ENDS), closed=st.booleans())
    def law(drawn: list[bytes], end: bytes, closed: bool) -> None:
        data = HEADER + end.join(drawn) + end * closed
        assert rows_of(path, data) == by_lines(data)

    law()


def test_each_line_is_a_row_by_itself(tmp_path: Path) -> None:
    each_line_is_a_row_by_itself(5, tmp_path / "lines.csv")


@pytest.mark.slow
def test_each_line_of_many_is_a_row_by_itself(tmp_path: Path) -> None:
    each_line_is_a_row_by_itself(200, tmp_path / "lines.csv")


def one_line_changes_one_row(path: Path) -> bool:
    """Whether lines of odd quotes and line ends move a count by no more than themselves."""
    good = b"".join(b"%d,n,1\n" % i for i in range(200))
    odd = [b'6,"a\\"b",1\n', b'6,"a"b,1\n', b'6,"5"" pipe,1\n', b'6,"open,1\n', b'"', b"6,a\rb,1\n"]
    found = set()
    for line in [b"", *odd]:
        path.write_bytes(HEADER + good + line + good)
        found.add(opened(path, {}).counts(EACH_ROW, [None])[0] - 400)
    return found <= {-1, 0, 1}


def test_a_quote_that_a_line_leaves_open_takes_no_other_line_with_it(tmp_path: Path) -> None:
    assert one_line_changes_one_row(tmp_path / "rows.csv")


@pytest.mark.slow
def test_a_file_of_many_buffers_is_read_line_by_line(tmp_path: Path) -> None:
    """DuckDB reads a file in parts, in threads: a part begins at a line's end, wherever that is."""
    draw, path = random.Random(3), tmp_path / "rows.csv"
    many = [b"".join(draw.choices(PIECES, k=draw.randrange(1, 9))) for _ in range(500)]
    many += [b'%d,"a, ""b""",%d' % (i, i) for i in range(500)]
    for end in ENDS:
        chosen = draw.choices(many, k=400_000)
        chosen[1000] = b"z" * 40_000_000  # longer than a buffer, and than a line may be
        data = HEADER + end.join(chosen)
        expected = Counter[Any]()
        for one, number in Counter(chosen).items():
            found = values_of(one)
            if found is not None:
                expected[found] += number
        path.write_bytes(data)
        source = opened(path, {})
        assert source.counts(EACH_ROW, [None]) == [expected.total()]
        assert source.groups(EACH_ROW, ["name"], [], keys=None) == {
            name: [sum(n for row, n in expected.items() if row[1] == name and row[1] is not None)]
            for name in {row[1] for row in expected} - {None}
        }


@settings(max_examples=12, deadline=None)
@given(data=st.lists(st.sampled_from([*PIECES, *ENDS]), max_size=90).map(b"".join))
def test_no_bytes_fail_the_scan_where_values_have_line_breaks(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "breaks.csv"
    path.write_bytes(HEADER + data)
    (number,) = opened(path, {}, line_breaks=True).counts(EACH_ROW, [None])
    assert 0 <= number <= len(data) + 1


def test_values_may_have_line_breaks_if_one_says_so(tmp_path: Path) -> None:
    path, data = tmp_path / "rows.csv", HEADER + b'1,"a\nb",2\n3,c,4\n'
    assert set(rows_of(path, data, line_breaks=True)) == {("1", "a\nb", "2"), ("3", "c", "4")}
    assert set(rows_of(path, data)) == {("3", "c", "4")}
    table = Table(path, types={"x": "int64"}, line_breaks=True)
    assert table.source.counts(EACH_ROW, [lambda t: t.x >= 2]) == [2]


@pytest.mark.parametrize("end", ENDS)
def test_a_byte_order_mark_and_the_end_of_the_header_are_no_part_of_a_name(
    tmp_path: Path, end: bytes
) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"\xef\xbb\xbf" + end.join([b'id,"na ""me"""', b"1,a", b"2,b"]))
    table = Table(path, types={"id": "int64"})
    assert list(table.columns.items()) == [("id", "int64"), ('na "me"', "string")]
    assert table.source.counts(EACH_ROW, [lambda t: t.id > 0]) == [2]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            b'id,"name,x\n1,Alice Smith,2\n2,Bob,3\n',
            r"UTF-8, with each quote closed, got another f",
        ),
        (b'id,"na"me,x\n1,Alice Smith,2\n', r"data must begin with a line of the columns' names"),
        (
            b"\xff\xfei\0d\0\n\0Alice Smith\n",
            r"in UTF-8, with each quote closed, got another first",
        ),
        (b"", r"with each quote closed, got an empty line in '.*rows.csv'"),
        (b"\nid\nAlice Smith\n", r"with each quote closed, got an empty line in '.*rows.csv'"),
        (b"x" * 2**20 + b"\nAlice Smith", r"with each quote closed, got a line that does not end"),
        (
            b",id\n0,Alice Smith\n",
            r"data must have a name for each column, got none for column 1 \(",
        ),
        (b"id,id\n0,Alice Smith\n", r"data must have columns with different names, got 'id'"),
        (b"id,name,x\nAlice Smith,1,2\n", r"types must name columns among id, name, x, got 'y'"),
    ],
)
def test_a_header_that_is_no_list_of_names_is_refused(
    tmp_path: Path, data: bytes, message: str
) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(data)
    with pytest.raises(tb.ParameterError, match=message) as caught:
        Table(path, types={"y": "float64"})
    assert "Alice" not in str(caught.value)


def test_names_of_files_and_columns_are_no_sql(tmp_path: Path) -> None:
    path = tmp_path / 'it\'s; a "file".csv'
    path.write_bytes(b'a\'b,"c""d",e;f\n1,2,3\n')
    table = Table(path)
    assert list(table.columns) == ["a'b", 'c"d', "e;f"]
    assert table.source.counts(EACH_ROW, [lambda t: t["a'b"] == "1"]) == [1]


_PATH = Path()
MUTATIONS = [
    Without(
        "DuckDB finds the ends of lines by quotes",
        {"csv-lines-by-themselves": "rows = _records(path, names)"},
        lambda: one_line_changes_one_row(_PATH),
        slow=True,
    )
]


@each(MUTATIONS)
def test_without_the_guard(
    monkeypatch: pytest.MonkeyPatch, mutation: Without, tmp_path: Path
) -> None:
    monkeypatch.setitem(globals(), "_PATH", tmp_path / "rows.csv")
    lose_a_truth(monkeypatch, mutation)
