"""The laws of spec/laws.py, and the rules that say one mode reads what another reads, stated for all sizes.

Each statement calls the specification's own functions. Names of sizes are the engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from ropecheck.spec.modes.cells import PADDING_VALUE, Cell

from ropecheck.conformance.prove import batches
from ropecheck.conformance.prove.routes import BATCHES, Batch, Cells, committed, decodes, of, request, verify, window
from ropecheck.conformance.prove.statement import Size, Theorem, World
from ropecheck.spec import laws
from ropecheck.spec.modes import (
    decode,
    draft_decode,
    draft_extend_v2,
    extend,
    mixed,
    padding,
    ragged_verify,
    split_prefill,
    target_verify,
)
from ropecheck.spec.modes.extend import Window


def chunked(w: World) -> None:
    """Any chunk reads what the whole prefill reads, and two chunks, cut anywhere, read all of it."""
    one = request(w)
    whole = extend.forward([Window(place=one.place, prefix_len=0, extend_len=one.tokens)])
    w.agree(laws.chunked, extend.forward([window(w, one)]), whole)
    cut = w.size("cut", 1)
    w.assume(cut < one.tokens)
    first = extend.forward([Window(place=one.place, prefix_len=0, extend_len=cut)])
    rest = extend.forward([Window(place=one.place, prefix_len=cut, extend_len=one.tokens - cut)])
    w.agree(laws.chunked, whole, (*first, *rest))


def composes(w: World) -> None:
    """After a hit, a + b tokens at once read what a and then b read, and the other way round."""
    one = request(w)
    hit, a, b = w.size("prefix_len"), w.size("a", 1), w.size("b", 1)
    w.assume(hit + a + b <= one.tokens)
    both = extend.forward([Window(place=one.place, prefix_len=hit, extend_len=a + b)])
    first = extend.forward([Window(place=one.place, prefix_len=hit, extend_len=a)])
    second = extend.forward([Window(place=one.place, prefix_len=hit + a, extend_len=b)])
    w.agree(laws.composes, (*first, *second), both)
    w.agree(laws.composes, both, (*first, *second))


CHAINS = tuple(tuple(range(nodes)) for nodes in range(65))
TREES = (
    *(parents for nodes in range(2, 6) for parents in product(*(range(node) for node in range(1, nodes + 1)))),
    *((0,) * nodes for nodes in (9, 33)),
    *(tuple(node // 2 for node in range(nodes)) for nodes in (14, 40)),
)
"""Parents of nodes 1..: every tree of up to six nodes, and some wide ones."""


def climbed(parents: Sequence[int]) -> tuple[int, ...]:
    """The depth of each node: how often one climbs from it to the root."""
    found = []
    for node in range(len(parents) + 1):
        steps = 0
        while node > 0:
            node, steps = parents[node - 1], steps + 1
        found.append(steps)
    return tuple(found)


def plain_depths(w: World) -> None:
    """Depths of plain chains and trees, against climbing from each node to the root."""
    for parents in (*CHAINS, *TREES):
        found, wanted = target_verify.depths(parents), climbed(parents)
        if found != wanted:
            w.same(f"depths below parents {parents}", found, wanted)
    w.same("depths of a lone root", target_verify.depths(()), (0,))


def depths_of_a_chain(w: World) -> None:
    """Node k of a chain has depth k: the induction step; the root's depth is the base."""
    w.same("depths of a lone root", target_verify.depths(()), (0,))
    node = w.size("node", 1)
    w.same("depth of a chain's node", w.depth_in_chain(node), node)


def depths_of_a_tree(w: World) -> None:
    """A node is one deeper than its parent, in a tree of any shape."""
    node, parent = w.size("node", 1), w.size("parent")
    w.assume(parent < node)
    depth, above = w.depth_in_tree(node, parent)
    w.same("depth of a node", depth, above + 1)


