// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
)

// withPeers is the request for a whole file to several devices, and the memory
// that it goes to, the first device's first.
func withPeers(t *testing.T, f *vfs.File, devices ...device.Device) (Request, []device.Ptr) {
	t.Helper()
	var at []device.Ptr
	for i, d := range devices {
		at = append(at, alloc(t, d, f.Size()+64).Ptr()+device.Ptr(i))
	}
	r := whole(devices[0], f, at[0], report.RouteAuto)
	for i, d := range devices[1:] {
		r.Peers = append(r.Peers, Peer{Device: d, From: at[0], To: at[i+1]})
	}
	return r, at
}

func checkPeers(t *testing.T, g *fakegpu.GPU, at []device.Ptr, want []byte) {
	t.Helper()
	for i, p := range at {
		if !bytes.Equal(g.Bytes(p, int64(len(want))), want) {
			t.Fatalf("the bytes on device %d differ", i)
		}
	}
}

func TestPeersGetTheSameBytesFromOneRead(t *testing.T) {
	path, want := writeFile(t, 3*units.MiB+1234, 71)
	for name, c := range map[string]struct {
		opts    func(o *Options)
		devices int
		arrange func(g *fakegpu.GPU)
		ways    []string
	}{
		"two":     {devices: 2, ways: []string{PeerP2P}},
		"four":    {devices: 4, ways: []string{PeerP2P, PeerP2P, PeerP2P}},
		"refused": {devices: 2, arrange: func(g *fakegpu.GPU) { g.Peer(0, 1, false) }, ways: []string{PeerStaging}},
		"one of them": {devices: 4, arrange: func(g *fakegpu.GPU) { g.Peer(0, 2, false) },
			ways: []string{PeerP2P, PeerStaging, PeerP2P}},
		"the other way": {devices: 2, arrange: func(g *fakegpu.GPU) { g.Peer(1, 0, false) }, ways: []string{PeerP2P}},
		"switched off":  {devices: 2, opts: func(o *Options) { o.NoP2P = true }, ways: []string{PeerStaging}},
		"given by others": {devices: 2, arrange: func(g *fakegpu.GPU) {
			g.Fail("cuCtxEnablePeerAccess", 0, 1,
				fakegpu.PeerEnabled)
		}, ways: []string{PeerP2P}},
	} {
		for ename, o := range engines() {
			if ename != "pread" && name != "one of them" {
				continue // every engine once
			}
			t.Run(name+"/"+ename, func(t *testing.T) {
				g := fakegpu.Build(t, fakegpu.Options{Devices: c.devices})
				if c.arrange != nil {
					c.arrange(g)
				}
				if c.opts != nil {
					c.opts(&o)
				}
				devices := g.OpenAll()
				e := newEngine(t, o)
				f := openFile(t, path)
				for _, cold := range []bool{true, false} {
					if cold {
						requireDirect(t, f)
						dropped(t, f)
					} else if _, err := f.ReadAt(make([]byte, f.Size()), 0); err != nil {
						t.Fatal(err)
					}
					in := g.Count("bytes_in")
					r, at := withPeers(t, f, devices...)
					tr := start(t, e, context.Background(), r)
					if err := tr.Err(); err != nil {
						t.Fatal(err)
					}
					checkPeers(t, g, at, want)
					staged := int64(1)
					rep := tr.Report()
					for i, p := range rep.Peers {
						if p.Way != c.ways[i] || p.Bytes != f.Size() || p.Device.ID != fmt.Sprintf("cuda:%d", i+1) ||
							(p.Refused != nil) != (p.Way == PeerStaging) {
							t.Errorf("peer %d: %+v %+v", i, p, p.Refused)
						}
						if p.Way == PeerStaging {
							staged++
							if p.Refused.Reason == "" || p.Refused.Fix == "" || !slices.Contains(rep.Refusals, *p.Refused) {
								t.Errorf("refused: %+v", p.Refused)
							}
						}
					}
					if len(rep.Peers) != len(c.ways) || rep.Bytes != f.Size() || rep.Read < f.Size() || rep.Read > f.Size()+4096 {
						t.Errorf("%d peers, %d bytes, %d read", len(rep.Peers), rep.Bytes, rep.Read)
					}
					if n := g.Count("bytes_in") - in; n != staged*f.Size() {
						t.Errorf("%d bytes came from the host, expected %d times the file", n, staged)
					}
				}
				if name != "given by others" && g.Count("peer_through_host") != 0 {
					t.Error("a copy between GPUs went through the host")
				}
				g.CheckPinned()
				g.CheckIdle()
			})
		}
	}
}

