// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/report"
)

// get reads an object from the store itself.
func (r *rig) get(key string) ([]byte, object.Info, error) {
	c, err := r.store.Open(r.t.Context(), object.Ref{Bucket: "b", Key: key})
	if err != nil {
		return nil, object.Info{}, err
	}
	defer c.Close()
	i := c.Info()
	if i.Size == 0 {
		return nil, i, nil
	}
	body, err := c.Section(object.Range{N: i.Size})
	if err != nil {
		return nil, i, err
	}
	defer body.Close()
	b, err := io.ReadAll(body)
	return b, i, err
}

func (r *rig) write(c *Client, w Write, data []byte) (report.Object, error) {
	r.t.Helper()
	id := w.Device
	if id == "" {
		id = "auto"
	}
	mem := r.alloc(id, len(data))
	if len(data) > 0 {
		mem.set(data)
		w.Src = mem.ptr()
	}
	w.Bucket, w.Size = "b", int64(len(data))
	m, err := c.StartWrite(r.t.Context(), w)
	if err != nil {
		return report.Object{}, err
	}
	err = m.Wait()
	return m.Report(), err
}

// trace fails when something of a write is left in the store.
func (r *rig) trace() {
	r.t.Helper()
	eventually(r.t, "no handle and no draft is left", func() bool {
		s, err := r.store.Stats()
		d := r.door.Stats()
		return err == nil && s.DraftFiles == 0 && s.HeldFiles == 0 && d.Handles == 0 && d.Drafts == 0
	})
}

func TestWritesEverySizeThroughTheDoor(t *testing.T) {
	for _, id := range []string{"host", "cuda:0"} {
		t.Run(id, func(t *testing.T) {
			r := newRig(t, id != "host")
			c := r.client()
			for i, size := range sizes {
				data := content(uint64(i+50), size)
				key := fmt.Sprintf("w%d", size)
				rep, err := r.write(c, Write{Key: key, Device: id, ContentType: "x/y",
					Metadata: map[string]string{"a": "1", "b": "2"}}, data)
				if err != nil {
					t.Fatalf("%d bytes: %v", size, err)
				}
				got, info, err := r.get(key)
				if err != nil || !bytes.Equal(got, data) || info.ETag != rep.ETag || rep.Via != ViaDoor ||
					rep.Bytes != int64(size) {
					t.Fatalf("%d bytes: %v, equal %v, ETag %s and %s, report %+v", size, err, bytes.Equal(got, data), info.ETag,
						rep.ETag, rep)
				}
				if info.Attributes["x-amz-meta-a"] != "1" || info.Attributes["content-type"] != "x/y" {
					t.Errorf("attributes %v", info.Attributes)
				}
				// And back through the door, compared with the sums that the engine made.
				if back, _, err := r.read(c, Read{Key: key, Size: -1, Device: id}, size); err != nil || !bytes.Equal(back, data) {
					t.Fatalf("%d bytes back: %v", size, err)
				}
			}
			r.trace()
		})
	}
}

func TestWriteSaysWhatIsWrong(t *testing.T) {
	r := newRig(t, false)
	c := r.client()
	data := content(3, 100000)
	r.put("there", data)
	for name, x := range map[string]struct {
		w    Write
		kind errs.Kind
		text string
	}{
		"missing bucket": {Write{Key: "k"}, errs.NotFound, "nowhere"},
		"forbidden":      {Write{Key: "forbidden/k"}, errs.Permission, "not allow"},
		"condition":      {Write{Key: "there", IfNoneMatch: "*"}, errs.Other, "there"},
		"no key":         {Write{}, errs.Invalid, "no key"},
	} {
		mem := r.alloc("host", len(data))
		w := x.w
		w.Bucket, w.Src, w.Size = "b", mem.ptr(), int64(len(data))
		if name == "missing bucket" {
			w.Bucket = "nowhere"
		}
		m, err := c.StartWrite(t.Context(), w)
		if err == nil {
			err = m.Wait()
		}
		if err == nil || name != "condition" && errs.KindOf(err) != x.kind || !strings.Contains(err.Error(), x.text) {
			t.Errorf("%s: %s: %v", name, errs.KindOf(err), err)
		}
	}
	if got, _, err := r.get("there"); err != nil || !bytes.Equal(got, data) {
		t.Errorf("what was there: %v", err)
	}
	r.trace()
}

func TestWriteThatIsCancelledLeavesNothing(t *testing.T) {
	r := newRig(t, true)
	c := r.client()
	mem := r.alloc("cuda:0", 8<<20)
	r.gpu.Hold(0) // no copy passes
	ctx, cancel := context.WithCancelCause(t.Context())
	m, err := c.StartWrite(ctx, Write{Bucket: "b", Key: "k", Src: mem.ptr(), Size: 8 << 20, Device: "cuda:0"})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the draft is there", func() bool { return r.door.Stats().Drafts == 1 })
	cancel(errors.New("no more"))
	r.gpu.Release()
	if err := m.Wait(); !errs.Is(err, errs.Other) && !errs.Is(err, errs.Cancelled) ||
		!strings.Contains(err.Error(), "no more") {
		t.Errorf("%v", err)
	}
	if _, _, err := r.get("k"); !errs.Is(err, errs.NotFound) {
		t.Errorf("the object: %v", err)
	}
	r.trace()
}

