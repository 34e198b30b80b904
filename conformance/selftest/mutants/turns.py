"""Faults in session operations."""

from __future__ import annotations

from dataclasses import replace

from ropecheck.adapters import protocol
from ropecheck.conformance.plan.planner import decoded
from ropecheck.conformance.reference_engine import Held, HeldSession, ReferenceEngine
from ropecheck.conformance.selftest.mutants.base import Mutant
from ropecheck.reference import compose
from ropecheck.reference.timeline import IntArray


class SkipsReply(ReferenceEngine):
    """The new turn's table is put straight behind the parent's prompt."""

    def continued(self, step: protocol.TurnStep, parent: Held) -> Held:
        right = super().continued(step, parent)
        if step.media is None or step.offset:
            return right
        table = compose.appended(parent.table, decoded(step.media.table))
        return replace(right, table=table, delta=compose.delta(table), media_width=table.shape[1])


class NextFromT(ReferenceEngine):
    """The new turn starts after the parent's last t."""

    def appended(self, table: IntArray, turn: IntArray) -> IntArray:
        moved = compose.appended(table, turn)
        if table.size and turn.size:
            moved[:, table.shape[1] :] = turn + int(table[0, -1]) + 1
        return moved


class KeepsDelta(ReferenceEngine):
    """The parent's delta survives a turn with media."""

    def continued(self, step: protocol.TurnStep, parent: Held) -> Held:
        right = super().continued(step, parent)
        return replace(right, delta=parent.delta) if step.media is not None and parent.items else right


class StacksDelta(ReferenceEngine):
    """Every turn's delta is kept beside the earlier ones."""

    def state(self, req: int) -> protocol.RequestState:
        right = super().state(req)
        if right.delta is None or len(right.offsets) < 2:
            return right
        wide = protocol.Tensor("int64", (2, 1), right.delta.data * 2)
        return protocol.RequestState(**{f: getattr(right, f) for f in right.__struct_fields__} | {"delta": wide})


class ItemsUnmoved(ReferenceEngine):
    """A later turn's items keep their places within that turn."""

    def continued(self, step: protocol.TurnStep, parent: Held) -> Held:
        right = super().continued(step, parent)
        if step.media is None:
            return right
        own = tuple(span for item in step.media.items for span in item.spans)
        return replace(right, items=(*right.items[: len(right.items) - len(own)], *own))


class WritesParent(ReferenceEngine):
    """The parent's own record is extended."""

    def turn(self, step: protocol.TurnStep) -> None:
        super().turn(step)
        session = self.sessions[step.session]
        parent = session.last if session.streaming else step.parent
        held = self.held[step.req]
        if parent is not None and parent in self.held and not held.aborted and step.media is not None:
            old = self.held[parent]
            self.held[parent] = replace(old, table=held.table, delta=held.delta, items=held.items)


class SiblingSeesSibling(ReferenceEngine):
    """A branch continues from the newest child instead of the parent named."""

    def continued(self, step: protocol.TurnStep, parent: Held) -> Held:
        newest = [held for held in self.held.values() if held.session == step.session and not held.aborted]
        if not self.sessions[step.session].streaming and len(newest) > 1 and not step.offset:
            parent = newest[-1]
        return super().continued(step, parent)


class OffsetKeepsMedia(ReferenceEngine):
    """An offset cuts the tokens but not the media state."""

    def continued(self, step: protocol.TurnStep, parent: Held) -> Held:
        right = super().continued(step, parent)
        if not step.offset or step.media is not None or not parent.items:
            return right
        return replace(right, table=parent.table, delta=parent.delta, items=parent.items)


class OffsetOneMore(ReferenceEngine):
    def continued(self, step: protocol.TurnStep, parent: Held) -> Held:
        if not step.offset:
            return super().continued(step, parent)
        fields = {name: getattr(step, name) for name in step.__struct_fields__}
        return super().continued(protocol.TurnStep(**fields | {"offset": step.offset + 1}), parent)


class ReplaceKeepsHistory(ReferenceEngine):
    """Replacing everything still continues from the last turn."""

    def turn(self, step: protocol.TurnStep) -> None:
        known = self.sessions[step.session].known
        if step.replace and step.parent is None and known:
            fields = {name: getattr(step, name) for name in step.__struct_fields__}
            step = protocol.TurnStep(**fields | {"parent": known[0], "replace": True})
        super().turn(step)


