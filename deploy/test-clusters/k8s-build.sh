#!/usr/bin/env bash
# k8s-build.sh [--real]: real Kubernetes servers (kube-apiserver, kube-controller-manager) from Debian's source package, by
# Debian's Go, and Debian's etcd and kubectl beside them. --real: also what real nodes need, kubelet, containerd, runc, CNI
# and a plugin that pretends GPUs. Nothing is installed and root isn't needed: packages are fetched, verified by apt, and
# unpacked in a cache outside the clone. What is there isn't built again; KEEP_BUILD=1 keeps the build's own 2 GB.
# Prints the folder of the binaries as its last line.
set -euo pipefail
HERE=$(realpath "$(dirname "$0")")
VERSION=1.20.2                          # the newest whole source tree that Debian 12 carries
CACHE=${COMPASS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/compass-abs}/kubernetes/$VERSION
COMPONENTS=(kube-apiserver kube-controller-manager)
PACKAGES=(etcd-server kubernetes-client)
UNPACKED=(bin/etcd bin/kubectl)         # of the packages, below usr
OWN=()                                  # from our own source, with libraries of Kubernetes' tree
if [ "${1:-}" = --real ]; then
  COMPONENTS+=(kubelet)
  PACKAGES+=(containerd runc containernetworking-plugins)
  UNPACKED+=(bin/containerd bin/containerd-shim-runc-v2 bin/ctr sbin/runc lib/cni/{loopback,ptp,host-local})
  OWN=(fake_gpu pause)
fi

all_there() {
  local name
  for name in "${COMPONENTS[@]}" "${UNPACKED[@]##*/}" "${OWN[@]//_/-}"; do [ -x "$CACHE/bin/$name" ] || return 1; done
}

say() { echo "k8s-build: $*" >&2; }

if all_there; then echo "$CACHE/bin"; exit 0; fi
if [ -n "${NO_INSTALL:-}" ]; then say "${COMPONENTS[*]} missing in $CACHE/bin; $0 builds them"; exit 3; fi
command -v apt-get dpkg-deb tar flock >/dev/null || { say "needs apt-get and dpkg of Debian 12; nothing built"; exit 3; }
WORK=$CACHE/build
mkdir -p "$CACHE/bin" "$WORK"
exec 9> "$CACHE/lock"
flock 9                                 # two builds at once would share the work folder
if all_there; then echo "$CACHE/bin"; exit 0; fi
cd "$WORK"

# A package list of its own, with sources: the machine's configuration stays as it is.
mkdir -p lists/partial archives debs
cat > sources.list <<LIST
deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${DEBIAN_MIRROR:-http://deb.debian.org/debian} bookworm main
deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${DEBIAN_MIRROR:-http://deb.debian.org/debian} bookworm main
LIST
APT=(-qq -o "Dir::Etc::SourceList=$WORK/sources.list" -o Dir::Etc::SourceParts=- -o "Dir::State::Lists=$WORK/lists"
  -o "Dir::Cache=$WORK/archives" -o "APT::Sandbox::User=$(id -un)" -o Acquire::Retries=3)

fetch() {                               # fetch PACKAGE...: unpacked below $WORK/root
  (cd debs && apt-get "${APT[@]}" download "$@")
  for package in "$@"; do dpkg-deb -x debs/"$package"_*.deb root; done
}

place() { cp "$1" "$CACHE/bin/.$2" && mv "$CACHE/bin/.$2" "$CACHE/bin/$2"; }

say "fetching Go 1.19, the source of Kubernetes $VERSION, ${PACKAGES[*]} (150 MB)"
rm -f debs/*.deb
apt-get "${APT[@]}" update
fetch "${PACKAGES[@]}"
for file in "${UNPACKED[@]}"; do place "root/usr/$file" "${file##*/}"; done
[ -d root/usr/share/gocode ] || fetch golang-1.19-go golang-1.19-src patch golang-github-modern-go-reflect2-dev

export GOROOT=$WORK/root/usr/lib/go-1.19 GOPATH=$WORK/gopath GOCACHE=$WORK/gocache GO111MODULE=off CGO_ENABLED=0 GOFLAGS=
export PATH="$GOROOT/bin:$PATH:$WORK/root/usr/bin"
SOURCE=$GOPATH/src/k8s.io/kubernetes
if [ ! -d "$SOURCE" ]; then
  (cd debs && apt-get "${APT[@]}" source --download-only kubernetes)
  rm -rf unpacked && mkdir -p unpacked "$(dirname "$SOURCE")"
  tar -xzf debs/kubernetes_*.orig.tar.gz -C unpacked --strip-components=1
  python3 -c "import sys, tarfile; tarfile.open(sys.argv[1]).extractall('unpacked')" debs/kubernetes_*.debian.tar.xz
  while read -r name; do
    patch --silent -p1 -d unpacked < "unpacked/debian/patches/$name" >&2
  done < <(grep -v '^ *\(#\|$\)' unpacked/debian/patches/series)
  # From Go 1.18 on, the vendored reflect2 1.0.1 crashes the server at the first custom resource; Debian's 1.0.2 doesn't.
  rm -rf unpacked/vendor/github.com/modern-go/reflect2/*
  cp root/usr/share/gocode/src/github.com/modern-go/reflect2/*.{go,s} unpacked/vendor/github.com/modern-go/reflect2/
  mv unpacked "$SOURCE"
fi
cd "$SOURCE"

# The one generated file that isn't in the tarball.
OPENAPI=pkg/generated/openapi/zz_generated.openapi.go
if [ ! -s "$OPENAPI" ]; then
  say "generating $OPENAPI"
  go build -o "$WORK/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
  packages=$(grep -rl --include='*.go' '+k8s:openapi-gen=' vendor/k8s.io/*/ pkg cmd \
    | grep -vE '/zz_|^vendor/k8s.io/(code-generator|sample-apiserver|kube-openapi|gengo)/|/testdata/' \
    | xargs -n1 dirname | sort -u | sed 's#^#k8s.io/kubernetes/#' | paste -sd,)
  "$WORK/openapi-gen" --logtostderr -i "$packages" -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi \
    -h hack/boilerplate/boilerplate.generatego.txt -r "$WORK/violations.txt" >&2
fi

stamp="-s -w"
for package in component-base/version client-go/pkg/version; do
  package=k8s.io/kubernetes/vendor/k8s.io/$package
  stamp+=" -X $package.gitMajor=1 -X $package.gitMinor=20 -X $package.gitVersion=v$VERSION -X $package.gitTreeState=clean"
done
for component in "${COMPONENTS[@]}"; do
  [ -x "$CACHE/bin/$component" ] && continue
  say "building $component"
  started=$SECONDS
  # providerless: without the clouds' code, half the time and size
  go build -tags providerless -ldflags "$stamp" -o "$WORK/$component" "./cmd/$component"
  place "$WORK/$component" "$component"
  say "$component built in $((SECONDS - started)) s"
done
for program in "${OWN[@]}"; do
  name=${program//_/-}
  mkdir -p "cmd/$name" && cp "$HERE/real_nodes/$program.go" "cmd/$name/main.go"
  go build -ldflags "-s -w" -o "$WORK/$name" "./cmd/$name"
  place "$WORK/$name" "$name"
done
if [ -z "${KEEP_BUILD:-}" ]; then
  chmod -R u+w "$WORK" && rm -rf "$WORK"
fi
echo "$CACHE/bin"
