// SPDX-License-Identifier: Apache-2.0

package nebulaio_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/test/effort"
	"github.com/nebulaio/nebulaio/test/house"
)

// broken returns the lines of each rule that h breaks.
func broken(h house.House) map[string][]string {
	all := map[string][]string{}
	for _, rule := range house.Rules() {
		if lines := rule.Broken(h); len(lines) > 0 {
			all[rule.Name] = lines
		}
	}
	return all
}

// licensed is a source file that breaks no rule.
const licensed = "// SPDX-License-Identifier: Apache-2.0\n\n"

// printed returns a floor table of the packages, some of them on other floors.
func printed(tables ...map[string]int) string {
	all := map[string]int{}
	for _, table := range tables {
		maps.Copy(all, table)
	}
	var page strings.Builder
	for path, floor := range all {
		fmt.Fprintf(&page, "| %d | `%s` | what it is |\n", floor, cmp.Or(path, "nebulaio"))
	}
	return page.String()
}

// TestPlantedViolations plants one violation at a time in a copy of the repository and expects one rule to find it.
func TestPlantedViolations(t *testing.T) {
	effort.SingleThreaded(t)
	clean := theHouse(t)
	// imports lets one package import another.
	imports := func(from string, to ...string) func(*house.House) {
		return func(h *house.House) {
			p := h.Find(from)
			for _, path := range to {
				if own, ok := strings.CutPrefix(path, "./"); ok {
					p.Own = append(p.Own, own)
				} else {
					p.Others = append(p.Others, path)
				}
			}
		}
	}
	file := func(in, name, source string) func(*house.House) {
		return func(h *house.House) {
			f, err := house.Read(filepath.Join(in, name), source)
			if err != nil {
				t.Fatal(err)
			}
			p := h.Find(in)
			p.Files = append(p.Files, f)
		}
	}
	const (
		place   = "every package has a place"
		down    = "imports go down"
		door    = "doors are passed by their owners"
		owner   = "every dependency has an owner"
		outer   = "the product does not import what is outside of it"
		tests   = "no test code in the product"
		small   = "the shared library stays small"
		says    = "every package says what it is"
		licence = "every file has its licence"
		noInit  = "no init functions"
		subject = "no package without a subject"
		page    = "ARCHITECTURE.md agrees"
	)
	planted := []struct {
		name, rule, line string
		plant            func(*house.House)
	}{
		{"a package of the product without a floor", place, `"internal/new" has no place`, func(h *house.House) {
			h.Packages = append(h.Packages, house.Package{Path: "internal/new"})
		}},
		{"a program outside of the product that is not listed", place, `"examples/new" has no place`, func(h *house.House) {
			h.Packages = append(h.Packages, house.Package{Path: "examples/new"})
		}},
		{"a listed program that is gone", place, `"examples/old" is listed outside and does not exist`, func(h *house.House) {
			h.Outside = append(h.Outside, "examples/old")
		}},
		{"a package in both lists", place, `"internal/errs" is on a floor and outside`, func(h *house.House) {
			h.Outside = append(h.Outside, "internal/errs")
			for i := range h.Packages {
				h.Packages[i].Own = slices.DeleteFunc(h.Packages[i].Own, func(s string) bool { return s == "internal/errs" })
			}
			h.Linked = slices.DeleteFunc(h.Linked, func(s string) bool { return s == "./internal/errs" })
		}},
		{"an import up", down, `imports "internal/units"`, imports("internal/errs", "./internal/units")},
		{"an import sideways", down, `imports "internal/plain"`, imports("internal/units", "./internal/plain")},
		{"a face that imports a device", door, `"internal/cli" imports "internal/device/cuda"`,
			imports("internal/cli", "./internal/device/cuda")},
		{"versitygw beside the front end", door, `imports "github.com/versity/versitygw/s3err"`,
			imports("internal/node", "github.com/versity/versitygw/s3err")},
		{"versitygw's own front door", door, `imports "github.com/versity/versitygw/embedgw"`,
			imports("internal/node", "github.com/versity/versitygw/embedgw")},
		{"fiber beside the front end", door, `imports "github.com/gofiber/fiber/v3/middleware/cors"`,
			imports("internal/node", "github.com/gofiber/fiber/v3/middleware/cors")},
		{"fasthttp beside the front end", door, `imports "github.com/valyala/fasthttp"`,
			imports("internal/node", "github.com/valyala/fasthttp")},
		{"a package below pebble", door, `imports "github.com/cockroachdb/pebble/v2/sstable"`,
			imports("internal/node", "github.com/cockroachdb/pebble/v2/sstable")},
		{"pebble where only its files may be", door, `"internal/store/datafile" imports "github.com/cockroachdb/pebble/v2"`,
			imports("internal/store/datafile", "github.com/cockroachdb/pebble/v2")},
		{"pebble's files elsewhere", door, `imports "github.com/cockroachdb/pebble/v2/vfs"`,
			imports("internal/transfer", "github.com/cockroachdb/pebble/v2/vfs")},
		{"md5-simd elsewhere", door, `imports "github.com/minio/md5-simd"`,
			imports("internal/s3api", "github.com/minio/md5-simd")},
		{"pflag elsewhere", door, `imports "github.com/spf13/pflag"`, imports("internal/config", "github.com/spf13/pflag")},
		{"cobra elsewhere", door, `imports "github.com/spf13/cobra"`, imports("internal/config", "github.com/spf13/cobra")},
		{"a terminal elsewhere", door, `imports "golang.org/x/term"`, imports("internal/bench", "golang.org/x/term")},
		{"histograms elsewhere", door, `imports "github.com/HdrHistogram/hdrhistogram-go"`,
			imports("internal/transfer", "github.com/HdrHistogram/hdrhistogram-go")},
		{"prometheus elsewhere", door, `imports "github.com/prometheus/client_golang/prometheus/promhttp"`,
			imports("internal/s3api", "github.com/prometheus/client_golang/prometheus/promhttp")},
		{"the signer elsewhere", door, `imports "github.com/aws/aws-sdk-go-v2/aws"`,
			imports("internal/node", "github.com/aws/aws-sdk-go-v2/aws")},
		{"the SDK's types elsewhere", door, `imports "github.com/aws/aws-sdk-go-v2/service/s3/types"`,
			imports("internal/store/s3", "github.com/aws/aws-sdk-go-v2/service/s3/types")},
		{"a second reader of YAML", door, `imports "go.yaml.in/yaml/v3"`, imports("internal/node", "go.yaml.in/yaml/v3")},
		{"purego elsewhere", door, `imports "github.com/ebitengine/purego"`,
			imports("internal/device/cuda", "github.com/ebitengine/purego")},
		{"sums of blocks elsewhere", door, `imports "github.com/minio/crc64nvme"`,
			imports("internal/store/disk", "github.com/minio/crc64nvme")},
		{"cgo elsewhere", door, `"internal/dl" imports "C"`, imports("internal/dl", "C")},
		{"a door that nobody passes", door, `nobody passes the door "example.com/gone"`, func(h *house.House) {
			h.Doors["example.com/gone"] = house.Door{By: "capi"}
		}},
		{"an owner that is gone", door, `names "internal/gone", which is no package of the product`, func(h *house.House) {
			h.Doors["internal/s3api"] = house.Door{By: "internal/node internal/gone"}
		}},
		{"a folder of owners that leaves one out", door,
			`"internal/node" imports "internal/store/disk", which only internal/cli/... may`, func(h *house.House) {
				imports("internal/cli", "./internal/store/disk")(h)
				h.Doors["internal/store/disk"] = house.Door{By: "internal/cli/..."}
			}},
		{"a module without an owner", owner, `"internal/node" imports "example.com/new/thing", which has no owner`,
			imports("internal/node", "example.com/new/thing")},
		{"an unused part of a known module", owner, `imports "github.com/prometheus/client_golang/api", which has no owner`,
			imports("internal/node", "github.com/prometheus/client_golang/api")},
		{"a test's module in the product", owner, `imports "github.com/minio/minio-go/v7", which has no owner`,
			imports("internal/node", "github.com/minio/minio-go/v7")},
		{"a requirement that nobody imports", owner, `go.mod requires "example.com/new"`,
			func(h *house.House) { h.Required = append(h.Required, "example.com/new") }},
		{"a rule for a module that is gone", owner, `"example.com/old" has a rule`,
			func(h *house.House) { h.TestModules["example.com/old"] = "" }},
		{"the model store in the product", outer, `"internal/node" imports "internal/store/model"`,
			imports("internal/node", "./internal/store/model")},
		{"the store's suite in the product", outer, `imports "internal/store/storetest"`,
			imports("internal/node", "./internal/store/storetest")},
		{"the fake driver in the product", outer, `imports "internal/device/fakegpu"`,
			imports("internal/device/open", "./internal/device/fakegpu")},
		{"testing in the product", tests, `"internal/units" imports "testing"`, imports("internal/units", "testing")},
		{"testing/fstest in the product", tests, `"internal/units" imports "testing/fstest"`,
			imports("internal/units", "testing/fstest")},
		{"httptest in the product", tests, `imports "net/http/httptest"`, imports("internal/node", "net/http/httptest")},
		{"the server in the library", small, `links "internal/node"`,
			func(h *house.House) { h.Linked = append(h.Linked, "./internal/node") }},
		{"the store in the library", small, `links "internal/store/disk"`,
			func(h *house.House) { h.Linked = append(h.Linked, "./internal/store/disk") }},
		{"the fake driver in the library", small, `links "internal/device/fakegpu"`,
			func(h *house.House) { h.Linked = append(h.Linked, "./internal/device/fakegpu") }},
		{"a module that the library may not link", small, `links "github.com/spf13/cobra"`,
			func(h *house.House) { h.Linked = append(h.Linked, "github.com/spf13/cobra") }},
		{"a service of the SDK in the library", small, `links "github.com/aws/aws-sdk-go-v2/service/s3"`,
			func(h *house.House) { h.Linked = append(h.Linked, "github.com/aws/aws-sdk-go-v2/service/s3") }},
		{"testing in the library", small, `links "testing"`, func(h *house.House) { h.Linked = append(h.Linked, "testing") }},
		{"a second package comment", says, `"internal/units" has 2 package comments`,
			file("internal/units", "new.go", licensed+"// Package units is said twice.\npackage units\n")},
		{"no package comment", says, `"internal/new" has 0 package comments`, func(h *house.House) {
			h.Packages = append(h.Packages, house.Package{Path: "internal/new"})
			h.Outside = append(h.Outside, "internal/new")
			file("internal/new", "new.go", licensed+"package fresh\n")(h)
		}},
		{"no licence", licence, `internal/units/new.go does not begin with its licence`,
			file("internal/units", "new.go", "package units\n")},
		{"an init function", noInit, `internal/units/new.go has an init function`,
			file("internal/units", "new.go", licensed+"package units\n\nfunc init() {}\n")},
		{"a package of helpers", subject, `"internal/util": name the thing`, func(h *house.House) {
			h.Packages = append(h.Packages, house.Package{Path: "internal/util"})
			h.Outside = append(h.Outside, "internal/util")
		}},
		{"a package that the page lacks", page, `does not show "internal/new" (floor 3)`, func(h *house.House) {
			h.Packages = append(h.Packages, house.Package{Path: "internal/new"})
			h.Floors["internal/new"] = 3
		}},
		{"a package that the page shows elsewhere", page, `shows "internal/errs" on floor 3`, func(h *house.House) {
			h.Page = printed(h.Floors, map[string]int{"internal/errs": 3})
		}},
		{"a package that the page shows twice", page, `shows "internal/errs" on floors 12 and`, func(h *house.House) {
			h.Page = "| 12 | `internal/{errs}` | above |\n" + h.Page
		}},
		{"a package that the page alone has", page, `shows "internal/gone", which has no floor`, func(h *house.House) {
			h.Page = printed(h.Floors, map[string]int{"internal/gone": 3})
		}},
	}
	proved := map[string]bool{}
	before := broken(clean)
	for _, p := range planted {
		proved[p.rule] = true
		t.Run(p.name, func(t *testing.T) {
			h := clean.Clone()
			p.plant(&h)
			after := broken(h)
			for rule, lines := range after {
				fresh := slices.DeleteFunc(lines, func(s string) bool { return slices.Contains(before[rule], s) })
				found := slices.ContainsFunc(fresh, func(s string) bool { return strings.Contains(s, p.line) })
				if want := rule == p.rule; want != (len(fresh) > 0) || want && !found {
					t.Errorf("the rule %q says %q", rule, fresh)
				}
			}
			if _, ok := after[p.rule]; !ok {
				t.Errorf("the rule %q did not notice", p.rule)
			}
		})
	}
	for _, rule := range house.Rules() {
		if !proved[rule.Name] {
			t.Errorf("no violation of the rule %q was planted", rule.Name)
		}
	}
}