class ReplaceAfterDropsReply(ReferenceEngine):
    def continued(self, step: protocol.TurnStep, parent: Held) -> Held:
        if step.replace:
            parent = replace(parent, output_ids=())
        return super().continued(step, parent)


class DropKeepsReply(ReferenceEngine):
    def continued(self, step: protocol.TurnStep, parent: Held) -> Held:
        fields = {name: getattr(step, name) for name in step.__struct_fields__}
        return super().continued(protocol.TurnStep(**fields | {"drop_previous_output": False}), parent)


class ReplyUncut(ReferenceEngine):
    """All generated tokens count, past max_new_tokens too."""

    def continued(self, step: protocol.TurnStep, parent: Held) -> Held:
        return super().continued(step, replace(parent, max_new_tokens=1 << 20))


class AbortLeavesTokens(ReferenceEngine):
    """A streaming retry continues from the aborted turn."""

    def leave(self, req: int, finished: bool) -> None:
        super().leave(req, finished)
        session = self.held[req].session
        if session is not None and self.sessions[session].streaming and not finished:
            self.sessions[session] = replace(self.sessions[session], last=req)


class StreamingDropsReply(ReferenceEngine):
    def continued(self, step: protocol.TurnStep, parent: Held) -> Held:
        if self.sessions[step.session].streaming:
            parent = replace(parent, output_ids=())
        return super().continued(step, parent)


class AppendDropsLastToken(ReferenceEngine):
    """The reply's last token, which has no cache entry, is lost."""

    def continued(self, step: protocol.TurnStep, parent: Held) -> Held:
        return super().continued(step, replace(parent, output_ids=parent.output_ids[:-1]))


class RefusesNothing(ReferenceEngine):
    def refuses(self, session: HeldSession, step: protocol.TurnStep) -> bool:
        unknown = not session.streaming and step.parent is not None and step.parent not in session.known
        return unknown


class RefusesSecondChild(ReferenceEngine):
    def refuses(self, session: HeldSession, step: protocol.TurnStep) -> bool:
        return super().refuses(session, step) or (not session.streaming and len(session.known) > 1)


MUTANTS = (
    Mutant("append skips the reply", "S1 (#39145)", "no columns for the generated tokens", SkipsReply),
    Mutant("append starts after t", "S1", "the new turn starts after the last t, not the largest row", NextFromT),
    Mutant("append keeps the delta", "S4, O8", "the parent's delta is used after new media", KeepsDelta),
    Mutant("append stacks deltas", "S4 (#33716)", "delta has the shape [2, 1]", StacksDelta),
    Mutant("append leaves items unmoved", "S4, S6", "items point into the parent's tokens", ItemsUnmoved),
    Mutant("append writes the parent", "S1 (#39145)", "the saved parent's table grows", WritesParent),
    Mutant("branch sees its sibling", "S1", "a branch continues from another child", SiblingSeesSibling),
    Mutant("offset keeps the media", "found in 0.5.23", "tokens are cut, table and delta are not", OffsetKeepsMedia),
    Mutant("offset keeps one more", "slip", "k + 1 tokens are kept", OffsetOneMore),
    Mutant("replace keeps the history", "slip", "nothing is replaced", ReplaceKeepsHistory),
    Mutant("replace after drops the reply", "slip", "the reply is lost", ReplaceAfterDropsReply),
    Mutant("drop_previous_output keeps the reply", "slip", "the reply stays", DropKeepsReply),
    Mutant("reply is not cut", "slip", "tokens past max_new_tokens stay", ReplyUncut),
    Mutant("abort leaves tokens", "S1", "a retry continues from the aborted turn", AbortLeavesTokens),
    Mutant("streaming drops the reply", "S4", "the next turn follows the prompt", StreamingDropsReply),
    Mutant("append drops the last token", "slip", "the reply ends one early", AppendDropsLastToken),
    Mutant("nothing is refused", "slip", "doubled and unfinished turns are let in", RefusesNothing),
    Mutant("second child is refused", "slip", "branches are not let in", RefusesSecondChild),
)
