"""What a forward mode's declaration is written in.

    @mode("decode", reads=RUNNING, emits=1, source="...")
    def decode(seq_len: SeqLen) -> Tokens:
        "A decode reads the newest token of each request, the one at index seq_len - 1."
        return span(seq_len - 1, 1)

The function says which token indices one row of a batch reads, in order. Its parameters are the fields that a row
carries: their types say what they count, and where their values come from.

| type | the field is |
| --- | --- |
| `PrefixLen` | state: tokens whose cache entries exist before this forward |
| `ExtendLen` | chosen, 1 .. what is left: tokens that this forward computes |
| `SeqLen` | state: tokens so far, the newest one counted |
| `CommittedLen` | state: tokens so far, without the newest one (speculation commits it with the next verify) |
| `Step` | which forward of the mode's loop, from 0 |
| `Annotated[int, Whole(low, high)]` | chosen, one number for the whole batch |
| `Annotated[int, Whole(low, high, each=True)]` | chosen, a number per row |
| `Annotated[Parents, Tree(...)]` | chosen, a tree per row |

Numbers that a batch carries beside them stand in `carries`, ranges included.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Annotated, Any, NewType, get_args, get_origin, get_type_hints

from ropecheck.spec.history import OutOfDomain, TokenIndex

PrefixLen = NewType("PrefixLen", int)
"""Tokens that the cache already holds."""
ExtendLen = NewType("ExtendLen", int)
"""Tokens computed by this forward; at least 1."""
SeqLen = NewType("SeqLen", int)
"""Tokens of a request, the newest one (emitted, not yet read) counted."""
CommittedLen = NewType("CommittedLen", int)
"""Tokens of a request without the newest one: what speculation calls seq_len."""
Step = NewType("Step", int)
"""Number of a forward in the mode's loop."""

Parents = tuple[int, ...]
"""For each node of a drafted tree after the root, the number of its parent; parents come first."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Token indices first, first + step, ..; or `first` plus each of `offsets`."""

    first: int
    count: int
    step: int = 1
    offsets: tuple[int, ...] | None = None

    def __iter__(self) -> Iterator[TokenIndex]:
        if self.offsets is not None:
            return iter([TokenIndex(self.first + offset) for offset in self.offsets])
        if self.step == 1:
            return map(TokenIndex, range(self.first, self.first + self.count))
        return iter([TokenIndex(self.first + i * self.step) for i in range(self.count)])


def span(first: int, count: int) -> Tokens:
    """`count` tokens from `first` on."""
    return Tokens(first, count)


def repeated(index: int, count: int) -> Tokens:
    """One token, read `count` times."""
    return Tokens(index, count, step=0)


def at(first: int, offsets: tuple[int, ...]) -> Tokens:
    """The tokens at `first` plus each offset."""
    return Tokens(first, len(offsets), offsets=offsets)


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number in low .. high. each: a number per row; else one for the batch. multiple_of: of that field."""

    low: int
    high: int
    each: bool = False
    multiple_of: str = ""


@dataclass(frozen=True, slots=True)
class Tree:
    """Parents of a drafted tree, per row. nodes: the field that counts its nodes, root included; "": any number up to
    `most`, of its own per row. branches: the field that bounds how many children a node has; "": one, a chain."""

    nodes: str = ""
    most: int = 8
    branches: str = ""


Domain = Whole | Tree


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a mode's batch. domain: what may be chosen; None where the request's state says it."""

    name: str
    kind: str
    """"prefix_len", "extend_len", "seq_len", "committed_len", "step" or "chosen"."""
    domain: Domain | None = None

    @property
    def each(self) -> bool:
        """Whether every row has a value of its own."""
        return self.domain is None or isinstance(self.domain, Tree) or self.domain.each


PREFILLING = "prefilling"
"""Requests with tokens that no forward has computed yet: they wait, or were retracted."""
RUNNING = "running"
"""Requests whose prompt is complete."""
TEXT = "text"
"""Requests without media that wait or run."""
NOBODY = "nobody"
"""The batch has no rows."""

