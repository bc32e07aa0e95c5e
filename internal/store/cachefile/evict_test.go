// SPDX-License-Identifier: Apache-2.0

package cachefile_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/cachefile"
)

// small is the size of objects in tests of eviction: one page, inline.
const small = 4096

// serve reads an object through the cache as a server does, and reports whether it was a hit.
func serve(t *testing.T, s *cachefile.Store, id object.Identity) bool {
	t.Helper()
	e, ok := s.Lookup(id, id.Size)
	if !ok {
		fill(t, s, id)
		return false
	}
	defer e.Release()
	if _, err := read(e, object.Range{N: id.Size}); err != nil {
		t.Fatal(err)
	}
	return true
}

// pass serves n objects once, in an order, and returns the share of hits.
func pass(t *testing.T, s *cachefile.Store, name string, n int, r *rand.Rand) float64 {
	hits := 0
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	if r != nil {
		r.Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] })
	}
	for _, i := range order {
		if serve(t, s, identity(fmt.Sprint(name, i), small)) {
			hits++
		}
	}
	return float64(hits) / float64(n)
}

// A cache of half the data set has hits for half of the reads of each epoch, sequential or shuffled, also after a
// restart, and then takes a new working set within four passes.
func TestEpochsAndANewWorkingSet(t *testing.T) {
	const room = 400
	for _, shuffled := range []bool{false, true} {
		t.Run(fmt.Sprint("shuffled ", shuffled), func(t *testing.T) {
			var r *rand.Rand
			if shuffled {
				r = rand.New(rand.NewPCG(7, 0))
			}
			dir := t.TempDir()
			limit := func(o *cachefile.Options) { o.Capacity = room * small }
			s := open(t, dir, limit)
			var hits []float64
			for epoch := range 6 {
				hits = append(hits, pass(t, s, "data", 2*room, r))
				if epoch == 3 {
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					s = open(t, dir, limit)
				}
				if st := s.Stats(); st.Bytes > st.Capacity {
					t.Errorf("%d bytes in a cache of %d", st.Bytes, st.Capacity)
				}
			}
			for epoch, h := range hits[2:] {
				if h < 0.45 {
					t.Errorf("epoch %d: %.3f hits", epoch+3, h)
				}
			}
			var fresh []float64
			for range 6 {
				fresh = append(fresh, pass(t, s, "fresh", room*4/10, r))
			}
			t.Logf("epochs %.3f, new working set %.3f, %+v", hits, fresh, s.Stats())
			if fresh[4] < 0.99 {
				t.Errorf("new working set: %.3f", fresh)
			}
		})
	}
}

// Superseded content goes first, then content of other nodes, then what was read longest ago. Pinned content and
// content in use stay.
func TestOrderOfEviction(t *testing.T) {
	now := time.Unix(0, 0)
	s := open(t, t.TempDir(), func(o *cachefile.Options) {
		o.Capacity, o.High, o.Low = 10*small, 1, 1
		o.Now = func() time.Time { return now }
	})
	id := func(i int) object.Identity { return identity(fmt.Sprint("k", i), small) }
	for i := range 10 {
		s.Lookup(id(i), small)
		if !fill(t, s, id(i)) {
			t.Fatal("no room")
		}
	}
	if fill(t, s, id(10)) {
		t.Fatal("evicted what was just read")
	}
	if err := s.Pin(t.Context(), cachefile.Pin{Origin: id(0).Origin, Key: "k0"}); err != nil {
		t.Fatal(err)
	}
	used, _ := s.Peek(id(1))
	for i, mark := range map[int]string{5: "foreign", 6: "superseded"} {
		e, _ := s.Peek(id(i))
		e.Foreign(mark == "foreign")
		e.Release()
		other := id(i)
		other.ETag = "other"
		if mark == "superseded" {
			if err := s.Remember(other.Origin, other.Key, cachefile.Known{Identity: other}); err != nil {
				t.Fatal(err)
			}
		}
	}
	next := 10
	wantGone := func(gone int) {
		t.Helper()
		if !fill(t, s, id(next)) {
			t.Fatalf("no room, expected that %d goes", gone)
		}
		next++
		if _, ok := s.Stat(id(gone)); ok {
			t.Errorf("%d is still there", gone)
		}
	}
	wantGone(6)
	wantGone(5)
	if fill(t, s, id(next)) {
		t.Error("the Guard let a fresh entry go")
	}
	for i := range 100 {
		s.Lookup(identity(fmt.Sprint("scan", i), small), small)
	}
	for _, gone := range []int{2, 3, 4, 7} {
		wantGone(gone)
	}
	if _, ok := s.Stat(id(0)); !ok {
		t.Error("a pinned entry is gone")
	}
	if _, ok := s.Stat(id(1)); !ok {
		t.Error("an entry in use is gone")
	}
	used.Release()
	if st := s.Stats(); st.Evicted != 6 || st.Refused != 2 || st.Bytes != 10*small {
		t.Errorf("%+v", st)
	}
}

