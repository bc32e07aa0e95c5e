# NebulaIO. `make help` lists the targets; each does its own set-up.

SHELL := /bin/bash
ROOT := $(CURDIR)
GO ?= go
PYTHON ?= python3
VENV := $(ROOT)/.venv
PY := $(VENV)/bin/python
LIB := $(ROOT)/build/libnebulaio.so
SONAME := libnebulaio.so.3
BIN := $(ROOT)/bin/nebulaio
# Several runs of make may share a machine, a clone, or both: see test/setup.
PLACE := bash $(ROOT)/test/setup/place.sh
APT := bash $(ROOT)/test/setup/apt.sh
DEMO := $(ROOT)/build/demo/qwen3-0.6b.safetensors
LIBFLAGS := -trimpath -buildmode=c-shared -ldflags "-s -w -extldflags '-Wl,--version-script=$(ROOT)/capi/export.map -Wl,-soname,$(SONAME)'"

# Command, tests and tools are built in one way, so that Go compiles each package once: without the profile of
# cmd/nebulaio, for which Go compiles all that it imports once more, without debug information, without the paths of
# this clone, and by a compiler that collects no garbage. FOR=release builds what a release has. Set GOFLAGS so for go commands of your own: make variant.
VARIANT := $(strip $(filter-out -trimpath -pgo=% -gcflags=% -toolexec=%,$(shell $(GO) env GOFLAGS)) -trimpath -pgo=off -gcflags=all=-dwarf=false -toolexec=$(ROOT)/test/setup/compile.sh)
TESTED := CGO_ENABLED=0 GOFLAGS="$(VARIANT)"
BUILD = $(if $(filter release,$(FOR)),CGO_ENABLED=0 $(GO) build -trimpath,$(TESTED) $(GO) build)

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-zA-Z0-9_-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

.PHONY: build
build: tools ## Build bin/nebulaio; FOR=release as a release has it
	$(PLACE) $(BIN) sh -c '$(BUILD) -o "$$STAGED" ./cmd/nebulaio'

.PHONY: lib
lib: tools ## Build build/libnebulaio.so, the C shared library; FOR=release as a release has it
	@mkdir -p build/.stage # where cgo's own header stays, too; ours is include/nebulaio/nebulaio.h
	CGO_ENABLED=1 $(if $(filter release,$(FOR)),,GOFLAGS="$(VARIANT)") $(PLACE) $(LIB) $(GO) build $(LIBFLAGS) -o build/.stage/libnebulaio.so ./capi
	@ln -sfn libnebulaio.so $(ROOT)/build/.libnebulaio.$$$$ && mv -fT $(ROOT)/build/.libnebulaio.$$$$ $(ROOT)/build/$(SONAME) # by its soname, for programs that link it

include packaging/release.mk

PREFIX ?= /usr/local

.PHONY: install
install: ## Install command, library, headers, CMake and pkg-config files, completions and the systemd unit; PREFIX=/usr/local DESTDIR= LIBDIR= INCLUDEDIR=
	@test -x $(BIN) -a -f $(LIB) || $(MAKE) --no-print-directory build lib FOR=release
	@BIN=$(BIN) LIB=$(LIB) SONAME=$(SONAME) PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" LIBDIR="$(LIBDIR)" INCLUDEDIR="$(INCLUDEDIR)" packaging/install.sh install

.PHONY: uninstall
uninstall: ## Remove what install put there; the same variables
	@BIN=$(BIN) LIB=$(LIB) SONAME=$(SONAME) PREFIX="$(PREFIX)" DESTDIR="$(DESTDIR)" LIBDIR="$(LIBDIR)" INCLUDEDIR="$(INCLUDEDIR)" packaging/install.sh uninstall

.PHONY: run
run: build ## Serve an object store in ./data on 127.0.0.1:9000
	@$(BIN) server --data $(ROOT)/data $(ARGS)

.PHONY: demo
demo: build ## Make a model of real shapes, load it on the best device, print the report
	@mkdir -p $(dir $(DEMO))
	@test -f $(DEMO) || $(BIN) generate --shapes qwen3-0.6b --out $(DEMO)
	$(BIN) load $(DEMO) --repeat 3

# make check and make test run these. The suites that take long, or need big packages, are in test/count/suites.go.
PARTS := test-format test-go test-native test-python test-examples test-bench test-clients
# By this name make -n shows the commands of count instead of running them.
SUBMAKE := $(MAKE)
COUNT := $(ROOT)/build/count

.PHONY: check
check: venv count ## Check in a minute what you changed: format, vet, and the quick tests of changed packages and of their importers; SINCE=COMMIT
	$(TESTED) NEBULAIO_EFFORT=check NEBULAIO_LIBRARY=$(LIB) NEBULAIO_CLI=$(BIN) $(COUNT) check -since $(or $(SINCE),HEAD) -python $(PY) -library "$(SUBMAKE) --no-print-directory lib build"

# count runs the parts one after the other. At the end it prints their minutes, how many tests ran, failed and were
# skipped, and where the skipped ones run.
.PHONY: test
test: count ## Test everything that needs no large packages: Go, Python, C, C++, S3 clients, examples
	@$(COUNT) run -make "$(SUBMAKE)" $(PARTS)

.PHONY: ci
ci: count ## Run what a change has to pass: make test, the race detector, the linter, and the suites whose inputs changed, as far as they fit into its minutes; .ci/run does it
	@$(COUNT) ci -make "$(SUBMAKE)" $(ARGS)

.PHONY: ci-all
ci-all: count ## Run every suite, proven or not; SUITES="torch upstreams" for some. It writes test/proven.json: commit it
	@$(COUNT) ci -all -suites "$(SUITES)" -make "$(SUBMAKE)"