// What is packed out of a read, verified and cut at odd places arrives on every device.
func TestPeersOfSlices(t *testing.T) {
	path, content := writeFile(t, 2*units.MiB+77, 72)
	sums, err := checksum.Compute(context.Background(), path, 1<<16, nil)
	if err != nil {
		t.Fatal(err)
	}
	g := fakegpu.Build(t, fakegpu.Options{Devices: 3})
	g.Peer(0, 2, false)
	devices := append(g.OpenAll(), host.New())
	for _, verify := range []bool{false, true} {
		e := newEngine(t, small)
		f := openFile(t, path)
		r, at := withPeers(t, f, devices...)
		r.Segments, r.Gap = nil, DefaultGap
		if verify {
			r.Verify = []*checksum.Sums{sums}
		}
		var want []byte
		rng := rand.New(rand.NewPCG(5, 6))
		for off := int64(0); off < f.Size(); {
			s := Segment{Off: off, Len: min(1+rng.Int64N(90_000), f.Size()-off), Dst: at[0] + device.Ptr(len(want))}
			if rng.IntN(2) == 0 {
				s.Width, s.Stride = 3, 7
			}
			for x := int64(0); x < s.Len; x++ {
				if s.Stride == 0 || x%s.Stride < s.Width {
					want = append(want, content[off+x])
				}
			}
			r.Segments = append(r.Segments, s)
			off += s.Len + rng.Int64N(5000)
		}
		if err := start(t, e, context.Background(), r).Err(); err != nil {
			t.Fatal(err)
		}
		checkPeers(t, g, at, want)
	}
	g.CheckIdle()
}

func TestPeersInHostMemory(t *testing.T) {
	path, want := writeFile(t, units.MiB+77, 73)
	g := fakegpu.Build(t, fakegpu.Options{})
	f := openFile(t, path)
	e := newEngine(t, small)
	r, at := withPeers(t, f, host.New(), host.New())
	tr := start(t, e, context.Background(), r)
	if err := tr.Err(); err != nil {
		t.Fatal(err)
	}
	checkPeers(t, g, at, want)
	if p := tr.Report().Peers; len(p) != 1 || p[0].Way != PeerMemory || p[0].Bytes != f.Size() || p[0].Refused != nil {
		t.Errorf("%+v", p)
	}
}

