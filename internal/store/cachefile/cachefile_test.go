// SPDX-License-Identifier: Apache-2.0

package cachefile_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/cachefile"
)

const mib = object.SumBlock

// contentOf returns the bytes that an identity stands for in tests.
func contentOf(id object.Identity) []byte {
	h := id.Hash()
	var part [64 << 10]byte
	_, _ = rand.NewChaCha8(h).Read(part[:min(int64(len(part)), id.Size)])
	b := make([]byte, id.Size)
	for i := 0; i < len(b); i += len(part) {
		binary.LittleEndian.PutUint64(part[:], uint64(i)^binary.LittleEndian.Uint64(h[:])) // no two parts are equal
		copy(b[i:], part[:])
	}
	return b
}

func identity(key string, size int64) object.Identity {
	return object.Identity{Origin: "https://s3.example/bucket/", Key: key, ETag: "etag-" + key, Size: size}
}

// open opens a cache in which nothing happens by itself.
func open(t *testing.T, dir string, change func(*cachefile.Options)) *cachefile.Store {
	t.Helper()
	o := cachefile.Options{Dir: dir, Capacity: 1 << 30, FlushEvery: -1, FlushBytes: 1 << 40, ColdTime: -1, Reserve: -1,
		Failed: func(err error) { t.Logf("background: %v", err) }}
	if change != nil {
		change(&o)
	}
	s, err := cachefile.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// fill puts all blocks of id, and returns false if the cache does not keep it.
func fill(t testing.TB, s *cachefile.Store, id object.Identity) bool {
	t.Helper()
	e, ok, err := s.Admit(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	if !ok {
		return false
	}
	defer e.Release()
	data := contentOf(id)
	for i := int64(0); i*mib < id.Size; i++ {
		if err := e.Put(context.Background(), i, data[i*mib:min((i+1)*mib, id.Size)]); err != nil {
			t.Fatal(err)
		}
	}
	if !e.Whole() {
		t.Fatal("a filled entry is not whole")
	}
	return true
}

// read reads a range of an entry.
func read(e *cachefile.Entry, r object.Range) ([]byte, error) {
	b, err := e.Section(r)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	return io.ReadAll(b)
}

// wantWarm ends the test unless all of id is in the cache and right.
func wantWarm(t testing.TB, s *cachefile.Store, id object.Identity) {
	t.Helper()
	e, ok := s.Lookup(id, id.Size)
	if !ok {
		t.Fatalf("%s is not in the cache", id.Key)
	}
	defer e.Release()
	got, err := read(e, object.Range{N: id.Size})
	if err != nil || !bytes.Equal(got, contentOf(id)) {
		t.Fatalf("%s: %d bytes: %v", id.Key, len(got), err)
	}
}

func reopen(t *testing.T, s *cachefile.Store, dir string) *cachefile.Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return open(t, dir, nil)
}

// Content of all sizes is readable at once, and after the cache was closed and opened.
func TestContentStaysAcrossARestart(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	var ids []object.Identity
	for _, n := range []int64{1, 100, 4096, 4097, mib - 1, mib, mib + 1, 3*mib + 7, 65*mib + 5} {
		id := identity(fmt.Sprint("k", n), n)
		ids = append(ids, id)
		fill(t, s, id)
		wantWarm(t, s, id)
	}
	before := s.Stats()
	s = reopen(t, s, dir)
	for _, id := range ids {
		wantWarm(t, s, id)
		if i, ok := s.Stat(id); !ok || !i.Whole || i.Bytes != id.Size || i.Inline != (id.Size <= 4096) {
			t.Errorf("%+v", i)
		}
	}
	if after := s.Stats(); after.Bytes != before.Bytes || after.Entries != before.Entries ||
		after.Whole != before.Entries {
		t.Errorf("%+v became %+v", before, after)
	}
}

// A partly filled entry says what is missing, and goes on after a restart.
func TestPartsOfAnEntry(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	id := identity("parts", 5*mib+10)
	data := contentOf(id)
	e, _, err := s.Admit(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []int64{1, 2, 5} {
		if err := e.Put(t.Context(), i, data[i*mib:min((i+1)*mib, id.Size)]); err != nil {
			t.Fatal(err)
		}
	}
	check := func(e *cachefile.Entry) {
		t.Helper()
		want := []object.Range{{Off: 0, N: mib}, {Off: 3 * mib, N: 2 * mib}}
		if got := e.Missing(object.Range{N: id.Size}); !slices.Equal(got, want) {
			t.Errorf("missing %v, expected %v", got, want)
		}
		if got := e.Missing(object.Range{Off: mib + 5, N: mib}); got != nil {
			t.Errorf("missing %v of present blocks", got)
		}
		if got, err := read(e, object.Range{Off: mib + 5, N: mib}); err != nil || !bytes.Equal(got, data[mib+5:2*mib+5]) {
			t.Errorf("%d bytes: %v", len(got), err)
		}
		if _, err := read(e, object.Range{Off: 2 * mib, N: mib + 1}); !errors.Is(err, cachefile.ErrAbsent) ||
			!errs.Is(err, errs.NotFound) {
			t.Errorf("read of an absent block: %v", err)
		}
		if _, err := e.Section(object.Range{Off: id.Size, N: 1}); !errors.Is(err, object.ErrInvalidRange) {
			t.Errorf("range outside: %v", err)
		}
		if _, err := e.Sums(0, 2); !errors.Is(err, cachefile.ErrAbsent) {
			t.Errorf("sums of an absent block: %v", err)
		}
		sums, err := e.Sums(5, 9)
		if err != nil || !slices.Equal(sums, []uint64{checksum.Of(data[5*mib:])}) {
			t.Errorf("sums %x: %v", sums, err)
		}
		if e.Whole() {
			t.Error("whole")
		}
		if _, err := e.Open(false); !errors.Is(err, cachefile.ErrAbsent) {
			t.Errorf("handed out: %v", err)
		}
	}
	check(e)
	for _, bad := range []struct {
		block int64
		n     int
	}{{-1, mib}, {6, 10}, {0, mib - 1}, {5, mib}} {
		if err := e.Put(t.Context(), bad.block, make([]byte, bad.n)); !errs.Is(err, errs.Invalid) {
			t.Errorf("block %d of %d bytes: %v", bad.block, bad.n, err)
		}
	}
	if err := e.Put(t.Context(), 1, make([]byte, mib)); !errs.Is(err, errs.Corrupt) {
		t.Errorf("other bytes for a present block: %v", err)
	}
	e.Release()
	s = reopen(t, s, dir)
	e, ok := s.Lookup(id, 10)
	if !ok {
		t.Fatal("lost")
	}
	check(e)
	e.Release()
	fill(t, s, id)
	wantWarm(t, s, id)
}

// Bytes that were put go through a socket unchanged.
func TestSendfile(t *testing.T) {
	s := open(t, t.TempDir(), nil)
	id := identity("sent", 3*mib+11)
	fill(t, s, id)
	e, _ := s.Lookup(id, id.Size)
	defer e.Release()
	for range 2 { // compared, and compared before
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan []byte, 1)
		go func() {
			c, err := l.Accept()
			if err != nil {
				got <- nil
				return
			}
			b, _ := io.ReadAll(c)
			got <- b
		}()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		body, err := e.Section(object.Range{Off: 5, N: id.Size - 6})
		if err != nil {
			t.Fatal(err)
		}
		if n, err := body.WriteTo(c); err != nil || n != id.Size-6 {
			t.Errorf("%d bytes: %v", n, err)
		}
		_ = c.Close()
		if b := <-got; !bytes.Equal(b, contentOf(id)[5:id.Size-1]) {
			t.Errorf("%d bytes arrived, and are not the content", len(b))
		}
		_ = body.Close()
		_ = l.Close()
	}
}

// A flipped bit is noticed before any byte of its block is returned. The block is absent afterwards, also after a
// restart, and can be put again.
func TestFlippedBits(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	id := identity("flipped", 4*mib)
	fill(t, s, id)
	s = reopen(t, s, dir)
	i, _ := s.Stat(id)
	f, err := os.OpenFile(i.File, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := []byte{0}
	_, _ = f.ReadAt(b, 2*mib+77)
	b[0] ^= 4
	if _, err := f.WriteAt(b, 2*mib+77); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	e, _ := s.Lookup(id, id.Size)
	var out bytes.Buffer
	body, _ := e.Section(object.Range{N: id.Size})
	n, err := body.WriteTo(&out)
	if !errors.Is(err, object.ErrDamaged) || n != 2*mib || !bytes.Equal(out.Bytes(), contentOf(id)[:2*mib]) {
		t.Fatalf("%d bytes: %v", n, err)
	}
	_ = body.Close()
	e.Release()
	if st := s.Stats(); st.Damaged != 1 || st.Bytes != 3*mib {
		t.Errorf("%+v", st)
	}
	s = reopen(t, s, dir)
	e, _ = s.Lookup(id, id.Size)
	if m := e.Missing(object.Range{N: id.Size}); !slices.Equal(m, []object.Range{{Off: 2 * mib, N: mib}}) {
		t.Fatalf("missing %v", m)
	}
	e.Release()
	fill(t, s, id)
	wantWarm(t, s, id)
	s = reopen(t, s, dir)
	wantWarm(t, s, id)
}

// An entry whose file is missing, short or long is absent.
func TestLostFiles(t *testing.T) {
	for what, harm := range map[string]func(string) error{
		"missing":   os.Remove,
		"short":     func(p string) error { return os.Truncate(p, mib) },
		"long":      func(p string) error { return os.Truncate(p, 5*mib) },
		"empty":     func(p string) error { return os.Truncate(p, 0) },
		"directory": func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o700)) },
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir, nil)
			id, other := identity("lost", 3*mib), identity("other", 2*mib)
			fill(t, s, id)
			fill(t, s, other)
			i, _ := s.Stat(id)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := harm(i.File); err != nil {
				t.Fatal(err)
			}
			s = open(t, dir, nil)
			if _, ok := s.Lookup(id, id.Size); ok {
				t.Fatal("a broken entry was found")
			}
			wantWarm(t, s, other)
			fill(t, s, id)
			wantWarm(t, s, id)
			if st := s.Stats(); st.Lost != 1 || st.Bytes != 5*mib {
				t.Errorf("%+v", st)
			}
			s = reopen(t, s, dir)
			wantWarm(t, s, id)
			wantWarm(t, s, other)
		})
	}
}

