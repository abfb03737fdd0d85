#!/usr/bin/env bash
# node.sh BASE NAME NUMBER BIN PLACE...: one node of k8s-up.sh --real, as root: containerd, kubelet and fake GPUs, all of
# its state under BASE/NAME (there, too, what they keep in PLACEs), its network a namespace without a way out.
set -euo pipefail
BASE=$1 NAME=$2 NUMBER=$3 BIN=$4
ADDRESS=10.77.0.$((10 + NUMBER))
HERE=$BASE/$NAME
mkdir -p "$HERE"/{root,state,kubelet,cni,log,own}

if [ "${INSIDE:-}" != mounts ]; then
  INSIDE=mounts exec nsenter --net="/run/netns/compass-$NAME" unshare --mount --propagation private "$0" "$@"
fi
for place in "${@:5}"; do
  mkdir -p "$HERE/own$place"
  mount --bind "$HERE/own$place" "$place"
done

cat > "$HERE/cni/10-pods.conflist" <<CNI
{"cniVersion": "0.3.1", "name": "pods", "plugins": [{"type": "ptp", "ipMasq": false,
  "ipam": {"type": "host-local", "subnet": "10.77.$NUMBER.0/24", "dataDir": "/var/lib/cni/addresses", "routes": [{"dst": "0.0.0.0/0"}]}}]}
CNI
cat > "$HERE/containerd.toml" <<TOML
version = 2
root = "$HERE/root"
state = "$HERE/state"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.opt"]
[grpc]
  address = "$HERE/containerd.sock"
[ttrpc]
  address = "$HERE/containerd.sock.ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  stream_server_port = "0"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$BIN"
    conf_dir = "$HERE/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "${SNAPSHOTTER:-overlayfs}"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
TOML
cat > "$HERE/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $ADDRESS
port: 10250
healthzPort: 0
readOnlyPort: 0
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupRoot: /
cgroupsPerQOS: false
enforceNodeAllocatable: []
failSwapOn: false
makeIPTablesUtilChains: false
evictionHard: {}
nodeStatusUpdateFrequency: 4s
nodeLeaseDurationSeconds: 10
resolvConf: ""
syncFrequency: 5s
YAML

start() {                               # start NAME COMMAND...
  local name=$1; shift
  setsid "$@" > "$HERE/log/$name.log" 2>&1 < /dev/null &
  echo $! > "$HERE/log/$name.pid"
}

export PATH="$BIN:$PATH"
start containerd containerd --config "$HERE/containerd.toml"
for _ in $(seq 200); do ctr --address "$HERE/containerd.sock" version >/dev/null 2>&1 && break; sleep 0.05; done
for image in pause host; do
  ctr --address "$HERE/containerd.sock" --namespace k8s.io images import --snapshotter "${SNAPSHOTTER:-overlayfs}" \
    "$BASE/images/$image.tar" >> "$HERE/log/images.log" 2>&1
done
# Of a kubelet that was killed: the plugin must not take its socket for that of the next one.
rm -f /var/lib/kubelet/device-plugins/*.sock
# Else it asks a cloud's address for its name, and waits 6 s for no answer.
start kubelet env AWS_EC2_METADATA_DISABLED=true kubelet --config="$HERE/kubelet.yaml" --kubeconfig="$BASE/node.kubeconfig" \
  --hostname-override="$NAME" --node-ip="$ADDRESS" --root-dir="$HERE/kubelet" --cert-dir="$HERE/kubelet/pki" \
  --container-runtime=remote --container-runtime-endpoint="unix://$HERE/containerd.sock" \
  --node-labels="nvidia.com/gpu.product=${GPU_PRODUCT:-NVIDIA-A100-SXM4-80GB},nvidia.com/gpu.count=${GPUS:-8}" \
  --feature-gates=LocalStorageCapacityIsolation=false
for _ in $(seq 400); do [ -S /var/lib/kubelet/device-plugins/kubelet.sock ] && break; sleep 0.05; done
start fake-gpu fake-gpu /var/lib/kubelet/device-plugins "${GPUS:-8}"
