"""What real clusters have and tidy examples don't: several makers, shared GPUs, nodes on their way out, odd files."""

import json
from typing import Any

import pytest

from compass_abs.audit import Audit, AuditError, audit
from compass_abs.audit.reading import observe_documents, read_observation
from compass_abs.audit.words import because_in_words, gangs_of_interest
from compass_abs.planner.explain import Answer
from tests.audit.kubectl import fragmented, listed, node, pod


def looked_at(*objects: dict[str, Any]) -> Audit:
    return audit(observe_documents([("kubectl", listed(*objects))], "kubectl"))


def answers(found: Audit) -> dict[str, Answer]:
    return {verdict.job.id.removeprefix("team/"): verdict.answer for verdict in found.verdicts}


def said(found: Audit) -> dict[str, tuple[int, int]]:
    return {remark.what: (remark.number, remark.gpus) for remark in (*found.fixed, *found.left_out) if remark.number}


def called(resource: str, entry: dict[str, Any]) -> dict[str, Any]:
    """The same with GPUs of another name."""
    text: dict[str, Any] = json.loads(json.dumps(entry).replace('"nvidia.com/gpu"', json.dumps(resource)))
    return text


# ---- several makers


def test_pod_for_one_makers_gpus_never_fits_on_those_of_another() -> None:
    amd = called("amd.com/gpu", node("amd-0", model="MI300X"))
    found = looked_at(node("nv-0"), amd, called("amd.com/gpu", pod("half", 4, "amd-0")), *(
        called("amd.com/gpu", pod("wants-amd", 8)), pod("wants-nvidia", 8)))  # fmt: skip
    assert answers(found) == {"wants-amd": Answer.CAPACITY, "wants-nvidia": Answer.FITS}


@pytest.mark.parametrize("model", ["", "one-label-for-all"])
def test_nodes_of_two_makers_under_one_label_are_two_pools(model: str) -> None:
    found = looked_at(node("nv-0", model=model), called("amd.com/gpu", node("amd-0", model=model)))
    assert sorted(tuple(pool.before.names) for pool in found.pools) == [("amd-0",), ("nv-0",)]


# ---- nodes on their way out


@pytest.mark.parametrize(
    "taint", ["node.kubernetes.io/disk-pressure", "ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"]
)
def test_node_that_a_taint_says_is_closed_gives_no_room(taint: str) -> None:
    found = looked_at(node("a", taints=[{"key": taint, "effect": "NoSchedule"}]), pod("whole", 8))
    assert found.pools[0].survey.nodes_not_up == 1
    (only,) = found.verdicts
    assert (only.answer, only.text) == (Answer.POLICY, "no node is up")


# ---- shared GPUs


@pytest.mark.parametrize(
    "labels",
    [
        {"nvidia.com/gpu.replicas": "4"},
        {"nvidia.com/gpu.sharing-strategy": "mps"},
        {"cloud.google.com/gke-gpu-sharing-strategy": "time-sharing"},
        {"cloud.google.com/gke-gpu-partition-size": "1g.5gb"},
        {"nvidia.com/gpu.product": "H100-SHARED"},
    ],
)
def test_node_whose_labels_say_that_gpus_are_shared_is_left_out_and_counted(labels: dict[str, str]) -> None:
    found = looked_at(node("whole"), node("shared", labels=labels))
    assert said(found) == {"nodes whose GPUs are shared or sliced (time slicing, MIG)": (1, 8)}


@pytest.mark.parametrize("resource", ["nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb"])
def test_node_with_nothing_but_parts_of_gpus_is_left_out_with_its_pods(resource: str) -> None:
    parts, user, waiting = called(resource, node("parts")), pod("user", 1, "parts"), pod("waiting", 1)
    found = looked_at(node("whole"), parts, called(resource, user), called(resource, waiting))
    kinds = said(found)
    assert kinds["nodes whose GPUs are shared or sliced (time slicing, MIG)"] == (1, 0)
    assert sum(number for what, (number, _) in kinds.items() if "pods" in what) == 2
    assert not found.verdicts


# ---- pods


