"""How a scheduler is started, by release: arguments, ranks, checkpoints, drafts, stages of a pipeline. No engine:
modules that have its names, and note what they are given."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from ropecheck.adapters.play import ServerConfig
from ropecheck.adapters.sglang import absent_packages, boot, native
from ropecheck.adapters.sglang.scheduler import build, drafts, slots, stages


class Arguments:
    """ServerArgs of a release."""

    def __init__(
        self,
        model_path: str,
        device: str,
        load_format: str,
        attention_backend: str,
        chunked_prefill_size: int,
        pp_size: int = 1,
        enable_two_batch_overlap: bool = False,
        speculative_algorithm: str = "",
        speculative_draft_model_path: str = "",
        speculative_draft_load_format: str = "",
        speculative_dspark_sps_table_path: str = "",
    ) -> None:
        self.__dict__.update({name: value for name, value in locals().items() if name != "self"})


class Scheduler:
    """Notes what it is built from."""

    def __init__(self, server_args: Any, port_args: Any, gpu_id: int = 5, tp_rank: int = 5, dp_rank: int = 5) -> None:
        self.server_args, self.port_args, self.ranks = server_args, port_args, (gpu_id, tp_rank, dp_rank)
        self.pp_group = SimpleNamespace(rank=0)


class Release:
    """Modules of a release, and what happened. published: what of the configuration it publishes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.happened: list[Any] = []
        self.context: Any = SimpleNamespace(
            SpawnRanks=lambda **ranks: ("ranks", ranks),
            spawn_world_rank=lambda arguments, **ranks: ("world", ranks),
            publish=lambda arguments, **how: self.happened.append(("publish", how)),
            get_parallel=lambda: SimpleNamespace(override=self._override),
        )
        self.scheduler = ModuleType("scheduler")
        self.scheduler.Scheduler = Scheduler  # type: ignore[attr-defined]
        self.scheduler.initialize_moe_config = lambda: self.happened.append("experts")  # type: ignore[attr-defined]
        ports = SimpleNamespace(init_new=lambda arguments: ("ports", arguments))
        arguments = SimpleNamespace(ServerArgs=Arguments, PortArgs=ports)
        self.bootstrap = SimpleNamespace(init_parallel_runtime=lambda *args, **given: ("parallel", args, given))
        self.runner = SimpleNamespace(ModelRunner=SimpleNamespace(initialize=lambda *args: ("model", args)))
        self.modules = {
            "sglang.srt.server_args": arguments,
            "sglang.srt.managers.scheduler": self.scheduler,
            "sglang.srt.distributed.bootstrap": self.bootstrap,
            "sglang.srt.model_executor.model_runner": self.runner,
            "sglang.srt.runtime_context": self.context,
            "sglang.srt.environ": SimpleNamespace(),
        }
        self.inside: list[int] = []
        for name, module in self.modules.items():
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr(boot, "optional", lambda name: self.modules.get(name))

    @contextlib.contextmanager
    def _override(self, pp_size: int) -> Iterator[None]:
        self.inside.append(pp_size)
        yield
        self.inside.append(0)


@pytest.fixture
def release(monkeypatch: pytest.MonkeyPatch) -> Release:
    return Release(monkeypatch)


def config(**arguments: Any) -> ServerConfig:
    return ServerConfig("a", arguments)


def test_a_server_has_our_arguments_as_far_as_there_are_such_and_its_own_over_them(release: Release) -> None:
    made = build.build(config(chunked_prefill_size=7))
    given = made.server_args
    assert (given.load_format, given.device, given.attention_backend) == ("dummy", "cpu", "torch_native")
    assert given.chunked_prefill_size == 7 and made.port_args == ("ports", given)
    assert build.build(config()).server_args.chunked_prefill_size == 32
    checkpoint = json.loads((Path(given.model_path) / "config.json").read_text())
    assert checkpoint["vocab_size"] == build.VOCABULARY and checkpoint["eos_token_id"] == build.STOP
    assert {name: checkpoint[f"{name}_token_id"] for name in ("image", "video")} == build.PLACEHOLDERS
    on_gpu = build.build(config(), "cuda").server_args
    assert (on_gpu.device, on_gpu.attention_backend) == ("cuda", "triton")


