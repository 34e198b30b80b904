"""One archive with the suite, several engine releases and the packages that a GPU host lacks, for hosts without a
network. `runner.py` travels inside as `run.py`; it needs only the host's Python and torch.

Releases share most of their bytes: equal files become hard links, and files of one path stand side by side, where the
compressor sees that they are nearly equal.
"""

import hashlib
import io
import lzma
import math
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import msgspec

import ropecheck
from ropecheck.conformance.bundle import parts as parts
from ropecheck.conformance.bundle.runner import MANIFEST, ROOT, Manifest, TargetEntry
from ropecheck.conformance.store.files import pretty
from ropecheck.conformance.targets import provision
from ropecheck.conformance.targets.pip_overlay import ProvisionError
from ropecheck.conformance.targets.provisioned import RECORD, Record, folder_of
from ropecheck.conformance.version import spec_hash, suite_version

DICTIONARY = 64 << 20
"""Bytes that the compressor looks back. Equal and nearly equal files stand together, so this is plenty."""

SAMPLE = 8
"""One path in so many is packed to guess how large the archive will be."""

SURE = 1.25
"""How far above what is allowed the guess must be to be believed."""

SUITE = ("spec", "reference", "conformance", "adapters")

Say = Callable[[str], None]


class PackOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for."""

    targets: tuple[str, ...]
    python: str
    """The host's Python, "3.12"."""
    torch: str = ""
    """The host's torch, "2.11": releases that pin it bring their compiled kernels; "": none does."""
    arch: str = "90"
    """The host's GPU: compute capability without the dot."""
    host_has: tuple[str, ...] = ()
    """Packages that the host has already, beside torch and what torch needs."""
    max_megabytes: float = 0.0
    """Largest archive that is accepted; 0: any."""
    level: int = 3
    """1 (fast) to 9 (small)."""


class ArchiveMember(msgspec.Struct, frozen=True):
    """A file of the archive: its name there, and where it is now."""

    name: str
    source: Path


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """What was packed."""

    megabytes: float
    unpacked: float
    files: int
    links: int
    manifest: Manifest


def make(options: PackOptions, out: Path, say: Say = lambda _: None) -> Made:
    """Write the archive. Raises ProvisionError, also when it is larger than asked for: then nothing is written."""
    with tempfile.TemporaryDirectory(prefix="ropecheck-bundle-") as scratch:
        members, manifest = collect(options, Path(scratch), say)
        temporary = out.with_name(f".{out.name}.part")
        allowed = options.max_megabytes or math.inf
        largest = ", ".join(f"{name} {size / 1e6:.0f} MB" for name, size in biggest(members)[:6])
        advice = (
            f"{allowed:g} were allowed; nothing was written. "
            f"Unpacked: {largest}. Name fewer targets, or more packages with --host-has"
        )
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            guess = guessed(members, temporary, options.level)
            if guess > SURE * allowed:
                raise ProvisionError(f"the archive would be about {guess:.0f} MB, {advice}", 2)
            doubt = ", which may be more than is allowed" if guess * SURE > allowed else ""
            say(f"packing {len(members)} files, to about {guess:.0f} MB{doubt}")
            unpacked, links = pack(members, manifest, temporary, options.level)
            megabytes = temporary.stat().st_size / 1e6
            if megabytes > allowed:
                raise ProvisionError(f"the archive is {megabytes:.1f} MB, {advice}", 2)
            temporary.replace(out)
        except OSError as error:
            raise ProvisionError(f"{out}: {error.strerror or error}") from error
        finally:
            temporary.unlink(missing_ok=True)
    return Made(megabytes=megabytes, unpacked=unpacked / 1e6, files=len(members), links=links, manifest=manifest)


