// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/nebulaio/nebulaio"

// floors is the house. An import goes down, never up, never sideways; a package
// that is not here has no place yet and fails the test.
var floors = map[string]int{
	"cmd/nebulaio": 9, "capi": 9,
	"internal/cli": 8, "internal/abi": 8,
	"":               7, // the library
	"internal/bench": 7,
	"internal/boot":  6, "internal/model": 6, "internal/doctor": 6, "internal/tuning": 6, "internal/bench/dataset": 6, "internal/bench/train": 6,
	"internal/transfer": 5, "internal/device/open": 5, "internal/synth": 5, "internal/doctor/facts": 5,
	"internal/device/host": 4, "internal/device/cuda": 4, "internal/device/nvml": 4, "internal/device/cufile": 4, "internal/format/safetensors": 4, "internal/bench/report": 4,
	"internal/iam": 4, "internal/store/datafile": 4, "internal/store/disk": 5, "internal/s3api": 6, "internal/node": 7,
	"report":          3, // public: what a transfer reports
	"internal/object": 3, "internal/config": 3, "internal/gpudirect/wire": 3,
	"internal/store/s3": 4, "internal/gpudirect/channel": 4, "internal/gpudirect/client": 6, "internal/gpudirect/server": 6,
	"internal/device": 3, "internal/format": 3, "internal/bench/record": 3, "internal/bench/shuffle": 3,
	"internal/units": 2, "internal/dl": 2, "internal/hostmem": 2, "internal/vfs": 2, "internal/uring": 2, "internal/plain": 2, "internal/nearest": 2, "internal/checksum": 2,
	"internal/errs": 1, "fault": 0, // fault is public: the errors
}

// outside lists packages that are not part of the product: programs that show
// its use, and what only tests import.
var outside = []string{"internal/device/fakegpu", "internal/store/storetest", "internal/store/model",
	"examples/load", "examples/objects", "test/gpu", "test/s3suite", "test/clients", "test/server", "test/setup",
	"test/routes", "bench/s3", "bench/door/objects"}

// doors may be passed by one package only, with the reason.
var doors = map[string]struct{ by, why string }{
	"internal/device/host":                           {"internal/device/open", "everyone else speaks device and cannot know what is behind it"},
	"internal/device/cuda":                           {"internal/device/open", "everyone else speaks device and cannot know what is behind it"},
	"internal/device/nvml":                           {"internal/device/open", "everyone else speaks device and cannot know what is behind it"},
	"internal/device/cufile":                         {"internal/device/open", "everyone else speaks device and cannot know what is behind it"},
	"github.com/ebitengine/purego":                   {"internal/dl", "native libraries are called through one layer"},
	"github.com/spf13/cobra":                         {"internal/cli", "commands are a face, nothing below knows them"},
	"golang.org/x/term":                              {"internal/cli", "only a face has a terminal"},
	"github.com/HdrHistogram/hdrhistogram-go":        {"internal/bench", "latencies are gathered in one place"},
	"github.com/minio/crc64nvme":                     {"internal/checksum", "what a block's sum is, is said in one place"},
	"internal/store/disk":                            {"internal/node", "everyone else speaks object and cannot know what is behind it"},
	"internal/store/datafile":                        {"internal/store/disk", "files of content have one owner"},
	"internal/s3api":                                 {"internal/node", "the front end can be replaced"},
	"github.com/cockroachdb/pebble/v2":               {"internal/store/disk", "metadata has one owner"},
	"github.com/versity/versitygw/embedgw":           {"internal/s3api", "the front end can be replaced"},
	"github.com/versity/versitygw/backend":           {"internal/s3api", "the front end can be replaced"},
	"github.com/prometheus/client_golang/prometheus": {"internal/node", "those below report events and snapshots"},
	"github.com/aws/aws-sdk-go-v2/aws/signer/v4":     {"internal/store/s3", "requests to other servers are signed in one place"},
	"go.yaml.in/yaml/v3":                             {"internal/config", "there is one reader of configuration"},
	"C":                                              {"capi", "cgo is for the C ABI alone"},
}

type pkg struct {
	ImportPath, Dir  string
	Imports, GoFiles []string
	CgoFiles         []string
	Deps             []string
	Standard         bool
}

