# The two commands a newcomer needs are `make run` and `make test`. Everything
# here needs Go, make and the Postgres server programs; `make postgres` finds or
# installs the last.

SHELL := /bin/sh
.DEFAULT_GOAL := help

# Pinned here and nowhere else: CI reads it from here.
GOLANGCI_LINT_VERSION := v2.15.0

# The number of a release is its tag without the v: year, month, fix. Without a tag the
# program calls itself devel.
VERSION ?= $(patsubst v%,%,$(shell git describe --tags --exact-match --match 'v[2-9][0-9].*' 2>/dev/null || echo devel))
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null)
# Where the documents are published; /docs leads there.
GUIDES  ?=
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT) -X main.guides=$(GUIDES)

# A test's process waits a second for late reports of races by default; ours share nothing
# that outlives their tests, and there are fifty of them.
export GORACE ?= atexit_sleep_ms=50

# What only a debugger reads takes a fifth of the time in which our packages are compiled and linked,
# and the compiler's own collecting of garbage another fifth. Programs that are started keep their collector.
export GOFLAGS := $(strip $(shell go env GOFLAGS 2>/dev/null) -gcflags=guildhall/...=-dwarf=false '-toolexec=env GOGC=400')

GENERATED := gen migrations/schema.sql docs/operate/settings.md docs/operate/commands.md deploy/guildhall.env.example

.PHONY: help
help: ## print this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: postgres bin/guildhall ## start everything on this machine and print a call to paste
	@exec bin/guildhall dev

# Tests wait more than they compute: four packages at a time keep two cores busy.
PACKAGES = $(shell n=$$(getconf _NPROCESSORS_ONLN); echo $$((n > 4 ? n : 4)))
# The longest first: the others need not wait for them, and none of them runs alone at the end.
TESTED = ./internal/outbound/delivery ./cmd/guildhall ./internal/service/giveaways ./internal/server/api ./internal/server/dashboard \
	./internal/service/tickets ./internal/outbound/chat ./internal/service/leaderboard ./internal/access/auth ./internal/service/work \
	./internal/operate/doctor ./...
# The linter makes the checks of go vet, and more; go test would make them of every dependency too.
# Go collects the garbage of tests seldom: at its default that takes a quarter of their CPU.
TESTS = GOGC=400 bin/postgres with go test -p $(PACKAGES) -vet=off -timeout 60m -shuffle=on $(TESTFLAGS)

.PHONY: test
test: postgres bin/postgres ## run the tests, beside a Postgres of their own
	$(TESTS) $(TESTED)

# Tests that judge wall time, replay a disaster or install packages stand in files with the build tag slow, and run alone, one
# after the other.
SLOW = $(shell grep -rl --include='*_test.go' '^//go:build slow' bench cmd internal)

.PHONY: test-slow
test-slow: postgres bin/postgres ## run the tests that judge wall time, replay a disaster or install packages, on a machine with nothing else to do
	bin/postgres with go test -p 1 -parallel 1 -vet=off -count=1 -timeout 60m $(filter-out -tags browser,$(TESTFLAGS)) -tags slow \
		-run "^($$(sed -n 's/^func \(Test[A-Za-z0-9_]*\)(.*/\1/p' $(SLOW) | paste -sd'|' -))$$" $(addprefix ./,$(sort $(dir $(SLOW))))

.PHONY: race
race: postgres bin/postgres ## run the tests with the race detector and more rounds of property tests: a C compiler is needed
	GUILDHALL_TEST_ROUNDS=100 $(TESTS) -race $(TESTED)

.PHONY: check
check: verify lint doclint vuln race ## what CI runs on Go alone; not clients and fuzz, which take an hour and other languages

.PHONY: browser
browser: postgres bin/postgres chromium ## go through the dashboard and the reference in a real Chromium; pictures of each page in build/screens
	GUILDHALL_TEST_SCREENS=true bin/postgres with go test -count=1 -timeout 30m -tags browser -run InABrowser ./internal/server/dashboard ./internal/server/api

.PHONY: pictures
pictures: postgres chromium bin/guildhall ## take pictures of all pages of guildhall dev into build/pictures, and README's into docs/pictures
	go run ./internal/server/dashboard/pictures

.PHONY: chromium
chromium: ## find Chromium, or install it, or say how to
	@.ci/tools chromium

.PHONY: postgres
postgres: bin/postgres ## find the Postgres server programs, or install them, or say how to
	@bin/postgres ensure

.PHONY: generate
generate: postgres ## make what is made from openapi.yaml, the migrations, the settings and the commands
	go generate ./gen/... ./cmd/guildhall
	go run ./internal/base/db/schemadump migrations/schema.sql

.PHONY: verify
verify: generate ## generate, and fail when that changes anything
	@changed=$$(git status --porcelain --untracked-files=all -- $(GENERATED)); \
	if [ -n "$$changed" ]; then \
		echo "Generated files are stale. Run make generate and commit:" >&2; echo "$$changed" >&2; \
		git --no-pager diff --stat -- $(GENERATED) >&2; exit 1; \
	fi

