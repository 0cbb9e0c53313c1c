#!/usr/bin/env bash
# Old clients keep working: the clients that are generated from the last released
# document run their story against the server as it is now.
#
#   examples/released.sh [go] [openapi-fetch] [hey-api] [python] [java]
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- go openapi-fetch hey-api
released=$(ls .github/contract/released/openapi-*.yaml | sort -V | tail -n 1)
echo "clients of ${released##*/}"

old=$(mktemp -d)
trap 'rm -rf "$old"' EXIT
mkdir -p "$old/gen" "$old/.github/contract"
cp .github/contract/server.sh "$old/.github/contract/"
git ls-files -z examples internal/service/webhooks/testdata | xargs -0 cp --parents -t "$old"
go run ./gen/derive -copy "$old/gen/openapi.yaml" -derived "$old/gen/openapi-3.1.yaml" "$released"
GUILDHALL_SOURCE=$PWD "$old/examples/run.sh" "$@"
