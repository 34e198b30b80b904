"""What the shape of a wrong table says, and what has led to such tables before.

A shape describes the numbers. `usually` is experience, not a diagnosis: other mistakes make the same numbers.
"""

from __future__ import annotations

import msgspec

from ropecheck.conformance.cards.bugs import address


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """One way to be wrong."""

    says: str
    """What the numbers are, in a sentence."""
    usually: str = ""
    """What has caused it before."""
    bugs: tuple[str, ...] = ()
    """Public bugs that looked like this, as rules name them."""


SHAPES: dict[str, Shape] = {
    "too few columns": Shape(
        says="the table has fewer columns than the forward has tokens",
        usually="a slice of the prompt's table that ends inside the window, or one column per request where every "
        "token of it needs one",
        bugs=("sglang #28464", "sglang #34152", "sglang #20916"),
    ),
    "too many columns": Shape(
        says="the table has more columns than the forward has tokens",
        usually="the whole prompt's table where a window of it is read, or a padded width taken for the real one",
        bugs=("sglang #39145",),
    ),
    "no columns": Shape(
        says="the table has no column at all",
        usually="a slice that begins behind the table's end",
        bugs=("sglang #34152",),
    ),
    "table missing": Shape(
        says="the engine left the table unset",
        usually="a mode without a branch of its own, or a test for M-RoPE that looks at the wrong place",
        bugs=("sglang #19505", "sglang #12838", "vllm-omni #803"),
    ),
    "all zero": Shape(
        says="every wrong cell is 0",
        usually="a buffer that is read before it is filled, or that its filler never knew of",
    ),
    "delta missing": Shape(
        says="the wrong columns are the token's index, without the request's delta",
        usually="a delta that does not reach this forward, or the text-only branch taken by a request with media",
        bugs=("sglang #8219", "vllm #10350"),
    ),
    "delta of another request": Shape(
        says="the wrong columns are the token's index plus the delta of another request of the batch",
        usually="deltas gathered in another order than the requests, or spread by the wrong count",
        bugs=("sglang #8219",),
    ),
    "delta twice": Shape(
        says="the wrong columns are the token's index plus twice the delta",
        usually="a delta added to positions that hold it already",
    ),
    "delta negated": Shape(says="the wrong columns are the token's index minus the delta"),
    "continues from one row": Shape(
        says="text begins behind the last token's own t, h or w, not behind the largest position of all rows",
        usually="a continuation that reads one row, or the last column, where it needs the maximum",
        bugs=("vllm #54498",),
    ),
    "off by one": Shape(
        says="every wrong cell is off by one",
        usually="a length that counts the new token in one place and not in the other",
    ),
    "shifted by a constant": Shape(
        says="every wrong cell is off by the same number",
        usually="a delta, offset or length of an earlier moment",
        bugs=("sglang #33716", "vllm-omni #5684"),
    ),
    "one row repeated": Shape(
        says="all rows hold what one of them must hold",
        usually="a one-dimensional table expanded where the three rows differ",
        bugs=("vllm #54498",),
    ),
    "rows swapped": Shape(says="the right rows in another order", usually="axes taken in another order"),
    "columns of the parent": Shape(
        says="the cells are what the session's earlier turn has at these indices",
        usually="a turn that keeps what it was to replace, or that continues a table which is no longer its own",
        bugs=("sglang #39145",),
    ),
    "media given up": Shape(
        says="the columns are those of text alone, behind a turn that was given up and whose media the engine let go",
        usually="media released with an aborted request while its tokens are continued",
    ),
    "behind one row of an earlier turn": Shape(
        says="the columns are off by what an earlier turn of the session lacks if its answers went on from its t row",
        usually="a retracted turn whose table was made longer from its last column",
    ),
    "media of earlier turns left out": Shape(
        says="the columns are where they would be if all tokens of earlier turns were text",
        usually="a session that dropped its media inputs",
    ),
    "window of elsewhere": Shape(
        says="the cells are right for other tokens of the same request, some places away",
        usually="a window whose start is a prefix length of another moment",
        bugs=("sglang #5349",),
    ),
    "one column repeated": Shape(
        says="every wrong column is the same",
        usually="a value per request spread over all of its tokens",
        bugs=("sglang #34152",),
    ),
    "wrong order": Shape(
        says="the right values in another order", usually="requests or tree nodes in another order than the tokens"
    ),
    "dealt in equal shares": Shape(
        says="packed columns got deltas as if every request owned the same number of them",
        usually="batch x width arithmetic on requests of different widths",
    ),
    "fill not zero": Shape(
        says="a padded column holds something other than its fill value",
        usually="a static buffer whose tail is not cleared between batches",
    ),
    "second build differs": Shape(
        says="the same batch, built twice, gave two tables",
        usually="a build that writes into what it reads",
        bugs=("sglang #39145",),
    ),
    "parent changed": Shape(
        says="what the session's earlier turn holds is no longer what it was",
        usually="a new turn that appends in place to lists or tensors of the turn before",
        bugs=("sglang #39145",),
    ),
    "too many copies": Shape(
        says="more host-to-device copies than the batch needs",
        usually="numbers sent one request at a time, or again in every step",
        bugs=("sglang #11046", "sglang #20864"),
    ),
    "too many waits": Shape(
        says="the host waits for the device more often than allowed",
        usually="a number read back from the device",
        bugs=("sglang #9460",),
    ),
    "wrong number of rows": Shape(
        says="the table is not [3, T]",
        usually="a one-dimensional or transposed table handed on",
        bugs=("vllm #9546",),
    ),
    "index + delta inside the table": Shape(
        says="the cells are the token's index plus the delta, where the prompt's own columns must be read",
        usually="the rule for generated text applied to tokens of the prompt",
    ),
    "stale delta": Shape(
        says="the delta is that of an earlier moment of the request or its session",
        usually="a delta that is not computed again when the history changes",
        bugs=("sglang #33716",),
    ),
    "another delta": Shape(says="the delta is neither the right one nor one that the request had before"),
    "stale cache": Shape(
        says="a value derived from the delta is not that of the delta that is held",
        usually="a cache that is not cleared when the delta changes",
        bugs=("sglang #19879",),
    ),
    "wrong shape": Shape(says="the field does not have the shape that its readers expect"),
    "wrong length": Shape(says="the field does not have the length that its readers expect"),
    "columns changed": Shape(
        says="columns that the request had are no longer what they were",
        usually="a table that is built again, or extended in place, when nothing was to change",
    ),
    "columns lost": Shape(says="columns that the request had are gone"),
    "table longer than the request": Shape(says="the table has columns for tokens that the request does not have"),
    "too few tokens": Shape(says="the request's tokens lack some of its history", bugs=("sglang #39145",)),
    "too many tokens": Shape(says="the request's tokens hold more than its history", bugs=("sglang #39145",)),
    "other tokens": Shape(says="the request's tokens are not those of its history"),
    "raw placeholder left": Shape(
        says="a media token holds the raw placeholder instead of its item's padding value", bugs=("sglang #38068",)
    ),
    "text token changed": Shape(says="padding the media changed a text token"),
    "accepted": Shape(says="a turn that must be refused was taken"),
    "refused": Shape(says="a turn that must be taken was refused"),
    "ends past the history": Shape(says="a prefill window ends behind the last token that the request has"),
    "skips tokens": Shape(says="a prefill window starts behind the first token that is not computed"),
    "computes tokens twice": Shape(says="a prefill window starts at a token that is computed already"),
    "prompt not computed": Shape(says="a reply is continued before its prompt is computed"),
    "no token to read": Shape(says="a forward continues a reply whose every token is computed"),
    "never arrived": Shape(says="a row belongs to a request that no client sent"),
    "ended before": Shape(
        says="a row belongs to a request whose end was told, and without which the engine has run since"
    ),
    "length too small": Shape(says="the batch counts fewer tokens of a row than its history has"),
    "length too large": Shape(says="the batch counts more tokens of a row than its history has"),
    "wrong token": Shape(says="the client was given another token than the model answered"),
    "token of nowhere": Shape(says="the client was given a token that no model answered"),
    "request never ended": Shape(says="nothing runs any more, and a client was never told its request's end"),
    "request still held": Shape(says="nothing runs any more, and a finished request is still held"),
    "memory leak": Shape(says="nothing runs any more, and the engine's own check misses memory"),
    "aborted": Shape(says="a request that nobody aborted is aborted"),
    "taken up again": Shape(says="a request that had to be refused is no longer marked so"),
    "another prefix_len": Shape(says="the request counts another number of cached tokens than the cache holds of it"),
    "another pad value": Shape(
        says="a placeholder token holds another pad value than before: the prefix cache knows the request by it"
    ),
    "too few forwards": Shape(says="the draft loop ran fewer forwards than it has steps"),
    "too many forwards": Shape(says="the draft loop ran more forwards than it has steps"),
    "two routes, two columns": Shape(
        says="two forwards that reach the same token give it two columns; at least one of them is wrong"
    ),
    "no token in common": Shape(says="the two readings of a law do not reach the same tokens"),
    "nothing read": Shape(says="a reading of a law reached no token"),
    "rows differ from the index": Shape(says="the rows of a text-only request are not its token index"),
    "table changed": Shape(says="the rotary embedding wrote into the table that it was given"),
    "a view differs from a copy": Shape(
        says="the same table gives another rotation when it is part of a wider buffer",
        usually="a kernel that takes a row's stride for its width",
    ),
    "another angle": Shape(says="a pair of the head is turned by an angle that no row of the table gives"),
    "turned backwards": Shape(says="pairs are turned by the negative angle"),
    "rest of the head changed": Shape(says="the part of the head beyond the rotary dimension was changed"),
    "sections contiguous": Shape(says="an interleaved layout is turned as a contiguous one"),
    "looks past its end": Shape(
        says="a position behind the end of the prepared angles is looked up, and the lookup raises"
    ),
    "reads another position": Shape(says="the angle that is read is that of another position than the table's"),
    "pairs turned by other rows": Shape(
        says="pairs of the head are turned by other rows than their sections say", usually="sections in another order"
    ),
    "another token": Shape(
        says="the answer to a request has a token that a fresh request with the same history does not get",
        usually="a wrong position somewhere before it, or a cache that holds keys turned by other positions",
    ),
    "another probability": Shape(
        says="the tokens are those of a fresh request, their probabilities are not, by more than rounding",
        usually="a wrong position that was not wrong enough to change the likeliest token",
    ),
    "longer": Shape(says="the answer goes on behind the end of a fresh request's"),
    "ends without a word": Shape(says="the server's process ended, and no exception of its loop was seen"),
    "other values": Shape(says="none of the shapes that have a name explains these numbers"),
}
"""Signature -> what it says."""