.PHONY: prove
prove: ## Run .ci/run on a fresh clone of HEAD; if it passes, write the commit into build/proved. COLD=1 begins with an empty build cache
	bash test/setup/prove.sh $(ROOT) $(COLD)

.PHONY: variant
variant: ## Print the settings with which the tests are built, for go commands of your own: export $(make variant)
	@echo 'CGO_ENABLED=0 GOFLAGS="$(VARIANT)"'

.PHONY: count
count: tools ## Build build/count, which runs tests and counts them
	@$(PLACE) $(COUNT) sh -c '$(BUILD) -o "$$STAGED" ./test/count'

.PHONY: test-format
test-format: venv ## Check the format of the sources: gofmt and ruff
	@out=$$(gofmt -l $$(git ls-files --cached --others --exclude-standard '*.go')); test -z "$$out" || { echo "not gofmt'ed: $$out"; exit 1; }
	$(VENV)/bin/ruff check --quiet --no-cache .

# tools/go.mod pins the linter in a module of its own, so that ours does not require what the linter requires.
LINTER := $(ROOT)/build/golangci-lint
.PHONY: lint
lint: tools ## Check the sources with golangci-lint, go vet among it
	$(PLACE) $(LINTER) sh -c '$(TESTED) $(GO) build -C tools -o "$$STAGED" github.com/golangci/golangci-lint/v2/cmd/golangci-lint'
	$(TESTED) GOGC=400 $(LINTER) run --timeout 15m --allow-parallel-runners ./...

# The longest packages start first, so that no core waits for one of them at the end.
LONGEST := ./test/server ./internal/store/disk ./internal/transfer ./internal/cli
# Suites of their own run the tests of these folders, which compile what nothing else needs.
APART := test/s3suite|test/upstreams
# Most tests wait: for a disk, a clock, a child. So more of them run at once than there are cores.
WAITING := -p 3 -parallel 4
# These judge what a machine does, and want it for themselves.
QUIET := ./test/routes ./internal/diagnose
.PHONY: test-go
test-go: build filesystems count ## Go tests; fuzz seeds run as tests
	$(TESTED) NEBULAIO_CLI=$(BIN) $(COUNT) go -- $(GO) test -vet=off -timeout 15m $(WAITING) $(LONGEST) $$($(TESTED) $(GO) list ./... | grep -vE '/($(APART))(/|$$)|/(test/routes|internal/diagnose)$$')
	$(TESTED) NEBULAIO_CLI=$(BIN) $(COUNT) go -- $(GO) test -vet=off -timeout 15m -p 1 $(QUIET)

.PHONY: test-race
test-race: build filesystems count ## Go tests of the packages that start goroutines, with the race detector
	NEBULAIO_CLI=$(BIN) CGO_ENABLED=1 GOFLAGS="$(VARIANT)" $(COUNT) race -- $(GO) test -race -vet=off -timeout 30m -parallel 4 ./internal/store/disk ./internal/transfer ./internal/cli

.PHONY: test-s3suite
test-s3suite: count ## The S3 suite of versitygw on our S3 front end, with the race detector
	CGO_ENABLED=1 GOFLAGS="$(VARIANT)" $(COUNT) go -- $(GO) test -race -vet=off -timeout 30m ./test/s3suite/...

.PHONY: test-crash
test-crash: build count ## Kills, power cuts and random walks with more rounds than in make test; EFFORT=long for hours
	$(TESTED) NEBULAIO_CLI=$(BIN) NEBULAIO_EFFORT=$(or $(EFFORT),ci) $(COUNT) rounds -- $(GO) test -vet=off -timeout 400m

# test/routes mounts these file systems where it runs as root, and fails where fewer than 60 situations can be made.
FILESYSTEMS := mkfs.ext4 mkfs.xfs mkfs.btrfs mksquashfs mkfs.erofs bindfs losetup
.PHONY: filesystems
filesystems: ## Install the tools of the file systems that test/routes mounts; only where make runs as root
	@test "$$(id -u)" != 0 || ( for c in $(FILESYSTEMS); do command -v $$c >/dev/null || exit 1; done ) || { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends e2fsprogs xfsprogs btrfs-progs squashfs-tools erofs-utils bindfs mount; } || echo "not all of $(FILESYSTEMS) could be installed: test/routes says what it misses"

.PHONY: criu
criu: ## Provide a criu that works on this kernel, by apt or built into build/criu; only where make runs as root
	@bash test/setup/criu.sh $(ROOT)/build/criu || echo "criu could not be provided: tests that dump processes say what they miss"

.PHONY: test-dump
test-dump: tools criu count ## Dump, kill and restore a process that holds 1 GiB, to a folder and to an object
	$(TESTED) NEBULAIO_TEST_DUMP_MIB=1024 $(COUNT) go -- $(GO) test -vet=off -timeout 30m -run 'Dump|Damaged|FailedRestores' ./internal/process ./internal/cli

.PHONY: test-diagnose
test-diagnose: venv-torch count ## The verdicts of nebulaio diagnose on made-up commands, gloo ranks over a limited network among them, RUNS times each, 20 by default; wants a quiet machine, and root for the network
	NEBULAIO_TEST_DIAGNOSE_RUNS=$(or $(RUNS),20) NEBULAIO_TEST_TORCH_PYTHON=$(or $(PYTHON_TORCH),$(VENV_TORCH)/bin/python) $(COUNT) go -- $(GO) test -vet=off -count=1 -timeout 60m -run TestMadeUpCommands ./internal/diagnose

.PHONY: test-top
test-top: build ## Stage a busy disk, cached reads, dirty pages, a throttled control group and nothing, and check what `nebulaio top` says; compare its rates with iostat's arithmetic, and count its processor time. For a machine that does nothing else
	$(PYTHON) test/top/staged.py $(ROOT)/bin/nebulaio

