"""What goes into a bundle: a target's files, its compiled kernels cut to one GPU, and the common packages as wheels for
the host's Python."""

import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Protocol

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ropecheck.conformance.errors import toml_of
from ropecheck.conformance.targets import pip_overlay
from ropecheck.conformance.targets.pip_overlay import ProvisionError
from ropecheck.conformance.targets.provisioned import Record, folder_of

LEFT_OUT = (
    "sglang/multimodal_gen",
    "sglang/test",
    "sglang/benchmark",
    "sglang/**/*.so (servers and gRPC: nothing on the way to a position table imports them)",
    "sgl_kernel: flash_ops, flashmla_ops, infllm_ops, other GPUs' common_ops",
)
"""Of the engines; the manifest repeats it."""

_UNUSED = ("sglang/multimodal_gen/", "sglang/test/", "sglang/benchmark/", "bin/", "tools/")
_FOLLOWERS = ("sglang", "transformers", "tokenizers", "huggingface-hub")


class _Packages(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names of packages; data/bundle.toml says what each list is."""

    suite: tuple[str, ...]
    engine: tuple[str, ...]
    alone: tuple[str, ...]
    from_host: tuple[str, ...]
    never_imported: tuple[str, ...]


PACKAGES = toml_of(Path(__file__).parents[1] / "data" / "bundle.toml", _Packages)


class Host(Protocol):
    """What is known of the host."""

    @property
    def python(self) -> str: ...
    @property
    def arch(self) -> str: ...


def target_files(record: Record) -> dict[str, Path]:
    """Path in the target's overlay -> file, for all that travels. Raises ProvisionError for what is no release."""
    if record.kind != "release":
        raise ProvisionError(f"{record.name}: only releases can be bundled", 2)
    if record.packages:
        site = folder_of(record.name) / "site"
        found = {str(path.relative_to(site)): path for path in sorted(site.rglob("*")) if path.is_file()}
    else:
        found = installed_files(*_FOLLOWERS)
    return {path: source for path, source in found.items() if travels(path)}


def travels(path: str) -> bool:
    """Whether a file of an engine's overlay goes into the archive."""
    if path.startswith(_UNUSED) or "__pycache__" in path or path.startswith(".."):
        return False
    return not (path.startswith("sglang/") and path.endswith(".so"))


def installed_files(*names: str) -> dict[str, Path]:
    """The files of packages of the running Python, by their path in site-packages."""
    found: dict[str, Path] = {}
    for name in names:
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        for file in distribution.files or ():
            source = Path(str(distribution.locate_file(file)))
            if source.is_file():
                found[str(file)] = source
    return found


def requirements_of(record: Record) -> tuple[str, ...]:
    """The requirement lines of the release's own metadata."""
    path = None if not record.packages else [str(folder_of(record.name) / "site")]
    found = metadata.distributions(name="sglang", path=path) if path else metadata.distributions(name="sglang")
    return tuple(line for distribution in found for line in distribution.requires or ())


def kernel_of(record: Record, torch: str) -> str:
    """The requirement of the compiled kernels that fit the host's torch, "sglang-kernel==0.4.5"; "" when none does."""
    pins: dict[str, str] = {}
    for line in requirements_of(record):
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if requirement.marker is None or requirement.marker.evaluate({"extra": "", "platform_machine": "x86_64"}):
            exact = [s.version for s in requirement.specifier if s.operator == "=="]
            pins.setdefault(canonicalize_name(requirement.name), exact[0] if exact else "")
    pinned = pins.get("torch", "")
    if not torch or not f"{pinned}.".startswith(f"{torch}."):
        return ""
    for name in ("sglang-kernel", "sgl-kernel"):
        if pins.get(name):
            return f"{name}=={pins[name]}"
    return ""


def kernel_files(requirement: str, host: Host, scratch: Path) -> dict[str, Path]:
    """The kernel wheel's files without what a position table never calls (a gigabyte of attention kernels)."""
    wheels = scratch / "kernels" / requirement
    if not wheels.is_dir():
        download([requirement], host.python, wheels)
    (wheel,) = wheels.glob("*.whl")
    folder = wheels / "unpacked"
    if not folder.is_dir():
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if kernel_travels(name, host.arch):
                    archive.extract(name, folder)
    return {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}


def kernel_travels(path: str, arch: str) -> bool:
    """Whether a file of a kernel wheel is packed: Python, metadata, and the common operations of one GPU."""
    if path.endswith("/") or path.startswith("triton_kernels/"):
        return False
    if not path.endswith(".so"):
        return path.startswith(("sgl_kernel/", "sgl_kernel-", "sglang_kernel-")) and "/testing/" not in path
    return "common_ops" in path and (f"/sm{arch}/" in path or "/sm" not in path)


def common_packages(host_has: tuple[str, ...]) -> dict[str, str]:
    """Name -> version, as installed here, of what the suite and the engines need and the host lacks."""
    have = {
        canonicalize_name(name)
        for name in (*host_has, *PACKAGES.from_host, *PACKAGES.never_imported, *closure(("torch",)))
    }
    # Torch needs these too, but they are small and versions differ: what the suite needs is packed all the same.
    wanted = closure((*PACKAGES.suite, *PACKAGES.engine))
    return {name: version for name, version in sorted(wanted.items()) if name not in have and name != "sglang"}


def closure(names: tuple[str, ...]) -> dict[str, str]:
    """The packages and all that they require, of those installed here."""
    found: dict[str, str] = {}
    queue = [canonicalize_name(name) for name in names]
    while queue:
        name = queue.pop()
        version = pip_overlay.installed(name)
        if name in found or version is None:
            continue
        found[name] = version
        if name in PACKAGES.alone:
            continue
        asked: dict[str, list[str]] = {}
        pip_overlay.add_requirements(asked, metadata.distribution(name).requires or ())
        queue += [canonicalize_name(name) for name in asked]
    return found


def unpack_wheels(packages: dict[str, str], python: str, scratch: Path) -> dict[str, Path]:
    """Path in site-packages -> file, of these packages for the host's Python."""
    if not packages:
        return {}
    wheels, folder = scratch / "wheels", scratch / "site"
    download([f"{name}=={version}" for name, version in packages.items()], python, wheels)
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    for data in folder.glob("*.data/purelib"):
        for path in data.rglob("*"):
            if path.is_file():
                at = folder / path.relative_to(data)
                at.parent.mkdir(parents=True, exist_ok=True)
                path.replace(at)
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path for path in files if ".data/" not in str(path)}


def download(requirements: list[str], python: str, folder: Path) -> None:
    """Wheels of exactly these packages for x86-64 Linux and another Python. Raises ProvisionError."""
    platforms = [f"manylinux_2_{glibc}_x86_64" for glibc in (39, 35, 34, 31, 28, 27, 24, 17, 12, 5)]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
    command += ["--python-version", python, "--implementation", "cp", "--dest", str(folder)]
    for platform in (*platforms, "manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64"):
        command += ["--platform", platform]
    folder.mkdir(parents=True, exist_ok=True)
    done = subprocess.run([*command, *requirements], capture_output=True, text=True, check=False)
    if done.returncode:
        raise pip_overlay.explain(requirements, done.stdout + done.stderr)