.PHONY: lint
lint: bin/golangci-lint-$(GOLANGCI_LINT_VERSION) ## run the linters of .golangci.yaml and of the workflows, and build for the other system
	bin/golangci-lint-$(GOLANGCI_LINT_VERSION) run ./...
	go tool actionlint
	CGO_ENABLED=0 GOOS=darwin go build -o /dev/null ./cmd/guildhall

.PHONY: doclint
doclint: ## check openapi.yaml with the document linters, and against each release
	.github/contract/lint.sh

BASE ?= /

.PHONY: docs
docs: ## make the site of the documents in build/site; a dead link fails it; needs Node
	cd docs && npm ci --no-audit --no-fund --loglevel=error && npm run build -- --base "$(BASE)"
	@cp gen/openapi.yaml gen/openapi-3.1.yaml build/site/

.PHONY: clients
clients: postgres ## generate clients (CLIENTS="go python ..."), compile them and run them
	examples/run.sh $(CLIENTS)

.PHONY: fuzz
fuzz: postgres ## fuzz a live server with what the contract allows and forbids
	.github/contract/fuzz.sh $(EXAMPLES)

.PHONY: vuln
vuln: ## look for known weaknesses in the dependencies
	go tool govulncheck ./...

.PHONY: bench
bench: postgres bin/guildhall ## measure throughput and latency against the plainest program that does the same
	go run ./bench all

.PHONY: worst
worst: postgres bin/guildhall ## measure the server's CPU for the worst request of each operation
	go run ./bench worst

.PHONY: drill
drill: postgres bin/guildhall ## put a real server under a load it must survive (NAME=neighbour ...)
	go run ./bench/drill $(NAME)

DIST ?= dist
# The time of all files in a release, so that two builds of one commit are equal.
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)

.PHONY: release
release: ## build the program, packages and all that lies beside them into dist/
	@rm -rf $(DIST) && mkdir -p $(DIST)
	@for target in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64; do \
		out=$(DIST)/guildhall-$(VERSION)-$$(echo $$target | tr / -); \
		echo $$out; \
		CGO_ENABLED=0 GOOS=$${target%/*} GOARCH=$${target#*/} go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o $$out ./cmd/guildhall || exit 1; \
	done
	@.ci/notices > $(DIST)/NOTICES.txt
	@for architecture in amd64 arm64; do \
		.ci/deb $(VERSION) $$architecture $(DIST)/guildhall-$(VERSION)-linux-$$architecture $(DIST)/NOTICES.txt $(DIST) || exit 1; \
	done
	@.ci/deploy $(DIST)
	@cp gen/openapi.yaml gen/openapi-3.1.yaml CHANGELOG.md $(DIST)/
	@.ci/contract-changes > $(DIST)/contract-changes.md
	@cd $(DIST) && { sha256sum * 2>/dev/null || shasum -a 256 *; } > .sums && mv .sums SHA256SUMS

.PHONY: deb
deb: ## build the package of this checkout for this machine's Debian or Ubuntu into dist/
	@mkdir -p $(DIST) && .ci/notices > $(DIST)/NOTICES.txt
	@CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/guildhall ./cmd/guildhall
	@.ci/deb $(VERSION) $$(dpkg --print-architecture) bin/guildhall $(DIST)/NOTICES.txt $(DIST) && ls $(DIST)/*.deb

.PHONY: release-prepare
release-prepare: generate ## make the commit to tag: date the section of RELEASE=26.12.0 in CHANGELOG.md and freeze its contract
	.ci/release-prepare $(RELEASE)

.PHONY: release-dry-run
release-dry-run: ## do all that a release does except publishing, on a scratch copy
	.ci/release-dry-run $(RELEASE)

.PHONY: reproducible
reproducible: release ## build the release once more in another folder, and fail when the two differ
	@other=$$(mktemp -d) && trap 'rm -rf "$$other"' EXIT && git ls-files -z | xargs -0 tar -c | tar -x -C "$$other" && \
		$(MAKE) -C "$$other" --no-print-directory release VERSION=$(VERSION) COMMIT=$(COMMIT) GUIDES=$(GUIDES) && \
		diff $(DIST)/SHA256SUMS "$$other/dist/SHA256SUMS" && echo "Both builds are equal."

.PHONY: bin/guildhall
bin/guildhall:
	@[ -e $@ ] || echo 'Compiling guildhall: a minute or two, the first time.'
	@go build -ldflags '$(LDFLAGS)' -o $@ ./cmd/guildhall

.PHONY: bin/postgres
bin/postgres:
	@go build -o $@ ./internal/base/db/embedded/postgres

bin/golangci-lint-$(GOLANGCI_LINT_VERSION):
	GOBIN=$(CURDIR)/bin/tmp go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	@mv bin/tmp/golangci-lint $@ && rmdir bin/tmp
