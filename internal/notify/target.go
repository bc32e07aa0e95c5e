// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Settings describe a target. Package config checks them.
type Settings struct {
	Name    string
	Type    string // "webhook", "nats" or "kafka"
	Address []string
	Topic   string
	// User and Secret are the login of the target, or the Authorization header of a webhook in Secret.
	User, Secret string
	SASL         string
	TLS          bool
	CAFile       string
	Timeout      time.Duration
}

// Target sends messages to another program.
type Target interface {
	// Send sends messages in order, and returns how many of the first ones the receiver has confirmed. If that is not all
	// of them, Send returns the reason.
	Send(ctx context.Context, messages []Message) (confirmed int, err error)
	// Close ends the connections of the target.
	Close()
}

// Open returns the target of the settings. Open does not wait for the other program, which may be down.
func Open(s Settings) (Target, error) {
	conf, err := s.tlsConfig()
	if err != nil {
		return nil, err
	}
	switch s.Type {
	case "webhook":
		return newWebhook(s, conf), nil
	case "nats":
		return newNATS(s, conf), nil
	case "kafka":
		return newKafka(s, conf)
	}
	return nil, errs.New(errs.Invalid, "open event target", s.Name,
		fmt.Sprintf("type %q, expected webhook, nats or kafka", s.Type))
}

// Shown returns an address of a target without secrets: the scheme, the host and the port. The login, the path and the
// query of a URL can be secrets, so Shown leaves them out. An address that is no URL, such as that of a Kafka broker,
// stays as it is.
func Shown(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		if _, after, found := strings.Cut(address, "://"); found {
			return strings.TrimSuffix(address, after) + "..."
		}
		return address
	}
	shown := u.Scheme + "://" + u.Host
	if u.RawQuery != "" || u.Path != "" && u.Path != "/" {
		shown += "/..."
	}
	return shown
}

// tlsConfig returns the TLS settings of a target, or nil for the system's certificate authorities.
func (s *Settings) tlsConfig() (*tls.Config, error) {
	if s.CAFile == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(s.CAFile)
	if err != nil {
		return nil, errs.Wrap("open event target", "event_target."+s.Name+".ca_file", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errs.New(errs.Invalid, "open event target", "event_target."+s.Name+".ca_file",
			s.CAFile+" holds no certificate; expected PEM")
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}
