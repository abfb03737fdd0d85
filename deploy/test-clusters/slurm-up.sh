#!/usr/bin/env bash
# slurm-up.sh [BASE] [NODES]: a private munged, slurmctld and NODES slurmd on this machine, with 8 pretended GPUs each.
# No systemd, no cgroups, nothing outside BASE. Then: export SLURM_CONF=BASE/etc/slurm.conf
# GPUS of a node, PORT, SLURMD_TIMEOUT and SLURM_OPTIONS (further lines of slurm.conf) may be set.
set -euo pipefail
cd "$(dirname "$0")"
BASE=$(realpath -m "${1:-${TMPDIR:-/tmp}/compass-slurm}")
NODES=${2:-4}
GPUS=${GPUS:-8}
PORT=${PORT:-16817}                     # of slurmctld; the nodes use the ones from PORT+200 on
PACKAGES=(slurmctld slurmd slurm-client munge)

export PATH="$PATH:/usr/sbin"
if [ -f "$BASE/pids" ]; then echo "a cluster is running under $BASE; take it down first: $PWD/slurm-down.sh $BASE" >&2; exit 2; fi
mkdir -p "$BASE"/{etc,state,log,spool,munge,dev}
chmod 755 "$BASE" "$BASE/munge"

if ! command -v slurmctld slurmd sbatch munged >/dev/null; then
  if [ -n "${NO_INSTALL:-}" ]; then echo "Slurm is missing: apt-get install ${PACKAGES[*]}" >&2; exit 3; fi
  dpkg-query -W -f '${Package}\n' | sort > "$BASE/packages-before"
  [ -n "$(ls /var/lib/apt/lists 2>/dev/null | grep -v -e lock -e partial)" ] || apt-get update -q
  DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${PACKAGES[@]}" >&2
fi

head -c 128 /dev/urandom > "$BASE/munge/munge.key"
chmod 400 "$BASE/munge/munge.key"
# Devices are only looked at, never opened. Without root a link to /dev/null does.
for ((i = 0; i < GPUS; i++)); do
  mknod "$BASE/dev/nvidia$i" c 1 3 2>/dev/null || ln -sf /dev/null "$BASE/dev/nvidia$i"
done

# `Name=gpu Count=8` without File leaves the nodes invalid for ever (22.05): hence the devices.
echo "NodeName=n[1-$NODES] Name=gpu File=$BASE/dev/nvidia[0-$((GPUS - 1))]" > "$BASE/etc/gres.conf"
cat > "$BASE/etc/slurm.conf" <<CONF
ClusterName=compass
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=$PORT
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
AuthType=auth/munge
AuthInfo=socket=$BASE/munge/munge.sock
CredType=cred/munge
StateSaveLocation=$BASE/state
SlurmdSpoolDir=$BASE/spool/%n
SlurmctldPidFile=$BASE/log/slurmctld.pid
SlurmdPidFile=$BASE/log/slurmd.%n.pid
SlurmctldLogFile=$BASE/log/slurmctld.log
SlurmdLogFile=$BASE/log/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=$BASE/log/jobcomp.log
MpiDefault=none
SwitchType=switch/none
ReturnToService=2
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1
PriorityType=priority/basic
KillWait=3
SlurmdTimeout=${SLURMD_TIMEOUT:-10}
InactiveLimit=0
MinJobAge=300
GresTypes=gpu
NodeName=n[1-$NODES] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[$((PORT + 201))-$((PORT + 200 + NODES))] CPUs=64 RealMemory=64000 Gres=gpu:$GPUS State=UNKNOWN
PartitionName=others Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
PartitionName=compass Nodes=ALL MaxTime=INFINITE State=UP OverSubscribe=NO
# Jobs may be submitted here, and none starts: COMPASS takes them from it.
PartitionName=compass-inbox Nodes=ALL MaxTime=INFINITE State=DOWN
${SLURM_OPTIONS:-}
CONF

munged --force --key-file="$BASE/munge/munge.key" --socket="$BASE/munge/munge.sock" --pid-file="$BASE/munge/munged.pid" \
  --log-file="$BASE/munge/munged.log" --seed-file="$BASE/munge/munged.seed" --num-threads=2
cat "$BASE/munge/munged.pid" > "$BASE/pids"
export SLURM_CONF=$BASE/etc/slurm.conf
setsid slurmctld -c -D > "$BASE/log/slurmctld.out" 2>&1 < /dev/null &
echo $! > "$BASE/log/slurmctld.mypid"; echo $! >> "$BASE/pids"
for ((i = 1; i <= NODES; i++)); do
  setsid slurmd -D -N "n$i" > "$BASE/log/slurmd.n$i.out" 2>&1 < /dev/null &
  echo $! > "$BASE/log/slurmd.n$i.mypid"; echo $! >> "$BASE/pids"
done

for _ in $(seq 300); do
  if [ "$(timeout 5 sinfo -h -N -o %T 2>/dev/null | sort -u)" = idle ]; then
    echo "$NODES nodes of $GPUS GPUs are up; partitions: compass, compass-inbox, others. Now:  export SLURM_CONF=$SLURM_CONF"
    exit 0
  fi
  sleep 0.1
done
echo "the nodes are not up after 30 s; see $BASE/log" >&2
exit 1
