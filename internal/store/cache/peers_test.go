// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/cluster"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/cache"
)

// failing is a neighbour that owns all extents, and fails when it is told to.
type failing struct {
	asked sync.Once
	ask   chan struct{} // closed when the neighbour is asked
	fail  chan struct{} // closed when the neighbour fails
}

func (n *failing) Mine(object.Identity, int64) bool { return false }

func (n *failing) Fetch(ctx context.Context, _ object.Identity, _ cluster.Span) (cluster.Blocks, error) {
	n.asked.Do(func() { close(n.ask) })
	select {
	case <-n.fail:
		return nil, cluster.ErrUnreachable
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestAFailedOwnerIsReplacedOnce: a node waits for the owner of an extent, and is its second owner. When the owner
// fails, a third node asks this one for the extent. Whoever comes first, the upstream sends the extent once.
func TestAFailedOwnerIsReplacedOnce(t *testing.T) {
	for _, ownFirst := range []bool{true, false} {
		f := newFar(t)
		data := content(50, 12*mib)
		f.put(t, "a", data)
		r := newRig(t, f, cache.Rules{})
		about, err := f.Stat(t.Context(), "a", "", "")
		if err != nil {
			t.Fatal(err)
		}
		near := &failing{ask: make(chan struct{}), fail: make(chan struct{})}
		r.Join(near)
		began, goOn := make(chan struct{}), make(chan struct{})
		var once sync.Once
		f.set(func() {
			f.before = func(at int64) {
				if at >= 2*mib {
					once.Do(func() { close(began) })
					<-goOn
				}
			}
		})
		var g sync.WaitGroup
		client := func() { r.want(t, "a", data, object.ServedPeer) }
		neighbour := func() {
			span := cluster.SpanOf(about.Identity, 0)
			b, err := r.Blocks(t.Context(), about.Identity, span)
			if err != nil {
				t.Error(err)
				return
			}
			defer b.Close()
			var got []byte
			for {
				one, err := b.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Error(err)
					return
				}
				got = append(got, one.Data...)
			}
			if !bytes.Equal(got, data) {
				t.Errorf("the neighbour got %d bytes, which differ", len(got))
			}
		}
		g.Go(client)
		<-near.ask
		if ownFirst {
			g.Go(neighbour)
			<-began
			close(near.fail)
		} else {
			close(near.fail)
			<-began
			g.Go(neighbour)
		}
		close(goOn)
		g.Wait()
		if n := f.sent.Load(); n != int64(len(data)) {
			t.Errorf("own request first %t: %d bytes from the upstream, expected %d", ownFirst, n, len(data))
		}
		s := r.Stats().Buckets[0]
		if s.UpstreamBytes != int64(len(data)) || s.PeerBytes != 0 {
			t.Errorf("own request first %t: %d bytes of the upstream and %d of neighbours were counted", ownFirst,
				s.UpstreamBytes, s.PeerBytes)
		}
	}
}

// wrongOwner is a neighbour that owns all extents and gives wrong bytes, with the checksums of the wrong bytes.
type wrongOwner struct{ data []byte }

func (*wrongOwner) Mine(object.Identity, int64) bool { return false }

func (w *wrongOwner) Fetch(_ context.Context, _ object.Identity, span cluster.Span) (cluster.Blocks, error) {
	return &wrongBlocks{data: w.data, span: span}, nil
}

type wrongBlocks struct {
	data []byte
	span cluster.Span
}

func (b *wrongBlocks) Next() (cluster.Block, error) {
	if b.span.Count == 0 {
		return cluster.Block{}, io.EOF
	}
	n := b.span.First
	b.span.First++
	b.span.Count--
	p := bytes.Clone(b.data[n*mib : min((n+1)*mib, int64(len(b.data)))])
	p[0] ^= 1
	return cluster.Block{Index: n, Sum: checksum.Of(p), Data: p}, nil
}

func (*wrongBlocks) Close() error { return nil }

// TestAWrongOwnerIsPassedOver: an owner keeps wrong blocks, whose checksums fit. The read that finds out is cut, and
// the next one reads from the upstream.
func TestAWrongOwnerIsPassedOver(t *testing.T) {
	for _, noSum := range []bool{false, true} {
		f := newFar(t)
		f.set(func() { f.noSum = noSum })
		data := content(51, 3*mib+5)
		f.put(t, "a", data)
		r := newRig(t, f, cache.Rules{})
		r.Join(&wrongOwner{data})
		if got, how, err := r.get(t.Context(), "a", 0, -1); !errs.Is(err, errs.Corrupt) || len(got) >= len(data) ||
			how.From != object.ServedPeer {
			t.Errorf("no checksum %t: %d bytes from %s, %v", noSum, len(got), how.From, err)
		}
		r.want(t, "a", data, object.ServedUpstream)
		r.want(t, "a", data, object.ServedHit)
	}
}
