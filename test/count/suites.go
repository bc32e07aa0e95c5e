// SPDX-License-Identifier: Apache-2.0

package main

// suite is one target of make that runs tests, with the sources that decide its outcome.
type suite struct {
	target string
	// when tells which command runs the suite.
	when ring
	// minutes is how long the suite takes on two cores, until test/proven.json has a measured time.
	minutes float64
	// programs are Go packages that the suite builds; what they import belongs to its inputs.
	programs []string
	// tests are Go packages whose tests the suite runs; their test files and testdata belong to its inputs, too.
	tests []string
	// files are other inputs: files, and folders that end with a slash.
	files []string
}

// ring is the command that runs a suite.
type ring int

const (
	eachTest   ring = iota // make test runs it
	eachChange             // .ci/run always runs it after make test
	byInputs               // .ci/run runs it if its inputs changed since it passed, and by rota
)

// Sources that several suites build.
var (
	command = []string{"./cmd/nebulaio"}
	both    = []string{"./cmd/nebulaio", "./capi"}
	crashed = []string{".", "./internal/cli", "./internal/cluster", "./internal/gpudirect/server", "./internal/meters",
		"./internal/model", "./internal/node", "./internal/s3api", "./internal/store/cachefile", "./internal/store/disk",
		"./internal/transfer", "./test/routes", "./test/server"}
	setup = []string{"Makefile", "packaging/release.mk", "VERSION", "test/setup/"}
)

// suites lists every suite. A test checks that each file of the repository is an input of one of them at least.
func suites() []suite {
	with := func(files ...string) []string { return append(files, setup...) }
	return []suite{
		{target: "test-format", when: eachTest, files: with("ruff.toml", "python/", "bench/", "examples/", "test/")},
		{target: "test-go", when: eachTest, tests: []string{"./..."}, files: with(
			"docs/", ".github/", ".ci/", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE",
			".gitignore", "packaging/", "include/", "python/", "examples/", "capi/", "internal/", "bench/", "test/",
			"go.mod", "go.sum")},
		{target: "test-native", when: eachTest, programs: both, files: with("include/", "capi/", "test/native/",
			"examples/cpp/", "internal/device/fakegpu/", "packaging/", "python/tests/serving.py")},
		{target: "test-python", when: eachTest, programs: both, files: with("python/", "include/")},
		{target: "test-examples", when: eachTest, programs: []string{"./cmd/nebulaio", "./capi", "./examples/..."},
			files: with("examples/", "python/")},
		{target: "test-bench", when: eachTest, programs: both, files: with("bench/", "python/", "docs/benchmarks/")},
		{target: "test-clients", when: eachTest, programs: command, files: with("test/clients/")},

		{target: "test-race", when: eachChange, tests: []string{"./..."}},
		{target: "lint", when: eachChange, tests: []string{"./..."}, files: with(".golangci.yml", "tools/")},

		{target: "test-snippets", when: byInputs, minutes: 4, programs: both, files: with("test/snippets/", "test/clients/",
			"README.md", "docs/", "python/", "include/", "CONTRIBUTING.md", "ARCHITECTURE.md")},
		{target: "test-torch", when: byInputs, minutes: 12, programs: both, tests: []string{"./internal/diagnose"},
			files: with("python/", "examples/", "bench/", "test/snippets/", "docs/", "README.md", "include/")},
		{target: "test-dali", when: byInputs, minutes: 2, programs: both,
			files: with("python/nebulaio/", "python/pyproject.toml", "python/tests/conftest.py", "python/tests/support.py",
				"python/tests/test_dali.py", "python/tests/requirements-dali.txt", "python/tests/requirements-torch.txt",
				"test/snippets/", "docs/data.md")},
		{target: "test-peers", when: byInputs, minutes: 2, programs: append([]string{"./test/peers/samples"}, both...),
			files: with("test/peers/", "python/nebulaio/", "python/tests/requirements-torch.txt")},
		{target: "test-serving", when: byInputs, minutes: 3, programs: both,
			files: with("test/serving/", "python/nebulaio/", "python/tests/requirements-torch.txt")},
		{target: "test-upstreams", when: byInputs, minutes: 6, programs: command, tests: []string{"./test/upstreams/..."},
			files: with("test/upstreams/", "test/clients/")},
		{target: "test-console", when: byInputs, minutes: 4.5, programs: command,
			files: with("test/console/", "test/browser/")},
		{target: "test-s3suite", when: byInputs, minutes: 4, tests: []string{"./test/s3suite/..."}, files: setup},
		{target: "test-crash", when: byInputs, minutes: 5, tests: crashed, files: with("test/effort/", "test/powercut/")},
		{target: "test-release", when: byInputs, minutes: 4, programs: both,
			files: with("packaging/", "test/release/", "python/nebulaio/", "python/setup.py", "python/pyproject.toml",
				"include/", "LICENSE", "go.mod", "go.sum")},
		{target: "test-dump", when: byInputs, minutes: 2, tests: []string{"./internal/process", "./internal/cli"},
			files: with("test/holder/")},
	}
}
