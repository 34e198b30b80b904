"""A card as one screen of text."""

from rich.text import Text

from ropecheck.conformance.cards.card import Card, RequestLine
from ropecheck.conformance.figures import OperationLine
from ropecheck.conformance.judge.failure_text import difference_line, shorter
from ropecheck.conformance.judge.side_by_side import side_by_side

AROUND = 10
"""Operations shown: the first ones and those before the wrong one."""


def unsettled(card: Card) -> bool:
    """Whether two sources of the right table differ, so that the card shows neither a pass nor a mistake."""
    return card.state == "known" and card.link.startswith("unsettled;")


def head_line(card: Card) -> Text:
    """What is broken, and how it shows."""
    known = card.state == "known"
    word = "UNSETTLED " if unsettled(card) else "KNOWN " if known else "NEW "
    head = Text(word, style="yellow" if known else "bold red")
    head.append(f"{card.rule}  ", "bold").append(f"{card.mode}: {card.signature}  ({card.count} failures)")
    return head


def card_lines(card: Card) -> list[Text]:
    """Everything that a card says."""
    lines = [head_line(card), Text(f"  {shorter(card.message)}")]
    if card.was:
        lines.append(Text(f"  changed: the base breaks this rule otherwise: {shorter(card.was)}"))
    if card.must:
        lines.append(Text(f"  the rule: {card.must}"))
    if card.says:
        seen = f" Seen before with: {card.usually}." if card.usually else ""
        lines.append(Text(f"  the shape: {card.says}.{seen}"))
    first = card.difference
    if first is not None and not (card.expected and card.observed):
        lines.append(difference_line(first))
    lines += [Text("    ").append_text(line) for line in table_lines(card)]
    lines.append(Text(f"  smallest witness: {card.witness_name} ({card.witness}){_place(card)}"))
    if card.prompt:
        lines.append(Text(f"  prompt: {card.prompt}"))
    lines += operation_lines(card)
    if card.requests:
        lines.append(Text("  requests before it:"))
        lines += [Text(f"    {_request(one)}") for one in card.requests]
    if card.level:
        lines.append(Text(f"  {card.level}"))
    if card.where:
        lines.append(Text(f"  at {card.where}"))
    if card.functions:
        lines.append(Text("  engine code to read first:"))
        lines += [
            Text(f"    {one.file}:{one.line} ", "bold").append(f"{one.function}  ({one.share})", "not bold")
            for one in card.functions
        ]
    if card.bugs:
        lines.append(Text(f"  public bugs like it: {' '.join(bug.address or bug.name for bug in card.bugs[:4])}"))
    if card.entry:
        lines.append(Text(f"  expected by {card.entry}: {shorter(card.reason)} ({card.link})"))
    if card.folded:
        lines.append(Text(f"  {len(card.folded)} more findings that may have this cause:"))
        lines += [
            Text(f"    {one.rule}  {one.mode}: {one.signature}  ({one.count} failures, {one.witness})")
            for one in card.folded[:AROUND]
        ]
        if len(card.folded) > AROUND:
            lines.append(Text(f"    .. and {len(card.folded) - AROUND} more; report.html has all"))
    if card.replay:
        lines.append(Text(f"  {card.replay}", style="cyan"))
    return lines


def table_lines(card: Card) -> list[Text]:
    """Both tables, around the difference."""
    focus = None if card.difference is None else card.difference.column
    heads = ("paper", "released code, and here") if unsettled(card) else ("expected", "observed")
    return side_by_side(card.expected, card.observed, focus=focus, heads=heads)


def operation_lines(card: Card) -> list[Text]:
    """What the scenario does, up to where it goes wrong."""
    return [_operation(line) for line in _around(card.operations)]


def _place(card: Card) -> str:
    if card.prompt:
        return f", builder {card.label}" if card.label else ""
    wrong = next((line.number for line in card.operations if line.wrong), None)
    table = f" ({card.label})" if card.label else ""
    return "" if wrong is None else f", operation {wrong}{table}"


def _around(operations: tuple[OperationLine, ...]) -> list[OperationLine | None]:
    """The operations to show; None stands for those left out."""
    last = next((n for n, line in enumerate(operations) if line.wrong), len(operations) - 1)
    if last < AROUND:
        return list(operations[: last + 1])
    half = AROUND // 2
    return [*operations[:half], None, *operations[last + 1 - half : last + 1]]


def _operation(line: OperationLine | None) -> Text:
    if line is None:
        return Text("       ..")
    text = Text(f"  {'>>' if line.wrong else '  '} {line.number:2} {line.verb} {line.detail}".rstrip())
    if line.wrong:
        text.append("   <- wrong here", "bold red")
    return text


def _request(one: RequestLine) -> str:
    outputs = "1 output" if one.outputs == 1 else f"{one.outputs} outputs"
    return (
        f"request {one.request}: {one.prompt}; P {one.prompt_len}, delta {one.delta}, {outputs}, "
        f"{one.computed} tokens in the cache, {one.status}"
    )
