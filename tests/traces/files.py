"""Small trace files in the published layouts, with made-up jobs."""

from pathlib import Path

HELIOS_HEADER = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"
GFS_HEADER = "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type"
ACME_HEADER = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time"
OPENB_HEADER = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
)
PLAIN_HEADER = "job_id,instances,gpus,submitted,duration"


def helios_row(
    job_id: object = 1, gpus: object = 1, submitted: object = "2020-03-18 04:01:39", duration: object = 60
) -> str:
    return f"{job_id},u1,vc1,{gpus},4,1,COMPLETED,{submitted},{submitted},,{duration},0"


def gfs_row(name: object = 1, gpus: object = 1.0, workers: object = 1, at: object = 0, duration: object = 60) -> str:
    return f"{name},13,A10,8,{gpus},{workers},{at},{duration},HP"


def acme_row(
    job_id: object = "a", nodes: object = 1, gpus: object = 8, at: str = "2023-03-01 00:18:22+08:00", t: object = 117
) -> str:
    return f"{job_id},u1,{nodes},{gpus},128,Other,FAILED,{at},{at},{at},{t},32,936.0"


def openb_row(
    name: str = "p", gpus: object = 1, milli: object = 1000, at: object = 0, end: object = 60, start: object = 0
) -> str:
    return f"{name},12000,16384,{gpus},{milli},,LS,Running,{at},{end},{start}"


def write(folder: Path, *lines: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
