"""What `compass audit` makes of Slurm's JSON, in the layouts of several releases."""

from typing import Any

import pytest

from compass_abs.audit import Audit, AuditError, audit
from compass_abs.audit.reading import observe_documents
from compass_abs.planner.explain import Answer


def numbered(value: int) -> dict[str, Any]:
    """A number as 23.02 and later write it."""
    return {"set": True, "infinite": False, "number": value}


def old_node(name: str, used: int, state: str = "mixed", **fields: Any) -> dict[str, Any]:
    """As `sinfo --json` of 22.05."""
    found = {"name": name, "hostname": "localhost", "gres": "gpu:8", "gres_used": f"gpu:{used}", "state": state}
    return {**found, "state_flags": [], "partitions": ["gpu"], "active_features": "", **fields}


def new_node(name: str, used: int, *states: str, **fields: Any) -> dict[str, Any]:
    """As `scontrol show node --json` of 23.02 and later."""
    found = {"name": name, "gres": "gpu:h100:8(S:0-1)", "gres_used": f"gpu:h100:{used}(IDX:0-{used - 1})"}
    return {**found, "state": list(states or ("MIXED",)), "partitions": ["gpu"], "active_features": [], **fields}


def group(nodes: list[str], used: int, partition: str) -> dict[str, Any]:
    """As `sinfo --json` of 23.02 and later: nodes that are alike, once for each partition."""
    gres = {"total": "gpu:h100:8", "used": f"gpu:h100:{used}"}
    where = {"nodes": {"nodes": nodes}, "partition": {"name": partition}, "node": {"state": ["MIXED"]}}
    return {**where, "gres": gres, "features": {"total": "", "active": ""}}


def old_job(number: int, nodes: str, gpus: int, **fields: Any) -> dict[str, Any]:
    """As `squeue --json` of 22.05."""
    state = {"job_state": "RUNNING" if nodes else "PENDING", "state_reason": "None" if nodes else "Resources"}
    found = {"job_id": number, "nodes": nodes, "tres_per_node": f"gres:gpu:{gpus}", "node_count": 1, "submit_time": 100}
    return {**found, **state, "partition": "gpu", "user_name": "ann", "comment": "", "start_time": 200, **fields}


def new_job(number: int, nodes: str, gpus: int, **fields: Any) -> dict[str, Any]:
    """As `squeue --json` of 23.02 and later."""
    found = old_job(number, nodes, gpus, tres_per_node=f"gres/gpu:{gpus}")
    states = {"job_state": ["RUNNING" if nodes else "PENDING"], "node_count": numbered(1)}
    times = {"submit_time": numbered(100), "start_time": numbered(200), "priority": numbered(7)}
    return {**found, **states, **times, **fields}


def looked_at(*documents: dict[str, Any]) -> Audit:
    return audit(observe_documents([("slurm", document) for document in documents], "slurm"))


def verdict(found: Audit, job: str) -> Any:
    (each,) = [each for each in found.verdicts if each.job.id == job]
    return each


MOVABLE = {"comment": "compass-abs/movable=true"}


@pytest.mark.parametrize("layout", ["22.05", "23.02", "sinfo of 23.02"])
def test_every_layout_gives_the_same_finding(layout: str) -> None:
    job = old_job if layout == "22.05" else new_job
    jobs = [job(k, f"n{k}", 4, **MOVABLE) for k in (1, 2)] + [job(3, "", 8)]
    if layout == "22.05":
        nodes: dict[str, Any] = {"nodes": [old_node(f"n{k}", 4) for k in (1, 2)]}
    elif layout == "23.02":
        nodes = {"nodes": [new_node(f"n{k}", 4) for k in (1, 2)]}
    else:
        nodes = {"sinfo": [group(["n[1-2]"], 4, "gpu")]}
    found = looked_at(nodes, {"jobs": jobs})
    (pool,) = found.pools
    assert (pool.survey.partial_nodes, pool.survey.free_gpus, len(pool.admissions.moves)) == (2, 8, 1)
    assert verdict(found, "3").answer is Answer.FRAGMENTATION


def test_shares_of_a_job_on_several_nodes_follow_its_details() -> None:
    detail = {"nodes": "n[1-2]", "gres_detail": ["gpu:3(IDX:0-2)", "gpu:1(IDX:0)"]}
    found = looked_at({"nodes": [old_node("n1", 3), old_node("n2", 1)]}, {"jobs": [old_job(1, "", 0) | detail | {
        "job_state": "RUNNING", "tres_per_node": ""}]})  # fmt: skip
    assert found.pools[0].survey.free_gpus == 12
    assert not found.fixed


