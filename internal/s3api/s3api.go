// SPDX-License-Identifier: Apache-2.0

// Package s3api is the S3 front end of the server. The front end answers S3 requests over HTTP and stores
// everything in an object.Store.
//
// The library versitygw implements the S3 protocol: signatures, XML, routing and the evaluation of policies. Package
// s3api adds three parts around versitygw: the backend, the guard and the Server. The backend connects versitygw to
// the store. The guard checks and corrects each request before versitygw handles it, and each reply before it is
// sent. The Server runs versitygw with the backend and the guard.
//
// A string of a request shares memory with a buffer that the connection's next request overwrites. If the backend
// keeps a string of a request after the reply, it clones the string.
package s3api

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"

	"github.com/nebulaio/nebulaio/internal/accesslog"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api/conn"
	"github.com/nebulaio/nebulaio/internal/s3api/ktls"
)

// Options hold the dependencies and settings of an S3 front end.
type Options struct {
	// Store holds the buckets and objects. The caller closes the store after Serve has returned.
	Store object.Store
	// Accounts holds the accounts that may sign requests, including the root account.
	Accounts *iam.Service
	// Listeners are the listeners on which the front end accepts connections. The caller opens at least one
	// listener, and Serve closes all listeners.
	Listeners []net.Listener
	// Inside, if not nil, is a listener for requests of other parts of this process, such as the console. Serve closes
	// Inside. The connections of Inside are not encrypted. If TLS is set, requests on Inside count as requests over TLS,
	// because the part of the process that sends them received them over TLS.
	Inside net.Listener
	// TLS, if not nil, is the TLS configuration of every listener other than Inside.
	TLS *tls.Config
	// KernelTLS lets the kernel encrypt the replies of TLS 1.3 connections with AES-GCM, so that files are sent with
	// sendfile. The caller has checked with ktls.Probe that the kernel can. Other connections stay in crypto/tls.
	KernelTLS bool
	// TLSCounts, if not nil, counts TLS connections and the bytes sent on them, by the place of the encryption.
	TLSCounts *ktls.Counts
	// Region is the S3 region for which clients must sign their requests. An empty Region means us-east-1. The few
	// requests that clients send before they know the region may always be signed for us-east-1.
	Region string
	// Domains are host names in lower case. For each domain, the front end serves a bucket under BUCKET.DOMAIN as
	// well as under DOMAIN/BUCKET.
	Domains []string
	// ServerName is the Server header of every reply. An empty ServerName means NebulaIO.
	ServerName string
	// ETag returns the kind of ETag that a new bucket uses for its objects. If ETag is nil, every new bucket uses MD5
	// ETags.
	ETag func(bucket string) object.ETagKind
	// Ownership is the S3 object ownership of a new bucket whose creator names none: BucketOwnerEnforced,
	// BucketOwnerPreferred or ObjectWriter. An empty Ownership means BucketOwnerEnforced.
	Ownership string
	// Admin lets accounts with the role admin use versitygw's admin API for accounts and bucket owners.
	Admin bool
	// ReadOnly makes the front end refuse every request that would change the store.
	ReadOnly bool
	// Limits bounds the resources that clients can use. A field of Limits that is zero has its default value.
	Limits Limits
	// Drain is the time that requests in progress get to finish after the context of Serve has ended; 0 means 30 s.
	Drain time.Duration
	// Express, if not nil, makes the front end serve directory buckets of S3 Express. The Store must then implement
	// object.Directories.
	Express *Express
	// STS, if not nil, makes the front end give temporary keys, as the Security Token Service of AWS does.
	STS *STS
	// Discovery, if not nil, returns the JSON reply to a signed request GET /.nebulaio/gpudirect. The JSON reply of
	// Discovery tells clients on this host how to reach the GPUDirect door. The path /.nebulaio/gpudirect cannot
	// conflict with a bucket, because bucket names do not begin with a dot.
	Discovery func() []byte
	// ReplicationTargets are the names of the targets that replication rules of buckets may name.
	ReplicationTargets []string
	// Warm, if not nil, answers signed requests GET /.nebulaio/warm, which fetch objects of upstream buckets to the disk
	// of the server.
	Warm Warm
	// AccessLog, if not nil, appends a line to the access log of a bucket, after the reply to the request was sent.
	AccessLog func(t accesslog.Target, line []byte) error
	// FlushLog, if not nil, delivers the collected lines of a bucket's access log, because its configuration has changed.
	FlushLog func(bucket string)
	// EventTargets maps the name of each target of event notifications to its type, such as "webhook".
	EventTargets map[string]string
	// Audit, if not nil, is called for every request before its reply is sent, with Event.HTTP set. Event.Out is then the
	// size of the reply's body that will be sent. If Audit returns an error, the client gets status 503 in place of the
	// reply.
	Audit func(*Event) error
	// Observe, if not nil, is called for every request after the last byte of its reply was sent. Observe must be
	// quick, because it runs in the goroutine of the connection.
	Observe func(Event)
	// Log receives messages for the operator, such as damaged content, failures of the store and panics. If Log is
	// nil, nothing is logged.
	Log *slog.Logger
}