.PHONY: crash
crash: ## The tests of test-crash at length, for hours: 1,000 power cuts of the store and of the cache, 200 kills of each and of the server, 3,000 power cuts of saves, an inventory of 1,000,000 objects
	@$(MAKE) --no-print-directory test-crash EFFORT=long

NATIVE := -Wall -Wextra -Werror -pedantic -O1 -g -I$(ROOT)/include
LINK = -L$(ROOT)/build -lnebulaio -lpthread -ldl -Wl,-rpath,\$$ORIGIN/.. $(STATIC)

.PHONY: native
native: lib ## Build the C and C++ tests and examples into build/native
	@mkdir -p build/native
	for s in load save gather file data objects arguments; do $(PLACE) build/native/$${s}_c sh -c 'cc -std=c11 -D_GNU_SOURCE $(NATIVE) -o "$$STAGED" test/native/'$$s'.c $(LINK)' || exit 1; done
	for s in load save gather file data objects; do $(PLACE) build/native/$${s}_cpp sh -c 'c++ -std=c++17 $(NATIVE) -o "$$STAGED" test/native/'$$s'.cpp $(LINK)' || exit 1; done
	mkdir -p build/fake/cufile && $(PLACE) build/fake/cufile/libcufile.so.0 sh -c 'cc -shared -fPIC -pthread -O1 -Wl,-soname,libcufile.so.0 -o "$$STAGED" internal/device/fakegpu/csrc/libcufile.c'
	for s in gpudirect handles; do $(PLACE) build/native/$${s}_cpp sh -c 'c++ -std=c++17 $(NATIVE) -idirafter test/native/cuda -o "$$STAGED" test/native/'$$s'.cpp $(LINK) build/fake/cufile/libcufile.so.0' || exit 1; done
	for s in load save file_async; do $(PLACE) build/native/example_$$s sh -c 'c++ -std=c++17 $(NATIVE) -o "$$STAGED" examples/cpp/'$$s'.cpp $(LINK)' || exit 1; done

.PHONY: test-native
test-native: native build ## C and C++ programs over the shared library, on host and on a driver without a GPU
	$(PLACE) build/tiny.safetensors sh -c 'test -e "$$STAGED" || $(BIN) generate --shapes tiny --out "$$STAGED" >/dev/null'
	bash test/native/headers.sh build/headers
	mkdir -p build/arguments && build/native/arguments_c build/tiny.safetensors build/arguments include/nebulaio/nebulaio.h
	bash test/native/install.sh build/tiny.safetensors
	DEVICE=host bash test/native/run.sh build/native build/tiny.safetensors
	mkdir -p build/fake && $(PLACE) build/fake/libcuda.so.1 sh -c 'cc -shared -fPIC -pthread -O1 -o "$$STAGED" internal/device/fakegpu/csrc/libcuda.c'
	@echo "the same on internal/device/fakegpu, which is strict about contexts and the order of streams:"
	LD_LIBRARY_PATH=build/fake NATIVE_WITHOUT_CUFILE=1 DEVICE=cuda:0 bash test/native/run.sh build/native build/tiny.safetensors
	@echo "objects of a server, on both:"
	NEBULAIO_CLI=$(BIN) CUFILE=build/fake/cufile DEVICE=host $(PYTHON) python/tests/serving.py bash test/native/objects.sh build/native build/tiny.safetensors
	LD_LIBRARY_PATH=build/fake NEBULAIO_CLI=$(BIN) CUFILE=build/fake/cufile DEVICE=cuda:0 $(PYTHON) python/tests/serving.py bash test/native/objects.sh build/native build/tiny.safetensors

.PHONY: test-python
test-python: lib build venv count ## Python package against the real library on host
	cd python && NEBULAIO_LIBRARY=$(LIB) $(PY) -m mypy --strict nebulaio
	cd python && PATH=$(VENV)/bin:$$PATH NEBULAIO_LIBRARY=$(LIB) NEBULAIO_CLI=$(BIN) $(COUNT) pytest -- $(PY) -m pytest -q -m 'not cuda and not torch and not dali'

.PHONY: test-examples
test-examples: lib build venv ## The examples run as their readers would run them
	$(PLACE) build/tiny.safetensors sh -c 'test -e "$$STAGED" || $(BIN) generate --shapes tiny --out "$$STAGED" >/dev/null'
	$(TESTED) $(GO) run ./examples/load build/tiny.safetensors
	PYTHONPATH=python NEBULAIO_LIBRARY=$(LIB) $(PY) examples/load.py build/tiny.safetensors
	PYTHONPATH=python NEBULAIO_LIBRARY=$(LIB) $(PY) examples/stream.py build/tiny.safetensors
	work=$$(mktemp -d build/examples.XXXXXX) && trap 'rm -rf '$$work EXIT && for s in cufile cufile_async; do PYTHONPATH=python NEBULAIO_LIBRARY=$(LIB) $(PY) examples/$$s.py $$work || exit 1; done
	PYTHONPATH=python NEBULAIO_LIBRARY=$(LIB) NEBULAIO_CLI=$(BIN) $(PY) python/tests/serving.py $(PY) examples/gpudirect.py bucket
	$(TESTED) NEBULAIO_CLI=$(BIN) $(PY) python/tests/serving.py $(GO) run ./examples/objects s3://bucket/example
	cd examples && $(PY) -m unittest -q
	work=$$(mktemp -d build/examples.XXXXXX) && trap 'rm -rf '$$work EXIT && for s in gpudirect_storage_example storage_io_optimization; do NEBULAIO_CLI=$(BIN) $(PY) examples/$$s.py $$work --quick >$$work/$$s.txt || { cat $$work/$$s.txt; exit 1; }; done

