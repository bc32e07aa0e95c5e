// SPDX-License-Identifier: Apache-2.0

package node

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/lifecycle"
)

// lifecycleMetrics counts what lifecycle rules have done since the server started.
type lifecycleMetrics struct {
	removed  *prometheus.CounterVec
	examined prometheus.Counter
	bytes    prometheus.Counter
	locked   prometheus.Counter
	failed   prometheus.Counter
	passes   *prometheus.CounterVec
	last     prometheus.Gauge
}

// watchLifecycle adds the metrics of lifecycle rules.
func (m *metrics) watchLifecycle() (*lifecycleMetrics, error) {
	const prefix = "nebulaio_lifecycle_"
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: prefix + name, Help: help})
	}
	l := &lifecycleMetrics{
		removed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "removed_total",
			Help: "Versions, delete markers and multipart uploads that lifecycle rules removed, by action (expire, noncurrent, " +
				"marker or abort)."}, []string{"action"}),
		examined: counter("examined_total", "Versions and delete markers that were compared with lifecycle rules."),
		bytes:    counter("removed_bytes_total", "Bytes of content of the versions that lifecycle rules removed."),
		locked: counter("locked_total", "Times that a retention or a legal hold protected a version from a lifecycle "+
			"rule."),
		failed: counter("failed_total", "Removals of lifecycle rules that failed and are tried again."),
		passes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "passes_total",
			Help: "Passes of lifecycle rules over a bucket that ended since the server started, by result (complete or " +
				"failed)."}, []string{"result"}),
		last: prometheus.NewGauge(prometheus.GaugeOpts{Name: prefix + "last_pass_timestamp_seconds",
			Help: "Time when the last complete pass of lifecycle rules over a bucket ended, in seconds since 1970; 0 before " +
				"the first one since the server started."}),
	}
	for _, a := range []lifecycle.Action{lifecycle.ActionExpire, lifecycle.ActionNoncurrent, lifecycle.ActionMarker,
		lifecycle.ActionAbort} {
		l.removed.WithLabelValues(string(a))
	}
	for _, result := range []string{"complete", "failed"} {
		l.passes.WithLabelValues(result)
	}
	for _, c := range []prometheus.Collector{l.removed, l.examined, l.bytes, l.locked, l.failed, l.passes, l.last} {
		if err := m.registry.Register(c); err != nil {
			return nil, errs.Wrap("add metrics", "lifecycle", err)
		}
	}
	return l, nil
}

func (l *lifecycleMetrics) observe(c lifecycle.Counts) {
	for action, n := range map[lifecycle.Action]int64{lifecycle.ActionExpire: c.Expired,
		lifecycle.ActionNoncurrent: c.Noncurrent, lifecycle.ActionMarker: c.Markers, lifecycle.ActionAbort: c.Uploads} {
		l.removed.WithLabelValues(string(action)).Add(float64(n))
	}
	l.examined.Add(float64(c.Examined))
	l.bytes.Add(float64(c.Bytes))
	l.locked.Add(float64(c.Locked))
	l.failed.Add(float64(c.Failed))
}

func (l *lifecycleMetrics) ended(at time.Time, err error) {
	if err != nil {
		l.passes.WithLabelValues("failed").Inc()
		return
	}
	l.passes.WithLabelValues("complete").Inc()
	l.last.Set(float64(at.Unix()))
}
