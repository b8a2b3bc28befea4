#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Records site/assets/demo.cast, which the landing page plays, and docs/pictures/demo.svg: `make build podvm
# demo-image`, then, as root and with Debian's asciinema, site/record.sh. Pods run in
# namespaces of their own, so nothing of the machine's network is touched.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "record: a VM's network needs root" >&2; exit 1; }
command -v asciinema >/dev/null || { echo "record: asciinema is not installed; run: apt-get install asciinema" >&2; exit 1; }
export OUTRIGGER_SITE=$PWD TERM=xterm-256color
# The first pod makes the template from which the recorded ones are restored.
unshare -mn --propagation private bash -euc '
  mkdir -p /var/lib/outrigger /var/cache/outrigger
  mount -t tmpfs tmpfs /run
  mount -t tmpfs tmpfs /var/lib/outrigger
  mount -t tmpfs tmpfs /var/cache/outrigger
  ip link set lo up
  mkdir /run/demo # the recording has no folder of this machine
  mount --bind bin /run/demo
  cd /run/demo
  PATH=$PWD:$PATH
  outrigger run oci:demo-image -- true >/dev/null
  asciinema rec --overwrite --quiet --cols 96 --rows 25 --idle-time-limit 2 --title "A pod in its own VM" --env "" \
    --command "$OUTRIGGER_SITE/site/record-session.sh" "$OUTRIGGER_SITE/site/assets/demo.cast"'
# README shows it as a picture.
picture=docs/pictures/demo.svg
npx --yes svg-term-cli@2.1.1 --in site/assets/demo.cast --out "$picture" --window
sed -i '1s/^/<!-- SPDX-License-Identifier: Apache-2.0 -->\n/' "$picture"
