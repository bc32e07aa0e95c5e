// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/object"
)

// openMem opens a store in memory, with little room in memory tables.
func openMem(t testing.TB, fs vfs.FS, change ...func(*Options)) *Store {
	t.Helper()
	o := Options{Dir: "store", FS: fs, MemTable: 1 << 20}
	for _, c := range change {
		c(&o)
	}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closed(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func content1(n, seed int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8 + seed*31)
	}
	return b
}

func putBytes(t testing.TB, s *Store, bucket, key string, b []byte) object.Info {
	t.Helper()
	i, err := s.Put(context.Background(), object.Put{Bucket: bucket, Key: key, Size: int64(len(b)),
		Body: bytes.NewReader(b)})
	if err != nil {
		t.Fatalf("put %q: %v", key, err)
	}
	return i
}

func readAll(t testing.TB, s *Store, ref object.Ref) []byte {
	t.Helper()
	c, err := s.Open(context.Background(), ref)
	if err != nil {
		t.Fatalf("open %v: %v", ref, err)
	}
	defer c.Close()
	body, err := c.Section(object.Range{N: c.Info().Size})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	b, err := io.ReadAll(body)
	if err != nil {
		t.Fatalf("read %v: %v", ref, err)
	}
	return b
}

func makeBucket(t testing.TB, s *Store, b object.Bucket) {
	t.Helper()
	if err := s.CreateBucket(context.Background(), b); err != nil {
		t.Fatal(err)
	}
}

func TestEverythingSurvivesReopening(t *testing.T) {
	fs := vfs.NewMem()
	s := openMem(t, fs)
	makeBucket(t, s, object.Bucket{Name: "b", Owner: "me", Settings: map[string][]byte{"acl": []byte("x")}})
	sizes := []int{0, 1, 4095, 16 << 10, 16<<10 + 1, 1 << 20, 1<<20 + 1, 3<<20 + 7}
	for i, n := range sizes {
		putBytes(t, s, "b", fmt.Sprint("k", i), content1(n, i))
	}
	for round := range 3 {
		for i, n := range sizes {
			if got := readAll(t, s, object.Ref{Bucket: "b", Key: fmt.Sprint("k", i)}); !bytes.Equal(got, content1(n, i)) {
				t.Fatalf("round %d: %d bytes came back as %d others", round, n, len(got))
			}
		}
		page, err := s.List(t.Context(), object.List{Bucket: "b"})
		if err != nil || len(page.Objects) != len(sizes) {
			t.Fatalf("round %d: %d objects, %v", round, len(page.Objects), err)
		}
		closed(t, s)
		s = openMem(t, fs)
	}
	b, err := s.Bucket(t.Context(), "b")
	if err != nil || b.Owner != "me" || string(b.Settings["acl"]) != "x" {
		t.Fatalf("%+v, %v", b, err)
	}
	closed(t, s)
}

// cutOff is a body that ends early and says so, as those of broken connections do.
type cutOff struct{ r io.Reader }

func (c cutOff) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func TestBodyThatWasCutOffIsNoShorterBody(t *testing.T) {
	s := openMem(t, vfs.NewMem())
	makeBucket(t, s, object.Bucket{Name: "b"})
	for _, n := range []int{0, 1, 100, 16 << 10, 16<<10 + 1, 2 << 20} {
		_, err := s.Put(t.Context(), object.Put{Bucket: "b", Key: "k", Size: -1,
			Body: cutOff{bytes.NewReader(content1(n, 1))}})
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes of a body of unknown length that was cut off: %v", n, err)
		}
		if _, err := s.Stat(t.Context(), object.Ref{Bucket: "b", Key: "k"}); !errors.Is(err, object.ErrNoSuchKey) {
			t.Errorf("%d bytes of it are visible: %v", n, err)
		}
	}
	closed(t, s)
}