STARTS: dict[str, Shape] = {
    "raises ": Shape(
        says="the engine raised while it built the forward",
        usually="sizes that disagree, or a field that this mode does not fill",
        bugs=("sglang #19730",),
    ),
    "follows from ": Shape(
        says="the request's own state was wrong before, and these numbers follow from it; the cause is its own finding"
    ),
    "dtype ": Shape(says="the table has another dtype than the interface says"),
    "changed ": Shape(says="building the forward wrote into what it was given", bugs=("sglang #39145",)),
    "row ": Shape(says="one row is wrong and the others are right", usually="one axis taken from another source"),
    "items ": Shape(says="the media items do not lie where their placeholder tokens are", bugs=("sglang #33716",)),
    "parent's ": Shape(
        says="what the session's earlier turn holds is no longer what it was",
        usually="a new turn that appends in place to what it shares with the turn before",
        bugs=("sglang #39145",),
    ),
    "h pairs ": Shape(says="the pairs of row h are turned by another row"),
    "w pairs ": Shape(says="the pairs of row w are turned by another row"),
    "t pairs ": Shape(says="the pairs of row t are turned by another row"),
    "another request": Shape(
        says="a request that this operation does not concern has changed",
        usually="an object shared between requests that is changed in place",
        bugs=("sglang #39145",),
    ),
}
"""The same, by how a signature begins."""

