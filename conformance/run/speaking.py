"""Which rules have something to say of which forward modes: they are asked, about one view of every kind that a mode's
declaration says its batches give."""

from collections.abc import Iterator
from dataclasses import replace

from ropecheck.conformance.scenario.forward import OWN_NAME
from ropecheck.spec.history import Delta
from ropecheck.spec.modes import all_modes
from ropecheck.spec.modes.declaration import NOBODY, PREFILLING, TEXT, Mode
from ropecheck.spec.rules import rules_of
from ropecheck.spec.views import Built, Copies, Filler, Loop, Place, Row, Seen, Tables, Twice

MEDIA = Place(rows=((0, 1), (0, 1), (0, 1)), tabulated=1, delta=Delta(1), has_media=True)
"""A prompt of one placeholder token, and one token after it."""
WORDS = replace(MEDIA, has_media=False)
ONE = Seen(dtype="int64", shape=(1,), values=((0,),))
THREE = Seen(dtype="int64", shape=(3, 1), values=((0,), (0,), (0,)))


def speaking(device: str) -> frozenset[tuple[str, str]]:
    """(rule, mode) for every rule that a complete run on this device asks in this mode."""
    return frozenset(
        (rule.id, named)
        for mode in all_modes().values()
        for named, view in views(mode)
        for rule in rules_of(type(view))
        if device in rule.devices and (rule.when is None or rule.when(view))
    )


def views(mode: Mode) -> Iterator[tuple[str, object]]:
    """(what a report calls it, a view) of every kind that batches of the mode give."""
    tables = Tables(
        mode=mode.name,
        tokens=1,
        positions=ONE,
        rows=THREE if mode.three_rows else None,
        index_dtype=mode.index_dtype,
        one_dimensional=not mode.three_rows,
    )
    yield mode.name, tables
    yield from ((mode.name, row) for row in _rows(mode))
    yield mode.name, Built(mode=mode.name, changed=())
    yield mode.name, Twice(mode=mode.name, first=0, second=0)
    if mode.forwards is not None:
        yield mode.name, Loop(mode=mode.name, must=1, ran=1)
    if mode.copies is not None:
        for media in (False, True):
            for extra in {0 if mode.either_lengths else mode.host_copies, mode.host_copies}:
                cost = Copies(mode=mode.name, has_media=media, allowed=mode.copies, extra=extra, copies=0, waits=0)
                yield mode.name, cost
    for buffer in mode.buffers:
        named = buffer if buffer in OWN_NAME else mode.name
        yield named, replace(tables, buffer=buffer)
        yield named, Filler(mode=mode.name, buffer=buffer, positions=(0,), columns=THREE.values)
        yield from ((named, replace(row, buffer=buffer)) for row in _rows(mode))


def _rows(mode: Mode) -> Iterator[Row]:
    if mode.reads == NOBODY:
        return
    columns = THREE.values if mode.three_rows else None
    for part in mode.parts:
        places = (WORDS,) if part.reads == TEXT else (WORDS, MEDIA)
        for place in places:
            for token in (0, 1) if part.reads == PREFILLING else (1,):
                yield Row(mode=mode.name, place=place, tokens=(token,), positions=(0,), columns=columns)
