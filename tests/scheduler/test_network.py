"""What stands in a network's place: which tokens it answers, what it tells of its forwards, and what a draft's network
says. Runners and batches are objects with the engine's names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ropecheck.adapters.sglang.recorder import tables  # noqa: E402 - it imports torch
from ropecheck.adapters.sglang.scheduler.build import HIDDEN, STOP, VOCABULARY  # noqa: E402
from tests.recorder.support import Event, OnGpu, Torch  # noqa: E402
from tests.recorder.support import batch as batch_of  # noqa: E402


class Runner:
    """A model runner: what it does before and after its network, it does not do."""

    def __init__(self, **model: Any) -> None:
        self.model = SimpleNamespace(**model)

    def forward(self, given: Any, *, relabelled: str = "") -> Any:
        if relabelled:
            given.forward_mode.name = relabelled
        if given.positions is None:
            raise ValueError("no positions")
        made = self.model.forward(None, given.positions, given)
        if getattr(given, "raises", False):
            raise ValueError("afterwards")
        return made


class Networks:
    """A target's and a draft's network, and what was told of them."""

    def __init__(self, adapter: Any) -> None:
        self.told: list[tables.Given] = []
        self.network = adapter.network.Network(SimpleNamespace(running_batch=None), self.told.append)
        self.target, self.draft = Runner(), Runner()
        self.network.install(self.target)
        self.network.install(self.draft, draft=True)


@pytest.fixture
def nets(adapter: Any) -> Networks:
    return Networks(adapter)


def batch(mode: str, *reqs: str, hidden: str = "NULL", **fields: Any) -> Any:
    plain = {
        "req_pool_indices": torch.arange(len(reqs)) + 4,
        "return_logprob": False,
        "extend_logprob_start_lens_cpu": None,
        "capture_hidden_mode": SimpleNamespace(name=hidden),
        "tbo_children": None,
    }
    return batch_of(mode, *reqs, **plain | fields)


# ---------------------------------------------------------------- the target


def test_the_next_token_goes_by_its_place_and_its_request_alone(nets: Networks) -> None:
    said = [[nets.network.token(req, length) for length in range(60)] for req in ("r0", "r1")]
    assert said[0] == [nets.network.token("r0", length) for length in range(60)] and said[0] != said[1]
    assert len(set(said[0])) == 60, "one that is read twice shows"
    assert all(10 <= token < 410 for one in said for token in one), "none stops, none is a medium's"


def test_a_script_may_ask_for_stops(nets: Networks) -> None:
    nets.network.stops = {"r0": 4, "r1": 0}
    assert [length for length in range(1, 13) if nets.network.token("r0", length) == STOP] == [3, 7, 11]
    assert not any(nets.network.token(req, length) == STOP for req in ("r1", "r2") for length in range(1, 13))


@pytest.mark.parametrize("mode", ["EXTEND", "DECODE", "MIXED"])
def test_a_forward_answers_one_token_a_request_and_is_told_with_it(nets: Networks, mode: str) -> None:
    tokens = 1 if mode == "DECODE" else 3
    made = nets.target.forward(batch(mode, "r0", "r1", tokens=tokens, seq_lens_cpu=torch.tensor([5, 8])))
    wanted = [nets.network.token("r0", 5), nets.network.token("r1", 8)]
    assert made.next_token_logits.shape == (2, VOCABULARY) and made.hidden_states is None
    assert made.next_token_logits.argmax(dim=1).tolist() == wanted
    assert (made.next_token_logits > 0).sum().item() == 2
    assert made.next_token_logits.softmax(dim=1).max(dim=1).values.min() > 0.999, "whoever draws takes these"
    (told,) = nets.told
    assert (told.mode, told.draft, told.step, told.settled) == (mode.lower(), False, 0, True)
    assert told.answers == tuple((token,) for token in wanted) and told.tokens == (tokens,) * 2


def test_lengths_that_the_device_alone_knows_count(nets: Networks) -> None:
    late = batch("DECODE", "r0", seq_lens_cpu=None, seq_lens=torch.tensor([6]))
    assert nets.target.forward(late).next_token_logits.argmax().item() == nets.network.token("r0", 6)


def test_what_a_device_alone_knows_is_waited_for(adapter: Any, nets: Networks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lengths and trees decide what is answered; tables alone are not waited for."""
    monkeypatch.setattr(tables, "torch", Torch())
    positions = torch.tensor([5]).as_subclass(OnGpu)
    nets.target.forward(batch("DECODE", "r0", mrope_positions=positions.expand(3, -1)))
    assert Event.waited == 0
    lengths = torch.tensor([6]).as_subclass(OnGpu)
    nets.target.forward(batch("DECODE", "r0", seq_lens_cpu=None, seq_lens=lengths))
    assert Event.waited == 1
    trees = verify(adapter, BUSH, DRAFTS[:1], [5], "r0")
    for name in ("retrieve_next_token", "retrieve_next_sibling"):
        setattr(trees.spec_info, name, getattr(trees.spec_info, name).as_subclass(OnGpu))
    nets.target.forward(trees)
    assert Event.waited == 2


