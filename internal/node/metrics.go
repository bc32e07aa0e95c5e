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

// otherOperation is the label of requests that no known operation matches, so
// that clients cannot make labels.
const otherOperation = "Other"

// operations are the operations that get a label of their own, all of them from the
// start: a rate over a series begins at 0 and not at its first request.
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

// metrics is everything that /metrics shows, in a registry of its own.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	byOp     map[string]*opMetrics // not changed after it was made
	damage   *prometheus.CounterVec
	scrubs   *prometheus.CounterVec
	scrubbed prometheus.Gauge
	failed   prometheus.Gauge
	// expired counts multipart uploads that were aborted because nobody completed them.
	expired, expiredBytes prometheus.Counter
	ready                 atomic.Bool // as of the last scrape
}

// opMetrics are the series of one operation, found once.
type opMetrics struct {
	name    string
	ok      prometheus.Counter // code 200, which most requests have
	latency prometheus.Observer
	in, out prometheus.Counter
}

// gauges are numbers that are asked for when they are wanted.
type gauges struct {
	connections, inflight func() float64
}

func newMetrics(version string, g gauges) *metrics {
	m := &metrics{registry: prometheus.NewRegistry(), byOp: map[string]*opMetrics{}}
	m.requests = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "nebulaio_s3_requests_total",
		Help: "S3 requests answered, by operation and HTTP status."}, []string{"operation", "code"})
	latency := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "nebulaio_s3_request_duration_seconds",
		Help:    "Seconds from the header of an S3 request to the last byte of its answer, by operation.",
		Buckets: []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60},
	}, []string{"operation"})
	in := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "nebulaio_s3_received_bytes_total",
		Help: "Bytes received in the bodies of S3 requests, by operation."}, []string{"operation"})
	out := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "nebulaio_s3_sent_bytes_total",
		Help: "Bytes sent in the bodies of S3 answers, by operation."}, []string{"operation"})
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
		Help: "Scrubs of all content that ended since the server started, by result."}, []string{"result"})
	for _, result := range []string{"clean", "damage", "failed"} {
		m.scrubs.WithLabelValues(result)
	}
	m.scrubbed = prometheus.NewGauge(prometheus.GaugeOpts{Name: "nebulaio_last_scrub_timestamp_seconds",
		Help: "Time when the last complete scrub ended, in seconds since 1970; 0 if there was none."})
	m.failed = prometheus.NewGauge(prometheus.GaugeOpts{Name: "nebulaio_store_failed",
		Help: "1 if the store has failed and takes no more changes until the server is restarted, else 0."})
	m.expired = prometheus.NewCounter(prometheus.CounterOpts{Name: "nebulaio_uploads_expired_total",
		Help: "Multipart uploads aborted after uploads.expire without a new part."})
	m.expiredBytes = prometheus.NewCounter(prometheus.CounterOpts{Name: "nebulaio_uploads_expired_bytes_total",
		Help: "Bytes of the parts of multipart uploads aborted after uploads.expire."})
	build := prometheus.NewGauge(prometheus.GaugeOpts{Name: "nebulaio_build_info",
		Help:        "Always 1. Its label named version holds the server's version.",
		ConstLabels: prometheus.Labels{"version": version}})
	build.Set(1)
	m.registry.MustRegister(m.requests, latency, in, out, m.damage, m.scrubs, m.scrubbed, m.failed, m.expired,
		m.expiredBytes, build,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "nebulaio_s3_connections",
			Help: "Connections to the S3 address that are open now."}, g.connections),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "nebulaio_s3_requests_in_flight",
			Help: "S3 requests that the server is working on now."}, g.inflight),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "nebulaio_ready",
			Help: "1 while /readyz answers 200 because requests are accepted and content can be stored, else 0."},
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
			status = 0 // a connection that went away before there was an answer
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

// damaged counts damage by its kind, of which there are six.
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
