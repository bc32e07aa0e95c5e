// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// memRemote serves bytes as a server would, and remembers what it was asked.
type memRemote struct {
	data     []byte
	parallel int
	// fail, if not nil, decides what a request ends with behind its first bytes.
	fail func(off, n int64) (after int64, err error)
	hold chan struct{} // if not nil, bodies give nothing until it is closed

	mu       sync.Mutex
	asked    [][2]int64
	inFlight atomic.Int64
	most     atomic.Int64
}

func (m *memRemote) Parallel() int        { return m.parallel }
func (m *memRemote) Notes() []string      { return []string{"a note of the remote"} }
func (m *memRemote) Traffic() vfs.Traffic { return vfs.Traffic{Requests: int64(len(m.requests()))} }
func (m *memRemote) requests() [][2]int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked
}

func (m *memRemote) Fetch(ctx context.Context, off, n int64) (io.ReadCloser, error) {
	m.mu.Lock()
	m.asked = append(m.asked, [2]int64{off, n})
	m.mu.Unlock()
	if k := m.inFlight.Add(1); k > m.most.Load() {
		m.most.Store(k)
	}
	b := &memBody{ctx: ctx, m: m, data: m.data[off : off+n], left: n}
	if m.fail != nil {
		b.left, b.err = m.fail(off, n)
	}
	if b.err != nil && b.left < 0 {
		return nil, b.err
	}
	return b, nil
}

type memBody struct {
	ctx  context.Context
	m    *memRemote
	data []byte
	left int64
	err  error
}

func (b *memBody) Read(p []byte) (int, error) {
	if b.m.hold != nil {
		select {
		case <-b.m.hold:
		case <-b.ctx.Done():
			return 0, b.ctx.Err()
		}
	}
	if b.left == 0 {
		if b.err != nil {
			return 0, b.err
		}
		return 0, io.EOF
	}
	n := copy(p[:min(int64(len(p)), b.left)], b.data)
	b.data, b.left = b.data[n:], b.left-int64(n)
	return n, nil
}

func (b *memBody) Close() error {
	b.m.inFlight.Add(-1)
	return nil
}

func noise(n int64, seed byte) []byte {
	data := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(data)
	return data
}

func TestNetworkReadIsWholeAndTold(t *testing.T) {
	data := noise(37*units.MiB+4321, 1)
	for name, to := range targets(t) {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, Options{Poison: true})
			r := &memRemote{data: data, parallel: 4}
			f := vfs.NewRemote("s3://b/k", int64(len(data)), r)
			b := alloc(t, to.dev, f.Size())
			req := whole(to.dev, f, b.Ptr(), report.RouteAuto)
			req.Verify = []*checksum.Sums{{Size: f.Size(), Block: f.Size(), Blocks: []uint64{checksum.Of(data)}}}
			tr := start(t, e, context.Background(), req)
			if err := tr.Err(); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(to.read(b.Ptr(), f.Size()), data) {
				t.Fatal("other bytes arrived")
			}
			rep := tr.Report()
			if len(rep.Routes) != 1 || rep.Routes[0].Route != report.RouteTakenNetwork || rep.Routes[0].Bytes != f.Size() {
				t.Errorf("routes %+v", rep.Routes)
			}
			if rep.Network == nil || rep.Network.Requests != int64(len(r.requests())) || rep.Network.Fetchers != 4 {
				t.Errorf("network %+v", rep.Network)
			}
			if rep.Verify == nil || rep.Verify.Blocks != 1 || !strings.Contains(fmt.Sprint(rep.Notes), "a note of the remote") {
				t.Errorf("verify %+v, notes %q", rep.Verify, rep.Notes)
			}
			if len(rep.Refusals) != 0 {
				t.Errorf("refusals %+v", rep.Refusals)
			}
			if n := len(r.requests()); n > 10 {
				t.Errorf("%d requests of at least %d bytes for %d", n, leastFetch, f.Size())
			}
			if r.most.Load() > 4 || r.inFlight.Load() != 0 {
				t.Errorf("%d requests at once, %d bodies left open", r.most.Load(), r.inFlight.Load())
			}
			if rep.Read != f.Size() {
				t.Errorf("read %d of %d bytes", rep.Read, f.Size())
			}
		})
	}
}