def test_gpus_that_no_job_accounts_for_are_fixed_and_counted() -> None:
    found = looked_at({"nodes": [old_node("n1", 5)]}, {"jobs": []})
    (remark,) = found.fixed
    assert (remark.number, remark.gpus, found.pools[0].fixed_gpus) == (1, 5, 5)


@pytest.mark.parametrize(
    "state", [["IDLE", "DRAIN"], ["DOWN"], ["IDLE", "NOT_RESPONDING"], ["MIXED", "RESERVED"], ["IDLE", "MAINTENANCE"]]
)
def test_node_that_can_not_be_used_is_not_measured(state: list[str]) -> None:
    found = looked_at({"nodes": [new_node("n1", 1, *state)]}, {"jobs": [new_job(3, "", 8)]})
    assert found.pools[0].survey.nodes_not_up == 1
    assert verdict(found, "3").answer is not Answer.FITS


@pytest.mark.parametrize(
    ("fields", "answer"),
    [
        ({"state_reason": "JobHeldUser"}, Answer.POLICY),
        ({"state_reason": "Dependency"}, Answer.POLICY),
        ({"state_reason": "QOSMaxGRESPerUser"}, Answer.POLICY),
        ({"state_reason": "Priority"}, Answer.FITS),
        ({"partition": "cpu"}, Answer.POLICY),
        ({"excluded_nodes": "n[1-2]"}, Answer.POLICY),
        ({"features": "a100"}, Answer.POLICY),
    ],
)
def test_reason_and_rules_of_a_job_decide_what_it_waits_for(fields: dict[str, Any], answer: Answer) -> None:
    nodes = [old_node("n1", 0, "idle"), old_node("n2", 0, "idle", partitions=["gpu"])]
    found = looked_at({"nodes": nodes}, {"jobs": [old_job(3, "", 8, **fields)]})
    assert verdict(found, "3").answer is answer


def test_tasks_of_an_array_are_jobs_alike_and_components_start_together() -> None:
    array = old_job(20, "", 8, array_job_id=20, array_task_string="0-9%2")
    parts = [old_job(30, "", 4, het_job_id=30), old_job(31, "", 2, het_job_id=30, node_count=2)]
    found = looked_at({"nodes": [old_node("n1", 0)]}, {"jobs": [array, *parts]})
    assert verdict(found, "20").job.copies == 10
    assert [str(shape) for shape in verdict(found, "30").job.shapes] == ["1 × 4", "2 × 2"]


