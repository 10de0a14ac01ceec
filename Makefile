# Weir: one command runs it, one command tests it.
#
#	go run ./cmd/weir serve     the Widget and Bulk-Sync API on :8080, limited as in the contract
#	make test                   all checks, also on a bare Debian machine

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Pinned here and run by version, so that it is not in the go.mod of a service that embeds Weir.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.0

ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

# How long each fuzz target runs.
FUZZTIME ?= 2s
# How many packages are tested at the same time, beside e2e/weir. Many tests wait, so with it they are
# more than the processors; with many more, tests that wait for a clock fail.
PACKAGES ?= $$(($$(nproc) + 1))
# The packages that take longest. They start first, so that none runs alone at the end.
LONGEST := ./e2e/redis ./e2e/wordpress ./internal/gateway ./memstore ./internal/verify ./pacer
# For what runs beside e2e/weir, which lasts longest.
BESIDE := nice -n 5
# The race detector, for all but SQLite: that is C translated to Go, and takes eight times as long with it.
RACE := -race -gcflags='modernc.org/...=-race=false'
# How often `make soak` repeats the tests, and how long it fuzzes each target.
SOAK ?= 20
SOAKFUZZ ?= 10m
# How many requests it generates from openapi.yaml; a failure prints the seed.
SOAKREQUESTS ?= 100000

export CGO_ENABLED ?= 1

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: build
build: ## bin/weir
	go build -trimpath -o bin/weir ./cmd/weir

.PHONY: check
check: fmt ## the inner loop, in under a minute: format, vet, staticcheck, and the tests that need Go alone
	go vet ./...
	go run $(STATICCHECK) -checks 'inherit,-SA1008' ./...
	go test -short $$(go list ./... | grep -v /e2e/)
	@echo "make check: passed; make test runs everything"

.PHONY: test
test: deps fmt vet staticcheck ## everything below, as in CI
	$(MAKE) --no-print-directory -j2 e2e-weir race-packages norace modules
	@echo "make test: passed"

.PHONY: deps
deps: ## what the tests need besides Go: root on Debian installs it, others get a list
	@scripts/deps

.PHONY: fmt
fmt: ## check the format with gofmt
	@unformatted=$$(gofmt -l .); if [[ -n "$$unformatted" ]]; then \
		echo "error: not formatted:" $$unformatted >&2; echo "hint: gofmt -w ." >&2; exit 1; fi
	@echo "gofmt: all files are formatted"

.PHONY: vet
vet: ## go vet, for Linux, macOS and Windows
	GOOS=linux go vet ./...
	# go vet would compile every package once more for each of these, for four minutes of a processor.
	go build -C scripts/vet -o ../../bin/vet .
	GOOS=darwin CGO_ENABLED=0 bin/vet ./...
	GOOS=windows CGO_ENABLED=0 bin/vet ./...
	cd bench && ../bin/vet ./...
	cd examples/go && go vet -tags $(GO_TAGS) $(ALONE_FLAGS) ./...
	cd caddy && go vet $(ALONE_FLAGS) ./...

.PHONY: staticcheck
staticcheck: ## staticcheck, at the version pinned above
	go run $(STATICCHECK) -checks 'inherit,-SA1008' ./... # SA1008: the contract's spelling of the fields is not Go's

.PHONY: race
race: ## every test: packages with -race, command-line scripts, end to end with curl, nginx and chromium
	$(MAKE) --no-print-directory -j2 e2e-weir race-packages norace

# The longest, one test after the other: it starts first, and what runs beside it leaves it the
# processor. The program has the race detector where much happens at once, and only there: it doubles
# what everything takes. make soak has it everywhere.
CONCURRENT := UnderLoad|Swap|HandOver|Rolling|Killed|Drain|Replaced|OtherClients|NeverRead|Streams|Outage
.PHONY: e2e-weir
e2e-weir:
	go test -vet=off -count=1 -timeout 60m -skip '$(CONCURRENT)' ./e2e/weir
	go test -tags race_binary -vet=off -count=1 -timeout 60m -run '$(CONCURRENT)' ./e2e/weir

