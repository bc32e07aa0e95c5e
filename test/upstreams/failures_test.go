// SPDX-License-Identifier: Apache-2.0

package upstreams_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/test/upstreams"
)

// all reports whether suite and flows run whole, and not only a selection of them.
func all() bool { return os.Getenv(enable+"_ALL") != "" }

// causeOf returns the first line of a failure, short enough for a table.
func causeOf(why string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(why), "\n")
	line = strings.Join(strings.Fields(line), " ")
	const longest = 240
	if runes := []rune(line); len(runes) > longest {
		line = string(runes[:longest]) + " …"
	}
	return line
}

// record writes the failures of an upstream itself to a file of the directory that NEBULAIO_UPSTREAMS_REPORT names: a line
// for each test, with its name and the first cause, between tabs.
func record(t *testing.T, kind upstreams.Kind, what string, causes map[string]string) {
	t.Helper()
	dir := os.Getenv(enable + "_REPORT")
	if dir == "" {
		return
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(causes)) {
		fmt.Fprintf(&b, "%s\t%s\n", name, causeOf(causes[name]))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%s.tsv", kind, what)), []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
