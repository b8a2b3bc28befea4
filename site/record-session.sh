#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What site/record.sh records: the commands, and what they really print.
set -euo pipefail
image=oci:demo-image

# show types a command as a person does, and runs it.
show() {
  local i
  printf '\e[32m$\e[0m '
  for ((i = 0; i < ${#1}; i++)); do
    printf '%s' "${1:i:1}"
    sleep 0.03
  done
  sleep 0.4
  echo
  eval "$1"
  echo
  sleep 1.2
}

show "outrigger run $image -- uname -rsm   # a kernel of its own"
show "outrigger run --detach --name web $image -- sleep 600"
show "outrigger ps"
show "echo data | outrigger exec -i web wc -c"
show "outrigger timeline web | head -n 20"
show "outrigger rm -f web"
show "outrigger ps   # nothing is left"
