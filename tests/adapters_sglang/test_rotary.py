"""The embedding's step over fakes of its classes: what each is built with, which of its methods turns, what is kept,
and the model's layer around the fused kernel. Real ones turn in test_adapter.py and in the planted faults' tests."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

pytest.importorskip("torch")

import torch

from ropecheck.adapters import protocol as p
from ropecheck.adapters.sglang import fused_rotary, kernels, rotary
from ropecheck.adapters.sglang.capabilities import Absent
from ropecheck.adapters.sglang.state import JobState

pytestmark = pytest.mark.engine

built: list[dict[str, Any]] = []


class Embedding:
    """Turns by adding: what it adds says which method it was."""

    def __init__(
        self,
        head_size: int,
        rotary_dim: int,
        max_position_embeddings: int,
        base: float,
        is_neox_style: bool,
        dtype: Any,
        mrope_section: list[int],
        mrope_interleaved: bool,
        mrope_interleaved_glm: bool = False,
        scaling_factor: float | None = None,
    ) -> None:
        built.append({name: value for name, value in locals().items() if name != "self"})
        self.cpus = _is_cpu
        self.asked: list[Any] = []

    def to(self, device: str) -> Any:
        self.device = device
        return self

    def _turn(self, more: int, table: Any, query: Any, key: Any) -> Any:
        assert not torch.is_grad_enabled()
        self.asked.append(table)
        return query + more, key + more + 1

    def forward_native(self, *given: Any) -> Any:
        return self._turn(1, *given)

    def forward_cuda(self, *given: Any) -> Any:
        return self._turn(3, *given)


class Older:
    """Up to 0.5.7: the base class's methods know no rows; no interleaved sections."""

    def __init__(self, head_size: int) -> None: ...

    def to(self, device: str) -> Any:
        return self

    def _forward_native(self, table: Any, query: Any, key: Any) -> Any:
        table += 1
        return query + 5, key + 5

    def forward(self, table: Any, query: Any, key: Any) -> Any:
        return query + 7, key + 7


_is_cpu = False
"""What the engine's module of the class is told."""
HEADS = p.Tensor("float32", (2, 8), torch.zeros(2, 8).numpy().tobytes())
TABLE = p.Tensor("int64", (3, 2), torch.tensor([[1, 2], [3, 4], [5, 6]]).numpy().tobytes())
STEP = p.Rotary(TABLE, HEADS, HEADS, head_size=8, rotary_dim=6, base=100.0, sections=(1, 2, 3))


@pytest.fixture(autouse=True)
def nothing_built() -> None:
    built.clear()
    kernels.ran.clear()


def state(device: str = "cpu") -> Any:
    engine: Any = SimpleNamespace(absent=lambda name, message: Absent(f"{name}: {message}"))
    job = JobState(engine, p.Job("s", ()))
    job.device = device
    return job


def turned(
    monkeypatch: pytest.MonkeyPatch, step: p.Rotary = STEP, cls: Any = Embedding, job: Any = None
) -> tuple[float, float, bool]:
    """(what was added to queries, to keys, whether the table was written to)."""
    asked: list[str] = []

    def class_named(engine: Any, name: str) -> Any:
        asked.append(name)
        return cls

    monkeypatch.setattr(rotary, "embedding_class", class_named)
    found = rotary.rotate(job or state(), step)
    assert asked == [rotary.class_of(step)]
    query, key = (torch.frombuffer(bytearray(one.data), dtype=torch.float32) for one in (found.query, found.key))
    assert found.query.shape == (2, 8)
    return float(query[0]), float(key[0]), found.table_changed


def changed(**fields: Any) -> p.Rotary:
    return msgspec.structs.replace(STEP, **fields)


def test_an_embedding_is_built_as_the_step_says(monkeypatch: pytest.MonkeyPatch) -> None:
    assert turned(monkeypatch) == (1, 2, False)
    (plain,) = built
    assert plain == {
        "head_size": 8,
        "rotary_dim": 6,
        "max_position_embeddings": 4096,
        "base": 100.0,
        "is_neox_style": True,
        "dtype": torch.float32,
        "mrope_section": [1, 2, 3],
        "mrope_interleaved": False,
        "mrope_interleaved_glm": False,
        "scaling_factor": None,
    }
    turned(monkeypatch, changed(scaling=(2.0, 64), interleaved=True))
    assert (built[1]["max_position_embeddings"], built[1]["scaling_factor"]) == (64, 2.0)
    assert built[1]["mrope_interleaved"] is True
    turned(monkeypatch, changed(alternating=True, longest=9))
    assert built[2]["mrope_section"] == [2, 3, 1] and built[2]["max_position_embeddings"] == 9


def test_sections_have_their_class() -> None:
    found = [rotary.class_of(one) for one in (STEP, changed(scaling=(2.0, 64)), changed(alternating=True))]
    assert found == list(rotary.CLASSES)


def test_one_embedding_serves_a_job_for_equal_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    job = state()
    for step in (STEP, changed(buffer=9), changed(base=7.0), STEP):
        turned(monkeypatch, step, job=job)
    assert len(built) == 2 and len(job.rotaries) == 2
    (first, _) = job.rotaries.values()
    assert len(first.asked) == 3 and first.device == "cpu" and first.cpus is True and _is_cpu is False
    far = first.asked[1]
    assert far.tolist() == [[1, 2], [3, 4], [5, 6]] and far.stride() == (9, 1)
    assert far.as_strided((3, 9), (9, 1))[:, 2:].unique().tolist() == [rotary.FAR]


