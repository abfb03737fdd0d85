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
  for name in fake-kubelet kube-controller-manager kube-apiserver etcd; do
    pid=$(cat "$BASE/log/$name.pid" 2>/dev/null) || continue
    grep -qzxF "COMPASS_TEST_CLUSTER=$BASE" "/proc/$pid/environ" 2>/dev/null || continue
    kill "$pid"
    # The API server waits for watches to end; nobody is interested in its last words.
    for _ in $(seq 20); do [ -d "/proc/$pid" ] || break; sleep 0.1; done
    kill -9 "$pid" 2>/dev/null
  done
  for pid in $(ours); do kill -9 "$pid" 2>/dev/null; done
  rm -rf "$BASE"
  echo "the cluster under $BASE is gone"
else
  echo "no cluster under $BASE"
fi
if [ "$PURGE" = --purge ]; then
  rm -rf "${COMPASS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/compass-abs}/kubernetes"
  rmdir "${COMPASS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/compass-abs}" 2>/dev/null || true
fi
