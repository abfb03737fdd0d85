"""Snapshots in JSON and CSV: what they say, and what is refused."""

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from compass_abs.model import ClusterState, CompassError, Instance, Job, NodeStatus, check_state
from compass_abs.snapshots import InstanceRow, NodeRow, SnapshotError, json_of_pools, load_snapshot, pools_of
from compass_abs.snapshots import read_snapshot as read

CSV = """\
node,capacity,instances,pool,status
# two racks
a0,8,4:train 2:serve!,a100,
a1,8,4:train,a100,up
a2,8,,a100,cordoned

b0,4,3 1,v100,
"""


def test_csv_of_two_pools_gives_their_states() -> None:
    pools = read(CSV)
    assert list(pools) == ["a100", "v100"]
    a100, v100 = pools.values()
    assert (a100.capacity, v100.capacity, a100.pool) == (8, 4, "a100")
    assert a100.demand == [0, 0, 1, 0, 2, 0, 0, 0, 0]
    assert a100.gangs["train"].nodes == [0, 1]
    assert a100.gangs["train"].job.movable
    assert not a100.gangs["serve"].job.movable
    assert a100.node("a2").status is NodeStatus.CORDONED
    assert (a100.available_nodes, a100.free_gpus) == (2, 6)
    assert v100.nodes[0].contents == {Instance("b0#0", 0): 3, Instance("b0#1", 0): 1}
    for state in pools.values():
        check_state(state)


def test_csv_with_a_row_for_each_instance_adds_them_up() -> None:
    pools = read("node,capacity,instances\nn,8,4:a\nn,8,2:b\nm,8,4:a\n")
    assert pools["default"].histogram() == [0, 0, 1, 0, 1, 0, 0, 0, 0]
    assert pools["default"].gangs["a"].nodes == [0, 1]


def test_json_says_the_same_as_csv() -> None:
    nodes = [
        {"node": "a0", "instances": [{"gpus": 4, "job": "train"}, {"gpus": 2, "job": "serve", "pinned": True}]},
        {"node": "a1", "instances": [{"gpus": 4, "job": "train"}]},
        {"node": "a2", "instances": [], "status": "cordoned"},
    ]
    document = {"capacity": 8, "nodes": [node | {"pool": "a100"} for node in nodes]}
    document["nodes"].append({"node": "b0", "capacity": 4, "pool": "v100", "instances": [3, 1]})  # type: ignore[attr-defined]
    assert json_of_pools(read(json.dumps(document))) == json_of_pools(read(CSV))
    assert json_of_pools(read(json.dumps([{"node": "n", "capacity": 2}]))) == json_of_pools(
        read("node,capacity,instances\nn,2,\n")
    )


def test_nodes_of_other_gpus_or_capacities_are_other_pools() -> None:
    rows = [
        NodeRow("n0", 8),
        NodeRow("n1", 4),
        NodeRow("n2", 8, gpu="H100"),
        NodeRow("n3", 8, pool="blue", gpu="H100"),
        NodeRow("n4", 8),
    ]
    pools = pools_of(rows)
    assert {name: [node.name for node in state.nodes] for name, state in pools.items()} == {
        "default/8": ["n0", "n4"],
        "default/4": ["n1"],
        "H100": ["n2"],
        "blue/H100": ["n3"],
    }


def test_unknown_gpus_are_held_where_they_are() -> None:
    state = read('[{"node": "n", "capacity": 8, "instances": [2], "unknown_gpus": 3}]')["default"]
    assert state.nodes[0].free == 3
    assert state.nodes[0].pinned == 1
    assert not state.gangs["n#unknown"].job.movable


def test_job_of_two_sizes_is_two_gangs_and_pinned_as_far_as_one_instance_is() -> None:
    state = read("node,capacity,instances\nn,8,4:a 2:a\nm,8,4:a!\n")["default"]
    assert {name: (gang.nodes, gang.job.movable) for name, gang in state.gangs.items()} == {
        "a/4": ([0, 1], False),
        "a/2": ([0], True),
    }


def test_priority_and_pause_of_a_gang_are_the_highest_of_its_instances() -> None:
    rows = [
        NodeRow("n", 8, (InstanceRow(2, "a", priority=1, pause=5.0), InstanceRow(2, "a", priority=3))),
        NodeRow("m", 8, (InstanceRow(2, "a", pause=9.0),)),
    ]
    job = pools_of(rows)["default"].gangs["a"].job
    assert (job.priority, job.pause, job.instances) == (3, 9.0, 3)


