// SPDX-License-Identifier: Apache-2.0

package nvtx

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/nvtx/fakeprofiler"
)

func TestAProfilerSeesRanges(t *testing.T) {
	p := fakeprofiler.Build(t)
	t.Setenv(Variable, p.Library)
	d, err := Open("nebulaio")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50 {
				outer := d.Begin("read_direct")
				d.End(d.Begin("copy"))
				d.End(outer)
			}
		})
	}
	all.Wait()
	d.End(0)
	d.Begin("never ended")
	r := p.Recording(t)
	if len(r.Wrong) > 0 || len(r.Domains) != 1 || r.Domains[0] != "nebulaio" || r.Open != 1 {
		t.Errorf("%+v", r)
	}
	if r.Ranges["read_direct"] != 200 || r.Ranges["copy"] != 200 || r.Ranges["never ended"] != 1 {
		t.Errorf("%+v", r.Ranges)
	}
}

func TestWithoutAProfiler(t *testing.T) {
	t.Setenv(Variable, "")
	if d, err := Open("nebulaio"); d != nil || err != nil {
		t.Errorf("%v, %v", d, err)
	}
}

// A library that is missing or that is no profiler's gives an error that names the variable.
func TestABadLibrary(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text.so")
	if err := os.WriteFile(text, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, kind := range map[string]errs.Kind{"/nowhere/profiler.so": errs.NotFound, text: errs.NotFound,
		"libc.so.6": errs.Unsupported} {
		t.Setenv(Variable, path)
		if d, err := Open("nebulaio"); d != nil || !errs.Is(err, kind) || !strings.Contains(err.Error(), Variable+"="+path) {
			t.Errorf("%s: %v, %v", path, d, err)
		}
	}
}
