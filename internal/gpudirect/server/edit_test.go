// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"io"
	"maps"
	"os"
	"testing"

	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/storetest"
)

// TestEditOnTheWire changes an object through a draft that begins as its copy.
func TestEditOnTheWire(t *testing.T) {
	d, st, tick := onDisk(t, func(o *Options) { o.Limits.DraftBytes = 100_000 })
	old := bytes.Repeat([]byte("old "), 10_000)
	kept := map[string]string{object.AttrType: "text/plain", object.AttrMeta + "step": "7", object.AttrTags: `{"a":"b"}`}
	all := maps.Clone(kept)
	for _, name := range []string{object.AttrRetention, object.AttrHold, object.AttrSumAlgo, object.AttrSumType,
		object.AttrSum,
		object.AttrUpload, object.AttrUploadParts} {
		all[name] = "of the old content"
	}
	info, err := st.Put(t.Context(), object.Put{Bucket: "b", Key: "k", Size: int64(len(old)), Body: bytes.NewReader(old),
		Attributes: all})
	if err != nil {
		t.Fatal(err)
	}
	c := d.login()
	opened, files := c.open(wire.WantBuffered, wire.OpenItem{Bucket: "b", Key: "k", N: -1})
	closeAll(files)
	source := opened[0].Handle
	for what, m := range map[string]*wire.Create{
		wire.CodeNoSuchHandle: {Source: source + 7, Grows: true, Size: 40_000},
		wire.CodeTooLarge:     {Source: source, Grows: true, Size: 100_001},
		wire.CodeAccessDenied: {Source: source, Grows: true, Size: 40_000, Key: "readonly/k"},
	} {
		m.Bucket, m.Device, m.Want = "b", host, wire.WantBuffered
		if m.Key == "" {
			m.Key = "k"
		}
		if r, _ := c.ask(m); !isError(r, what) {
			t.Errorf("%s: %+v", what, r)
		}
	}
	r, files := c.ask(&wire.Create{Bucket: "b", Key: "k", Size: 40_000, Device: host, Want: wire.WantBuffered,
		Source: source, Grows: true, IfMatch: info.ETag})
	made, ok := r.(*wire.Created)
	if !ok {
		t.Fatalf("%+v", r)
	}
	if got, err := io.ReadAll(files[0]); err != nil || !bytes.Equal(got, old) {
		t.Fatalf("the draft begins with %d bytes: %v", len(got), err)
	}
	for _, step := range []struct {
		r    wire.Range
		code string // "" if it is granted
	}{{wire.Range{Off: 0, N: 50_000}, ""}, {wire.Range{Off: 99_999, N: 1}, ""},
		{wire.Range{Off: 99_999, N: 2}, wire.CodeTooLarge},
		{wire.Range{Off: -1, N: 2}, wire.CodeInvalidRange}, {wire.Range{Off: 1<<63 - 1, N: 2}, wire.CodeInvalidRange}} {
		m, _ := c.ask(&wire.Move{Handle: made.Handle, Device: host, Ranges: []wire.Range{step.r}})
		if _, ack := m.(*wire.Ack); ack != (step.code == "") || !ack && !isError(m, step.code) {
			t.Errorf("%+v: %+v", step, m)
		}
	}
	if _, drafts := d.accountOf(testKey); drafts != 100_000 {
		t.Errorf("%d bytes are counted, expected those that were announced", drafts)
	}
	tick() // it takes no more than was announced
	if _, err := files[0].WriteAt([]byte("new"), 49_997); err != nil {
		t.Fatal(err)
	}
	closeAll(files)
	want := append(append(append([]byte{}, old...), make([]byte, 9_997)...), "new"...)
	sealed := &wire.Commit{Handle: made.Handle, Size: int64(len(want)), CRC64: sumOf(want), Sums: []uint64{sumOf(want)}}
	if m, _ := c.ask(sealed); m.Type() != wire.TypeCommitted {
		t.Fatalf("%+v", m)
	}
	now, err := st.Stat(t.Context(), object.Ref{Bucket: "b", Key: "k"})
	if err != nil || now.Size != int64(len(want)) || !maps.Equal(now.Attributes, kept) {
		t.Errorf("%+v, %v; expected the attributes %v", now, err, kept)
	}
	if _, drafts := d.accountOf(testKey); drafts != 0 {
		t.Errorf("%d bytes of drafts are still counted", drafts)
	}
}

// TestAnEditEndsWithItsConnection leaves the old object and no file.
func TestAnEditEndsWithItsConnection(t *testing.T) {
	d, st, _ := onDisk(t, nil)
	old := bytes.Repeat([]byte("old "), 10_000)
	if _, err := st.Put(t.Context(), object.Put{Bucket: "b", Key: "k", Size: int64(len(old)),
		Body: bytes.NewReader(old)}); err != nil {
		t.Fatal(err)
	}
	c := d.login()
	opened, files := c.open(wire.WantBuffered, wire.OpenItem{Bucket: "b", Key: "k", N: -1})
	closeAll(files)
	r, files := c.ask(&wire.Create{Bucket: "b", Key: "k", Size: 40_000, Device: host, Want: wire.WantBuffered,
		Source: opened[0].Handle, Grows: true})
	path := r.(*wire.Created).Path
	if _, err := files[0].WriteAt([]byte("new"), 0); err != nil {
		t.Fatal(err)
	}
	closeAll(files)
	_ = c.c.Close()
	waitFor(t, func() bool { _, err := os.Stat(path); return os.IsNotExist(err) })
	if _, got, err := storetest.Read(t.Context(), st, object.Ref{Bucket: "b", Key: "k"}); err != nil ||
		!bytes.Equal(got, old) {
		t.Error("the old object has other bytes:", err)
	}
}
