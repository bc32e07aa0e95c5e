// SPDX-License-Identifier: Apache-2.0

// Package server is the server's side of the GPUDirect door. It authenticates a client, asks whether a request is
// allowed, and exchanges open files of the store with the client. It never touches the content of a file.
//
// Each connection has one goroutine, which answers its requests in order. When a connection ends, its handles are
// closed and its drafts are aborted.
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

// Store is the part of a store that the door needs.
type Store interface {
	object.Handles
	object.Lister
	// Stat describes an object, as in object.Objects.
	Stat(ctx context.Context, ref object.Ref) (object.Info, error)
}

// Options are the parts and settings of a door.
type Options struct {
	// Store has the objects. The caller closes it after Serve has returned.
	Store Store
	// StoreID is the identity of the store. The S3 endpoint's discovery tells clients the same.
	StoreID string
	// Secret returns the secret of an access key, and whether the key exists. It is called for every request and does no
	// I/O.
	Secret func(accessKey string) (secret string, ok bool)
	// Authorizer judges every request by the rules of the front end.
	Authorizer object.Authorizer
	Settings   Settings
	// Limits bounds the resources that clients can take up. A zero field stands for its default.
	Limits Limits
	// Devices finds the index of a GPU of this host by its UUID. Nil: the door uses the index that the client names.
	Devices func(uuid string) (index int, ok bool)
	// Drain is the time that clients have to finish after the context of Serve has ended. 0 means 30 s.
	Drain time.Duration
	// Log gets logins, refusals and failures. Nil: discarded.
	Log *slog.Logger
	// Watch ticks when the door is to check the sizes of drafts. A draft that outgrows its announced size is ended. Nil:
	// once a second.
	Watch <-chan time.Time
	// Reopenable, if not empty, says why clients of the server's own user can open the files that they get for writing.
	// The door tells such clients at login, and logs it.
	Reopenable string
}

// Settings are what the Greeting tells clients. The door enforces MaxTransferSize and Devices.
type Settings struct {
	BufferPoolSize  int64
	MaxTransferSize int64 // largest range that is granted as one transfer, in bytes; 0 means 256 MiB
	QueueDepth      int
	Async, P2P      bool
	// Devices are the indices of GPUs that may be used; none means all.
	Devices []int
	// NoWrites, if not empty, says why objects cannot be created through this door.
	NoWrites string
}

// Limits bounds the resources that clients can take up.
type Limits struct {
	// Connections open at once, those that log in included. Default 1024.
	Connections int
	// KeyConnections open at once by one access key. Default half of Connections, so that others keep room.
	KeyConnections int
	// UserConnections open at once by one user of this host. Default three quarters of Connections.
	UserConnections int
	// Logins in progress at once by one user of this host. A further login ends the oldest. Default a quarter of
	// Connections.
	Logins int
	// Handles and drafts open at once by one access key. Default 16384.
	Handles int
	// DraftBytes reserved at once by the drafts of one access key. Default 256 GiB.
	DraftBytes int64
	// Descriptors of objects that wait to be sent, over all connections. They add up if clients do not take their replies.
	// Default a quarter of the process's limit, so that the store and the S3 endpoint keep enough.
	Descriptors int
	// KeyDescriptors of objects that wait to be sent to one access key, or were sent and not taken yet. Default a quarter
	// of Descriptors.
	KeyDescriptors int
	// Login is the time that a client may take to log in. Default 2 s.
	Login time.Duration
	// Idle ends a connection that asks for nothing. Default 5 min.
	Idle time.Duration
	// Send ends a connection that does not take its replies. Default 10 s.
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
	l.KeyDescriptors = max(l.KeyDescriptors, 2) // those of one object
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

// Server is the door. All methods are safe for concurrent use.
type Server struct {
	opts     Options
	greeting wire.Greeting
	decoy    string // secret of access keys that nobody has
	count    counters
	refusals *rationed // log lines about refusals

	// lent has an entry for each object that waits to be sent with its descriptors, two at most.
	lent chan struct{}

	stopping chan struct{} // closed when the drain begins
	refusing chan struct{} // has an entry for each connection that is being turned away

	told       sync.Map // users that the log has told of Options.Reopenable, by number: root and the server's own
	watched    watched
	condemning sync.WaitGroup // drafts that are being ended

	awake    atomic.Int32 // connections that wait for a request without sleeping
	draining atomic.Bool
	cutoff   time.Time // when the drain ends; valid once draining

	mu    sync.Mutex // guards what follows
	conns map[*conn]struct{}
	crowd crowd
}

// client counts what the connections of one access key hold together. It lives as long as one of the connections, or as
// what is left of its drafts.
type client struct {
	key     string
	conns   int // guarded by Server.mu
	remains int // guarded by Server.mu; ended drafts that somebody can still write to
	handles atomic.Int64
	drafts  atomic.Int64 // bytes
	untaken atomic.Int64 // descriptors that are opened to be sent, or sent and not known to be taken
}

// New makes a door that accepts nothing before Serve. It fails with kind Invalid if a needed option is missing.
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

// Serve accepts connections until ctx ends, and returns nil when the last connection has ended. Connections that hold
// nothing end at once. The others end when they hold nothing any more, or after Options.Drain. Serve closes l. An error
// means that the listener failed. Serve is called once.
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

// drain stops accepting, lets clients finish and after the drain time cuts them off.
func (s *Server) drain(l *Listener, all *sync.WaitGroup, cancel func()) {
	s.mu.Lock()
	s.cutoff = time.Now().Add(s.opts.Drain)
	s.draining.Store(true)
	close(s.stopping)
	s.mu.Unlock()
	_ = l.Close() // Serve's own closing of it finds it closed
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

// ended waits for the last connection that was cut off. One that the kernel keeps in a receive uses nothing of the
// store: it is closing what the client sent (see refuseDescriptors), and is left to the end of the process.
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

// accept takes connections until the listener is closed.
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
			// No descriptor or memory is left: others let go of theirs soon.
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