def test_what_the_scheduler_made_is_told_whatever_the_runner_calls_it(nets: Networks) -> None:
    nets.target.forward(batch("MIXED", "r0", tokens=2), relabelled="EXTEND")
    nets.target.forward(batch("SPLIT_PREFILL", "r0"))
    nets.target.forward(batch("ANOTHER", "r0"))
    assert [one.mode for one in nets.told] == ["mixed", "split_prefill", "another"]


@pytest.mark.parametrize("width", [2, 3])
def test_beside_the_best_token_other_beams_find_theirs(nets: Networks, width: int) -> None:
    nets.network.widest = width
    made = nets.target.forward(batch("DECODE", "r0", "r0", "r1")).next_token_logits
    for row, answer in enumerate(nets.told[0].answers):
        likely = made[row].nonzero().flatten()
        order = made[row].argsort(descending=True)[: 2 * width].tolist()
        assert order[0] == answer[0] and len(likely) == 2 * width == len(set(order))
        assert len(set(made[row][likely].tolist())) == 2 * width, "no two are as likely"
        assert all(10 <= token < 460 for token in order)
        assert made[row].softmax(dim=0).max() < 0.1, "a beam that takes another is not lost"
    assert made[0].nonzero().tolist() != made[1].nonzero().tolist()


def test_halves_of_a_forward_are_told_as_one_without_their_padding(nets: Networks) -> None:
    halves = [
        SimpleNamespace(
            positions=torch.arange(at, at + 4),
            mrope_positions=torch.arange(at, at + 4).expand(3, -1) + 1,
            tbo_parent_token_range=span,
        )
        for at, span in ((50, (0, 2)), (60, (2, 5)))
    ]
    whole = batch("DECODE", *"abcde", tbo_children=halves)
    nets.target.forward(whole)
    told = nets.told[0].event()
    assert told.positions == (50, 51, 60, 61, 62) and told.rows == ((51, 52, 61, 62, 63),) * 3


# ---------------------------------------------------------------- verifies


def verify(adapter: Any, tree: list[int] | None, drafts: list[list[int]], lengths: list[int], *reqs: str) -> Any:
    """tree: each node's parent; None: a chain that no table says."""
    nodes = len(drafts[0])
    info: dict[str, Any] = {"draft_token_num": nodes, "draft_token": torch.tensor(drafts).flatten()}
    if tree is not None:
        after, beside = [-1] * nodes, [-1] * nodes
        for node in reversed(range(1, nodes)):
            beside[node], after[tree[node]] = after[tree[node]], node
        info |= {
            "retrieve_next_token": torch.tensor([after] * len(reqs)),
            "retrieve_next_sibling": torch.tensor([beside] * len(reqs)),
        }
    return batch(
        "TARGET_VERIFY", *reqs, tokens=nodes, seq_lens_cpu=torch.tensor(lengths), spec_info=SimpleNamespace(**info)
    )


