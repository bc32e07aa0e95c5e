// SPDX-License-Identifier: Apache-2.0

// Package s3api is the S3 front end. It speaks S3 over HTTP, and stores everything in an object.Store.
//
// versitygw implements the protocol itself: signatures, XML, routing and the judgement of policies. This package has
// three parts around it. The backend connects versitygw to the store. The guard checks and mends requests before
// versitygw sees them, and replies after. The Server runs both.
//
// The backend must not keep a string of a request, because the string shares memory with a buffer that the connection's
// next request overwrites. It clones such strings first.
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

// Options are the parts and settings of a front end.
type Options struct {
	// Store keeps buckets and objects. The caller closes it after Serve has returned.
	Store object.Store
	// Accounts are the accounts that may sign requests, with root.
	Accounts *iam.Service
	// Listeners are bound by the caller and closed by Serve. At least one.
	Listeners []net.Listener
	// TLS, if not nil, makes every listener speak TLS.
	TLS *tls.Config
	// Region is the region for which clients sign. Empty: us-east-1. A few calls that clients make before they know the
	// region always accept us-east-1.
	Region string
	// Domains are host names in lower case. For each, bucket.DOMAIN is served beside DOMAIN/bucket.
	Domains []string
	// ServerName is the Server header of every reply. Empty: NebulaIO.
	ServerName string
	// ETag returns the kind of ETag of a new bucket. Nil: MD5.
	ETag func(bucket string) object.ETagKind
	// Admin also serves the account and bucket-owner calls of versitygw's admin API to accounts of the role admin.
	Admin bool
	// ReadOnly refuses every call that changes something.
	ReadOnly bool
	// Limits bounds the resources that clients can take up. A zero field stands for its default.
	Limits Limits
	// Drain is the time that requests may take after the context of Serve has ended. 0 means 30 s.
	Drain time.Duration
	// Discovery, if not nil, returns the JSON reply to a signed GET /.nebulaio/gpudirect. It tells clients on this host
	// about the GPUDirect door. No bucket has that name: names of buckets do not begin with a dot.
	Discovery func() []byte
	// Observe, if not nil, is called for every request after its last byte was sent. The goroutine of the connection calls
	// it, so it must be quick.
	Observe func(Event)
	// Log gets what an operator has to know: damage, failures of the store, panics. Nil: nothing is logged.
	Log *slog.Logger
}

// Limits bounds the resources that clients can take up.
type Limits struct {
	// Connections open at once; more are refused with 503. Default 16384.
	Connections int
	// Requests under way at once; more get SlowDown. Default 4096.
	Requests int
	// HeaderBytes bounds the header of a request. An idle connection costs about as much memory. Default 8 KiB, as in S3.
	HeaderBytes int
	// Idle closes a connection without a new request. Default 2 min.
	Idle time.Duration
	// Header is the time that a client may take to send the header of a request. Default 30 s.
	Header time.Duration
	// Stall ends a request whose client neither sends nor takes a byte for this time. Default 1 min.
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

// Event describes a request for metrics and access logs. Its strings share no memory with the request.
type Event struct {
	Time      time.Time     // when the header had been read
	Duration  time.Duration // until the last byte of the reply was written, or the reply failed
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

// Server is the front end. A process can have one at a time.
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

// running reports whether this process has a Server. versitygw keeps state in package variables, which a second Server
// would share with the first.
var running atomic.Bool

// New makes a front end that accepts nothing before Serve. It fails if the process has another one.
func New(o Options) (*Server, error) {
	const op = "start the S3 front end"
	if o.Store == nil || o.Accounts == nil || len(o.Listeners) == 0 {
		return nil, errs.New(errs.Invalid, op, "", "Store, Accounts and at least one of Listeners are needed")
	}
	if !running.CompareAndSwap(false, true) {
		return nil, &errs.Error{Kind: errs.Unsupported, Op: op,
			Msg: "another front end runs in this process, and versitygw's state is shared by all of them",
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

// Close closes a front end on which Serve was not called, with its listeners.
func (s *Server) Close() {
	defer s.done()
	for _, l := range s.opts.Listeners {
		_ = l.Close() // nothing was accepted from it
	}
}

// Ready reports whether requests are accepted: after Serve has begun and until its context ends.
func (s *Server) Ready() bool { return s.ready.Load() }

// Serve accepts requests until ctx ends. It returns nil when the last request has been answered, or after
// Options.Drain. An error means that a listener failed. Serve is called once.
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

// shutdown waits for requests in progress, and after the drain time cuts them off. A request that is cut off returns at
// its next read or write. The store must not be closed before.
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
	s.opts.Log.Warn("requests were cut off at the end of the drain time", "drain", s.opts.Drain.String(), "connections",
		s.conns.Len())
	s.conns.CloseAll()
	<-done
}

// Connections returns the number of open connections.
func (s *Server) Connections() int { return s.conns.Len() }

// InFlight returns the number of requests in progress. A request ends with the last byte of its reply.
func (s *Server) InFlight() int { return int(s.inFlight.Load()) }
