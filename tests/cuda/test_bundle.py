"""What is packed, what is left out, and how the runner inside behaves on hosts that cannot run it."""

from __future__ import annotations

import json
import lzma
import subprocess
import sys
import tarfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from ropecheck.conformance.bundle import pack as bundle
from ropecheck.conformance.bundle import parts as bundle_parts
from ropecheck.conformance.bundle import runner as bundle_runner
from ropecheck.conformance.bundle.runner import Manifest, TargetEntry, Unusable
from ropecheck.conformance.cli import bundle as cli_bundle
from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.targets.pip_overlay import ProvisionError
from ropecheck.conformance.targets.provisioned import Record

ROOT = Path(__file__).parents[2]
HERE = "{}.{}".format(*sys.version_info[:2])


@pytest.mark.parametrize(
    ("path", "goes"),
    [
        ("sglang/srt/server_args.py", True),
        ("sglang/kernels/jit/csrc/elementwise/clamp_position.cuh", True),
        ("tokenizers/tokenizers.abi3.so", True),
        ("sglang/multimodal_gen/runtime/x.py", False),
        ("sglang/test/runners.py", False),
        ("sglang/srt/grpc/_core.cpython-311-x86_64-linux-gnu.so", False),
        ("sglang/srt/__pycache__/a.pyc", False),
        ("../../../bin/sglang", False),
    ],
)
def test_what_travels_of_an_engine(path: str, goes: bool) -> None:
    assert bundle_parts.travels(path) is goes


@pytest.mark.parametrize(
    ("path", "goes"),
    [
        ("sgl_kernel/__init__.py", True),
        ("sglang_kernel-0.4.5.dist-info/METADATA", True),
        ("sgl_kernel/sm90/common_ops.abi3.so", True),
        ("sgl_kernel/sm100/common_ops.abi3.so", False),
        ("sgl_kernel/flash_ops.abi3.so", False),
        ("triton_kernels/matmul_ogs.py", False),
        ("sgl_kernel/", False),
    ],
)
def test_what_travels_of_a_kernel_wheel(path: str, goes: bool) -> None:
    assert bundle_parts.kernel_travels(path, "90") is goes


