"""Every law of the specification: what proves it, or why linear arithmetic does not reach it."""

from types import MappingProxyType

from ropecheck.conformance.prove import columns, laws, sessions

THEOREMS = MappingProxyType(
    {theorem.rule: theorem for theorem in (*laws.THEOREMS, *sessions.THEOREMS, *columns.THEOREMS)}
)
"""By rule id. Besides the laws: rules that say that a mode reads what another one or the ideal function gives."""

OUT_OF_REACH = MappingProxyType(
    {
        "laws.same_step_twice": "speaks of what an engine leaves in its buffers; the specification's functions keep "
        "nothing",
    }
)
"""Laws without a proof: rule id -> why."""