def test_partitions_and_models_are_pools_of_their_own() -> None:
    nodes = [new_node("n1", 4), new_node("n2", 4, gres="gpu:a100:8", gres_used="gpu:a100:4")]
    nodes.append(new_node("n3", 4, partitions=["other"]))
    found = looked_at({"nodes": nodes}, {"jobs": [new_job(k, f"n{k}", 4, **MOVABLE) for k in (1, 2, 3)]})
    assert {pool.name for pool in found.pools} == {"gpu/h100", "gpu/a100", "other/h100"}
    assert all(pool.tidying is None for pool in found.pools)


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        ([{"jobs": []}], "there are jobs, but no nodes"),
        (
            [{"nodes": [old_node("n1", 0)]}, {"jobs": [], "errors": [{"error": "Unable to contact", "error_code": 2}]}],
            "Slurm says in it that it failed: 'Unable to contact'",
        ),
        ([{"nodes": [old_node("n1", 0)]}, {"jobs": [{"job_id": "x"}]}], "job_id"),
        ([{"nodes": [old_node("n1", 0, gres="gpu:many")]}, {"jobs": []}], "'gpu:many' is no number of GPUs"),
        ([{"nodes": [old_node("n1", 0)]}, {"jobs": [old_job(1, "n[1-x]", 4)]}], "no range of hosts"),
        ([{"nodes": [old_node("n1", 0, gres="")]}, {"jobs": []}], "no node with GPUs"),
        ([{"nodes": [old_node("n1", 0)]}, {"kind": "List", "items": []}], "Slurm and Kubernetes together"),
    ],
)
def test_input_that_makes_no_sense_is_refused_plainly(documents: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(AuditError, match=words):
        looked_at(*documents)


def test_nodes_without_a_list_of_jobs_are_said_to_be_that() -> None:
    assert [str(remark) for remark in looked_at({"nodes": [old_node("n1", 0)]}).left_out] == [
        "jobs, of which there is no list in it: give `squeue --json` as well"
    ]
    assert not looked_at({"nodes": [old_node("n1", 0)]}, {"jobs": []}).left_out


def unset(number: int = 0) -> dict[str, Any]:
    """A number that isn't there, as 23.02 and later write it."""
    return {"set": False, "infinite": False, "number": number}


def job_of_24_11(number: int, nodes: str, gpus: int, **fields: Any) -> dict[str, Any]:
    """As `squeue --json` of 24.05 to 25.05, with what surrounds what is read."""
    hosts = [nodes] if nodes else []
    return {
        "account": "research",
        "allocating_node": "login1",
        "array_job_id": numbered(0),
        "array_task_id": unset(),
        "array_max_tasks": numbered(0),
        "array_task_string": "",
        "comment": "compass-abs/movable=true" if nodes else "",
        "admin_comment": "",
        "excluded_nodes": "",
        "required_nodes": "",
        "features": "",
        "gres_detail": [f"gpu:h100:{gpus}(IDX:0-{gpus - 1})" for _ in hosts],
        "het_job_id": numbered(0),
        "het_job_offset": numbered(0),
        "job_id": number,
        "job_resources": {"select_type": ["CORE"], "nodes": {"count": len(hosts), "list": nodes}} if nodes else None,
        "job_state": ["RUNNING", "COMPLETING"][:1] if nodes else ["PENDING"],
        "node_count": numbered(1),
        "tasks": numbered(1),
        "nodes": nodes,
        "partition": "gpu",
        "priority": {"set": True, "infinite": True, "number": 0} if nodes else numbered(4294),
        "start_time": numbered(1_746_693_311 if nodes else 0),
        "submit_time": numbered(1_746_693_000),
        "state_description": "",
        "state_reason": "None" if nodes else "Resources",
        "tres_alloc_str": f"cpu=8,mem=64G,node=1,billing=8,gres/gpu={gpus},gres/gpu:h100={gpus}" if nodes else "",
        "tres_req_str": f"cpu=8,mem=64G,node=1,billing=8,gres/gpu={gpus},gres/gpu:h100={gpus}",
        "tres_per_job": "",
        "tres_per_node": f"gres/gpu:h100:{gpus}",
        "tres_per_task": "",
        "user_name": "ann",
        **fields,
    }


def test_jobs_of_24_11_are_read_with_all_that_surrounds_them() -> None:
    nodes = [new_node(f"n{k}", 4, "MIXED", "DYNAMIC_NORM", "PLANNED") for k in (1, 2)]
    nodes.append(new_node("n3", 0, "IDLE", "CLOUD", "POWERED_DOWN", gres_used="gpu:h100:0(IDX:N/A)"))
    jobs = [job_of_24_11(1, "n1", 4), job_of_24_11(2, "n2", 4), job_of_24_11(3, "", 8)]
    meta = {"plugin": {"data_parser": "data_parser/v0.0.42"}, "slurm": {"release": "24.11.1"}}
    dump = {"meta": meta, "errors": [], "warnings": []}
    found = looked_at({"nodes": nodes, **dump}, {"jobs": jobs, "last_backfill": numbered(7), **dump})
    (pool,) = found.pools
    assert (pool.name, pool.survey.nodes, pool.survey.nodes_not_up, pool.survey.free_gpus) == ("gpu/h100", 2, 1, 8)
    assert verdict(found, "3").answer is Answer.FRAGMENTATION
    assert len(pool.admissions.moves) == 1
    assert not found.fixed
    assert not found.left_out


@pytest.mark.parametrize("key", ["tres_req_str", "tres_per_job", "tres_per_task", "tres_per_node"])
@pytest.mark.parametrize("spelling", ["gres/gpu:h100=8", "gres:gpu:h100:8", "gres/gpu:8", "gres:gpu=8"])
def test_gpus_are_found_wherever_and_however_a_job_asks_for_them(key: str, spelling: str) -> None:
    asked = dict.fromkeys(("tres_req_str", "tres_per_job", "tres_per_task", "tres_per_node"), "") | {key: spelling}
    found = looked_at({"nodes": [new_node("n1", 0, "IDLE")]}, {"jobs": [job_of_24_11(3, "", 8, **asked)]})
    (only,) = found.verdicts
    assert [str(shape) for shape in only.job.shapes] == ["1 × 8"]
    assert only.answer is Answer.FITS


def test_job_that_is_there_twice_is_refused() -> None:
    with pytest.raises(AuditError, match="job 3 is there twice"):
        looked_at({"nodes": [old_node("n1", 0)]}, {"jobs": [old_job(3, "", 8)]}, {"jobs": [old_job(3, "", 8)]})
