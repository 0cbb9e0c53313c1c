#!/usr/bin/env bash
# Lints both forms of the contract and compares it with each release, with no
# warning allowed. Needs Go and Node; everything it runs is pinned here, in
# package-lock.json and go.mod.
set -euo pipefail
cd "$(dirname "$0")"
root=../..
. ./server.sh
export REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true

node_packages "Linting the contract"

for document in ../../openapi.yaml ../../gen/openapi-3.1.yaml; do
	echo "spectral ${document#../../}"
	node_modules/.bin/spectral lint "$document" --ruleset .spectral.yaml --fail-severity hint --quiet
	echo "redocly ${document#../../}"
	node_modules/.bin/redocly lint "$document" --config redocly.yaml 2>&1 | grep -v -e '║' -e '═' -e '^$'
done

for released in $(ls released/openapi-*.yaml | sort -V); do
	echo "oasdiff openapi.yaml against $released"
	go tool oasdiff breaking --fail-on ERR --deprecation-days-stable 180 "$released" ../../openapi.yaml
done
