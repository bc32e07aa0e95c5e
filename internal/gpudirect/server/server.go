// SPDX-License-Identifier: Apache-2.0

// Package server is the server's side of the GPUDirect door. The door authenticates clients, authorizes their
// requests, and sends them file descriptors of the store's objects. The door itself never reads or writes the content
// of an object's file.
//
// Each connection has one goroutine, which answers the requests of the connection in order. When a connection ends,
// the door closes its handles and aborts its drafts.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/internal/object"
)

// Store is the interface of an object store that the door needs.
type Store interface {
	object.Handles
	object.Lister
	// Stat returns the metadata of an object, as object.Objects does.
	Stat(ctx context.Context, ref object.Ref) (object.Info, error)
}

// Options are the dependencies and settings of a door.
type Options struct {
	// Store is the object store that the door serves. The caller closes the store after Serve has returned.
	Store Store
	// StoreID is the identity of the store. The S3 endpoint's discovery returns the same ID to clients.
	StoreID string
	// Secret returns the secret of an access key, and whether the key exists. The door calls Secret for every
	// request, so Secret must do no I/O.
	Secret func(accessKey string) (secret string, ok bool)
	// Authorizer decides whether a request is allowed, by the same rules as the S3 endpoint.
	Authorizer object.Authorizer
	Settings   Settings
	// Limits bounds the resources that clients can use. A field of Limits that is 0 has its default value.
	Limits Limits
	// Devices returns the index of the GPU of this host that has the given UUID. If Devices is nil, the door uses the
	// index that the client sent.
	Devices func(uuid string) (index int, ok bool)
	// Drain is the time that clients have to close their handles and drafts after the context of Serve has ended. If
	// Drain is 0, clients have 30 s to finish.
	Drain time.Duration
	// Log receives a line for each login, refusal and failure. If Log is nil, the door logs nothing.
	Log *slog.Logger
	// Watch receives a tick whenever the door has to check the sizes of the drafts. If Watch is nil, the door checks
	// the sizes of the drafts once a second. The door deletes a draft that exceeds its announced size.
	Watch <-chan time.Time
	// Observe, if not nil, is called for every message in which a client reports transfers. Observe must be quick,
	// because it runs in the goroutine of the connection.
	Observe func(Event)
	// Reopenable, if not empty, is the reason why clients that run as root or as the server's user can reopen
	// read-only files for writing. If Reopenable is not empty, the door warns clients that run as root or as the
	// server's user at login, and logs a warning.
	Reopenable string
}

// Settings are the values that the door sends to clients in its Greeting. The door enforces only MaxTransferSize,
// Devices and NoWrites; the other settings are advice to clients.
type Settings struct {
	BufferPoolSize  int64
	MaxTransferSize int64 // the largest range of one transfer, in bytes; 0 means 256 MiB
	QueueDepth      int
	Async, P2P      bool
	// Devices are the indices of the GPUs that clients may use; an empty list means all.
	Devices []int
	// NoWrites, if not empty, is the reason why clients cannot create objects through this door.
	NoWrites string
}

// Limits bounds the resources that clients can use.
type Limits struct {
	// Connections is the largest number of open connections, including unfinished logins; the default is 1024.
	Connections int
	// KeyConnections is the largest number of open connections of one access key; the default is half of Connections.
	KeyConnections int
	// UserConnections is the largest number of open connections of one user of this host; the default is three
	// quarters of Connections.
	UserConnections int
	// Logins is the largest number of unfinished logins of one user of this host; the default is a quarter of
	// Connections. If a user has Logins unfinished logins, a new login ends the user's oldest unfinished login.
	Logins int
	// Handles is the largest number of open handles and drafts of one access key; the default is 16384.
	Handles int
	// DraftBytes is the largest size of all drafts of one access key together, in bytes; the default is 256 GiB.
	DraftBytes int64
	// Descriptors is the largest number of file descriptors that wait to be sent, over all connections. Descriptors
	// accumulate if clients do not read their replies. The default of Descriptors is a quarter of the process's limit
	// of open files, so that the store and the S3 endpoint keep enough.
	Descriptors int
	// KeyDescriptors is the largest number of file descriptors that clients of one access key have not yet received.
	// KeyDescriptors includes descriptors that wait to be sent; the default is a quarter of Descriptors.
	KeyDescriptors int
	// Login is the time that a client has to log in; the default is 2 s.
	Login time.Duration
	// Idle is the time after which the door closes a connection that sends no request; the default is 5 min.
	Idle time.Duration
	// Send is the time after which the door closes a connection that does not read its replies; the default is 10 s.
	Send time.Duration
}