def test_an_argument_that_a_release_lacks_is_named(release: Release) -> None:
    with pytest.raises(build.NoSuchArgument, match=r"has no argument another$"):
        build.build(config(no_such=1, another=2, pp_size=1))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_what_cannot_be_started_is_not_tried(release: Release, monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """Stand-ins of a CPU are asked about on a CPU alone."""
    monkeypatch.setattr(slots, "lacking", lambda arguments: "no kernel")
    monkeypatch.setattr(drafts, "lacking", lambda name, on: f"no draft {name} on {on}" if name else "")
    monkeypatch.setattr(stages, "lacking", lambda arguments: "no stages" if "pp_size" in arguments else "")
    draft = ServerConfig("a", {"pp_size": 2}, draft="d")
    with pytest.raises(build.NoSuchArgument, match="no kernel" if device == "cpu" else "no draft d on cuda"):
        build.build(draft, device)
    if device == "cuda":
        with pytest.raises(build.NoSuchArgument, match="no stages"):
            build.build(config(pp_size=2), device)
        assert build.build(config(), device)


def test_by_release_ranks_are_published_or_the_constructors(release: Release) -> None:
    made = build.build(config())
    world = ("world", {"tp_rank": 0, "pp_rank": 0})
    ranks = ("ranks", {"world_rank": world, "dp_rank": None, "gpu_id": 0})
    assert release.happened == [("publish", {"role": "scheduler", "ranks": ranks})] and made.ranks == (5, 5, 5)
    del release.context.SpawnRanks
    release.happened.clear()
    assert build.build(config()).ranks == (0, 0, None)
    assert release.happened == [("publish", {"role": "scheduler"})]
    del release.context.publish
    assert build.build(config()).ranks == (0, 0, None) and len(release.happened) == 1


def test_two_batches_ask_for_what_a_model_with_experts_does(release: Release) -> None:
    build.build(config(enable_two_batch_overlap=True))
    assert release.happened[1:] == ["experts"]


def test_a_draft_is_a_checkpoint_of_its_own_and_files_lie_beside_it(
    release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drafts, "lacking", lambda name, device: "")
    given = build.build(ServerConfig("a", {"speculative_algorithm": ""}, draft="dspark_table")).server_args
    folder = Path(given.speculative_draft_model_path)
    assert given.speculative_draft_load_format == "dummy" and folder != Path(given.model_path)
    draft = json.loads((folder / "config.json").read_text())
    assert draft == drafts.config("dspark_table", build._MODEL) and draft["hidden_size"] == build.HIDDEN
    table = Path(given.speculative_dspark_sps_table_path)
    assert table.parent == folder and json.loads(table.read_text())["max_batch_tokens"] == 64
    assert build.build(config()).server_args.speculative_draft_model_path == ""


def test_switches_that_were_read_at_the_import_are_read_again(
    release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch = {"SGLANG_TEST_RETRACT": True, "SGLANG_TEST_RETRACT_INTERVAL": 3}
    envs = SimpleNamespace(**{name: SimpleNamespace(get=lambda value=value: value) for name, value in switch.items()})
    monkeypatch.setitem(sys.modules, "sglang.srt.environ", SimpleNamespace(envs=envs))
    scheduler: Any = release.scheduler
    scheduler.TEST_RETRACT, scheduler.TEST_RETRACT_INTERVAL = False, 1
    build.build(config())
    assert (scheduler.TEST_RETRACT, scheduler.TEST_RETRACT_INTERVAL) == (True, 3)
    assert not hasattr(scheduler, "TEST_RETRACT_NO_PREFILL_BS")


# ---------------------------------------------------------------- imports


@pytest.fixture
def loading(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done before any scheduler is built, in its order."""
    happened: list[str] = []
    missing = {*build.MODULES[2:4], "gone"}

    def fake(name: str) -> Any:
        happened.append(name)
        if name in missing:
            raise ImportError(name)
        return SimpleNamespace()

    monkeypatch.setattr(importlib, "import_module", fake)
    monkeypatch.setattr(absent_packages, "stand_in_empty", lambda *names: happened.extend(names))
    monkeypatch.setattr(native, "without_dual_gemm", lambda: happened.append("no dual gemm"))
    monkeypatch.setattr(slots, "install", lambda: happened.append("on a CPU"))
    monkeypatch.setattr(slots, "install_on_gpu", lambda: happened.append("on a GPU"))
    return happened


@pytest.mark.parametrize(("device", "last"), [("cpu", "on a CPU"), ("cuda", "on a GPU")])
def test_everything_is_imported_once_before_any_fork(loading: list[str], device: str, last: str) -> None:
    build.load(device)
    assert loading == ["vllm", "no dual gemm", *build.MODULES, last]


def test_what_a_release_cannot_do_without_is_missed(loading: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "MODULES", (build.MODULES[0], "gone", *build.MODULES[2:]))
    with pytest.raises(ImportError, match="gone"):
        build.load()
    assert loading[-1] == "gone", "nothing is exchanged then"


# ---------------------------------------------------------------- drafts


@pytest.mark.parametrize(
    ("name", "device", "absent", "why"),
    [
        ("eagle", "cuda", "", ""),
        ("", "cpu", "", ""),
        ("dspark", "cpu", "", ""),
        ("dspark", "cuda", "", "the toy draft of dspark_components has been tried on a CPU alone"),
        ("dspark_table", "cpu", "dspark_components", "this release has no dspark_components"),
        ("frozen_kv", "cpu", "spec_sampling_mask", "has been tried from 0.5.22 on"),
        ("frozen_kv", "cpu", "dspark_components", ""),
    ],
)
def test_why_a_draft_cannot_be_had(
    monkeypatch: pytest.MonkeyPatch, name: str, device: str, absent: str, why: str
) -> None:
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda module: None if module == f"sglang.srt.speculative.{absent}" else module
    )
    found = drafts.lacking(name, device)
    assert found.endswith(why) and bool(found) == bool(why)


TARGET = {
    "architectures": ["Target"],
    "hidden_size": 64,
    "vocab_size": 512,
    "rope_scaling": {"type": "mrope"},
    "vision_config": {"depth": 1},
    "image_token_id": 505,
    "video_token_id": 506,
}


@pytest.mark.parametrize("name", ["eagle", "eagle3", "dflash", "dspark", "dspark_table"])
def test_a_draft_is_as_wide_as_its_target_and_sees_no_pictures(name: str) -> None:
    made = drafts.config(name, TARGET)
    assert (made["hidden_size"], made["vocab_size"]) == (64, 512)
    assert not [key for key in made if key.startswith(("vision", "image", "video"))]
    assert made["architectures"] != ["Target"]
    assert ("rope_scaling" in made) == name.startswith("eagle")


def test_a_standalone_draft_is_the_target_and_another_name_is_none() -> None:
    assert drafts.config("standalone", TARGET) == TARGET
    with pytest.raises(KeyError):
        drafts.config("no_such_draft", TARGET)
    assert drafts.files("dspark") == {} and list(drafts.files("dspark_table")) == ["speculative_dspark_sps_table_path"]


class Head:
    """The engine's one-layer head."""

    def __init__(self, config: Any, prefix: str = "") -> None:
        self.config, self.prefix = config, prefix


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Models that the engine finds by name."""
    models: dict[str, Any] = {}
    monkeypatch.setitem(
        sys.modules,
        "sglang.srt.models.registry",
        SimpleNamespace(ModelRegistry=SimpleNamespace(models=models)),
    )
    monkeypatch.setitem(
        sys.modules,
        "sglang.srt.models.llama_eagle",
        SimpleNamespace(LlamaForCausalLMEagle=Head),
    )
    info = SimpleNamespace(FrozenKVMTPContext=lambda pool, layers: (pool, layers))
    monkeypatch.setitem(sys.modules, "sglang.srt.speculative.frozen_kv_mtp_info", info)
    return models


def test_a_layer_of_a_draft_is_the_engines_head_and_takes_its_number(registry: dict[str, Any]) -> None:
    made = drafts.config("eagle_layers", TARGET)
    (name,) = made["architectures"]
    layer = registry[name](draft_model_idx=2, config="c", prefix="p")
    assert isinstance(layer, Head) and (layer.config, layer.prefix) == ("c", "p")


def test_a_draft_that_shares_the_targets_cache_is_told_of_it(registry: dict[str, Any]) -> None:
    (name,) = drafts.config("frozen_kv", TARGET)["architectures"]
    head: Any = registry[name](config=SimpleNamespace(hidden_size=64))
    assert Head in type(head).__mro__ and head.backbone_hidden_size == 64
    assert head.build_frozen_kv_mtp_context(None, "pool") == ("pool", {0: 0})
    assert head.bind_frozen_kv_context(None) is None
    assert name != drafts.config("eagle_layers", TARGET)["architectures"][0]


# ---------------------------------------------------------------- stages


def test_what_a_stage_sends_comes_back_in_its_order_as_it_was() -> None:
    ring = stages.Ring(SimpleNamespace(rank=3))
    assert ring.rank == 3
    first = {"a": 1}
    assert ring.send_tensor_dict(first, all_gather_group=None) == []
    first["a"] = 2
    ring.send_tensor_dict(tensor_dict={"b": 3})
    assert [ring.recv_tensor_dict(all_gather_group=None), ring.recv_tensor_dict()] == [{"a": 1}, {"b": 3}]


def test_a_pipeline_in_one_process_is_of_a_release_that_divides_so(
    release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stages.lacking({}) == stages.lacking({"pp_size": 1}) == stages.lacking({"pp_size": 2}) == ""
    del release.bootstrap.init_parallel_runtime
    assert stages.lacking({"pp_size": 2}).endswith("from 0.5.23 on")
    assert stages.lacking({}) == stages.lacking({"pp_size": 1}) == ""
    monkeypatch.setattr(stages, "ONE_STAGE", (("ropecheck.no_such_module", "", "x"),))
    assert stages.lacking({"pp_size": 2}).endswith("from 0.5.23 on")


def test_a_pipelines_only_rank_has_every_layer_and_hears_itself(release: Release) -> None:
    scheduler: Any = release.scheduler
    scheduler.Scheduler = type("Own", (Scheduler,), {"maybe_init_draft_worker": lambda self: "draft"})
    made = build.build(config(pp_size=2))
    assert isinstance(made.pp_group, stages.Ring) and made.pp_group.rank == 0
    assert made.server_args.pp_size == 2 and release.inside == []
    assert release.bootstrap.init_parallel_runtime(1, more=2) == ("parallel", (1,), {"more": 2})
    assert release.inside == [1, 0]
    assert release.runner.ModelRunner.initialize(3) == ("model", (3,))
    assert made.maybe_init_draft_worker() == "draft"
    assert release.inside == [1, 0] * 3
    assert not isinstance(build.build(config()).pp_group, stages.Ring)
