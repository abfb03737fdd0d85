#!/usr/bin/env bash
# k8s-up.sh [BASE] [NODES]: a real etcd, kube-apiserver and kube-controller-manager on loopback, with NODES nodes of 8
# pretended GPUs, whose pods' commands run as processes of this machine. Nothing outside BASE and the cache of
# k8s-build.sh. Then: export KUBECONFIG=BASE/kubeconfig
# Several clusters run side by side: give each a BASE and a PORT. The nodes: deploy/test-clusters/fake_kubelet.
set -euo pipefail
cd "$(dirname "$0")"
BASE=$(realpath -m "${1:-${TMPDIR:-/tmp}/compass-k8s}")
NODES=${2:-4}
PORT=${PORT:-16440}                     # of the API server; the four after it are taken, too
# Every how many seconds a node says that it lives. It is called dead after six times that.
HEARTBEAT=${HEARTBEAT:-$((1 + NODES / 50))}

if [ -f "$BASE/pids" ]; then echo "a cluster is running under $BASE; take it down first: $PWD/k8s-down.sh $BASE" >&2; exit 2; fi
for needed in openssl python3 curl; do
  command -v "$needed" >/dev/null || { echo "$needed is missing: apt-get install $needed" >&2; exit 3; }
done
BIN=$(./k8s-build.sh)
mkdir -p "$BASE"/{etcd,pki,log,control}
chmod 700 "$BASE"

pki=$BASE/pki
openssl genrsa -out "$pki/sa.key" 2048 2>/dev/null
openssl rsa -in "$pki/sa.key" -pubout -out "$pki/sa.pub" 2>/dev/null
openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=fake-kubelet -addext subjectAltName=IP:127.0.0.1 \
  -keyout "$pki/kubelet.key" -out "$pki/kubelet.crt" 2>/dev/null
token=$(openssl rand -hex 16)
echo "$token,admin,admin,\"system:masters\"" > "$pki/tokens.csv"

start() {                               # start NAME COMMAND...: by `setsid`, so that no terminal's end reaches it
  local name=$1; shift
  # the mark by which k8s-down.sh knows its own
  COMPASS_TEST_CLUSTER=$BASE setsid "$@" > "$BASE/log/$name.log" 2>&1 < /dev/null &
  echo $! > "$BASE/log/$name.pid"; echo $! >> "$BASE/pids"
}

start etcd "$BIN/etcd" --data-dir "$BASE/etcd" --unsafe-no-fsync \
  --listen-client-urls "http://127.0.0.1:$((PORT + 1))" --advertise-client-urls "http://127.0.0.1:$((PORT + 1))" \
  --listen-peer-urls "http://127.0.0.1:$((PORT + 2))" --initial-advertise-peer-urls "http://127.0.0.1:$((PORT + 2))" \
  --initial-cluster "default=http://127.0.0.1:$((PORT + 2))"
start kube-apiserver "$BIN/kube-apiserver" --etcd-servers="http://127.0.0.1:$((PORT + 1))" \
  --bind-address=127.0.0.1 --advertise-address=127.0.0.1 --secure-port="$PORT" --cert-dir="$pki" \
  --service-cluster-ip-range=10.96.0.0/24 --service-account-issuer=https://kubernetes.default.svc \
  --service-account-key-file="$pki/sa.pub" --service-account-signing-key-file="$pki/sa.key" \
  --token-auth-file="$pki/tokens.csv" --authorization-mode=RBAC --endpoint-reconciler-type=none \
  --kubelet-preferred-address-types=InternalIP --allow-privileged=true ${APISERVER_OPTIONS:-}

url=https://127.0.0.1:$PORT
for _ in $(seq 600); do
  [ "$(curl -s --max-time 5 --cacert "$pki/apiserver.crt" -H "Authorization: Bearer $token" "$url/readyz" 2>/dev/null)" = ok ] && break
  sleep 0.1
done
cat > "$BASE/kubeconfig" <<CONFIG
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "$url", certificate-authority-data: $(base64 -w0 "$pki/apiserver.crt")}}]
users: [{name: admin, user: {token: $token}}]
contexts: [{name: test, context: {cluster: test, user: admin}}]
current-context: test
CONFIG
chmod 600 "$BASE/kubeconfig"

start kube-controller-manager "$BIN/kube-controller-manager" --kubeconfig="$BASE/kubeconfig" --leader-elect=false \
  --controllers=nodelifecycle,podgc,garbagecollector,disruption,job,deployment,replicaset,statefulset,namespace,serviceaccount,serviceaccount-token,root-ca-cert-publisher \
  --service-account-private-key-file="$pki/sa.key" --root-ca-file="$pki/apiserver.crt" \
  --kube-api-qps=500 --kube-api-burst=1000 --concurrent-gc-syncs=4 \
  --node-monitor-period="$((1 + HEARTBEAT / 4))s" --node-monitor-grace-period="$((6 * HEARTBEAT))s" \
  --bind-address=127.0.0.1 --port=0 --secure-port="$((PORT + 4))" --cert-dir="$pki/controllers"
start fake-kubelet python3 -m fake_kubelet --base "$BASE" --server "$url" --nodes "$NODES" \
  --port "$((PORT + 3))" --heartbeat "$HEARTBEAT" --gpus "${GPUS:-8}" --product "${GPU_PRODUCT:-NVIDIA-A100-SXM4-80GB}"

for _ in $(seq 600); do
  if [ -f "$BASE/log/nodes-ready" ]; then
    echo "$NODES nodes of ${GPUS:-8} GPUs are up. Now:  export KUBECONFIG=$BASE/kubeconfig   (a kubectl: $BIN/kubectl)"
    exit 0
  fi
  kill -0 "$(cat "$BASE/log/fake-kubelet.pid")" 2>/dev/null || break
  sleep 0.1
done
echo "the nodes are not up; see $BASE/log" >&2
exit 1