STATES: dict[str, str] = {
    "passed": "every check of the scenario held",
    "new": "fails, and no entry of the known-failure list expects it: the run fails",
    "known": "fails as an entry of the known-failure list says; the run does not fail for it",
    "expected to fail": "the scenario's failures are all known",
    "not offered": "this version of the engine lacks what the scenario needs, by data; nothing was checked and nothing "
    "passed",
    "could not run": "no verdict: the worker ended, took too long, or the suite's own stand-ins lack something; the "
    "run exits with 3",
    "follows from": "a consequence: the request's own table or delta was seen to be wrong earlier in the scenario, and "
    "this failure is what that state gives",
    "stale": "a known failure's witness passes now: the bug is fixed, the entry must go",
    "changed": "a known failure's witness fails in another way",
    "expired": "a known failure's date has passed and it still fails",
    "open": "a known failure's witness still fails as its entry says",
    "gone": "the base that is compared with fails so, and the checked version does not",
    "unsettled": "two sources of the right table differ: neither a pass nor a mistake",
}
"""What a run calls things."""

PLACES: dict[str, str] = {
    "request": "no forward: what a request holds (its table, delta and media) after an operation",
    "session": "no forward: what a session turn's request holds, or whether the turn was taken",
    "retraction": "no forward: what a request holds after it was retracted",
    "ownership": "no forward: what one request or batch changes of another's",
    "freshness": "a forward made again after another one: what it kept",
    "rotary": "the rotary embedding that reads the tables",
    "scheduler": "no forward: the real scheduler's own state and answers while it plays a client's script",
    "multi_layer": "the graph buffers of a multi-layer EAGLE draft's own runner",
    "frozen_kv": "the graph buffers of a frozen-KV draft's own runner",
}
"""Where a failure is seen, other than in a forward of a declared mode."""
PLACES_OF: dict[str, str] = {
    "prompt_table.": "the prompt table of this model family",
    "scheduler.": "a forward of this mode that the real scheduler made by itself, in a client's script",
}
"""The same, by how the name begins."""


def shape(signature: str) -> Shape | None:
    """What is known of a signature; None when it has no description. What stands in brackets behind it says where."""
    found = SHAPES.get(signature.partition(" (")[0])
    if found is not None:
        return found
    return next((one for start, one in STARTS.items() if signature.startswith(start)), None)


def about(name: str) -> list[tuple[str, str]]:
    """A shape, a state or a place that is no forward mode, in labelled lines; [] for what is none of them."""
    if name in STATES:
        return [("state", name), ("means", STATES[name])]
    place = PLACES.get(name) or next((text for start, text in PLACES_OF.items() if name.startswith(start)), "")
    if place:
        return [("seen in", name), ("means", place)]
    found = shape(name)
    if found is None:
        return []
    lines = [("shape", name), ("says", f"{found.says}; it describes the numbers and asserts no cause")]
    if found.usually:
        lines.append(("before", f"seen with: {found.usually}"))
    lines += [("bug", f"{bug}: {address(bug)}") for bug in found.bugs]
    return lines