// Limits bounds the resources that clients can use.
type Limits struct {
	// Connections is the largest number of open connections, by default 16384. The front end refuses connections
	// above the limit with status 503.
	Connections int
	// Requests is the largest number of requests in progress, by default 4096. The front end refuses requests above
	// the limit with the S3 error SlowDown.
	Requests int
	// HeaderBytes is the largest size of a request header in bytes, by default 8 KiB as in S3. Each idle connection
	// uses about HeaderBytes of memory.
	HeaderBytes int
	// Idle is the time after which a connection without a new request is closed, by default 2 minutes.
	Idle time.Duration
	// Header is the time in which a client must send the header of a request, by default 30 s.
	Header time.Duration
	// Stall is the time after which a request ends if its client neither sends nor receives a byte, by default 1
	// minute.
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

// Event describes a finished request for metrics and access logs. The strings of an Event share no memory with the
// request.
type Event struct {
	Time time.Time // time at which the whole request header had been read
	// Duration is the time from the field Time until the last byte of the reply was written, or until the reply
	// failed.
	Duration  time.Duration
	Operation string // S3 operation, such as "GetObject"; "Unknown" if no route matched
	Method    string
	Bucket    string
	Key       string
	Status    int
	Code      string // S3 error code of a refused request; empty otherwise
	// In is the size of the request body in bytes, and Out is the size of the reply body in bytes. If the request was
	// refused, In is 0.
	In, Out   int64
	RequestID string
	Remote    string // address of the client
	Account   string // access key of the client; empty for an anonymous request
	Err       error  // why the reply's body was cut short; nil if the body was complete
	// HTTP holds what only logs need to know of the request, such as its headers. HTTP is nil unless Options.Audit is set
	// or the bucket has an access log.
	HTTP *HTTP
	// Served is one of the Served constants of package object if another S3 server keeps the object that was read; empty
	// otherwise.
	Served string
}

// Server is the S3 front end. A process can have only one Server at a time.
type Server struct {
	opts  Options
	http  *fasthttp.Server
	conns *conn.Table
	ready atomic.Bool
	done  func()

	backend     *backend
	authorizer  *authorizer
	verifier    *verifier
	signature   fiber.Handler // checks the signature of a request for which versitygw has no route
	creation    fiber.Handler // checks the signature of a request that creates a bucket
	formHandler fiber.Handler
	directories *directories  // nil without directory buckets
	tokens      *tokenService // nil without temporary keys
	documents   chan struct{} // one entry for each large document in progress

	inFlight atomic.Int64
	crowd    crowd
}

// running reports whether this process has a Server. versitygw keeps state in package variables, which a second Server
// would share with the first.
var running atomic.Bool

// New makes an S3 front end, which accepts no requests before Serve is called. New fails if the process has another
// Server.
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
	if o.Ownership == "" {
		o.Ownership = string(types.ObjectOwnershipBucketOwnerEnforced)
	}
	if o.ETag == nil {
		o.ETag = func(string) object.ETagKind { return object.ETagMD5 }
	}
	if o.Drain <= 0 {
		o.Drain = 30 * time.Second
	}
	if o.TLSCounts == nil {
		o.TLSCounts = &ktls.Counts{}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Limits = o.Limits.withDefaults()
	s := &Server{opts: o, conns: conn.NewTable(), documents: make(chan struct{}, documentSlots),
		crowd: crowd{most: int64(o.Limits.Requests)},
		done:  sync.OnceFunc(func() { running.Store(false) })}
	if err := s.build(); err != nil {
		s.done()
		return nil, err
	}
	return s, nil
}

// Close closes the listeners of a Server on which Serve was not called.
func (s *Server) Close() {
	defer s.done()
	for _, l := range listeners(&s.opts) {
		_ = l.Close() // nothing was accepted from it
	}
}

// listeners returns every listener of the front end.
func listeners(o *Options) []net.Listener {
	if o.Inside == nil {
		return o.Listeners
	}
	return append(slices.Clone(o.Listeners), o.Inside)
}

// Ready reports whether the server accepts requests. The server accepts requests from the start of Serve until the
// context of Serve ends.
func (s *Server) Ready() bool { return s.ready.Load() }

// Serve accepts requests until ctx ends. After the end of ctx, Serve waits up to Options.Drain for requests in
// progress and returns nil. If a listener fails, Serve returns its error. The caller calls Serve once.
func (s *Server) Serve(ctx context.Context) error {
	defer s.done()
	s.backend.tellFaults(ctx)
	failed := make(chan error, len(s.opts.Listeners)+1)
	for _, l := range s.opts.Listeners {
		wrapped := s.conns.Wrap(l, s.opts.Limits.Stall, secure(&s.opts))
		go func() { failed <- s.http.Serve(wrapped) }()
	}
	if l := s.opts.Inside; l != nil {
		wrapped := s.conns.Wrap(l, s.opts.Limits.Stall, nil)
		if s.opts.TLS != nil {
			wrapped = trusted{wrapped}
		}
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

// secure returns the function that adds TLS to a listener, or nil for plain HTTP.
func secure(o *Options) func(net.Listener) net.Listener {
	if o.TLS == nil {
		return nil
	}
	return func(l net.Listener) net.Listener { return ktls.Listener(l, o.TLS, o.KernelTLS, o.TLSCounts) }
}

// shutdown waits for requests in progress, and closes their connections after the drain time. A request without its
// connection returns at its next read or write. The store must stay open until shutdown returns.
func (s *Server) shutdown() {
	for _, l := range listeners(&s.opts) {
		_ = l.Close() // an error means that the HTTP server has closed it already
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.http.ShutdownWithContext(context.Background()) // an error means that a listener was closed before
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

// InFlight returns the number of requests in progress. A request is in progress until the last byte of its reply is
// sent.
func (s *Server) InFlight() int { return int(s.inFlight.Load()) }
