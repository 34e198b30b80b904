"""Faults that follow from a mode's declaration: the same slips, planted into whatever mode somebody declares.

A fault says which modes it can be planted in (from their declarations) and which rules have to name it there.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from ropecheck.adapters import protocol
from ropecheck.conformance.reference_engine import ReferenceEngine, tensor
from ropecheck.conformance.scenario.forward import OWN_NAME
from ropecheck.conformance.selftest.mutants.base import (
    Mutant,
    Twist,
    each,
    owners,
    rows_of,
    twisted,
    with_both,
    with_rows,
)
from ropecheck.conformance.selftest.mutants.padding import Load, filled_with_ones, loaded, stale
from ropecheck.reference.tables import BatchTables
from ropecheck.reference.timeline import IntArray, Timeline
from ropecheck.spec.modes import all_modes
from ropecheck.spec.modes.declaration import NOBODY, TEXT, Mode

Lines = Sequence[Timeline]
Make = Callable[[str, str, Mode], Mutant]
"""(name, what is wrong, mode) -> the fault planted in that mode."""

COLUMNS = ("table.text_only", "table.inside_table", "table.past_table")
"""Rules on a column of the three rows."""

LIKE = "follows from the declaration"


@dataclass(frozen=True, slots=True)
class Fault:
    """One slip, in any mode that it applies to. rules: one of them must name it, in that mode."""

    says: str
    rules: tuple[str, ...]
    applies: Callable[[Mode], bool]
    make: Make
    buffer: str = ""
    """The wider buffer that it is planted in."""


@dataclass(frozen=True, slots=True)
class PlantedFault:
    """A fault in one mode. mode: where it has to be reported."""

    mutant: Mutant
    mode: str
    rules: tuple[str, ...]


def planted(modes: Mapping[str, Mode] | None = None) -> dict[str, PlantedFault]:
    """Every fault in every mode that it applies to, by name. modes: those declared now, if none are given."""
    found = {}
    for mode in (all_modes() if modes is None else modes).values():
        for fault in (*FAULTS, *_buffers(mode)):
            if fault.applies(mode):
                name = f"any mode, {mode.name}: {fault.says}"
                found[name] = PlantedFault(
                    fault.make(name, fault.says, mode),
                    fault.buffer if fault.buffer in OWN_NAME else mode.name,
                    fault.rules,
                )
    return found


# ---------------------------------------------------------------- where a fault can be planted


def _reads(mode: Mode) -> frozenset[str]:
    return frozenset(part.reads for part in mode.parts)


def has_rows(mode: Mode) -> bool:
    """Its batches hold requests."""
    return mode.reads != NOBODY


def indexed(mode: Mode) -> bool:
    """The engine makes the 1-D table of its requests, unless it is set by hand."""
    return has_rows(mode) and (mode.prepared or not mode.given_indices)


def three_rows(mode: Mode) -> bool:
    """Its requests have columns of three rows."""
    return mode.three_rows and has_rows(mode)


def media(mode: Mode) -> bool:
    """Its requests may have media."""
    return three_rows(mode) and _reads(mode) != {TEXT}


def prefills(mode: Mode) -> bool:
    """Its requests' tokens may lie inside the prompt's table."""
    return media(mode) and mode.prefills


def looping(mode: Mode) -> bool:
    """It runs in a loop."""
    return mode.forwards is not None


# ---------------------------------------------------------------- how it is planted


def _tables(change: Callable[[protocol.BuildForward, Lines, BatchTables], BatchTables]) -> Make:
    return _all_tables(each(change))


def _all_tables(change: Twist) -> Make:
    return lambda name, says, mode: twisted(name, LIKE, says, mode.name, change)


def _answers(change: Callable[[Mode, protocol.TablePair], protocol.TablePair], label: str | None = None) -> Make:
    """A fault in what is handed over. label: of the tables that have it; None: of all."""

    def make(name: str, says: str, mode: Mode) -> Mutant:
        class Answers(ReferenceEngine):
            def answer(self, given: str, step: protocol.BuildForward, built: BatchTables) -> protocol.TablePair:
                right = super().answer(given, step, built)
                mine = step.mode == mode.name and label in (None, given)
                return change(mode, right) if mine else right

        return Mutant(name, LIKE, says, Answers, mode.name)

    return make


def _changes(name: str, says: str, mode: Mode) -> Mutant:
    class Changes(ReferenceEngine):
        def changed(self, step: protocol.BuildForward) -> tuple[str, ...]:
            return ("seq_lens",) if step.mode == mode.name else super().changed(step)

    return Mutant(name, LIKE, says, Changes, mode.name)


def _copies(with_media: bool) -> Make:
    """One copy more than the mode's budget."""

    def make(name: str, says: str, mode: Mode) -> Mutant:
        class Copies(ReferenceEngine):
            def copies(self, step: protocol.BuildForward) -> int:
                budget = mode.copies
                if budget is None or step.mode != mode.name:
                    return super().copies(step)
                extra = mode.host_copies if step.host_lengths else 0
                brings = any(self.held[req].items for req in step.reqs)
                return budget[with_media] + extra + 1 if brings == with_media else 0

        return Mutant(name, LIKE, says, Copies, mode.name)

    return make


