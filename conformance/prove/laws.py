"""The laws of spec/laws.py, and what else is said of modes and padding, stated for all sizes.

Each statement calls the functions that the specification declares the modes with, and asks its rules. Names of sizes
are the engine's.
"""

from collections.abc import Sequence
from itertools import product

from ropecheck.conformance.prove.statement import ReadPart, Route, Size, Theorem, World, parameters
from ropecheck.spec.modes import all_modes, declaration, mode_of
from ropecheck.spec.modes.declaration import NOBODY, Mode
from ropecheck.spec.views import Place, Readings


def modes() -> tuple[Mode, ...]:
    """Every declared mode that rows are of and that has the three rows."""
    parts = {part.name: part for mode in all_modes().values() for part in mode.parts}
    return tuple(part for part in parts.values() if part.reads != NOBODY and part.three_rows)


def extend(w: World, place: Place, prefix_len: Size, extend_len: Size) -> ReadPart:
    """One extend."""
    return w.part(mode_of("extend").tokens(prefix_len=prefix_len, extend_len=extend_len), place)


def decodes(w: World, place: Place, first: Size, count: Size) -> ReadPart:
    """`count` decodes, the first of which feeds token `first`."""

    def token(k: Size) -> Size:
        one = w.part(mode_of("decode").tokens(seq_len=first + k + 1), place)
        w.same("tokens of a decode", one.count, 1)
        return one.token(0)

    return ReadPart(count=count, token=token, place=place)


def verify(w: World, place: Place, seq_len: Size, nodes: Size, mode: str = "target_verify") -> ReadPart:
    """A verify of a chain of so many nodes, the root counted."""
    return w.part(mode_of(mode).tokens(seq_len=seq_len, parents=w.tree("parents", nodes - 1, chain=True)), place)


def draft(w: World, place: Place, seq_len: Size, topk: Size, step: Size) -> ReadPart:
    """One forward of the draft model."""
    return w.part(mode_of("draft_decode").tokens(seq_len=seq_len, topk=topk, step=step), place)


def draft_extend(w: World, place: Place, seq_len: Size, num_draft_tokens: Size) -> ReadPart:
    """One draft extend."""
    tokens = mode_of("draft_extend_v2").tokens(seq_len=seq_len, num_draft_tokens=num_draft_tokens)
    return w.part(tokens, place)


def chunked(w: World) -> None:
    """Any chunk reads what the whole prefill reads, and two chunks, cut anywhere, read all of it."""
    one = w.request()
    whole = extend(w, one.place, 0, one.tokens)
    cut, more = w.size("cut", 1), w.size("extend_len", 1)
    w.assume(cut + more <= one.tokens)
    law = "laws.chunked_prefill_is_one_prefill"
    if w.choose("of the whole", (False, True)):
        w.agree(law, (extend(w, one.place, cut, more),), (whole,))
        return
    both = (extend(w, one.place, 0, cut), extend(w, one.place, cut, one.tokens - cut))
    w.agree(law, (whole,), both)


def composes(w: World) -> None:
    """After a hit, a + b tokens at once read what a and then b read, and the other way round."""
    one = w.request()
    hit, a, b = w.size("prefix_len"), w.size("a", 1), w.size("b", 1)
    both = (extend(w, one.place, hit, a + b),)
    _both_ways(w, "laws.extend_composes", (extend(w, one.place, hit, a), extend(w, one.place, hit + a, b)), both)


def _both_ways(w: World, law: str, left: Route, right: Route) -> None:
    if w.choose("the other way round", (False, True)):
        left, right = right, left
    w.agree(law, left, right)


def climbed(parents: Sequence[int]) -> tuple[int, ...]:
    """The depth of each node: how often one climbs from it to the root."""
    found = []
    for node in range(len(parents) + 1):
        steps = 0
        while node > 0:
            node, steps = parents[node - 1], steps + 1
        found.append(steps)
    return tuple(found)


