#!/usr/bin/env bash
# k8s-up.sh [BASE] [NODES] [--real]: a real etcd, kube-apiserver and kube-controller-manager on loopback, with NODES nodes of
# 8 pretended GPUs, whose pods' commands run as processes of this machine (deploy/test-clusters/fake_kubelet). --real: with
# kubelets and containers instead, each node in a network namespace without a way out (root; at most one such cluster).
# Nothing outside BASE and the cache of k8s-build.sh. Then: export KUBECONFIG=BASE/kubeconfig
# Several clusters run side by side: give each a BASE and a PORT.
set -euo pipefail
cd "$(dirname "$0")"
BASE=$(realpath -m "${1:-${TMPDIR:-/tmp}/compass-k8s}")
NODES=${2:-4}
REAL=${3:-}
PORT=${PORT:-16440}                     # of the API server; the four after it are taken, too
# Every how many seconds a node says that it lives. It is called dead after six times that.
HEARTBEAT=${HEARTBEAT:-$((1 + NODES / 50))}
GRACE=$((6 * HEARTBEAT))
export GPUS=${GPUS:-8} GPU_PRODUCT=${GPU_PRODUCT:-NVIDIA-A100-SXM4-80GB}

if [ -f "$BASE/pids" ]; then echo "a cluster is running under $BASE; take it down first: $PWD/k8s-down.sh $BASE" >&2; exit 2; fi
for needed in openssl python3 curl; do
  command -v "$needed" >/dev/null || { echo "$needed is missing: apt-get install $needed" >&2; exit 3; }
done
ADDRESS=127.0.0.1
if [ "$REAL" = --real ]; then
  ADDRESS=10.77.0.1 GRACE=12
  export PATH="$PATH:/usr/sbin:/sbin"
  [ "$(id -u)" = 0 ] || { echo "real nodes need root, for namespaces" >&2; exit 3; }
  command -v ip >/dev/null || { echo "ip is missing: apt-get install iproute2" >&2; exit 3; }
  [ ! -e /run/netns/compass-control ] || { echo "a cluster of real nodes is up already (or left behind: ip netns)" >&2; exit 2; }
fi
BIN=$(./k8s-build.sh ${REAL:+--real})
mkdir -p "$BASE"/{etcd,pki,log,control}
chmod 700 "$BASE"

pki=$BASE/pki
openssl genrsa -out "$pki/sa.key" 2048 2>/dev/null
openssl rsa -in "$pki/sa.key" -pubout -out "$pki/sa.pub" 2>/dev/null
openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=compass-test-cluster \
  -addext subjectAltName=IP:127.0.0.1,IP:10.77.0.1,IP:10.96.0.1,DNS:kubernetes.default.svc \
  -keyout "$pki/server.key" -out "$pki/server.crt" 2>/dev/null
token=$(openssl rand -hex 16)
echo "$token,admin,admin,\"system:masters\"" > "$pki/tokens.csv"

kubeconfig() {                          # kubeconfig SERVER: for its administrator
  cat <<CONFIG
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "$1", certificate-authority-data: $(base64 -w0 "$pki/server.crt")}}]
users: [{name: admin, user: {token: $token}}]
contexts: [{name: test, context: {cluster: test, user: admin}}]
current-context: test
CONFIG
}
(umask 077; kubeconfig "https://127.0.0.1:$PORT" > "$BASE/kubeconfig"; kubeconfig "https://$ADDRESS:$PORT" > "$BASE/node.kubeconfig")

# Where kubelets, containerd and CNI keep what can't be kept elsewhere: each node has its own there.
OWN_PLACES=(/var/lib/kubelet /var/lib/cni /var/log/pods /var/log/containers /run/containerd /run/netns)

# The mark by which k8s-down.sh knows its own.
export COMPASS_TEST_CLUSTER=$BASE
start() {                               # start NAME COMMAND...: by `setsid`, so that no terminal's end reaches it
  local name=$1; shift
  printf '%s\0' "$@" > "$BASE/log/$name.command"
  setsid "$@" > "$BASE/log/$name.log" 2>&1 < /dev/null &
  echo $! > "$BASE/log/$name.pid"; echo $! >> "$BASE/pids"
}

IN=()
if [ "$REAL" = --real ]; then
  # A bridge inside a namespace of its own: no address of it is known outside, and no route leads out.
  [ -d /run/netns ] || echo /run/netns >> "$BASE/made-for-nodes"
  ip netns add compass-control
  ip -n compass-control link set lo up
  ip -n compass-control link add bridge type bridge
  ip -n compass-control addr add "$ADDRESS/24" dev bridge
  ip -n compass-control link set bridge up
  nsenter --net=/run/netns/compass-control sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward'
  IN=(nsenter --net=/run/netns/compass-control)
  start forward python3 real_nodes/forward.py compass-control "$ADDRESS" "$PORT" "$PORT"
fi