def test_kernels_only_for_the_torch_that_a_release_pins(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ("torch==2.11.0", "sglang-kernel==0.4.5; platform_machine == 'x86_64'", "torch==2.9.1; extra == 'old'")
    monkeypatch.setattr(bundle_parts, "requirements_of", lambda record: lines)
    record = Record(name="sglang==0.5.17", kind="release", version="0.5.17", python="", tag=HERE)
    assert bundle_parts.kernel_of(record, "2.11") == "sglang-kernel==0.4.5"
    assert bundle_parts.kernel_of(record, "2.1") == ""
    assert bundle_parts.kernel_of(record, "") == ""


def test_the_host_keeps_its_torch_and_what_it_has() -> None:
    wanted = bundle_parts.common_packages(("numpy",))
    assert "msgspec" in wanted and "hypothesis" in wanted
    assert not {"torch", "triton", "numpy", "sglang", "nvidia-cublas", "jedi"} & set(wanted)


def test_equal_files_are_packed_once_and_near_ones_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("same")
    (tmp_path / "b").write_text("other")
    members = [
        bundle.ArchiveMember(f"{bundle_runner.ROOT}/{name}", tmp_path / file)
        for name, file in (
            ("targets/2/site/x/one.py", "a"),
            ("targets/1/site/x/two.py", "b"),
            ("targets/1/site/x/one.py", "a"),
        )
    ]
    out = tmp_path / "made.tar.xz"
    manifest = Manifest(suite="s", python=HERE, targets=(TargetEntry(name="t"),))
    unpacked, links = bundle.pack(members, manifest, out)
    assert (unpacked, links) == (len("same") + len("other"), 1)
    with lzma.open(out) as stream, tarfile.open(fileobj=stream) as archive:
        names = archive.getnames()
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # CPython before 3.11.4 has none
        archive.extractall(tmp_path / "there")
    assert [name.rpartition("/")[2] for name in names] == [bundle_runner.MANIFEST, "one.py", "one.py", "two.py"]
    there = tmp_path / "there" / bundle_runner.ROOT
    assert (there / "targets/2/site/x/one.py").read_text() == "same"
    assert bundle_runner.read_manifest(there / bundle_runner.MANIFEST) == manifest


@pytest.mark.parametrize(("guess", "told"), [(1.0, "would be about 1 MB"), (0.0, "the archive is 0")])
def test_an_archive_over_the_budget_is_not_written(
    guess: float, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Said before it is packed, where the guess is sure of it."""
    source = tmp_path / "blob"
    source.write_bytes(bytes(range(256)) * 4)
    manifest = Manifest(suite="s", python=HERE)
    monkeypatch.setattr(bundle, "collect", lambda *_: ([bundle.ArchiveMember("r/site/blob/x", source)], manifest))
    monkeypatch.setattr(bundle, "guessed", lambda *_: guess)
    out, said = tmp_path / "made.tar.xz", list[str]()
    with pytest.raises(ProvisionError, match=f"{told}.*nothing was written"):
        bundle.make(bundle.PackOptions(targets=("t",), python=HERE, max_megabytes=0.0001), out, said.append)
    assert said == ([] if guess else ["packing 1 files, to about 0 MB"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blob"]


def test_a_guess_is_near_what_is_packed(tmp_path: Path) -> None:
    members = list(bundle.suite_members())
    guess = bundle.guessed(members, tmp_path / "some", 1)
    bundle.pack(members, None, tmp_path / "all", 1)
    assert guess / bundle.SURE < (tmp_path / "all").stat().st_size / 1e6 < guess * bundle.SURE


@pytest.mark.parametrize(
    "arguments",
    [
        {"python": "3"},
        {"torch": "2"},
        {"arch": "h100"},
        {"targets": " , "},
        {"host_has": ["a b/"]},
    ],
)
def test_bad_options_are_one_line(arguments: dict[str, Any], tmp_path: Path) -> None:
    given: dict[str, Any] = {"targets": "sglang==0.5.23", "out": tmp_path / "x", "python": "3.12"} | arguments
    with pytest.raises(UsageError):
        cli_bundle.make(**given)


# ---------------------------------------------------------------- the runner inside


def unpacked(tmp_path: Path, **fields: Any) -> Path:
    """A bundle's folder with this manifest, around the suite of this tree."""
    folder = tmp_path / bundle_runner.ROOT
    folder.mkdir()
    (folder / "suite").symlink_to(ROOT)
    (folder / "site").mkdir()
    (folder / "run.py").write_bytes((ROOT / "conformance" / "bundle" / "runner.py").read_bytes())
    manifest = Manifest(**{"suite": "s", "python": HERE, "targets": (TargetEntry(name="reference"),), **fields})
    (folder / bundle_runner.MANIFEST).write_text(json.dumps(asdict(manifest)))
    return folder


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(folder / "run.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_another_python_is_one_line_and_exit_3(tmp_path: Path) -> None:
    done = run(unpacked(tmp_path, python="3.7"))
    assert done.returncode == 3
    assert done.stderr.strip() == f"run.py: this bundle is for Python 3.7, not {HERE}: make it with --python {HERE}"


def test_a_torn_manifest_is_one_line_and_exit_3(tmp_path: Path) -> None:
    folder = unpacked(tmp_path)
    (folder / bundle_runner.MANIFEST).write_text("{")
    done = run(folder)
    assert done.returncode == 3 and "no readable manifest" in done.stderr and len(done.stderr.splitlines()) == 1


def test_an_unknown_target_is_one_line_and_exit_3(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = run(unpacked(tmp_path), "--target", "nothing")
    assert done.returncode == 3 and "no target 'nothing' in this bundle; it has: reference" in done.stderr


def test_without_a_gpu_it_runs_on_the_host_or_says_why_not(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this host has a GPU")
    folder = unpacked(tmp_path)
    insisted = run(folder, "--device", "cuda")
    assert insisted.returncode == 3 and len(insisted.stderr.splitlines()) == 1
    out = tmp_path / "out"
    done = run(folder, "--out", str(out), "--phase", "laws", "--workers", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "running on the CPU instead" in done.stderr
    report = json.loads((out / "reference" / "report.json").read_text())
    assert report["totals"]["failed"] == 0 and report["totals"]["passed"]
    assert (out / "reference" / "junit.xml").is_file()
    assert "| reference |" in (out / "summary.md").read_text() and (out / "costs.md").is_file()
    assert run(folder, "--device", "cpu", "--out", str(out), "--workers", "1", "--fuzz", "7", "1").returncode == 0
    report = json.loads((out / "reference" / "report.json").read_text())
    assert (report["seed"], report["totals"]["scenarios"]) == (7, 75)


@pytest.mark.parametrize(("codes", "worst"), [((0, 0), 0), ((0, 3, 1), 1), ((3, 0), 3), ((4, 0), 4), ((9,), 9)])
def test_the_worst_exit_code_counts(codes: tuple[int, ...], worst: int) -> None:
    assert bundle_runner.worst(codes) == worst


def test_the_device_asked_for() -> None:
    assert bundle_runner.chosen_device("auto", {"problem": ""}) == "cuda"
    assert bundle_runner.chosen_device("cpu", {"problem": ""}) == "cpu"
    with pytest.raises(Unusable, match="no GPU"):
        bundle_runner.chosen_device("cuda", {"problem": "no GPU"})
