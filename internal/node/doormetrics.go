// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nebulaio/nebulaio/internal/errs"
	door "github.com/nebulaio/nebulaio/internal/gpudirect/server"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
)

// doorCollector reads the statistics of the door at each scrape.
type doorCollector struct {
	stats   func() (s door.Stats, served bool)
	served  *prometheus.Desc
	all     []doorNumber
	refused *prometheus.Desc
	bytes   *prometheus.Desc
	seconds *prometheus.Desc
}

type doorNumber struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	read func(*door.Stats) int64
}

func newDoorCollector(stats func() (door.Stats, bool)) *doorCollector {
	const prefix = "nebulaio_gpudirect_"
	moved := []string{"direction", "route", "device", "stage"}
	c := &doorCollector{
		stats:  stats,
		served: prometheus.NewDesc(prefix+"served", "1 while the server serves the GPUDirect door, else 0.", nil, nil),
		refused: prometheus.NewDesc(prefix+"refusals_total",
			"Client requests that the GPUDirect door refused, by error code.", []string{"code"}, nil),
		bytes: prometheus.NewDesc(prefix+"reported_bytes_total",
			"Bytes that clients of the GPUDirect door moved, as reported by the clients, by direction, route, "+
				"device and stage.", moved, nil),
		seconds: prometheus.NewDesc(prefix+"reported_seconds_total",
			"Seconds that transfers of GPUDirect door clients spent in each stage, as reported by the clients, by "+
				"direction, route, device and stage.", moved, nil),
	}
	add := func(kind prometheus.ValueType, name, help string, read func(*door.Stats) int64) {
		c.all = append(c.all, doorNumber{prometheus.NewDesc(prefix+name, help, nil, nil), kind, read})
	}
	const now, ever = prometheus.GaugeValue, prometheus.CounterValue
	add(now, "connections", "Connections to the GPUDirect door that are open now.",
		func(s *door.Stats) int64 { return s.Connections })
	add(ever, "logins_total", "Client logins that the GPUDirect door accepted.",
		func(s *door.Stats) int64 { return s.Logins })
	add(ever, "logins_refused_total", "Client logins that the GPUDirect door refused.",
		func(s *door.Stats) int64 { return s.LoginsRefused })
	add(ever, "messages_total", "Messages that the GPUDirect door received from clients, including logins and "+
		"refused messages.",
		func(s *door.Stats) int64 { return s.Messages })
	add(now, "handles", "Objects that clients have open through the GPUDirect door now.",
		func(s *door.Stats) int64 { return s.Handles })
	add(now, "held_bytes", "Bytes of content of the objects that clients have open through the GPUDirect door now.",
		func(s *door.Stats) int64 { return s.HeldBytes })
	add(now, "drafts", "Objects that clients are writing through the GPUDirect door now (drafts).",
		func(s *door.Stats) int64 { return s.Drafts })
	add(now, "draft_bytes", "Bytes reserved on disk for objects that clients are writing through the GPUDirect "+
		"door now (drafts).",
		func(s *door.Stats) int64 { return s.DraftBytes })
	add(ever, "opened_objects_total", "Objects that the GPUDirect door gave to clients as open files.",
		func(s *door.Stats) int64 { return s.Opened })
	add(ever, "inline_objects_total", "Small objects that the GPUDirect door sent in its replies instead of as "+
		"open files.",
		func(s *door.Stats) int64 { return s.Inline })
	add(ever, "inline_bytes_total", "Bytes of small objects that the GPUDirect door sent in its replies instead "+
		"of as open files.",
		func(s *door.Stats) int64 { return s.InlineBytes })
	add(ever, "created_objects_total", "Objects that clients began to write through the GPUDirect door.",
		func(s *door.Stats) int64 { return s.Created })
	add(ever, "committed_objects_total", "Objects that clients wrote through the GPUDirect door and committed.",
		func(s *door.Stats) int64 { return s.Committed })
	add(ever, "aborted_objects_total", "Object writes through the GPUDirect door that ended without a commit, "+
		"because the client aborted the write or its connection closed.",
		func(s *door.Stats) int64 { return s.Aborted })
	add(ever, "listed_pages_total", "Pages of object listings that the GPUDirect door sent to clients.",
		func(s *door.Stats) int64 { return s.Listed })
	return c
}

// Describe implements prometheus.Collector.
func (c *doorCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.served, c.refused, c.bytes, c.seconds} {
		ch <- d
	}
	for _, n := range c.all {
		ch <- n.desc
	}
}

// Collect implements prometheus.Collector. Each error code of the door has a metric series from the start. A metric
// series of client reports appears with the first report that has the labels of the series. All label values of the
// door's metrics come from fixed lists.
func (c *doorCollector) Collect(ch chan<- prometheus.Metric) {
	s, served := c.stats()
	up := 0.0
	if served {
		up = 1
	}
	ch <- prometheus.MustNewConstMetric(c.served, prometheus.GaugeValue, up)
	for _, n := range c.all {
		ch <- prometheus.MustNewConstMetric(n.desc, n.kind, float64(n.read(&s)))
	}
	for _, code := range wire.Codes() {
		ch <- prometheus.MustNewConstMetric(c.refused, prometheus.CounterValue, float64(s.Refused[code]), code)
	}
	for _, m := range s.Moved {
		ch <- prometheus.MustNewConstMetric(c.bytes, prometheus.CounterValue, float64(m.Bytes), m.Direction, m.Route,
			m.Device, m.Stage)
		ch <- prometheus.MustNewConstMetric(c.seconds, prometheus.CounterValue, m.Seconds, m.Direction, m.Route, m.Device,
			m.Stage)
	}
}

// watchDoor adds the metrics of the door. The door may open later or never.
func (m *metrics) watchDoor(stats func() (door.Stats, bool)) error {
	return errs.Wrap("register metrics of", "the GPUDirect door", m.registry.Register(newDoorCollector(stats)))
}
