// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/internal/object"
)

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func random(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(uint64(n), 7))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func flagsOf(t *testing.T, f *os.File) int {
	t.Helper()
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0)
	if err != nil {
		t.Fatal(err)
	}
	return flags
}

// TestObjectsAreHandedOutAsFiles: a client reads an object through descriptors of its own, and knows its sums.
func TestObjectsAreHandedOutAsFiles(t *testing.T) {
	d := serve(t, nil)
	data := random(2<<20 + 17)
	d.store.put("b", "big", data)
	c := d.login()
	items, files := c.open(wire.WantBuffered|wire.WantDirect|wire.WantInline|wire.WantSums, item("big"))
	o := items[0]
	if o.Err != nil {
		t.Fatalf("%+v", o.Err)
	}
	if o.Handle == 0 || o.Size != int64(len(data)) || o.ETag != "etag-big" || o.CRC64 != sumOf(data) || o.N != o.Size ||
		o.Off != 0 || o.HasInline || o.Version != "" || o.Modified.IsZero() {
		t.Errorf("%+v", o)
	}
	if len(o.Sums) != 3 || o.SumsFirst != 0 || o.Sums[2] != sumOf(data[2<<20:]) {
		t.Errorf("sums %x from %d", o.Sums, o.SumsFirst)
	}
	if o.Has&wire.WantBuffered == 0 || o.Has&wire.WantDirect == 0 && o.Refused == "" {
		t.Fatalf("has %#x, refused %q", o.Has, o.Refused)
	}
	got, err := io.ReadAll(io.NewSectionReader(files[0], 0, 1<<30))
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if fl := flagsOf(t, files[0]); fl&unix.O_ACCMODE != unix.O_RDONLY || fl&unix.O_NONBLOCK != 0 {
		t.Errorf("flags %#x", fl)
	}
	if o.Has&wire.WantDirect != 0 && flagsOf(t, files[1])&unix.O_DIRECT == 0 {
		t.Error("the second description does not go past the page cache")
	}
	if h, _ := d.store.held(); h != 1 {
		t.Errorf("%d handles are held, expected 1", h)
	}
	if r, _ := c.ask(&wire.Move{Handle: o.Handle, Device: wire.Device{Index: -1},
		Ranges: []wire.Range{{Off: 0, N: 1 << 20}, {Off: 1 << 20, N: 1<<20 + 17}}}); r.Type() != wire.TypeAck {
		t.Errorf("%+v", r)
	}
	if r, _ := c.ask(&wire.Sums{Handle: o.Handle, First: 1, N: 9}); r.(*wire.SumsReply).First != 1 ||
		len(r.(*wire.SumsReply).Sums) != 2 {
		t.Errorf("%+v", r)
	}
	if r, _ := c.ask(&wire.Close{Handles: []uint64{o.Handle},
		Reports: []wire.Report{{Device: "cuda:0", Route: "page_cache", Stage: "read", Bytes: 100,
			Time: 1e9}}}); r.Type() != wire.TypeAck {
		t.Errorf("%+v", r)
	}
	if h, _ := d.store.held(); h != 0 {
		t.Errorf("%d handles are held after Close", h)
	}
	st := d.s.Stats()
	if st.Opened != 1 || st.Handles != 0 || st.HeldBytes != 0 || len(st.Moved) != 1 ||
		st.Moved[0] != (Moved{"read", "page_cache", "cuda:0", "read", 100, 1}) {
		t.Errorf("%+v", st)
	}
}

// TestSmallObjectsComeInline, and as files where the client needs a descriptor.
func TestSmallObjectsComeInline(t *testing.T) {
	d := serve(t, nil)
	d.store.put("b", "small", []byte("twelve bytes"))
	d.store.put("b", "empty", nil)
	c := d.login()
	items, files := c.open(wire.WantBuffered|wire.WantInline|wire.WantSums, item("small"), item("empty"))
	if o := items[0]; !o.HasInline || string(o.Inline) != "twelve bytes" || o.Handle != 0 || o.Has != 0 ||
		len(o.Sums) != 1 {
		t.Errorf("%+v", o)
	}
	if o := items[1]; !o.HasInline || len(o.Inline) != 0 || o.N != 0 {
		t.Errorf("%+v", o)
	}
	if len(files) != 0 {
		t.Errorf("%d files", len(files))
	}
	items, files = c.open(wire.WantBuffered, item("small"))
	if o := items[0]; o.Err != nil || o.HasInline || o.Handle == 0 || len(files) != 1 {
		t.Fatalf("%+v", o)
	}
	if got, _ := io.ReadAll(files[0]); string(got) != "twelve bytes" {
		t.Errorf("%q", got)
	}
	items, files = c.open(wire.WantStat, item("small"))
	if o := items[0]; o.Handle != 0 || o.Size != 12 || o.ETag != "etag-small" || len(files) != 0 {
		t.Errorf("%+v", o)
	}
}

