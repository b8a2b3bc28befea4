#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Applies or removes the overlay of a provider, with one's own images:
#
#   deploy/deploy.sh apply|delete|render PROVIDER
#
# Environment: PREFIX and TAG of the images, RESOURCE_CTRL=false to leave the
# controller out, MONITORING=true for the Prometheus operator,
# NODE_INSTALLER=true for the shim on the nodes, KUBECTL.
set -euo pipefail
action=${1:-} provider=${2:-}
cd "$(dirname "$0")/.."
kubectl=${KUBECTL:-kubectl} prefix=${PREFIX:-} tag=${TAG:-latest}
namespace=confidential-containers-system

fail() { echo "deploy: $*" >&2; exit 1; }

[ -n "$provider" ] || fail "set CLOUD_PROVIDER to one of: $(ls -x deploy/overlays)"
[ "$provider" = ibmcloudpowervs ] && provider=ibmcloud-powervs
[ -d "deploy/overlays/$provider" ] || fail "there is no overlay for provider $provider, but for: $(ls -x deploy/overlays); one that is not part of Outrigger uses the overlay external"
for v in "RESOURCE_CTRL=${RESOURCE_CTRL:=true}" "MONITORING=${MONITORING:=false}" "NODE_INSTALLER=${NODE_INSTALLER:=false}"; do
  case ${v#*=} in true | false) ;; *) fail "$v: want true or false" ;; esac
done

if [ -z "$prefix" ]; then
  [ "$action" != apply ] || fail "set PREFIX to where the images are, as there is no public registry with them. Make and push them:
  make image push CLOUD_PROVIDER=$provider PREFIX=REGISTRY/FOLDER
  make deploy CLOUD_PROVIDER=$provider PREFIX=REGISTRY/FOLDER
With images that were imported on every node (docs/install.md, Images): PREFIX=localhost/outrigger"
  prefix=localhost/outrigger
fi

# Nothing of the checkout is changed: an overlay over the overlay.
over=bin/deploy/$provider
mkdir -p "$over"
{
  echo "resources: [../../../deploy/overlays/$provider]"
  components=()
  [ "$RESOURCE_CTRL" = true ] || components+=(../../../deploy/components/without-resource-ctrl)
  [ "$MONITORING" = false ] || components+=(../../../deploy/components/monitoring)
  [ "$NODE_INSTALLER" = false ] || components+=(../../../deploy/components/node-installer)
  if [ ${#components[@]} -gt 0 ]; then
    echo "components:"
    printf '  - %s\n' "${components[@]}"
  fi
  echo "images:"
  for image in cloud-api-adaptor agent-relay peerpod-ctrl peerpods-webhook node-installer provider-qemu; do
    printf '  - {name: localhost/outrigger/%s, newName: "%s/%s", newTag: "%s"}\n' $image "$prefix" $image "$tag"
  done
} >"$over/kustomization.yaml"

case $action in
  render) $kubectl kustomize "$over" ;;
  apply)
    $kubectl apply -k "$over"
    if [ -z "$($kubectl get nodes -l node.kubernetes.io/worker= -o name)" ]; then
      echo "deploy: no node has the label that makes it a worker; give it to those that are to run pods in VMs:"
      echo "  $kubectl label node NAME node.kubernetes.io/worker="
    fi
    echo "deploy: watch it start with: $kubectl -n $namespace get pods -w" ;;
  delete)
    # Whoever removes the controller first leaves instances that cost money.
    left=$($kubectl get peerpods --all-namespaces -o name 2>/dev/null | wc -l)
    [ "$left" = 0 ] || fail "$left PeerPods are left, so instances are: delete the pods with runtimeClassName kata-remote, wait until \`$kubectl get peerpods -A\` shows nothing, and try again"
    $kubectl delete -k "$over" --ignore-not-found ;;
  *) fail "usage: deploy/deploy.sh apply|delete|render PROVIDER" ;;
esac
