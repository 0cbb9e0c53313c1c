#!/usr/bin/env bash
# Old clients keep working: the clients that are generated from the last released
# document run their story against the server as it is now: that of their release, for
# the one of today calls what it did not have. So the history has to be here.
#
#   examples/released.sh [go] [openapi-fetch] [hey-api] [python] [java]
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- go openapi-fetch hey-api
released=$(ls .github/contract/released/openapi-*.yaml | sort -V | tail -n 1)
echo "clients of ${released##*/}"

old=$(mktemp -d)
trap 'rm -rf "$old"' EXIT
release=$(git log -1 --diff-filter=A --format=%H -- "$released")
git archive "${release:?"no commit added $released: fetch the history"}" | tar -x -C "$old"
cp .github/contract/server.sh "$old/.github/contract/"
go run ./gen/derive -copy "$old/gen/openapi.yaml" -derived "$old/gen/openapi-3.1.yaml" "$released"
GUILDHALL_SOURCE=$PWD "$old/examples/run.sh" "$@"
