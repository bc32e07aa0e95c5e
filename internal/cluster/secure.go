// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"math/big"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Bounds of the connections that have not proven the cluster key yet.
const (
	handshakeTime    = 5 * time.Second
	handshakesAtOnce = 256
	handshakesOfHost = 32 // one address alone must not use all handshakes
)

// errStranger means that the other end of a connection does not have the cluster key.
var errStranger = errors.New("the other end does not have the key of this cluster")

// secure is the TLS of members. All members have the same Ed25519 key pair, which derives from the cluster key. Each
// end of a connection requires exactly that public key of the other end, so that both ends prove the cluster key.
// TLS 1.3 encrypts the bytes and refuses changed and replayed ones.
type secure struct{ server, client *tls.Config }

func (k Key) secure() (secure, error) {
	seed := k.derive("TLS key pair of members")
	private := ed25519.NewKeyFromSeed(seed[:])
	public := private.Public().(ed25519.PublicKey)
	// The dates and names of the certificate are not compared: the public key alone decides.
	about := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "nebulaio cluster member"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<32, 0)}
	der, err := x509.CreateCertificate(rand.Reader, about, about, public, private)
	if err != nil {
		return secure{}, errs.Wrap("make the certificate of", "the cluster", err)
	}
	base := &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}},
		// VerifyConnection below replaces the check of names and authorities.
		InsecureSkipVerify:          true, //nolint:gosec // the public key is compared instead
		ClientAuth:                  tls.RequireAnyClientCert,
		SessionTicketsDisabled:      true, // every connection proves the key anew
		DynamicRecordSizingDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if s.Version != tls.VersionTLS13 || len(s.PeerCertificates) != 1 {
				return errStranger
			}
			got, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
			if !ok || !bytes.Equal(got, public) {
				return errStranger
			}
			return nil
		},
	}
	return secure{server: base, client: base.Clone()}, nil
}

// dial proves the key to the other end of raw, and requires the same proof. dial closes raw if it fails.
func (s secure) dial(ctx context.Context, raw net.Conn) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTime)
	defer cancel()
	c := tls.Client(raw, s.client)
	if err := c.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		return nil, err
	}
	return c, nil
}

// gate passes on the connections whose other end has proven the cluster key. Nothing else reads from a connection
// before that. The gate bounds the number of connections that have proven nothing yet.
type gate struct {
	conf    *tls.Config
	out     chan net.Conn
	done    chan struct{}
	refused atomic.Int64 // connections without the key

	mu    sync.Mutex
	hosts map[string]int // handshakes in progress by address
	total int
}

func newGate(conf *tls.Config) *gate {
	return &gate{conf: conf, out: make(chan net.Conn), done: make(chan struct{}), hosts: map[string]int{}}
}

// admit lets the other end of raw prove the key, in a goroutine of its own. admit closes raw if there are too many
// handshakes in progress.
func (g *gate) admit(raw net.Conn) {
	host, _, err := net.SplitHostPort(raw.RemoteAddr().String())
	if err != nil {
		host = raw.RemoteAddr().String()
	}
	if !g.enter(host) {
		g.refused.Add(1)
		_ = raw.Close()
		return
	}
	go func() {
		c, err := g.prove(raw)
		g.leave(host)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) { // a member may give up a connection early
				g.refused.Add(1)
			}
			_ = raw.Close()
			return
		}
		select {
		case g.out <- c:
		case <-g.done:
			_ = raw.Close()
		}
	}()
}

func (g *gate) prove(raw net.Conn) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTime)
	defer cancel()
	c := tls.Server(raw, g.conf)
	return c, c.HandshakeContext(ctx)
}

func (g *gate) enter(host string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.total >= handshakesAtOnce || g.hosts[host] >= handshakesOfHost {
		return false
	}
	g.total++
	g.hosts[host]++
	return true
}

func (g *gate) leave(host string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.total--
	if g.hosts[host]--; g.hosts[host] == 0 {
		delete(g.hosts, host)
	}
}

// close stops the gate. Connections that nobody has taken are closed.
func (g *gate) close() { close(g.done) }

// gateListener is a listener whose connections have passed a gate.
type gateListener struct {
	net.Listener
	gate *gate
	err  chan error
	once sync.Once
}

func (g *gate) listen(l net.Listener) *gateListener {
	gl := &gateListener{Listener: l, gate: g, err: make(chan error, 1)}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				if isTemporary(err) { // too many open files, for example
					select {
					case <-time.After(50 * time.Millisecond):
						continue
					case <-g.done:
					}
				}
				gl.err <- err
				return
			}
			g.admit(c)
		}
	}()
	return gl
}

func isTemporary(err error) bool { return !errors.Is(err, net.ErrClosed) }

// Accept implements net.Listener.
func (l *gateListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.gate.out:
		return c, nil
	case err := <-l.err:
		l.err <- err
		return nil, err
	case <-l.gate.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *gateListener) Close() error {
	var err error
	l.once.Do(func() {
		err = l.Listener.Close()
		l.gate.close()
	})
	return err
}
