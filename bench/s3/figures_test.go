// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

func document(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// cells returns the cells of the table row that begins with a label, below a heading if one is given.
func cells(t *testing.T, text, heading, label string) []string {
	t.Helper()
	if heading != "" {
		_, rest, ok := strings.Cut(text, "\n## "+heading+"\n")
		if !ok {
			t.Fatalf("no heading %q", heading)
		}
		text, _, _ = strings.Cut(rest, "\n## ")
	}
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "| "+label) {
			var all []string
			for _, c := range strings.Split(strings.Trim(line, "|"), "|") {
				all = append(all, strings.TrimSpace(c))
			}
			return all
		}
	}
	t.Fatalf("no row %q below %q", label, heading)
	return nil
}

var figure = regexp.MustCompile(`[0-9]+(\.[0-9]+)?`)

// first returns the first number of a cell, which is the median in the pages of the benchmark.
func first(cell string) string { return figure.FindString(cell) }

// TestPerformanceHasTheFiguresOfItsPages compares the table of the object store in docs/performance.md with the tables
// that it links to.
func TestPerformanceHasTheFiguresOfItsPages(t *testing.T) {
	readme := document(t, "docs/performance.md")
	const main, puts = "docs/benchmarks/2026-11-15-s3/README.md", "docs/benchmarks/2026-11-15-s3/put-64mib/README.md"
	const small = "docs/benchmarks/2026-11-17-put/README.md"
	for _, x := range []struct {
		row, page, heading string
		column             int
		targets            []string // of the columns of the page, in order
		own                string   // a further target of ours, in brackets behind the first figure
		second             string   // a further heading, behind a slash
	}{
		{row: "GET 64 MiB", page: main, heading: "GET 64 MiB, 4 streams", column: 2,
			targets: []string{"nebulaio", "bare", "minio", "versitygw"}, own: "nebulaio always"},
		{row: "GET ranges of 1 MiB", page: main, heading: "GET ranges of 1 MiB, 8 streams", column: 2,
			targets: []string{"nebulaio", "bare", "minio", "versitygw"}},
		{row: "PUT 4 KiB, durable", page: small, heading: "PUT 4 KiB, 8 streams", column: 1,
			targets: []string{"nebulaio", "bare+md5+sync"}, second: "PUT 4 KiB, 64 streams"},
		{row: "PUT 4 KiB, as above", page: main, heading: "PUT 4 KiB, 8 streams", column: 1,
			targets: []string{"nebulaio", "bare+md5+sync", "minio", "versitygw"}, second: "PUT 4 KiB, 64 streams"},
		{row: "PUT 64 MiB", page: puts, heading: "PUT 64 MiB, 4 streams", column: 1,
			targets: []string{"nebulaio", "bare+md5+sync", "minio", "versitygw"}, own: "nebulaio crc64"},
	} {
		got := cells(t, readme, "", x.row)
		raw := document(t, x.page)
		for i, target := range x.targets {
			want := []string{first(cells(t, raw, x.heading, target+" |")[x.column])}
			if x.second != "" {
				want = append(want, first(cells(t, raw, x.second, target+" |")[x.column]))
			}
			if x.own != "" && i == 0 {
				want = append(want, first(cells(t, raw, x.heading, x.own+" |")[x.column]))
			}
			cell := strings.ReplaceAll(got[i+1], "MD5", "")
			if has := figure.FindAllString(cell, -1); !slices.Equal(has, want) {
				t.Errorf("docs/performance.md, %s, %s: %v, and %s has %v", x.row, target, has, x.page, want)
			}
		}
	}
	// What the page says of the 64 MiB PUTs in words.
	const ratio = "PUT 64 MiB, 4 streams: rate, nebulaio against minio"
	for _, file := range []string{main, puts} {
		found := figure.FindAllString(cells(t, document(t, file), "What is wanted, and what was found", ratio)[1], -1)
		want := []string{found[0] + " x", found[1] + " to " + found[2] + " x"}
		for _, w := range want {
			if !strings.Contains(readme, w) {
				t.Errorf("docs/performance.md does not say %q, which %s has", w, file)
			}
		}
	}
}

// TestPerformanceHasTheRateOfSaves compares docs/performance.md with the samples of all runs.
func TestPerformanceHasTheRateOfSaves(t *testing.T) {
	var rates []float64
	for _, name := range []string{"save-1", "save-2-slice", "save-3-verify-cufile", "save-4-cufile"} {
		var file struct {
			Runs []struct {
				Rows []struct {
					Name    string
					Samples []struct {
						Method  string
						Seconds float64
						GBps    float64
						Warmup  bool
					}
				}
			}
		}
		if err := json.Unmarshal([]byte(document(t, "docs/benchmarks/2026-11-15-engine/"+name+".json")), &file); err != nil {
			t.Fatal(err)
		}
		for _, run := range file.Runs {
			for _, row := range run.Rows {
				for _, s := range row.Samples {
					if row.Name == "save-7b" && s.Method == "nebulaio" && !s.Warmup && s.GBps > 0 {
						rates = append(rates, s.GBps)
					}
				}
			}
		}
	}
	if len(rates) != 8 {
		t.Fatalf("%d rounds, expected 8", len(rates))
	}
	slices.Sort(rates)
	want := fmt.Sprintf("**%.1f GB/s** (%.1f to %.1f)", (rates[3]+rates[4])/2, rates[0], rates[7])
	if row := cells(t, document(t, "docs/performance.md"), "", "save from the GPU")[1]; !strings.HasPrefix(row, want) {
		t.Errorf("docs/performance.md says %q, and the raw data %q", row, want)
	}
}