// An entry that is evicted while it is open stays readable, keeps its file until it is released, and loses it then.
func TestEvictedWhileOpen(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	id := identity("open", 2*mib)
	fill(t, s, id)
	e, _ := s.Lookup(id, id.Size)
	file, err := e.Open(false)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	body, _ := e.Section(object.Range{N: id.Size})
	r, err := s.Evict(t.Context(), cachefile.Match{Key: "op"})
	if err != nil || r.Entries != 1 || r.Bytes != 2*mib {
		t.Fatalf("%+v: %v", r, err)
	}
	if _, ok := s.Peek(id); ok {
		t.Error("an evicted entry was found")
	}
	if _, err := os.Stat(e.Path()); err != nil {
		t.Errorf("the file of an open entry: %v", err)
	}
	if err := e.Put(t.Context(), 0, contentOf(id)[:mib]); err != nil {
		t.Errorf("a present block: %v", err)
	}
	path := e.Path()
	e.Release()
	e.Release()
	if b, err := io.ReadAll(body); err != nil || !bytes.Equal(b, contentOf(id)) {
		t.Errorf("%d bytes: %v", len(b), err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the file of an open body: %v", err)
	}
	_ = body.Close()
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the file of an evicted entry: %v", err)
	}
	if st := s.Stats(); st.Bytes != 0 || st.Entries != 0 || st.Pending != 0 {
		t.Errorf("%+v", st)
	}
	fill(t, s, id)
	wantWarm(t, s, id)
}