def walked(logits: Any, tree: list[int], drafts: list[int]) -> list[int]:
    """What a greedy verify accepts and answers."""
    node, said = 0, []
    while True:
        token = int(logits[node].argmax())
        said.append(token)
        below = [child for child in range(1, len(tree)) if tree[child] == node and drafts[child] == token]
        if not below:
            return said
        (node,) = below


BUSH = [-1, 0, 0, 1, 1, 2, 3]
CHAIN = [-1, 0, 1, 2, 3, 4, 5]
DRAFTS = [[500, 21, 22, 23, 24, 25, 26], [499, 31, 32, 33, 34, 35, 36]]


@pytest.mark.parametrize("said", [True, False])
@pytest.mark.parametrize("tree", [BUSH, CHAIN])
@pytest.mark.parametrize("accept", [0, 1, 3])
def test_what_a_verify_answers_is_what_its_logits_make_of_the_tree(
    adapter: Any, nets: Networks, accept: int, tree: list[int], said: bool
) -> None:
    if tree is BUSH and not said:
        return
    nets.network.accept = accept
    taken = set()
    for length in range(5, 14):
        given = verify(adapter, tree if said else None, DRAFTS, [length, length + 3], "r0", "r1")
        logits = nets.target.forward(given).next_token_logits
        told = nets.told[-1]
        for row in range(2):
            own = logits[row * 7 : row * 7 + 7]
            assert list(told.answers[row]) == walked(own, tree, DRAFTS[row])
            assert (own > 0).sum() == len(told.answers[row]), "no other node is answered"
            assert own[(own > 0).any(dim=1)].softmax(dim=1).max(dim=1).values.min() > 0.999
            assert told.answers[row][-1] == nets.network.token(f"r{row}", length + 3 * row + len(told.answers[row]) - 1)
            taken.add(len(told.answers[row]) - 1)
        assert told.nodes == 7
    assert taken == {0} if accept == 0 else len(taken) > 2
    assert tree is not CHAIN or not accept or 6 in taken, "whole branches are taken, too"


def test_all_branches_of_a_tree_are_taken_at_times(adapter: Any, nets: Networks) -> None:
    firsts = set()
    for length in range(5, 40):
        nets.target.forward(verify(adapter, BUSH, DRAFTS, [length, length], "r0", "r1"))
        firsts |= {answer[0] for answer in nets.told[-1].answers if len(answer) > 1}
    assert firsts == {21, 22, 31, 32}


def test_an_answer_is_none_of_the_drafts_that_were_not_taken(adapter: Any, nets: Networks) -> None:
    """A verify would take it."""
    nets.network.accept = 0
    token = nets.network.token("r0", 5)
    for beside, other in ((22, 1), (token + 1, 2)):
        drafts = [[500, token, beside, 23, 24, 25, 26]]
        nets.target.forward(verify(adapter, BUSH, drafts, [5], "r0"))
        assert nets.told[-1].answers == ((token + other,),)


# ---------------------------------------------------------------- what is told of others


def test_a_drafts_forwards_are_told_by_their_step_and_commit_nothing(nets: Networks) -> None:
    for mode in ("DECODE", "DECODE", "DECODE", "EXTEND", "DECODE"):
        nets.draft.forward(batch(mode, "r0"))
    nets.target.forward(batch("DECODE", "r0"))
    nets.draft.forward(batch("DECODE", "r0"))
    assert [one.step for one in nets.told] == [0, 1, 2, 0, 0, 0, 0]
    assert [one.draft for one in nets.told] == [True] * 5 + [False, True]
    assert all(one.answers == () and one.settled for one in nets.told if one.draft)