SNIPPETS = test/snippets/run.py --cli $(BIN) --library $(LIB) --path $(CLIENTS)/new/bin $(patsubst %,--python-path %,$(wildcard $(CLIENTS)/new/lib/python3*/site-packages))

.PHONY: test-snippets
test-snippets: lib build venv clients count ## Every snippet of the documentation, compiled and run as it stands; PAGES="README.md docs/server.md" for some
	cd test/snippets && $(COUNT) pytest -- $(PY) -m pytest -q -p no:cacheprovider
	$(PY) $(SNIPPETS) $(PAGES)

# Where the large Python environments are. .ci/run puts them beside the caches of pip and Go, for all clones of a user.
VENVS ?= $(ROOT)
VENV_TORCH := $(VENVS)/.venv-torch

.PHONY: test-torch
test-torch: lib build clients venv-torch venv-safetensors count ## Torch and transformers on host, tests and snippets, in .venv-torch; PYTHON_TORCH=... names another interpreter with python/tests/requirements-torch.txt
	cd python && NEBULAIO_LIBRARY=$(LIB) NEBULAIO_CLI=$(BIN) NEBULAIO_TEST_SAFETENSORS=$(VENV_SAFETENSORS)/bin/python $(COUNT) pytest -- $(or $(PYTHON_TORCH),$(VENV_TORCH)/bin/python) -m pytest -q -m 'torch and not cuda'
	NEBULAIO_LIBRARY=$(LIB) $(COUNT) pytest -- $(or $(PYTHON_TORCH),$(VENV_TORCH)/bin/python) -m pytest -q bench/tests/test_checkpoint_torch.py
	cd examples && $(or $(PYTHON_TORCH),$(VENV_TORCH)/bin/python) -m unittest -q # with real DataLoaders
	$(or $(PYTHON_TORCH),$(VENV_TORCH)/bin/python) $(SNIPPETS) --needs torch
	$(TESTED) NEBULAIO_TEST_TORCH_PYTHON=$(or $(PYTHON_TORCH),$(VENV_TORCH)/bin/python) $(COUNT) go -- $(GO) test -vet=off -count=1 -run TestMadeUpCommands/gloo ./internal/diagnose

# torch is about 6 GB: it has an environment of its own, and pip keeps no second copy.
.PHONY: venv-torch
venv-torch: $(if $(PYTHON_TORCH),,$(VENV_TORCH)/.ready) ## Make the Python environment of test-torch, .venv-torch
$(VENV_TORCH)/.ready: python/tests/requirements-torch.txt python/tests/requirements.txt
	PIP_NO_CACHE_DIR=1 bash test/setup/venv.sh $(PYTHON) $(VENV_TORCH) $<

VENV_SAFETENSORS := $(VENVS)/.venv-safetensors

# The next version of safetensors cannot be in one process with the current one. It finds torch in .venv-torch.
.PHONY: venv-safetensors
venv-safetensors: $(VENV_SAFETENSORS)/.ready ## Make the Python environment with the next version of safetensors, .venv-safetensors
$(VENV_SAFETENSORS)/.ready: python/tests/requirements-safetensors.txt | venv-torch
	PIP_NO_CACHE_DIR=1 PIP_NO_DEPS=1 bash test/setup/venv.sh $(or $(PYTHON_TORCH),$(PYTHON)) $(VENV_SAFETENSORS) $< $(or $(PYTHON_TORCH),$(VENV_TORCH)/bin/python)

VENV_DALI := $(VENVS)/.venv-dali

# DALI's tests find torch, which DALI's iterator needs, in .venv-torch.
.PHONY: test-dali
test-dali: lib build clients venv-torch venv-dali count ## DALI pipelines on the CPU, tests and snippets, in .venv-dali with torch of .venv-torch
	@cd / && $(VENV_DALI)/bin/python -c 'import nvidia.dali' # the tests would skip themselves without it
	torch=$$($(or $(PYTHON_TORCH),$(VENV_TORCH)/bin/python) -c 'import pathlib, torch; print(pathlib.Path(torch.__file__).parents[1])') && \
		export PYTHONPATH=$$torch && (cd python && NEBULAIO_LIBRARY=$(LIB) NEBULAIO_CLI=$(BIN) $(COUNT) pytest -- $(VENV_DALI)/bin/python -m pytest -q -m 'dali and not cuda') && \
		$(VENV_DALI)/bin/python $(SNIPPETS) --needs dali

.PHONY: venv-dali
venv-dali: $(VENV_DALI)/.ready ## Make the Python environment of test-dali, .venv-dali
$(VENV_DALI)/.ready: python/tests/requirements-dali.txt
	PIP_NO_CACHE_DIR=1 bash test/setup/venv.sh $(PYTHON) $(VENV_DALI) $<

VENV_PEERS := $(VENVS)/.venv-peers

.PHONY: test-peers
test-peers: lib build venv-peers count ## Training data that webdataset, mosaicml-streaming, litdata, Megatron and TFRecord packages read and write, against ours
	$(PLACE) $(ROOT)/build/samples sh -c '$(BUILD) -o "$$STAGED" ./test/peers/samples'
	cd test/peers && PYTHONPATH=$(ROOT)/python NEBULAIO_LIBRARY=$(LIB) PEERS_SAMPLES=$(ROOT)/build/samples NEBULAIO_CLI=$(BIN) $(COUNT) pytest -- $(VENV_PEERS)/bin/python -m pytest -q -W ignore -p no:cacheprovider

