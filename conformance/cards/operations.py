"""A scenario's operations in words, and the requests as they stand when the wrong one comes."""

import msgspec

from ropecheck.conformance.cards.card import ItemLine, RequestLine
from ropecheck.conformance.figures import OperationLine
from ropecheck.conformance.scenario import operations as ops
from ropecheck.conformance.scenario.lifecycle import apply
from ropecheck.reference.requests import Request, State
from ropecheck.reference.timeline import laid
from ropecheck.spec.history import History, OutOfDomain, Run

NO_FORWARD = ("submit", "open", "turn", "accept", "retract", "reschedule", "finish", "abort")
MOST_TOKENS = 144
"""Of a media item whose columns a card carries."""


def operation_lines(scenario: ops.Scenario, wrong: int) -> tuple[OperationLine, ...]:
    """Every operation; `wrong` is the number of the one that shows the failure."""
    return tuple(
        OperationLine(
            number=number,
            verb=verb(op),
            detail=detail(op),
            requests=requests_of(op),
            forward=verb(op) not in NO_FORWARD,
            wrong=number == wrong,
        )
        for number, op in enumerate(scenario.ops)
    )


def verb(op: msgspec.Struct) -> str:
    """The operation's name, as scenario files write it; of a forward its mode."""
    return op.batch.mode if isinstance(op, ops.Build) else str(op.__struct_config__.tag)


def detail(op: msgspec.Struct) -> str:
    """Its fields that differ from their defaults, in words."""
    parts = []
    for field in msgspec.structs.fields(type(op)):
        value = getattr(op, field.name)
        if field.required or value != field.default:
            parts.append(_field(field.name, value))
    return ", ".join(part for part in parts if part)


def _field(name: str, value: object) -> str:
    words = name.replace("_", " ")
    if isinstance(value, bool):
        return words if value else f"no {words}"
    if name == "req":
        return f"request {value}"
    if isinstance(value, ops.Batch):
        return "; then ".join(_part(part) for part in value.parts)
    if name == "prompt" and isinstance(value, tuple):
        return prompt_words(value)
    if isinstance(value, msgspec.Struct):
        return f"{verb(value)} {detail(value)}"
    if isinstance(value, tuple):
        return f"{words} {', '.join(map(str, value))}" if value else ""
    return f"{words} {value}"


def _requests(numbers: tuple[int, ...]) -> str:
    many = "request" if len(numbers) == 1 else "requests"
    return f"{many} {', '.join(map(str, numbers))}"


def _part(part: ops.BatchPart) -> str:
    """Rows of one mode: their requests, and the fields that were chosen."""
    words = [f"{part.mode} of {_requests(part.reqs)}" if part.mode else _requests(part.reqs)] if part.reqs else []
    return ", ".join([*words, *(_chosen(name, value) for name, value in part.fields.items())])


def _chosen(name: str, value: object) -> str:
    words = name.replace("_", " ")
    if not isinstance(value, tuple):
        return f"{words} {value}"
    if any(isinstance(one, tuple) for one in value):
        return f"{words} " + " | ".join(",".join(map(str, one)) or "root only" for one in value)
    if name == "extend_len":
        return "tokens " + ", ".join(str(one) if one else "all left" for one in value)
    return ("cached " if name == "prefix_len" else f"{words} ") + ", ".join(map(str, value))


def prompt_words(history: History) -> str:
    """ "3 text, image 1 x 4 x 6, 2 text"."""
    return ", ".join(map(_run, history)) or "empty prompt"


def _run(run: Run) -> str:
    size = f"{run.tokens} {run.kind}" if run.grid is None else f"{run.kind} {' x '.join(map(str, run.grid))}"
    seconds = f" at {run.seconds_per_grid:g} s" if run.grid is not None and run.seconds_per_grid != 1.0 else ""
    return size + seconds + (f" (first {run.kept} tokens)" if run.kept is not None else "")


def requests_of(op: msgspec.Struct) -> tuple[int, ...]:
    """The requests that the operation names as its own."""
    found: list[int] = []
    for name in op.__struct_fields__:
        value = getattr(op, name)
        if name == "req":
            found.append(value)
        elif isinstance(value, ops.Batch):
            found.extend(value.reqs)
        elif name == "of":
            found.extend(requests_of(value))
    return tuple(dict.fromkeys(found))


def state_at(scenario: ops.Scenario, wrong: int) -> State:
    """The requests before operation `wrong`, and those that it brings."""
    state = State(family=scenario.family)
    for number, op in enumerate(scenario.ops[: wrong + 1]):
        before = state
        try:
            state = apply(state, op, build=False).state
        except OutOfDomain:
            return before  # a scenario of another suite's version
        if number == wrong:
            state = msgspec.structs.replace(state, requests={**state.requests, **before.requests})
    return state


def request_lines(state: State) -> tuple[RequestLine, ...]:
    """What each request is, in numbers."""
    return tuple(_request(state, request) for request in state.requests.values() if request.ids)


def _request(state: State, request: Request) -> RequestLine:
    line = request.line
    items = []
    for run, start, stop in laid(state.family, request.prompt):
        count = stop - start
        if run.grid is not None and run.kept is None and count <= MOST_TOKENS:
            columns = tuple(map(tuple, line.table[:, start:stop].T.tolist()))
            frames = run.grid[0]
            frame = columns[: count // frames] if frames and not count % frames else ()
            lines = len({column[1] for column in frame})
            items.append(ItemLine(kind=run.kind, start=start, frames=frames, lines=lines, columns=columns))
    return RequestLine(
        request=request.req,
        prompt=prompt_words(request.prompt),
        prompt_len=line.width,
        delta=line.delta,
        outputs=request.outputs,
        computed=request.computed,
        status=request.status,
        items=tuple(items),
    )


def token_words(state: State, request: int, index: int) -> str:
    """What token `index` of a request is: "image token 2 of 6", "text", "output 1"; "" where that is not known."""
    found = state.requests.get(request)
    if found is None or index < 0:
        return ""
    for run, start, stop in laid(state.family, found.prompt):
        if index < stop:
            kind = "text" if run.is_text else f"{run.kind} token {index - start} of {stop - start}"
            return f"index {index}, {kind}"
    generated = index - len(found.ids)
    kind = f"output {generated}" if generated < found.outputs else "behind the text so far"
    return f"index {index}, {kind}"
