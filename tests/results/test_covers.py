"""What reports cover, joined: shards to a whole, wholes to stretches of seeds."""

from __future__ import annotations

import msgspec
import pytest

from ropecheck.conformance.errors import UsageError
from ropecheck.conformance.report.part import Covers
from ropecheck.conformance.results.covers import described, joined

ONE = Covers(phases=("chosen",), bound=None, complete=False, seeds="0", shards="1", of=3, certificate="all")


def shard(number: int, **more: object) -> Covers:
    return msgspec.structs.replace(ONE, shards=str(number), **more)


def test_all_shards_are_the_whole_seed_and_keep_the_certificate() -> None:
    (whole,) = joined([shard(3), shard(1), shard(2)])
    assert (whole.shards, whole.of, whole.whole, whole.certificate) == ("1", 1, True, "all")


def test_some_shards_are_named() -> None:
    (part,) = joined([shard(3), shard(1)])
    assert not part.whole
    assert described(part) == "chosen, seeds 0, shards 1,3 of 3"


def test_whole_seeds_become_a_stretch_and_others_stay_apart() -> None:
    whole = msgspec.structs.replace(ONE, of=1)
    seeds = [msgspec.structs.replace(whole, seeds=seed) for seed in ("2", "0", "1")]
    found = joined([*seeds, shard(2, seeds="7"), msgspec.structs.replace(whole, phases=("laws",))])
    assert sorted(map(described, found)) == ["chosen, seeds 0-2", "chosen, seeds 7, shards 2 of 3", "laws, seeds 0"]


def test_a_certificate_that_one_part_lacks_is_lost() -> None:
    (whole,) = joined([shard(1), shard(2, certificate=None), shard(3)])
    assert whole.certificate is None


@pytest.mark.parametrize("twice", [[shard(1), shard(1)], [msgspec.structs.replace(ONE, of=1)] * 2])
def test_the_same_part_twice_is_refused(twice: list[Covers]) -> None:
    with pytest.raises(UsageError, match="the same scenarios twice: chosen, seeds 0"):
        joined(twice)