// Inline content is handed out as a file that goes with its last user.
func TestInlineContentAsFile(t *testing.T) {
	s := open(t, t.TempDir(), nil)
	id := identity("small", 1000)
	fill(t, s, id)
	e, _ := s.Lookup(id, id.Size)
	if b, ok := e.Inline(); !ok || !bytes.Equal(b, contentOf(id)) {
		t.Error("no inline content")
	}
	f, err := e.Open(false)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(f)
	if err != nil || !bytes.Equal(b, contentOf(id)) {
		t.Errorf("%d bytes: %v", len(b), err)
	}
	_ = f.Close()
	if e.Path() == "" {
		t.Error("no path")
	}
	e.Release()
	wantWarm(t, s, id)
}

// Known records are found again, age when there are too many, and mark other versions of their key.
func TestKnown(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, func(o *cachefile.Options) { o.MostKnown = 10 })
	id := identity("a", 100)
	k := cachefile.Known{Identity: id, About: []byte("about"), Checked: time.Unix(5, 6)}
	if err := s.Remember(id.Origin, "a", k); err != nil {
		t.Fatal(err)
	}
	if err := s.Remember(id.Origin, "gone", cachefile.Known{Absent: true, Checked: time.Unix(7, 0)}); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, s, dir)
	got, ok := s.Known(id.Origin, "a")
	if !ok || got.Identity != id || string(got.About) != "about" || !got.Checked.Equal(k.Checked) || got.Absent {
		t.Errorf("%+v %v", got, ok)
	}
	if got, ok := s.Known(id.Origin, "gone"); !ok || !got.Absent {
		t.Errorf("%+v %v", got, ok)
	}
	if _, ok := s.Known("other", "a"); ok {
		t.Error("another origin is known")
	}
	if err := s.Forget(id.Origin, "a"); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Known(id.Origin, "a"); ok {
		t.Error("a forgotten key is known")
	}
	if err := s.Remember(id.Origin, "a of a version", k); err != nil {
		t.Fatal(err)
	}
	if got, ok := s.Known(id.Origin, "a of a version"); !ok || got.Identity != id {
		t.Errorf("%+v %v", got, ok)
	}
	if err := s.Remember("x", "a", k); !errs.Is(err, errs.Invalid) {
		t.Errorf("identity of another origin: %v", err)
	}
	_ = s.Close()
	s = open(t, dir, func(o *cachefile.Options) { o.MostKnown = 10 })
	for i := range 100 {
		id := identity(fmt.Sprint("n", i), 1)
		if err := s.Remember(id.Origin, id.Key, cachefile.Known{Identity: id}); err != nil {
			t.Fatal(err)
		}
		if err := s.Remember(id.Origin, "stays", cachefile.Known{Identity: identity("stays", 1)}); err != nil {
			t.Fatal(err)
		}
	}
	known := 0
	for i := range 100 {
		if _, ok := s.Known(id.Origin, fmt.Sprint("n", i)); ok {
			known++
		}
	}
	if _, ok := s.Known(id.Origin, "stays"); !ok || known == 0 || known > 10 {
		t.Errorf("%d records are known, and the one that is used: %v", known, ok)
	}
}

