# make dev    build, run a four-node cluster on this machine, and print what to paste next
# make test   install what the tests need and run all of them
# make check  builds for every way of building, vet, gofmt
# make bench  measure this machine into bench.json and bench.md (README, "Measuring")
# make build  bin/objstore, static

SHELL   := bash
GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -s -w -X main.version=$(VERSION)
BUILD   := $(GO) build -ldflags '$(LDFLAGS)'

# The version comes from git describe above; stamping would fail where git distrusts the folder's owner.
export GOFLAGS += -buildvcs=false

DEV_DIR ?= dev-data
DEV_ARGS ?=
BENCH_ARGS ?=
TEST_TIMEOUT ?= 30m

# Packages whose concurrency is worth the race detector's slowness.
RACE := ./admin/... ./cluster/... ./cmd/... ./internal/... ./metadata/... ./object/... ./repair/... ./s3/... ./shard/...

.PHONY: build dev test tools vet unit race e2e check bench clean

build:
	CGO_ENABLED=0 $(BUILD) -o bin/objstore ./cmd/objstore

dev: build
	exec bin/objstore dev --dir $(DEV_DIR) $(DEV_ARGS)

test: tools vet unit race e2e

tools:
	scripts/test-tools

vet:
	$(GO) vet ./...

unit:
	$(GO) test -timeout $(TEST_TIMEOUT) $$($(GO) list ./... | grep -v /e2e)

race:
	$(GO) test -race -short -timeout $(TEST_TIMEOUT) $(RACE)

# One package, one test at a time: each has a cluster of its own on this machine's cores.
e2e:
	$(GO) test -count=1 -timeout $(TEST_TIMEOUT) -v ./e2e/...

check: vet
	test -z "$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go'))" || { gofmt -l . ; exit 1; }
	CGO_ENABLED=0 $(GO) build ./...
	CGO_ENABLED=0 GOARCH=arm64 $(GO) build ./...
	$(GO) build -race -o bin/objstore-race ./cmd/objstore

bench: build
	$(GO) run ./scripts/bench -binary bin/objstore $(BENCH_ARGS)

clean:
	rm -rf bin bench-data
