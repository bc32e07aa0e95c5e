// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"

	"github.com/nebulaio/nebulaio/internal/transfer"
)

// addPeers adds the peers of a read of n bytes to the engine's request.
func (c *Client) addPeers(ctx context.Context, req *transfer.Request, r *Read, n int64) error {
	for _, p := range r.Peers {
		dev, err := c.device(ctx, p.Device)
		if err != nil {
			return err
		}
		if err := examine(dev, "read", urlOf(r.Bucket, r.Key), p.Dst, n); err != nil {
			return err
		}
		req.Peers = append(req.Peers, transfer.Peer{Device: dev, From: r.Dst, To: p.Dst})
	}
	return nil
}
