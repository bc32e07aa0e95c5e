// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"syscall"

	"github.com/nebulaio/nebulaio/internal/cluster"
	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// Cluster describes the cluster of a server.
type Cluster struct {
	// Enabled reports whether the server is a member of a cluster. If Enabled is false, Reason says why and Fix says
	// what to do, and Status is nil.
	Enabled bool            `json:"enabled"`
	Reason  string          `json:"reason,omitempty"`
	Fix     string          `json:"fix,omitempty"`
	Status  *cluster.Status `json:"status,omitempty"`
}

// noExtents serves nothing to other members, because this node has no upstream buckets.
type noExtents struct{}

// Blocks implements cluster.Extents.
func (noExtents) Blocks(_ context.Context, id object.Identity, _ cluster.Span) (cluster.Blocks, error) {
	return nil, errs.New(errs.NotFound, "read", id.Origin, "this node has no upstream buckets")
}

// startCluster makes the server a member of the cluster of its configuration. startCluster returns nil if the
// configuration names no cluster. The caller stops the Node with stopCluster.
func (s *server) startCluster(ctx context.Context, extents cluster.Extents) (*cluster.Node, error) {
	k := s.Config.Cluster
	if !k.Enabled() {
		return nil, nil
	}
	key, err := cluster.ReadKey(k.KeyFile)
	if err != nil {
		return nil, err
	}
	name, err := k.NodeName()
	if err != nil {
		return nil, &errs.Error{Kind: errs.Other, Op: "read", Name: "the host name", Err: err, Fix: "set cluster.name"}
	}
	l, err := listen(ctx, "cluster.address", k.Address)
	if err != nil {
		return nil, err
	}
	log := component(s.log, "cluster")
	n, err := cluster.Start(ctx, cluster.Options{Name: name, Key: key, Listener: l, Gossip: k.Gossip(),
		Advertise: k.Advertise, Seeds: k.Seeds, Zone: k.Zone, Weight: k.Weight, Extents: extents, Log: log})
	if err != nil {
		return nil, err
	}
	s.members.Store(n)
	log.Info("joined the cluster", "name", name, "address", l.Addr().String(), "zone", k.Zone, "weight", k.Weight)
	return n, nil
}

// stopCluster leaves the cluster. Requests of other members may finish within drain_timeout.
func (s *server) stopCluster(n *cluster.Node) {
	if n == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.Config.DrainTimeout)
	defer cancel()
	if err := n.Close(ctx); err != nil {
		component(s.log, "cluster").Warn("leaving the cluster failed", "error", err)
	}
}

// clusterStatus describes the cluster of a running server.
func (s *server) clusterStatus() Cluster {
	n := s.members.Load()
	if n == nil {
		return Cluster{Reason: "cluster.address is not set", Fix: "set cluster.address and cluster.key_file"}
	}
	st := n.Status()
	return Cluster{Enabled: true, Status: &st}
}

// usableCluster returns an error if the server cannot become a member of its cluster.
func usableCluster(ctx context.Context, c *config.Config) error {
	k := c.Cluster
	if !k.Enabled() {
		return nil
	}
	if _, err := cluster.ReadKey(k.KeyFile); err != nil {
		return err
	}
	for _, a := range []struct{ key, address string }{{"cluster.address", k.Address},
		{"cluster.gossip_address", k.Gossip()}} {
		if err := assignable(ctx, a.key, a.address); err != nil {
			return err
		}
	}
	for _, seed := range k.Seeds {
		if _, _, err := cluster.ParseSeed(seed); err != nil {
			return err
		}
	}
	return nil
}

// LookAtCluster describes the cluster of the server that runs on the configuration's data directory. If no server runs,
// LookAtCluster says so in the Reason of the Cluster.
func LookAtCluster(ctx context.Context, c *config.Config) (k Cluster, running bool, err error) {
	conn, err := dialAdmin(ctx, c.Data)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOTDIR):
		return Cluster{Reason: "no server runs on " + c.Data, Fix: "start one: nebulaio server --data " + c.Data}, false, nil
	case err != nil: // a server may still run there
		return Cluster{}, false, &errs.Error{Kind: errs.KindOf(err), Op: "ask the server", Name: c.Data, Err: err,
			Fix: "run it as the server's user, or as root"}
	}
	_ = conn.Close()
	r := newRemote(c.Data)
	defer r.Close()
	err = r.call(ctx, http.MethodGet, "/v1/cluster", nil, &k)
	return k, true, err
}

// addCluster serves the description of the cluster.
func addCluster(mux *http.ServeMux, status func() Cluster) {
	mux.HandleFunc("GET /v1/cluster", func(w http.ResponseWriter, _ *http.Request) { answer(w, status(), nil) })
}
