#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Writes what is generated of the API of the Cluster API provider: the types of kinds,
# deep copies, CRDs, webhook configurations and the manager's rights.
#
#   config/generate.sh CONTROLLER_GEN [FOLDER]
set -euo pipefail
generator=${1:?usage: config/generate.sh CONTROLLER_GEN [FOLDER]}
cd "$(dirname "$0")/.."
out=${2:-.}

spdx='SPDX-License-Identifier: Apache-2.0'
header=$(mktemp)
trap 'rm -f "$header"' EXIT
echo "// $spdx" >"$header"
go -C tools run -trimpath ./kinds "$(realpath "$out")"
for version in v1beta2 v1beta1; do
  "$generator" object:headerFile="$header" paths=./api/infrastructure/$version output:object:dir="$out/api/infrastructure/$version"
done
"$generator" crd paths=./api/infrastructure/... output:crd:dir="$out/config/crd/bases"
"$generator" webhook paths=./internal/machines/webhooks output:webhook:dir="$out/config/webhook"
"$generator" rbac:roleName=manager-role paths=./internal/machines/reconciler output:rbac:dir="$out/config/rbac"
sed -i "1i # $spdx" "$out"/config/crd/bases/*.yaml "$out"/config/webhook/manifests.yaml "$out"/config/rbac/role.yaml
