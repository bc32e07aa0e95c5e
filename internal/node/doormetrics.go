// SPDX-License-Identifier: Apache-2.0

package node

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/nebulaio/nebulaio/internal/errs"
	door "github.com/nebulaio/nebulaio/internal/gpudirect/server"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
)

// doorCollector asks the door when somebody asks for metrics.
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
			"Requests of clients that the GPUDirect door refused, by error code.", []string{"code"}, nil),
		bytes: prometheus.NewDesc(prefix+"reported_bytes_total",
			"Bytes that clients of the GPUDirect door report to have moved, by direction, route, device and stage.", moved, nil),
		seconds: prometheus.NewDesc(prefix+"reported_seconds_total",
			"Seconds spent in each stage of a transfer, as reported by clients of the GPUDirect door, by direction, route, "+
				"device and stage.", moved, nil),
	}
	add := func(kind prometheus.ValueType, name, help string, read func(*door.Stats) int64) {
		c.all = append(c.all, doorNumber{prometheus.NewDesc(prefix+name, help, nil, nil), kind, read})
	}
	const now, ever = prometheus.GaugeValue, prometheus.CounterValue
	add(now, "connections", "Connections to the GPUDirect door that are open now.",
		func(s *door.Stats) int64 { return s.Connections })
	add(ever, "logins_total", "Logins at the GPUDirect door that succeeded.",
		func(s *door.Stats) int64 { return s.Logins })
	add(ever, "logins_refused_total", "Logins at the GPUDirect door that were refused.",
		func(s *door.Stats) int64 { return s.LoginsRefused })
	add(ever, "messages_total", "Messages received from clients of the GPUDirect door, logins and refused messages "+
		"included.",
		func(s *door.Stats) int64 { return s.Messages })
	add(now, "handles", "Objects that clients have open through the GPUDirect door now.",
		func(s *door.Stats) int64 { return s.Handles })
	add(now, "held_bytes", "Bytes of content of the objects that clients have open through the GPUDirect door now.",
		func(s *door.Stats) int64 { return s.HeldBytes })
	add(now, "drafts", "Objects that clients are writing through the GPUDirect door now (drafts).",
		func(s *door.Stats) int64 { return s.Drafts })
	add(now, "draft_bytes", "Bytes reserved for the objects that clients are writing through the GPUDirect door now.",
		func(s *door.Stats) int64 { return s.DraftBytes })
	add(ever, "opened_objects_total", "Objects that the GPUDirect door handed out as files.",
		func(s *door.Stats) int64 { return s.Opened })
	add(ever, "inline_objects_total", "Small objects that the GPUDirect door sent inside a reply.",
		func(s *door.Stats) int64 { return s.Inline })
	add(ever, "inline_bytes_total", "Bytes of small objects that the GPUDirect door sent inside a reply.",
		func(s *door.Stats) int64 { return s.InlineBytes })
	add(ever, "created_objects_total", "Objects that clients began to write through the GPUDirect door.",
		func(s *door.Stats) int64 { return s.Created })
	add(ever, "committed_objects_total", "Objects that clients wrote through the GPUDirect door and committed.",
		func(s *door.Stats) int64 { return s.Committed })
	add(ever, "aborted_objects_total", "Object writes through the GPUDirect door that ended without an object, because "+
		"the client aborted them or its connection closed.",
		func(s *door.Stats) int64 { return s.Aborted })
	add(ever, "listed_pages_total", "Pages of listings that the GPUDirect door sent to clients.",
		func(s *door.Stats) int64 { return s.Listed })
	return c
}

// Describe is prometheus.Collector's.
func (c *doorCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.served, c.refused, c.bytes, c.seconds} {
		ch <- d
	}
	for _, n := range c.all {
		ch <- n.desc
	}
}

// Collect is prometheus.Collector's. Every code has a series from the start; of reports there
// are as many as clients made, with labels out of lists that are fixed.
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

// watchDoor adds the numbers of the door, which may come later or not at all.
func (m *metrics) watchDoor(stats func() (door.Stats, bool)) error {
	return errs.Wrap("register metrics of", "the GPUDirect door", m.registry.Register(newDoorCollector(stats)))
}
