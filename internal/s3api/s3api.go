// SPDX-License-Identifier: Apache-2.0

// Package s3api is the S3 front end: it speaks the protocol over HTTP and keeps
// everything in an object.Store.
//
// The protocol itself (signatures, XML, policies, routing) is versitygw's; this
// package is the adapter below it, the guard in front of it and the server
// around it. The adapter never keeps a string of a request: those alias a buffer
// that the next request of the connection overwrites.
package s3api

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/conn"
)

// Options says what New serves, where and within which bounds.
type Options struct {
	// Store keeps buckets and objects. It stays the caller's, who closes it after Serve has returned.
	Store object.Store
	// Accounts says who may sign requests, root among them.
	Accounts *iam.Service
	// Listeners are bound by the caller and closed by Serve. At least one.
	Listeners []net.Listener
	// TLS, where given, is spoken on every listener.
	TLS *tls.Config
	// Region is what clients sign for. Empty: us-east-1, which is always accepted for a few calls that clients make before they know.
	Region string
	// Domains, where given, are host names in lower case under which each bucket has one of its own:
	// bucket.domain is served beside domain/bucket.
	Domains []string
	// ServerName is the Server header of every reply. Empty: NebulaIO.
	ServerName string
	// ETag says how the ETags of a new bucket are made. Nil: MD5.
	ETag func(bucket string) object.ETagKind
	// Admin also serves the account and bucket-owner calls of versitygw's admin API to accounts of the role admin.
	Admin bool
	// ReadOnly refuses every call that changes something.
	ReadOnly bool
	// Limits bounds what clients can take up; a zero field means its default.
	Limits Limits
	// Drain is how long requests may go on after the context of Serve has ended; 0 means 30 s.
	Drain time.Duration
	// Discovery, where given, answers GET /.nebulaio/gpudirect that an account has signed: what clients
	// on this host may use instead of HTTP, as JSON. No bucket's name begins with a dot.
	Discovery func() []byte
	// Observe, where given, is told of every request once its last byte has been
	// sent, from the goroutine that served it: it must be quick and must not keep the connection waiting.
	Observe func(Event)
	// Log gets what an operator has to know: damage, failures of the store, panics. Nil: discarded.
	Log *slog.Logger
}

// Limits bounds what clients can take up.
type Limits struct {
	// Connections open at once; more are refused with 503. Default 16384.
	Connections int
	// Requests under way at once; more get SlowDown. Default 4096.
	Requests int
	// HeaderBytes bounds a request's header section, and is what an idle connection costs. Default 8 KiB, which is also S3's.
	HeaderBytes int
	// Idle closes a kept-alive connection that asks for nothing. Default 2 min.
	Idle time.Duration
	// Header is how long a client may take to send the header of a request. Default 30 s.
	Header time.Duration
	// Stall ends a request whose client neither sends nor takes a byte for that long. Default 1 min.
	Stall time.Duration
}

func (l Limits) withDefaults() Limits {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	wait := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&l.Connections, 16384)
	def(&l.Requests, 4096)
	def(&l.HeaderBytes, 8<<10)
	wait(&l.Idle, 2*time.Minute)
	wait(&l.Header, 30*time.Second)
	wait(&l.Stall, time.Minute)
	return l
}

// Event is one request, as metrics and access logs see it. Its strings are its own.
type Event struct {
	Time      time.Time     // when its header had been read
	Duration  time.Duration // until the last byte of the reply was written or given up
	Operation string        // "GetObject", "PutObject" …; "Unknown" where no route matched
	Method    string
	Bucket    string
	Key       string
	Status    int
	Code      string // the S3 error code of a refused request; empty otherwise
	In, Out   int64  // bytes of the bodies; In is 0 for a request that was refused
	RequestID string
	Remote    string // address of the client
	Account   string // access key; empty for an anonymous request
	Err       error  // why the body of the reply broke off; nil otherwise
}