start etcd "${IN[@]}" "$BIN/etcd" --data-dir "$BASE/etcd" --unsafe-no-fsync \
  --listen-client-urls "http://127.0.0.1:$((PORT + 1))" --advertise-client-urls "http://127.0.0.1:$((PORT + 1))" \
  --listen-peer-urls "http://127.0.0.1:$((PORT + 2))" --initial-advertise-peer-urls "http://127.0.0.1:$((PORT + 2))" \
  --initial-cluster "default=http://127.0.0.1:$((PORT + 2))"
start kube-apiserver "${IN[@]}" "$BIN/kube-apiserver" --etcd-servers="http://127.0.0.1:$((PORT + 1))" \
  --bind-address="$ADDRESS" --advertise-address="$ADDRESS" --secure-port="$PORT" \
  --tls-cert-file="$pki/server.crt" --tls-private-key-file="$pki/server.key" \
  --service-cluster-ip-range=10.96.0.0/24 --service-account-issuer=https://kubernetes.default.svc \
  --service-account-key-file="$pki/sa.pub" --service-account-signing-key-file="$pki/sa.key" \
  --token-auth-file="$pki/tokens.csv" --authorization-mode=RBAC --endpoint-reconciler-type=none \
  --kubelet-preferred-address-types=InternalIP --allow-privileged=true ${APISERVER_OPTIONS:-}

asked() {                               # asked PATH: what the API server answers
  curl -s --max-time 5 --cacert "$pki/server.crt" -H "Authorization: Bearer $token" "https://127.0.0.1:$PORT$1" 2>/dev/null
}
for _ in $(seq 600); do [ "$(asked /readyz)" = ok ] && break; sleep 0.1; done

start kube-controller-manager "${IN[@]}" "$BIN/kube-controller-manager" --kubeconfig="$BASE/node.kubeconfig" \
  --controllers=nodelifecycle,podgc,garbagecollector,disruption,job,deployment,replicaset,statefulset,namespace,serviceaccount,serviceaccount-token,root-ca-cert-publisher \
  --leader-elect=false --service-account-private-key-file="$pki/sa.key" --root-ca-file="$pki/server.crt" \
  --kube-api-qps=500 --kube-api-burst=1000 --concurrent-gc-syncs=4 \
  --node-monitor-period="$((1 + HEARTBEAT / 4))s" --node-monitor-grace-period="${GRACE}s" \
  --bind-address=127.0.0.1 --port=0 --secure-port="$((PORT + 4))" --cert-dir="$pki/controllers"

if [ "$REAL" = --real ]; then
  mkdir -p "$BASE/images"
  for place in "${OWN_PLACES[@]}"; do
    for folder in "$(dirname "$place")" "$place"; do
      [ -d "$folder" ] || { mkdir "$folder"; echo "$folder" >> "$BASE/made-for-nodes"; }
    done
  done
  python3 real_nodes/images.py "$BASE/images" "$BIN/pause"
  for ((i = 1; i <= NODES; i++)); do
    ip netns add "compass-n$i"
    ip -n "compass-n$i" link set lo up
    ip -n compass-control link add "n$i" type veth peer name eth0 netns "compass-n$i"
    ip -n compass-control link set "n$i" master bridge up
    ip -n "compass-n$i" addr add "10.77.0.$((10 + i))/24" dev eth0
    ip -n "compass-n$i" link set eth0 up
    # pods have addresses of their own, 10.77.i.x, which nodes reach by way of the control plane's namespace
    ip -n "compass-n$i" route add default via "$ADDRESS"
    ip -n compass-control route add "10.77.$i.0/24" via "10.77.0.$((10 + i))"
    start "node-n$i" real_nodes/node.sh "$BASE" "n$i" "$i" "$BIN" "${OWN_PLACES[@]}"
  done
else
  start fake-kubelet python3 -m fake_kubelet --base "$BASE" --server "https://127.0.0.1:$PORT" --nodes "$NODES" \
    --port "$((PORT + 3))" --heartbeat "$HEARTBEAT" --gpus "$GPUS" --product "$GPU_PRODUCT"
fi

ready() {                               # every node is ready, has its GPUs, and is kept free by nobody
  asked /api/v1/nodes | python3 -c '
import json, sys
nodes = json.load(sys.stdin)["items"]
def fit(node):
    conditions = {each["type"]: each["status"] for each in node["status"].get("conditions") or ()}
    gpus = node["status"].get("allocatable", {}).get("nvidia.com/gpu", "0")
    return conditions.get("Ready") == "True" and gpus == sys.argv[2] and not node["spec"].get("taints")
sys.exit(not (len(nodes) == int(sys.argv[1]) and all(map(fit, nodes))))' "$NODES" "$GPUS"
}
for _ in $(seq 300); do
  if [ -f "$BASE/log/nodes-ready" ] || { [ "$REAL" = --real ] && ready 2>/dev/null; }; then
    echo "$NODES nodes of $GPUS GPUs are up. Now:  export KUBECONFIG=$BASE/kubeconfig   (a kubectl: $BIN/kubectl)"
    exit 0
  fi
  [ "$REAL" = --real ] || kill -0 "$(cat "$BASE/log/fake-kubelet.pid")" 2>/dev/null || break
  sleep 0.2
done
echo "the nodes are not up; see $BASE/log" >&2
exit 1
