"""What a bound bounds. Every number is an inclusive maximum."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

from ropecheck.conformance.scenarios.exhaustive.modes import ModeScope
from ropecheck.reference.timeline import token_count
from ropecheck.spec.history import History, Run, image, text, video

DOT = image(1, 2, 2)
"""1 token."""
ROW = image(1, 2, 4)
"""1 x 2 tokens."""
COLUMN = image(1, 4, 2)
"""2 x 1 tokens."""
SQUARE = image(1, 4, 4)
"""2 x 2 tokens."""
FRAMES = video(2, 2, 4)
"""2 frames of 1 x 2 tokens."""
WIDE = image(1, 4, 6)
"""2 x 3 tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """A speculative round: num_steps of draft with topk, a tree, and any accept length up to its depth + 1."""

    topk: int
    parents: tuple[int, ...]

    @property
    def accepts(self) -> range:
        """Accept lengths: the bonus token alone, up to the deepest path and the bonus token."""
        depths = [0]
        for parent in self.parents:
            depths.append(depths[parent] + 1)
        return range(1, max(depths) + 2)


CHAIN = Round(topk=1, parents=(0, 1))
TREE = Round(topk=2, parents=(0, 0, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainScope:
    """Plain requests: prompts, then `depth` moves of a scheduler."""

    name: str
    requests: int
    tokens: int
    media: int
    grids: tuple[Run, ...]
    depth: int
    hits: bool = False
    rounds: tuple[Round, ...] = ()
    retract: bool = False
    path: str = "direct"
    """How speculative forwards are built: straight into the batch constructor, or by the engine's own callers."""

    def describe(self) -> str:
        """The bound in one line."""
        return (
            f"{self.name} (requests {self.requests}, tokens {self.tokens}, media {self.media}, grids "
            f"{len(self.grids)}, moves {self.depth}, hits {'all' if self.hits else 'none'}, rounds "
            f"{len(self.rounds)} {self.path}, retractions {'any' if self.retract else 'none'})"
        )

    def prompts(self) -> tuple[History, ...]:
        """Every prompt: at most `tokens` tokens, at most `media` media runs, text anywhere between."""
        return tuple(_prompts(self.grids, self.tokens, self.media))

    def starts(self) -> Iterator[tuple[History, ...]]:
        """Every multiset of `requests` prompts."""
        yield from combinations_with_replacement(self.prompts(), self.requests)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionScope:
    """Sessions: every sequence of turns. A turn: its prompt, how it continues, its cached part, its reply, its end."""

    name: str
    turns: int
    first: tuple[History, ...]
    later: tuple[History, ...]
    reply: int
    streaming: bool = False
    rewrites: bool = False
    """offset (every k), drop_previous_output, replace with and without a parent."""
    aborts: bool = False
    """A turn that is not the last may be aborted, before or after its prefill."""
    hits: bool = False
    """The last turn's prefix hit takes every value; otherwise none."""

    def describe(self) -> str:
        """The bound in one line."""
        return (
            f"{self.name} (turns {self.turns}, prompts {len(self.first)} then {len(self.later)}, replies "
            f"{self.reply}, rewrites {'all' if self.rewrites else 'none'}, aborts "
            f"{'any' if self.aborts else 'none'}, hits {'all' if self.hits else 'none'})"
        )


def _prompts(grids: tuple[Run, ...], tokens: int, media: int) -> Iterator[History]:
    """Prompts of 1 .. tokens tokens, shortest media count first."""

    def extend(history: History, left: int, media_left: int, after_text: bool) -> Iterator[History]:
        if history:
            yield history
        if not after_text:
            for count in range(1, left + 1):
                yield from extend((*history, text(count)), left - count, media_left, True)
        if media_left:
            for run in grids:
                size = token_count("qwen2_vl", (run,))
                if size <= left:
                    yield from extend((*history, run), left - size, media_left - 1, False)

    yield from extend((), tokens, media, False)


AnyScope = PlainScope | SessionScope | ModeScope

MODE_PROMPTS: tuple[History, ...] = ((text(2),), (text(1), WIDE, text(1)), (ROW, text(1), COLUMN))

TURNS_FIRST: tuple[History, ...] = ((text(2),), (text(1), SQUARE), (ROW, text(1)))
TURNS_LATER: tuple[History, ...] = ((text(1),), (COLUMN, text(1)), (text(1), SQUARE))

_ONE = PlainScope(
    name="one request",
    requests=1,
    tokens=4,
    media=1,
    grids=(ROW, SQUARE),
    depth=3,
    hits=True,
    rounds=(CHAIN,),
    retract=True,
)
_TWO = PlainScope(name="two requests", requests=2, tokens=3, media=1, grids=(COLUMN,), depth=3)
_CALLED = replace(_TWO, path="caller", rounds=(CHAIN,))
_SESSIONS = SessionScope(
    name="sessions", turns=2, first=TURNS_FIRST, later=TURNS_LATER, reply=2, rewrites=True, aborts=True, hits=True
)
_STREAMING = replace(_SESSIONS, name="streaming", streaming=True, rewrites=False, hits=False)

SMALL: tuple[AnyScope, ...] = (
    ModeScope(name="every mode", prompts=MODE_PROMPTS[:2], rows=1, bound=1),
    _ONE,
    replace(_TWO, depth=2, rounds=(CHAIN,)),
    replace(_SESSIONS, reply=1, hits=False),
    _STREAMING,
)
_EVERY_MODE = ModeScope(name="every mode", prompts=MODE_PROMPTS, rows=2, bound=1)
_CALLED_ONE = replace(_CALLED, name="rounds by the callers", requests=1, grids=(ROW,), rounds=(CHAIN, TREE))
_CALLED_TWO = replace(_CALLED, name="rounds of two by the callers", tokens=1, grids=(DOT,))
_BRANCHES = replace(_SESSIONS, name="branches", turns=3, reply=1, rewrites=False, hits=False)
STANDARD: tuple[AnyScope, ...] = (
    _EVERY_MODE,
    replace(_ONE, rounds=(TREE,)),
    replace(_TWO, tokens=2),
    replace(_CALLED_ONE, depth=2),
    replace(_CALLED_TWO, depth=2),
    replace(_SESSIONS, reply=1),
    _BRANCHES,
    replace(_STREAMING, turns=3, reply=1),
)
"""Every kind of scope, small enough for every run (docs/strength.md: what the phases are worth)."""
NIGHTLY: tuple[AnyScope, ...] = (
    _EVERY_MODE,
    replace(_ONE, tokens=5, rounds=(CHAIN, TREE)),
    _TWO,
    _CALLED_ONE,
    _CALLED_TWO,
    _SESSIONS,
    _BRANCHES,
    replace(_STREAMING, turns=3),
)
LARGE: tuple[AnyScope, ...] = (
    ModeScope(name="every mode", prompts=MODE_PROMPTS, rows=2, bound=2),
    replace(_ONE, tokens=8, media=2, grids=(ROW, COLUMN, SQUARE, FRAMES, WIDE), depth=4, rounds=(CHAIN, TREE)),
    replace(_ONE, name="two requests", requests=2, tokens=5, grids=(ROW, COLUMN, SQUARE), rounds=(CHAIN, TREE)),
    replace(_SESSIONS, turns=3),
    replace(_STREAMING, turns=4, hits=True),
)

BOUNDS: dict[str, tuple[AnyScope, ...]] = {"small": SMALL, "standard": STANDARD, "nightly": NIGHTLY, "large": LARGE}
"""What --bound takes."""

DEFAULT_BOUND = "standard"
