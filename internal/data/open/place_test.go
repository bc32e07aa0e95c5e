// SPDX-License-Identifier: Apache-2.0

package open_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/data/dataset"
	"github.com/nebulaio/nebulaio/internal/data/mds"
	"github.com/nebulaio/nebulaio/internal/data/megatron"
	"github.com/nebulaio/nebulaio/internal/data/npy"
	"github.com/nebulaio/nebulaio/internal/data/open"
	"github.com/nebulaio/nebulaio/internal/data/tfrecord"
	"github.com/nebulaio/nebulaio/internal/data/wds"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/format"
	"github.com/nebulaio/nebulaio/internal/format/safetensors"
	"github.com/nebulaio/nebulaio/internal/vfs"
)

// memory is a Place in memory. Its files are listed in a random order.
type memory map[string][]byte

func (m memory) Stat(ctx context.Context, name string) (open.Entry, bool, error) {
	if b, ok := m[name]; ok {
		return open.Entry{Name: name, Size: int64(len(b))}, false, ctx.Err()
	}
	for other := range m {
		if strings.HasPrefix(other, strings.TrimSuffix(name, "/")+"/") {
			return open.Entry{Name: name}, true, nil
		}
	}
	return open.Entry{}, false, errs.Wrap("open data set", name, fs.ErrNotExist)
}

