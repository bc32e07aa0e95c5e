// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/cache"
	"github.com/nebulaio/nebulaio/internal/store/upstream"
)

// cacheCollector reads the statistics of the cache at each scrape. A server without upstream buckets has no such
// metrics.
type cacheCollector struct {
	stats    func() (cache.Stats, bool)
	reads    *prometheus.Desc
	bytes    *prometheus.Desc
	breaker  *prometheus.Desc
	first    *prometheus.Desc
	refusals *prometheus.Desc
	all      []cacheNumber
}

type cacheNumber struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(*cache.Stats) int64
}

func newCacheCollector(stats func() (cache.Stats, bool)) *cacheCollector {
	const prefix = "nebulaio_cache_"
	c := &cacheCollector{stats: stats,
		reads: prometheus.NewDesc(prefix+"reads_total", "Reads of objects of an upstream bucket, by bucket and source (hit, "+
			"upstream, peer or stale).", []string{"bucket", "source"}, nil),
		bytes: prometheus.NewDesc(prefix+"fetched_bytes_total", "Bytes that the cache fetched, by bucket and source "+
			"(upstream or peer).", []string{"bucket", "source"}, nil),
		breaker: prometheus.NewDesc("nebulaio_upstream_up", "1 while requests are sent to the upstream of a "+
			"bucket, else 0: its breaker is open.", []string{"bucket"}, nil),
		first: prometheus.NewDesc("nebulaio_upstream_first_byte_seconds",
			"Seconds from a request to an upstream to the first "+"byte of its reply, by bucket.", []string{"bucket"}, nil),
		refusals: prometheus.NewDesc(prefix+"door_misses_total", "Opens at the GPUDirect door that were refused because the "+
			"object was not cached as a whole, by bucket.", []string{"bucket"}, nil)}
	add := func(kind prometheus.ValueType, name, help string, read func(*cache.Stats) int64) {
		c.all = append(c.all, cacheNumber{prometheus.NewDesc(prefix+name, help, nil, nil), kind, read})
	}
	const now, ever = prometheus.GaugeValue, prometheus.CounterValue
	add(now, "capacity_bytes", "Bytes that all cached objects together may occupy.",
		func(s *cache.Stats) int64 { return s.Files.Capacity })
	add(now, "bytes", "Bytes of cached objects on the disk.", func(s *cache.Stats) int64 { return s.Files.Bytes })
	add(now, "entries", "Object versions in the cache.", func(s *cache.Stats) int64 { return s.Files.Entries })
	add(now, "whole_entries", "Object versions that are in the cache as a whole.",
		func(s *cache.Stats) int64 { return s.Files.Whole })
	add(now, "pinned_bytes", "Bytes of cached objects that are pinned.",
		func(s *cache.Stats) int64 { return s.Files.Pinned })
	add(ever, "evictions_total", "Object versions that were evicted from the cache.",
		func(s *cache.Stats) int64 { return s.Files.Evicted })
	add(ever, "evicted_bytes_total", "Bytes of object versions that were evicted from the cache.",
		func(s *cache.Stats) int64 { return s.Files.Freed })
	add(ever, "refused_total", "Object versions that were served without being cached, because there was no room.",
		func(s *cache.Stats) int64 { return s.Files.Refused })
	add(ever, "left_out_blocks_total",
		"Blocks of missing objects that were sent to readers and not cached at once, because "+
			"the disk was slower than the upstream.", func(s *cache.Stats) int64 { return s.LeftOut })
	add(ever, "fills_total", "Fetches of missing blocks from upstreams and other nodes.",
		func(s *cache.Stats) int64 { return s.Fills })
	add(ever, "validations_total", "Answers of upstreams that a cached object has not changed.",
		func(s *cache.Stats) int64 { return s.Validated })
	add(ever, "wrong_contents_total", "Contents from upstreams that differed from their checksums and were dropped.",
		func(s *cache.Stats) int64 { return s.Wrong })
	add(ever, "damaged_blocks_total", "Damaged blocks of cached objects that were dropped.",
		func(s *cache.Stats) int64 { return s.Files.Damaged })
	add(ever, "peer_failures_total", "Fetches from other nodes of the cluster that the upstream had to complete.",
		func(s *cache.Stats) int64 { return s.PeerFailures })
	return c
}

// Describe implements prometheus.Collector.
func (c *cacheCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.reads, c.bytes, c.breaker, c.first, c.refusals} {
		ch <- d
	}
	for _, n := range c.all {
		ch <- n.desc
	}
}

// Collect implements prometheus.Collector.
func (c *cacheCollector) Collect(ch chan<- prometheus.Metric) {
	s, ok := c.stats()
	if !ok {
		return
	}
	for _, n := range c.all {
		ch <- prometheus.MustNewConstMetric(n.desc, n.kind, float64(n.read(&s)))
	}
	for i := range s.Buckets {
		c.bucket(ch, &s.Buckets[i])
	}
}

// bucket sends the metrics of one upstream bucket.
func (c *cacheCollector) bucket(ch chan<- prometheus.Metric, b *cache.BucketStats) {
	count := func(d *prometheus.Desc, n int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	count(c.reads, b.Hits, b.Name, "hit")
	count(c.reads, b.Misses, b.Name, "upstream")
	count(c.reads, b.Peers, b.Name, "peer")
	count(c.reads, b.Stale, b.Name, "stale")
	count(c.bytes, b.UpstreamBytes, b.Name, "upstream")
	count(c.bytes, b.PeerBytes, b.Name, "peer")
	count(c.refusals, b.DoorMisses, b.Name)
	up := 0.0
	if b.State.Phase == upstream.Closed {
		up = 1
	}
	ch <- prometheus.MustNewConstMetric(c.breaker, prometheus.GaugeValue, up, b.Name)
	below, total := map[float64]uint64{}, uint64(0)
	for i, bound := range cache.FirstByteBounds() {
		if i < len(b.FirstByte.Counts) {
			total += uint64(b.FirstByte.Counts[i])
		}
		below[bound] = total
	}
	if n := len(cache.FirstByteBounds()); n < len(b.FirstByte.Counts) {
		total += uint64(b.FirstByte.Counts[n])
	}
	ch <- prometheus.MustNewConstHistogram(c.first, total, b.FirstByte.Sum, below, b.Name)
}

// watchCache adds the metrics of the cache.
func (m *metrics) watchCache(stats func() (cache.Stats, bool)) error {
	return errs.Wrap("register metrics of", "the cache", m.registry.Register(newCacheCollector(stats)))
}

// cacheStats returns a function that returns the statistics of the cache, and false if the store has no upstream
// bucket.
func cacheStats(st store) func() (cache.Stats, bool) {
	return func() (cache.Stats, bool) {
		if u, ok := st.(*withUpstreams); ok {
			return u.Stats(), true
		}
		return cache.Stats{}, false
	}
}
