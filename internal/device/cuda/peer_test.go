// SPDX-License-Identifier: Apache-2.0

package cuda_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/device/devicetest"
	"github.com/nebulaio/nebulaio/internal/device/fakegpu"
	"github.com/nebulaio/nebulaio/internal/device/host"
	"github.com/nebulaio/nebulaio/internal/errs"
)

func TestACopyToAPeerWaitsForItsMark(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
	a, b := openTwo(t, g)
	in := devicetest.HostBytes(t, 1<<20)
	for i := range in {
		in[i] = byte(i * 11)
	}
	first, second := devicetest.Buffer(t, a, 1<<20), devicetest.Buffer(t, b, 1<<20)
	main := devicetest.Queue(t, a)
	m := devicetest.Mark(t, main)
	for range 2 { // access that is given already is fine
		q, err := a.(device.Peered).NewPeerQueue(b)
		must(t, err)
		must(t, q.AfterMark(m)) // never recorded: nothing to wait for
		stream := main.(device.Streamer).Stream()
		g.HoldStream(stream, true)
		must(t, errors.Join(main.CopyIn(first.Ptr(), in), m.Record(), q.AfterMark(m),
			q.CopyPeer(second.Ptr(), first.Ptr(), 1<<20), q.CopyPeer(0, 0, 0)))
		g.Await("waiting_for_event", 1)
		if bytes.Equal(g.Bytes(second.Ptr(), 1<<20), in) {
			t.Fatal("the peer has the bytes before they came")
		}
		g.HoldStream(stream, false)
		must(t, errors.Join(q.Drain(), q.Close()))
		if !bytes.Equal(g.Bytes(second.Ptr(), 1<<20), in) {
			t.Fatal("bytes differ")
		}
		clear(g.Bytes(second.Ptr(), 1<<20))
	}
	if g.Count("peer_copies") != 2 || g.Count("peer_through_host") != 0 || g.Count("peers_enabled") != 1 {
		t.Errorf("%d copies, %d of them through the host, %d times enabled", g.Count("peer_copies"),
			g.Count("peer_through_host"), g.Count("peers_enabled"))
	}
	g.CheckIdle()
}

// openTwo opens two devices of one set.
func openTwo(t *testing.T, g *fakegpu.GPU) (a, b device.Device) {
	t.Helper()
	all := g.OpenAll()
	return all[0], all[1]
}

func TestPeersThatDoNotReachEachOther(t *testing.T) {
	g := fakegpu.Build(t, fakegpu.Options{Devices: 2})
	a, b := openTwo(t, g)
	p := a.(device.Peered)
	g.Peer(0, 1, false)
	if _, err := p.NewPeerQueue(b); !errs.Is(err, errs.Unsupported) ||
		!strings.Contains(err.Error(), "cuda:0 to cuda:1") || !strings.Contains(errs.FixOf(err), "nvidia-smi topo") {
		t.Errorf("no peers: %v", err)
	}
	g.Peer(0, 1, true)
	g.Fail("cuCtxEnablePeerAccess", 0, 1, fakegpu.PeerUnsupported)
	if _, err := p.NewPeerQueue(b); !errs.Is(err, errs.Unsupported) {
		t.Errorf("refused: %v", err)
	}
	for _, fn := range []string{"cuDeviceCanAccessPeer", "cuCtxEnablePeerAccess", "cuStreamCreate"} {
		g.Fail(fn, 0, 1, fakegpu.LaunchFailed)
		if _, err := p.NewPeerQueue(b); !errs.Is(err, errs.Device) || !strings.Contains(err.Error(), fn) {
			t.Errorf("%s: %v", fn, err)
		}
	}
	if _, err := p.NewPeerQueue(a); !errs.Is(err, errs.Invalid) {
		t.Errorf("itself: %v", err)
	}
	if _, err := p.NewPeerQueue(host.New()); !errs.Is(err, errs.Unsupported) {
		t.Errorf("host: %v", err)
	}
	q, err := p.NewPeerQueue(b)
	must(t, err)
	onA, onB := devicetest.Buffer(t, a, 4096), devicetest.Buffer(t, b, 4096)
	if err := q.CopyPeer(onA.Ptr(), onB.Ptr(), 4096); !errs.Is(err, errs.Device) {
		t.Errorf("the wrong way round: %v", err)
	}
	if err := q.AfterMark(devicetest.Mark(t, devicetest.Queue(t, b))); !errs.Is(err, errs.Invalid) {
		t.Errorf("a mark of another device: %v", err)
	}
	must(t, q.Close())
	g.CheckIdle()

	old := fakegpu.Build(t, fakegpu.Options{Devices: 2, Without: []string{"cuMemcpyPeerAsync"}})
	a, b = openTwo(t, old)
	if _, err := a.(device.Peered).NewPeerQueue(b); !errs.Is(err, errs.Unsupported) ||
		!strings.Contains(err.Error(), "cuMemcpyPeerAsync") {
		t.Errorf("an old driver: %v", err)
	}
}
