"""What stands in for kernels on a CPU: slots and tokens that move as the kernels move them, trees that are walked and
drafted, and which of the engine's names are exchanged. No engine: modules that have the names alone."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ropecheck.adapters.sglang import absent_packages, programs  # noqa: E402 - the others import torch
from ropecheck.adapters.sglang.scheduler import slots  # noqa: E402

TABLE = [[10, 11, 12, 13], [20, 21, 22, 23], [30, 31, 32, 33]]


def test_a_plain_kernel_is_launched_like_a_program() -> None:
    given: list[Any] = []
    kernel = slots.PlainKernel(lambda *args, **kwargs: given.append((args, kwargs)))
    kernel[(3,)](1, 2, block=4)
    assert given == [((1, 2), {"block": 4})] and kernel.ropecheck_stand_in


def test_slots_go_out_packed_and_in_again() -> None:
    rows, starts, ends = torch.tensor([2, 0, 1]), torch.tensor([1, 0, 2]), torch.tensor([3, 1, 2])
    out = torch.zeros(5, dtype=torch.int64)
    slots.slots_out(rows, torch.tensor(TABLE), starts, ends, out, 8, block=4)
    assert out.tolist() == [31, 32, 10, 0, 0]
    table = torch.zeros(3, 4, dtype=torch.int64)
    slots.slots_in(rows, table, starts, ends, torch.tensor([1, 2, 3]), 8, block=4)
    assert table.tolist() == [[3, 0, 0, 0], [0, 0, 0, 0], [0, 1, 2, 0]]


def test_accepted_slots_are_packed_and_what_is_no_node_left_out() -> None:
    out = torch.full((4,), -5)
    slots.accepted_slots(torch.tensor([[0, 2, -1], [3, -1, -1]]), torch.tensor([70, 71, 72, 73]), out, 8)
    assert out.tolist() == [70, 72, 73, -5]


def test_a_rows_bonus_token_is_its_last_accepted_one() -> None:
    out = torch.zeros(2, dtype=torch.int64)
    slots.bonus_tokens(torch.tensor([[5, 6, 7], [8, 9, 10]]), torch.tensor([3, 1]), out, 3, block=2)
    assert out.tolist() == [7, 8]


def test_a_rows_largest_is_the_first_of_them() -> None:
    assert slots.row_argmax(torch.tensor([[1, 5, 5], [9, 2, 3]])).tolist() == [1, 0]


TREE = {
    "candidates": [[1, 11, 12, 13]] * 2,
    "index": [[0, 1, 2, 3], [4, 5, 6, 7]],
    "children": [[1, -1, 3, -1]] * 2,
    "siblings": [[-1, 2, -1, -1]] * 2,
}
"""Node 0 has the children 1 and 2, and 3 is the child of 2."""


def verified(target: list[int], width: int) -> tuple[list[int], list[list[int]], list[int]]:
    """(predicted tokens, accepted nodes, how many drafts) of two such trees."""
    predicts, counts = torch.full((8,), -9), torch.full((2,), -9)
    accepted = torch.full((2, width), -1)
    tree = [torch.tensor(TREE[name]) for name in ("candidates", "index", "children", "siblings")]
    tokens, index, children, siblings = tree
    slots.verify_greedily(predicts, accepted, counts, tokens, index, children, siblings, torch.tensor(target), block=4)
    return predicts.tolist(), accepted.tolist(), counts.tolist()


def test_a_verify_takes_the_drafts_that_are_the_targets_own_next_tokens() -> None:
    predicts, accepted, counts = verified([12, 0, 13, 99, 55, 0, 0, 0], 3)
    assert accepted == [[0, 2, 3], [4, -1, -1]] and counts == [2, 0]
    assert predicts == [12, -9, 13, 99, 55, -9, -9, -9]


def test_a_verify_takes_no_more_than_it_may_and_a_first_child_too() -> None:
    predicts, accepted, counts = verified([12, 0, 13, 99, 11, 66, 0, 0], 2)
    assert accepted == [[0, 2], [4, 5]] and counts == [1, 1]
    assert predicts == [12, -9, 13, -9, 11, 66, -9, -9]


# ---------------------------------------------------------------- drafts


def ancestors(tree: tuple[int, ...], node: int) -> set[int]:
    return {node} if node == 0 else {node} | ancestors(tree, tree[node - 1])


@pytest.mark.parametrize("total", [6, 7, 8])
def test_a_drafted_tree_is_told_by_the_ancestors_of_its_nodes(total: int) -> None:
    """Its form goes by the length; a row of the mask has a node's ancestors and itself."""
    drafter = slots.Drafter(None, draft_token_num=5)
    drafts, masks = drafter.batch_get(["a", "b"], [[3, 4], [8]], [total, total + 1])
    drafts, masks = drafts.reshape(2, 5), masks.reshape(2, 5, 5)
    for row, length in enumerate((total, total + 1)):
        tree = drafter.TREES[length % 3]
        assert [set(mask.nonzero()[0]) for mask in masks[row]] == [ancestors(tree, node) for node in range(5)]
        assert len(set(drafts[row].tolist())) == 5, "siblings are told apart"
        assert all(20 <= token < 420 for token in drafts[row][1:]), "none ends an answer, none is a medium's"
    assert drafts[:, 0].tolist() == [4, 8], "the root is the newest token"
    assert drafts[0, 1:].tolist() != drafts[1, 1:].tolist()