def test_pod_that_is_ending_keeps_its_gpus_and_stays() -> None:
    objects = fragmented()
    objects[3]["metadata"]["deletionTimestamp"] = "2026-11-18T10:00:00Z"
    found = looked_at(*objects)
    assert found.pools[0].survey.free_gpus == 12
    assert said(found) == {"pods that are ending": (1, 4)}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pod_that_has_ended_holds_nothing_and_waits_for_nothing(phase: str) -> None:
    on, off = pod("on", 8, "a"), pod("off", 8)
    on["status"]["phase"] = off["status"]["phase"] = phase
    found = looked_at(node("a"), on, off)
    assert found.pools[0].survey.free_gpus == 8
    assert not found.verdicts


@pytest.mark.parametrize(("said_pause", "seconds"), [("2.5", 20.0), ("a while", 64.0), ("-3", 64.0), ("nan", 64.0)])
def test_pause_that_is_no_number_is_counted_and_the_usual_one_taken(said_pause: str, seconds: float) -> None:
    halves = [pod(f"half-{k}", 8, f"n{k}", movable=True, annotations={"compass-abs/pause-seconds": said_pause})
              for k in range(2)]  # fmt: skip
    nodes = [node(f"n{k}", gpus=16) for k in range(2)]
    found = looked_at(*nodes, *halves, pod("whole", 16))
    assert found.pools[0].admissions.gpu_seconds == seconds
    assert bool(said(found)) is (seconds == 64.0)


def test_smallest_nodes_that_will_do_are_taken_first() -> None:
    found = looked_at(node("large", gpus=16), node("small", gpus=4), pod("four", 4), pod("sixteen", 16))
    starts = {pool.name: [job for step in pool.admissions.steps for job in step.jobs] for pool in found.pools}
    assert starts == {"H100/4": ["team/four"], "H100/16": ["team/sixteen"]}


def test_pool_in_which_the_moves_cost_least_is_chosen_and_named() -> None:
    dear = [pod(f"dear-{k}", 4, f"h-{k}", movable=True) for k in range(2)]
    cheap = [pod("small", 1, "a-0", movable=True), pod("half", 4, "a-1"), pod("full", 8, "a-2")]
    nodes = [node(f"h-{k}") for k in range(2)] + [node(f"a-{k}", model="A100") for k in range(3)]
    found = looked_at(*nodes, *dear, *cheap, pod("whole", 8))
    (verdict,) = found.verdicts
    assert verdict.fit is not None
    assert (verdict.fit.pool, verdict.fit.gpu_seconds) == ("A100", 8.0)
    assert because_in_words(found, verdict) == "A100: fits after 1 move of 1 job"
    assert [step.jobs for pool in found.pools if pool.name == "A100" for step in pool.admissions.steps] == [
        ("team/whole",)
    ]


def test_shortage_is_that_of_the_pool_that_lacks_least() -> None:
    nodes = [node("h"), node("a", model="A100"), node("v", model="V100")]
    running = [pod("h-half", 4, "h"), pod("v-half", 6, "v"), pod("a-bit", 1, "a")]
    found = looked_at(*nodes, *running, pod("whole", 8))
    assert because_in_words(found, found.verdicts[0]) == "A100: 8 GPUs wanted, 7 free, 1 short"


def test_nodes_without_any_pods_are_said_to_be_that() -> None:
    assert [str(remark) for remark in looked_at(node("a")).left_out] == [
        "pods, of which there are none in it: every GPU counts as free"
    ]
    other = pod("web", 0, "a")  # there are pods, though none with GPUs
    assert not looked_at(node("a"), other).left_out


def test_largest_gangs_are_told_for_the_usual_sizes_and_those_that_run() -> None:
    (pool,) = looked_at(node("a"), node("b"), pod("odd", 3, "a")).pools
    assert [(gang.gpus, gang.now) for gang in gangs_of_interest(pool)] == [(1, 13), (2, 6), (3, 3), (4, 3), (8, 1)]


# ---- the plan