// A pinned key is admitted without asking the Guard, and content larger than the cache never is.
func TestAdmissionOfPinsAndGiants(t *testing.T) {
	s := open(t, t.TempDir(), func(o *cachefile.Options) { o.Capacity = 10 * small })
	for i := range 12 {
		fill(t, s, identity(fmt.Sprint("k", i), small))
	}
	pinned := identity("pinned", small)
	if fill(t, s, pinned) {
		t.Error("a full cache took more")
	}
	if err := s.Pin(t.Context(), cachefile.Pin{Origin: pinned.Origin, Key: "pin", Prefix: true}); err != nil {
		t.Fatal(err)
	}
	if !fill(t, s, pinned) {
		t.Error("a pinned key found no room")
	}
	if fill(t, s, identity("pinned giant", 11*small)) {
		t.Error("content larger than the cache was admitted")
	}
	if st := s.Stats(); st.Evicted != 1 || st.Bytes != 10*small {
		t.Errorf("%+v", st)
	}
}

// fullFS refuses writes to data files after so many bytes.
type fullFS struct {
	vfs.FS
	left *int64
}

type fullFile struct {
	vfs.File
	left *int64
}

func (f fullFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.OpenReadWrite(name, c, opts...)
	return fullFile{file, f.left}, err
}

func (f fullFile) WriteAt(p []byte, off int64) (int, error) {
	if len(p) > 1 {
		if *f.left -= int64(len(p)); *f.left < 0 {
			return 0, syscall.ENOSPC
		}
	}
	return f.File.WriteAt(p, off)
}

// A full disk is not fatal: the write is given up, and the entry keeps what it has.
func TestFullDisk(t *testing.T) {
	left := int64(2*mib + 500)
	s := open(t, "cache", func(o *cachefile.Options) { o.FS = fullFS{vfs.NewMem(), &left} })
	id := identity("k", 4*mib)
	data := contentOf(id)
	e, _, err := s.Admit(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Release()
	for i := range int64(3) {
		err = e.Put(t.Context(), i, data[i*mib:(i+1)*mib])
	}
	if !errors.Is(err, object.ErrNoSpace) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("%v", err)
	}
	if got, err := read(e, object.Range{N: 2 * mib}); err != nil || len(got) != 2*mib {
		t.Errorf("%d bytes: %v", len(got), err)
	}
	if m := e.Missing(object.Range{N: id.Size}); len(m) != 1 || m[0].Off != 2*mib {
		t.Errorf("missing %v", m)
	}
	if st := s.Stats(); st.Bytes != 2*mib || st.Abandoned != 1 || st.Pending != 2*mib {
		t.Errorf("%+v", st)
	}
	left = 10 * mib
	fill(t, s, id)
	wantWarm(t, s, id)
}

// fullLog refuses writes to the database's log until a data file is removed.
type fullLog struct {
	vfs.FS
	full *atomic.Bool
}

type fullLogFile struct {
	vfs.File
	full *atomic.Bool
}

func (f fullLog) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, c)
	if strings.HasSuffix(name, ".log") {
		return fullLogFile{file, f.full}, err
	}
	return file, err
}

func (f fullLog) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.ReuseForWrite(old, name, c)
	return fullLogFile{file, f.full}, err
}

func (f fullLog) Remove(name string) error {
	if strings.Contains(name, "data/") {
		f.full.Store(false)
	}
	return f.FS.Remove(name)
}

func (f fullLogFile) Write(p []byte) (int, error) {
	if f.full.Load() {
		return 0, syscall.ENOSPC
	}
	return f.File.Write(p)
}

// If the database finds no space, the cache gives up the content that was read longest ago.
func TestContentGivesWayToTheDatabase(t *testing.T) {
	var full atomic.Bool
	s := open(t, "cache", func(o *cachefile.Options) { o.FS = fullLog{vfs.NewMem(), &full} })
	old, fresh := identity("old", mib), identity("fresh", 100)
	fill(t, s, old)
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	full.Store(true)
	fill(t, s, fresh)
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantWarm(t, s, fresh)
	if _, ok := s.Stat(old); ok || full.Load() {
		t.Error("nothing gave way")
	}
}
