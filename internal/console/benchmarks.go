// SPDX-License-Identifier: Apache-2.0

package console

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nebulaio/nebulaio/internal/bench/record"
	"github.com/nebulaio/nebulaio/internal/bench/report"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Limits of the benchmarks page.
const (
	mostBenchmarks = 500      // files in the list
	mostEntries    = 10_000   // files in the directory
	maxBenchmark   = 16 << 20 // bytes of one file
)

// benchmarkRow is one file of results in the list.
type benchmarkRow struct {
	ID          string         `json:"id"` // name of the file
	Name        string         `json:"name"`
	Started     time.Time      `json:"started"`
	Seconds     float64        `json:"seconds"`
	Version     string         `json:"version"`
	Command     []string       `json:"command"`
	Device      string         `json:"device"`
	CPU         string         `json:"cpu"`
	Interrupted bool           `json:"interrupted"`
	Train       bool           `json:"train"`
	Runs        []benchmarkRun `json:"runs"`
}

type benchmarkRun struct {
	Name    string  `json:"name"`
	GBps    float64 `json:"gbps"`
	IOPS    float64 `json:"iops"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

type benchmarkProblem struct {
	Name    string `json:"name"`
	Message string `json:"message"`
}

// benchmarks answers GET benchmarks.
func (c serverPage) benchmarks() (any, error) {
	dir := c.opts.Config.Console.Benchmarks
	out := struct {
		Directory string             `json:"directory"`
		Reason    string             `json:"reason"`
		Files     []benchmarkRow     `json:"files"`
		Problems  []benchmarkProblem `json:"problems"`
		Truncated bool               `json:"truncated"`
	}{Directory: dir, Files: []benchmarkRow{}, Problems: []benchmarkProblem{}}
	if dir == "" {
		out.Reason = "the setting console.benchmarks names no directory; save results there with nebulaio bench --out"
		return out, nil
	}
	root, names, err := benchmarkNames(dir)
	if err != nil {
		out.Reason = errs.MessageOf(err)
		return out, nil
	}
	defer root.Close()
	if out.Truncated = len(names) > mostBenchmarks; out.Truncated {
		names = names[:mostBenchmarks]
	}
	for _, name := range names {
		f, err := readBenchmark(root, name)
		if err != nil {
			out.Problems = append(out.Problems, benchmarkProblem{name, errs.MessageOf(err)})
			continue
		}
		out.Files = append(out.Files, rowOf(name, f))
	}
	slices.SortStableFunc(out.Files, func(a, b benchmarkRow) int { return b.Started.Compare(a.Started) })
	if len(out.Files) == 0 {
		out.Reason = "the directory has no results of nebulaio bench"
	}
	return out, nil
}

// benchmarkNames returns the files of results in a directory, the newest first. The caller closes the root.
func benchmarkNames(dir string) (*os.Root, []string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, errs.Wrap("open the directory of benchmarks", dir, errs.WithoutPath(err))
	}
	d, err := root.Open(".")
	if err != nil {
		_ = root.Close() // the error is the reason
		return nil, nil, errs.Wrap("open the directory of benchmarks", dir, errs.WithoutPath(err))
	}
	defer d.Close()
	entries, err := d.ReadDir(mostEntries)
	if err != nil && !errors.Is(err, io.EOF) {
		_ = root.Close() // the error is the reason
		return nil, nil, errs.Wrap("read the directory of benchmarks", dir, errs.WithoutPath(err))
	}
	type file struct {
		name string
		at   time.Time
	}
	var all []file
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && e.Type().IsRegular() && benchmarkName(e.Name()) {
			all = append(all, file{e.Name(), info.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b file) int { return b.at.Compare(a.at) })
	names := make([]string, 0, len(all))
	for _, f := range all {
		names = append(names, f.name)
	}
	return root, names, nil
}

// benchmarkName reports whether a name is that of a file of results, and neither hidden nor in another directory.
func benchmarkName(name string) bool {
	return strings.HasSuffix(name, ".json") && !strings.HasPrefix(name, ".") && !strings.ContainsAny(name, "/\\\x00")
}

// readBenchmark reads one file of results. A link that leads out of the directory is refused by os.Root.
func readBenchmark(root *os.Root, name string) (*record.File, error) {
	const op = "read results"
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, errs.Wrap(op, name, errs.WithoutPath(err))
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errs.New(errs.Invalid, op, name, "it is no regular file")
	}
	b, err := io.ReadAll(io.LimitReader(f, maxBenchmark+1))
	if err != nil {
		return nil, errs.Wrap(op, name, errs.WithoutPath(err))
	}
	if len(b) > maxBenchmark {
		return nil, errs.New(errs.Invalid, op, name, fmt.Sprintf("it is longer than %d bytes", maxBenchmark))
	}
	return record.Parse(name, b)
}

func rowOf(name string, f *record.File) benchmarkRow {
	row := benchmarkRow{ID: name, Name: strings.TrimSuffix(name, ".json"), Started: f.Started, Seconds: f.Seconds,
		Version: f.Version, Command: append([]string{}, f.Command...), Device: f.Machine.Device.Model, CPU: f.Machine.CPU,
		Interrupted: f.Interrupted, Train: f.Train != nil, Runs: []benchmarkRun{}}
	for i := range f.Runs {
		r := &f.Runs[i]
		row.Runs = append(row.Runs, benchmarkRun{r.Name, r.GBps, r.IOPS, r.Bytes, r.Seconds})
	}
	return row
}

// oneBenchmark reads the file of results with an ID.
func (c serverPage) oneBenchmark(id string) (*record.File, error) {
	missing := &failed{http.StatusNotFound, "NoSuchBenchmark", "there are no results " + quoted(id), ""}
	dir := c.opts.Config.Console.Benchmarks
	if dir == "" || !benchmarkName(id) {
		return nil, missing
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, errs.Wrap("open the directory of benchmarks", dir, errs.WithoutPath(err))
	}
	defer root.Close()
	f, err := readBenchmark(root, id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing
	}
	return f, err
}

// benchmark answers GET benchmarks/{id}.
func (c serverPage) benchmark() (any, error) { return c.oneBenchmark(c.r.PathValue("id")) }

// compareBenchmarks answers GET benchmarks-compare.
func (c serverPage) compareBenchmarks() (any, error) {
	a, err := c.oneBenchmark(c.query("a"))
	if err != nil {
		return nil, err
	}
	b, err := c.oneBenchmark(c.query("b"))
	if err != nil {
		return nil, err
	}
	return map[string]any{"a": rowOf(c.query("a"), a), "b": rowOf(c.query("b"), b), "comparison": report.Compare(a, b)},
		nil
}
