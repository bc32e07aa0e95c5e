// SPDX-License-Identifier: Apache-2.0

package upstreams_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/test/upstreams"
)

// all reports whether suite and flows run whole, and not only a selection of them.
func all() bool { return os.Getenv(enable+"_ALL") != "" }

var (
	// told is what the tools of clients print before an error of the server.
	told = regexp.MustCompile(`An error occurred.*|ERROR: .*`)
	// passing are parts of a message that differ from run to run: identifiers of a request, and addresses in memory.
	passing = regexp.MustCompile(`,? RequestID: [^,]*,( HostID: [^,]*,)?|\b0x[0-9a-f]+\b|\b[0-9a-f]{32}\b`)
)

// causeOf returns the cause of a failure in one line, short enough for a table: what the server said, or else the first
// line.
func causeOf(why string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(why), "\n")
	if said := told.FindString(why); said != "" {
		line = said
	}
	line = strings.Join(strings.Fields(passing.ReplaceAllString(line, "")), " ")
	const longest = 240
	if runes := []rune(line); len(runes) > longest {
		line = string(runes[:longest]) + " …"
	}
	return line
}

// record writes the failures of an upstream itself to a file of the directory that NEBULAIO_UPSTREAMS_REPORT names: a
// line for each test, with its name and the first cause, between tabs.
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
	if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%s.tsv", kind, what)), []byte(b.String()),
		0o644); err != nil {
		t.Fatal(err)
	}
}
