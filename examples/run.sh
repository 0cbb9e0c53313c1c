#!/usr/bin/env bash
# Generates a client per language from the contract, compiles it strictly and
# runs the same short story with each against a server of its own.
#
#   examples/run.sh [go] [openapi-fetch] [hey-api] [hey-api-zod] [python] [pydantic] [java]
#       [openapi-generator/go|php|rust|kotlin|ruby|java-okhttp|typescript-fetch] [openapi-typescript-codegen]
#       [verifiers] [mirror/python] [mirror/typescript] [bot/typescript] [bot/python]
#
# Without arguments: those that need only Go and Node. Where GUILDHALL_URL,
# GUILDHALL_TOKEN and GUILDHALL_CA are set they say which server; it lets webhooks
# call this machine, knows the demo guild, and nothing else is started.
set -euo pipefail
cd "$(dirname "$0")"
root=${GUILDHALL_SOURCE:-..} # the server's
. ../.github/contract/server.sh
[ $# -gt 0 ] || set -- go openapi-fetch hey-api hey-api-zod

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
openapi_typescript_codegen_story() {
	node_packages openapi-typescript-codegen
	node_modules/.bin/openapi --input ../../gen/openapi.yaml --output generated --useOptions --useUnionTypes
	node_modules/.bin/tsc --project .
	node dist/story.js
}
python_story() {
	python_packages Python
	.venv/bin/openapi-python-client generate --path ../../gen/openapi.yaml --meta none --config config.yaml \
		--output-path guildhall_client --overwrite --fail-on-warning
	.venv/bin/mypy --strict guildhall_client story.py payday.py receiver.py
	.venv/bin/python story.py
}
java_story() {
	need mvn Java
	mvn --quiet --batch-mode compile exec:java
}
hey_api_zod_story() {
	node_packages hey-api-zod
	node_modules/.bin/openapi-ts
	node_modules/.bin/tsc --project .
	node dist/story.js
}
pydantic_story() {
	python_packages pydantic
	.venv/bin/datamodel-codegen --input ../../gen/openapi-3.1.yaml --input-file-type openapi \
		--output-model-type pydantic_v2.BaseModel --output models.py --disable-timestamp
	.venv/bin/python story.py
}

# openapi-generator with its default options: what it makes is used as it is.
openapi_generator_go_story() {
	generated go ../../../gen/openapi.yaml
	GOFLAGS=-mod=mod go build -o dist/story ./... # no sums are kept of what is made anew
	SSL_CERT_FILE=$GUILDHALL_CA dist/story
}
openapi_generator_php_story() {
	need php PHP
	generated php ../../../gen/openapi.yaml
	# Where the distribution has Guzzle (php-guzzlehttp-guzzle), nothing is downloaded.
	if [ ! -e /usr/share/php/GuzzleHttp/autoload.php ]; then
		need composer PHP
		(cd generated && COMPOSER_ALLOW_SUPERUSER=1 composer install --no-dev --no-interaction --quiet)
	fi
	php story.php
}
openapi_generator_rust_story() {
	need cargo Rust
	generated rust ../../../gen/openapi.yaml
	cargo run --quiet
}
openapi_generator_kotlin_story() {
	generated kotlin ../../../gen/openapi.yaml
	mvn --quiet --batch-mode compile exec:java
}
# Ruby's client needs Typhoeus, which distributions have too (ruby-typhoeus).
openapi_generator_ruby_story() {
	need ruby Ruby
	generated ruby ../../../gen/openapi.yaml
	ruby story.rb
}
openapi_generator_java_okhttp_story() {
	need mvn Java
	mvn --quiet --batch-mode compile exec:java
}
openapi_generator_typescript_fetch_story() {
	node_packages typescript-fetch
	generated typescript-fetch ../../../gen/openapi-3.1.yaml
	node_modules/.bin/tsc --project .
	node dist/story.js
}
generated() { # GENERATOR DOCUMENT
	need mvn openapi-generator
	local version=7.25.0 jar=../openapi-generator-cli.jar
	[ -e "$jar" ] || mvn --quiet --batch-mode org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy \
		-Dartifact=org.openapitools:openapi-generator-cli:$version -DoutputDirectory=.. -Dmdep.stripVersion=true
	rm -rf generated
	java -jar "$jar" generate --generator-name "$1" --input-spec "$2" --output generated >generated.log 2>&1 || { cat generated.log; return 1; }
}

verifiers_story() {
	node_packages "Verifying"
	node verify.mjs
	python_packages "Verifying"
	.venv/bin/python verify.py
}
mirror_python_story() {
	python_packages "The mirror"
	.venv/bin/mypy --strict mirror.py
	.venv/bin/python mirror.py "${MIRROR_ROUNDS:-1}"
}
mirror_typescript_story() {
	node_packages "The mirror"
	node_modules/.bin/tsc --project .
	node dist/mirror.js "${MIRROR_ROUNDS:-1}"
}

bot_typescript_story() {
	node_packages "The bot"
	node_modules/.bin/openapi-typescript ../../../gen/openapi-3.1.yaml --output generated/schema.ts
	node_modules/.bin/tsc --project .
	node dist/answers.js
	bot_story whole node "$PWD/dist/bot.js"
}
bot_python_story() {
	python_packages "The bot"
	.venv/bin/mypy --strict bot.py answers.py
	.venv/bin/python answers.py
	bot_story short "$PWD/.venv/bin/python" "$PWD/bot.py"
}
# A bot has a platform and a Guildhall of its own, which leaves the platform to the bot.
bot_story() ( # EXTENT COMMAND...
	cd ../story
	node_packages "The story"
	root=../../.. # the server's
	export DISCORD_TOKEN=story
	. ../../../.github/contract/server.sh
	: >"$state/platform.out" # it may be looked at before the stand-in's shell has made it
	node platform.mjs >"$state/platform.out" &
	platform=$!
	trap 'kill $platform 2>/dev/null; stop_server' EXIT
	local tries=100
	while ! grep -q PLATFORM_URL "$state/platform.out"; do [ $((tries--)) -gt 0 ] || exit 1; sleep 0.1; done
	set -a
	. "$state/platform.out"
	set +a
	export GUILDHALL_DISCORD_URL=bot GUILDHALL_RATE_READ=off GUILDHALL_RATE_WRITE=off GUILDHALL_RATE_BOT=off
	start_server
	GUILDHALL_BOT_KEY=$("$state/guildhall" bot-key create --dir "$state/dev" --name story --json | sed -n 's/.*"key": *"\([^"]*\)".*/\1/p')
	export GUILDHALL_BOT_KEY NODE_EXTRA_CA_CERTS=$GUILDHALL_CA
	(cd "$state" && node "$OLDPWD/story.mjs" "$@")
	if grep --max-count 5 'an answer breaks the contract' "$state/log"; then exit 1; fi
)

# The stories without a receiver of their own share one, which answers over HTTPS:
# some clients hold requests against the document, which allows no other URL.
receiver=
stop_all() {
	[ -z "$receiver" ] || kill "$receiver" 2>/dev/null || true
	stop_server
}
trap stop_all EXIT
start_receiver() {
	(cd "$root" && go build -o "$state/receiver" ./examples/receiver)
	: >"$state/receiver.out" # it may be looked at before the receiver's shell has made it
	"$state/receiver" -ca "$state/receiver.pem" >"$state/receiver.out" &
	receiver=$!
	local tries=150
	while [ "$(wc -l <"$state/receiver.out")" -lt 2 ]; do
		kill -0 "$receiver" 2>/dev/null && [ $((tries--)) -gt 0 ] || { echo "The receiver did not start." >&2; exit 1; }
		sleep 0.2
	done
	set -a
	. "$state/receiver.out"
	GUILDHALL_WEBHOOK_CA=$state/receiver.pem
	set +a
}
if [ -z "${GUILDHALL_URL:-}" ]; then
	start_receiver
	# Twelve writers at once are more than a token may do by default.
	export GUILDHALL_RATE_READ=off GUILDHALL_RATE_WRITE=off
	export GUILDHALL_CHECK_ANSWERS=log
	start_server
fi
export NODE_EXTRA_CA_CERTS=$GUILDHALL_CA

# The clients are made from the file that the server publishes, or from one that it published.
if [ -z "${GUILDHALL_SOURCE:-}" ] && command -v curl >/dev/null; then
	curl --silent --show-error --fail --cacert "$GUILDHALL_CA" "${GUILDHALL_URL%/api/v1}/openapi.yaml" | cmp - ../gen/openapi.yaml
fi

for language in "$@"; do
	story="${language//[-\/]/_}_story"
	declare -F "$story" >/dev/null || { echo "run.sh: no client for $language" >&2; exit 2; }
	echo "== $language"
	(cd "$language" && "$story")
done
if [ -e "$state/log" ] && grep --max-count 5 'an answer breaks the contract' "$state/log"; then exit 1; fi
