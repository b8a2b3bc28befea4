#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Run in new namespaces as `sh guest.sh FOLDER PROGRAMS CGROUP`: the first process
# of a guest of Cloud. It waits for its network and its cgroups, then does what
# podvm-init does in a VM: user-data, agent, forwarder.
set -eu
dir=$1 programs=$2 cgroup=$3
if [ -z "${GUEST_CGROUPS:-}" ]; then
  read -r _
  # From here on its cgroups are the roots that it sees.
  GUEST_CGROUPS=own exec unshare --cgroup sh "$0" "$@" </dev/null
fi

mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/netns /run/lock
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  mount --bind "/sys/fs/cgroup/$cgroup" /sys/fs/cgroup
else
  for hierarchy in /sys/fs/cgroup/*; do
    if [ -d "$hierarchy/$cgroup" ] && [ ! -L "$hierarchy" ]; then
      mount --bind "$hierarchy/$cgroup" "$hierarchy"
    fi
  done
fi
hostname podvm
"$programs/process-user-data" provision-files --seed-dir "$dir"
if [ -n "${GUEST_FORWARDER:-}" ]; then
  # Images of others make the pod's namespace at boot; ours leaves it to the forwarder.
  ip link set lo up
  ip netns add podns
  ip -n podns link set lo up
  "$programs/podvm-agent" &
  # Older ones end when they have no argument at all.
  exec "$GUEST_FORWARDER" -kata-agent-socket /run/kata-containers/agent.sock
fi
"$programs/podvm-agent" &
exec "$programs/agent-protocol-forwarder"