// TestManyObjectsInOneRoundTrip: more than one packet can carry, in order, with the failures among them.
func TestManyObjectsInOneRoundTrip(t *testing.T) {
	d := serve(t, nil)
	data := random(20000)
	var items []wire.OpenItem
	for i := range 400 {
		key := "k" + string(rune('a'+i%26)) + string(rune('a'+i/26))
		switch {
		case i%7 == 3:
			key = "missing"
		case i%11 == 5:
			d.store.put("b", key, data[:2000]) // inline
		default:
			d.store.put("b", key, data[:17000+i])
		}
		items = append(items, item(key))
	}
	c := d.login()
	got, files := c.open(wire.WantBuffered|wire.WantInline|wire.WantSums, items...)
	if len(got) != len(items) {
		t.Fatalf("%d items, expected %d", len(got), len(items))
	}
	next := 0
	for i, o := range got {
		switch {
		case i%7 == 3:
			if o.Err == nil || o.Err.Code != wire.CodeNoSuchKey {
				t.Fatalf("item %d: %+v", i, o)
			}
		case i%11 == 5:
			if !bytes.Equal(o.Inline, data[:2000]) {
				t.Fatalf("item %d: %+v", i, o)
			}
		default:
			if o.Err != nil || o.Has != wire.WantBuffered {
				t.Fatalf("item %d: %+v", i, o)
			}
			if b, err := io.ReadAll(files[next]); err != nil || !bytes.Equal(b, data[:17000+i]) {
				t.Fatalf("item %d: %d bytes, %v", i, len(b), err)
			}
			next++
		}
	}
	if next != len(files) {
		t.Errorf("%d files came, expected %d", len(files), next)
	}
	if err := c.c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.stop(); err != nil {
		t.Fatal(err)
	}
	if h, dr := d.store.held(); h != 0 || dr != 0 {
		t.Errorf("%d handles and %d drafts are held after the connection ended", h, dr)
	}
}

// TestAnObjectIsWrittenThroughItsDescriptors, and is there when it is committed and not before.
func TestAnObjectIsWrittenThroughItsDescriptors(t *testing.T) {
	d := serve(t, nil)
	c := d.login()
	data := random(3<<20 + 5)
	r, files := c.ask(&wire.Create{Bucket: "b", Key: "new", Size: 4 << 20, Device: wire.Device{Index: -1},
		Want: wire.WantBuffered, ContentType: "x/y", Metadata: []wire.Pair{{Name: "a", Value: "b"}}})
	created, ok := r.(*wire.Created)
	if !ok || created.Has != wire.WantBuffered || len(files) != 1 || created.Path == "" {
		t.Fatalf("%+v", r)
	}
	if _, err := files[0].WriteAt(data, 0); err != nil {
		t.Fatal(err)
	}
	var sums []uint64
	for off := 0; off < len(data); off += object.SumBlock {
		sums = append(sums, sumOf(data[off:min(off+object.SumBlock, len(data))]))
	}
	if r, _ := c.ask(&wire.Move{Handle: created.Handle, Device: wire.Device{Index: -1},
		Ranges: []wire.Range{{Off: 0, N: 3<<20 + 5}}}); r.Type() != wire.TypeAck {
		t.Errorf("%+v", r)
	}
	if r, _ := c.ask(&wire.AddSums{Handle: created.Handle, First: 0, Sums: sums[:2]}); r.Type() != wire.TypeAck {
		t.Errorf("%+v", r)
	}
	commit := &wire.Commit{Handle: created.Handle, Size: int64(len(data)), CRC64: sumOf(data), First: 2, Sums: sums[2:]}
	if r, _ := c.ask(commit); !isError(r, wire.CodeWriterLeft) {
		t.Fatalf("with a descriptor open: %+v", r)
	}
	if items, _ := c.open(wire.WantStat, item("new")); items[0].Err == nil {
		t.Fatal("the object is visible before it is committed")
	}
	_ = files[0].Close()
	wrong := *commit
	wrong.CRC64++
	if r, _ := c.ask(&wrong); !isError(r, wire.CodeBadSums) {
		t.Fatalf("with a wrong sum: %+v", r)
	}
	r, _ = c.ask(commit)
	if done, ok := r.(*wire.Committed); !ok || done.ETag == "" {
		t.Fatalf("%+v", r)
	}
	items, got := c.open(wire.WantBuffered, item("new"))
	if b, _ := io.ReadAll(got[0]); !bytes.Equal(b, data) || items[0].CRC64 != sumOf(data) {
		t.Error("other bytes came back")
	}
	st := d.s.Stats()
	if st.Created != 1 || st.Committed != 1 || st.Aborted != 0 || st.Drafts != 0 || st.DraftBytes != 0 {
		t.Errorf("%+v", st)
	}
	r, _ = c.ask(&wire.Create{Bucket: "b", Key: "gone", Size: 10, Device: wire.Device{Index: -1}, Want: wire.WantBuffered})
	if r, _ := c.ask(&wire.Abort{Handle: r.(*wire.Created).Handle}); r.Type() != wire.TypeAck {
		t.Errorf("%+v", r)
	}
	if _, drafts := d.store.held(); drafts != 0 {
		t.Error("an aborted draft is left")
	}
}

func isError(m wire.Message, code string) bool {
	e, ok := m.(*wire.Error)
	return ok && e.Code == code && e.Message != "" && e.Fix != "" && e.Kind >= uint8(errs.Other)
}
