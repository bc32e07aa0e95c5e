// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nebulaio/nebulaio/internal/cluster"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// clusterCollector reads the statistics of the cluster at each scrape. A server in no cluster has no such metrics.
type clusterCollector struct {
	status  func() Cluster
	members *prometheus.Desc
	all     []clusterNumber
}

type clusterNumber struct {
	desc *prometheus.Desc
	read func(*cluster.Status) int64
}

func newClusterCollector(status func() Cluster) *clusterCollector {
	const prefix = "nebulaio_cluster_"
	c := &clusterCollector{status: status, members: prometheus.NewDesc(prefix+"members",
		"Nodes of the cluster that this node knows, by state.", []string{"state"}, nil)}
	add := func(name, help string, read func(*cluster.Status) int64) {
		c.all = append(c.all, clusterNumber{prometheus.NewDesc(prefix+name, help, nil, nil), read})
	}
	add("served_requests_total", "Requests for blocks from other nodes of the cluster that this node answered.",
		func(s *cluster.Status) int64 { return s.Served.Requests })
	add("served_bytes_total", "Bytes of blocks that this node gave to other nodes of the cluster.",
		func(s *cluster.Status) int64 { return s.Served.Bytes })
	add("served_errors_total", "Requests for blocks from other nodes of the cluster that failed on this node.",
		func(s *cluster.Status) int64 { return s.Served.Errors })
	add("served_busy_total", "Requests for blocks that this node refused because too many were in progress.",
		func(s *cluster.Status) int64 { return s.Served.Busy })
	add("fetched_requests_total", "Requests for blocks that other nodes of the cluster answered with a first block.",
		func(s *cluster.Status) int64 { return s.Fetched.Requests })
	add("fetched_bytes_total", "Bytes of blocks that this node got from other nodes of the cluster.",
		func(s *cluster.Status) int64 { return s.Fetched.Bytes })
	add("fetched_errors_total", "Requests for blocks to other nodes of the cluster that failed or ended early.",
		func(s *cluster.Status) int64 { return s.Fetched.Errors })
	add("fetched_wrong_total", "Replies of other nodes of the cluster with wrong bytes, checksums or lengths.",
		func(s *cluster.Status) int64 { return s.Fetched.Wrong })
	add("fetched_refused_total", "Requests for blocks that other nodes of the cluster refused while busy or "+
		"unable to read from upstream.",
		func(s *cluster.Status) int64 { return s.Fetched.Refused })
	add("strangers_total", "Connections to the cluster and gossip addresses without a proof of the cluster key.",
		func(s *cluster.Status) int64 { return s.Strangers })
	return c
}

// Describe implements prometheus.Collector.
func (c *clusterCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.members
	for _, n := range c.all {
		ch <- n.desc
	}
}

// Collect implements prometheus.Collector.
func (c *clusterCollector) Collect(ch chan<- prometheus.Metric) {
	k := c.status()
	if !k.Enabled {
		return
	}
	states := map[string]int{}
	for _, m := range k.Status.Members {
		states[m.State]++
	}
	for _, state := range cluster.States() {
		ch <- prometheus.MustNewConstMetric(c.members, prometheus.GaugeValue, float64(states[state]), state)
	}
	for _, n := range c.all {
		ch <- prometheus.MustNewConstMetric(n.desc, prometheus.CounterValue, float64(n.read(k.Status)))
	}
}

// watchCluster adds the metrics of the cluster. The server may join a cluster later or never.
func (m *metrics) watchCluster(status func() Cluster) error {
	return errs.Wrap("register metrics of", "the cluster", m.registry.Register(newClusterCollector(status)))
}