# The peers need torch, and take it from .venv-torch: an environment of their own has 150 MB instead of 6 GB. Their own
# lists of packages are left out, see test/peers/requirements.txt.
.PHONY: venv-peers
venv-peers: $(VENV_PEERS)/.ready ## Make the Python environment of test-peers, .venv-peers
$(VENV_PEERS)/.ready: test/peers/requirements.txt | venv-torch
	PIP_NO_CACHE_DIR=1 PIP_NO_DEPS=1 bash test/setup/venv.sh $(or $(PYTHON_TORCH),$(PYTHON)) $(VENV_PEERS) $< $(or $(PYTHON_TORCH),$(VENV_TORCH)/bin/python)

VENV_SERVING := $(VENVS)/.venv-serving

# Each framework has a process of its own: both define operations of torch under the same names.
.PHONY: test-serving
test-serving: lib build venv-serving count ## The load formats of vLLM and SGLang on their real sources, on the CPU, in .venv-serving with torch of .venv-torch
	cd test/serving && for s in vllm sglang; do NEBULAIO_LIBRARY=$(LIB) NEBULAIO_CLI=$(BIN) $(COUNT) pytest -- $(VENV_SERVING)/bin/python -m pytest -q -W ignore -p no:cacheprovider test_$$s*.py || exit 1; done

# Only the Python sources of vLLM and SGLang are installed, and what they import: 0.5 GB.
.PHONY: venv-serving
venv-serving: $(VENV_SERVING)/.vllm ## Make the Python environment of test-serving, .venv-serving
$(VENV_SERVING)/.ready: test/serving/requirements.txt | venv-torch
	PIP_NO_CACHE_DIR=1 PIP_NO_DEPS=1 bash test/setup/venv.sh $(or $(PYTHON_TORCH),$(PYTHON)) $(VENV_SERVING) $< $(or $(PYTHON_TORCH),$(VENV_TORCH)/bin/python)
$(VENV_SERVING)/.vllm: test/serving/requirements-vllm.txt $(VENV_SERVING)/.ready
	bash test/serving/install.sh $(VENV_SERVING) $< && touch $@

.PHONY: test-bench
test-bench: lib build venv count ## The benchmark harness's own tests; no speed is asserted
	NEBULAIO_LIBRARY=$(LIB) NEBULAIO_CLI=$(BIN) $(COUNT) pytest -- $(PY) -m pytest -q bench/tests

CLIENTS := $(ROOT)/.venv-clients

.PHONY: test-clients
test-clients: build clients count ## aws-cli, boto3 old and new, s3cmd and rclone against a server of ours; minio-go is in test-go
	cd test/clients && PATH=$(CLIENTS)/new/bin:$$PATH NEBULAIO_CLI=$(BIN) $(COUNT) pytest -- $(CLIENTS)/new/bin/python -m pytest -q -p no:cacheprovider
	cd test/clients && NEBULAIO_CLI=$(BIN) $(COUNT) pytest -- $(CLIENTS)/old/bin/python -m pytest -q -p no:cacheprovider test_boto3.py

# rclone comes from Debian; CLIENTS_WITHOUT_RCLONE=1 leaves it out where it cannot be installed.
.PHONY: clients
clients: $(CLIENTS)/new/.ready $(CLIENTS)/old/.ready ## Install the S3 clients that test-clients runs, into .venv-clients
	@test "$$CLIENTS_WITHOUT_RCLONE" = 1 || $(APT) rclone rclone || { echo "rclone is needed: apt install rclone, or CLIENTS_WITHOUT_RCLONE=1 to go without"; exit 1; }
$(CLIENTS)/%/.ready: test/clients/requirements-%.txt | venv
	bash test/setup/venv.sh $(PYTHON) $(CLIENTS)/$* $<

# The tests start MinIO, versitygw, moto and Ceph. What is missing is installed or built first, all at the same time:
# MinIO's first build takes six minutes, the others one each. Ceph needs root and apt; else its tests are skipped.
.PHONY: test-upstreams
test-upstreams: build clients count ## Caches and transfers over real S3 servers (MinIO, versitygw, moto, Ceph) and a proxy that falsifies their replies
	$(TESTED) $(GO) run ./test/upstreams/serve -prepare minio versitygw moto ceph
	$(TESTED) NEBULAIO_UPSTREAMS=1 NEBULAIO_UPSTREAMS_DIR=$(ROOT)/build NEBULAIO_CLI=$(BIN) $(COUNT) go -- $(GO) test -count=1 -vet=off -timeout 20m ./test/upstreams/...

VENV_CONSOLE := $(ROOT)/.venv-console

# Chromium comes from Debian; CHROMIUM=/path names another one. ARGS="-k upload" selects tests.
.PHONY: test-console
test-console: build venv-console count ## The console's pages in Chromium against a server of ours; pictures of each page in build/console
	@test -n "$$CHROMIUM" || $(APT) chromium chromium || { echo "Chromium is needed: apt install chromium, or CHROMIUM=/path/of/a/browser"; exit 1; }
	rm -rf $(ROOT)/build/console
	cd test/console/browser && NEBULAIO_CLI=$(BIN) CONSOLE_SHOTS=$(ROOT)/build/console $(COUNT) pytest -- $(VENV_CONSOLE)/bin/python -m pytest -q -p no:cacheprovider $(ARGS)

.PHONY: venv-console
venv-console: $(VENV_CONSOLE)/.ready ## Make the Python environment of test-console, .venv-console
$(VENV_CONSOLE)/.ready: test/console/browser/requirements.txt
	bash test/setup/venv.sh $(PYTHON) $(VENV_CONSOLE) $<

