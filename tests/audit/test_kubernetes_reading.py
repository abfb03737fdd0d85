"""What `compass audit` makes of nodes and pods as kubectl prints them."""

from typing import Any

import pytest

from compass_abs.audit import Audit, AuditError, audit
from compass_abs.audit.audit import AuditOptions, Movability
from compass_abs.audit.kubernetes import KubernetesOptions
from compass_abs.audit.reading import observe_documents
from compass_abs.planner.explain import Answer
from tests.audit.kubectl import fragmented, listed, node, pod


def looked_at(*objects: dict[str, Any], options: KubernetesOptions | None = None, **taken: Any) -> Audit:
    observation = observe_documents([("kubectl", listed(*objects))], "kubectl", options)
    return audit(observation, AuditOptions(**taken))


def verdict(found: Audit, job: str) -> Any:
    (each,) = [each for each in found.verdicts if each.job.id == job]
    return each


def test_gang_that_waits_on_fragmentation_is_told_from_one_that_waits_on_capacity() -> None:
    found = looked_at(*fragmented(), *(pod(f"wide-{k}", 8, labels={"job-name": "wide"}) for k in range(2)))
    assert verdict(found, "team/whole").answer is Answer.FRAGMENTATION
    assert verdict(found, "team/wide").answer is Answer.CAPACITY
    assert [str(shape) for shape in verdict(found, "team/wide").job.shapes] == ["2 × 8"]
    (pool,) = found.pools
    assert (pool.survey.partial_nodes, pool.blame.sizes, pool.blame.placement) == (3, 1, 2)
    assert (len(pool.admissions.moves), pool.admissions.starts, pool.admissions.gpu_seconds) == (1, 1, 32.0)


def test_move_costs_the_pause_that_its_gang_declares() -> None:
    objects = fragmented()
    for entry in objects[3:6]:
        entry["metadata"]["annotations"]["compass-abs/pause-seconds"] = "3"
    (pool,) = looked_at(*objects).pools
    assert pool.admissions.gpu_seconds == 12.0


def test_pools_are_never_mixed() -> None:
    found = looked_at(
        node("a", model="H100"), node("b", model="H100"), node("c", model="A100"), node("d", model="A100"),
        pod("one", 4, "a", movable=True), pod("two", 4, "c", movable=True), pod("three", 5, "b", movable=True),
        pod("four", 5, "d", movable=True), pod("whole", 8),
    )  # fmt: skip
    names = {pool.name: set(pool.before.names) for pool in found.pools}
    assert names == {"H100": {"a", "b"}, "A100": {"c", "d"}}
    # A half from each pool would make room; nothing may cross.
    assert verdict(found, "team/whole").answer is not Answer.FRAGMENTATION
    assert all(not pool.admissions.moves for pool in found.pools)


def test_taints_keep_nodes_apart_and_pods_away() -> None:
    team = [{"key": "team", "value": "vision", "effect": "NoSchedule"}]
    objects = [node("a"), node("b", taints=team), pod("whole", 8), pod("filler", 1, "a")]
    assert verdict(looked_at(*objects), "team/whole").answer is not Answer.FITS
    tolerant = pod("tolerant", 8, spec={"tolerations": [{"key": "team", "operator": "Exists"}]})
    found = looked_at(*objects, tolerant)
    assert verdict(found, "team/tolerant").answer is Answer.FITS
    assert {pool.name for pool in found.pools} == {"H100", "team=vision/H100"}


@pytest.mark.parametrize(
    ("rules", "fits"),
    [
        ({"nodeSelector": {"zone": "west"}}, True),
        ({"nodeSelector": {"zone": "east"}}, False),
        ([{"key": "zone", "operator": "NotIn", "values": ["west"]}], False),
        ([{"key": "rack", "operator": "DoesNotExist"}, {"key": "zone", "operator": "In", "values": ["west"]}], True),
        ([{"key": "cards", "operator": "Gt", "values": ["4"]}], True),
    ],
)
def test_selectors_and_affinities_say_where_a_pod_may_go(rules: Any, fits: bool) -> None:
    if isinstance(rules, list):
        required = {"nodeSelectorTerms": [{"matchExpressions": rules}]}
        rules = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
    found = looked_at(node("a", labels={"zone": "west", "cards": "8"}), pod("picky", 8, spec=rules))
    assert (verdict(found, "team/picky").answer is Answer.FITS) is fits


@pytest.mark.parametrize("away", [{"unschedulable": True}, {"ready": False}])
def test_node_that_is_cordoned_or_not_ready_gives_no_room(away: dict[str, bool]) -> None:
    found = looked_at(node("a", **away), pod("half", 4))
    assert found.pools[0].survey.nodes_not_up == 1
    assert verdict(found, "team/half").answer is not Answer.FITS


@pytest.mark.parametrize(
    "fields",
    [
        {"owner": ("DaemonSet", "monitor")},
        {"annotations": {"kubernetes.io/config.mirror": "x"}},
        {"spec": {"nodeSelector": {"kubernetes.io/hostname": "gpu-0"}}},
        {
            "spec": {
                "affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "x"}]}}
            }
        },
    ],
)
def test_what_may_not_move_is_held_and_counted(fields: dict[str, Any]) -> None:
    objects = [node(f"gpu-{k}", labels={"kubernetes.io/hostname": f"gpu-{k}"}) for k in range(2)]
    objects += [pod("held", 4, "gpu-0", movable=True, **fields), pod("free", 4, "gpu-1", movable=True)]
    found = looked_at(*objects, pod("whole", 8))
    (remark,) = found.fixed
    assert (remark.number, remark.gpus) == (1, 4)
    assert {move.instance.job_id for move in found.pools[0].admissions.moves} == {"team/free"}


