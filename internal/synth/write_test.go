// SPDX-License-Identifier: Apache-2.0

package synth

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
	"github.com/nebulaio/nebulaio/internal/format/safetensors"
)

func shapes(t *testing.T, name string) []format.Tensor {
	t.Helper()
	ts, err := Shapes(name)
	if err != nil {
		t.Fatal(err)
	}
	return ts
}

// verify parses a file and compares its data with the content of seed.
func verify(t *testing.T, want *format.File, seed uint64) {
	t.Helper()
	got, err := safetensors.ParseFile(want.Path, safetensors.Strict)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("parsed %+v, expected %+v", got, want)
	}
	b, err := os.ReadFile(want.Path)
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, want.Size-want.DataStart)
	Content(seed, want.DataStart, data)
	if !bytes.Equal(b[want.DataStart:], data) {
		t.Errorf("%s: the data is not the content of its seed", want.Path)
	}
	for _, p := range safetensors.Inspect(got) {
		if p.Severity == safetensors.Warn {
			t.Errorf("%s: %+v", want.Path, p)
		}
	}
}

func ls(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestWriteOne(t *testing.T) {
	big := []format.Tensor{tensor("big", format.BF16, 3<<20), tensor("odd", format.U8, 12345)}
	for _, c := range []struct {
		name   string
		shapes []format.Tensor
		align  int64
	}{{"tiny", shapes(t, "tiny"), 0}, {"tiny page", shapes(t, "tiny"), safetensors.AlignPage}, {"several pieces", big,
		0}, {"header of pieces", big, 8 << 20}, {"nothing", nil, 0}} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "m.safetensors")
			if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
			var last, total int64
			files, err := Write(t.Context(), path, Options{Shapes: c.shapes, Seed: 5, Align: c.align, Workers: 3,
				Progress: func(done, all int64) {
					if done <= last {
						t.Errorf("progress went from %d to %d", last, done)
					}
					last, total = done, all
				}})
			if err != nil {
				t.Fatal(err)
			}
			if len(files) != 1 || files[0].Path != path || last != total || total != files[0].Size {
				t.Fatalf("files %+v, progress %d of %d", files, last, total)
			}
			if c.align > 0 && files[0].DataStart%c.align != 0 {
				t.Errorf("the data starts at %d", files[0].DataStart)
			}
			if len(c.shapes) == 0 {
				files[0].Tensors = []format.Tensor{}
			}
			verify(t, files[0], 5)
			if names := ls(t, dir); len(names) != 1 {
				t.Errorf("left behind: %q", names)
			}
		})
	}
}

func TestWriteShards(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model")
	ts := shapes(t, "tiny")
	files, err := Write(t.Context(), dir, Options{Shapes: ts, Seed: 9, ShardSize: 2000})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 3 {
		t.Fatalf("%d files", len(files))
	}
	paths, ix, err := safetensors.Resolve(dir)
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for i, f := range files {
		if f.Path != paths[i] {
			t.Errorf("file %d is %s, expected %s", i, f.Path, paths[i])
		}
		verify(t, f, FileSeed(9, i))
		sum += f.Size - f.DataStart
	}
	if err := ix.Check(files); err != nil || ix.TotalSize != sum || len(ix.Weights) != len(ts) {
		t.Errorf("index %+v: %v", ix, err)
	}
	if names := ls(t, dir); len(names) != len(files)+1 || !strings.HasPrefix(names[0], "model-00001-of-000") {
		t.Errorf("directory has %q", names)
	}
}

// TestCancel ends the context after each piece in turn: nothing is left, and
// what was there before stays.
func TestCancel(t *testing.T) {
	ts := shapes(t, "tiny")
	for _, shard := range []int64{0, 2000} {
		for stop := range 6 {
			root := t.TempDir()
			path := filepath.Join(root, "m")
			ctx, cancel := context.WithCancel(t.Context())
			calls := 0
			_, err := Write(ctx, path, Options{Shapes: ts, ShardSize: shard, Progress: func(int64, int64) {
				if calls++; calls == stop {
					cancel()
				}
			}})
			cancel()
			if stop == 0 || calls < stop {
				if err != nil {
					t.Errorf("shard size %d, no stop: %v", shard, err)
				}
				continue
			}
			if !errs.Is(err, errs.Cancelled) || len(ls(t, root)) != 0 {
				t.Errorf("shard size %d, stop %d: error is %v, left behind %q", shard, stop, err, ls(t, root))
			}
		}
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "m")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Write(ctx, path, Options{Shapes: ts}); !errs.Is(err, errs.Cancelled) {
		t.Error(err)
	}
	if b, _ := os.ReadFile(path); string(b) != "old" || len(ls(t, dir)) != 1 {
		t.Errorf("file is %q in %q", b, ls(t, dir))
	}
}

func TestWriteErrors(t *testing.T) {
	dir := t.TempDir()
	ts := shapes(t, "tiny")
	dup := append(shapes(t, "tiny"), ts[0])
	for want, c := range map[string]struct {
		path string
		o    Options
		kind errs.Kind
	}{
		"shard size is -1":     {"m", Options{Shapes: ts, ShardSize: -1}, errs.Invalid},
		"the alignment is 7":   {"m", Options{Shapes: ts, Align: 7}, errs.Invalid},
		"is a duplicate":       {"m", Options{Shapes: dup}, errs.Invalid},
		"\"bool.matrix\" is a": {"m", Options{Shapes: dup, ShardSize: 64}, errs.Invalid},
		"0 shards":             {"m", Options{ShardSize: 64}, errs.Invalid},
		"dtype is \"X\"":       {"m", Options{ShardSize: 64, Shapes: []format.Tensor{{Name: "a", DType: "X"}}}, errs.Invalid},
		"no such file":         {"none/m", Options{Shapes: ts}, errs.NotFound},
	} {
		_, err := Write(t.Context(), filepath.Join(dir, c.path), c.o)
		if !errs.Is(err, c.kind) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), dir) {
			t.Errorf("error is %v (%v), expected %q", err, errs.KindOf(err), want)
		}
		if names := ls(t, dir); len(names) != 0 {
			t.Errorf("%s: left behind %q", want, names)
		}
	}
	// A rename that fails, onto a directory, removes the temporary file.
	if err := os.MkdirAll(filepath.Join(dir, "d", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(t.Context(), filepath.Join(dir, "d"), Options{Shapes: ts}); err == nil || len(ls(t, dir)) != 1 {
		t.Errorf("error is %v, directory has %q", err, ls(t, dir))
	}
	// More than any file system holds fails before a byte is written.
	huge := []format.Tensor{{Name: "a", DType: format.U8, Shape: []int64{1 << 46}}}
	wrote := false
	_, err := Write(t.Context(), filepath.Join(dir, "huge"),
		Options{Shapes: huge, Progress: func(int64, int64) { wrote = true }})
	if err == nil || wrote || len(ls(t, dir)) != 1 {
		t.Errorf("error is %v, wrote %v, directory has %q", err, wrote, ls(t, dir))
	}
	if e := wrap("m", syscall.ENOSPC); errs.FixOf(e) == "" || !errs.Is(e, errs.IO) {
		t.Error(e)
	}
}