LONG_UPSTREAMS := ThroughANode|TestNothingWrong|TestReplacedInMid|TestKilled|TestCopiesThroughLies|TestRestartIsWarm|TestThreeNodes|TestANodeDies|OSD|TestMigrationFromMinIO
.PHONY: test-upstreams-long
test-upstreams-long: build clients ## Upstreams at length, about 50 minutes: the whole suite of versitygw, all flows of clients, 100,000 requests to a lying upstream, 200 replaced objects, 200 kills of nodes, 100 of copies, 1 GiB at three nodes and 100,000 cached objects
	NEBULAIO_UPSTREAMS=1 NEBULAIO_UPSTREAMS_DIR=$(ROOT)/build NEBULAIO_CLI=$(BIN) NEBULAIO_UPSTREAMS_LIES=100000 NEBULAIO_UPSTREAMS_REPLACED=200 NEBULAIO_UPSTREAMS_KILLS=200 NEBULAIO_UPSTREAMS_COPIES=100 NEBULAIO_UPSTREAMS_MIB=1024 NEBULAIO_UPSTREAMS_OBJECTS=100000 NEBULAIO_UPSTREAMS_SILENT=5 NEBULAIO_UPSTREAMS_MIGRATED=10000 NEBULAIO_UPSTREAMS_MIGRATION_KILLS=20 NEBULAIO_UPSTREAMS_ALL=1 $(GO) test -count=1 -vet=off -timeout 120m -v -run '$(LONG_UPSTREAMS)' ./test/upstreams $(ARGS)

.PHONY: kernels
kernels: ## Compile the GPU's part to PTX; needs clang, and no CUDA toolkit
	cd internal/device/cuda && { echo '// SPDX-License-Identifier: Apache-2.0' && echo "// Made by make kernels of crc64.cu with the SHA-256 $$(sha256sum crc64.cu | cut -c1-64)" && \
		clang -x cuda -nocudainc -nocudalib --cuda-device-only --cuda-gpu-arch=sm_50 -Xclang -target-feature -Xclang +ptx60 -Wall -S -O3 -o - crc64.cu; } >crc64.ptx.new && mv crc64.ptx.new crc64.ptx

FUZZTIME ?= 60s
FUZZWITHIN ?= 0

.PHONY: fuzz
fuzz: count ## Run each fuzzer for FUZZTIME, a minute by default; FUZZWITHIN=8m begins no other one after 8 minutes
	$(COUNT) fuzz -go $(GO) -time $(FUZZTIME) -within $(FUZZWITHIN)

# Benchmarks measure what a release has.
bench bench-%: FOR := release

.PHONY: bench
bench: lib build venv ## Benchmark on host memory against safetensors; results in build/bench
	PYTHONPATH=$(ROOT)/python NEBULAIO_LIBRARY=$(LIB) $(PY) bench/run.py --device host --models 0.6b --rounds 5 --only warm,cold --out build/bench $(ARGS)

.PHONY: bench-safe-open
bench-safe-open: lib build venv-torch ## Time per call of safe_open beside the safetensors package's, NumPy and torch on host
	PYTHONPATH=$(ROOT)/python NEBULAIO_LIBRARY=$(LIB) $(or $(PYTHON_TORCH),$(VENV_TORCH)/bin/python) bench/safe_open.py $(ARGS)

.PHONY: bench-many
bench-many: lib build venv-torch ## Cold loads of one model by many processes beside one alone; ARGS="--processes 8 --gigabytes 15 --device cuda:0"
	PYTHONPATH=$(ROOT)/python NEBULAIO_LIBRARY=$(LIB) $(or $(PYTHON_TORCH),$(VENV_TORCH)/bin/python) bench/many.py $(ARGS)

.PHONY: bench-data
bench-data: lib build venv-peers ## Samples per second of our loader beside webdataset, mosaicml-streaming, litdata and torch; ARGS="--rows shuffled --rounds 5"
	PYTHONPATH=$(ROOT)/python NEBULAIO_LIBRARY=$(LIB) NEBULAIO_CLI=$(BIN) $(VENV_PEERS)/bin/python bench/data.py --out build/bench-data/out $(ARGS)

.PHONY: bench-checkpoint
bench-checkpoint: lib build venv-torch ## Checkpoints of torch beside its own readers and writers, on host; ARGS="--size 1GB --rows load,save"
	PYTHONPATH=$(ROOT)/python NEBULAIO_LIBRARY=$(LIB) NEBULAIO_CLI=$(BIN) $(or $(PYTHON_TORCH),$(VENV_TORCH)/bin/python) bench/checkpoint.py --device host --size 500MB --async-size 100MB --out build/bench-checkpoint-out $(ARGS)

.PHONY: bench-gpu
bench-gpu: lib build ## Benchmark on the GPU with the machine's own python3 (torch); ARGS="--only warm"
	PYTHONPATH=$(ROOT)/python NEBULAIO_LIBRARY=$(LIB) bash bench/run.sh --out build/bench $(ARGS)

.PHONY: bench-peers
bench-peers: lib build ## Model loads beside safetensors, fastsafetensors, InstantTensor, Run:ai's streamer and kvikio, those that python3 has, on the GPU; ARGS="--models 0.6b,7b,moe --cold 0.6b"
	PYTHONPATH=$(ROOT)/python NEBULAIO_LIBRARY=$(LIB) NEBULAIO_CLI=$(BIN) $(or $(PYTHON_TORCH),python3) bench/modelpeers.py --out build/bench-peers $(ARGS)

.PHONY: bench-s3
bench-s3: build ## S3 against MinIO, versitygw and a bare server; ARGS="--keys 1000000 --out docs/benchmarks/DATE-s3"
	$(BUILD) -o build/bench-s3/bench-s3 ./bench/s3
	build/bench-s3/bench-s3 $(ARGS)

.PHONY: bench-list bench-tls bench-put bench-sse
bench-list bench-tls bench-put bench-sse: build
	$(BUILD) -o build/bench-s3/bench-s3 ./bench/s3
	build/bench-s3/bench-s3 --peers '' $(SELECT) $(ARGS)
