"""Client scripts: legality, generators, the enumeration's two counts, shrinking, files."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings

from ropecheck.conformance.judge.outcome import Failure, Outcome
from ropecheck.conformance.scripts import small
from ropecheck.conformance.scripts.chosen import all_scripts
from ropecheck.conformance.scripts.draws import random_scripts, scripts
from ropecheck.conformance.scripts.legal import check, legal
from ropecheck.conformance.scripts.plan import play_of
from ropecheck.conformance.scripts.script import Action, Arrive, Close, GiveUp, OpenSession, Pause, Script, Step
from ropecheck.conformance.scripts.servers import servers
from ropecheck.conformance.scripts.shrink import shrink_script
from ropecheck.spec.history import OutOfDomain, image, text


@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_the_walk_and_the_second_count_agree(most: int) -> None:
    walked = list(small.walk("plain", most))
    assert len(walked) == small.count(most)
    assert len({script.id for script in walked}) == len(walked)
    assert all(legal(script) for script in walked)


def test_chosen_scripts_can_be_played_and_have_ids_of_their_own() -> None:
    chosen = all_scripts()
    assert {script.server for script in chosen} == set(servers())
    assert len({script.id for script in chosen}) == len(chosen)
    for script in chosen:
        play_of(script)


def test_a_seed_is_one_set_of_scripts() -> None:
    first, second = list(random_scripts(7, 20)), list(random_scripts(7, 30))
    assert first == second[:20]
    assert all(legal(script) for script in second)
    assert first != list(random_scripts(8, 20))


@settings(max_examples=40, deadline=None)
@given(scripts())
def test_any_drawn_script_survives_its_file(script: Script) -> None:
    again = msgspec.json.decode(msgspec.json.encode(script), type=Script)
    assert again == script
    assert again.id == script.id
    check(script)


@pytest.mark.parametrize(
    ("actions", "says"),
    [
        ((Arrive(0, (text(1),)), Arrive(0, (text(1),))), r"actions\[1\].req"),
        ((Arrive(0, ()),), r"actions\[0\].prompt"),
        ((Step(0),), "times"),
        ((Pause("abort"),), "mode"),
        ((Arrive(0, (text(1),), -1),), "max_new_tokens"),
    ],
)
def test_what_no_client_can_send_is_refused_by_name(actions: tuple[Action, ...], says: str) -> None:
    with pytest.raises(OutOfDomain, match=says):
        check(Script("bad", "plain", actions))


def test_an_unknown_server_is_refused_with_a_suggestion() -> None:
    with pytest.raises(OutOfDomain, match="plain"):
        check(Script("bad", "plane", (Arrive(0, (text(1),)),)))


def test_shrinking_leaves_what_the_failure_needs() -> None:
    key = ("table.index", "decode", "off by one")

    def run(script: Script) -> Outcome:
        image_turn = any(isinstance(a, Arrive) and any(not run.is_text for run in a.prompt) for a in script.actions)
        broken = image_turn and any(isinstance(a, GiveUp) for a in script.actions)
        failure = Failure(rule=key[0], mode=key[1], signature=key[2], step=0, label="", message="")
        return Outcome(scenario=script.id, name=script.name, failures=(failure,) if broken else ())

    large = Script(
        "large",
        "overlap",
        (
            OpenSession(0),
            Arrive(0, (text(9),), 9),
            Step(5),
            Arrive(1, (text(4), image(1, 8, 8), text(3)), 7, 0),
            Step(3),
            GiveUp(0),
            Close(0),
        ),
    )
    smaller, failure = shrink_script(large, key, run, 20)
    assert failure is not None
    assert len(smaller.actions) == 2
    assert smaller.server == "plain"


def test_a_pool_that_an_open_stream_fills_is_no_script() -> None:
    """What streaming sessions keep until they are closed may leave no room: nobody could answer the others."""
    turn = Arrive(0, (text(140),), 2, session=0)
    script = Script("full", "small_pool", (OpenSession(0, True), turn, Arrive(1, (text(6),), 12)))
    with pytest.raises(OutOfDomain, match="the pool of 160 tokens"):
        check(script)
    check(msgspec.structs.replace(script, server="plain"))
    check(msgspec.structs.replace(script, actions=(*script.actions, Close(0))))