def _asks_device(name: str, says: str, mode: Mode) -> Mutant:
    """The host asks the device for a number."""

    class Reads(ReferenceEngine):
        def run(self, step: protocol.Step) -> protocol.Result:
            answer = super().run(step)
            if (
                isinstance(answer, protocol.Counted)
                and isinstance(step, protocol.Cost)
                and step.forward.mode == mode.name
            ):
                return msgspec.structs.replace(answer, to_host=1, to_host_lines=("reference",))
            return answer

    return Mutant(name, LIKE, says, Reads, mode.name)


def _buffers(mode: Mode) -> Iterator[Fault]:
    """The faults of each wider buffer that the mode is loaded into."""
    for buffer in mode.buffers:
        if buffer == "tier":
            yield Fault("the packed tail keeps what was there", ("padding.tail",), _any, _tables(tail_left), buffer)
            continue

        def make(change: Load, buffer: str = buffer) -> Make:
            return lambda name, says, mode: loaded(name, LIKE, says, change, kind=buffer, mode=mode.name)

        padded, live = f"the {buffer} buffer's padding", ("padding.live_columns",)
        yield Fault(f"{padded} holds ones", ("padding.harmless_fill",), _any, make(filled_with_ones), buffer)
        if buffer != "dp":  # a batch that is padded for other ranks is made anew each time
            yield Fault(f"{padded} is stale", ("padding.harmless_fill",), _any, make(stale), buffer)
        yield Fault(f"the {buffer} buffer is never filled", live, three_rows, make(_unfilled), buffer)


# ---------------------------------------------------------------- the slips themselves


def _mine(tables: BatchTables, row: int) -> IntArray:
    return np.equal(owners(tables), row)


def _off_by_one(_step: protocol.BuildForward, _lines: Lines, tables: BatchTables) -> BatchTables:
    rows = None if tables.rows is None else rows_of(tables) + (owners(tables) >= 0)
    return with_both(tables, tables.positions + (owners(tables) >= 0), rows)


def _last_row_off_by_one(_step: protocol.BuildForward, lines: Lines, tables: BatchTables) -> BatchTables:
    return with_rows(tables, rows_of(tables) + _mine(tables, len(lines) - 1))


def _of_neighbour(_step: protocol.BuildForward, lines: Lines, tables: BatchTables) -> BatchTables:
    """Every row takes the delta of the row before it; the first one that of the last."""
    rows = rows_of(tables)
    for row, line in enumerate(lines):
        rows += _mine(tables, row) * (lines[row - 1].delta - line.delta)
    return with_rows(tables, rows)


def _lost(sign: int) -> Callable[[protocol.BuildForward, Lines, BatchTables], BatchTables]:
    """Deltas of that sign are lost."""

    def change(_step: protocol.BuildForward, lines: Lines, tables: BatchTables) -> BatchTables:
        rows = rows_of(tables)
        for row, line in enumerate(lines):
            if line.has_media and line.delta * sign > 0:
                past = _mine(tables, row) & (tables.positions >= line.tabulated)
                rows[:, past] = tables.positions[past]
        return with_rows(tables, rows)

    return change


def _swapped(_step: protocol.BuildForward, lines: Lines, tables: BatchTables) -> BatchTables:
    """The rows' requests come in the opposite order."""
    order = np.concatenate([np.flatnonzero(_mine(tables, row)) for row in reversed(range(-1, len(lines)))])
    rows = None if tables.rows is None else rows_of(tables)[:, order]
    return with_both(tables, tables.positions[order], rows)


def _index_of_the_first(_step: protocol.BuildForward, lines: Lines, tables: BatchTables) -> BatchTables:
    """The 1-D table of every request starts where the first one's does."""
    index = np.array(tables.positions)
    for span in tables.spans[1:]:
        index[span.start : span.stop] += tables.positions[tables.spans[0].start] - tables.positions[span.start]
    return with_both(tables, index, tables.rows)


def _rows_equal(_step: protocol.BuildForward, _lines: Lines, tables: BatchTables) -> BatchTables:
    return with_rows(tables, rows_of(tables)[[0, 0, 0]])


def _h_row(_step: protocol.BuildForward, _lines: Lines, tables: BatchTables) -> BatchTables:
    rows = rows_of(tables)
    rows[1] += owners(tables) >= 0
    return with_rows(tables, rows)


def short(_step: protocol.BuildForward, _lines: Lines, tables: BatchTables) -> BatchTables:
    return with_both(tables, tables.positions[:-1], None if tables.rows is None else rows_of(tables)[:, :-1])


def _long(_step: protocol.BuildForward, _lines: Lines, tables: BatchTables) -> BatchTables:
    rows = None if tables.rows is None else np.pad(rows_of(tables), ((0, 0), (0, 1)))
    return with_both(tables, np.pad(tables.positions, (0, 1)), rows)


def _first_lost(_step: protocol.BuildForward, _lines: Lines, tables: BatchTables) -> BatchTables:
    return with_rows(tables, rows_of(tables)[:, owners(tables) != 0])


