// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// storeCollector reads the statistics of the store at each scrape.
type storeCollector struct {
	stats func(context.Context) (Stats, error)
	up    *prometheus.Desc
	all   []storeGauge
}

type storeGauge struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(Stats) int64
}

// statsWithin is the longest time that a scrape waits for the store.
const statsWithin = 5 * time.Second

func newStoreCollector(stats func(context.Context) (Stats, error)) *storeCollector {
	c := &storeCollector{stats: stats, up: prometheus.NewDesc("nebulaio_store_up",
		"1 if the store returned its statistics for the current scrape, else 0.", nil, nil)}
	add := func(kind prometheus.ValueType, name, help string, read func(Stats) int64) {
		c.all = append(c.all, storeGauge{prometheus.NewDesc("nebulaio_store_"+name, help, nil, nil), kind, read})
	}
	const now, ever = prometheus.GaugeValue, prometheus.CounterValue
	add(now, "buckets", "Buckets in the store.", func(s Stats) int64 { return s.Buckets })
	add(now, "objects", "Objects in the store: current versions other than delete markers.",
		func(s Stats) int64 { return s.Objects })
	add(now, "noncurrent_versions", "Noncurrent versions of objects in the store.",
		func(s Stats) int64 { return s.Versions })
	add(now, "delete_markers", "Delete markers in the store.", func(s Stats) int64 { return s.Markers })
	add(now, "bytes", "Bytes of content of all versions of all objects.", func(s Stats) int64 { return s.Bytes })
	add(now, "inline_bytes", "Bytes of content of small objects that are stored with the metadata.",
		func(s Stats) int64 { return s.InlineBytes })
	add(now, "files", "Object versions that are stored in their own data file.",
		func(s Stats) int64 { return s.Files })
	add(now, "uploads", "Multipart uploads in progress now.", func(s Stats) int64 { return s.Uploads })
	add(now, "upload_bytes", "Bytes of the parts of multipart uploads in progress now.",
		func(s Stats) int64 { return s.UploadBytes })
	add(now, "metadata_bytes", "Bytes of metadata on disk.", func(s Stats) int64 { return s.MetadataBytes })
	add(now, "log_bytes", "Bytes in the write-ahead log of the metadata; a restart of the server reads the log.",
		func(s Stats) int64 { return s.LogBytes })
	add(ever, "log_syncs_total", "Flushes of the metadata's write-ahead log to disk; several writes can share one "+
		"flush.",
		func(s Stats) int64 { return s.LogSyncs })
	add(now, "open_files", "Data files that the store keeps open now.", func(s Stats) int64 { return s.OpenFiles })
	add(now, "unsettled_files", "Data files of new content that still have to be moved to their final directory.",
		func(s Stats) int64 { return s.Unsettled })
	add(now, "removing_files", "Data files of deleted content that still have to be removed.",
		func(s Stats) int64 { return s.Removing })
	add(now, "held_files", "Data files that exist only because a GPUDirect client has them open: files of deleted "+
		"objects, and copies for one client.",
		func(s Stats) int64 { return s.HeldFiles })
	add(now, "held_bytes", "Bytes in data files that exist only because a GPUDirect client has them open: files "+
		"of deleted objects, and copies for one client.",
		func(s Stats) int64 { return s.HeldBytes })
	add(now, "draft_files", "Data files that clients of the GPUDirect door are writing now (drafts).",
		func(s Stats) int64 { return s.DraftFiles })
	add(now, "draft_bytes", "Bytes on disk of the data files that clients of the GPUDirect door are writing now "+
		"(drafts).",
		func(s Stats) int64 { return s.DraftBytes })
	add(now, "writable", "1 while the store accepts new content; 0 if the disk is full, the store is read-only or "+
		"the store has failed.",
		func(s Stats) int64 {
			if s.Refusing != "" {
				return 0
			}
			return 1
		})
	add(now, "free_bytes", "Bytes free in the file system of the store; -1 if the number is not known.",
		func(s Stats) int64 { return s.FreeBytes })
	return c
}

// Describe implements prometheus.Collector.
func (c *storeCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.up
	for _, g := range c.all {
		ch <- g.desc
	}
}

// Collect implements prometheus.Collector. If the store returns an error, Collect sends only nebulaio_store_up with
// the value 0.
func (c *storeCollector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), statsWithin)
	defer cancel()
	s, err := c.stats(ctx)
	if err != nil {
		ch <- prometheus.MustNewConstMetric(c.up, prometheus.GaugeValue, 0)
		return
	}
	ch <- prometheus.MustNewConstMetric(c.up, prometheus.GaugeValue, 1)
	for _, g := range c.all {
		ch <- prometheus.MustNewConstMetric(g.desc, g.kind, float64(g.read(s)))
	}
}

// watch adds the metrics of a store.
func (m *metrics) watch(stats func(context.Context) (Stats, error)) error {
	return errs.Wrap("register metrics of", "the store", m.registry.Register(newStoreCollector(stats)))
}
