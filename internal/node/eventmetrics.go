// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nebulaio/nebulaio/internal/errs"
	sending "github.com/nebulaio/nebulaio/internal/notify"
	"github.com/nebulaio/nebulaio/internal/object"
)

// eventCollector reads the queues of the journal, the states of event targets and the audit log at each scrape.
type eventCollector struct {
	journal object.Journal
	status  func() []sending.Status
	audit   *auditor

	waiting, lost, oldest, delivered, failures, lines, refused *prometheus.Desc
}

func newEventCollector(j object.Journal, status func() []sending.Status, a *auditor) *eventCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("nebulaio_"+name, help, labels, nil)
	}
	return &eventCollector{
		journal: j, status: status, audit: a,
		waiting: desc("journal_waiting", "Changes of objects that wait in the journal, by queue.", "queue"),
		lost: desc("journal_lost_total",
			"Changes of objects that were dropped from a full queue of the journal, by queue.", "queue"),
		oldest: desc("journal_oldest_timestamp_seconds",
			"Unix time of the oldest change that waits in the journal, by queue; 0 if no change waits.", "queue"),
		delivered: desc("events_delivered_total", "Events that a target has confirmed since the server started, by target.",
			"target"),
		failures: desc("events_failures_total",
			"Failed tries to send events since the server started, by target. Events are sent again after a failure.", "target"),
		lines: desc("audit_lines_total", "Lines that the server has written to its audit log since it started."),
		refused: desc("audit_refused_total",
			"Requests that were refused since the server started, because the audit log could not be written."),
	}
}

// Describe implements prometheus.Collector.
func (c *eventCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.waiting, c.lost, c.oldest, c.delivered, c.failures, c.lines, c.refused} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *eventCollector) Collect(ch chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), statsWithin)
	defer cancel()
	if queues, err := c.journal.JournalQueues(ctx); err == nil { // nebulaio_store_up tells of a store that does not answer
		for _, q := range queues {
			send(c.waiting, prometheus.GaugeValue, float64(q.Waiting), q.Consumer)
			send(c.lost, prometheus.CounterValue, float64(q.Lost), q.Consumer)
			at := 0.0
			if !q.Oldest.IsZero() {
				at = float64(q.Oldest.UnixMilli()) / 1e3
			}
			send(c.oldest, prometheus.GaugeValue, at, q.Consumer)
		}
	}
	for _, s := range c.status() {
		send(c.delivered, prometheus.CounterValue, float64(s.Delivered), s.Target)
		send(c.failures, prometheus.CounterValue, float64(s.Failures), s.Target)
	}
	var lines, refused int64
	if c.audit != nil {
		lines, refused = c.audit.lines.Load(), c.audit.lost.Load()
	}
	send(c.lines, prometheus.CounterValue, float64(lines))
	send(c.refused, prometheus.CounterValue, float64(refused))
}

// watchEvents adds the metrics of events and of the audit log.
func (m *metrics) watchEvents(j object.Journal, status func() []sending.Status, a *auditor) error {
	return errs.Wrap("register metrics of", "events", m.registry.Register(newEventCollector(j, status, a)))
}
