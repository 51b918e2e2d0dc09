#!/usr/bin/env bash
# Issues the certificates that the pods of a cluster lack, and prints the Secrets that the chart expects.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: certs.sh FOLDER NAME NAMESPACE MANAGERS GATEWAYS AGENTS | kubectl apply -f -

  FOLDER     has the authority and all certificates; made where there is none. Keep it, and keep it secret.
  NAME       of the objects: the release, or RELEASE-heddle where "heddle" is no part of it
  MANAGERS   how many; the chart's managers.replicas
  GATEWAYS   how many there may be; more later by another run with more
  AGENTS     likewise, for keda agents.max. Of a DaemonSet: the names of the nodes, with commas between them

The cluster is called $HEDDLE_CLUSTER, else "heddle" (the chart's clusterName). The program is $HEDDLE, else "heddle".
Certificates that end within 30 days are issued anew; heddle takes them without a restart.
TEXT
}

if [ $# != 6 ]; then
  usage >&2
  [ "${1:-}" = --help ] && exit 0
  exit 1
fi
folder=$1 name=$2 namespace=$3 managers=$4 gateways=$5 agents=$6
heddle=${HEDDLE:-heddle}
command -v openssl >/dev/null || {
  echo "certs.sh: needs openssl, to see how long certificates are good" >&2
  exit 1
}
month=$((30 * 24 * 3600))

# names ROLE COUNT: those of the pods of a StatefulSet.
names() {
  local i
  for ((i = 0; i < $2; ++i)); do
    printf '%s-%s-%d\n' "$name" "$1" "$i"
  done
}

# issue ROLE NAME: unless there is one that is good for longer.
issue() {
  openssl x509 -checkend "$month" -noout -in "$folder/$2.crt" >/dev/null 2>&1 && return
  rm -f "$folder/$2.crt" "$folder/$2.key"
  "$heddle" certs issue "$folder" --role "$1" --name "$2" >&2
}

# secret ROLE NAME ...: with the files of all of them.
secret() {
  local role=$1 file
  shift
  printf -- '---\napiVersion: v1\nkind: Secret\nmetadata: {name: %s-%s-certs, namespace: %s}\ntype: Opaque\ndata:\n' \
    "$name" "$role" "$namespace"
  for file in ca.crt "${@/%/.crt}" "${@/%/.key}"; do
    printf '  %s: %s\n' "$file" "$(base64 <"$folder/$file" | tr -d '\n')"
  done
}

umask 077
[ -f "$folder/ca.crt" ] || "$heddle" certs init "$folder" --cluster "${HEDDLE_CLUSTER:-heddle}" >&2
mapfile -t manager < <(names manager "$managers")
mapfile -t gateway < <(names gateway "$gateways")
if [[ $agents =~ ^[0-9]+$ ]]; then
  mapfile -t agent < <(names agent "$agents")
else
  IFS=, read -ra agent <<<"$agents"
fi
for each in "${manager[@]}"; do issue manager "$each"; done
for each in "${gateway[@]}"; do issue gateway "$each"; done
for each in "${agent[@]}"; do issue agent "$each"; done
secret manager "${manager[@]}"
secret gateway "${gateway[@]}"
secret agent "${agent[@]}"
