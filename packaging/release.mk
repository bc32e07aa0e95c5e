# Releases: docs/releasing.md. ARCHES="amd64" makes those of one architecture.

ARCHES ?= amd64 arm64
DIST := $(ROOT)/dist
RELEASE_VENV := $(ROOT)/build/release/venv
RELEASE := DIST=$(DIST) GO=$(GO) SONAME=$(SONAME) COMPLETER=$(BIN) RELEASE_PYTHON=$(RELEASE_VENV)/bin/python
RELEASE_VERSION := $(strip $(shell cat $(ROOT)/VERSION))

.PHONY: release
release: ## Make every artefact of a release in dist/: binaries, .deb, .tar.gz, wheels, sdist, licences, checksums; ARCHES="amd64 arm64"
	rm -rf $(DIST)
	$(MAKE) --no-print-directory deb wheel sdist
	cd $(DIST) && find . -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' sha256sum >SHA256SUMS
	@cd $(DIST) && sha256sum --quiet --check SHA256SUMS && ls -l

# The licences are those of both architectures, also where one is built.
.PHONY: release-files
release-files: tools $(RELEASE_VENV)/.ready ## Build the command and the library of ARCHES in dist/linux-ARCH, and collect the licences
	@mkdir -p $(DIST)
	. packaging/release/settings.sh && $(RELEASE) $(RELEASE_VENV)/bin/python packaging/release/licenses.py $(DIST)/THIRD_PARTY_LICENSES.txt $(DIST)/nebulaio-$(RELEASE_VERSION).sbom.json amd64 arm64
	cp LICENSE $(DIST)/
	for a in $(ARCHES); do $(RELEASE) packaging/release/build.sh $$a || exit 1; done

.PHONY: deb
deb: release-files build ## Make the .deb and the .tar.gz of ARCHES in dist/
	for a in $(ARCHES); do $(RELEASE) packaging/release/deb.sh $$a || exit 1; done

.PHONY: wheel
wheel: release-files ## Make the manylinux wheels of ARCHES in dist/
	for a in $(ARCHES); do $(RELEASE) packaging/release/wheel.sh $$a || exit 1; done

.PHONY: sdist
sdist: release-files ## Make the Python sdist in dist/; installing it needs Go and a C compiler
	$(RELEASE) packaging/release/wheel.sh sdist

.PHONY: test-release
test-release: venv count ## Make a release for this machine's architecture and check what it holds and needs
	$(MAKE) --no-print-directory release ARCHES=$$($(GO) env GOARCH)
	cd test/release && $(COUNT) pytest -- $(PY) -m pytest -q -p no:cacheprovider

$(RELEASE_VENV)/.ready: packaging/release/requirements.txt
	bash test/setup/venv.sh $(PYTHON) $(RELEASE_VENV) $<