def test_the_forms_of_trees_are_a_chain_pairs_and_a_bush() -> None:
    parents = [[tree[node - 1] for node in range(1, 7)] for tree in slots.Drafter.TREES]
    assert parents == [[0, 1, 2, 3, 4, 5], [0, 0, 1, 2, 3, 4], [0, 0, 0, 1, 1, 2]]


def test_nothing_else_is_asked_of_a_corpus() -> None:
    drafter = slots.Drafter(draft_token_num=2)
    drafter.batch_put([[1]])
    drafter.synchronize()
    drafter.reset()
    drafter.erase_match_state(["a"])
    slots.nothing(1, more=2)


# ---------------------------------------------------------------- names


class Modules:
    """Modules by name, in the place of the engine's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: dict[str, Any] = {}
        monkeypatch.setattr(slots, "_module", self.found.get)
        monkeypatch.setattr(slots, "sys", SimpleNamespace(modules=self.found))

    def put(self, name: str, **names: Any) -> Any:
        return self.found.setdefault(name, SimpleNamespace(**names))


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> Modules:
    return Modules(monkeypatch)


SPECULATIVE = "sglang.srt.speculative"


def engine(modules: Modules, folder: Path) -> Modules:
    """As much of an engine as is exchanged."""
    for name in ("host_a", "host_b", "common"):
        (folder / f"{name}.py").write_text("transfer_kv_direct(1); self.transfer_kv_all_layer(2)" * (name != "common"))
    cuda, cpu = SimpleNamespace(synchronize=1), SimpleNamespace(Stream=type("Stream", (), {}))
    tensor = type("Tensor", (), {})
    modules.put(
        "torch",
        cpu=cpu,
        cuda=cuda,
        Tensor=tensor,
        distributed=SimpleNamespace(all_reduce=1),
        tensor=lambda *args, **kwargs: (args, kwargs),
    )
    plain: dict[str, dict[str, Any]] = {
        "sglang.kernels.ops.speculative.cache_locs": {"assign_extend_cache_locs": 1, "_is_xpu": False},
        "sglang.kernels.ops.speculative.spec_tree": {"verify_tree_greedy_kernel_triton": 1, "_is_xpu": False},
        "sglang.kernels.ops.speculative.reconstruct_tree": {"_is_xpu": False},
        "sglang.kernels.ops.speculative.eagle": {"fill_bonus_tokens": 1},
        "sglang.srt.mem_cache.allocation": {"assign_req_to_token_pool": 1},
        f"{SPECULATIVE}.eagle_utils": {},
        f"{SPECULATIVE}.ngram_worker": {"NgramCorpus": 1},
        f"{SPECULATIVE}.spec_utils": {"row_argmax": 1},
        f"{SPECULATIVE}.draft_utils": {"DraftBackendFactory": SimpleNamespace(_create_backend=1)},
        f"{SPECULATIVE}.frozen_kv_mtp_worker_v2": {
            "FrozenKVMTPDraftWorker": SimpleNamespace(_init_triton_draft_attn_backend=1)
        },
        "sglang.kernels.ops.kvcache.cache_move": {
            "copy_all_layer_kv_cache_tiled": {},
            "copy_all_layer_kv_cache_note": 1,
            "copy_one": {},
        },
        "sglang.srt.arg_groups.speculative_hook": {
            "resolving_view": lambda arguments: arguments,
            "DRAFT_ATTENTION_BACKEND_CHOICES": ["triton"],
        },
        "sglang.srt.models.qwen2_5_vl": {"Qwen2_5_VLForConditionalGeneration": SimpleNamespace()},
        "sglang.srt.layers.attention.torch_native_backend": {"TorchNativeAttnBackend": type("Native", (), {})},
        "sglang.srt.layers.attention.triton_backend": {
            "TritonAttnBackend": type("Triton", (), {"get_cuda_graph_seq_len_fill_value": lambda self: 1})
        },
        "sglang.srt.mem_cache.pool_host": {"__file__": str(folder / "__init__.py"), "__name__": "pool"},
        "sglang.srt.mem_cache.pool_host.common": {"_cuda_host_register": 1, "HICACHE_HOST_MEMORY_RESERVE_BYTES": 10},
        "sglang.srt.mem_cache.other": {"HICACHE_HOST_MEMORY_RESERVE_BYTES": 10, "device_module": cuda},
        "elsewhere": {"HICACHE_HOST_MEMORY_RESERVE_BYTES": 10, "device_module": cuda},
        "sglang.srt.own": {"device_module": "another"},
        "pool.host_a": {"__file__": str(folder / "host_a.py"), "transfer_kv_direct": "its own"},
        "pool.common": {"__file__": str(folder / "common.py")},
    }
    for name, names in plain.items():
        modules.put(name, **names)
    return modules


def test_what_is_exchanged_on_a_cpu(modules: Modules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed: list[str] = []
    monkeypatch.setattr(programs, "install", lambda: installed.append("programs"))
    monkeypatch.setattr(slots, "without_binaries", lambda: installed.append("binaries"))
    found = engine(modules, tmp_path).found
    slots.install()
    assert installed == ["binaries", "programs"]

    kernels = "sglang.kernels.ops.speculative"
    for place, kernel, function in slots.PLAIN:
        if kernel == "fill_accept_out_cache_loc":  # this release has none
            assert not hasattr(found[place], kernel)
        else:
            assert vars(found[place])[kernel]._function is function, kernel
    move = found["sglang.kernels.ops.kvcache.cache_move"]
    assert (
        move.copy_all_layer_kv_cache_tiled[1](2, 3) is None
        and move.copy_all_layer_kv_cache_note == 1
        and move.copy_one == {}
    )
    assert found[f"{SPECULATIVE}.ngram_worker"].NgramCorpus is slots.Drafter
    assert found[f"{SPECULATIVE}.spec_utils"].row_argmax is slots.row_argmax
    assert found[f"{SPECULATIVE}.draft_utils"].DraftBackendFactory._create_backend is slots.draft_backend
    frozen = found[f"{SPECULATIVE}.frozen_kv_mtp_worker_v2"].FrozenKVMTPDraftWorker
    assert frozen._init_triton_draft_attn_backend is slots.draft_backend
    assert all(found[f"{kernels}.{name}"]._is_xpu is True for name in ("cache_locs", "spec_tree", "reconstruct_tree"))
    assert not hasattr(found[f"{SPECULATIVE}.eagle_utils"], "_is_xpu"), "this release does not choose there"
    native = found["sglang.srt.layers.attention.torch_native_backend"].TorchNativeAttnBackend
    assert native().get_cuda_graph_seq_len_fill_value() == 1
    assert found["sglang.srt.arg_groups.speculative_hook"].resolving_view(None).device == "cuda"
    assert found["sglang.srt.mem_cache.pool_host.common"]._cuda_host_register is slots.nothing


def test_an_older_release_has_few_of_them(modules: Modules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "install", lambda: None)
    found = engine(modules, tmp_path).found
    gone = [name for name in found if name.startswith((SPECULATIVE, "sglang.kernels", "sglang.srt.mem_cache"))]
    for name in gone:
        del found[name]
    slots.install()
    assert not [name for name in gone if name in found and name != "sgl_kernel.speculative"]


def test_on_a_gpu_kernels_run_as_they_are(modules: Modules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = engine(modules, tmp_path).found
    locs = found["sglang.kernels.ops.speculative.cache_locs"]
    monkeypatch.setattr(absent_packages, "wanted", lambda: [])
    slots.install_on_gpu()
    assert found[f"{SPECULATIVE}.ngram_worker"].NgramCorpus is slots.Drafter
    assert locs._is_xpu is False and locs.assign_extend_cache_locs == 1
    monkeypatch.setattr(absent_packages, "wanted", lambda: ["sgl_kernel"])
    slots.install_on_gpu()
    assert locs._is_xpu is True, "its trees are the stand-in's"


@pytest.mark.parametrize(("imported", "there"), [(True, False), (False, True), (False, False)])
def test_the_package_of_binaries_is_named_where_it_is_absent(
    modules: Modules, monkeypatch: pytest.MonkeyPatch, imported: bool, there: bool
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: asked.append(name) or (there or None))  # type: ignore[func-returns-value]
    if imported:
        modules.put("sgl_kernel")
    slots.without_binaries()
    made = modules.found.get("sgl_kernel.speculative")
    assert (made is not None) is not (imported or there)
    assert made is None or vars(made)["reconstruct_indices_from_tree_mask"] is None
    assert asked == ["sgl_kernel"] * (not imported)


def test_a_server_is_asked_for_as_on_a_gpu(modules: Modules, tmp_path: Path) -> None:
    found = engine(modules, tmp_path).found
    hook = found["sglang.srt.arg_groups.speculative_hook"]
    model = found["sglang.srt.models.qwen2_5_vl"].Qwen2_5_VLForConditionalGeneration
    slots.speculate_as_on_gpu()
    view = hook.resolving_view(SimpleNamespace(device="cpu", topk=4))
    assert (view.device, view.topk) == ("cuda", 4)
    with pytest.raises(AttributeError):
        _ = view.other
    assert hook.DRAFT_ATTENTION_BACKEND_CHOICES == ["triton", "torch_native"]
    assert model.set_dflash_layers_to_capture is slots.nothing
    model.set_dflash_layers_to_capture = "its own"
    slots.speculate_as_on_gpu()
    assert hook.DRAFT_ATTENTION_BACKEND_CHOICES == ["triton", "torch_native"]
    assert model.set_dflash_layers_to_capture == "its own"
    del hook.resolving_view, hook.DRAFT_ATTENTION_BACKEND_CHOICES
    slots.speculate_as_on_gpu()


def test_a_padded_rows_length_is_tritons_where_the_plain_backend_says_none(modules: Modules, tmp_path: Path) -> None:
    found = engine(modules, tmp_path).found
    native = found["sglang.srt.layers.attention.torch_native_backend"].TorchNativeAttnBackend
    triton = found["sglang.srt.layers.attention.triton_backend"].TritonAttnBackend
    slots.plan_as_triton()
    assert native().get_cuda_graph_seq_len_fill_value() == 1
    native.get_cuda_graph_seq_len_fill_value = lambda self: 5
    slots.plan_as_triton()
    assert native().get_cuda_graph_seq_len_fill_value() == 5, "its own"
    del native.get_cuda_graph_seq_len_fill_value, triton.get_cuda_graph_seq_len_fill_value
    slots.plan_as_triton()
    assert not hasattr(native, "get_cuda_graph_seq_len_fill_value")


def test_memory_that_a_gpu_can_reach_is_plain_memory(modules: Modules, tmp_path: Path) -> None:
    found = engine(modules, tmp_path).found
    fake = found["torch"]
    pool = modules.put("sglang.srt.mem_cache.memory_pool_host", __file__=str(tmp_path / "host_b.py"))
    slots.on_the_host()
    reserved = [name for name, one in found.items() if getattr(one, "HICACHE_HOST_MEMORY_RESERVE_BYTES", 0)]
    assert reserved == ["elsewhere"]
    cpu = [name for name, one in found.items() if getattr(one, "device_module", None) is fake.cpu]
    assert cpu == ["sglang.srt.mem_cache.other"] and found["sglang.srt.own"].device_module == "another"
    for one in (fake.cpu.Stream.synchronize, fake.Tensor.record_stream, fake.cuda.synchronize):
        assert one is slots.nothing
    assert fake.distributed.all_reduce is slots.nothing
    assert fake.tensor([1], pin_memory=True, dtype=2) == (([1],), {"dtype": 2})
    assert found["pool.host_a"].transfer_kv_direct == "its own"
    assert found["pool.host_a"].transfer_kv_all_layer is slots.nothing
    assert pool.transfer_kv_direct is pool.transfer_kv_all_layer is slots.nothing
    assert set(vars(found["pool.common"])) == {"__file__"}


def test_a_stream_that_can_be_waited_for_is_left_alone(modules: Modules, tmp_path: Path) -> None:
    found = engine(modules, tmp_path).found
    found["torch"].cpu.Stream.synchronize = "its own"
    del found["sglang.srt.mem_cache.pool_host.common"]._cuda_host_register
    slots.on_the_host()
    assert found["torch"].cpu.Stream.synchronize == "its own"
    assert not hasattr(found["sglang.srt.mem_cache.pool_host.common"], "_cuda_host_register")


@pytest.mark.parametrize(("steps", "backends"), [(0, 1), (1, 1), (3, 3)])
def test_a_drafts_backend_is_the_plain_one_for_each_step(modules: Modules, steps: int, backends: int) -> None:
    class Native:
        def __init__(self, runner: Any) -> None:
            self.runner = runner

    modules.put("sglang.srt.layers.attention.torch_native_backend", TorchNativeAttnBackend=Native)
    runner = SimpleNamespace(kv_index_translator="its own")
    made = slots.draft_backend(SimpleNamespace(draft_model_runner=runner, speculative_num_steps=steps), 1, more=2)
    assert len(made.attn_backends) == backends and len({id(one) for one in (made, *made.attn_backends)}) == backends + 1
    for one in (made, *made.attn_backends):
        assert (one.runner, one.kv_index_translator) == (runner, "its own")
        assert one.prefill_attention_backend_str == one.decode_attention_backend_str == "torch_native"
    plain = SimpleNamespace(draft_model_runner=SimpleNamespace(), speculative_num_steps=1)
    assert slots.draft_backend(plain).kv_index_translator is None


def test_why_a_release_cannot_be_started_so(modules: Modules) -> None:
    assert slots.lacking({}) == ""
    assert slots.lacking({"speculative_algorithm": "EAGLE"}).endswith("drafted trees in a compiled kernel alone")
    modules.put(f"{SPECULATIVE}.eagle_utils", sgl_build_tree_kernel_triton=1)
    assert slots.lacking({"speculative_algorithm": "EAGLE"}) == slots.lacking({"speculative_algorithm": "NGRAM"}) == ""
    modules.put(f"{SPECULATIVE}.ngram_worker", reconstruct_indices_from_tree_mask=1)
    assert slots.lacking({"speculative_algorithm": "EAGLE"}) == ""
    assert slots.lacking({"speculative_algorithm": "NGRAM"}).endswith("n-gram trees in a compiled kernel alone")
    del modules.found[f"{SPECULATIVE}.eagle_utils"]
    modules.put("sglang.kernels.ops.speculative.spec_tree", sgl_build_tree_kernel_triton=1)
    assert slots.lacking({"speculative_algorithm": "EAGLE"}) == ""


def test_a_module_that_a_release_lacks_is_none() -> None:
    assert slots._module("ropecheck.no_such_module") is None
    assert slots._module("json") is importlib.import_module("json")
