#!/usr/bin/env bash
# slurm-release.sh SUITE: the Slurm of another Debian suite (trixie: 24.11, forky: 26.05) beside this machine's own, in a
# cache outside the clone, nothing installed. Prints what to set:  eval "$(deploy/test-clusters/slurm-release.sh trixie)"
# Then slurm-up.sh and the tests use it. It runs on its suite's C library, by the paths that are written into its programs.
set -euo pipefail
SUITE=${1:?a suite of Debian, such as trixie}
CACHE=${COMPASS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/compass-abs}
HERE=$(realpath -m "$CACHE/slurm/$SUITE")
LIBRARIES=$HERE/root/usr/lib/x86_64-linux-gnu

apt() {                                 # apt PROGRAM ARGUMENT...: with a state of its own, for which nothing is installed
  local program=$1; shift
  APT_CONFIG=$HERE/apt/apt.conf "$program" -qq -o Acquire::Check-Valid-Until=false "$@" >&2
}

if [ ! -x "$HERE/bin/slurmd" ]; then
  command -v apt-get dpkg >/dev/null || { echo "slurm-release: this takes Debian's apt-get" >&2; exit 2; }
  rm -rf "$HERE"
  mkdir -p "$HERE"/{programs,root} "$HERE"/apt/{etc/apt.conf.d,etc/preferences.d,state/lists/partial,cache/archives/partial}
  : > "$HERE/apt/status"
  cat > "$HERE/apt/apt.conf" <<APT
Dir::State "$HERE/apt/state"; Dir::State::status "$HERE/apt/status"; Dir::Cache "$HERE/apt/cache"; Dir::Etc "$HERE/apt/etc";
APT::Sandbox::User ""; APT::Install-Recommends "false";
APT
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${MIRROR:-https://deb.debian.org/debian} $SUITE main" \
    > "$HERE/apt/etc/sources.list"
  echo "slurm-release: fetching the Slurm of $SUITE (30 MB)" >&2
  apt apt-get update
  apt apt-get install --yes --download-only slurmctld slurmd slurm-client patchelf
  for package in "$HERE"/apt/cache/archives/*.deb; do dpkg -x "$package" "$HERE/root"; done
  loader=$HERE/root/usr/lib64/ld-linux-x86-64.so.2 path=$LIBRARIES/slurm-wlm:$LIBRARIES
  for program in "$HERE"/root/usr/bin/{sbatch,squeue,scontrol,scancel,sinfo,srun,sacctmgr} "$HERE"/root/usr/sbin/slurm{ctld,d,stepd}-wlm; do
    name=$(basename "$program" -wlm)
    cp -L "$program" "$HERE/programs/$name"
    "$loader" --library-path "$LIBRARIES" "$HERE/root/usr/bin/patchelf" --set-interpreter "$loader" --force-rpath \
      --set-rpath "$path" "$HERE/programs/$name"
  done
  rm -rf "$HERE/apt"
  mkdir "$HERE/bin"
  for program in "$HERE"/programs/*; do ln -s "../programs/$(basename "$program")" "$HERE/bin/"; done
  # slurmd looks for its slurmstepd where Debian puts it: this machine's own, of another release.
  rm "$HERE/bin/slurmd"
  printf '#!/bin/sh\nexec %q -d %q "$@"\n' "$HERE/programs/slurmd" "$HERE/programs/slurmstepd" > "$HERE/bin/slurmd.new"
  chmod +x "$HERE/bin/slurmd.new"
  mv "$HERE/bin/slurmd.new" "$HERE/bin/slurmd"
  echo "slurm-release: $("$HERE/programs/slurmd" -V) is in $HERE" >&2
fi
echo "export PATH=$HERE/bin:\$PATH SLURM_OPTIONS=PluginDir=$LIBRARIES/slurm-wlm"