// Server is the front end. One lives in a process at a time.
type Server struct {
	opts  Options
	http  *fasthttp.Server
	conns *conn.Table
	ready atomic.Bool
	done  func()

	backend     *backend
	authorizer  *authorizer
	signature   fiber.Handler // checks the signature of a request that versitygw has no route for
	formHandler fiber.Handler
	documents   chan struct{} // one for each large document that is worked on

	inFlight atomic.Int64
}

// running is whether a Server lives in this process: versitygw keeps state in
// package variables, so that a second one would share the first one's.
var running atomic.Bool

// New makes the front end, which accepts nothing before Serve. It fails where
// another one lives in the process.
func New(o Options) (*Server, error) {
	const op = "start the S3 front end"
	if o.Store == nil || o.Accounts == nil || len(o.Listeners) == 0 {
		return nil, errs.New(errs.Invalid, op, "", "Store, Accounts and at least one of Listeners are needed")
	}
	if !running.CompareAndSwap(false, true) {
		return nil, &errs.Error{Kind: errs.Unsupported, Op: op,
			Msg: "another one runs in this process, and versitygw's state is shared by all of them",
			Fix: "start one process per front end"}
	}
	if o.Region == "" {
		o.Region = "us-east-1"
	}
	if o.ServerName == "" {
		o.ServerName = "NebulaIO"
	}
	if o.ETag == nil {
		o.ETag = func(string) object.ETagKind { return object.ETagMD5 }
	}
	if o.Drain <= 0 {
		o.Drain = 30 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Limits = o.Limits.withDefaults()
	s := &Server{opts: o, conns: conn.NewTable(), documents: make(chan struct{}, documentSlots),
		done: sync.OnceFunc(func() { running.Store(false) })}
	if err := s.build(); err != nil {
		s.done()
		return nil, err
	}
	return s, nil
}

// Close lets go of a front end that Serve is not called on, and closes its listeners.
func (s *Server) Close() {
	defer s.done()
	for _, l := range s.opts.Listeners {
		_ = l.Close() // nothing was accepted from it
	}
}

// Ready says whether requests are being accepted: after Serve has begun, and until its context ends.
func (s *Server) Ready() bool { return s.ready.Load() }

// Serve accepts requests until ctx ends, and returns nil when the last one has
// been answered or the time for that is over. An error means that a listener
// failed. It is called once.
func (s *Server) Serve(ctx context.Context) error {
	defer s.done()
	s.backend.tellFaults(ctx)
	failed := make(chan error, len(s.opts.Listeners))
	for _, l := range s.opts.Listeners {
		wrapped := s.conns.Wrap(l, s.opts.Limits.Stall, s.opts.TLS)
		go func() { failed <- s.http.Serve(wrapped) }()
	}
	s.ready.Store(true)
	var err error
	select {
	case err = <-failed:
		if err == nil {
			err = net.ErrClosed
		}
		err = errs.Wrap("serve S3", "", err)
	case <-ctx.Done():
	}
	s.ready.Store(false)
	s.shutdown()
	return err
}

// shutdown waits for what is under way, and after the drain time cuts it off.
// What is cut off returns at its next read or write: the store must not be closed before.
func (s *Server) shutdown() {
	for _, l := range s.opts.Listeners {
		_ = l.Close() // closed twice where the HTTP server has it already
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.http.ShutdownWithContext(context.Background()) // fails where a listener was closed before it
	}()
	drained := time.NewTimer(s.opts.Drain)
	defer drained.Stop()
	select {
	case <-done:
		return
	case <-drained.C:
	}
	s.opts.Log.Warn("requests were cut off at the end of the drain time", "drain", s.opts.Drain.String(), "connections", s.conns.Len())
	s.conns.CloseAll()
	<-done
}

// Connections counts the open connections.
func (s *Server) Connections() int { return s.conns.Len() }

// InFlight counts the requests that are being worked on, until the last byte of their reply.
func (s *Server) InFlight() int { return int(s.inFlight.Load()) }
