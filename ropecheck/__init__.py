"""Whether an LLM engine feeds its model the right positions: an executable specification of multimodal rotary
positions, and a conformance suite that runs real engines against it.

The four folders of the repository are this package's subpackages: `ropecheck.spec`, `.reference`, `.conformance`,
`.adapters`; the vectors lie beside them. In a checkout they are links to the folders at the top level; a wheel holds
the folders themselves.
"""