@st.composite
def states(draw: st.DrawFn) -> ClusterState:
    capacity = draw(st.sampled_from((1, 2, 4, 8, 16)))
    state = ClusterState(draw(st.integers(1, 6)), capacity, draw(st.text("abc/", max_size=3)) or "default")
    for number in range(draw(st.integers(0, 8))):
        gpus = draw(st.integers(1, capacity))
        nodes = [node.index for node in state.nodes if node.free >= gpus]
        if nodes:
            chosen = draw(st.lists(st.sampled_from(nodes), min_size=1, max_size=3, unique=True))
            job = Job(f"j{number}", len(chosen), gpus, priority=draw(st.integers(-1, 2)), movable=draw(st.booleans()))
            state.place(job, sorted(chosen))
    for node in state.nodes:
        if draw(st.booleans()):
            state.set_status(node.name, draw(st.sampled_from((NodeStatus.CORDONED, NodeStatus.DRAINING))))
    return state


@given(states())
def test_written_snapshot_reads_back_as_it_was(state: ClusterState) -> None:
    (again,) = read(json_of_pools({state.pool: state})).values()
    check_state(again)
    assert [(n.name, n.status, n.free, dict(n.contents)) for n in again.nodes] == [
        (n.name, n.status, n.free, dict(n.contents)) for n in state.nodes
    ]
    assert {j: (g.nodes, g.job.movable, g.job.gpus) for j, g in again.gangs.items()} == {
        j: (g.nodes, g.job.movable, g.job.gpus) for j, g in state.gangs.items()
    }
    assert again.demand == state.demand


HEAD = "node,capacity,instances\n"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "snapshot: is empty"),
        ("  \n# nothing\n", "snapshot: is empty"),
        (HEAD, "snapshot: there is no node"),
        ("node,instances\n", "row 1: there is no column 'capacity'"),
        ("node,capacity,instances,rack\n", "row 1: unknown column 'rack'"),
        ("node,capacity,instances,node\n", "row 1: column 'node' occurs twice"),
        (HEAD + "a,8,4\nb,8\n", "row 3: has 2 columns, expected 3"),
        (HEAD + "a,eight,4\n", "row 2: capacity is 'eight', expected a whole number ≥ 1"),
        (HEAD + "a,8.0,4\n", "row 2: capacity is '8.0'"),
        (HEAD + "a,6,4\n", "row 2: node 'a': capacity is 6, expected one of"),
        (HEAD + "a,-8,4\n", "row 2: capacity is '-8'"),
        (HEAD + ",8,4\n", "row 2: node has no name"),
        (HEAD + "a,8,0\n", "row 2: size of an instance is '0', expected a whole number ≥ 1"),
        (HEAD + "a,8,x:job\n", "row 2: size of an instance is 'x'"),
        (HEAD + "a,8,:job\n", "row 2: instance is ':job'"),
        (HEAD + "a,8,9\n", "row 2: node 'a': an instance has 9 GPUs, expected 1 to the capacity, 8"),
        (HEAD + "a,8,4 4 1\n", "row 2: node 'a': 9 GPUs are in use, but the capacity is 8"),
        (HEAD + "a,8,4\na,8,5\n", "row 3: node 'a': 9 GPUs are in use"),
        (HEAD + "a,8,4\na,4,1\n", "row 3: capacity of node 'a' is 4, but 8 in snapshot: row 2"),
        (HEAD + 'a,8,"4\n', "row 2: not CSV"),
        (HEAD + "a,8,99999999999999999999\n", "row 2: node 'a': an instance has 99999999999999999999 GPUs"),
        (HEAD + "a,99999999999999999999,4\n", "row 2: node 'a': capacity is 99999999999999999999, expected one of"),
        (HEAD + f"a,{'8' * 1000},4\n", "row 2: capacity is '" + "8" * 56 + "..., expected a whole number"),
        (HEAD + "a,8,4: 2\n", "row 2: instance is '4:', expected SIZE, SIZE:JOB"),
        (HEAD + "a,8,4:!\n", "row 2: instance is '4:!', expected SIZE, SIZE:JOB"),
        (HEAD + "a\x1b[31m,8,4\n", r"row 2: node is 'a\x1b[31m', expected text without control characters"),
        (HEAD + "a,8,4:\x07\n", r"row 2: job is '\x07', expected text without control characters"),
        ('node,capacity,instances,pool\na,8,4,"b\nc"\n', r"row 3: pool is 'b\nc', expected text without control"),
        ("x" * 1000, "row 1: there is no column 'node' in '" + "x" * 56 + "..."),
        ("node,capacity,instances,status\na,8,4,asleep\n", "row 2: status is 'asleep', expected one of up, cordoned"),
        ("node,capacity,instances,status\na,8,4,lost\n", "row 2: node 'a': is lost, but 4 of its GPUs"),
        ("node,capacity,instances,unknown_gpus\na,8,4,5\n", "row 2: node 'a': 9 GPUs are in use"),
        ("node,capacity,instances,unknown_gpus\na,8,4,-1\n", "row 2: unknown_gpus is '-1'"),
        ("{", "line 1, column 2: not JSON"),
        ("[" * 100_000, "not a snapshot: nested too deeply"),
        ('[{"node": "a", "capacity": ' + "8" * 5000 + "}]", "not a snapshot: a number in it has thousands of digits"),
        ('[{"node": "a", "capacity": 8, "capacity": 4}]', "key 'capacity' occurs twice in"),
        ('[{"node": "\\ud800", "capacity": 8}]', r"nodes[0]: node is '\ud800', expected text without control"),
        ("{}", 'there is no "nodes"'),
        ('{"nodes": {}}', '"nodes" is {}, expected a list'),
        ('{"nodes": []}', "there is no node"),
        ('{"nodes": [], "x": 1}', "unknown key 'x'"),
        ("[3]", r"nodes[0]: is 3, expected an object"),
        ('[{"capacity": 8}]', 'nodes[0]: there is no "node"'),
        ('[{"node": "a"}]', "nodes[0]: node 'a' has no \"capacity\""),
        ('[{"node": "a", "capacity": true}]', "nodes[0]: capacity is True"),
        ('[{"node": true, "capacity": 8}]', "nodes[0]: node is True, expected text"),
        ('[{"node": "a", "capacity": 8, "instances": 4}]', "nodes[0]: instances is 4, expected a list"),
        ('[{"node": "a", "capacity": 8, "instances": [4.0]}]', "nodes[0]: instances[0]: gpus is 4.0"),
        ('[{"node": "a", "capacity": 8, "instances": [{"job": "x"}]}]', 'instances[0]: there is no "gpus"'),
        ('[{"node": "a", "capacity": 8, "instances": [{"gpu": 4}]}]', "instances[0]: unknown key 'gpu'"),
        ('[{"node": "a", "capacity": 8, "instances": [{"gpus": 4, "pinned": "maybe"}]}]', "pinned is 'maybe'"),
        ('[{"node": "a", "capacity": 8, "instances": [{"gpus": 4, "pause": -1}]}]', "pause is -1"),
        ('[{"node": "a", "capacity": 8, "instances": [{"gpus": 4, "pause": NaN}]}]', "pause is nan"),
        ('[{"node": "a", "capacity": 8, "instances": [{"gpus": 4, "priority": 1.5}]}]', "priority is 1.5"),
        ('[{"node": "a", "capacity": 8}, {"node": "a", "capacity": 8}]', "nodes[1]: node 'a' is at"),
        (HEAD + "a,8,1:a/4 4:a 2:a\n", "row 2: two gangs would be named 'a/4'"),
    ],
)
def test_snapshot_that_makes_no_sense_is_refused_with_its_place_and_value(content: str, said: str) -> None:
    with pytest.raises(SnapshotError) as caught:
        read(content)
    assert isinstance(caught.value, CompassError)
    assert str(caught.value).startswith("snapshot: ")
    assert said in str(caught.value)