def verified(w: World) -> None:
    """Each row of a chain's verify is a decode, and each decode is a row."""
    one = request(w)
    seq_len, nodes = committed(w, one), w.size("num_draft_tokens", 1)
    rows, steps = verify(w, one.place, seq_len, nodes), decodes(w, one.place, seq_len, nodes)
    w.agree(laws.verified, rows, steps)
    w.agree(laws.verified, steps, rows)


def draft_extended(w: World) -> None:
    """The draft extend's window is the verify's, both ways."""
    one = request(w)
    seq_len, nodes = committed(w, one), w.size("num_draft_tokens", 1)
    rows = verify(w, one.place, seq_len, nodes)
    extended = draft_extend_v2.forward([one.place], [seq_len], nodes)
    w.agree(laws.draft_extended, extended, rows)
    w.agree(laws.draft_extended, rows, extended)


def drafted(w: World) -> None:
    """Draft forward s, in each branch, is the decode s steps later."""
    one = request(w)
    seq_len, topk, step = committed(w, one), w.size("topk", 1), w.size("step")
    draft = draft_decode.forward([one.place], [seq_len], topk, step)
    w.agree(laws.drafted, draft, decode.forward([one.place], [seq_len + step + 1]))


def same_place(w: World) -> None:
    """Whatever was accepted before: verify, packed verify, draft and draft extend read what plain decoding reads."""
    one = request(w)
    start, accepted, nodes = committed(w, one), w.size("accepted"), w.size("num_draft_tokens", 1)
    now = start + accepted
    speculative: dict[str, Callable[[], Cells]] = {
        "target_verify": lambda: verify(w, one.place, now, nodes),
        "ragged_verify": lambda: ragged_verify.forward([one.place], [now], [w.chain(nodes)]),
        "draft_decode": lambda: draft_decode.forward([one.place], [now], 1, nodes - 1),
        "draft_extend_v2": lambda: draft_extend_v2.forward([one.place], [now], nodes),
    }

    def placed(mode: str) -> None:
        w.agree(laws.same_place, speculative[mode](), decodes(w, one.place, start, accepted + nodes))

    w.among("mode", tuple(speculative), placed)


def permuted(w: World) -> None:
    """Two requests in both orders; `any_number` is why two stand for any number."""
    one, other = request(w, "first"), request(w, "second")

    def both_orders(mode: str) -> None:
        build = in_mode(w, mode)
        w.alike(laws.permuted, lambda: of(0, build(w, (one, other))), lambda: of(1, build(w, (other, one))))

    w.among("mode", tuple(BATCHES), both_orders)


def split(w: World) -> None:
    """A request behind another one, and alone."""
    other, one = request(w, "first"), request(w, "second")

    def alone(mode: str) -> None:
        build = in_mode(w, mode)
        w.alike(laws.split, lambda: of(1, build(w, (other, one))), lambda: build(w, (one,)))

    w.among("mode", tuple(BATCHES), alone)


def text_rows(w: World) -> None:
    """Every mode, for a request without media, behind one with."""
    other, one = request(w, "neighbour", ("media",)), request(w, "prompt", ("text",))
    w.among("mode", tuple(BATCHES), lambda mode: w.holds(laws.text_rows, of(1, in_mode(w, mode)(w, (other, one)))))


def in_mode(w: World, mode: str) -> Batch:
    """The mode's batch; its loops carry nothing from request to request."""
    build, module = BATCHES[mode]
    w.no_carry(module.forward)
    return build


def any_number(w: World) -> None:
    """Batches of one to eight plain requests, in batch order; and by its source, each row of a forward is made from
    that row alone, so two requests stand for any number."""
    for mode in BATCHES:
        for batch, found, wanted in batches.rows(mode, w.family.axes):
            if found != wanted:
                w.same(f"each request of {batch}", found, wanted)
        w.same(f"requests of {mode}", found, wanted)
    for _, module in BATCHES.values():
        w.no_carry(module.forward)
        w.rows_apart(module.forward)


