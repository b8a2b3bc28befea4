#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Installs what this machine lacks for a purpose, and says what it installs:
#
#   build/setup.sh demo            to boot a pod in a VM
#   build/setup.sh build           that, and every form of the guest image
#   build/setup.sh test TOOLS      that, and all that tests run; Go tools go to the folder TOOLS
#   build/setup.sh openstack       what a real OpenStack control plane consists of (test/realcloud)
#   build/setup.sh PURPOSE --list  prints the Debian packages of a purpose, each with its reason
#
# A machine that is not Debian is asked for the programs instead.
set -euo pipefail
cd "$(dirname "$0")/.."
purpose=${1:-} tools=${2:-}

# packages PURPOSE prints "PACKAGE REASON" lines.
packages() {
  case $1 in
  demo) cat <<'END' ;;
qemu-system-x86 boots the VMs
kmod depmod, which finds what each kernel module of the guest needs
busybox-static what the demo's container runs
ca-certificates whom the guest trusts when it pulls an image
END
  build) packages demo && cat <<'END' ;;
qemu-utils the guest image as qcow2
e2fsprogs mke2fs, the disk of a VM that asks for one
xz-utils unpacks the modules of the kernel of a confidential guest image
END
  test) packages build && cat <<'END' ;;
gcc the race detector
libc6-dev the race detector
ovmf the firmware that boots the guest image as a disk
swtpm the virtual TPM of such a VM
swtpm-tools the same
sbsigntool checks the signature of such an image
cpio reads the initramfs that we write
mtools reads the FAT file system that we write
dosfstools checks that file system
fdisk reads the partition table that we write
lz4 compresses a kernel as other distributions do
zstd the same
runc the guest's, without a guest
containerd the runtime that starts our shim
containernetworking-plugins the network of pods of a test's node
libvirt-daemon-system the daemon of provider libvirt
libvirt-clients looks at what the provider made
dnsmasq-base the DHCP server that libvirtd runs
libxml2-utils reads libvirt's XML
openssh-server hosts of provider byom, and the way to a remote libvirtd
docker.io the daemon of provider docker
python3 runs the clients below, and cloud-init
python3-botocore Amazon's client, at the simulated AWS
python3-libcloud Apache's client, at three simulated clouds
iproute2 looks at networks
nftables looks at rules
iptables looks at the rules of others
iperf3 measures tunnels
protobuf-compiler generated code is fresh
libprotobuf-dev the types of Google that our files import
git which files are ours
curl asks the database of vulnerabilities
jq reads JSON in guides
cryptsetup-bin opens the disks that we encrypt
nfs-ganesha-vfs the server of network file systems
dbus-daemon the bus by which a service of systemd is restarted
systemd the first process of machines from images of the shape of kind's
END
  openstack) cat <<'END' ;;
keystone identity
glance-api images
placement-api what hosts have
nova-api servers
nova-conductor the same
nova-scheduler the same
nova-compute the same, with its fake driver
neutron-server networks
python3-neutron the same
mariadb-server their database
rabbitmq-server their messages
memcached their tokens
uwsgi serves the first and the third
uwsgi-plugin-python3 the same
python3-pymysql their way to the database
curl asks whether they answer
iproute2 the loopback interface of the namespace
END
  *) return 2 ;;
  esac
}

if ! list=$(packages "$purpose"); then
  echo "usage: build/setup.sh demo|build|openstack|test [TOOLS | --list]" >&2
  exit 2
fi
if [ "$tools" = --list ]; then
  echo "$list"
  exit
fi
mapfile -t wanted < <(cut -d' ' -f1 <<<"$list")

# lacking prints which of the packages $@ are not installed.
lacking() {
  local p
  for p in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || echo "$p"
  done
}

fail() {
  printf 'setup: %s\n' "$@" >&2
  exit 1
}

# apt runs apt-get, which waits for another that has the lock, and keeps what it
# printed to show it only when it fails.
apt() {
  local log
  log=$(mktemp)
  if DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 "$@" >"$log" 2>&1; then
    grep -E '^(Fetched|Setting up)' "$log" | sed 's/^/setup: /' || true
    rm -f "$log"
    return
  fi
  tail -n 20 "$log" >&2
  if grep -q 'No space left on device\|You don.t have enough free space' "$log"; then
    echo "setup: the disk is full: free some space and run this again; it goes on from there" >&2
  elif grep -q 'Temporary failure resolving\|Could not connect\|Could not resolve\|Network is unreachable' "$log"; then
    echo "setup: Debian's packages cannot be fetched: see that this machine reaches the mirrors of /etc/apt/sources.list* (a proxy goes to /etc/apt/apt.conf.d), and run this again" >&2
  fi
  rm -f "$log"
  return 1
}

