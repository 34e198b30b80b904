"""Two tables side by side: which columns are shown, what stands over them and which cells are marked."""

from __future__ import annotations

import pytest

from ropecheck.conformance.judge.outcome import TableView
from ropecheck.conformance.judge.side_by_side import side_by_side


def view(width: int, requests: tuple[int, ...] = (), **wrong: int) -> TableView:
    """Positions 0, 1, ..; t, h, w the same. wrong: axis -> column of it that holds 99."""
    rows = {axis: list(range(width)) for axis in ("p", "t", "h", "w")}
    for axis, column in wrong.items():
        rows[axis][column] = 99
    positions, *table = (tuple(row) for row in rows.values())
    return TableView(positions, tuple(table), requests)


def lines(*args: object, **more: object) -> list[str]:
    return [line.plain.rstrip() for line in side_by_side(*args, **more)]  # type: ignore[arg-type]


def shown(*args: object, **more: object) -> list[str]:
    """The numbers of the columns on the left."""
    (line,) = [line for line in lines(*args, **more) if line.split()[0] == "column"]
    return line.split("|")[0].split()[1:]


def test_requests_are_set_apart_and_wrong_cells_are_marked() -> None:
    owned = view(4, (0, 0, 7, -1))
    assert lines(owned, view(4, h=2)) == [
        "         expected                      |  observed",
        "request       0     0 |     7 |   pad  |       0     0 |     7 |   pad",
        " column       0     1 |     2 |     3  |       0     1 |     2 |     3",
        "     1d       0     1 |     2 |     3  |       0     1 |     2 |     3",
        "      t       0     1 |     2 |     3  |       0     1 |     2 |     3",
        "      h       0     1 |     2 |     3  |       0     1 |   *99 |     3",
        "      w       0     1 |     2 |     3  |       0     1 |     2 |     3",
    ]


def test_where_nobody_owns_a_column_nothing_says_so() -> None:
    found = lines(view(2), view(1), heads=("right", "theirs"))
    assert found == [
        "         right         |  theirs",
        " column       0     1  |       0     1",
        "     1d       0     1  |       0 *none",
        "      t       0     1  |       0 *none",
        "      h       0     1  |       0 *none",
        "      w       0     1  |       0 *none",
    ]


def test_the_owner_of_a_column_is_told_by_either_side_and_the_expected_one_first() -> None:
    assert lines(view(2, (1, 1)), view(2, (1, 2)))[1].split() == ["request", "1", "1", "|", "1", "1"]
    assert lines(view(2, (3,)), view(2, (1, 2)))[1].split() == ["request", "3", "|", "2", "|", "3", "|", "2"]
    assert lines(view(2), view(2, (1, 1)))[1].split() == ["request", "1", "1", "|", "1", "1"]
    assert lines(view(1, (4, 4, 4)), None)[1].split() == ["request", "4", "|", "4"]


def test_cells_are_as_wide_as_the_longest_that_is_shown() -> None:
    large = TableView((123456,), ((1,), (2,), (3,)))
    assert lines(large, large)[2] == "     1d    123456  |    123456"
    assert lines(TableView((1,), ((1,),) * 3), large)[2] == "     1d         1  |   *123456"
    far = TableView((*range(19), 1234567), ())
    assert lines(far, far)[1].startswith(" column       0     1")
    assert lines(far, far, columns=3, focus=19)[1].split("|")[0] == " column         17       18       19  "


def test_wrong_cells_carry_the_style_of_their_side() -> None:
    styles = [[span.style for span in line.spans] for line in side_by_side(view(2), view(2, w=1))]
    assert {style for line in styles[:-1] for style in line} <= {""}
    assert [style for style in styles[-1] if style] == ["bold green", "bold red"]


@pytest.mark.parametrize(
    ("wrong", "first"),
    [(0, 0), (2, 0), (3, 1), (9, 7), (14, 12), (15, 12), (19, 12)],
)
def test_a_wide_table_shows_the_stretch_around_its_first_wrong_cell(wrong: int, first: int) -> None:
    columns = [str(number) for number in range(first, first + 8)]
    for axis in ("p", "w"):
        assert shown(view(20), view(20, (), **{axis: wrong})) == columns
    assert shown(view(20), view(20, h=0), focus=wrong) == columns
    heading = lines(view(20), view(20, t=wrong))[0]
    assert heading.split("|")[0].strip() == f"expected columns {first}..{first + 7} of 20"


def test_without_a_wrong_cell_it_shows_the_beginning() -> None:
    assert shown(view(20), view(20)) == [str(number) for number in range(8)]
    assert shown(view(20), view(20), columns=3) == ["0", "1", "2"]
    assert shown(view(8), view(8)) == shown(view(20), view(20))
    assert lines(view(8), view(8))[0].split() == ["expected", "|", "observed"]


def test_bars_inside_the_stretch_alone_widen_it() -> None:
    owners = tuple(number // 2 for number in range(12))
    for wrong, ends in ((11, "5     5"), (5, "5  |")):  # from column 4, from column 3
        heading, request, *_ = lines(view(12, owners), view(12, t=wrong))
        assert heading.index("|  observed") == request.index("|", request.index(ends))


def test_a_prompt_table_has_no_line_of_indices() -> None:
    table = TableView(None, ((1, 2), (3, 4)), axes=("t", "h"))
    assert [line.split()[0] for line in lines(table, TableView((), ((1, 2), (3, 5)), axes=("t", "h")))] == [
        "expected",
        "column",
        "t",
        "h",
    ]
    one_sided = lines(table, TableView((1, 2), None))
    assert [line.split()[0] for line in one_sided] == ["expected", "column", "1d", "t", "h"]


def test_axes_that_only_one_side_has_stand_behind_the_others() -> None:
    four = TableView((5,), ((1,), (2,), (3,), (4,)))
    assert [line.split()[0] for line in lines(view(1), four)] == ["expected", "column", "1d", "t", "h", "w", "x"]
    long = TableView(None, ((1,),), axes=("longitude",))
    assert lines(long, None) == [
        "           expected  |  observed",
        "   column       0  |       0",
        "longitude       1  |   *none",
    ]


def test_no_table_is_no_line_and_an_empty_one_its_heads() -> None:
    assert side_by_side(None, None) == []
    assert lines(TableView((), ()), None) == ["         expected  |  observed", " column    |"]