def split_prefill_is_extend(w: World) -> None:
    """The same window, in both modes."""
    piece = window(w, request(w))
    theirs = extend.indices(piece.prefix_len, piece.extend_len)
    for token in w.every(piece.extend_len):
        mine = split_prefill.indices(piece.prefix_len, piece.extend_len)
        w.same(f"index of token {token}", w.at(mine, token), w.at(theirs, token))
    w.alike(laws.chunked, lambda: split_prefill.forward([piece]), lambda: extend.forward([piece]))


def mixed_is_extend_and_decode(w: World) -> None:
    """Windows as in an extend, then decoding requests as in a decode batch."""
    filling, running = request(w, "first"), request(w, "second")
    piece, seq_len = window(w, filling), committed(w, running) + 1

    def both() -> Cells:
        return mixed.forward([piece], [running.place], [seq_len])

    w.alike(laws.split, lambda: of(0, both()), lambda: extend.forward([piece]))
    w.alike(laws.split, lambda: of(1, both()), lambda: decode.forward([running.place], [seq_len]))


def padded(w: World) -> None:
    """Any live columns, in a buffer of any greater width."""
    one = request(w)
    live = draft_extend_v2.forward([one.place], [committed(w, one)], w.size("num_draft_tokens", 1))
    width = w.size("padded width")
    w.assume(width >= w.count(live))
    _live_then_zeros(w, padding.forward(live, width, w.family.axes), live, width)


def tail(w: World) -> None:
    """Packed nodes of any number, in a tier that is no smaller."""
    one = request(w)
    seq_len, chain = committed(w, one), w.chain(w.size("nodes", 1))
    live = ragged_verify.forward([one.place], [seq_len], [chain])
    tier = w.size("tier", 1)
    w.assume(tier >= w.count(live))
    _live_then_zeros(w, ragged_verify.forward([one.place], [seq_len], [chain], tier), live, tier)


def _live_then_zeros(w: World, cells: Sequence[Cell], live: Sequence[Cell], width: Size) -> None:
    w.same("width", w.count(cells), width)
    for column in w.every(width):
        cell = w.at(cells, column)
        if column < w.count(live):
            wanted = w.at(live, column)
            w.same("a live column", (cell.index, cell.column), (wanted.index, wanted.column))
        else:
            zeros = (PADDING_VALUE,) * w.family.axes
            w.same("a padded column", (cell.index, cell.column), (PADDING_VALUE, zeros))


DEPTHS = (plain_depths, depths_of_a_chain)
"""What a statement rests on whose chains are of any size."""

CHAINS_ONLY = "the drafts of a verify are chains"

THEOREMS = (
    Theorem(rule="laws.chunked_prefill_is_one_prefill", statements=(chunked,)),
    Theorem(rule="laws.extend_composes", statements=(composes,)),
    Theorem(rule="laws.verify_chain_is_decodes", statements=(*DEPTHS, verified)),
    Theorem(rule="laws.draft_extend_is_verify_chain", statements=(*DEPTHS, draft_extended)),
    Theorem(rule="laws.draft_step_is_a_decode", statements=(drafted,)),
    Theorem(rule="laws.batch_order", statements=(*DEPTHS, permuted, any_number), limits=CHAINS_ONLY),
    Theorem(rule="laws.batch_split", statements=(*DEPTHS, split, any_number), limits=CHAINS_ONLY),
    Theorem(rule="laws.text_rows_are_the_index", statements=(*DEPTHS, text_rows, any_number), limits=CHAINS_ONLY),
    Theorem(rule="laws.speculation_places_the_same", statements=(*DEPTHS, same_place), limits=CHAINS_ONLY),
    Theorem(rule="target_verify.depths", statements=(*DEPTHS, depths_of_a_tree)),
    Theorem(rule="split_prefill.indices", statements=(split_prefill_is_extend,)),
    Theorem(rule="mixed.indices", statements=(mixed_is_extend_and_decode, any_number)),
    Theorem(rule="padding.live_columns", statements=(padded,), limits="the live columns of one request"),
    Theorem(rule="ragged_verify.tail", statements=(*DEPTHS, tail), limits="a chain of one request"),
)
"""What this file proves. The statements of sessions and retraction are in sessions.py."""