def tail_left(_step: protocol.BuildForward, _lines: Lines, tables: BatchTables) -> BatchTables:
    rows, index = rows_of(tables), np.array(tables.positions)
    tail = owners(tables) < 0
    rows[:, tail], index[tail] = 7, 7
    return with_both(tables, index, rows)


def _unfilled(_live: int, right: BatchTables, _old: BatchTables) -> BatchTables:
    return with_both(right, np.zeros_like(right.positions), np.zeros_like(rows_of(right)))


def one_forward_less(_step: protocol.BuildForward, _lines: Lines, found: list[BatchTables]) -> list[BatchTables]:
    return found[:-1] if len(found) > 1 else found


def _one_forward_more(step: protocol.BuildForward, _lines: Lines, found: list[BatchTables]) -> list[BatchTables]:
    return [*found, found[-1]] if step.path != "direct" else found


def _stands_still(_step: protocol.BuildForward, _lines: Lines, found: list[BatchTables]) -> list[BatchTables]:
    return [found[0]] * len(found)


def _another_dtype(mode: Mode, right: protocol.TablePair) -> protocol.TablePair:
    if right.positions is None:
        return right
    other = np.dtype("int32" if mode.index_dtype == "int64" else "int64")
    index = np.frombuffer(right.positions.data, np.dtype(right.positions.dtype))
    return _with(right, positions=tensor(index.astype(other)))


def _rows_int32(_mode: Mode, right: protocol.TablePair) -> protocol.TablePair:
    if right.mrope is None:
        return right
    rows = np.frombuffer(right.mrope.data, np.int64).reshape(right.mrope.shape)
    return _with(right, mrope=tensor(rows.astype(np.int32)))


def _one_axis(_mode: Mode, right: protocol.TablePair) -> protocol.TablePair:
    return right if right.mrope is None else _with(right, mrope=right.positions)


def _no_rows(_mode: Mode, right: protocol.TablePair) -> protocol.TablePair:
    return _with(right, mrope=None)


def _no_index(_mode: Mode, right: protocol.TablePair) -> protocol.TablePair:
    return _with(right, positions=None)


def _with(table: protocol.TablePair, **fields: protocol.Tensor | None) -> protocol.TablePair:
    known = {name: getattr(table, name) for name in table.__struct_fields__}
    return protocol.TablePair(**known | fields)


def _any(_mode: Mode) -> bool:
    return True


FAULTS = (
    Fault("every token one late", ("table.index", *COLUMNS), has_rows, _tables(_off_by_one)),
    Fault("the last request's columns one late", COLUMNS, three_rows, _tables(_last_row_off_by_one)),
    Fault("requests in the opposite order", ("table.index", *COLUMNS), has_rows, _tables(_swapped)),
    Fault("indices of the first request", ("table.index",), indexed, _tables(_index_of_the_first)),
    Fault("the delta of the request before", COLUMNS, media, _tables(_of_neighbour)),
    Fault("positive deltas are lost", ("table.past_table",), media, _tables(_lost(1))),
    Fault("negative deltas are lost", ("table.past_table",), media, _tables(_lost(-1))),
    Fault("one row on all axes", ("table.inside_table",), prefills, _tables(_rows_equal)),
    Fault("the h row one late", COLUMNS, three_rows, _tables(_h_row)),
    Fault("one column short", ("table.width",), has_rows, _tables(short)),
    Fault("one column more", ("table.width",), _any, _tables(_long)),
    Fault("the first request's columns are lost", ("table.width",), three_rows, _tables(_first_lost)),
    Fault("one forward less", ("table.forwards",), looping, _all_tables(one_forward_less)),
    Fault("one forward more", ("table.forwards",), looping, _all_tables(_one_forward_more)),
    Fault("the loop stands still", ("table.index", *COLUMNS), looping, _all_tables(_stands_still)),
    Fault("the 1-D table is of another dtype", ("table.dtype",), _any, _answers(_another_dtype)),
    Fault("the three rows are int32", ("table.dtype",), lambda mode: mode.three_rows, _answers(_rows_int32)),
    Fault("one axis", ("table.three_rows",), lambda mode: mode.three_rows, _answers(_one_axis)),
    Fault("the three rows are unset", ("table.present",), lambda mode: mode.three_rows, _answers(_no_rows)),
    Fault("the 1-D table is unset", ("table.present",), _any, _answers(_no_index)),
    Fault("the second build differs", ("laws.same_step_twice",), _any, _answers(_another_dtype, "again")),
    Fault("the batch is changed", ("ownership.batch_is_read_only",), _any, _changes),
    Fault(
        "one copy too many without media",
        ("cost.text_only", "cost.host_lengths"),
        lambda mode: mode.copies is not None,
        _copies(False),
    ),
    Fault(
        "one copy too many with media",
        ("cost.media", "cost.host_lengths"),
        lambda mode: mode.copies is not None,
        _copies(True),
    ),
    Fault("a value of the device is read", ("cost.device_values",), lambda mode: mode.copies is not None, _asks_device),
)
"""Every slip."""