install_packages() {
  local policy=/usr/sbin/policy-rc.d missing=("$@")
  [ "$(id -u)" = 0 ] ||
    fail "these Debian packages are missing: $*" "run as root: apt-get install -y --no-install-recommends $*"
  echo "setup: installing Debian packages: $*"
  # What an interrupted installation left half done.
  [ -z "$(dpkg --audit)" ] || dpkg --configure -a >&2
  # Daemons are run by the tests themselves; none is to start by itself.
  if [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod 755 $policy
    trap "rm -f $policy" EXIT
  fi
  # A package list that is there may be stale, or of other parts of the archive.
  apt install -y --no-install-recommends "$@" 2>/dev/null ||
    { apt update && apt install -y --no-install-recommends "$@"; } ||
    fail "apt-get could not install $*; see its messages above"
  mapfile -t missing < <(lacking "$@")
  [ ${#missing[@]} = 0 ] || fail "apt-get did not install ${missing[*]}"
}

cache=${OUTRIGGER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/outrigger}

# fetch_modules fetches the Go modules of all that is built for tests, once for
# each content of the go.sum files. What cannot be fetched the build will name.
fetch_modules() {
  local stamp
  stamp=$cache/modules-$(cat go.sum tools/go.sum tools/prometheus/go.sum tools/csi/go.sum test/kube/go.sum test/sidecars/go.sum test/capi/core/go.sum | sha256sum | cut -c1-16)
  [ ! -e "$stamp" ] || return 0
  mkdir -p "$cache"
  go list -deps -test -tags integration ./... && (cd tools && go list -deps tool) && (cd tools/prometheus && go list -deps -tags remove_all_sd tool) && (cd tools/csi && go list -deps tool) &&
    (cd test/kube && go list -deps .) && (cd test/sidecars && go list -deps tool) && (cd test/capi/core && go list -deps ./... tool) || return 0
  rm -f "$cache"/modules-*
  touch "$stamp"
}

# build_tools compiles the Go tools of tests, once for each content of their go.sum.
build_tools() {
  local stamp
  stamp=$tools/.stamp-$(sha256sum tools/{,prometheus/,csi/}go.{mod,sum} | sha256sum | cut -c1-16)
  [ ! -e "$stamp" ] || return 0
  echo "setup: building Go tools into $tools (pinned in tools/go.mod, tools/prometheus/go.mod and tools/csi/go.mod)"
  mkdir -p "$tools"
  (cd tools && CGO_ENABLED=0 GOGC=${GOGC:-400} go build -trimpath -o "$tools/" tool) || return
  (cd tools/prometheus && CGO_ENABLED=0 GOGC=${GOGC:-400} go build -trimpath -tags remove_all_sd -ldflags=-s -o "$tools/" tool) || return
  (cd tools/csi && CGO_ENABLED=0 GOGC=${GOGC:-400} go build -trimpath -ldflags=-s -o "$tools/" tool) || return
  rm -f "$tools"/.stamp-*
  touch "$stamp"
}

# Modules are fetched and tools are built while packages are installed.
building=
if [ "$purpose" = test ]; then
  fetch_modules >/dev/null 2>&1 &
  if [ -n "$tools" ]; then
    build_tools &
    building=$!
  fi
fi

if command -v dpkg-query >/dev/null && command -v apt-get >/dev/null; then
  mapfile -t missing < <(lacking "${wanted[@]}")
  [ ${#missing[@]} = 0 ] || install_packages "${missing[@]}"
else
  echo "setup: this is not Debian, so nothing is installed; what Debian calls so has to be here: ${wanted[*]}" >&2
fi
[ "$purpose" = test ] || exit 0

# What tests read and nothing is to start: unpacked into the cache, not installed.
cloud_init=(
  cloud-init python3-attr python3-certifi python3-chardet python3-charset-normalizer python3-configobj python3-idna
  python3-jinja2 python3-json-pointer python3-jsonpatch python3-jsonschema python3-markupsafe python3-netifaces
  python3-oauthlib python3-pyrsistent python3-requests python3-serial python3-six python3-urllib3 python3-yaml
)
# The load balancer whose configuration ours reads.
haproxy=(haproxy liblua5.3-0 libopentracing-c-wrapper0 libopentracing1)
# The database whose commits volumes keep.
sqlite=(sqlite3 libsqlite3-0 libreadline8 libtinfo6 libc6 zlib1g)
# Microsoft's client of Azure, which has 540 MB: 5 of them are enough.
azure_sdk=(python3-azure python3-msal python3-jwt python3-isodate python3-six python3-typing-extensions)
azure_at=./usr/lib/python3/dist-packages/azure
azure_parts=($azure_at/{__init__.py,core,profiles,mgmt/__init__.py,mgmt/core,mgmt/compute/*.py,mgmt/compute/v2022_08_01})

# Modules with machine-readable definitions of clouds: tests find them in the
# module cache by path and version, also where there is no network. Those that are
# dependencies too are there, but not yet what Go's checksum database says of them.
definitions=$(grep -rhoP '"\K[a-z0-9.-]+\.[a-z]+/[^" ]+@v[0-9][^"]*' test/cloudsim --include=*.go | sort -u)
[ -z "$definitions" ] || (cd / && go mod download $definitions)
# And the kinds of OpenShift, of which a module of the tests has the version.
(cd test/openshift/api && GOFLAGS= go mod download github.com/openshift/api)

# unpack FOLDER PACKAGE...: into a folder of the cache, once for each list.
unpack() {
  local folder fresh deb stamp
  folder=$cache/$1
  shift
  stamp=$folder/.stamp-$(echo "$@" "${azure_parts[@]}" | sha256sum | cut -c1-16)
  [ ! -e "$stamp" ] || return 0
  echo "setup: unpacking Debian packages into $folder: $*"
  fresh=$(mktemp -d)
  chmod 755 "$fresh"
  (cd "$fresh" && { apt-get download -q "$@" >log 2>&1 || { apt-get update -q && apt-get download -q "$@"; } >log 2>&1; }) ||
    { cat "$fresh/log" >&2; rm -rf "$fresh"; fail "apt-get could not download $*; see its messages above"; }
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
unpack sqlite "${sqlite[@]}"
[ -z "$building" ] || wait "$building" || fail "the Go tools of tests could not be built; see Go's messages above"
wait