def test_the_gpus_forward_is_for_a_gpu_or_for_sections_that_have_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Absent, match="needs a GPU"):
        turned(monkeypatch, changed(method="device"))
    assert turned(monkeypatch, changed(method="device", cycled=True)) == (3, 4, False)
    job, moved = state("cuda"), []

    def move(tensor: Any, device: str) -> Any:
        moved.append(device)
        return tensor

    monkeypatch.setattr(torch.Tensor, "to", move)
    assert turned(monkeypatch, changed(method="device"), job=job) == (3, 4, False)
    (made,) = job.rotaries.values()
    assert made.device == "cuda" and made.cpus is False and moved == ["cuda"] * 3


@pytest.mark.parametrize(("method", "added", "written"), [("native", 5, True), ("device", 7, False)])
def test_methods_of_older_releases(method: str, added: int, written: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if method == "device":
        with pytest.raises(Absent):
            turned(monkeypatch, changed(method=method), Older)
        names = rotary.OLD_METHODS
        assert getattr(Older(8), names[method])(None, 0, 0) == (added, added)
    else:
        assert turned(monkeypatch, changed(method=method), Older) == (added, added, written)
    for lacking in ({"interleaved": True}, {"cycled": True}):
        with pytest.raises(Absent, match="mrope_interleaved"):
            turned(monkeypatch, changed(**lacking), Older)


def test_a_class_is_found_in_its_newest_place(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[str, Any] = {rotary.PLACES[1]: SimpleNamespace(MRotaryEmbedding=Older)}
    monkeypatch.setattr(rotary, "imported", known.get)
    engine: Any = state().engine
    assert rotary.embedding_class(engine) is Older
    known[rotary.PLACES[0]] = SimpleNamespace(MRotaryEmbedding=Embedding)
    assert rotary.embedding_class(engine) is Embedding
    with pytest.raises(Absent, match="Ernie4_5_VLRotaryEmbedding: this release"):
        rotary.embedding_class(engine, rotary.CLASSES[2])


def test_every_module_of_a_classs_bases_believes_that_it_was_built_for_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = [ModuleType(f"rotary_fake_{number}") for number in range(4)]
    for module, told in zip(modules, (False, False, True, None), strict=True):
        monkeypatch.setitem(sys.modules, module.__name__, module)
        if told is not None:
            vars(module)["_is_cpu"] = told
    base: Any = object
    for module in modules:
        base = type("Embedding", (base,), {"__module__": module.__name__})
    with rotary.built_for_cpus(base):
        assert [getattr(module, "_is_cpu", None) for module in modules] == [True, True, True, None]
    assert [getattr(module, "_is_cpu", None) for module in modules] == [False, False, True, None]


# ---------------------------------------------------------------- the fused kernel


class Layer:
    def __init__(self) -> None:
        raise AssertionError("a model would be loaded")

    def forward_prepare_cuda_fused(self, table: Any, hidden: Any) -> Any:
        made: Any = self
        heads, _ = made.qkv_proj(hidden)
        width = made.q_size + 2 * made.kv_size
        assert heads.shape == (2, width) and made.q_size == made.num_heads * made.head_dim
        assert made.kv_size == made.num_kv_heads * made.head_dim and not made.attn_output_gate
        assert made.q_norm is made.k_norm and made.q_norm.variance_epsilon == 0
        assert made.q_norm.weight.data.tolist() == [0.0] * made.head_dim
        return (
            heads[:, : made.q_size] + table.sum(),
            heads[:, made.q_size : width - made.kv_size],
            "gate",
            made.rotary_emb,
        )


@pytest.mark.parametrize("there", [False, True])
def test_the_models_own_layer_is_given_the_heads(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = SimpleNamespace(Qwen3_5AttentionDecoderLayer=Layer)
    if there:
        setattr(model, fused_rotary.NAME, "the model's own")
    known = {fused_rotary.MODEL: model, fused_rotary.KERNEL: SimpleNamespace(**{fused_rotary.NAME: "the kernel"})}
    monkeypatch.setattr(fused_rotary, "imported", known.get)
    engine: Any = state().engine
    turn = fused_rotary.method(engine, "embedding", 4, "cpu")
    assert getattr(model, fused_rotary.NAME) == ("the model's own" if there else "the kernel")
    table = torch.tensor([[1, 2]] * 3)
    query, key = turn(table, torch.ones(2, 8), torch.full((2, 4), 5.0))
    assert query.tolist() == [[10.0] * 8] * 2 and key.tolist() == [[5.0] * 4] * 2
    assert kernels.ran == [kernels.qualified(Layer.forward_prepare_cuda_fused)]
    for lacking in (None, SimpleNamespace(), SimpleNamespace(Qwen3_5AttentionDecoderLayer=object)):
        known[fused_rotary.MODEL] = lacking
        with pytest.raises(Absent, match="no fused rotary kernel"):
            fused_rotary.method(engine, "embedding", 4, "cpu")


def test_a_fused_step_goes_through_the_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def method(engine: Any, embedding: Any, head_size: int, device: str) -> Any:
        made.append((type(embedding), head_size, device))
        return lambda table, query, key: (query + 9, key + 9)

    monkeypatch.setattr(fused_rotary, "method", method)
    assert turned(monkeypatch, changed(method="fused")) == (9, 9, False) and made == [(Embedding, 8, "cpu")]


def test_what_is_sent_back_is_there() -> None:
    assert rotary.packed(torch.zeros(2, 8)) == HEADS
    with pytest.raises(AssertionError):
        rotary.packed(None)