def collect(options: PackOptions, scratch: Path, say: Say = lambda _: None) -> tuple[list[ArchiveMember], Manifest]:
    """Every file of the archive, and what its manifest says. `scratch` is for wheels. Raises ProvisionError."""
    entries: list[TargetEntry] = []
    members = list(suite_members())
    for name in dict.fromkeys(options.targets):
        record = provision.add(name, say=say)
        files = parts.target_files(record)
        where = f"{ROOT}/suite/.ropecheck/targets/{folder_of(record.name).name}"
        members += [ArchiveMember(f"{where}/site/{path}", source) for path, source in files.items()]
        kernel = parts.kernel_of(record, options.torch)
        if kernel:
            say(f"{name}: {kernel}, trimmed to sm{options.arch}")
            members += [
                ArchiveMember(f"{where}/site/{path}", source)
                for path, source in parts.kernel_files(kernel, options, scratch).items()
            ]
        packages = record.packages or {"sglang": record.version}
        moved = Record(
            name=record.name,
            kind="release",
            version=record.version,
            python="",
            tag=options.python,
            paths=("site",),
            packages=packages,
        )
        at = scratch / f"{folder_of(record.name).name}.json"
        at.write_bytes(pretty(moved))
        members.append(ArchiveMember(f"{where}/{RECORD}", at))
        entries.append(TargetEntry(name=record.name, kernel=kernel, stand_ins=() if kernel else ("sgl_kernel",)))
    about = scratch / "METADATA"
    about.write_text(f"Metadata-Version: 2.1\nName: ropecheck\nVersion: {suite_version()}\n", encoding="utf-8")
    members.append(ArchiveMember(f"{ROOT}/suite/ropecheck-{suite_version()}.dist-info/METADATA", about))
    wanted = parts.common_packages(options.host_has)
    say(f"{len(wanted)} packages for Python {options.python}")
    site = parts.unpack_wheels(wanted, options.python, scratch)
    members += [ArchiveMember(f"{ROOT}/site/{path}", source) for path, source in site.items()]
    manifest = Manifest(
        suite=f"{suite_version()} spec {spec_hash()}",
        python=options.python,
        torch=options.torch,
        arch=options.arch,
        targets=tuple(entries),
        packages=wanted,
        host_has=tuple(sorted(options.host_has)),
        left_out=parts.LEFT_OUT,
    )
    return members, manifest


def suite_members() -> Iterator[ArchiveMember]:
    """The suite's own files, without tests and documentation, and the runner at the archive's top."""
    root = Path(__file__).resolve().parents[2]
    for package in SUITE:
        for path in sorted((root / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield ArchiveMember(f"{ROOT}/suite/ropecheck/{path.relative_to(root)}", path)
    for path in sorted(Path(ropecheck.__file__).parent.glob("*.py")):
        yield ArchiveMember(f"{ROOT}/suite/ropecheck/{path.name}", path)
    for extra in ("pyproject.toml", "LICENSE"):
        if (root / extra).is_file():
            yield ArchiveMember(f"{ROOT}/suite/{extra}", root / extra)
    yield ArchiveMember(f"{ROOT}/run.py", root / "conformance" / "bundle" / "runner.py")


def pack(members: Iterable[ArchiveMember], manifest: Manifest | None, out: Path, level: int = 3) -> tuple[int, int]:
    """Write the archive; returns its unpacked bytes and how many files became links to an equal one."""
    filters = [{"id": lzma.FILTER_LZMA2, "preset": level, "dict_size": DICTIONARY}]
    first: dict[bytes, str] = {}
    unpacked = links = 0
    with (
        lzma.open(out, "wb", format=lzma.FORMAT_XZ, filters=filters) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        if manifest is not None:
            _add(archive, f"{ROOT}/{MANIFEST}", pretty(manifest))
        for member in sorted(members, key=_neighbours):
            data = member.source.read_bytes()
            digest = hashlib.sha256(data).digest()
            if data and digest in first:
                info = tarfile.TarInfo(member.name)
                info.type, info.linkname = tarfile.LNKTYPE, first[digest]
                archive.addfile(info)
                links += 1
                continue
            first[digest] = member.name
            unpacked += len(data)
            _add(archive, member.name, data)
    return unpacked, links


def guessed(members: Iterable[ArchiveMember], scratch: Path, level: int) -> float:
    """Megabytes that the archive will have: some of its paths, of all releases and sizes, are packed into the file
    `scratch`."""
    paths: dict[str, list[tuple[int, ArchiveMember]]] = {}
    for member in members:
        paths.setdefault(_neighbours(member)[0], []).append((member.source.stat().st_size, member))
    ordered = sorted(paths.values(), key=lambda found: -sum(size for size, _ in found))
    sample = [one for found in ordered[SAMPLE // 2 :: SAMPLE] or ordered for one in found]
    share = sum(size for size, _ in sample) / (sum(size for found in ordered for size, _ in found) or 1)
    pack((member for _, member in sample), None, scratch, level)
    return scratch.stat().st_size / (share or 1) / 1e6


def _neighbours(member: ArchiveMember) -> tuple[str, str]:
    """Files of one path in several releases stand together."""
    inside = member.name.rpartition("/site/")[2]
    return inside, member.name


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), 0o755 if name.endswith("run.py") else 0o644
    archive.addfile(info, io.BytesIO(data))


def biggest(members: Iterable[ArchiveMember]) -> list[tuple[str, int]]:
    """Unpacked bytes by package, the largest first; equal files count once."""
    sizes: dict[str, int] = {}
    seen: set[tuple[str, int]] = set()
    for member in members:
        size, inside = member.source.stat().st_size, member.name.rpartition("/site/")[2]
        if (inside, size) not in seen:
            seen.add((inside, size))
            top = inside.partition("/")[0]
            sizes[top] = sizes.get(top, 0) + size
    return sorted(sizes.items(), key=lambda item: -item[1])