// Slices: rows of a matrix, gaps that are skipped on the wire, and far pieces.
func TestNetworkReadOfPieces(t *testing.T) {
	data := noise(24*units.MiB, 2)
	for name, to := range targets(t) {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, Options{Poison: true})
			r := &memRemote{data: data, parallel: 3}
			f := vfs.NewRemote("s3://b/k", int64(len(data)), r)
			segs := []Segment{
				{Off: 0, Len: 3 * units.MiB, Width: 100, Stride: 1000},
				{Off: 4*units.MiB + 17, Len: 900_000},
				{Off: 5*units.MiB + 99, Len: 2_000_001}, // a gap that is read through on the wire
				{Off: 20 * units.MiB, Len: 4 * units.MiB},
			}
			var want []byte
			total := int64(0)
			for i := range segs {
				s := &segs[i]
				buf := make([]byte, s.Wanted())
				s.Pack(buf, data[s.Off:s.Off+s.Len], s.Off)
				want = append(want, buf...)
				total += s.Wanted()
			}
			b := alloc(t, to.dev, total)
			at := b.Ptr()
			for i := range segs {
				segs[i].Dst = at
				at += device.Ptr(segs[i].Wanted())
			}
			tr := start(t, e, context.Background(), Request{Device: to.dev, Files: []*vfs.File{f}, Segments: segs,
				Gap:   DefaultGap,
				Parts: []Part{{Dst: segs[3].Dst, Len: 4 * units.MiB}}})
			if err := tr.Err(); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(to.read(b.Ptr(), total), want) {
				t.Fatal("other bytes arrived")
			}
			if rep := tr.Report(); rep.Wanted != total || rep.Read < total || rep.Read > total+3*units.MiB+int64(netGap) {
				t.Errorf("read %d for %d", rep.Read, rep.Wanted)
			}
			for _, q := range r.requests() {
				if q[0] < 20*units.MiB && q[0]+q[1] > 8*units.MiB {
					t.Errorf("a request for %d+%d, where nothing is wanted", q[0], q[1])
				}
			}
		})
	}
}

func TestNetworkReadThatFailsEndsWithOneError(t *testing.T) {
	data := noise(32*units.MiB, 3)
	broken := errs.New(errs.IO, "get", "s3://b/k", "the connection broke 6 times")
	for name, fail := range map[string]func(off, n int64) (int64, error){
		"in a body":    func(off, n int64) (int64, error) { return min(n, 3*units.MiB/2), broken },
		"at the start": func(off, n int64) (int64, error) { return -1, broken },
		"one of many": func(off, n int64) (int64, error) {
			if off <= 17*units.MiB && off+n > 17*units.MiB {
				return 17*units.MiB - off, broken
			}
			return n, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			for dev, to := range targets(t) {
				e := newEngine(t, Options{Poison: true})
				r := &memRemote{data: data, parallel: 4, fail: fail}
				f := vfs.NewRemote("s3://b/k", int64(len(data)), r)
				b := alloc(t, to.dev, f.Size())
				err := start(t, e, context.Background(), whole(to.dev, f, b.Ptr(), report.RouteAuto)).Err()
				if !errs.Is(err, errs.IO) || !errors.Is(err, broken) {
					t.Errorf("%s: got %v", dev, err)
				}
				// The engine goes on.
				r.fail = nil
				if err := start(t, e, context.Background(), whole(to.dev, f, b.Ptr(), report.RouteAuto)).Err(); err != nil ||
					!bytes.Equal(to.read(b.Ptr(), f.Size()), data) {
					t.Errorf("%s: afterwards: %v", dev, err)
				}
				if n := r.inFlight.Load(); name != "at the start" && n != 0 {
					t.Errorf("%s: %d bodies were left open", dev, n)
				}
			}
		})
	}
}

