// SPDX-License-Identifier: Apache-2.0

package place

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
)

func write(t testing.TB, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func keysOf(t testing.TB, w Walker) []string {
	t.Helper()
	var keys []string
	if err := w.Walk(t.Context(), func(e Entry) error {
		keys = append(keys, e.Key)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return keys
}

// A directory is listed in the order in which a bucket lists the same keys.
func TestLocalOrderIsThatOfKeys(t *testing.T) {
	dir := t.TempDir()
	names := []string{"a/x", "a.b", "a-b/c", "a0", "A", "b/c/d", "b/c-d", "b/c.d/e", "é", "zz/\xff\xfe"}
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var parts []string
		for range 1 + r.IntN(4) {
			parts = append(parts, "d"+string(rune("-./0a"[r.IntN(2)]))+string(rune('a'+r.IntN(3))))
		}
		names = append(names, "r/"+strings.Join(parts, "/")+".f")
	}
	write(t, dir, names...)
	got := keysOf(t, Tree{Place: Place{Path: dir}})
	want := slices.Clone(names)
	slices.Sort(want)
	if want = slices.Compact(want); !slices.Equal(got, want) {
		t.Errorf("got %q, expected %q", got, want)
	}
}

func TestLocalLinksAndOddFiles(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	write(t, dir, "f", "d/g")
	write(t, other, "h")
	for link, to := range map[string]string{"file": "f", "dir": other, "loop": ".", "d/up": "..", "nothing": "gone"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	var skipped []string
	tree := Tree{Place: Place{Path: dir}, Skipped: func(path, _ string) { skipped = append(skipped, filepath.Base(path)) }}
	linked := map[string]bool{}
	if err := tree.Walk(t.Context(), func(e Entry) error { linked[e.Key] = e.Linked; return nil }); err != nil {
		t.Fatal(err)
	}
	if len(linked) != 4 || !linked["dir/h"] || !linked["file"] || linked["f"] || linked["d/g"] {
		t.Errorf("%v", linked)
	}
	slices.Sort(skipped)
	if !slices.Equal(skipped, []string{"loop", "nothing", "up"}) {
		t.Errorf("skipped %q", skipped)
	}
	for _, path := range []string{filepath.Join(dir, "f"), filepath.Join(dir, "gone")} {
		if err := (Tree{Place: Place{Path: path}}).Walk(t.Context(), func(Entry) error { return nil }); err == nil {
			t.Errorf("%s was listed", path)
		}
	}
	stop := errors.New("stop")
	if err := tree.Walk(t.Context(), func(Entry) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tree.Walk(ctx, func(Entry) error { return nil }); !errs.Is(err, errs.Cancelled) {
		t.Errorf("%v", err)
	}
}

// list is a Walker of given keys.
type list struct {
	keys []string
	err  error
}

func (l list) Walk(ctx context.Context, each func(Entry) error) error {
	for _, k := range l.keys {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := each(Entry{Key: k, Size: int64(len(k))}); err != nil {
			return err
		}
	}
	return l.err
}

func merged(a, b Walker) (string, error) {
	var out []string
	err := Merge(context.Background(), a, b, func(p Pair) error {
		switch {
		case p.A == nil:
			out = append(out, ">"+p.Key())
		case p.B == nil:
			out = append(out, "<"+p.Key())
		default:
			out = append(out, "="+p.Key())
		}
		return nil
	})
	return strings.Join(out, " "), err
}

func TestMerge(t *testing.T) {
	for _, c := range []struct{ a, b, want string }{
		{"", "", ""}, {"a b", "a b", "=a =b"}, {"a b", "", "<a <b"}, {"", "a", ">a"},
		{"a c d/ e", "b c d/x", "<a >b =c >d/x <e"},
	} {
		got, err := merged(list{keys: strings.Fields(c.a)}, list{keys: strings.Fields(c.b)})
		if err != nil || got != c.want {
			t.Errorf("%q and %q: %q, %v", c.a, c.b, got, err)
		}
	}
	many := list{}
	for i := range 3 * walkAhead {
		many.keys = append(many.keys, fmt.Sprintf("%09d", i))
	}
	broken := errors.New("broken")
	for _, c := range [][2]Walker{{many, list{err: broken}}, {list{err: broken}, many}, {list{many.keys, broken}, many}} {
		if _, err := merged(c[0], c[1]); !errors.Is(err, broken) {
			t.Errorf("%v", err)
		}
	}
	if err := Merge(t.Context(), many, many, func(Pair) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	f := filterOf(t, "-*", "+*5")
	if got := keysOf(t, f.Of(many)); len(got) != len(many.keys)/10 {
		t.Errorf("%d keys", len(got))
	}
}
