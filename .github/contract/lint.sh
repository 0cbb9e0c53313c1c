#!/usr/bin/env bash
# Lints both published forms of the contract and compares it with each release. No
# warning is allowed. Needs Go and Node. The versions of the linters are pinned in
# package-lock.json and go.mod.
set -euo pipefail
cd "$(dirname "$0")"
root=../..
. ./server.sh
export REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true

node_packages "Linting the contract"

for document in ../../gen/openapi.yaml ../../gen/openapi-3.1.yaml; do
	echo "spectral ${document#../../}"
	node_modules/.bin/spectral lint "$document" --ruleset .spectral.yaml --fail-severity hint --quiet
	echo "redocly ${document#../../}"
	node_modules/.bin/redocly lint "$document" --config redocly.yaml 2>&1 | grep -v -e '║' -e '═' -e '^$'
done

releases=$(find . -path './released/openapi-*.yaml' | sort -V)
[ -n "$releases" ] || echo "oasdiff: no contract has been released, so there is nothing to compare with"
for released in $releases; do
	echo "oasdiff gen/openapi.yaml against $released"
	go tool oasdiff breaking --fail-on ERR --deprecation-days-stable 180 "$released" ../../gen/openapi.yaml
done
