"""The committed vectors, and the command that makes them."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import pytest

from ropecheck.conformance.cli import app as cli
from ropecheck.conformance.vectors import make, store, types
from ropecheck.conformance.vectors.choose import choose, uncovered
from ropecheck.conformance.vectors.derive import derive
from ropecheck.conformance.vectors.lint import lint
from ropecheck.conformance.vectors.make import Candidate, candidates
from ropecheck.conformance.vectors.sources import sources
from ropecheck.spec.modes.declaration import DECLARED, RUNNING, SeqLen, Tokens, Whole, mode, span
from ropecheck.spec.rules import all_rules
from tests.vectors.conftest import COMMITTED

pytestmark = pytest.mark.xdist_group("vectors")  # the candidates are made once

NO_TABLE_RULE = {
    "table.dtype",  # JSON has no dtypes
    "families.glm_image.tabulated_ahead",  # its table goes on past the prompt
    "families.minicpm_v4_7.canvas",  # a vector's run has no slices
    "families.refuses_disagreeing_grids",  # what must be refused has no table
    "families.refuses_missing_intervals",
    "families.refuses_undivided_grid",
    "families.route_layout",  # a vector says nothing of an engine's routes
}
TOPICS = ("table.", "padding.", "session.", "retraction.", "families.")
"""What vectors show; the other rules look at engines' objects, copies, schedules and kernels."""


@pytest.fixture(scope="module")
def pool() -> tuple[Candidate, ...]:
    return candidates(sources())


@pytest.fixture
def made(pool: tuple[Candidate, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates need not be made again for every call of gen."""
    monkeypatch.setattr(make, "candidates", lambda scenarios: pool)


def test_the_committed_set_is_sound_and_small() -> None:
    report = lint(COMMITTED)
    assert report.problems == ()
    assert report.files > 200
    assert report.size < 2_000_000


def test_every_folder_and_every_table_rule_has_a_vector() -> None:
    vectors = [store.read(path) for path in store.paths(COMMITTED)]
    assert {types.folder_of(vector.input) for vector in vectors} == set(types.folders())
    rules = {rule for vector in vectors for rule in vector.provenance.rules}
    wanted = {rule for rule in all_rules() if rule.startswith(TOPICS)} - NO_TABLE_RULE
    assert wanted - rules == set()


def test_an_id_can_be_made_without_this_package() -> None:
    for path in store.paths(COMMITTED):
        raw = json.loads(path.read_text())
        body = json.dumps(raw["input"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert hashlib.sha256(body.encode()).hexdigest()[:16] == raw["id"] == path.stem


def test_files_are_as_the_writer_lays_them_out() -> None:
    for path in store.paths(COMMITTED):
        assert path.read_bytes() == store.encoded(store.read(path)), path


def test_derivation_imports_the_specification_only() -> None:
    code = (
        "import sys, ropecheck.conformance.vectors.derive; "
        "print(*(m for m in sys.modules if m.split('.')[0] == 'numpy' or m.startswith('ropecheck.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rooms = {name for name in done.stdout.split() if not name.startswith("ropecheck.spec")}
    mine = {f"ropecheck.conformance.vectors{room}" for room in ("", ".derive", ".derive_session", ".runs", ".types")}
    assert rooms == {"ropecheck.conformance", "ropecheck.adapters", "ropecheck.adapters.batch", *mine}


def test_reference_and_specification_agree_on_every_candidate(pool: tuple[Candidate, ...]) -> None:
    for one in pool:
        assert tuple(found.table for found in derive(one.vector.input)) == one.vector.expected, one.vector.provenance


def test_the_choice_covers_and_does_not_depend_on_order(pool: tuple[Candidate, ...]) -> None:
    kept = choose(pool)
    assert uncovered(kept, pool) == []
    assert choose(tuple(reversed(pool))) == kept
    without = [vector for vector in kept if types.folder_of(vector.input) not in ("idle", "retraction")]
    assert uncovered(without, pool) == [
        "idle",
        "retraction",
        "retraction.refused_attempts",
        "retraction.same_history",
        "retraction.table",
    ]


def test_the_committed_set_is_what_gen_makes(pool: tuple[Candidate, ...]) -> None:
    changes = store.changes(COMMITTED, choose(pool))
    assert (changes.new, changes.other, changes.left_over) == ([], [], [])


def test_a_new_mode_has_vectors_because_it_is_declared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    @mode("test_lookback", reads=RUNNING, buffers=("graph",), source="definition: a test's own")
    def lookback(seq_len: SeqLen, back: Annotated[int, Whole(1, 3)]) -> Tokens:
        """A lookback reads the newest token, and the ones before it."""
        return span(seq_len - back, back)

    try:
        made = [one for one in candidates(sources()) if "test_lookback" in one.vector.provenance.scenario]
        kept = choose(made)
        assert {types.folder_of(vector.input) for vector in kept} == {"test_lookback", "padding"}
        store.write(tmp_path, kept)
        assert lint(tmp_path).problems == ()
    finally:
        del DECLARED[lookback.name]


def test_gen_writes_the_same_twice(
    pool: tuple[Candidate, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of candidates that it makes itself, and of those that were made before."""
    assert cli.execute(["vectors", "gen", "--out", str(tmp_path / "a")]) == 0
    monkeypatch.setattr(make, "candidates", lambda scenarios: pool)
    assert cli.execute(["vectors", "gen", "--out", str(tmp_path / "b")]) == 0
    read = [
        {path.relative_to(tmp_path / name): path.read_bytes() for path in store.paths(tmp_path / name)}
        for name in ("a", "b")
    ]
    assert read[0] == read[1]
    assert cli.execute(["vectors", "lint", str(tmp_path / "a")]) == 0

    capsys.readouterr()
    assert cli.execute(["vectors", "gen", "--out", str(tmp_path / "a")]) == 0
    assert f"0 new, 0 replaced, 0 removed, {len(read[0])} as before" in capsys.readouterr().out


def test_gen_does_not_overwrite_unasked(made: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.execute(["vectors", "gen", "--out", str(tmp_path)]) == 0
    changed, torn, gone = store.paths(tmp_path)[:3]
    changed.write_text(changed.read_text().replace('"reason": "', '"reason": "By hand. '))
    torn.write_text("{")
    gone.unlink()
    stranger = tmp_path / "decode" / "0123456789abcdef.json"
    stranger.write_text("mine")
    before = changed.read_text()
    capsys.readouterr()

    assert cli.execute(["vectors", "gen", "--out", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert f"{changed}: has other content" in printed.out
    assert f"{torn}: has other content" in printed.out
    assert f"{stranger}: is no vector of this set" in printed.out
    assert "3 files differ and nothing was written" in printed.err
    assert changed.read_text() == before and not gone.exists() and stranger.exists()

    assert cli.execute(["vectors", "gen", "--out", str(tmp_path), "--replace"]) == 0
    assert "1 new, 2 replaced, 1 removed" in capsys.readouterr().out
    assert cli.execute(["vectors", "lint", str(tmp_path)]) == 0


def test_another_specification_hash_alone_is_no_change(made: None, tmp_path: Path) -> None:
    assert cli.execute(["vectors", "gen", "--out", str(tmp_path)]) == 0
    path = store.paths(tmp_path)[0]
    old = store.read(path).provenance.spec
    path.write_text(path.read_text().replace(f'"spec": "{old}"', '"spec": "000000000000"'))
    assert cli.execute(["vectors", "gen", "--out", str(tmp_path)]) == 0
    assert store.read(path).provenance.spec == "000000000000"
