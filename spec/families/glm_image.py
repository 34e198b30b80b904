"""GLM-Image: a model that writes images, token by token; the positions of what it will write are known ahead.

Source images are blocks without a spatial merge (1 x h x w tokens), each between a start and an end marker. The
prompt ends with a start marker; the model then writes one or several target images and an end marker. A target's
tokens sit where the same image in a prompt would, and successive targets have no text between them, so the table of
everything is the prompt table of the history *as it will be*. It is longer than the sequence, and a decode step reads
it at the index of its token. The grids come in the order in which the model is told of them, and it writes the last
one first.

See: the model's own `get_rope_index` in transformers (`glm_image`), by its authors; there is no paper text.
"""

from __future__ import annotations

from collections.abc import Sequence

from ropecheck.spec.families.declaration import GridFamily
from ropecheck.spec.history import Column, History, OutOfDomain, image, prompt_table, text

GLM_IMAGE = GridFamily(
    name="glm_image",
    source="https://github.com/huggingface/transformers/blob/main/src/transformers/models/glm_image",
    merge=1,
    kinds=("image",),
)


def written_history(prompt: History, targets: Sequence[tuple[int, int, int]]) -> History:
    """The history once every target (in the order given to the model) and the end marker are written."""
    if not targets:
        raise OutOfDomain("nothing to tabulate ahead: no target grid")
    history = prompt
    for t, h, w in reversed(targets):
        history = (*history, image(t, h, w))
    return (*history, text(1))


def ahead_table(prompt: History, targets: Sequence[tuple[int, int, int]]) -> tuple[Column, ...]:
    """The prompt's columns and, after them, those of the tokens that the model will write."""
    return prompt_table(GLM_IMAGE, written_history(prompt, targets))