bench-list: SELECT = --rows '^keys$$' --keys 1000000 --without 'bare|always|crc64|tls|sse'
bench-list: ## Pages of a listing with 1,000,000 keys; ARGS="--out docs/benchmarks/DATE-list"
bench-tls: SELECT = --rows 'GET 64 MiB' --without 'bare|always|crc64|sse'
bench-tls: ## CPU time of TLS GETs beside plain GETs and AES-GCM alone; ARGS="--rounds 9"
bench-put: SELECT = --rows 'PUT 4 KiB' --without '^bare$$|fdatasync|always|crc64|tls|sse'
bench-sse: SELECT = --rows 'GET 64 MiB' --without 'bare|crc64|tls'
bench-sse: ## CPU time of GETs of encrypted objects beside verified GETs and AES-GCM alone; ARGS="--rounds 9"
bench-put: ## Small durable PUTs beside a bare server with MD5 and syncs; ARGS="--rounds 9"

.PHONY: bench-misses
bench-misses: build ## Reads that a node does not have beside reads from MinIO itself; ARGS="--rounds 9 --out docs/benchmarks/DATE-cache/misses.json"
	$(BUILD) -o build/bench-misses ./bench/misses
	build/bench-misses --work build/bench-misses-data $(ARGS)

VENV_TRANSFERS := $(ROOT)/.venv-transfers

.PHONY: bench-express
bench-express: build ## Small reads and writes of a directory bucket beside an ordinary bucket, by CPU of the server; ARGS="-rounds 9 -profile build/bench-express"
	$(BUILD) -o build/bench-express-client ./bench/express
	build/bench-express-client -program $(BIN) $(ARGS)

.PHONY: bench-transfers
bench-transfers: build venv-transfers ## nebulaio cp and sync from MinIO beside s5cmd, rclone, aws-cli, the CRT and obstore; ARGS="--rounds 5 --out docs/benchmarks/DATE-transfers"
	$(BUILD) -o build/serve ./test/upstreams/serve
	NEBULAIO_CLI=$(BIN) $(VENV_TRANSFERS)/bin/python bench/transfers.py $(ARGS)

.PHONY: venv-transfers
venv-transfers: $(VENV_TRANSFERS)/.ready ## Make the Python environment of bench-transfers, .venv-transfers
$(VENV_TRANSFERS)/.ready: bench/transfers/requirements.txt
	bash test/setup/venv.sh $(PYTHON) $(VENV_TRANSFERS) $<

.PHONY: bench-door
bench-door: lib build venv ## Objects to memory and back beside what the machine gives; ARGS="--size 1GiB --rounds 5 warm cold"
	$(BUILD) -o build/objects ./bench/door/objects
	PYTHONPATH=$(ROOT)/python NEBULAIO_LIBRARY=$(LIB) NEBULAIO_CLI=$(BIN) $(PY) bench/door/run.py --objects-program build/objects --workdir build --size 256MiB --cpu-bytes 4GiB $(ARGS)

.PHONY: bench-handles
bench-handles: ## Opening an object as a cuFile handle beside an older revision: REVISION=v0.1.0
	bash bench/handles/run.sh $(REVISION)

# What objects on their way to a GPU are compared with, for that machine's Python.
GPU_PYTHON = 3.12
PEERS = boto3 botocore s3transfer jmespath python-dateutil six urllib3

# aws for the snippets: without these services besides S3 it does not start, and all of them are 125 MB.
AWSCLI = docutils colorama PyYAML rsa pyasn1 jmespath python-dateutil six urllib3
AWS_SERVICES = s3 sdb codedeploy config sagemaker-runtime sms-voice

# What is compiled for a bundle is what a release has, by a compiler that collects no garbage.
gpu-bundle gpu-serving gpu-versions: export GOFLAGS := $(strip $(shell $(GO) env GOFLAGS) -toolexec=$(ROOT)/test/setup/compile.sh)

BUNDLED = -trimpath -ldflags "-s -w" $(if $(filter tests,$(FOR)),-pgo=off -gcflags=all=-dwarf=false)