func (l Limits) withDefaults() Limits {
	def(&l.Connections, 1024)
	def(&l.KeyConnections, max(l.Connections/2, 1))
	def(&l.UserConnections, max(l.Connections/4*3, 1))
	def(&l.Logins, max(l.Connections/4, 1))
	def(&l.Handles, 16384)
	def(&l.DraftBytes, 256<<30)
	def(&l.Descriptors, descriptorsForUs())
	def(&l.KeyDescriptors, max(l.Descriptors/4, 2))
	l.KeyDescriptors = max(l.KeyDescriptors, 2) // one object has up to two descriptors
	def(&l.Login, 2*time.Second)
	def(&l.Idle, 5*time.Minute)
	def(&l.Send, 10*time.Second)
	return l
}

func def[T int | int64 | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// Server is the server's side of the door. All methods of Server are safe for concurrent use.
type Server struct {
	opts     Options
	greeting wire.Greeting
	decoy    string // used as the secret of an access key that does not exist
	count    counters
	refusals *rationed // log lines about refusals

	// lent has an entry for each object with descriptors that wait to be sent, at most two descriptors each.
	lent chan struct{}

	stopping chan struct{} // closed when the drain begins
	refusing chan struct{} // has an entry for each refused connection that is being closed

	told       sync.Map // user IDs for which Options.Reopenable was logged: root and the server's own
	watched    watched
	condemning sync.WaitGroup // drafts that are being deleted because they grew too large

	awake    atomic.Int32 // connections that wait for a request without sleeping
	draining atomic.Bool
	cutoff   time.Time // when the drain ends; valid once draining

	mu    sync.Mutex // guards the fields below
	conns map[*conn]struct{}
	crowd crowd
}

// client counts the resources of all connections of one access key. A client exists as long as one of the
// connections, or as the remains of its drafts.
type client struct {
	key     string
	conns   int // guarded by Server.mu
	remains int // guarded by Server.mu; deleted drafts whose file some process can still write to
	handles atomic.Int64
	drafts  atomic.Int64 // bytes
	untaken atomic.Int64 // descriptors that wait to be sent, or that the client may not have received yet
}

// New creates a door, which accepts connections only after Serve is called. New fails with kind Invalid if Store,
// StoreID, Secret or Authorizer is missing, or if Settings list more than wire.MaxDevices devices.
func New(o Options) (*Server, error) {
	if o.Store == nil || o.Secret == nil || o.Authorizer == nil || o.StoreID == "" {
		return nil, errs.New(errs.Invalid, "start the GPUDirect door", "", "Store, StoreID, Secret and Authorizer are needed")
	}
	def(&o.Settings.MaxTransferSize, 256<<20)
	def(&o.Drain, 30*time.Second)
	o.Limits = o.Limits.withDefaults()
	if o.Devices == nil {
		o.Devices = func(string) (int, bool) { return 0, false }
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{opts: o, decoy: nonceText(), conns: map[*conn]struct{}{}, refusals: &rationed{},
		watched: watched{live: map[*draft]*conn{}, remains: map[*draft]*client{}},
		crowd:   crowd{users: map[uint32]*user{}, clients: map[string]*client{}},
		lent:    make(chan struct{}, max(o.Limits.Descriptors/2, 1)), stopping: make(chan struct{}),
		refusing: make(chan struct{}, mostRefusing)}
	s.count.init()
	st := &o.Settings
	s.greeting = wire.Greeting{
		BufferPoolSize: st.BufferPoolSize, MaxTransferSize: st.MaxTransferSize, QueueDepth: uint32(max(st.QueueDepth, 0)),
		Async: st.Async, P2P: st.P2P,
		Writes: st.NoWrites == "", WritesWhy: cut(st.NoWrites, wire.MaxText),
		MaxHandles: uint32(o.Limits.Handles), MaxDraft: o.Limits.DraftBytes, Idle: o.Limits.Idle,
	}
	if len(st.Devices) > wire.MaxDevices {
		return nil, errs.New(errs.Invalid, "start the GPUDirect door", "",
			fmt.Sprintf("%d devices are listed, expected at most %d", len(st.Devices), wire.MaxDevices))
	}
	for _, d := range st.Devices {
		s.greeting.Devices = append(s.greeting.Devices, uint32(d))
	}
	return s, nil
}

// Serve accepts connections until ctx ends, and returns nil when the last connection has ended. When ctx ends,
// connections without open handles or drafts end at once. After ctx has ended, a connection with open handles or
// drafts ends when the client has closed them all, or after Options.Drain. Serve closes l. Serve returns an error
// only if the listener failed. Serve may be called only once.
func (s *Server) Serve(ctx context.Context, l *Listener) error {
	defer l.Close()
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var all sync.WaitGroup
	failed := make(chan error, 1)
	go func() { failed <- s.accept(work, l, &all) }()
	watching := make(chan struct{})
	go func() { defer close(watching); s.watch(work) }()
	defer func() {
		cancel()
		<-watching
		s.condemning.Wait()
	}()
	var err error
	select {
	case err = <-failed:
		s.drain(l, &all, cancel)
	case <-ctx.Done():
		s.drain(l, &all, cancel)
		<-failed // it ends with the listener
	}
	s.turnedAway(s.opts.Limits.Send)
	return errs.Wrap("serve the GPUDirect door", l.Path(), err)
}

// drain stops accepting connections and waits until clients have finished. After Options.Drain it closes the
// connections that are left.
func (s *Server) drain(l *Listener, all *sync.WaitGroup, cancel func()) {
	s.mu.Lock()
	s.cutoff = time.Now().Add(s.opts.Drain)
	s.draining.Store(true)
	close(s.stopping)
	s.mu.Unlock()
	_ = l.Close() // Serve closes l again, which does nothing
	for _, c := range s.open() {
		_ = c.sock.SetReadDeadline(time.Now()) // wakes it; one that is gone needs no waking
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		all.Wait()
	}()
	timer := time.NewTimer(s.opts.Drain)
	defer timer.Stop()
	select {
	case <-done:
		return
	case <-timer.C:
	}
	left := s.open()
	s.opts.Log.Warn("clients were cut off at the end of the drain time", "drain", s.opts.Drain.String(), "connections",
		len(left))
	cancel()
	for _, c := range left {
		// its goroutine closes it too; one that the kernel keeps in a receive is waited for
		go func() { _ = c.sock.Close() }()
	}
	s.ended(done)
}

// ended waits until the closed connections have ended. It does not wait for a connection that the kernel keeps
// blocked in a receive. The kernel is closing descriptors that the client sent (see refuseDescriptors). Such a
// connection uses nothing of the store and stays until the process ends.
func (s *Server) ended(done <-chan struct{}) {
	end := time.Now().Add(s.opts.Limits.Send)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		left := s.open()
		if time.Now().After(end) && !slices.ContainsFunc(left, func(c *conn) bool { return !c.receiving.Load() }) {
			s.opts.Log.Error("some connections do not end; they stay until the process ends", "connections", len(left))
			return
		}
	}
}

func (s *Server) open() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		all = append(all, c)
	}
	return all
}

// accept accepts connections until the listener is closed.
func (s *Server) accept(ctx context.Context, l *Listener, all *sync.WaitGroup) error {
	for {
		sock, err := l.accept()
		if err != nil {
			if s.draining.Load() || errors.Is(err, net.ErrClosed) {
				return nil
			}
			if !passing(err) {
				return err
			}
			// The process has no descriptor or memory left. Other connections will free some soon.
			s.opts.Log.Warn("accepting a connection failed", "error", err)
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		c := newConn(s, sock)
		if why := s.admit(c, all); why != nil {
			s.turnAway(c, why)
			continue
		}
		go func() {
			defer all.Done()
			c.run(ctx)
		}()
	}
}
