#!/usr/bin/env bash
# Fuzzes a live server with all that the contract allows and forbids:
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
.venv/bin/schemathesis --config-file schemathesis.toml run ../../openapi.yaml --url "$GUILDHALL_URL" \
	--header "Authorization: Bearer $GUILDHALL_TOKEN" --tls-verify="$GUILDHALL_CA" --max-examples "${1:-30}"
if grep --max-count 5 'an answer breaks the contract' "$state/log"; then exit 1; fi
