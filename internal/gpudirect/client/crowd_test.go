// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
)

// Programs start as many reads as they have objects: their descriptors must
// stay within what a process may have.
func TestManyReadsAtOnceHaveFewDescriptors(t *testing.T) {
	r := newRig(t, false)
	const n, size = 3 * mostReads, 4 << 20
	data := content(3, size)
	r.put("k", data)
	c := r.client()
	if s := c.Status(t.Context()); s.Door == "" {
		t.Fatalf("%+v", s)
	}
	mem := r.alloc("host", size) // of all: they bring the same bytes
	var moves []*Move
	most := 0
	for range n {
		m, err := c.StartRead(t.Context(), Read{Bucket: "b", Key: "k", Size: -1, Dst: mem.ptr(), DstSize: size})
		if err != nil {
			t.Fatal(err)
		}
		moves = append(moves, m)
		most = max(most, descriptors(t, filepath.Dir(r.socket)+"/data/objects"),
			descriptors(t, filepath.Dir(r.socket)+"/data"))
	}
	for i, m := range moves {
		if err := m.Wait(); err != nil {
			t.Fatalf("read %d: %v", i, err)
		}
	}
	// The store of this process has a few of its own.
	if bound := 2*mostReads + 64; most > bound {
		t.Errorf("%d descriptors were open at once, expected at most %d", most, bound)
	}
	if !bytes.Equal(mem.get(size), data) {
		t.Error("other bytes came")
	}
	r.trace()
}

// A connection can end between an open and what it grants: nothing was moved,
// and the read begins once more.
func TestReadBeginsAgainWhereAConnectionIsLost(t *testing.T) {
	r := newRig(t, false)
	data := content(4, 5<<20) // two grants
	r.put("k", data)
	for _, at := range []wire.Type{wire.TypeOpened, wire.TypeAck} {
		var cut atomic.Bool
		c := r.client(func(o *Options) {
			o.Door = r.between(func(fromClient bool, h wire.Type) bool {
				return !fromClient && h == at && cut.CompareAndSwap(true, false)
			})
		})
		for _, warm := range []bool{false, true} {
			cut.Store(true)
			got, rep, err := r.read(c, Read{Key: "k", Size: -1}, len(data))
			if err != nil || !bytes.Equal(got, data) || rep.Via != ViaDoor || cut.Load() {
				t.Errorf("cut at %s, connected before %v: %v", at, warm, err)
			}
		}
		cut.Store(true)
		mem := r.alloc("host", len(data))
		m, err := c.StartReadMany(t.Context(), []Read{{Bucket: "b", Key: "k", Size: -1, Dst: mem.ptr(),
			DstSize: int64(len(data))}})
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Wait(); err != nil || !bytes.Equal(mem.get(len(data)), data) {
			t.Errorf("a batch, cut at %s: %v", at, err)
		}
		if rep := m.Report(); rep.Size != int64(len(data)) || rep.Bytes != int64(len(data)) || rep.Objects[0].Error != "" {
			t.Errorf("a batch, cut at %s: %d of %d bytes, %+v", at, rep.Bytes, rep.Size, rep.Objects)
		}
	}
	r.trace()
}

