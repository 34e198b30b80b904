"""The reference's runs, requests and tables in the form of vector files."""

from msgspec.structs import replace

from ropecheck.adapters.batch import Batch
from ropecheck.conformance.vectors import types as v
from ropecheck.reference.requests import Request, State
from ropecheck.reference.tables import BatchTables
from ropecheck.reference.timeline import IntArray
from ropecheck.spec.history import History


def runs_of(history: History) -> tuple[v.VectorRun, ...]:
    """A history's runs."""
    return tuple(
        v.VectorRun(
            kind=run.kind,  # type: ignore[arg-type]  # Run.kind is a plain str
            tokens=run.tokens,
            grid=run.grid,
            seconds_per_grid=None if run.seconds_per_grid == 1.0 else run.seconds_per_grid,
            kept=run.kept,
        )
        for run in history
    )


def request_of(state: State, request: Request) -> v.VectorRequest:
    """A request as an engine holds it."""
    line = request.line
    tabulated = line.tabulated if line.has_media else 0
    return v.VectorRequest(
        runs=runs_of(request.prompt), table=rows_of(line.table), delta=line.delta, tabulated=tabulated
    )


def requests_of(state: State, batch: Batch) -> tuple[v.VectorRequest, ...]:
    """The batch's requests, once each, in the order in which their first rows stand."""
    return tuple(request_of(state, state.requests[req]) for req in dict.fromkeys(batch.reqs))


def batch_of(batch: Batch) -> Batch:
    """The batch with its requests numbered as `requests_of` lists them."""
    if not batch.reqs:
        return Batch(batch.mode)
    number = {req: at for at, req in enumerate(dict.fromkeys(batch.reqs))}
    parts = [replace(part, reqs=tuple(number[req] for req in part.reqs)) for part in batch.parts]
    return Batch(batch.mode, tuple(parts))


def rows_of(array: IntArray) -> v.Rows:
    """int64 [axes, n] -> rows."""
    return tuple(tuple(row) for row in array.tolist())


def table_of(label: str, built: BatchTables, capacity: int = 0) -> v.ExpectedTable:
    """Tables of a forward; with a capacity, in a buffer whose further columns are free."""
    width = int(built.positions.size)
    spare = (v.FREE,) * max(capacity - width, 0)
    rows = None if built.rows is None else tuple(row + spare for row in rows_of(built.rows))
    return v.ExpectedTable(
        label=label,
        positions=(*built.positions.tolist(), *spare),
        rows=rows,
        free=((width, capacity),) if spare else (),
        optional_from=width if spare else None,
    )
