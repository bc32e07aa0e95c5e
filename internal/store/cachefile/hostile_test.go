// SPDX-License-Identifier: Apache-2.0

package cachefile

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/test/effort"
)

func hostileOptions(dir string, tell func(error)) Options {
	return Options{Dir: dir, Capacity: 1 << 30, FlushEvery: -1, ColdTime: -1, Reserve: -1, Failed: tell}
}

// manyIDs returns identities of small contents.
func manyID(i int) object.Identity {
	return object.Identity{Origin: "https://s3.example/models/", Key: fmt.Sprintf("llama/part-%07d.safetensors", i),
		ETag: "d41d8cd98f00b204e9800998ecf8427e", Size: 700}
}

func manyContent(i int) []byte { return bytes.Repeat(fmt.Appendf(nil, "%07d", i), 100) }

// addMany fills the cache with small contents.
func addMany(t testing.TB, s *Store, n int) {
	t.Helper()
	for i := range n {
		e, ok, err := s.Admit(context.Background(), manyID(i))
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		if err := e.Put(context.Background(), 0, manyContent(i)); err != nil {
			t.Fatal(err)
		}
		e.Release()
	}
}

// Records that were changed by chance never bring wrong bytes or a crash: their entries are right or absent.
func TestHostileRecords(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 0))
	for round := range 12 {
		dir := t.TempDir()
		var told int
		s, err := Open(t.Context(), hostileOptions(dir, func(error) { told++ }))
		if err != nil {
			t.Fatal(err)
		}
		big := object.Identity{Origin: "o", Key: "big", Size: 3*object.SumBlock + 9}
		content := bytes.Repeat([]byte("0123456789abcdef"), int(big.Size)/16+1)[:big.Size]
		e, _, err := s.Admit(t.Context(), big)
		if err != nil {
			t.Fatal(err)
		}
		for i := range blocksOf(big.Size) {
			if err := e.Put(t.Context(), i, content[i*object.SumBlock:min((i+1)*object.SumBlock, big.Size)]); err != nil {
				t.Fatal(err)
			}
		}
		e.Release()
		addMany(t, s, 5)
		if err := s.Remember("o", "big", Known{Identity: big, About: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		harm(t, s.meta.db, r)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s, err = Open(t.Context(), hostileOptions(dir, func(error) { told++ }))
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		wantRight(t, s, big, content)
		for i := range 5 {
			wantRight(t, s, manyID(i), manyContent(i))
		}
		s.Known("o", "big")
		if _, err := s.Verify(t.Context(), Match{}, nil); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if st := s.Stats(); st.Bytes < 0 {
			t.Errorf("%+v", st)
		}
		if err := s.Close(); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}

// harm changes some values of the database.
func harm(t *testing.T, db *pebble.DB, r *rand.Rand) {
	t.Helper()
	it, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	b := db.NewBatch()
	for it.First(); it.Valid(); it.Next() {
		if r.IntN(3) > 0 {
			continue
		}
		v := bytes.Clone(it.Value())
		switch r.IntN(5) {
		case 0:
			v = v[:r.IntN(len(v)+1)]
		case 1:
			_ = b.Delete(bytes.Clone(it.Key()), nil)
			continue
		case 2:
			v = append(v, byte(r.Uint32()))
		default:
			if len(v) > 0 {
				v[r.IntN(len(v))] ^= 1 << r.IntN(8)
			}
		}
		if err := b.Set(bytes.Clone(it.Key()), v, nil); err != nil {
			t.Fatal(err)
		}
	}
	_ = it.Close()
	if err := db.Apply(b, pebble.Sync); err != nil {
		t.Fatal(err)
	}
}

// wantRight reads all present blocks of an entry. An error is fine, wrong bytes are not.
func wantRight(t *testing.T, s *Store, id object.Identity, content []byte) {
	t.Helper()
	e, ok := s.Lookup(id, id.Size)
	if !ok {
		return
	}
	defer e.Release()
	for i := range blocksOf(id.Size) {
		r := object.Range{Off: i * object.SumBlock, N: min(object.SumBlock, id.Size-i*object.SumBlock)}
		body, err := e.Section(r)
		if err != nil {
			continue
		}
		got, err := io.ReadAll(body)
		_ = body.Close()
		if err == nil && !bytes.Equal(got, content[r.Off:r.Off+r.N]) {
			t.Fatalf("%s: block %d is wrong", id.Key, i)
		}
	}
}

// A damaged database is told, and the cache begins anew.
func TestDamagedDatabase(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(t.Context(), hostileOptions(dir, nil))
	if err != nil {
		t.Fatal(err)
	}
	addMany(t, s, 10)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	manifests, _ := filepath.Glob(filepath.Join(dir, "meta", "MANIFEST-*"))
	for _, m := range manifests {
		b, err := os.ReadFile(m)
		if err != nil {
			t.Fatal(err)
		}
		for i := range b {
			b[i] ^= 0x55
		}
		if err := os.WriteFile(m, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var told []error
	s, err = Open(t.Context(), hostileOptions(dir, func(err error) { told = append(told, err) }))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if len(told) == 0 || s.Stats().Entries != 0 {
		t.Errorf("told %v, %+v", told, s.Stats())
	}
	addMany(t, s, 3)
}

// Very many entries are still there after a restart, which reads only the index. The test prints the time.
func TestManyEntriesAfterARestart(t *testing.T) {
	n := effort.Rounds{Test: 500, CI: 2000}.Of(t) // entries
	dir := t.TempDir()
	s, err := Open(t.Context(), hostileOptions(dir, nil))
	if err != nil {
		t.Fatal(err)
	}
	addMany(t, s, n)
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range n { // read times are in the database too
		if e, ok := s.Lookup(manyID(i), 700); ok {
			e.Release()
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	s, err = Open(t.Context(), hostileOptions(dir, nil))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d entries, opened in %v", n, time.Since(begin))
	defer s.Close()
	if st := s.Stats(); st.Entries != int64(n) || st.Whole != int64(n) {
		t.Errorf("%+v", st)
	}
	for i := 0; i < n; i += max(1, n/100) {
		if _, ok := s.Peek(manyID(i)); !ok {
			t.Fatalf("entry %d is gone", i)
		}
		wantRight(t, s, manyID(i), manyContent(i))
	}
}