func TestServerThatGoesAway(t *testing.T) {
	r := newRig(t, true)
	c := r.client()
	data := content(9, 9<<20)
	r.put("k", data)
	mem, src := r.alloc("cuda:0", len(data)), r.alloc("cuda:1", 1<<20)
	r.gpu.Hold(0)
	m, err := c.StartRead(t.Context(), Read{Bucket: "b", Key: "k", Size: -1, Dst: mem.ptr(), DstSize: int64(len(data)),
		Device: "cuda:0"})
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.StartWrite(t.Context(), Write{Bucket: "b", Key: "new", Src: src.ptr(), Size: 1 << 20, Device: "cuda:1"})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "both are under way", func() bool { s := r.door.Stats(); return s.Drafts == 1 && s.Handles == 1 })
	r.stop()
	r.gpu.Release()
	if err := m.Wait(); err != nil || !bytes.Equal(mem.get(len(data)), data) {
		t.Errorf("a read goes on without the server: %v, equal %v", err, bytes.Equal(mem.get(len(data)), data))
	}
	if err := w.Wait(); err == nil || !strings.Contains(err.Error(), "s3://b/new") ||
		!strings.Contains(err.Error(), "lost") || errs.FixOf(err) == "" {
		t.Errorf("a write ends with %v", err)
	}
	if _, _, err := r.get("new"); !errs.Is(err, errs.NotFound) {
		t.Errorf("the object: %v", err)
	}
	_, _, err = r.read(c, Read{Key: "k", Size: -1, Device: "cuda:0"}, len(data))
	if err == nil || !strings.Contains(err.Error(), "door.sock") || errs.FixOf(err) == "" {
		t.Errorf("without a server: %v", err)
	}
	r.serve()
	if got, _, err := r.read(c, Read{Key: "k", Size: -1, Device: "cuda:0"}, len(data)); err != nil ||
		!bytes.Equal(got, data) {
		t.Errorf("after its return: %v", err)
	}
	if rep, err := r.write(c, Write{Key: "new", Device: "cuda:0"}, data); err != nil || rep.ETag == "" {
		t.Errorf("after its return: %v", err)
	}
	r.trace()
}

func TestWrittenFromSeveralPlaces(t *testing.T) {
	r := newRig(t, true)
	c := r.client()
	a, b := r.alloc("cuda:0", 1<<20+5), r.alloc("cuda:1", 3<<20)
	pa, pb, head := content(1, 1<<20+5), content(2, 3<<20), []byte("a header")
	a.set(pa)
	b.set(pb)
	n := int64(len(head))
	m, err := c.StartWrite(t.Context(), Write{Bucket: "b", Key: "k", Sources: []transfer.Source{
		{Len: n, Data: head}, {Off: n, Len: int64(len(pa)), Device: a.dev, Ptr: a.ptr()},
		{Off: n + int64(len(pa)), Len: int64(len(pb)), Device: b.dev, Ptr: b.ptr()}}})
	if err == nil {
		err = m.Wait()
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := r.get("k"); err != nil || !bytes.Equal(got, bytes.Join([][]byte{head, pa, pb}, nil)) {
		t.Errorf("%v", err)
	}
}

func TestDescriptorsAreGivenBack(t *testing.T) {
	r := newRig(t, false)
	dir := r.socket[:strings.LastIndex(r.socket, "/")]
	for i := range 5 {
		r.put(fmt.Sprintf("k%d", i), content(uint64(i), 1<<20+i))
	}
	before := descriptors(t, dir+"/data")
	c := r.client()
	for i := range 5 {
		if _, _, err := r.read(c, Read{Key: fmt.Sprintf("k%d", i), Size: -1}, 2<<20); err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.read(c, Read{Key: fmt.Sprintf("k%d", i), Size: -1}, 10); !errs.Is(err, errs.Invalid) {
			t.Fatal(err)
		}
	}
	// The store keeps files of its own open: what matters is that repeating all of it adds none.
	settled := 0
	eventually(t, "handles are let go", func() bool {
		settled = descriptors(t, dir+"/data")
		return r.door.Stats().Handles == 0
	})
	for range 20 {
		for i := range 5 {
			if _, _, err := r.read(c, Read{Key: fmt.Sprintf("k%d", i), Size: -1}, 2<<20); err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually(t, fmt.Sprintf("as few descriptors as before (%d, then %d)", before, settled),
		func() bool { return descriptors(t, dir+"/data") <= settled })
}

func TestForkedClientSaysSo(t *testing.T) {
	r := newRig(t, false)
	c := r.client()
	c.pid = os.Getpid() + 1
	defer func() { c.pid = os.Getpid() }()
	_, err := c.StartRead(t.Context(), Read{Bucket: "b", Key: "k", Size: -1, Dst: 1, DstSize: 1})
	if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "fork") ||
		!strings.Contains(errs.FixOf(err), "spawn") {
		t.Error(err)
	}
}