def drafted(nets: Networks, mode: str, *reqs: str, **fields: Any) -> Any:
    return nets.draft.forward(batch(mode, *reqs, **fields)).next_token_logits


@pytest.mark.parametrize(
    ("mode", "fields", "rows"),
    [
        ("DECODE", {"tokens": 3}, 6),
        ("EXTEND", {"tokens": 3}, 2),
        ("MIXED", {"tokens": 3}, 2),
        ("DRAFT_EXTEND_V2", {"tokens": 3}, 6),
        ("DRAFT_EXTEND_V2", {"tokens": 3, "spec_info": SimpleNamespace(select_index=[2, 5])}, 2),
    ],
)
def test_a_draft_answers_for_last_tokens_or_for_all(
    nets: Networks, mode: str, fields: dict[str, Any], rows: int
) -> None:
    assert drafted(nets, mode, "r0", "r1", **fields).shape == (rows, VOCABULARY)


def test_drafts_are_told_apart_by_row_step_and_forward(nets: Networks) -> None:
    best = []
    for _ in range(3):
        logits = drafted(nets, "DECODE", "r0", "r1")
        for row in logits:
            likely = row.argsort(descending=True)[:8].tolist()
            assert (
                len(set(likely)) == 8 and row[likely[7]] > row[[one for one in range(512) if one not in likely]].max()
            )
            assert row[likely].tolist() == sorted(set(row[likely].tolist()), reverse=True), "no two are as likely"
            assert all(20 <= token < 420 for token in likely)
            best.append(likely[0])
    best += [row.argmax().item() for _ in range(2) for row in drafted(nets, "EXTEND", "r0", "r1")]
    assert len(set(best)) == len(best)


def test_a_blocks_rows_are_named_by_who_was_prefilled_there(nets: Networks) -> None:
    """Its batch says rows of the cache alone; a draft's own prefill says nothing new."""
    nets.target.forward(batch("EXTEND", "r0", "r1"))
    nets.target.forward(batch("EXTEND", "r2", req_pool_indices=torch.tensor([4])))
    nets.draft.forward(batch("EXTEND", "wrong", req_pool_indices=torch.tensor([5])))
    nets.target.forward(batch("DECODE", "wrong", req_pool_indices=torch.tensor([5])))
    nets.draft.forward(batch("DECODE", "x", "x", rids=None, req_pool_indices=torch.tensor([5, 4])))
    assert nets.told[-1].reqs == ("r1", "r2")


@pytest.mark.parametrize(("mode", "tokens"), [("EXTEND", (1, 3)), ("MIXED", (1, 3)), ("DECODE", (3, 3))])
def test_a_block_drafts_context_is_told_as_its_features_are_rotated(
    adapter: Any, mode: str, tokens: tuple[int, ...]
) -> None:
    rotated: list[Any] = []

    def rotates(*args: Any, **kwargs: Any) -> str:
        rotated.append((args, kwargs))
        return "rotated"

    rotary = SimpleNamespace(forward=rotates)
    layers = [SimpleNamespace(self_attn=SimpleNamespace(rotary_emb=one)) for one in (rotary, SimpleNamespace())]
    nets = Networks(adapter)
    nets.network.install(Runner(layers=layers), draft=True)
    windows = list(tokens) if mode != "DECODE" else None
    nets.target.forward(batch(mode, "r0", "r1", tokens=1 if mode == "DECODE" else 2, extend_seq_lens_cpu=windows))
    positions = torch.arange(6 if mode == "DECODE" else 4)
    assert rotary.forward(positions, 1, query=2) == "rotated"
    ((given, more),) = rotated
    assert given[0] is positions and given[1:] == (1,) and more == {"query": 2}
    told = nets.told[-1]
    assert (told.mode, told.reqs, told.tokens, told.draft, told.settled) == (
        "draft_context",
        ("r0", "r1"),
        tokens,
        True,
        True,
    )
    event = told.event()
    assert (event.positions, event.rows, event.step, event.dtypes) == (
        tuple(range(len(positions))),
        None,
        0,
        ("int64", ""),
    )
    assert (event.prefix_lens, event.seq_lens, event.answers) == ((), (), ())


