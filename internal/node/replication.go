// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/copying/versions"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/replication"
	"github.com/nebulaio/nebulaio/internal/replication/rules"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// replicationTargets opens the targets of bucket replication. The caller closes them.
func replicationTargets(c *config.Config) (map[string]*versions.Server, error) {
	all := map[string]*versions.Server{}
	for _, name := range c.Targets() {
		r := c.Replication[name]
		o := s3.Options{Endpoint: r.Endpoint, Region: r.Region, CAFile: r.CAFile, VirtualHost: r.AddressingStyle == "virtual",
			Retries: -1}
		var err error
		if o.AccessKey, err = targetVariable(name, "access_key_env", r.AccessKeyEnv); err != nil {
			return nil, err
		}
		if o.SecretKey, err = targetVariable(name, "secret_key_env", r.SecretKeyEnv); err != nil {
			return nil, err
		}
		if all[name], err = versions.NewServer(o); err != nil {
			return nil, errs.Wrap("add replication target", name, err)
		}
	}
	return all, nil
}

// targetVariable returns the value of an environment variable that a setting of a target names.
func targetVariable(target, setting, variable string) (string, error) {
	value := os.Getenv(variable)
	if value == "" {
		return "", errs.New(errs.Invalid, "add replication target", "replication."+target+"."+setting,
			fmt.Sprintf("is %s, and this environment variable is not set", variable)).
			WithFix("set " + variable + " in the environment of the server")
	}
	return value, nil
}

// newReplication returns the worker that copies the changes of replicated buckets, with its metrics.
func newReplication(s *server, st store, targets map[string]*versions.Server) (*replication.Worker, error) {
	m, err := s.metrics.watchReplication()
	if err != nil {
		return nil, err
	}
	return replication.New(replication.Options{Store: diskOf(st), Targets: targets, Log: component(s.log, "replication"),
		Done: m.done}), nil
}

// replicationMetrics counts what replication has done since the server started.
type replicationMetrics struct {
	versions, failed, bytes *prometheus.CounterVec
}

// watchReplication adds the metrics of bucket replication.
func (m *metrics) watchReplication() (*replicationMetrics, error) {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "nebulaio_replication_" + name, Help: help},
			[]string{"bucket", "target"})
	}
	r := &replicationMetrics{
		versions: counter("versions_total",
			"Versions and delete markers that were copied to replication targets, by bucket and "+"target."),
		failed: counter("failed_total", "Versions that a replication target refused for good, by bucket and target."),
		bytes:  counter("bytes_total", "Bytes of content that were copied to replication targets, by bucket and target."),
	}
	for _, c := range []*prometheus.CounterVec{r.versions, r.failed, r.bytes} {
		if err := m.registry.Register(c); err != nil {
			return nil, errs.Wrap("add metrics", "replication", err)
		}
	}
	return r, nil
}

func (r *replicationMetrics) done(l rules.Link, bytes int64, failed bool) {
	if failed {
		r.failed.WithLabelValues(l.Bucket, l.Target).Inc()
		return
	}
	r.versions.WithLabelValues(l.Bucket, l.Target).Inc()
	r.bytes.WithLabelValues(l.Bucket, l.Target).Add(float64(bytes))
}
