// SPDX-License-Identifier: Apache-2.0

package node

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/s3api/ktls"
)

// kernelTLS reports whether the kernel encrypts the replies of TLS connections, and logs the answer with its reason.
func kernelTLS(c config.TLS, log *slog.Logger) bool {
	if !c.Enabled() {
		return false
	}
	if c.Kernel == "off" {
		log.Info("TLS by the program: the setting tls.kernel is off")
		return false
	}
	if err := ktls.Probe(); err != nil {
		log.Info("TLS by the program", "reason", err)
		return false
	}
	log.Info("TLS by the kernel: replies with TLS 1.3 and AES-GCM are sent with sendfile")
	return true
}

// watchTLS adds the numbers of TLS connections and bytes to the metrics.
func (m *metrics) watchTLS(n *ktls.Counts) error {
	const by = "by"
	for _, part := range []struct {
		name, help, by string
		read           func() int64
	}{
		{"connections_total", connectionsHelp, "kernel", n.KernelConns.Load},
		{"connections_total", connectionsHelp, "program", n.ProgramConns.Load},
		{"sent_bytes_total", sentHelp, "kernel", n.KernelBytes.Load},
		{"sent_bytes_total", sentHelp, "program", n.ProgramBytes.Load},
	} {
		err := m.registry.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "nebulaio_tls_" + part.name,
			Help: part.help, ConstLabels: prometheus.Labels{by: part.by}}, func() float64 { return float64(part.read()) }))
		if err != nil {
			return errs.Wrap("register metrics of", "TLS", err)
		}
	}
	return nil
}

const (
	connectionsHelp = "TLS connections to the S3 address since the server started, by the place where replies are " +
		"encrypted (kernel or program)."
	sentHelp = "Bytes sent on TLS connections to the S3 address, without the framing of TLS, by the place where " +
		"the bytes were encrypted (kernel or program)."
)