// TestLoadSeesEverything reads a small module from disk: its packages, imports, cgo, requirements and what a library
// links.
func TestLoadSeesEverything(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/small\n\ngo 1.26\n\nrequire (\n\texample.com/a v1.0.0\n\texample.com/b " +
			"v1.0.0 // indirect\n)\n",
		"lib/lib.go": "package main\n\n// #include <stdlib.h>\nimport \"C\"\n\nimport _ " +
			"\"example.com/small/low\"\n\nfunc main() {}\n",
		"low/low.go":      "// Package low is low.\npackage low\n\nimport _ \"testing\"\n\nfunc init() {}\n",
		"ARCHITECTURE.md": "| 2 | `lib` |\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h, err := house.Load(dir, "./lib")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(h.Required, []string{"example.com/a"}) || !slices.Contains(h.Linked, "./low") ||
		!slices.Contains(h.Linked, "testing") {
		t.Errorf("requirements %q, linked %d", h.Required, len(h.Linked))
	}
	h.Floors, h.Doors = map[string]int{"lib": 1, "low": 1}, map[string]house.Door{"C": {By: "low"}}
	for rule, line := range map[string]string{
		"imports go down":                  `"lib" (floor 1) imports "low" (floor 1)`,
		"doors are passed by their owners": `"lib" imports "C"`,
		"every dependency has an owner":    `go.mod requires "example.com/a"`,
		"no test code in the product":      `"low" imports "testing"`,
		"the shared library stays small":   `links "testing"`,
		"every package says what it is":    `"lib" has 0 package comments`,
		"every file has its licence":       "low/low.go does not begin with its licence",
		"no init functions":                "low/low.go has an init function",
		"ARCHITECTURE.md agrees":           `does not show "low" (floor 1)`,
	} {
		if got := broken(h)[rule]; !strings.Contains(strings.Join(got, "\n"), line) {
			t.Errorf("the rule %q says %q", rule, got)
		}
	}
}
