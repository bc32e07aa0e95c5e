// SPDX-License-Identifier: Apache-2.0

package meters

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// ServerOptions say how a Collector reads the metrics of a NebulaIO server.
type ServerOptions struct {
	// Address is the URL of the server's console, such as http://127.0.0.1:9001; "" reads no server.
	Address string
	// CAFile is a PEM file with the certificates that sign the server's; "" means those of the system.
	CAFile string
	// Quiet leaves out the reason in Sample.Missing if nothing, or another program, answers at the address.
	Quiet bool
}

const (
	// patience is how long a Collector waits for the metrics of a server.
	patience = 500 * time.Millisecond
	// mostCertificates bounds the size of a file of certificates.
	mostCertificates = 1 << 20
)

// serverMeter reads the metrics of a server.
type serverMeter struct {
	o      ServerOptions
	client *http.Client
	before *Server
	rest   int // samples until the next try, after a failure
}

func newServerMeter(o ServerOptions) (*serverMeter, error) {
	const op = "watch the server"
	u, err := url.Parse(o.Address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" ||
		u.Path != "" && u.Path != "/" {
		return nil, errs.New(errs.Invalid, op, strconv.Quote(o.Address),
			"is not the address of a console; expected a URL such as http://127.0.0.1:9001")
	}
	o.Address = u.Scheme + "://" + u.Host
	t := &http.Transport{MaxIdleConns: 1, DisableCompression: true}
	if o.CAFile != "" {
		f, err := os.Open(o.CAFile)
		if err != nil {
			return nil, errs.Wrap(op, o.CAFile, err)
		}
		defer f.Close()
		pem, err := io.ReadAll(io.LimitReader(f, mostCertificates))
		if err != nil {
			return nil, errs.Wrap(op, o.CAFile, err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, errs.New(errs.Corrupt, op, o.CAFile, "has no certificate; expected a PEM file")
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	// A console does not redirect; whoever does is another program.
	return &serverMeter{o: o, client: &http.Client{Transport: t, Timeout: patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
}

func (m *serverMeter) close() { m.client.CloseIdleConnections() }

// read asks the server for its metrics. After a failure, it waits some samples before it asks again, so that a server
// that hangs does not slow down the view.
func (m *serverMeter) read(ctx context.Context, s *Sample) {
	if m.rest > 0 {
		if m.rest--; m.rest > 0 {
			return
		}
	}
	now, err := m.ask(ctx)
	if err != nil {
		m.rest, m.before = shapeEvery, nil
		if !m.o.Quiet || !unanswered(err) {
			s.missText("server", errs.MessageOf(err), "check that the server runs, and its console address")
		}
		return
	}
	now.Address = m.o.Address
	if m.before != nil {
		now.since(*m.before, s.Seconds)
	}
	m.before, s.Server = now, now
}

// errForeign is the error of an answer that is not from a NebulaIO server.
var errForeign = errors.New("the answer is not from a NebulaIO server")

func unanswered(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, errForeign)
}

func (m *serverMeter) ask(ctx context.Context) (*Server, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.o.Address+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := m.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s/metrics: status %d: %w", m.o.Address, resp.StatusCode, errForeign)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxRead))
	if err != nil {
		return nil, err
	}
	now, ok := parseMetrics(b)
	if !ok {
		return nil, fmt.Errorf("GET %s/metrics: %w", m.o.Address, errForeign)
	}
	return now, nil
}

// since computes the rates of the server from its counters before.
func (s *Server) since(before Server, seconds float64) {
	s.RequestRate, s.FailRate = per(s.Requests, before.Requests, seconds), per(s.Failed, before.Failed, seconds)
	s.ReceiveRate, s.SendRate = per(s.Received, before.Received, seconds), per(s.Sent, before.Sent, seconds)
	s.DoorRates = map[string]float64{}
	for route, n := range s.DoorBytes {
		s.DoorRates[route] = per(n, before.DoorBytes[route], seconds)
	}
}

// mostRoutes bounds the routes of the door that are kept.
const mostRoutes = 64

// parseMetrics parses the metrics of a server in Prometheus' text format. It returns false if nothing in them is a
// metric of NebulaIO.
func parseMetrics(b []byte) (*Server, bool) {
	s := &Server{DoorBytes: map[string]uint64{}}
	ours := false
	for line := range bytes.Lines(b) {
		name, labels, value, ok := parseMetric(line)
		if !ok || !strings.HasPrefix(name, "nebulaio_") {
			continue
		}
		ours = true
		switch name {
		case "nebulaio_s3_requests_total":
			s.Requests += whole(value)
			if code := label(labels, "code"); len(code) == 3 && code >= "500" {
				s.Failed += whole(value)
			}
		case "nebulaio_s3_received_bytes_total":
			s.Received += whole(value)
		case "nebulaio_s3_sent_bytes_total":
			s.Sent += whole(value)
		case "nebulaio_s3_requests_in_flight":
			s.InFlight = value
		case "nebulaio_gpudirect_connections":
			s.DoorClients = value
		case "nebulaio_gpudirect_reported_bytes_total":
			route := label(labels, "route")
			if _, known := s.DoorBytes[route]; label(labels, "stage") == "total" && (known || len(s.DoorBytes) < mostRoutes) {
				s.DoorBytes[route] += whole(value)
			}
		}
	}
	return s, ours
}

// parseMetric splits a line such as name{label="x"} 12. It returns false for comments and for anything else.
func parseMetric(line []byte) (name, labels string, value float64, ok bool) {
	text := strings.TrimSpace(string(line))
	if text == "" || text[0] == '#' || len(text) > 1<<16 {
		return "", "", 0, false
	}
	name, rest, found := strings.Cut(text, "{")
	if found {
		end := strings.LastIndexByte(rest, '}')
		if end < 0 {
			return "", "", 0, false
		}
		labels, rest = rest[:end], rest[end+1:]
	} else if name, rest, found = strings.Cut(text, " "); !found {
		return "", "", 0, false
	}
	number, _, _ := strings.Cut(strings.TrimSpace(rest), " ") // a time may follow
	value, err := strconv.ParseFloat(number, 64)
	return name, labels, value, err == nil
}

// label returns the value of a label, such as x of label="x". Escapes stay as they are.
func label(labels, name string) string {
	_, rest, ok := strings.Cut(","+labels, ","+name+`="`)
	if !ok {
		return ""
	}
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

// whole converts the value of a counter. Values that are no counts give 0.
func whole(v float64) uint64 {
	if !(v >= 0) || v >= 1<<63 {
		return 0
	}
	return uint64(v)
}
