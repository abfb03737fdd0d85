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

# Containers have an environment of their own; containerd knows the first process of each.
tasks() { ls -d "$BASE"/n*/state/io.containerd.runtime.v2.task/k8s.io/* 2>/dev/null; }
containers() { for task in $(tasks); do echo "$(cat "$task/init.pid" 2>/dev/null)"; done; }

if [ -f "$BASE/pids" ]; then
  # Nothing of it is kept: nobody needs to end in order.
  for _ in $(seq 50); do
    pids="$(ours) $(containers)"; alive=
    for pid in $pids; do kill -9 "$pid" 2>/dev/null && alive=1; done
    [ -n "$alive" ] || break
    sleep 0.1
  done
  if [ -d "$BASE/images" ]; then       # real nodes; their mounts went with their namespaces
    for namespace in /run/netns/compass-*; do
      [ -e "$namespace" ] && ip netns del "${namespace##*/}"
    done
    for task in $(tasks); do find /sys/fs/cgroup -depth -type d -path "*${task##*/}*" -exec rmdir {} + 2>/dev/null; done
    rmdir /sys/fs/cgroup/*/k8s.io /sys/fs/cgroup/k8s.io 2>/dev/null
    grep -qx /run/netns "$BASE/made-for-nodes" && umount /run/netns
    tac "$BASE/made-for-nodes" 2>/dev/null | xargs -r rmdir --ignore-fail-on-non-empty
  fi
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