def test_what_declares_nothing_moves_only_when_that_is_assumed() -> None:
    objects = fragmented()
    for entry in objects[3:6]:
        entry["metadata"]["labels"] = {}
    declared, assumed = looked_at(*objects), looked_at(*objects, movability=Movability.ASSUMED)
    assert not declared.pools[0].admissions.moves
    assert (declared.pools[0].undeclared_gpus, declared.pools[0].blame.undeclared) == (12, 2)
    assert verdict(declared, "team/whole").undeclared
    assert len(assumed.pools[0].admissions.moves) == 1


def test_pods_that_say_how_they_are_checkpointed_may_be_moved() -> None:
    objects = fragmented()
    for entry in objects[3:6]:
        entry["metadata"] |= {"labels": {}, "annotations": {"compass-abs/checkpoint": "signal"}}
    assert len(looked_at(*objects).pools[0].admissions.moves) == 1


def test_what_can_not_be_classified_is_left_out_and_said_how_much() -> None:
    sliced = node("mig", model="H100-MIG-1g.10gb")
    odd = node("odd", gpus=6)
    broken = node("broken", allocatable=7)
    fraction = pod("fraction", 0, "broken", annotations={"gpu-fraction": "0.5"})
    found = looked_at(node("a"), sliced, odd, broken, fraction, pod("lost", 2, "mig"), pod("whole", 8))
    said = {remark.what: (remark.number, remark.gpus) for remark in (*found.fixed, *found.left_out)}
    assert said["nodes whose GPUs are shared or sliced (time slicing, MIG)"] == (1, 8)
    assert said["nodes of 6 GPUs; only 1, 2, 4, 8 and 16 are understood"] == (1, 6)
    assert said["nodes with GPUs that are broken or in MIG mode"] == (1, 1)
    assert said["pods on nodes that are left out"] == (1, 2)
    assert any("a fraction of a GPU" in what for what in said)


@pytest.mark.parametrize(
    ("fields", "gang"),
    [
        ({"labels": {"batch.kubernetes.io/job-name": "j"}}, "team/j"),
        ({"labels": {"jobset.sigs.k8s.io/jobset-name": "s", "job-name": "s-0"}}, "team/s"),
        ({"labels": {"training.kubeflow.org/job-name": "p"}}, "team/p"),
        ({"annotations": {"scheduling.k8s.io/group-name": "v"}}, "team/v"),
        ({"labels": {"compass-abs/job": "own", "job-name": "other"}}, "team/own"),
        ({"owner": ("PyTorchJob", "bert")}, "team/bert"),
    ],
)
def test_pods_are_gangs_by_the_labels_of_their_owners(fields: dict[str, Any], gang: str) -> None:
    found = looked_at(node("a"), *(pod(f"w-{k}", 8, **fields) for k in range(3)))
    (only,) = found.verdicts
    assert (only.job.id, only.job.total_gpus) == (gang, 24)


def test_replicas_of_a_deployment_are_jobs_by_themselves() -> None:
    found = looked_at(node("a"), *(pod(f"web-{k}", 8, owner=("ReplicaSet", "web")) for k in range(3)))
    assert sorted(each.job.id for each in found.verdicts) == ["team/web-0", "team/web-1", "team/web-2"]


def test_gated_pod_waits_for_policy_and_ended_pods_hold_nothing() -> None:
    ended = pod("ended", 8, "a")
    ended["status"]["phase"] = "Succeeded"
    gated = pod("gated", 8, spec={"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]})
    found = looked_at(node("a"), ended, gated)
    assert found.pools[0].survey.free_gpus == 8
    assert verdict(found, "team/gated").answer is Answer.POLICY


def test_sidecars_and_init_containers_ask_as_kubernetes_counts_them() -> None:
    def box(gpus: int, **more: str) -> dict[str, Any]:
        return {"name": f"c{gpus}", "resources": {"limits": {"nvidia.com/gpu": gpus}}, **more}

    spec = {"containers": [box(2), box(1)], "initContainers": [box(1, restartPolicy="Always"), box(6)]}
    found = looked_at(node("a"), pod("many", 0, spec=spec))
    assert verdict(found, "team/many").job.total_gpus == 7


def test_another_gpu_resource_is_read_when_it_is_named() -> None:
    machine = node("a")
    for amounts in (machine["status"]["capacity"], machine["status"]["allocatable"]):
        amounts["example.com/npu"] = amounts.pop("nvidia.com/gpu")
    with pytest.raises(AuditError, match=r"no node in it with nvidia\.com/gpu"):
        looked_at(machine)
    found = looked_at(machine, options=KubernetesOptions(resources=("example.com/npu",)))
    assert found.pools[0].survey.gpus == 8


def test_lists_of_the_api_itself_are_read_too() -> None:
    bare = [{key: value for key, value in node("a").items() if key not in ("kind", "apiVersion")}]
    pods = [{key: value for key, value in pod("x", 4, "a").items() if key not in ("kind", "apiVersion")}]
    documents = [("n", {"kind": "NodeList", "items": bare}), ("p", {"kind": "PodList", "items": pods})]
    (pool,) = audit(observe_documents(documents, "api")).pools
    assert pool.survey.free_gpus == 4
