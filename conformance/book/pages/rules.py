"""A page per rule."""

import ast
from collections.abc import Iterator
from typing import Any

from markupsafe import Markup

from ropecheck.conformance import figures
from ropecheck.conformance.book import source
from ropecheck.conformance.book.contents import CONTENTS, Book
from ropecheck.conformance.book.examples import load, shown
from ropecheck.conformance.book.formula import formula
from ropecheck.conformance.book.pages.parts import index, rendered, state
from ropecheck.conformance.book.predicates import Predicate, predicate_of
from ropecheck.conformance.book.site import Page
from ropecheck.conformance.book.slips import planted
from ropecheck.conformance.book.words import block
from ropecheck.conformance.cards.operations import operation_lines
from ropecheck.conformance.families.files import described
from ropecheck.conformance.prove.theorems import OUT_OF_REACH, THEOREMS
from ropecheck.conformance.report.html_page import drawn_tables
from ropecheck.conformance.selftest import builder, stream
from ropecheck.conformance.selftest.mutants import MUTANTS, Mutant
from ropecheck.spec.rules import Rule

Fault = Mutant | builder.BuilderSlip | stream.StreamSlip


def pages(book: Book) -> Iterator[Page]:
    """The index by topic, then every rule."""
    topics = dict.fromkeys([*CONTENTS.topics, *(rule.topic for rule in book.rules.values())])
    groups = [
        (
            CONTENTS.topics.get(topic, topic),
            [(rule.id, f"rules/{rule.id}.html", rule.must) for rule in book.rules.values() if rule.topic == topic],
        )
        for topic in topics
    ]
    lead = (
        "A rule is one sentence with the word must, and one function that decides. The function judges a view: what an "
        "engine answered, laid beside what the history says. What a report names is what ran."
    )
    yield index(book, "rules", "Rules", lead, [], [group for group in groups if group[1]])
    for rule in book.rules.values():
        yield page(book, rule)


def page(book: Book, rule: Rule) -> Page:
    """One rule."""
    path = f"rules/{rule.id}.html"
    predicate = predicate_of(rule)
    faults: list[tuple[Fault, str]] = [
        (MUTANTS[name], signature) for name, signature in load().faults.get(rule.id, {}).items() if name in MUTANTS
    ]
    if slip := planted(rule.id):
        faults.append((slip.slip, slip.failure.signature))
    body = rendered(
        "rule.html.jinja",
        book,
        path,
        rule=rule,
        formula=Markup("") if predicate is None else formula(predicate.says),
        legend=[] if predicate is None else legend(predicate, rule.view),
        view=rule.view.__name__,
        view_says=" ".join((rule.view.__doc__ or "").split()),
        when=condition(rule),
        asked=[mode for mode in sorted(book.reached.get(rule.id, ())) if mode in book.modes],
        example=example(book, rule, path),
        code=source.with_helpers(rule.check),
        block=block,
        proved=proved(rule),
        laws=laws_beside(rule),
        faults=faults,
        no_faults=no_faults(rule),
        state=state(book, path, rule=rule.id),
        differences=[one for one in book.differences if rule.id in one.rules],
        past=[bug for bug in book.bugs if bug.rule == rule.id],
    )
    words = " ".join([rule.note, *rule.bugs, *(fault.name for fault, _ in faults)])
    return Page(path=path, title=rule.id, body=body, says=rule.must, words=words)


def laws_beside(rule: Rule) -> list[str]:
    """Laws that a third or more of the planted faults which break the rule break as well."""
    faults = load().faults
    own = set(faults.get(rule.id, ()))
    if rule.topic == "laws" or not own:
        return []
    shared = {law: len(own & set(theirs)) for law, theirs in faults.items() if law.startswith("laws.")}
    return sorted((law for law, count in shared.items() if 3 * count >= len(own)), key=lambda law: -shared[law])


def proved(rule: Rule) -> str:
    """What z3 says of it."""
    if rule.id in THEOREMS:
        limits = THEOREMS[rule.id].limits
        end = f" Limits: {limits}." if limits else ""
        return f"For all sizes, on the specification's own functions, by z3: `ropecheck prove {rule.id}`.{end}"
    if rule.id in OUT_OF_REACH:
        return f"Not by z3: {OUT_OF_REACH[rule.id]}."
    return "No theorem: it speaks of what an engine does, not of the specification's functions."


def no_faults(rule: Rule) -> str:
    """Why no planted fault is named."""
    for slip in (*builder.SLIPS, *stream.SLIPS):
        if slip.rule == rule.id:
            return f"Planted in answers: {slip.name} ({slip.says})."
    if "cpu" not in rule.devices:
        return "It is seen on a device alone, where the device score plants its fault."
    return "None of the catalogue; tests put nonsense in the place of its body instead."


def condition(rule: Rule) -> str:
    """The rule's `when`, as it is written."""
    if rule.when is None:
        return ""
    for node in ast.walk(ast.parse(source.of(rule.check).code)):
        if isinstance(node, ast.keyword) and node.arg == "when":
            return ast.unparse(node.value.body if isinstance(node.value, ast.Lambda) else node.value)
    return "it is of this law" if rule.topic == "laws" else ""


def legend(predicate: Predicate, view: type[Any]) -> list[tuple[str, str]]:
    """The view's fields that the formula names, and what the view says of them."""
    used = [
        node.attr
        for node in ast.walk(predicate.says)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == predicate.view
    ]
    says = field_docs(view)
    return [(name, says[name]) for name in dict.fromkeys(used) if says.get(name)]


def field_docs(view: Any) -> dict[str, str]:
    """The strings under a class's fields, and its properties' docstrings."""
    body = ast.parse(source.of(view).code).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for one, after in zip(body.body, [*body.body[1:], None], strict=True):
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                found[one.target.id] = " ".join(str(after.value.value).split())
        elif isinstance(one, ast.FunctionDef):
            found[one.name] = " ".join((ast.get_docstring(one) or "").split())
    return found


def example(book: Book, rule: Rule, page: str) -> Markup:
    """The rule broken by a planted fault; or, for rules of other phases, the case or script that is there for it."""
    kept = load().examples.get(rule.id)
    failure = None if kept is None else shown(kept)
    if kept is not None and failure is not None:
        return rendered(
            "example.html.jinja",
            book,
            page,
            lead="The smallest scenario found in which a planted fault breaks it, expected over observed.",
            fault=MUTANTS[kept.fault],
            failure=failure,
            tables=drawn_tables(failure, failure.label or "the tables"),
            timeline=figures.timeline(operation_lines(kept.scenario, failure.step)),
        )
    if found := planted(rule.id):
        where = "the events of a scheduler, one a line" if found.lines else "a server's answer beside a fresh one"
        if found.case is not None:
            where = f"{found.case.name}: {described(found.case)}"
        return rendered(
            "example.html.jinja",
            book,
            page,
            lead=f"A slip that it has to name ({where}).",
            fault=found.slip,
            failure=found.failure,
            tables=drawn_tables(found.failure, "the prompt table"),
            timeline=Markup("<pre><code>{}</code></pre>").format("\n".join(found.lines)) if found.lines else "",
        )
    return Markup("<p>{}</p>").format("It shows on a device alone, or in what building costs: read the code below.")
