#!/usr/bin/env bash
# Runs the clients of the last released contract against the present server: those of the
# release's commit, generated from the release's document. The history of the checkout has
# to hold that commit.
#
#   examples/released.sh [NAME...]   the names of run.sh
set -euo pipefail
cd "$(dirname "$0")/.."
released=$(find .github/contract -path '*/released/openapi-*.yaml' | sort -V | tail -n 1)
if [ -z "$released" ]; then
	echo "No contract has been released, so there are no older clients to run."
	exit
fi
[ $# -gt 0 ] || set -- go openapi-fetch hey-api
echo "clients of ${released##*/}"

old=$(mktemp -d)
trap 'rm -rf "$old"' EXIT
release=$(git log -1 --diff-filter=A --format=%H -- "$released")
git archive "${release:?"no commit added $released: fetch the history"}" | tar -x -C "$old"
cmp "$old/gen/openapi.yaml" "$released"
cp .github/contract/server.sh "$old/.github/contract/"
GUILDHALL_SOURCE=$PWD "$old/examples/run.sh" "$@"