func TestPeersThatMakeNoSense(t *testing.T) {
	path, _ := writeFile(t, 4096, 74)
	g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
	devices := g.OpenAll()
	f := openFile(t, path)
	e := newEngine(t, small)
	for name, change := range map[string]func(r *Request){
		"itself":         func(r *Request) { r.Peers[0].Device = r.Device },
		"nobody":         func(r *Request) { r.Peers[0].Device = nil },
		"twice":          func(r *Request) { r.Peers = append(r.Peers, r.Peers[0]) },
		"before":         func(r *Request) { r.Peers[0].From++ },
		"cufile":         func(r *Request) { r.Route = report.RouteCuFile },
		"behind a host":  func(r *Request) { r.Device = host.New() },
		"another stream": func(r *Request) { r.Peers[0].HasStream, r.Peers[0].Stream = true, 12345 },
	} {
		r, _ := withPeers(t, f, devices...)
		change(&r)
		if _, err := e.Start(context.Background(), r); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := e.Close(); err != nil {
		t.Errorf("a transfer that was refused still counts: %v", err)
	}
}

func TestPeersWhenTheDeviceFails(t *testing.T) {
	path, _ := writeFile(t, 2*units.MiB, 75)
	for name, arrange := range map[string]func(g *fakegpu.GPU){
		"queue peer copy":   fakegpu.FailingCall("cuMemcpyPeerAsync", 3, fakegpu.InvalidValue),
		"queue staged copy": fakegpu.FailingCall(fakegpu.CopyToDevice, 4, fakegpu.InvalidValue),
		"copy":              fakegpu.FailingCopy(7, fakegpu.LaunchFailed, false),
		"copy, sticky":      fakegpu.FailingCopy(8, fakegpu.LaunchFailed, true),
		"order":             fakegpu.FailingCall("cuStreamWaitEvent", 2, fakegpu.InvalidValue),
		"record":            fakegpu.FailingCall("cuEventRecord", 5, fakegpu.InvalidValue),
		"make mark":         fakegpu.FailingCall("cuEventCreate", 2, fakegpu.OutOfMemory),
	} {
		t.Run(name, func(t *testing.T) {
			g := fakegpu.Build(t, fakegpu.Options{Devices: 3})
			g.Peer(0, 2, false)
			r, _ := withPeers(t, openFile(t, path), g.OpenAll()...)
			e := engineOfBroken(t, small)
			arrange(g)
			tr := start(t, e, context.Background(), r)
			if err := tr.Err(); !errs.Is(err, errs.Device) && !errs.Is(err, errs.NoMemory) {
				t.Fatalf("err: %v", err)
			}
			if n := g.Count("copies_in_flight"); n != 0 {
				t.Errorf("%d copies are still under way", n)
			}
			g.CheckIdle()
		})
	}
}

func TestPeersCancelled(t *testing.T) {
	path, _ := writeFile(t, 2*units.MiB, 76)
	g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
	t.Cleanup(g.CheckFreed)
	devices := g.OpenAll()
	e := newEngine(t, small)
	f := openFile(t, path)
	r, _ := withPeers(t, f, devices...)
	ctx, cancel := context.WithCancel(context.Background())
	g.Hold(3)
	tr := start(t, e, ctx, r)
	cancelHeld(t, g, tr, cancel)
	if err := tr.Err(); !errs.Is(err, errs.Cancelled) {
		t.Fatal(err)
	}
	if n := g.Count("copies_in_flight"); n != 0 {
		t.Errorf("%d copies are under way", n)
	}
	g.CheckIdle()
}

func TestPeersWaitForTheCallersStreamThere(t *testing.T) {
	path, want := writeFile(t, 200_000, 77)
	for _, p2p := range []bool{true, false} {
		g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
		g.Peer(0, 1, p2p)
		r, at := withPeers(t, openFile(t, path), g.OpenAll()...)
		e := newEngine(t, small)
		theirs := alloc(t, host.New(), 4096)
		u := g.Thread(1)
		s := u.NewStream()
		g.HoldStream(s, true)
		u.Copy(s, at[1], g.Bytes(theirs.Ptr(), 4096))
		r.Peers[0].Stream, r.Peers[0].HasStream = s, true
		tr := start(t, e, context.Background(), r)
		releaseStream(t, g, s, tr)
		checkPeers(t, g, at, want)
		u.DestroyStream(s)
		u.Leave()
		g.CheckIdle()
	}
}

func TestAPeerIsNamedInErrors(t *testing.T) {
	path, _ := writeFile(t, 100_000, 78)
	g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
	r, _ := withPeers(t, openFile(t, path), g.OpenAll()...)
	e := newEngine(t, small)
	r.Peers[0].To += 1 << 30 // no memory of anybody
	if err := start(t, e, context.Background(), r).Err(); err == nil || !strings.Contains(err.Error(), "copy to cuda:1") {
		t.Error(err)
	}
	g.CheckIdle()
}
