// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bytes"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/transfer"
)

func TestReadsToSeveralDevicesAtOnce(t *testing.T) {
	for name, x := range map[string]struct {
		p2p  bool
		size int
		way  string
	}{
		"by themselves":  {true, 3<<20 + 7, transfer.PeerP2P},
		"switched off":   {false, 3<<20 + 7, transfer.PeerStaging},
		"inside a reply": {true, 4096, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, true, func(r *rig) { r.settings.P2P = x.p2p })
			data := content(3, x.size)
			r.put("k", data)
			c := r.client()
			a, b := r.alloc("cuda:0", x.size), r.alloc("cuda:1", x.size)
			rd := Read{Bucket: "b", Key: "k", Size: -1, Dst: a.ptr(), DstSize: int64(x.size), Device: "cuda:0",
				Peers: []Peer{{Device: "cuda:1", Dst: b.ptr()}}}
			m, err := c.StartRead(t.Context(), rd)
			if err == nil {
				err = m.Wait()
			}
			if err != nil || !bytes.Equal(a.get(x.size), data) || !bytes.Equal(b.get(x.size), data) {
				t.Fatalf("%v, first %v, second %v", err, bytes.Equal(a.get(x.size), data), bytes.Equal(b.get(x.size), data))
			}
			if p := m.Report().Peers; x.way != "" && (len(p) != 1 || p[0].Way != x.way || p[0].Bytes != int64(x.size)) {
				t.Errorf("%+v", p)
			}
			a.set(make([]byte, x.size))
			b.set(make([]byte, x.size))
			if m, err = c.StartReadMany(t.Context(), []Read{rd}); err == nil {
				err = m.Wait()
			}
			if err != nil || !bytes.Equal(a.get(x.size), data) || !bytes.Equal(b.get(x.size), data) {
				t.Errorf("in a batch: %v", err)
			}
			rd.Peers[0].Dst = a.ptr() // memory of the other device
			m, err = c.StartRead(t.Context(), rd)
			if err == nil {
				err = m.Wait()
			}
			if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "cuda:1") {
				t.Errorf("memory of another device: %v", err)
			}
		})
	}
}