.PHONY: gpu-bundle
gpu-bundle: tools ## Collect what a GPU machine without Go needs into build/gpu; FOR=tests builds it as the tests are built, in a minute
	rm -rf build/gpu && mkdir -p build/gpu/include
	CGO_ENABLED=0 $(GO) build $(BUNDLED) -o build/gpu/nebulaio ./cmd/nebulaio
	CGO_ENABLED=1 $(GO) build $(if $(filter tests,$(FOR)),-pgo=off -gcflags=all=-dwarf=false) $(LIBFLAGS) -o build/gpu/libnebulaio.so ./capi
	CGO_ENABLED=0 $(GO) test -c $(BUNDLED) -o build/gpu/gpu.test ./test/gpu
	rm -f build/gpu/libnebulaio.h && cp -r include/nebulaio build/gpu/include/
	cp -r python bench build/gpu/ && cp VERSION go.mod build/gpu/
	$(PYTHON) -m pip install -q --root-user-action ignore --target build/gpu/pydeps pytest
	$(PYTHON) -m pip install -q --root-user-action ignore --target build/gpu/pydeps --no-deps torchdata
	$(MAKE) --no-print-directory native FOR=$(or $(FOR),release) STATIC="-static-libstdc++ -static-libgcc"
	mkdir -p build/gpu/native && cp build/native/* build/gpu/native/ && strip build/gpu/native/* && cp test/native/run.sh test/native/objects.sh test/native/steps.sh build/gpu/native/
	CGO_ENABLED=0 $(GO) build $(BUNDLED) -o build/gpu/objects ./bench/door/objects
	$(PYTHON) -m pip install -q --root-user-action ignore --target build/gpu/peers --no-deps --python-version $(GPU_PYTHON) --only-binary=:all: $(PEERS) s3torchconnectorclient
	$(PYTHON) -m pip install -q --root-user-action ignore --target build/gpu/peers --no-deps s3torchconnector
	cd build/gpu/peers/botocore/data && find . -mindepth 1 -maxdepth 1 -type d ! -name s3 -exec rm -rf {} +
	$(PYTHON) -m pip install -q --root-user-action ignore --target build/gpu/clients --no-deps --python-version $(GPU_PYTHON) --only-binary=:all: $$(grep '^awscli==' test/clients/requirements-new.txt) $(AWSCLI)
	cd build/gpu/clients && rm -rf bin awscli/examples awscli/topics && cd awscli/botocore/data && find . -mindepth 1 -maxdepth 1 -type d $(AWS_SERVICES:%=! -name %) -exec rm -rf {} +
	mkdir -p build/gpu/docs build/gpu/test/native && cp -r docs/*.md docs/guide build/gpu/docs/ && cp -r test/snippets build/gpu/test/ && cp -r test/native/cuda build/gpu/test/native/
	cp test/gpu/run.sh test/gpu/cudacopy.cu test/gpu/top.py build/gpu/ && find build/gpu \( -name __pycache__ -o -name '.*_cache' \) -prune -exec rm -rf {} +
	for s in peers clients native; do tar -C build/gpu -czf build/gpu/$$s.tgz $$s && rm -rf build/gpu/$$s || exit 1; done
	gzip -f build/gpu/nebulaio build/gpu/gpu.test build/gpu/objects build/gpu/libnebulaio.so
	@du -sh build/gpu && test $$(du -sm build/gpu | cut -f1) -le 60 || { echo "build/gpu is larger than 60 MiB"; exit 1; }

# Loaders of models that bench/modelpeers.py compares with, for that machine's Python.
LOADERS = safetensors==0.9.0rc1 fastsafetensors==0.5.0 instanttensor==0.2.2 kvikio-cu13==26.10.0 libkvikio-cu13==26.10.0 rapids-logger==0.3.0
LOADERS_FOR = $(foreach v,17 24 27 28,--platform manylinux_2_$(v)_x86_64) --platform manylinux2014_x86_64

.PHONY: gpu-serving
gpu-serving: tools ## Collect our model loader and those of other projects in build/gpu, for build/gpu/run.sh serving OUT on a GPU machine
	rm -rf build/gpu && mkdir -p build/gpu
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w" -o build/gpu/nebulaio ./cmd/nebulaio
	CGO_ENABLED=1 $(GO) build $(LIBFLAGS) -o build/gpu/libnebulaio.so ./capi
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w" -o build/gpu/objects ./bench/door/objects
	cp -r python bench VERSION go.mod test/gpu/run.sh test/gpu/serving.sh build/gpu/ && rm -rf build/gpu/libnebulaio.h build/gpu/python/tests build/gpu/bench/tests
	find build/gpu \( -name __pycache__ -o -name '.*_cache' \) -prune -exec rm -rf {} +
	$(PYTHON) -m pip install -q --root-user-action ignore --target build/gpu/loaders --no-deps --python-version $(GPU_PYTHON) --only-binary=:all: $(LOADERS_FOR) $(LOADERS)
	cd build/gpu && $(PYTHON) -m tarfile -c programs.tar.xz nebulaio libnebulaio.so objects loaders && rm -rf nebulaio libnebulaio.so objects loaders
	@du -sh build/gpu && test $$(du -sm build/gpu | cut -f1) -le 60 || { echo "build/gpu is larger than 60 MiB"; exit 1; }

.PHONY: gpu-versions
gpu-versions: tools ## Collect two builds for bench/door/versions.py on a GPU machine into build/versions; BEFORE=COMMIT names the older one
	@test -n "$(BEFORE)" || { echo "BEFORE=COMMIT names the older build"; exit 1; }
	rm -rf build/versions && mkdir -p build/versions/new build/versions/before
	git worktree add --force --detach build/versions/tree $(BEFORE)
	for v in new:. before:build/versions/tree; do out=$(ROOT)/build/versions/$${v%%:*}; (cd $${v#*:} && \
		CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w" -o $$out/nebulaio ./cmd/nebulaio && \
		CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w" -o $$out/objects ./bench/door/objects && \
		CGO_ENABLED=1 $(GO) build $(LIBFLAGS) -o $$out/libnebulaio.so ./capi && \
		mkdir -p $$out/bench/door && cp -r python $$out/ && cp bench/door/*.py bench/door/*.c $$out/bench/door/) || exit 1; done
	git worktree remove --force build/versions/tree
	find build/versions \( -name __pycache__ -o -name '.*_cache' -o -name tests \) -prune -exec rm -rf {} +
	gzip -f build/versions/*/nebulaio build/versions/*/objects build/versions/*/libnebulaio.so
	@du -sh build/versions

.PHONY: tools
tools: ## Check that Go and the C and C++ compilers are there; as root, install the compilers
	@command -v $(GO) >/dev/null || { echo "Go 1.26 or newer is needed: see https://go.dev/dl"; exit 1; }
	@{ $(APT) cc gcc libc6-dev && $(APT) c++ g++; } || { echo "C and C++ compilers are needed: apt install gcc g++"; exit 1; }
	@mkdir -p build bin

# The venv is made anew when the list of packages changes.
.PHONY: venv
venv: $(VENV)/.ready ## Make the Python environment of the tests, .venv
$(VENV)/.ready: python/tests/requirements.txt
	bash test/setup/venv.sh $(PYTHON) $(VENV) $<

.PHONY: clean
clean: ## Remove everything that was built
	rm -rf build bin .venv .venv.lock .venv-clients $(foreach v,torch safetensors dali peers serving moto transfers console,.venv-$(v) .venv-$(v).lock)
