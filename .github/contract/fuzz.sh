#!/usr/bin/env bash
# Fuzzes a live server with all that the contract allows and forbids: once with
# hooks that make more of it succeed, and with default settings over both forms
# of the document. What is refused must stand in refusals.toml.
#
#   .github/contract/fuzz.sh [examples per operation]
set -euo pipefail
cd "$(dirname "$0")"
root=../..
. ./server.sh
python_packages "Fuzzing"

# No bucket runs empty, and any receiver may be called, so that what is refused
# is refused for what the document says.
export GUILDHALL_RATE_READ=off GUILDHALL_RATE_WRITE=off GUILDHALL_RATE_LOGIN=off GUILDHALL_WEBHOOK_ALLOW=0.0.0.0/0,::/0
# The server holds its own answers against the contract too.
export GUILDHALL_CHECK_ANSWERS=log
start_server

fuzz() { # CONFIGURATION DOCUMENT EXAMPLES
	local report=$state/report.ndjson status=0
	echo "== $2, $1"
	.venv/bin/schemathesis --config-file "$1" run "$2" --url "$GUILDHALL_URL" --header "Authorization: Bearer $GUILDHALL_TOKEN" \
		--tls-verify="$GUILDHALL_CA" --max-examples "$3" --continue-on-failure \
		--report ndjson --report-ndjson-path "$report" >"$state/findings" || status=$?
	if [ $status -gt 1 ] || ! .venv/bin/python refusals.py "$report"; then
		cat "$state/findings"
		exit 1
	fi
	grep -A 1 '^Test cases' "$state/findings"
}
fuzz schemathesis.toml ../../gen/openapi.yaml "${1:-30}"
for document in ../../gen/openapi.yaml ../../gen/openapi-3.1.yaml; do
	fuzz /dev/null "$document" "${1:-30}"
done
if grep --max-count 5 'an answer breaks the contract' "$state/log"; then exit 1; fi
