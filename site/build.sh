#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds the site, or with `serve` serves it on the loopback address and builds
# again what changes:
#
#   site/build.sh [serve] [HUGO'S FLAGS]
#
# Hugo and the theme are Go modules (tools/site/go.mod, site/go.mod), search and the
# player of the recording are packages of npm (site/package-lock.json). They are
# fetched once, into the cache; after that it takes no network.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${OUTRIGGER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/outrigger}
packages=$cache/site-$(sha256sum site/package-lock.json | cut -c1-16)

command -v npm >/dev/null || { echo "site: npm is not installed; run: apt-get install npm" >&2; exit 1; }
mkdir -p "$cache/tools"
(cd tools/site && CGO_ENABLED=0 GOGC=${GOGC:-400} go build -o "$cache/tools/" tool)
if [ ! -e "$packages/node_modules/.package-lock.json" ]; then
  mkdir -p "$packages"
  cp site/package.json site/package-lock.json "$packages/"
  npm ci --prefix "$packages" --ignore-scripts --no-audit --no-fund --loglevel=error >&2
fi
mkdir -p bin/site-assets
cp "$packages"/node_modules/flexsearch/dist/flexsearch.bundle.min.js \
  "$packages"/node_modules/asciinema-player/dist/bundle/asciinema-player{.min.js,.css} bin/site-assets/

how=(--source site --destination "$PWD/bin/site" --cleanDestinationDir --panicOnWarning --noBuildLock)
if [ "${1:-}" = serve ]; then
  shift
  how=(server --source site --renderToMemory --noBuildLock --bind 127.0.0.1)
fi
version=${VERSION:-$(git describe --tags --always --dirty 2>/dev/null || echo dev)}
# Files of a release are at its tag; those between two releases are on main.
ref=main
[[ ! $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+$ ]] || ref=$version
export HUGO_PARAMS_VERSION=$version HUGO_PARAMS_REF=$ref HUGO_CACHEDIR=$cache/hugo HUGO_MODULE_PROXY
HUGO_MODULE_PROXY=$(go env GOPROXY)
exec "$cache/tools/hugo" "${how[@]}" ${SITE_URL:+--baseURL "$SITE_URL"} "$@"