_STATE = {
    PrefixLen: "prefix_len",
    ExtendLen: "extend_len",
    SeqLen: "seq_len",
    CommittedLen: "committed_len",
    Step: "step",
}


@dataclass(frozen=True, kw_only=True)
class Mode:
    """A forward mode. See the module's text for what a declaration says."""

    name: str
    title: str
    """The docstring's first sentence."""
    doc: str
    tokens: Callable[..., Tokens]
    fields: tuple[Field, ...]
    source: str
    stated: str
    """module:function."""
    reads: str = RUNNING
    """Which requests its rows are: PREFILLING, RUNNING, TEXT or NOBODY."""
    follows: bool = False
    """Its rows are further rows of requests that stand in the batch already; it is a mode of composed batches alone."""
    emits: int = 0
    """Tokens that every row's request emits after the forward (a prefill emits one when its prompt is complete)."""
    prepared: bool = False
    """Engines prepare its batch in a function of their own, which is driven unless a scenario says otherwise."""
    by_hand: bool = True
    """Its batch can be set without such a function."""
    given_indices: bool = False
    """The caller of the batch constructor brings the 1-D table, where the batch is set by hand."""
    draft: bool = False
    """It is the draft model's forward."""
    behind_verify: bool = False
    """It comes behind a verify, and its seq_len counts what was committed before that verify's tokens are."""
    served: bool = False
    """Servers alone make it: no function of an engine builds its batch for a caller, so nobody enumerates it."""
    forwards: Callable[..., int] | None = None
    """How many forwards its loop runs, from the batch's chosen numbers; None: one."""
    buffers: tuple[str, ...] = ()
    """Wider buffers that its batches are loaded into: "graph", "dp", .. . "tier": the packed batch itself is padded."""
    three_rows: bool = True
    index_dtype: str = "int64"
    copies: tuple[int, int] | None = None
    """Host-to-device copies that building it may make: text-only, with media. A prefill's columns come out of prompt
    tables on the host, all requests' together. None: no budget is stated."""
    host_copies: int = 0
    """More of them where the batch's lengths stand on the host."""
    parts: tuple[Mode, ...] = ()
    """Where rows of several modes share a batch: their modes in order. Else the mode itself."""
    bugs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Rule -> public bugs in this mode."""

    def __post_init__(self) -> None:
        if not self.parts:
            object.__setattr__(self, "parts", (self,))

    @property
    def either_lengths(self) -> bool:
        """Whether its lengths may stand on the device alone. A prefill is planned by lengths that stand on the host."""
        return bool(self.host_copies) and self.reads != PREFILLING

    @property
    def composite(self) -> bool:
        """Whether rows of several modes share its batch."""
        return self.parts != (self,)

    @property
    def prefills(self) -> bool:
        """Whether rows of it compute tokens that no forward has computed yet."""
        return any(part.reads == PREFILLING for part in self.parts)

    @property
    def verifies(self) -> bool:
        """Whether its rows read drafted trees."""
        return any(isinstance(known.domain, Tree) for known in self.fields)

    @property
    def packed(self) -> bool:
        """Whether each row reads a number of tokens of its own, with nothing between rows."""
        return any(isinstance(known.domain, Tree) and not known.domain.nodes for known in self.fields)

    @property
    def running(self) -> Mode:
        """The mode of its rows whose prompt is complete. Raises LookupError where it has none."""
        for part in self.parts:
            if part.reads == RUNNING and not part.follows:
                return part
        raise LookupError(f"no row of {self.name} reads a running request")

    @property
    def chosen(self) -> tuple[Field, ...]:
        """The fields that somebody chooses."""
        return tuple(known for known in self.fields if known.domain is not None)

    def row(self, fields: Mapping[str, Any], row: int, step: int = 0) -> Tokens:
        """The tokens of batch row `row`. fields: name -> a number, or a tuple with a value per row."""
        values: dict[str, Any] = {}
        for known in self._parameters:
            if known.kind == "step":
                values[known.name] = step
            else:
                value = fields[known.name]
                values[known.name] = value[row] if known.each else value
        return self.tokens(**values)

    def loops(self, fields: Mapping[str, Any]) -> int:
        """How many forwards the batch runs."""
        if self.forwards is None:
            return 1
        return self.forwards(**{name: fields[name] for name in inspect.signature(self.forwards).parameters})

    @property
    def _parameters(self) -> tuple[Field, ...]:
        names = _PARAMETERS.get(self.name)
        if names is None:
            wanted = set(inspect.signature(self.tokens).parameters)
            names = _PARAMETERS[self.name] = tuple(known for known in self.fields if known.name in wanted)
        return names


_PARAMETERS: dict[str, tuple[Field, ...]] = {}

DECLARED: dict[str, Mode] = {}


def mode(
    name: str, *, source: str, carries: Mapping[str, Domain] | None = None, **facts: Any
) -> Callable[[Callable[..., Tokens]], Mode]:
    """Declare the decorated function as the forward mode `name`. facts: fields of `Mode`.

    Raises ValueError for a name that is taken or a parameter whose type says nothing.
    """

    def declare(function: Callable[..., Tokens]) -> Mode:
        doc = inspect.cleandoc(function.__doc__ or "")
        fields = [_field(name, key, hint) for key, hint in _parameters(function).items()]
        fields += [Field(key, "chosen", domain) for key, domain in (carries or {}).items()]
        return _declared(
            Mode(
                name=name,
                title=" ".join(doc.partition("\n\n")[0].split()),
                doc=doc,
                tokens=function,
                fields=tuple(fields),
                source=source,
                stated=f"{function.__module__}:{function.__qualname__}",
                **facts,
            )
        )

    return declare


def composite(name: str, *parts: Mode, source: str, doc: str, **facts: Any) -> Mode:
    """Declare a mode whose batch holds rows of several modes, one after the other."""
    doc = inspect.cleandoc(doc)
    return _declared(
        Mode(
            name=name,
            title=" ".join(doc.partition("\n\n")[0].split()),
            doc=doc,
            tokens=_no_tokens,
            fields=(),
            source=source,
            stated=f"{sys._getframe(1).f_globals['__name__']}:{name}",
            reads="",
            parts=parts,
            **facts,
        )
    )


def depths(parents: Parents) -> tuple[int, ...]:
    """Depth of every node of a drafted tree: the root, node 0, is at 0; every other is one deeper than its parent.

    Rivals for one place share a depth, so the order of nodes says nothing about their positions.
    """
    return reduce(_one_deeper, parents, (0,))


def _one_deeper(found: tuple[int, ...], parent: int) -> tuple[int, ...]:
    if not 0 <= parent < len(found):
        raise OutOfDomain(f"node {len(found)} has parent {parent}; parents come first")
    own = (found[parent] + 1,)
    return found + own


def _declared(made: Mode) -> Mode:
    if made.name in DECLARED:
        raise ValueError(f"forward mode {made.name} is declared twice")
    DECLARED[made.name] = made
    return made


def _parameters(function: Callable[..., Tokens]) -> dict[str, Any]:
    hints = get_type_hints(function, include_extras=True)
    return {name: hints.get(name) for name in inspect.signature(function).parameters}


def _field(name: str, key: str, hint: Any) -> Field:
    if hint in _STATE:
        return Field(key, _STATE[hint])
    if get_origin(hint) is Annotated:
        for note in get_args(hint)[1:]:
            if isinstance(note, Whole | Tree):
                return Field(key, "chosen", note)
    raise ValueError(f"forward mode {name}: nothing says what {key} counts")


def _no_tokens() -> Tokens:
    raise OutOfDomain("the rows of a composed batch are read by their own modes")
