// SPDX-License-Identifier: Apache-2.0

package place

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
)

func noise(n int, seed int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(seed)}).Read(b)
	return b
}

func findings(t *testing.T, c Comparison) []string {
	t.Helper()
	var out []string
	if err := c.Run(t.Context(), func(f Finding) error {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s", f.Key, f.Outcome, f.How)))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// Two places are the same if their bytes are, whichever of them has checksums.
func TestVerify(t *testing.T) {
	dir := t.TempDir()
	plain, summed := newFake(t), newFake(t)
	summed.sums = true
	put := func(key string, local, remote []byte) {
		if local != nil {
			write(t, dir, key)
			if err := os.WriteFile(filepath.Join(dir, key), local, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if remote != nil {
			plain.objects["p/"+key], summed.objects["p/"+key] = remote, remote
		}
	}
	big := noise(readRange+readBlock+7, 1)
	flipped := slices.Clone(big)
	flipped[readRange+5] ^= 1
	put("a", noise(10, 1), noise(10, 1))
	put("big", big, big)
	put("empty", []byte{}, []byte{})
	put("extra", nil, noise(1, 1))
	put("flipped", big, flipped)
	put("missing", noise(1, 1), nil)
	put("short", noise(10, 1), noise(9, 1))
	plain.objects["p/"], summed.objects["p/"] = nil, nil
	local := Tree{Place: Place{Path: dir}}
	for name, c := range map[string]struct {
		c   Comparison
		how string
	}{
		"local and plain":     {Comparison{A: local, B: plain.tree("p")}, "read"},
		"local and summed":    {Comparison{A: local, B: summed.tree("p")}, "crc64nvme+read"},
		"one read at a time":  {Comparison{A: local, B: summed.tree("p"), Reads: 1}, "crc64nvme+read"},
		"read, although sums": {Comparison{A: local, B: summed.tree("p"), Read: true}, "read"},
	} {
		want := []string{"a same " + c.how, "big same " + c.how, "empty same size", "extra extra",
			"flipped different " + c.how, "missing missing", "short different size"}
		if got := findings(t, c.c); !slices.Equal(got, want) {
			t.Errorf("%s: %q", name, got)
		}
	}
	unread := newFake(t) // a server of its own: a read that an earlier comparison gave up can arrive late
	unread.sums, unread.objects = true, maps.Clone(summed.objects)
	got := findings(t, Comparison{A: unread.tree("p"), B: unread.tree("p")})
	unread.mu.Lock()
	defer unread.mu.Unlock()
	if got[1] != "big same crc64nvme" || unread.gets != 0 {
		t.Errorf("%q with %d reads", got, unread.gets)
	}
	if got := findings(t, Comparison{A: plain.tree("p"), B: summed.tree("p")}); got[1] != "big same crc64nvme+read" {
		t.Errorf("%q", got)
	}
	f := filterOf(t, "-*", "+b*")
	if got := findings(t, Comparison{A: local, B: plain.tree("p"), Filter: f}); !slices.Equal(got,
		[]string{"big same read"}) {
		t.Errorf("%q", got)
	}
	one := Tree{Place: Place{Path: filepath.Join(dir, "big")}}
	for _, b := range []Tree{plain.tree("p/big"), plain.tree("p/"), plain.tree("p")} {
		if got := findings(t, Comparison{A: one, B: b}); !slices.Equal(got, []string{"big same read"}) {
			t.Errorf("%s: %q", b, got)
		}
	}
	if got := findings(t, Comparison{A: one, B: plain.tree("p/flipped")}); !slices.Equal(got,
		[]string{"big different read"}) {
		t.Errorf("%q", got)
	}
	for _, c := range []Comparison{{A: local, B: one}, {A: one, B: plain.tree("q")}, {A: plain.tree("q"), B: local}} {
		if err := c.Run(t.Context(), func(Finding) error { return nil }); err == nil {
			t.Errorf("%s and %s were compared", c.A, c.B)
		}
	}
}

// The place of a difference is that of the first block that differs.
func TestVerifySaysWhere(t *testing.T) {
	f := newFake(t)
	data := noise(3*readBlock, 2)
	f.objects["x"] = data
	other := slices.Clone(data)
	other[2*readBlock+1] ^= 1
	f.objects["y"] = other
	if err := (Comparison{A: f.tree("x"), B: f.tree("y")}).Run(t.Context(), func(got Finding) error {
		if got.At != 2*readBlock || got.Outcome != Different {
			t.Errorf("%+v", got)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// A side that cannot be read is a finding, and many of them end the comparison.
func TestVerifyOfWhatCannotBeRead(t *testing.T) {
	f := newFake(t)
	dir := t.TempDir()
	for i := range 300 {
		key := fmt.Sprintf("%04d", i)
		write(t, dir, key)
		f.objects["p/"+key] = []byte(key)
	}
	f.odd = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodHead && strings.Contains(r.URL.Path, "/p/") {
			w.WriteHeader(http.StatusForbidden)
			return true
		}
		return false
	}
	n := 0
	err := Comparison{A: Tree{Place: Place{Path: dir}}, B: f.tree("p")}.Run(t.Context(), func(x Finding) error {
		if n++; x.Outcome != Failed || !errs.Is(x.Err, errs.Permission) {
			t.Errorf("%+v", x)
		}
		return nil
	})
	if !errs.Is(err, errs.Permission) || n != mostFailed {
		t.Errorf("%d findings, %v", n, err)
	}
	// Another server: the first one may still be answering requests that were given up.
	whole := newFake(t)
	whole.objects = f.objects
	ctx, cancel := context.WithCancel(t.Context())
	each := func(Finding) error { cancel(); return nil }
	err = Comparison{A: Tree{Place: Place{Path: dir}}, B: whole.tree("p")}.Run(ctx, each)
	if !errs.Is(err, errs.Cancelled) {
		t.Errorf("%v", err)
	}
}

// A file that changes while it is read is never "the same".
func TestVerifyOfAFileThatChanges(t *testing.T) {
	f := newFake(t)
	dir := t.TempDir()
	data := noise(100, 3)
	path := filepath.Join(dir, "x")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f.objects["x"] = data
	f.odd = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet && r.Header.Get("Range") != "" {
			if err := os.WriteFile(path, bytes.Repeat([]byte{1}, 200), 0o600); err != nil {
				t.Error(err)
			}
		}
		return false
	}
	err := Comparison{A: Tree{Place: Place{Path: path}}, B: f.tree("x")}.Run(t.Context(), func(x Finding) error {
		if x.Outcome != Failed || !strings.Contains(x.Err.Error(), "changed") {
			t.Errorf("%+v", x)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
