#!/usr/bin/env bash
# slurm-down.sh [BASE] [--purge]: ends what slurm-up.sh started, and removes BASE; --purge: and the packages it installed.
set -uo pipefail
BASE=$(realpath -m "${1:-${TMPDIR:-/tmp}/compass-slurm}")
PURGE=${2:-}
[ -f "$BASE/etc/slurm.conf" ] || { echo "no cluster under $BASE"; exit 0; }
export SLURM_CONF=$BASE/etc/slurm.conf

# Our own processes only: those whose environment names this cluster's configuration. slurmstepd and jobs outlive slurmd;
# that of newer releases writes its title over its environment, and is known by the log that it has open.
ours() {
  for environment in $(grep -lzxF "SLURM_CONF=$SLURM_CONF" /proc/[0-9]*/environ 2>/dev/null); do
    pid=${environment#/proc/}; pid=${pid%/environ}
    case $(cat "/proc/$pid/comm" 2>/dev/null) in
      slurmctld|slurmd|slurmstepd|slurmscriptd) echo "$pid" ;;
      *) grep -qz '^SLURM_JOB_ID=' "$environment" 2>/dev/null && echo "$pid" ;;
    esac
  done
  for name in $(grep -lxF slurmstepd /proc/[0-9]*/comm 2>/dev/null); do
    pid=${name#/proc/}; pid=${pid%/comm}
    find "/proc/$pid/fd" -lname "$BASE/log/*" 2>/dev/null | grep -q . && echo "$pid"
  done
}

if timeout 3 scontrol ping 2>/dev/null | grep -q "is UP"; then
  timeout 5 scancel --state=PENDING 2>/dev/null
  timeout 5 scancel --state=RUNNING 2>/dev/null
  for _ in $(seq 20); do
    [ -n "$(timeout 2 squeue -h -t RUNNING,COMPLETING 2>/dev/null)" ] || break
    sleep 0.1
  done
fi
for pid in $(cat "$BASE"/log/slurmd.*.mypid "$BASE/log/slurmctld.mypid" 2>/dev/null); do
  grep -qzxF "SLURM_CONF=$SLURM_CONF" "/proc/$pid/environ" 2>/dev/null && kill "$pid"
done
for _ in $(seq 30); do [ -z "$(ours)" ] && break; sleep 0.1; done
for pid in $(ours); do kill -9 "$pid" 2>/dev/null; done
munged=$(cat "$BASE/munge/munged.pid" 2>/dev/null)
[ -n "$munged" ] && grep -q munged "/proc/$munged/comm" 2>/dev/null && kill "$munged"
for _ in $(seq 30); do [ -n "$munged" ] && [ -d "/proc/$munged" ] || break; sleep 0.1; done
if [ "$PURGE" = --purge ] && [ -f "$BASE/packages-before" ]; then
  dpkg-query -W -f '${Package}\n' | sort | comm -13 "$BASE/packages-before" - | xargs -r apt-get purge -q -y >&2
fi
rm -rf "$BASE"
echo "the cluster under $BASE is gone"