// A commit takes as long as the disk: neither other requests nor the handles of
// others wait for it, and who waits can give up.
func TestNobodyWaitsForACommit(t *testing.T) {
	r := newRig(t, false)
	data := content(4, 100000)
	r.put("k", data)
	var once sync.Once
	reached, goOn := make(chan struct{}), make(chan struct{})
	c := r.client(func(o *Options) {
		o.Door = r.between(func(fromClient bool, h wire.Type) bool {
			if fromClient && h == wire.TypeCommit {
				once.Do(func() { close(reached) })
				<-goOn
			}
			return false
		})
	})
	release := sync.OnceFunc(func() { close(goOn) })
	defer release()
	f, err := c.OpenFile(t.Context(), "b", "k", "", "host")
	if err != nil {
		t.Fatal(err)
	}
	src := r.alloc("host", len(data))
	w, err := c.StartWrite(t.Context(), Write{Bucket: "b", Key: "w", Src: src.ptr(), Size: int64(len(data))})
	if err != nil {
		t.Fatal(err)
	}
	<-reached
	if err := f.Close(); err != nil { // its handle is of the connection that the commit keeps
		t.Fatal(err)
	}
	if _, _, err := r.read(c, Read{Key: "k", Size: -1}, len(data)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the read's own handle is let go", func() bool { return r.door.Stats().Handles == 1 })
	d := c.way.Load().door
	d.mu.Lock()
	all := append([]*conn(nil), d.conns...)
	d.mu.Unlock()
	var kept []*conn
	for _, x := range all { // all are kept now
		if x.slow.Load() == 0 {
			x.mu.Lock()
			kept = append(kept, x)
		}
	}
	for len(all) < maxConns {
		x := &conn{mu: newTurn()}
		x.mu.Lock()
		all = append(all, x)
	}
	d.mu.Lock()
	mine := d.conns
	d.conns = all
	d.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan error, 1)
	go func() {
		_, err := c.Stat(ctx, "b", "k", "")
		asked <- err
	}()
	cancel()
	select {
	case err := <-asked:
		if !errs.Is(err, errs.Cancelled) {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("a question that was cancelled waits for a connection")
	}
	d.mu.Lock()
	d.conns = mine
	d.mu.Unlock()
	for _, x := range kept {
		x.mu.Unlock()
	}
	release()
	if err := w.Wait(); err != nil {
		t.Error(err)
	}
	r.trace()
}

// What follows a door that has gone takes its time, and is not waited for by
// who starts a read.
func TestStartReadReturnsWhenTheDoorHasGone(t *testing.T) {
	r := newRig(t, false)
	data := content(4, 300<<10)
	r.put("k", data)
	var slow atomic.Bool
	goOn := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == discoveryPath && !slow.Load() {
			fmt.Fprintf(w, `{"version":1,"enabled":true,"socket":%q,"store":%q}`, r.socket, testStore)
			return
		}
		<-goOn
		http.Error(w, "", http.StatusNotFound)
	}))
	defer s.Close()
	release := sync.OnceFunc(func() { close(goOn) })
	defer release()
	c := r.client(func(o *Options) { o.Endpoint, o.Door = s.URL, "auto" })
	if _, _, err := r.read(c, Read{Key: "k", Size: -1}, len(data)); err != nil {
		t.Fatal(err)
	}
	slow.Store(true)
	r.stop()
	mem := r.alloc("host", len(data))
	began := make(chan *Move, 1)
	go func() {
		m, err := c.StartRead(t.Context(), Read{Bucket: "b", Key: "k", Size: -1, Dst: mem.ptr(), DstSize: int64(len(data))})
		if err != nil {
			t.Error(err)
		}
		began <- m
	}()
	select {
	case m := <-began:
		release()
		if err := m.Wait(); !errs.Is(err, errs.NotFound) || m.Report().Via != ViaHTTP || len(m.Report().Refusals) != 1 {
			t.Errorf("%v, %+v", err, m.Report().Refusals)
		}
	case <-time.After(3 * time.Second): // discovery alone takes five
		t.Error("StartRead waits for a server that does not answer")
		release()
		<-began
	}
}

// A page of HTTP ends with a token, which is no key that the door would know.
func TestListGoesOnWhereItBegan(t *testing.T) {
	r := newRig(t, false)
	var token atomic.Value
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		token.Store(q.URL.Query().Get("continuation-token"))
		fmt.Fprint(w, "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>z</Key><Size>1</Size></Contents></ListBucketResult>")
	}))
	defer s.Close()
	r.put("a", content(1, 10))
	c := r.client(func(o *Options) { o.Endpoint = s.URL })
	circle := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		fmt.Fprint(w, "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken></ListBucketResult>")
	}))
	defer circle.Close()
	round := r.client(func(o *Options) { o.Endpoint, o.Door = circle.URL, "off" })
	if _, err := round.Tree("b", "host").Names(t.Context(), ""); !errs.Is(err, errs.Corrupt) {
		t.Errorf("a listing in circles: %v", err)
	}
	p, err := c.List(t.Context(), List{Bucket: "b", After: begun().after("here")})
	if err != nil || len(p.Objects) != 1 || p.Objects[0].Key != "z" || token.Load() != "here" {
		t.Errorf("%+v, token %v: %v", p, token.Load(), err)
	}
}

func TestEndpointWithAPasswordIsNotRepeated(t *testing.T) {
	_, err := New(Options{Endpoint: "http://me:hunter2@localhost:9000"})
	if !errs.Is(err, errs.Invalid) || strings.Contains(err.Error(), "hunter2") {
		t.Error(err)
	}
}

// Who wants no comparison gets the bytes as they are, over HTTP too, and a
// route that is asked for is never passed over in silence.
func TestNoVerifyOverHTTP(t *testing.T) {
	r := newRig(t, true)
	for _, size := range []int{100, 300 << 10} {
		data := content(9, size)
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("x-amz-checksum-crc64nvme", crcText(5)) // of something else
			w.Header().Set("ETag", `"x"`)
			http.ServeContent(w, q, "", time.Time{}, bytes.NewReader(data))
		}))
		defer s.Close()
		c := r.client(func(o *Options) { o.Endpoint, o.Door = s.URL, "off" })
		if _, _, err := r.read(c, Read{Key: "k", Size: -1, Device: "host"}, size); !errs.Is(err, errs.Corrupt) {
			t.Errorf("%d bytes: %v", size, err)
		}
		if got, _, err := r.read(c, Read{Key: "k", Size: -1, Device: "host", NoVerify: true}, size); err != nil ||
			!bytes.Equal(got, data) {
			t.Errorf("%d bytes, not verified: %v", size, err)
		}
		if _, rep, err := r.read(c, Read{Key: "k", Size: -1, Device: "cuda:0", Route: "cufile"}, size); !errs.Is(err,
			errs.Unsupported) {
			t.Errorf("%d bytes by cuFile: %v, %+v", size, err, rep.Routes)
		}
	}
}