def test_a_targets_layers_are_left_alone(adapter: Any) -> None:
    rotary = SimpleNamespace(forward="its own")
    layers = [SimpleNamespace(self_attn=SimpleNamespace(rotary_emb=rotary))]
    Networks(adapter).network.install(Runner(layers=layers))
    assert rotary.forward == "its own"


# ---------------------------------------------------------------- failures


def test_a_forward_that_raises_before_its_network_is_kept(nets: Networks) -> None:
    broken = batch("MIXED", "r0", tokens=2, positions=None)
    for runner, draft in ((nets.target, False), (nets.draft, True)):
        nets.network.failed = None
        with pytest.raises(ValueError, match="no positions"):
            runner.forward(broken)
        failed = nets.network.failed
        assert failed is not None
        assert (failed.mode, failed.reqs, failed.draft, failed.event().rows) == ("mixed", ("r0",), draft, ((0, 1),) * 3)
    assert nets.told == [] and nets.network.forwards == 0


def test_one_that_raises_behind_its_network_was_told(nets: Networks) -> None:
    with pytest.raises(ValueError, match="afterwards"):
        nets.target.forward(batch("DECODE", "r0", raises=True))
    assert nets.network.failed is None and len(nets.told) == nets.network.forwards == 1


def test_one_that_cannot_be_read_is_kept_as_none(nets: Networks) -> None:
    nets.network.failed = SimpleNamespace()
    with pytest.raises(ValueError, match="no positions"):
        nets.target.forward(batch("DECODE", "r0", positions=None, seq_lens_cpu=5))
    assert nets.network.failed is None


# ---------------------------------------------------------------- outputs


@pytest.mark.parametrize(("mode", "rows"), [("NULL", 0), ("LAST", 2), ("FULL", 6)])
def test_hidden_states_are_as_many_as_are_wanted(nets: Networks, mode: str, rows: int) -> None:
    made = nets.target.forward(batch("EXTEND", "r0", "r1", tokens=3, hidden=mode)).hidden_states
    assert made is None if not rows else made.shape == (rows, HIDDEN) and not made.any()


def test_a_blocks_hidden_states_differ_from_token_to_token(nets: Networks) -> None:
    """The engine reads its drafts off them."""
    kind = SimpleNamespace(name="DFLASH_VERIFY")
    info = SimpleNamespace(spec_input_type=kind)
    made = nets.draft.forward(batch("TARGET_VERIFY", "r0", tokens=5, spec_info=info)).hidden_states
    assert nets.told[0].mode == "draft_block" and made.shape == (5, HIDDEN)
    assert len({tuple(row) for row in made.tolist()}) == 5 and all(len(set(row)) == 1 for row in made.tolist())


def test_a_prompts_logprobs_are_as_many_as_its_window_shows(nets: Networks) -> None:
    def asked(**fields: Any) -> Any:
        return nets.target.forward(batch("EXTEND", "r0", "r1", tokens=3, **fields)).input_token_logprobs

    assert asked(return_logprob=True, extend_logprob_start_lens_cpu=[1, 3]).shape == (2,)
    assert asked(return_logprob=True) is None
    assert asked(extend_logprob_start_lens_cpu=[1, 3]) is None


def test_an_output_lies_where_its_positions_do(adapter: Any) -> None:
    meta = torch.zeros(2, device="meta")
    given = batch("DECODE", "r0", hidden="FULL", return_logprob=True, extend_logprob_start_lens_cpu=[0])
    given.extend_seq_lens_cpu = [1]
    made = adapter.network.output(torch.zeros(1, 4), given, meta)
    found = (made.next_token_logits, made.hidden_states, made.input_token_logprobs)
    assert {one.device.type for one in found} == {"meta"}
