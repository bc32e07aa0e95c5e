// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// storeCollector asks the store when somebody asks for metrics.
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

// statsWithin bounds how long a scrape waits for the store.
const statsWithin = 5 * time.Second

func newStoreCollector(stats func(context.Context) (Stats, error)) *storeCollector {
	c := &storeCollector{stats: stats, up: prometheus.NewDesc("nebulaio_store_up",
		"1 if the store answered when its numbers were asked for, else 0.", nil, nil)}
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
	add(now, "files", "Number of object versions whose content is in its own data file.",
		func(s Stats) int64 { return s.Files })
	add(now, "uploads", "Multipart uploads in progress now.", func(s Stats) int64 { return s.Uploads })
	add(now, "upload_bytes", "Bytes of the parts of multipart uploads in progress now.",
		func(s Stats) int64 { return s.UploadBytes })
	add(now, "metadata_bytes", "Bytes of metadata on disk.", func(s Stats) int64 { return s.MetadataBytes })
	add(now, "log_bytes", "Bytes of the log of the metadata, which a restart reads.",
		func(s Stats) int64 { return s.LogBytes })
	add(ever, "log_syncs_total", "Times that the log of the metadata was flushed to disk; many writes share one flush.",
		func(s Stats) int64 { return s.LogSyncs })
	add(now, "open_files", "Data files that the store keeps open now.", func(s Stats) int64 { return s.OpenFiles })
	add(now, "unsettled_files", "Data files of new content that wait to be moved to their final directory.",
		func(s Stats) int64 { return s.Unsettled })
	add(now, "removing_files", "Data files of deleted content that wait to be removed.",
		func(s Stats) int64 { return s.Removing })
	add(now, "held_files", "Data files of deleted content, or copies made for one client, that a client still has open.",
		func(s Stats) int64 { return s.HeldFiles })
	add(now, "held_bytes", "Bytes of deleted content, or of copies made for one client, that a client still has open.",
		func(s Stats) int64 { return s.HeldBytes })
	add(now, "draft_files", "Data files that clients are writing now (drafts).",
		func(s Stats) int64 { return s.DraftFiles })
	add(now, "draft_bytes", "Bytes on disk of the data files that clients are writing now (drafts).",
		func(s Stats) int64 { return s.DraftBytes })
	add(now, "writable", "1 while the store takes new content; 0 if its disk is full, it is open for reading only, or "+
		"it has failed.",
		func(s Stats) int64 {
			if s.Refusing != "" {
				return 0
			}
			return 1
		})
	add(now, "free_bytes", "Bytes free in the file system of the store.", func(s Stats) int64 { return s.FreeBytes })
	return c
}

// Describe is prometheus.Collector's.
func (c *storeCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.up
	for _, g := range c.all {
		ch <- g.desc
	}
}

// Collect is prometheus.Collector's. Where the store does not answer, it says so and leaves the rest out.
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

// watch adds the numbers of a store.
func (m *metrics) watch(stats func(context.Context) (Stats, error)) error {
	return errs.Wrap("register metrics of", "the store", m.registry.Register(newStoreCollector(stats)))
}