func (m memory) List(ctx context.Context, folder string, _ open.Within, each func(open.Entry) error) error {
	for name, b := range m {
		if folder == "." || strings.HasPrefix(name, strings.TrimSuffix(folder, "/")+"/") {
			if err := each(open.Entry{Name: name, Size: int64(len(b))}); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

func (m memory) Open(ctx context.Context, names []string) ([]dataset.Opened, []error) {
	out, fails := make([]dataset.Opened, len(names)), make([]error, len(names))
	for i, name := range names {
		b, ok := m[name]
		if fails[i] = ctx.Err(); fails[i] == nil && !ok {
			fails[i] = errs.Wrap("open", name, fs.ErrNotExist)
		}
		out[i].File = vfs.NewRemote(name, int64(len(b)), content(b))
	}
	return out, fails
}

// content is a file in memory.
type content []byte

func (c content) Fetch(_ context.Context, off, n int64) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(c[off : off+n])), nil
}
func (content) Parallel() int   { return 1 }
func (content) Notes() []string { return nil }

// must opens data that has no mistake.
func must(t *testing.T, p open.Place, o open.Options, sources ...string) *open.Data {
	t.Helper()
	d, err := open.Open(t.Context(), p, sources, o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// refused opens data with a mistake, and checks the kind and the words of the error.
func refused(t *testing.T, p open.Place, o open.Options, kind errs.Kind, source string, says ...string) {
	t.Helper()
	d, err := open.Open(t.Context(), p, []string{source}, o)
	if err == nil {
		t.Errorf("%s: no error, %d samples of the format %s", source, d.Set.Len(), d.Format)
		return
	}
	for _, text := range says {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v\nexpected %q", source, err, text)
		}
	}
	if !errs.Is(err, kind) {
		t.Errorf("%s: %v\nhas the kind %v, expected %v", source, err, errs.KindOf(err), kind)
	}
}

// texts returns the samples of data: for each, its key and its parts by column.
func texts(t *testing.T, p open.Place, d *open.Data) []string {
	t.Helper()
	var out []string
	for n := range d.Set.Len() {
		var row []string
		for c, column := range d.Set.Columns() {
			file, e, ok := d.Set.Part(n, c)
			if !ok {
				continue
			}
			name, _ := d.Set.File(file)
			got, fails := p.Open(t.Context(), []string{name})
			if fails[0] != nil {
				t.Fatal(fails[0])
			}
			b := make([]byte, e.Size)
			if _, err := got[0].File.ReadAt(b, e.Offset); err != nil {
				t.Fatal(err)
			}
			if err := got[0].File.Close(); err != nil {
				t.Fatal(err)
			}
			row = append(row, fmt.Sprintf("%s=%s", column, b))
		}
		out = append(out, strings.Join(append([]string{d.Set.Key(n)}, row...), " "))
	}
	return out
}

func same(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%q\nexpected %q", got, want)
	}
}

// check ends the test on an error.
func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// archive returns a tar archive with the parts "cls" and "txt" of each key, its index and DALI's index.
func archive(t testing.TB, name string, keys ...string) (tar, index, dali []byte) {
	t.Helper()
	var b, x, d bytes.Buffer
	w, err := wds.NewWriter(&b, name, wds.Options{})
	check(t, err)
	for _, key := range keys {
		text := "text of " + key
		_, err := w.Add(key, wds.Part{Ext: "cls", Size: 1, Data: strings.NewReader("7")},
			wds.Part{Ext: "txt", Size: int64(len(text)), Data: strings.NewReader(text)})
		check(t, err)
	}
	shard, err := w.Close()
	check(t, err)
	check(t, wds.WriteIndex(&x, shard))
	check(t, wds.WriteDALI(&d, shard.Table))
	return b.Bytes(), x.Bytes(), d.Bytes()
}

// mdsShards returns an MDS data set of two shards with three samples each.
func mdsShards(t testing.TB, dir string) memory {
	t.Helper()
	m := memory{}
	w, err := mds.NewWriter([]mds.Column{{Name: "n", Encoding: "int", Size: 8}, {Name: "text", Encoding: "str"},
		{Name: "a", Encoding: "ndarray:float32:2,3", Size: 24}}, mds.Options{Hashes: []string{"sha1"}})
	check(t, err)
	var shards []mds.Shard
	for i := range 2 {
		for k := range 3 {
			check(t, w.Add([]byte("8 bytes "), fmt.Appendf(nil, "text %d", 3*i+k), bytes.Repeat([]byte("ABC "), 6)))
		}
		var b bytes.Buffer
		s, err := w.Flush(&b, mds.ShardName(i))
		check(t, err)
		shards, m[dir+mds.ShardName(i)] = append(shards, s), b.Bytes()
	}
	var b bytes.Buffer
	check(t, mds.WriteIndex(&b, shards))
	m[dir+mds.IndexName] = b.Bytes()
	return m
}

// tokens returns the two files of a Megatron data set.
func tokens(t testing.TB, documents ...string) (bin, idx []byte) {
	t.Helper()
	var b, x bytes.Buffer
	w, err := megatron.NewWriter(&b, "x.bin", format.U16, false)
	check(t, err)
	for _, d := range documents {
		check(t, w.Add([]byte(d), 0))
		w.EndDocument()
	}
	check(t, w.WriteIndex(&x, "x.idx"))
	return b.Bytes(), x.Bytes()
}

// records returns a TFRecord file.
func records(t testing.TB, texts ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tfrecord.NewWriter(&b, nil, "x.tfrecord")
	for _, text := range texts {
		check(t, w.Add([]byte(text)))
	}
	check(t, w.Flush())
	return b.Bytes()
}

// array returns a .npy file of rows with the given bytes.
func array(t testing.TB, rows ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := npy.NewWriter(&b, "x.npy", format.U8, []int64{int64(len(rows)), int64(len(rows[0]))})
	check(t, err)
	for _, r := range rows {
		check(t, w.Add([]byte(r)))
	}
	check(t, w.Finish())
	return b.Bytes()
}

// tensors returns a .safetensors file whose data is all bytes from 'a' on.
func tensors(t testing.TB, all ...format.Tensor) []byte {
	t.Helper()
	at := int64(0)
	for i := range all {
		size, err := safetensors.SizeOf(all[i].DType, all[i].Shape)
		check(t, err)
		all[i].Offset, all[i].Size = at, size
		at += size
	}
	b, err := safetensors.EncodeHeader(all, nil, 8)
	check(t, err)
	for i := range at {
		b = append(b, byte('a'+i%26))
	}
	return b
}

// sums returns the checksums of a file, as they lie beside it.
func sums(b []byte) []byte {
	s := &checksum.Sums{Size: int64(len(b)), Block: checksum.DefaultBlock}
	for rest := b; len(rest) > 0; rest = rest[min(len(rest), checksum.DefaultBlock):] {
		s.Blocks = append(s.Blocks, checksum.Of(rest[:min(len(rest), checksum.DefaultBlock)]))
	}
	return s.Encode()
}

// with returns a copy of a place with more files.
func (m memory) with(name string, b []byte) memory {
	out := maps.Clone(m)
	out[name] = b
	return out
}
