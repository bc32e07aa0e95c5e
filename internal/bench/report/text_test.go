// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/csv"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/errs"
)

var update = flag.Bool("update", false, "write testdata instead of comparing with it")

func golden(t *testing.T, name string, write func(io.Writer) error) {
	t.Helper()
	var got bytes.Buffer
	if err := write(&got); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("%s is not what is written (go test -update writes it anew):\n%s", file, got.String())
	}
}

func fixtures() map[string]*record.File {
	return map[string]*record.File{"h200": h200(), "host": hostOnly(), "train": training(), "stopped": stopped(),
		"wrong": wrong(), "all": suite()}
}

func TestFixturesAreWhole(t *testing.T) {
	for name, f := range fixtures() {
		if err := f.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestText(t *testing.T) {
	for name, f := range fixtures() {
		golden(t, name+".txt", func(w io.Writer) error { return WriteText(w, f) })
	}
}

func TestTextSaysEachThingThatHonestyNeeds(t *testing.T) {
	var b bytes.Buffer
	if err := WriteText(&b, stopped()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"GB/s (", "GiB/s)", "of storage read 4.00 GB/s", "first done", "last done", "IOPS",
		"p99.9", "asked direct to pinned memory -> taken direct",
		"measured storage", "resident before", "Interrupted", "not go the direct way but by buffered", "fix: ", "kernel 6.8",
		"driver 570", "0.3.0", "nebulaio bench suite"} {
		if !strings.Contains(strings.Join(strings.Fields(b.String()), " "), want) {
			t.Errorf("%q is not said", want)
		}
	}
}

func TestTrainingSaysWhereItsDataCameFrom(t *testing.T) {
	f := training()
	f.Train.Routes = []record.Route{{Route: "page_cache", Bytes: gibi}}
	f.Train.Cache.Verdict = "memory"
	for _, write := range []func(io.Writer, *record.File) error{WriteText, WriteHTML} {
		var b bytes.Buffer
		if err := write(&b, f); err != nil {
			t.Fatal(err)
		}
		text := strings.Join(strings.Fields(b.String()), " ") // also the spaces that do not break
		for _, want := range []string{"came from memory: storage would be slower", "taken page cache 1 GiB",
			"1 GiB did not go the direct way but by page cache"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not said", want)
			}
		}
	}
}

func TestTextFitsATerminal(t *testing.T) {
	for _, name := range []string{"stopped", "wrong", "host", "train"} {
		var b bytes.Buffer
		if err := WriteText(&b, fixtures()[name]); err != nil {
			t.Fatal(err)
		}
		table := false // cells are not cut: a table may be wider
		for line := range strings.Lines(b.String()) {
			table = strings.Contains(line, "GiB/s  ") || table && strings.TrimSpace(line) != ""
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > columns && !table {
				t.Errorf("%s: %d columns: %s", name, n, line)
			}
		}
	}
}

func TestNoTextObeysItsInput(t *testing.T) {
	for name, write := range map[string]func(io.Writer) error{
		"text":       func(w io.Writer) error { return WriteText(w, hostile()) },
		"comparison": func(w io.Writer) error { return WriteComparison(w, Compare(hostile(), h200())) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(b.String(), "\x1b\x00\u202e") {
			t.Errorf("%s holds what a terminal obeys", name)
		}
	}
}

func TestCSV(t *testing.T) {
	golden(t, "h200.csv", func(w io.Writer) error { return WriteCSV(w, h200()) })
	golden(t, "host.csv", func(w io.Writer) error { return WriteCSV(w, hostOnly()) })
	var b bytes.Buffer
	if err := WriteCSV(&b, hostile()); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil {
		t.Fatalf("not CSV: %v", err)
	}
	if len(rows) != len(h200().Runs)+1 || len(rows[0]) != len(csvColumns()) {
		t.Errorf("%d rows of %d", len(rows), len(rows[0]))
	}
}

func TestGdsioLine(t *testing.T) {
	re := regexp.MustCompile(`^IoType: (READ|WRITE|RANDREAD|RANDWRITE) XferType: (\w+) Threads: (\d+) DataSetSize: (\d+)/(\d+)\(KiB\) IOSize: (\d+)\(KiB\) Throughput: ([\d.]+) GiB/sec, Avg_Latency: ([\d.]+) usecs ops: (\d+) total_time ([\d.]+) secs\n$`)
	line := func(r record.Run) []string {
		var b bytes.Buffer
		if err := WriteGdsio(&b, &r); err != nil {
			t.Fatal(err)
		}
		m := re.FindStringSubmatch(b.String())
		if m == nil {
			t.Fatalf("no gdsio line: %s", b.String())
		}
		return m
	}
	r := h200().Runs[0]
	if m := line(r); m[1] != "READ" || m[2] != "CPU_GPU" || m[3] != "8" || m[4] != "33554432" || m[6] != "1024" ||
		!strings.HasPrefix(m[7], "3.61") || m[9] != "32768" {
		t.Errorf("%q", m)
	}
	r.Settings.Memory, r.Settings.Pattern, r.Routes = "cufile", "random", []record.Route{{Route: "cufile_p2p",
		Bytes: r.Bytes}}
	if m := line(r); m[1] != "RANDREAD" || m[2] != "GPUD" {
		t.Errorf("%q", m)
	}
	// cuFile in compatibility mode is not GPU-direct, whatever was asked for.
	r.Routes = []record.Route{{Route: "cufile_compat", Bytes: r.Bytes}}
	if m := line(r); m[2] != "CPU_GPU" {
		t.Errorf("%q", m)
	}
	if m := line(hostOnly().Runs[0]); m[2] != "CPUONLY" {
		t.Errorf("%q", m)
	}
	if err := WriteGdsio(io.Discard, &h200().Runs[3]); !errs.Is(err, errs.Unsupported) {
		t.Errorf("a copy: %v", err)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestFailedWritesAreTold(t *testing.T) {
	for name, err := range map[string]error{
		"text": WriteText(full{}, h200()), "csv": WriteCSV(full{}, h200()), "gdsio": WriteGdsio(full{}, &h200().Runs[0]),
		"comparison": WriteComparison(full{}, Compare(h200(), h200())),
	} {
		if err == nil {
			t.Errorf("%s: a full disk is a success", name)
		}
	}
}

func TestNumbers(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{rates(3.88), "3.88 GB/s (3.61 GiB/s)"}, {rates(0.05), "50.0 MB/s (47.7 MiB/s)"}, {rates(0.1),
			"0.10 GB/s (0.09 GiB/s)"}, {rates(55.4), "55.4 GB/s (51.6 GiB/s)"},
		{size(4 << 20), "4 MiB"}, {size(3 << 29), "1.5 GiB"}, {size(100), "100 B"}, {size(2 << 40), "2 TiB"}, {size(0),
			"0 B"},
		{span(0), "0 s"}, {span(0.0000314), "31.4 µs"}, {span(0.0123), "12.3 ms"}, {span(3.14159), "3.14 s"}, {span(312),
			"5.2 min"}, {span(1e15), "277777777777.8 h"},
		{count(28734), "28 734"}, {count(-1234), "-1 234"}, {count(12), "12"},
		{percent(0), "0 %"}, {percent(0.9996), "99.9 %"}, {percent(1), "100 %"}, {percent(0.0004), "0.1 %"}, {percent(0.874),
			"87 %"},
		{shell([]string{"a", "b c", "d'e", ""}), `a 'b c' 'd'\''e' ''`},
		{printable("a\x1bb\xff\u202ec"), `a\x1bb\xff\u202ec`},
	} {
		if c.got != c.want {
			t.Errorf("%q, expected %q", c.got, c.want)
		}
	}
}