func TestNetworkReadThatIsWrongIsCorrupt(t *testing.T) {
	data := noise(9*units.MiB+1, 4)
	h := host.New()
	e := newEngine(t, Options{})
	for name, block := range map[string]int64{"of the whole": int64(len(data)), "of blocks": checksum.DefaultBlock} {
		t.Run(name, func(t *testing.T) {
			sums := &checksum.Sums{Size: int64(len(data)), Block: block}
			for off := int64(0); off < sums.Size; off += block {
				sums.Blocks = append(sums.Blocks, checksum.Of(data[off:min(sums.Size, off+block)]))
			}
			bad := bytes.Clone(data)
			bad[5*units.MiB+3] ^= 1
			f := vfs.NewRemote("s3://b/k", sums.Size, &memRemote{data: bad, parallel: 4})
			b := alloc(t, h, sums.Size)
			req := whole(h, f, b.Ptr(), report.RouteAuto)
			req.Verify = []*checksum.Sums{sums}
			err := start(t, e, context.Background(), req).Err()
			if !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), "differ from the checksum that the server keeps") {
				t.Fatalf("got %v", err)
			}
		})
	}
}

func TestNetworkReadIsCancelledWhileTheServerHangs(t *testing.T) {
	data := noise(16*units.MiB, 5)
	for name, to := range targets(t) {
		t.Run(name, func(t *testing.T) {
			e := newEngine(t, Options{})
			r := &memRemote{data: data, parallel: 4, hold: make(chan struct{})}
			f := vfs.NewRemote("s3://b/k", int64(len(data)), r)
			b := alloc(t, to.dev, f.Size())
			ctx, cancel := context.WithCancel(context.Background())
			tr := start(t, e, ctx, whole(to.dev, f, b.Ptr(), report.RouteAuto))
			cancel()
			if err := tr.Err(); !errs.Is(err, errs.Cancelled) || !strings.Contains(err.Error(), "transfer to") {
				t.Fatalf("got %v", err)
			}
			if r.inFlight.Load() != 0 {
				t.Error("a body was left open")
			}
		})
	}
}

func TestRemoteFilesHaveNoOtherRoute(t *testing.T) {
	h := host.New()
	e := newEngine(t, Options{})
	f := vfs.NewRemote("s3://b/k", 100, &memRemote{data: noise(100, 6), parallel: 1})
	b := alloc(t, h, 100)
	for _, route := range []report.Route{report.RouteDirect, report.RouteCuFile} {
		if _, err := e.Start(context.Background(), whole(h, f, b.Ptr(), route)); !errs.Is(err, errs.Unsupported) ||
			!strings.Contains(err.Error(), "network") {
			t.Errorf("%s: %v", route, err)
		}
	}
}

// A server that wants few connections gets few, though others have brought many fetchers.
func TestNetworkReadsKeepToTheirConnections(t *testing.T) {
	h := host.New()
	e := newEngine(t, Options{})
	data := noise(40*units.MiB, 7)
	var all []*Load
	var remotes []*memRemote
	for _, parallel := range []int{8, 1, 2} {
		r := &memRemote{data: data, parallel: parallel}
		f := vfs.NewRemote("s3://b/k", int64(len(data)), r)
		b := alloc(t, h, f.Size())
		all, remotes = append(all, start(t, e, context.Background(), whole(h, f, b.Ptr(), report.RouteAuto))),
			append(remotes, r)
	}
	for i, tr := range all {
		if err := tr.Err(); err != nil || remotes[i].most.Load() > int64(remotes[i].parallel) {
			t.Errorf("%v, %d requests at once, expected at most %d", err, remotes[i].most.Load(), remotes[i].parallel)
		}
	}
}