.PHONY: race-packages
race-packages:
	$(BESIDE) go test $(RACE) $(STRIP) -vet=off -count=1 -timeout 60m -p $(PACKAGES) $(LONGEST) $$(go list ./... | grep -vx github.com/weirlimit/weir/e2e/weir)

.PHONY: norace
norace: # what -race leaves out: millions of callers, kills, a gigabyte
	$(BESIDE) scripts/norace

# What only these modules need is compiled without optimization, in a fifth less time. What they
# share with the rest of Weir is compiled as there, and so once: it needs to have the same version.
ALONE := github.com/caddyserver github.com/smallstep github.com/quic-go github.com/dgraph-io github.com/jackc cel.dev/cel-go \
	github.com/go-jose github.com/cloudflare github.com/bits-and-blooms github.com/antlr4-go github.com/google/s2a-go \
	github.com/googleapis cloud.google.com/go google.golang.org/api \
	github.com/gin-gonic github.com/gofiber github.com/labstack github.com/go-playground github.com/tinylib go.mongodb.org
ALONE_FLAGS := $(foreach path,$(ALONE),-gcflags='$(path)/...=-N -l')
# Without gin's codec for MessagePack, which is the largest package of all.
GO_TAGS := nomsgpack
STRIP := -ldflags='-s -w'

# Without -race: what they share with the rest is tested with it, and Caddy takes minutes to compile once more.
.PHONY: modules
modules: ## the modules of their own: examples/go, the Caddy module, and --rls beside envoyproxy/ratelimit
	cd examples/go && $(BESIDE) go test -count=1 -vet=off $(STRIP) -tags $(GO_TAGS) $(ALONE_FLAGS) ./...
	cd caddy && $(BESIDE) go test -count=1 -vet=off $(STRIP) $(ALONE_FLAGS) ./...
	cd e2e/envoyratelimit && $(BESIDE) go test -count=1 $(STRIP) ./...

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (2s): the nightly run has minutes, make test only the inputs in testdata/fuzz
	$(BESIDE) scripts/fuzz $(FUZZTIME)

.PHONY: corpora
corpora: ## fill testdata/fuzz: each fuzz target for FUZZTIME (2s), then the inputs that reach what its seeds do not
	scripts/fuzz $(FUZZTIME)
	go run ./scripts/corpora

.PHONY: bench
bench: ## the benchmarks of each package, then Weir and its peers (bench/)
	go test -run '^$$' -bench . -benchmem ./...
	cd bench && go run .

.PHONY: bench-peers
bench-peers: ## the embedded store beside others for Go and a floor: an hour, rewrites docs/performance.md; PEERS=-quick: a minute
	cd bench && go run ./peers $(or $(PEERS),-docs ../docs)

.PHONY: bench-engine
bench-engine: ## the gateway's engines beside nginx, HAProxy, fasthttp and ReverseProxy on one core: ENGINE="-docs ../docs" rewrites docs/performance.md; ENGINE=-quick
	cd bench && go run ./engine $(ENGINE)

.PHONY: profile
profile: ## release/weir.pgo, by which the compiler optimizes a release: Weir under the load of bench-engine, four minutes on a quiet machine
	cd bench && go run ./engine -rounds 1 -length 10s -contestants auto -cases 'key,served,session,refused,tls,http2,http2-refused,settled,upload' -profile ../release/weir.pgo

.PHONY: bench-redis
bench-redis: ## Weir, other limiters for Go and bare scripts on a Redis: REDIS="-docs ../docs" rewrites docs/scale.md; REDIS=-quick
	cd bench && go run ./redis $(REDIS)