def test_jobs_that_need_no_moves_are_not_credited_to_them() -> None:
    found = looked_at(*fragmented(), node("other"), pod("quarter", 4))
    (pool,) = found.pools
    assert sorted(job for step in pool.admissions.steps for job in step.jobs) == ["team/quarter", "team/whole"]
    assert set(pool.admissions.without_moves) == {"team/quarter", "team/whole"}
    assert not pool.admissions.moves
    wide = [pod(f"wide-{k}", 8, labels={"job-name": "wide"}) for k in range(2)]
    (pool,) = looked_at(*fragmented()[:-1], node("other"), pod("quarter", 4), *wide).pools
    assert pool.admissions.without_moves == ("team/quarter",)
    assert (len(pool.admissions.moves), pool.admissions.starts) == (1, 2)


def test_plan_is_called_the_cheapest_only_when_all_its_moves_are_in_the_first_step() -> None:
    (one,) = looked_at(*fragmented()).pools
    assert one.admissions.proven
    # Two sizes that both need moves: what the second moves, another choice for the first might have spared.
    running = [("a", 4, 0), ("b", 4, 1), ("c", 4, 2), ("d", 2, 2), ("e", 4, 3), ("f", 2, 3)]
    pods = [pod(name, gpus, f"gpu-{k}", movable=True) for name, gpus, k in running]
    (two,) = looked_at(*(node(f"gpu-{k}") for k in range(4)), *pods, pod("eight", 8), pod("four", 4)).pools
    assert [(len(step.moves), step.proven) for step in two.admissions.steps] == [(1, True), (1, True)]
    assert not two.admissions.proven


# ---- files


WHOLE = json.dumps(listed(*fragmented()))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
def test_files_are_read_in_the_encodings_that_shells_write(encoding: str) -> None:
    content = WHOLE.encode(encoding)
    if encoding == "utf-16-le":
        content = b"\xff\xfe" + content
    assert len(read_observation([("file", content)]).rows) == 3


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"apiVersion: v1\nitems:\n- kind: Node\n", "this is YAML; give JSON"),
        (b"NAME    STATUS   ROLES\ngpu-0   Ready    <none>\n", "this is a table for people; give JSON"),
        (b"   JOBID PARTITION     NAME\n", "this is a table for people"),
        (b"NodeName=gpu-0 Arch=x86_64\n", "this is a table for people"),
        (b"\x1f\x8b\x08\x00", "is compressed; unpack it first"),
        (b"\xff\xfe\x00", "is not utf-16"),
        (b"{\xff}", "is not utf-8"),
        (WHOLE[:-40].encode(), r"line 1, column \d+: not JSON"),
        (WHOLE.encode() + WHOLE.encode(), "node gpu-0: is there twice"),
        (WHOLE.encode() + json.dumps(listed(pod("half-0", 4, "gpu-0"))).encode(), "half-0: is there twice"),
        (json.dumps(listed(node("a", gpus=10**20))).encode(), "nvidia.com/gpu is '1000"),  # type: ignore[arg-type]
        (json.dumps(listed(node("a", gpus=-8))).encode(), "nvidia.com/gpu is '-8'"),
        (json.dumps(listed(node("a", gpus="500m"))).encode(), "nvidia.com/gpu is '500m'"),  # type: ignore[arg-type]
    ],
)
def test_files_of_another_kind_are_refused_with_what_to_do(content: bytes, words: str) -> None:
    with pytest.raises(AuditError, match=words):
        read_observation([("file", content)])


def test_amounts_with_units_are_read_as_kubernetes_means_them() -> None:
    found = looked_at(node("a", gpus="8000m"), node("b", gpus="1k"))  # type: ignore[arg-type]
    assert found.pools[0].survey.gpus == 8
    assert said(found) == {"nodes of 1000 GPUs; only 1, 2, 4, 8 and 16 are understood": (1, 1000)}


def test_objects_without_most_of_their_fields_are_read_as_far_as_they_go() -> None:
    bare: list[dict[str, Any]] = [
        {"kind": "Node", "metadata": {"name": "empty"}},
        {"kind": "Pod", "metadata": {"name": "empty"}},
        {"kind": "Pod", "metadata": {"name": "null"}, "spec": None, "status": None},
        {"kind": "Event", "metadata": {}},
    ]
    found = looked_at(node("a"), pod("whole", 8), *bare)
    assert answers(found) == {"whole": Answer.FITS}
