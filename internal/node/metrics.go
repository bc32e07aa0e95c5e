// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/nebulaio/nebulaio/internal/object"
)

// otherOperation is the label of requests with an unknown operation, so that clients cannot create new labels.
const otherOperation = "Other"

// operations lists the operations that have their own label. Each label has a series from the start, so that a rate
// counts the first request too.
func operations() []string {
	return []string{
		"AbortMultipartUpload", "CompleteMultipartUpload", "CopyObject", "CreateBucket", "CreateMultipartUpload",
		"DeleteBucket",
		"DeleteObject", "DeleteObjects", "GetBucketAcl", "GetBucketLocation", "GetBucketPolicy", "GetBucketVersioning",
		"GetObject", "GetObjectAcl", "GetObjectAttributes",
		"GetObjectTagging", "HeadBucket", "HeadObject", "ListAllMyBuckets", "ListMultipartUploads", "ListObjectVersions",
		"ListObjects", "ListObjectsV2",
		"ListParts", "Options", "PostObject", "PutBucketAcl", "PutBucketPolicy", "PutBucketVersioning", "PutObject",
		"PutObjectTagging",
		"UploadPart", "UploadPartCopy", otherOperation,
	}
}

// metrics holds all metrics that /metrics shows, in its own registry.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	byOp     map[string]*opMetrics // never changed after newMetrics
	damage   *prometheus.CounterVec
	scrubs   *prometheus.CounterVec
	scrubbed prometheus.Gauge
	failed   prometheus.Gauge
	// expired counts the aborted multipart uploads that got no new part for the time uploads.expire.
	expired, expiredBytes prometheus.Counter
	ready                 atomic.Bool // value at the last scrape
}

// opMetrics holds the series of one operation, so that no request has to look them up.
type opMetrics struct {
	name    string
	ok      prometheus.Counter // code 200, which most requests have
	latency prometheus.Observer
	in, out prometheus.Counter
}

// gauges are functions that return current values at each scrape.
type gauges struct {
	connections, inflight func() float64
}

func newMetrics(version string, g gauges) *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), byOp: map[string]*opMetrics{}}
	m.requests = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "nebulaio_s3_requests_total",
		Help: "S3 requests that the server answered, by operation and HTTP status."}, []string{"operation", "code"})
	latency := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "nebulaio_s3_request_duration_seconds",
		Help: "Seconds between receiving the header of an S3 request and sending the last byte of its reply, " +
			"by operation.",
		Buckets: []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60},
	}, []string{"operation"})
	in := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "nebulaio_s3_received_bytes_total",
		Help: "Bytes received in the bodies of S3 requests, by operation."}, []string{"operation"})
	out := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "nebulaio_s3_sent_bytes_total",
		Help: "Bytes sent in the bodies of S3 replies, by operation."}, []string{"operation"})
	for _, op := range operations() {
		m.byOp[op] = &opMetrics{name: op, ok: m.requests.WithLabelValues(op, "200"), latency: latency.WithLabelValues(op),
			in: in.WithLabelValues(op), out: out.WithLabelValues(op)}
	}
	m.damage = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "nebulaio_store_damage_total",
		Help: "Damaged blocks of content found since the server started, by kind of damage."}, []string{"what"})
	for _, what := range []string{"checksum", "missing", "short", "unreadable", object.DamageDeclared,
		object.DamageRecord} {
		m.damage.WithLabelValues(what)
	}
	m.scrubs = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "nebulaio_scrubs_total",
		Help: "Background scrubs that ended since the server started, by result (clean, damage or failed)."},
		[]string{"result"})
	for _, result := range []string{"clean", "damage", "failed"} {
		m.scrubs.WithLabelValues(result)
	}
	m.scrubbed = prometheus.NewGauge(prometheus.GaugeOpts{Name: "nebulaio_last_scrub_timestamp_seconds",
		Help: "Time when the last complete background scrub ended, in seconds since 1970; before the first " +
			"scrub, the time of the first start of the store."})
	m.failed = prometheus.NewGauge(prometheus.GaugeOpts{Name: "nebulaio_store_failed",
		Help: "1 if the store has failed and accepts no changes until the server is restarted, else 0."})
	m.expired = prometheus.NewCounter(prometheus.CounterOpts{Name: "nebulaio_uploads_expired_total",
		Help: "Multipart uploads that the server aborted because no new part arrived within the time of the " +
			"setting uploads.expire."})
	m.expiredBytes = prometheus.NewCounter(prometheus.CounterOpts{Name: "nebulaio_uploads_expired_bytes_total",
		Help: "Bytes of parts in multipart uploads that the server aborted because no new part arrived " +
			"within the time of the setting uploads.expire."})
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "nebulaio_build_info",
		Help:        "Constant 1; the label version holds the version of the server.",
		ConstLabels: prometheus.Labels{"version": version}})
	build.Set(1)
	m.registry.MustRegister(m.requests, latency, in, out, m.damage, m.scrubs, m.scrubbed, m.failed, m.expired,
		m.expiredBytes, build,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "nebulaio_s3_connections",
			Help: "Connections to the S3 address that are open now."}, g.connections),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "nebulaio_s3_requests_in_flight",
			Help: "S3 requests in progress now."}, g.inflight),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "nebulaio_ready",
			Help: "1 while /readyz answers 200, which means that the server accepts requests and can store " +
				"content, else 0."},
			func() float64 {
				if m.ready.Load() {
					return 1
				}
				return 0
			}),
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// observe counts one request.
func (m *metrics) observe(operation string, status int, in, out int64, took time.Duration) {
	op, ok := m.byOp[operation]
	if !ok {
		op = m.byOp[otherOperation]
	}
	if status == http.StatusOK {
		op.ok.Inc()
	} else {
		if status < 100 || status > 599 {
			status = 0 // the connection ended before there was a reply
		}
		m.requests.WithLabelValues(op.name, strconv.Itoa(status)).Inc()
	}
	op.latency.Observe(took.Seconds())
	if in > 0 {
		op.in.Add(float64(in))
	}
	if out > 0 {
		op.out.Add(float64(out))
	}
}

// damaged counts damage by its kind. There are six kinds.
func (m *metrics) damaged(d object.Damage) {
	switch d.What {
	case "checksum", "missing", "short", "unreadable", object.DamageDeclared, object.DamageRecord:
		m.damage.WithLabelValues(d.What).Inc()
	default:
		m.damage.WithLabelValues("other").Inc()
	}
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second,
		EnableOpenMetrics: true})
}
