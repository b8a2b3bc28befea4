#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what building and testing need and this machine lacks: Debian
# packages by apt-get, Go tools pinned in tools/go.mod into the folder $1.
# Says what it installs; quiet when nothing is missing.
set -euo pipefail
tools=${1:?usage: test/setup.sh TOOLS_FOLDER}
cd "$(dirname "$0")/.."

packages=(
  # the race detector, and QEMU as embedded provider
  gcc libc6-dev qemu-system-x86 qemu-utils ovmf
  # the pod VM image
  kmod cpio mtools dosfstools fdisk systemd-boot-efi e2fsprogs ca-certificates xz-utils lz4 zstd
  # containers: what runs in the guest, what drives it in tests, what it runs
  runc containerd containernetworking-plugins busybox-static
  # libvirt as provider: its daemon, its client, the DHCP server it runs, ssh to reach it
  libvirt-daemon-system libvirt-clients dnsmasq-base openssh-server libxml2-utils
  # docker as provider: its daemon
  docker.io
  # clients of clouds that are not ours, for the simulated ones
  python3-botocore python3-libcloud
  # looking at networks and generating code
  iproute2 nftables iptables iperf3 protobuf-compiler libprotobuf-dev git curl jq
  # the bus by which a service is restarted
  dbus-daemon
  # the interpreter of cloud-init, which says what user-data means
  python3
)

# What tests read and nothing is to start: unpacked into the cache, not installed.
cloud_init=(
  cloud-init python3-attr python3-certifi python3-chardet python3-charset-normalizer python3-configobj python3-idna
  python3-jinja2 python3-json-pointer python3-jsonpatch python3-jsonschema python3-markupsafe python3-netifaces
  python3-oauthlib python3-pyrsistent python3-requests python3-serial python3-six python3-urllib3 python3-yaml
)
# The load balancer whose configuration ours reads.
haproxy=(haproxy liblua5.3-0 libopentracing-c-wrapper0 libopentracing1)
# Microsoft's client of Azure, which has 540 MB: 5 of them are enough.
azure_sdk=(python3-azure python3-msal python3-jwt python3-isodate python3-six python3-typing-extensions)
azure_at=./usr/lib/python3/dist-packages/azure
azure_parts=($azure_at/{__init__.py,core,profiles,mgmt/__init__.py,mgmt/core,mgmt/compute/*.py,mgmt/compute/v2022_08_01})

command -v go >/dev/null || {
  echo "setup: Go is missing. Install Go $(awk '$1=="go"{print $2}' go.mod) or later from https://go.dev/dl and put it on PATH." >&2
  exit 1
}

missing=()
for p in "${packages[@]}"; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
done
if [ ${#missing[@]} -gt 0 ]; then
  if [ "$(id -u)" != 0 ]; then
    echo "setup: these Debian packages are missing: ${missing[*]}" >&2
    echo "setup: run as root: apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  echo "setup: installing Debian packages: ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -q | tail -n 1
  # Daemons are run by the tests themselves; none is to start by itself.
  policy=/usr/sbin/policy-rc.d
  if [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod 755 $policy
    trap 'rm -f $policy' EXIT
  fi
  apt-get install -y -q --no-install-recommends "${missing[@]}" | grep -E '^(Setting up|E:|Err)' || true
  for p in "${missing[@]}"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] ||
      { echo "setup: apt-get could not install $p; see its messages above" >&2; exit 1; }
  done
fi

# Machine-readable definitions of clouds, which are no dependencies: tests find
# them in the module cache, also where there is no network. The versions are
# those in the tests.
definitions=$(grep -rhoP '^const Definitions = "\K[^"]+' test/cloudsim | sort -u)
[ -z "$definitions" ] || (cd / && go mod download $definitions)
# And the kinds of OpenShift, of which a module of the tests has the version.
(cd test/openshift/api && GOFLAGS= go mod download github.com/openshift/api)

stamp=$tools/.stamp-$(sha256sum tools/go.mod tools/go.sum | sha256sum | cut -c1-16)
if [ ! -e "$stamp" ]; then
  echo "setup: building Go tools into $tools (pinned in tools/go.mod)"
  mkdir -p "$tools"
  (cd tools && CGO_ENABLED=0 go build -o "$tools/" tool)
  rm -f "$tools"/.stamp-*
  touch "$stamp"
fi

# unpack FOLDER PACKAGE...: into a folder of the cache, once for each list.
unpack() {
  local folder fresh deb stamp
  folder=$(dirname "$tools")/$1
  shift
  stamp=$folder/.stamp-$(echo "$@" "${azure_parts[@]}" | sha256sum | cut -c1-16)
  [ ! -e "$stamp" ] || return 0
  echo "setup: unpacking Debian packages into $folder: $*"
  fresh=$(mktemp -d)
  chmod 755 "$fresh"
  (cd "$fresh" && { apt-get download -q "$@" >log 2>&1 || { apt-get update -q && apt-get download -q "$@"; } >log 2>&1; }) ||
    { cat "$fresh/log" >&2; rm -rf "$fresh"; echo "setup: apt-get could not download $*; see its messages above" >&2; exit 1; }
  rm -rf "$folder"
  mkdir -p "$folder"
  for deb in "$fresh"/*.deb; do
    case $deb in
    */python3-azure_*) dpkg-deb --fsys-tarfile "$deb" | tar x -C "$folder" --wildcards --no-wildcards-match-slash "${azure_parts[@]}" ;;
    *) dpkg -x "$deb" "$folder" ;;
    esac
  done
  rm -rf "$fresh"
  touch "$stamp"
}
unpack cloud-init "${cloud_init[@]}"
unpack azure-sdk "${azure_sdk[@]}"
unpack haproxy "${haproxy[@]}"
