#!/usr/bin/env bash
# Generates a client per language from the contract, compiles it strictly and
# runs the same short story with each against a server of its own.
#
#   examples/run.sh [go] [openapi-fetch] [hey-api] [python] [java]
#
# Without arguments: those that need only Go and Node.
set -euo pipefail
cd "$(dirname "$0")"
[ $# -gt 0 ] || set -- go openapi-fetch hey-api

need() { # PROGRAM LANGUAGE
	command -v "$1" >/dev/null || { echo "run.sh: the $2 client needs $1, which is not here." >&2; exit 1; }
}
# Installs what a lock file pins, unless that has been done since it changed.
packages() {
	if [ ! -e node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then
		npm ci --no-audit --no-fund --ignore-scripts --loglevel=error
	fi
}

go_story() {
	go generate ./...
	go vet ./...
	go run .
}
openapi_fetch_story() {
	need npm openapi-fetch
	packages
	node_modules/.bin/openapi-typescript ../../gen/openapi-3.1.yaml --output generated/schema.ts
	node_modules/.bin/tsc --project .
	node dist/story.js
}
hey_api_story() {
	need npm hey-api
	packages
	node_modules/.bin/openapi-ts --input ../../gen/openapi-3.1.yaml --output generated --no-log-file
	node_modules/.bin/tsc --project .
	node dist/story.js
}
python_story() {
	need python3 Python
	[ .venv/requirements.txt -nt requirements.txt ] || {
		python3 -m venv .venv
		.venv/bin/pip install --quiet --requirement requirements.txt
		cp requirements.txt .venv/
	}
	.venv/bin/openapi-python-client generate --path ../../gen/openapi.yaml --meta none --config config.yaml \
		--output-path guildhall_client --overwrite --fail-on-warning
	.venv/bin/mypy --strict guildhall_client story.py receiver.py
	.venv/bin/python story.py
}
java_story() {
	need mvn Java
	mvn --quiet --batch-mode compile exec:java
}

state=$(mktemp -d)
server=
finish() {
	[ -z "$server" ] || { kill -INT "$server" 2>/dev/null && wait "$server" || true; }
	rm -rf "$state"
}
trap finish EXIT

(cd .. && go build -o "$state/guildhall" ./cmd/guildhall)
"$state/guildhall" dev --dir "$state/dev" --https-listen 127.0.0.1:0 --http-listen off --ops-listen 127.0.0.1:0 \
	>"$state/out" 2>"$state/log" &
server=$!
said() { sed -n "s/^  $1  *//p" "$state/out"; }
for _ in $(seq 600); do
	[ -z "$(said Token)" ] || break
	kill -0 "$server" 2>/dev/null || { cat "$state/log" >&2; exit 1; }
	sleep 0.2
done
GUILDHALL_URL=$(said API) GUILDHALL_TOKEN=$(said Token) GUILDHALL_CA=$(said 'CA file')
NODE_EXTRA_CA_CERTS=$GUILDHALL_CA
export GUILDHALL_URL GUILDHALL_TOKEN GUILDHALL_CA NODE_EXTRA_CA_CERTS
[ -n "$GUILDHALL_TOKEN" ] || { echo "run.sh: the server did not start" >&2; cat "$state/log" >&2; exit 1; }

# The clients are made from the file that the server publishes.
if command -v curl >/dev/null; then
	curl --silent --show-error --fail --cacert "$GUILDHALL_CA" "${GUILDHALL_URL%/api/v1}/openapi.yaml" | cmp - ../gen/openapi.yaml
fi

for language in "$@"; do
	story="${language//-/_}_story"
	declare -F "$story" >/dev/null || { echo "run.sh: no client for $language" >&2; exit 2; }
	echo "== $language"
	(cd "$language" && "$story")
done