TREES = (
    *(tuple(range(nodes)) for nodes in range(65)),
    *(parents for nodes in range(2, 6) for parents in product(*(range(node) for node in range(1, nodes + 1)))),
    *((0,) * nodes for nodes in (9, 33)),
    *(tuple(node // 2 for node in range(nodes)) for nodes in (14, 40)),
)
"""Parents of nodes 1 .. : chains, every tree of up to six nodes, and some wide ones."""


def plain_depths(w: World) -> None:
    """Depths of plain chains and trees, against climbing from each node to the root."""
    for parents in TREES:
        found, wanted = tuple(declaration.depths(parents)), climbed(parents)
        if found != wanted:
            w.same(f"depths below parents {parents}", found, wanted)
    w.same("depths of a lone root", tuple(declaration.depths(())), (0,))


def depths_of_a_chain(w: World) -> None:
    """Node k of a chain has depth k, by induction."""
    drafted = w.size("drafted nodes")
    found = declaration.depths(w.tree("parents", drafted, chain=True))
    w.same("nodes", w.count(found), drafted + 1)
    node = w.below("node", drafted + 1)
    w.same("depth of a chain's node", w.at(found, node), node)


def depths_of_a_tree(w: World) -> None:
    """A node is one deeper than its parent, in a tree of any shape."""
    drafted = w.size("drafted nodes", 1)
    parents = w.tree("parents", drafted)
    found = declaration.depths(parents)
    w.same("nodes", w.count(found), drafted + 1)
    w.same("depth of the root", w.at(found, 0), 0)
    node = w.below("node", drafted)
    w.same("depth of a node", w.at(found, node + 1), w.at(found, w.parent(parents, node + 1)) + 1)


def verified(w: World) -> None:
    """Each row of a chain's verify is a decode, and each decode is a row."""
    one, seq_len, nodes = w.request(), w.size("seq_len", 1), w.size("num_draft_tokens", 1)
    rows, steps = (verify(w, one.place, seq_len, nodes),), (decodes(w, one.place, seq_len, nodes),)
    _both_ways(w, "laws.verify_chain_is_decodes", rows, steps)


def draft_extended(w: World) -> None:
    """The draft extend's window is the verify's, both ways."""
    one, seq_len, nodes = w.request(), w.size("seq_len", 1), w.size("num_draft_tokens", 1)
    extended, rows = (draft_extend(w, one.place, seq_len, nodes),), (verify(w, one.place, seq_len, nodes),)
    _both_ways(w, "laws.draft_extend_is_verify_chain", extended, rows)


def drafted(w: World) -> None:
    """Draft forward s, in each branch, is the decode s steps later."""
    one, seq_len, topk, step = w.request(), w.size("seq_len", 1), w.size("topk", 1), w.size("step")
    forward = draft(w, one.place, seq_len, topk, step)
    w.same("branches", forward.count, topk)
    later = decodes(w, one.place, seq_len + step, 1)
    w.agree("laws.draft_step_is_a_decode", (forward,), (later,))


def same_place(w: World) -> None:
    """Whatever was accepted before: verify, packed verify, draft and draft extend read what plain decoding reads."""
    one = w.request()
    start, accepted, nodes = w.size("seq_len", 1), w.size("accepted"), w.size("num_draft_tokens", 1)
    now, mode = (
        start + accepted,
        w.choose("mode", ("target_verify", "ragged_verify", "draft_decode", "draft_extend_v2")),
    )
    if mode == "draft_decode":
        speculative = draft(w, one.place, now, 1, nodes - 1)
    elif mode == "draft_extend_v2":
        speculative = draft_extend(w, one.place, now, nodes)
    else:
        speculative = verify(w, one.place, now, nodes, mode)
    plain = decodes(w, one.place, start, accepted + nodes)
    w.agree("laws.speculation_places_the_same", (speculative,), (plain,))


def one_column(w: World) -> None:
    """A row of any mode, and any other one that reads the same token."""
    one, mode = w.request(), w.choose("mode", modes())
    mine = w.part(mode.tokens(**w.fields(mode)), one.place)
    other, index = w.size("index"), mine.token(w.below("token", mine.count))
    w.assume(index == other)
    law = "laws.one_token_one_column"
    w.accepts(
        law, Readings(law=law, left={index: one.place.column(index)}, right=w.reading((w.single(other, one.place),)))
    )


def _elsewhere(w: World, law: str, rows: Size, others: Size) -> None:
    one, mode = w.request(), w.choose("mode", modes())
    row, its_row = w.below("row", rows), w.below("its other row", others)
    here, there = w.batch(mode, "first batch: ", rows), w.batch(mode, "second batch: ", others)
    for known in parameters(mode):
        if known.each and known.kind != "step":
            w.assume(w.equal(here[known.name][row], there[known.name][its_row]))
    step = w.size("step") if any(known.kind == "step" for known in mode.fields) else 0
    mine, theirs = (w.part(mode.row(*where, step), one.place) for where in ((here, row), (there, its_row)))
    w.assume(mine.count == 0 or mine.token(0) >= 0)
    w.alike(law, mine, theirs)


def permuted(w: World) -> None:
    """A row of a batch of any size, and the same row anywhere in another batch of that size."""
    rows = w.size("requests", 1)
    _elsewhere(w, "laws.batch_order", rows, rows)


def split(w: World) -> None:
    """A row of a batch of any size, and alone."""
    _elsewhere(w, "laws.batch_split", w.size("requests", 1), 1)


def text_rows(w: World) -> None:
    """Every mode, for a request without media."""
    one, mode = w.request("prompt", ("text",)), w.choose("mode", modes())
    part = w.part(mode.tokens(**w.fields(mode)), one.place)
    index = part.token(w.below("token", part.count))
    w.assume(index >= 0)
    w.accepts(
        "laws.text_rows_are_the_index",
        Readings(law="laws.text_rows_are_the_index", left={index: one.place.column(index)}),
    )


def split_prefill_is_extend(w: World) -> None:
    """The same window, in both modes."""
    one, prefix_len, extend_len = w.request(), w.size("prefix_len"), w.size("extend_len", 1)
    own = w.part(mode_of("split_prefill").tokens(prefix_len=prefix_len, extend_len=extend_len), one.place)
    w.alike("laws.one_token_one_column", own, extend(w, one.place, prefix_len, extend_len))


def composed(w: World) -> None:
    """The rows of a composed batch read what batches of their own modes read; a mixed batch's are windows as in an
    extend, then decodes."""
    w.same("parts of mixed", tuple(part.name for part in mode_of("mixed").parts), ("extend", "decode"))
    one, whole = w.request(), w.choose("mode", tuple(mode for mode in all_modes().values() if mode.composite))
    part = whole.parts[w.choose("part", tuple(range(len(whole.parts))))]
    fields = w.fields(part)
    own, theirs = w.part(part.tokens(**fields), one.place), w.part(mode_of(part.name).tokens(**fields), one.place)
    w.alike("laws.one_token_one_column", own, theirs)


DEPTHS = (plain_depths, depths_of_a_chain, depths_of_a_tree)
"""What a statement rests on that reads drafted trees."""

CHAINS_ONLY = "the drafts of a verify are chains"

THEOREMS = (
    Theorem(rule="laws.chunked_prefill_is_one_prefill", statements=(chunked,)),
    Theorem(rule="laws.extend_composes", statements=(composes,)),
    Theorem(rule="laws.verify_chain_is_decodes", statements=(*DEPTHS, verified)),
    Theorem(rule="laws.draft_extend_is_verify_chain", statements=(*DEPTHS, draft_extended)),
    Theorem(rule="laws.draft_step_is_a_decode", statements=(drafted,)),
    Theorem(rule="laws.batch_order", statements=(*DEPTHS, permuted)),
    Theorem(rule="laws.batch_split", statements=(*DEPTHS, split)),
    Theorem(rule="laws.text_rows_are_the_index", statements=(*DEPTHS, text_rows)),
    Theorem(rule="laws.speculation_places_the_same", statements=(*DEPTHS, same_place), limits=CHAINS_ONLY),
    Theorem(rule="laws.one_token_one_column", statements=(*DEPTHS, one_column)),
)
"""What this file proves. Sessions and retraction are in sessions.py, the rules of the two tables in columns.py."""