func list(t *testing.T, args ...string) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,Imports,GoFiles,CgoFiles,Deps,Standard"}, args...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1") // else the shared library does not exist
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

func short(path string) string { return strings.TrimPrefix(strings.TrimPrefix(path, module), "/") }

func product(t *testing.T) []pkg {
	return slices.DeleteFunc(list(t, "./..."), func(p pkg) bool { return slices.Contains(outside, short(p.ImportPath)) })
}

func TestImportsGoDown(t *testing.T) {
	for _, p := range product(t) {
		from := short(p.ImportPath)
		floor, ok := floors[from]
		if !ok {
			t.Errorf("%q has no floor: give it one in arch_test.go and ARCHITECTURE.md", from)
			continue
		}
		for _, im := range p.Imports {
			if im != module && !strings.HasPrefix(im, module+"/") {
				continue
			}
			if to := short(im); floors[to] >= floor {
				t.Errorf("%q (floor %d) imports %q (floor %d): imports go down", from, floor, to, floors[to])
			}
		}
	}
}

func TestDoorsAndOwners(t *testing.T) {
	for _, p := range product(t) {
		imports := p.Imports
		if len(p.CgoFiles) > 0 {
			imports = append(imports, "C")
		}
		for _, im := range imports {
			if d, ok := doors[short(im)]; ok && short(p.ImportPath) != d.by {
				t.Errorf("%q imports %q, which only %q may: %s", short(p.ImportPath), im, d.by, d.why)
			}
		}
	}
}

// TestSharedLibraryStaysSmall keeps faces, the server and test code out of other
// people's processes. Of the network it links what a client of S3 needs: net/http,
// our own client, and the signer of the AWS SDK without any of its services.
func TestSharedLibraryStaysSmall(t *testing.T) {
	for _, p := range list(t, "./capi") {
		for _, d := range p.Deps {
			switch {
			case d == module+"/internal/store/s3", d == "github.com/aws/aws-sdk-go-v2/aws", strings.HasPrefix(d, "github.com/aws/aws-sdk-go-v2/aws/"),
				strings.HasPrefix(d, "github.com/aws/aws-sdk-go-v2/internal/"), strings.HasPrefix(d, "github.com/aws/smithy-go"):
			case d == "testing", d == "internal/cli", strings.HasPrefix(d, "github.com/spf13/"),
				d == module+"/internal/cli", d == module+"/internal/synth", strings.Contains(d, "fakegpu"),
				d == module+"/internal/node", d == module+"/internal/s3api", d == module+"/internal/iam", d == module+"/internal/config", d == module+"/internal/gpudirect/server",
				strings.HasPrefix(d, module+"/internal/store"), strings.HasPrefix(d, "github.com/cockroachdb/"), strings.HasPrefix(d, "github.com/versity/"),
				strings.HasPrefix(d, "github.com/gofiber/"), strings.HasPrefix(d, "github.com/valyala/"), strings.HasPrefix(d, "github.com/prometheus/"),
				strings.HasPrefix(d, "github.com/aws/"), strings.HasPrefix(d, "go.yaml.in/"):
				t.Errorf("libnebulaio.so links %s", d)
			}
		}
	}
}

func TestNoTestCodeInTheProduct(t *testing.T) {
	for _, p := range product(t) {
		for _, im := range p.Imports {
			if im == "testing" || strings.Contains(im, "fakegpu") {
				t.Errorf("%q imports %q", short(p.ImportPath), im)
			}
		}
	}
}

// TestEveryPackageSaysWhatItIs checks one package comment each, a licence line
// on each file, and no init functions.
func TestEveryPackageSaysWhatItIs(t *testing.T) {
	for _, p := range list(t, "./...") {
		docs := 0
		for _, name := range append(p.GoFiles, p.CgoFiles...) {
			file := filepath.Join(p.Dir, name)
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(string(src), "// SPDX-License-Identifier: Apache-2.0\n") {
				t.Errorf("%s does not begin with its licence", file)
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, src, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if f.Doc != nil {
				docs++
			}
			for _, d := range f.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.Name == "init" && fn.Recv == nil {
					t.Errorf("%s has an init function", file)
				}
			}
		}
		if len(p.GoFiles)+len(p.CgoFiles) > 0 && docs != 1 {
			t.Errorf("%s has %d package comments, expected one", p.ImportPath, docs)
		}
	}
}