.PHONY: bench-rls
bench-rls: ## --rls beside a server of grpc-go that says OK, and beside envoyproxy/ratelimit on the same Redis: the table of docs/envoy.md
	cd bench && go run ./rls

.PHONY: bench-check
bench-check: ## nginx that asks --forward-auth about each request, beside one that asks a server that always answers 204: the table of docs/forward-auth.md
	cd bench && go run ./check

.PHONY: bench-caddy
bench-caddy: ## Caddy with the module beside Caddy without it: the table of caddy/README.md
	cd bench && go run ./caddy

.PHONY: bench-pacer
bench-pacer: ## callers that share a limit, through the pacer and through other clients: PACER="-docs ../docs" rewrites docs/pacing.md; PACER=-quick
	cd bench && go run ./pacer $(PACER)

.PHONY: bench-operate
bench-operate: ## what metrics, top callers, denial ids, a candidate and reloads cost per request: four minutes
	cd bench && go run . -operate -rounds 7

.PHONY: bench-verify
bench-verify: ## `weir verify` against other rate limiters on loopback: VERIFY="-docs ../docs" rewrites docs/verify.md
	cd bench && go run ./verified $(VERIFY)

.PHONY: bench-simulate
bench-simulate: ## how fast access logs are replayed on one core, and in how much memory: SIMULATE="-docs ../docs" rewrites docs/simulate.md; SIMULATE=-quick
	cd bench && go run ./simulate $(SIMULATE)

.PHONY: screenshot
screenshot: ## docs/demo.png, docs/dashboard.png and docs/simulate.png, from the browser tests; takes two minutes
	go test ./e2e/weir -count=1 -run TestThePictureOfTheDemoIsSmall -screenshot $(CURDIR)/docs/demo.png
	go test ./e2e/weir -count=1 -run TestThePictureOfTheDashboardIsSmall -dashboard $(CURDIR)/docs/dashboard.png
	go test ./e2e/weir -count=1 -run TestThePictureOfAReplayIsSmall -replay $(CURDIR)/docs/simulate.png
	@ls -l docs/demo.png docs/dashboard.png docs/simulate.png

.PHONY: site
site: ## site/: the pages of docs as HTML with a search, for any web server; AT=/weir/ if it is not at the root
	go run ./scripts/docsite -docs docs -out site -at "$(or $(AT),/)"

# Helm and the types of Kubernetes take five minutes of CPU to compile, so this is not in 'make test'.
.PHONY: chart
chart: ## charts/weir: Helm's lint, kubeconform, every field by its Go type, and deploy/kubernetes/weir.yaml beside it
	cd e2e/chart && go vet . && go test -count=1 .

.PHONY: bulk
bulk: ## the sample backend with 100,000 documents: synchronised at full speed, then at the contract's pace
	cd bench && go run ./bulk
	cd bench && go run ./bulk -pace

# Outside `make test`: the packagers take two minutes of processor time to compile.
.PHONY: release
release: ## dist/: archives, packages, images, SBOMs and sums of the checked-out commit, built twice and compared; needs xz
	cd release && go vet . && go test -count=1 . && go run . -twice -out ../dist

.PHONY: release-test
release-test: ## as root on Debian, after make release: lintian; the deb, and with rpm the rpm, is installed, used, upgraded, downgraded, removed
	scripts/release-test

.PHONY: workflows
workflows: ## check .github/workflows
	go run $(ACTIONLINT)

.PHONY: soak
soak: deps ## the long run, outside CI: the tests SOAK (20) times, SOAKREQUESTS from openapi.yaml, then SOAKFUZZ (10m) of each fuzz target
	go test $(RACE) -count=$(SOAK) -timeout 0 ./...
	scripts/norace $(SOAK)
	GENERATED_SEED=$$RANDOM GENERATED_REQUESTS=$(SOAKREQUESTS) go test -count=1 -timeout 0 -run '^TestGeneratedRequests' ./e2e/weir
	scripts/fuzz $(SOAKFUZZ)
