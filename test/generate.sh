#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Writes all generated code; with --check it changes nothing and fails when
# something is stale.
set -euo pipefail
tools=${1:?usage: test/generate.sh TOOLS_FOLDER [--check]}
check=${2:-}
cd "$(dirname "$0")/.."
export PATH="$tools:$PATH"

out=.
if [ "$check" = --check ]; then
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
fi

mapfile -t protos < <(find internal/protocol -name '*.proto' | sort)
protoc -I. -I/usr/include \
  --go_out="$out" --go_opt=paths=source_relative \
  --go-ttrpc_out="$out" --go-ttrpc_opt=paths=source_relative "${protos[@]}"
protoc -I. -I/usr/include \
  --go_out="$out" --go_opt=paths=source_relative \
  --go-grpc_out="$out" --go-grpc_opt=paths=source_relative provider/plugin/pluginpb/plugin.proto

spdx='SPDX-License-Identifier: Apache-2.0'
header=$(mktemp)
echo "// $spdx" >"$header"
controller-gen object:headerFile="$header" crd paths=./api/peerpod/... \
  output:object:dir="$out/api/peerpod/v1alpha1" output:crd:dir="$out/deploy/base/crd"
controller-gen object:headerFile="$header" crd paths=./api/ccm/... \
  output:object:dir="$out/api/ccm/v1alpha1" output:crd:dir="$out/deploy/ccm-operator/crd"
rm -f "$header"
config/generate.sh controller-gen "$out"
sed -i "1i # $spdx" "$out"/deploy/base/crd/confidentialcontainers.org_*.yaml \
  "$out/deploy/ccm-operator/crd/ccm.outrigger.dev_cloudcontrollermanagers.yaml"

# -trimpath as `make build` has it, so that the clouds' SDKs are compiled once.
CGO_ENABLED=0 go run -trimpath ./test/reference "$out/docs/reference" "$out/deploy/chart"
mkdir -p "$out/deploy/chart/generated"
cp "$out"/deploy/base/crd/confidentialcontainers.org_*.yaml deploy/components/monitoring/{rules.yaml,outrigger-{pods,pools,nodes}.json} \
  "$out/deploy/chart/generated/"
mkdir -p "$out"/deploy/ccm-operator/chart/{crds,generated}
cp "$out/deploy/ccm-operator/crd/ccm.outrigger.dev_cloudcontrollermanagers.yaml" "$out/deploy/ccm-operator/chart/crds/"
cp deploy/ccm-operator/kubernetes/rbac.yaml deploy/ccm-operator/monitoring/{alerts/rules,kubernetes/service,kubernetes/servicemonitors}.yaml deploy/ccm-operator/monitoring/dashboard/outrigger-operator.json "$out/deploy/ccm-operator/chart/generated/"

if [ "$check" = --check ]; then
  stale=0
  while read -r f; do
    cmp -s "$out/$f" "$f" || { echo "generate: $f is stale; run \`make generate\` and commit" >&2; stale=1; }
  done < <(cd "$out" && find . -type f)
  [ $stale = 0 ] && echo "generate: generated code is fresh"
  exit $stale
fi
