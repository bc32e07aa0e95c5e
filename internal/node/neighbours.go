// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	"github.com/nebulaio/nebulaio/internal/cluster"
	"github.com/nebulaio/nebulaio/internal/object"
)

// extentsOf returns the blocks that the store serves to other members of the cluster.
func extentsOf(st store) cluster.Extents {
	if u, ok := st.(*withUpstreams); ok {
		return u.Store
	}
	return noExtents{}
}

// joinNeighbours lets the upstream buckets of the store read from other members of the cluster.
func joinNeighbours(st store, n *cluster.Node) {
	if u, ok := st.(*withUpstreams); ok && n != nil {
		u.Join(neighbours{n})
	}
}

// neighbours asks other members of the cluster for blocks.
type neighbours struct{ n *cluster.Node }

// Fetch implements cache.Neighbours.
func (x neighbours) Fetch(ctx context.Context, id object.Identity, span cluster.Span) (cluster.Blocks, error) {
	e, err := x.n.Fetch(ctx, id, span)
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Mine implements cache.Neighbours.
func (x neighbours) Mine(id object.Identity, extent int64) bool {
	owners := x.n.Owners(id, extent)
	return len(owners) == 0 || owners[0].Self
}