SCRAPS = st.sampled_from(
    [
        *'[]{}:,!#"-\n\\ 1480',
        "node",
        "capacity",
        "instances",
        "gpus",
        "job",
        "null",
        "true",
        "1e9",
        "NaN",
        "\x00",
        "é",
        "²",
        HEAD,
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 20) | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("node", "capacity", "instances", "gpus", "job", "pinned", "pause", "status")),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(st.lists(SCRAPS, max_size=30).map("".join) | st.text() | VALUES.map(json.dumps))
@example('{"nodes": [{"node": "a", "capacity": 8, "instances": [{"gpus": 1, "job": "\\ud800"}]}]}')
def test_snapshot_of_anything_is_read_or_refused_in_one_printable_line(content: str) -> None:
    said = ""
    try:
        for state in read(content).values():
            check_state(state)
    except SnapshotError as refusal:
        said = str(refusal)
    assert said.isprintable()


def test_file_is_named_in_the_message(tmp_path: Path) -> None:
    path = tmp_path / "cluster.csv"
    path.write_text(HEAD + "a,8,9\n")
    with pytest.raises(SnapshotError, match=r"cluster\.csv: row 2"):
        load_snapshot(path)


def test_file_with_a_byte_order_mark_and_windows_line_ends_is_read(tmp_path: Path) -> None:
    path = tmp_path / "cluster.csv"
    path.write_bytes("\ufeffnode,capacity,instances\r\na,8,4 2\r\n".encode())
    assert load_snapshot(path)["default"].free_gpus == 2


def test_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cluster.bin"
    path.write_bytes(b"node\xff\xfe")
    with pytest.raises(SnapshotError, match=r"cluster\.bin: byte 4 is not UTF-8"):
        load_snapshot(path)


def test_examples_of_the_documentation_describe_the_same_cluster() -> None:
    page = (Path(__file__).parents[2] / "docs" / "snapshots.md").read_text(encoding="utf-8")
    blocks = [block.partition("\n") for block in page.split("```")[1::2]]
    in_csv, in_json = (next(body for kind, _, body in blocks if kind == wanted) for wanted in ("csv", "json"))
    assert json_of_pools(read(in_csv)) == json_of_pools(read(in_json))
    assert list(read(in_csv)) == ["h100", "v100"]