// Pins last until they are removed or expire, also across a restart.
func TestPins(t *testing.T) {
	dir := t.TempDir()
	now := time.Unix(1000, 0)
	clock := func(o *cachefile.Options) { o.Now = func() time.Time { return now } }
	s := open(t, dir, clock)
	id := identity("models/a", 10)
	pins := []cachefile.Pin{{Origin: id.Origin, Key: "models/", Prefix: true},
		{Origin: id.Origin, Key: "x", Expires: now.Add(time.Hour)}}
	for _, p := range pins {
		if err := s.Pin(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []cachefile.Pin{{}, {Key: "k", Expires: now}, {Key: strings.Repeat("k", 5000)}} {
		if err := s.Pin(t.Context(), p); !errs.Is(err, errs.Invalid) {
			t.Errorf("%+v: %v", p, err)
		}
	}
	_ = s.Close()
	s = open(t, dir, clock)
	if got := s.Pins(); len(got) != 2 || got[0] != pins[0] || !got[1].Expires.Equal(pins[1].Expires) {
		t.Errorf("%+v", got)
	}
	fill(t, s, id)
	fill(t, s, identity("x", 10))
	if r, err := s.Evict(t.Context(), cachefile.Match{}); err != nil || r.Pinned != 2 || r.Entries != 0 {
		t.Errorf("%+v: %v", r, err)
	}
	if st := s.Stats(); st.Pinned != 2*4096 {
		t.Errorf("%+v", st)
	}
	now = now.Add(time.Hour)
	if got := s.Pins(); len(got) != 1 {
		t.Errorf("%+v", got)
	}
	if r, err := s.Evict(t.Context(), cachefile.Match{}); err != nil || r.Pinned != 1 || r.Entries != 1 {
		t.Errorf("%+v: %v", r, err)
	}
	if ok, err := s.Unpin(t.Context(), id.Origin, "models/", true); err != nil || !ok {
		t.Error(ok, err)
	}
	if ok, err := s.Unpin(t.Context(), id.Origin, "models/", true); err != nil || ok {
		t.Error(ok, err)
	}
	_ = s.Close()
	s = open(t, dir, clock)
	if got := s.Pins(); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// Marks of an entry are durable.
func TestMarks(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	id := identity("marked", mib)
	fill(t, s, id)
	e, _ := s.Lookup(id, 1)
	e.Proven("crc64nvme")
	e.Foreign(true)
	e.Release()
	other := id
	other.ETag = "new"
	if err := s.Remember(id.Origin, id.Key, cachefile.Known{Identity: other}); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, s, dir)
	if i, _ := s.Stat(id); i.Proof != "crc64nvme" || !i.Foreign || !i.Superseded {
		t.Errorf("%+v", i)
	}
	if err := s.Remember(id.Origin, id.Key, cachefile.Known{Identity: id}); err != nil {
		t.Fatal(err)
	}
	if i, _ := s.Stat(id); i.Superseded {
		t.Errorf("%+v", i)
	}
}

// Drafts become entries, or leave nothing.
func TestDrafts(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	for _, n := range []int64{0, 100, mib, 2*mib + 3} {
		id := identity(fmt.Sprint("draft", n), n)
		d, ok, err := s.Draft(t.Context(), id.Origin, id.Key, n)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		data := contentOf(id)
		for i := int64(0); i*mib < n; i++ {
			if err := d.Put(t.Context(), i, data[i*mib:min((i+1)*mib, n)]); err != nil {
				t.Fatal(err)
			}
			if err := s.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Keep(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		d.Drop()
		if n > 0 {
			wantWarm(t, s, id)
		}
	}
	d, _, err := s.Draft(t.Context(), "o", "dropped", 2*mib)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Put(t.Context(), 1, make([]byte, mib)); err != nil {
		t.Fatal(err)
	}
	if err := d.Keep(t.Context(), object.Identity{Origin: "o", Key: "dropped", Size: 2 * mib}); !errors.Is(err,
		cachefile.ErrAbsent) {
		t.Errorf("kept a part: %v", err)
	}
	s = reopen(t, s, dir)
	wantWarm(t, s, identity(fmt.Sprint("draft", 2*mib+3), 2*mib+3))
	if st := s.Stats(); st.Entries != 3 || st.Bytes != 4096+mib+2*mib+4096 {
		t.Errorf("%+v", st)
	}
	if n := countFiles(t, dir); n != 2 {
		t.Errorf("%d files", n)
	}
}

func countFiles(t *testing.T, dir string) int {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "data", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// Content that was dropped does not come back after a loss of power, inline or not.
func TestDroppedContentStaysAway(t *testing.T) {
	mem := vfs.NewCrashableMem()
	s := open(t, "cache", func(o *cachefile.Options) { o.FS = mem })
	ids := []object.Identity{identity("inline", 100), identity("file", mib)}
	for _, id := range ids {
		fill(t, s, id)
		e, _ := s.Peek(id)
		if err := e.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := e.Drop(); err != nil {
			t.Fatal(err)
		}
		e.Release()
	}
	s = open(t, "cache", func(o *cachefile.Options) { o.FS = mem.CrashClone(vfs.CrashCloneCfg{}) })
	for _, id := range ids {
		if _, ok := s.Peek(id); ok {
			t.Errorf("%s is back", id.Key)
		}
	}
}

// List returns entries in the order of their keys, and Verify finds each damaged block.
func TestListAndVerify(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	for _, k := range []string{"b/2", "a", "b/1", "c"} {
		fill(t, s, identity(k, 2*mib+1))
	}
	var keys []string
	for i, err := range s.List(t.Context(), cachefile.Match{Key: "b/"}) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, i.Key)
	}
	if !slices.Equal(keys, []string{"b/1", "b/2"}) {
		t.Errorf("%v", keys)
	}
	r, err := s.Verify(t.Context(), cachefile.Match{}, nil)
	if err != nil || r.Entries != 4 || r.Bytes != 4*(2*mib+1) || r.Dropped != 0 || r.Lost != 0 {
		t.Errorf("%+v: %v", r, err)
	}
	i, _ := s.Stat(identity("b/1", 2*mib+1))
	f, _ := os.OpenFile(i.File, os.O_RDWR, 0)
	_, _ = f.WriteAt([]byte("wrong"), 2*mib-2)
	_ = f.Close()
	var last cachefile.Progress
	r, err = s.Verify(t.Context(), cachefile.Match{}, func(p cachefile.Progress) { last = p })
	if err != nil || r.Dropped != 2 || len(r.Damaged) != 2 || r.Damaged[0].Key != "b/1" || r.Damaged[0].Block != 1 {
		t.Errorf("%+v: %v", r, err)
	}
	if last.Entries != 4 || last.AllEntries != 4 || last.Damaged != 2 {
		t.Errorf("%+v", last)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Verify(ctx, cachefile.Match{}, nil); !errs.Is(err, errs.Cancelled) {
		t.Errorf("%v", err)
	}
}

// Bad options are refused with their value.
func TestBadOptions(t *testing.T) {
	for _, o := range []cachefile.Options{{}, {Dir: "d"}, {Dir: "d", Capacity: -1}, {Dir: "d", Capacity: 1, High: 2},
		{Dir: "d", Capacity: 1, High: 0.5, Low: 0.6}, {Dir: "d", Capacity: 1, Inline: 1 << 30}} {
		if _, err := cachefile.Open(t.Context(), o); !errs.Is(err, errs.Invalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	dir := t.TempDir()
	open(t, dir, nil)
	if _, err := cachefile.Open(t.Context(), cachefile.Options{Dir: dir, Capacity: 1}); !errs.Is(err, errs.Invalid) {
		t.Errorf("a second process: %v", err)
	}
}
