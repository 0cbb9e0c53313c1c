#!/usr/bin/env bash
# Generates a client per language from the contract, compiles it strictly and
# runs the same short story with each against a server of its own.
#
#   examples/run.sh [go] [openapi-fetch] [hey-api] [python] [java]
#
# Without arguments: those that need only Go and Node.
set -euo pipefail
cd "$(dirname "$0")"
root=..
. ../.github/contract/server.sh
[ $# -gt 0 ] || set -- go openapi-fetch hey-api

go_story() {
	go generate ./...
	go vet ./...
	go test ./...
	go run .
}
openapi_fetch_story() {
	node_packages openapi-fetch
	node_modules/.bin/openapi-typescript ../../gen/openapi-3.1.yaml --output generated/schema.ts
	node_modules/.bin/tsc --project .
	node dist/story.js
}
hey_api_story() {
	node_packages hey-api
	node_modules/.bin/openapi-ts --input ../../gen/openapi-3.1.yaml --output generated --no-log-file
	node_modules/.bin/tsc --project .
	node dist/story.js
}
python_story() {
	python_packages Python
	.venv/bin/openapi-python-client generate --path ../../gen/openapi.yaml --meta none --config config.yaml \
		--output-path guildhall_client --overwrite --fail-on-warning
	.venv/bin/mypy --strict guildhall_client story.py receiver.py
	.venv/bin/python story.py
}
java_story() {
	need mvn Java
	mvn --quiet --batch-mode compile exec:java
}

export GUILDHALL_CHECK_ANSWERS=log
start_server
export NODE_EXTRA_CA_CERTS=$GUILDHALL_CA

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
if grep --max-count 5 'an answer breaks the contract' "$state/log"; then exit 1; fi
