#!/usr/bin/env bash
# k8s-down.sh [BASE] [--purge]: ends what k8s-up.sh started, pods' processes included, and removes BASE; --purge: and what
# k8s-build.sh fetched and built.
set -uo pipefail
BASE=$(realpath -m "${1:-${TMPDIR:-/tmp}/compass-k8s}")
PURGE=${2:-}

# Our own processes only: those whose environment names this cluster. Pods' processes inherit it.
ours() {
  for environment in $(grep -lzxF "COMPASS_TEST_CLUSTER=$BASE" /proc/[0-9]*/environ 2>/dev/null); do
    pid=${environment#/proc/}; echo "${pid%/environ}"
  done
}

if [ -f "$BASE/pids" ]; then
  # Nothing of it is kept: nobody needs to end in order.
  for _ in $(seq 50); do
    pids=$(ours); [ -n "$pids" ] || break
    for pid in $pids; do kill -9 "$pid" 2>/dev/null; done
    sleep 0.1
  done
  # places where volumes were mounted; the mounts themselves went with their processes
  [ -f "$BASE/made" ] && while read -r made; do
    if [ -d "$made" ]; then rmdir "$made"; elif [ ! -s "$made" ]; then rm -f "$made"; fi 2>/dev/null
  done < "$BASE/made"
  rm -rf "$BASE"
  echo "the cluster under $BASE is gone"
else
  echo "no cluster under $BASE"
fi
if [ "$PURGE" = --purge ]; then
  rm -rf "${COMPASS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/compass-abs}/kubernetes"
  rmdir "${COMPASS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/compass-abs}" 2>/dev/null || true
fi
