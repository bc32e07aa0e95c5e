// SPDX-License-Identifier: Apache-2.0

// Package node runs the server. Package node opens the store and starts the S3 front end, the GPUDirect door, the
// console and the administration socket. When the server stops, package node closes the store and the front ends in
// reverse order.
//
// Only package node knows which store and which front ends are in use. The store and the front ends do not depend
// on each other. Package node turns the events of the store and the front ends into log lines and metrics.
package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nebulaio/nebulaio/internal/cluster"
	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api"
	"github.com/nebulaio/nebulaio/internal/s3api/ktls"
)

// Options hold the configuration of the server, and the log and functions to which Run reports.
type Options struct {
	Config  *config.Config
	Version string
	// Log receives the server's log, one line per event.
	Log io.Writer
	// LogIsTerminal reports whether Log is a terminal. The log format "auto" means text on a terminal, and JSON
	// otherwise.
	LogIsTerminal bool
	// NotifySocket is the socket of a service manager, such as systemd, that waits until the server is ready. If
	// NotifySocket is empty, the server notifies no service manager.
	NotifySocket string
	// Reload, if not nil, is a channel on which each value makes the server read the files of its TLS certificate
	// again.
	Reload <-chan struct{}
	// Started, if not nil, is called once, when the server begins to accept requests.
	Started func(Started)
	// Now is the clock by which temporary keys and service accounts expire; nil means time.Now. Only tests set Now.
	Now func() time.Time
	// Warnings are messages about probable mistakes in the configuration, which Run logs at the start.
	Warnings []string
}

// Started tells a user how to reach a server that has started.
type Started struct {
	Version   string `json:"version"`
	PID       int    `json:"pid"`
	Endpoint  string `json:"endpoint"`
	Console   string `json:"console"`
	Region    string `json:"region"`
	Data      string `json:"data"`
	AccessKey string `json:"access_key"`
	// SecretKey is the secret key of the administrator, if that key is the well-known default; empty otherwise.
	SecretKey   string `json:"secret_key,omitempty"`
	Keys        string `json:"keys,omitempty"`        // file with the administrator's keys, if the server made the keys
	Fingerprint string `json:"fingerprint,omitempty"` // SHA-256 of the server's TLS certificate
	// CA is the file with the TLS certificate that clients must trust, if the certificate is self-signed.
	CA string `json:"ca,omitempty"`
	// GPUDirect is the socket of the door for GPUDirect clients on this host, or the reason why the door is not
	// served.
	GPUDirect StartedDoor `json:"gpudirect"`
}

// StartedDoor tells a user how to reach the GPUDirect door, or why the door is not served.
type StartedDoor struct {
	Enabled bool   `json:"enabled"`
	Socket  string `json:"socket,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// server is the state of a Run in progress.
type server struct {
	Options
	log     *slog.Logger
	root    credentials
	cert    atomic.Pointer[certificate]
	front   atomic.Pointer[s3api.Server]
	door    atomic.Pointer[doorService]
	members atomic.Pointer[cluster.Node] // nil if the server is in no cluster
	metrics *metrics
	data    *DataAdmin // nil until the store is open
	console *console
	web     *web // nil if the web console is turned off
	audit   *auditor
	store   atomic.Pointer[store]
	broken  atomic.Pointer[error] // why the store accepts no more changes
	served  atomic.Int64          // requests answered
	scrubs  sync.Mutex            // held during a scrub: only one scrub runs at a time
}

// Run runs the server until ctx ends. When ctx ends, Run waits for requests in progress, at most for the time of the
// setting drain_timeout, and returns nil. If the server cannot start, if a listener fails or if the store has failed,
// Run returns the reason.
//
// A store that fails while the server runs, for example because of a disk error, does not end the server. With a
// failed store, the server still answers reads, refuses changes and reports that it is not ready. If the store has
// failed, Run returns the failure of the store when ctx ends.
func Run(ctx context.Context, o Options) (err error) {
	s := &server{Options: o, log: newLog(o.Log, o.Config.LogLevel, o.Config.LogFormat, o.LogIsTerminal)}
	for _, w := range o.Warnings {
		component(s.log, "node").Warn(w)
	}
	if err := Validate(ctx, o.Config); err != nil {
		return err
	}
	if s.root, err = rootCredentials(o.Config); err != nil {
		return err
	}
	s.metrics = newMetrics(o.Version, gauges{connections: s.connections, inflight: s.inFlight})
	s.console = &console{store: s.refusing, upstreams: upstreamsOf(&s.store), version: o.Version,
		pprof: o.Config.PProf, metrics: s.metrics}
	s.console.set(starting)
	if s.web = newWeb(s); s.web != nil {
		s.console.web = s.web.console
	}

	// The server listens on both addresses before it opens the store: the most common mistake, a second server,
	// ends here.
	s3, err := listen(ctx, "address", o.Config.Address)
	if err != nil {
		return err
	}
	defer s3.Close()
	s.console.endpoint = schemeOf(o.Config) + "://" + reachable(o.Config.Address, s3.Addr())
	side, err := listen(ctx, "console_address", o.Config.ConsoleAddress)
	if err != nil {
		return err
	}
	stopConsole := s.serveConsole(side)
	defer stopConsole()

	free := limitMemory(o.Config.MemoryLimit)
	defer free()
	local, err := openStore(ctx, o.Config, s.events())
	if err != nil {
		return err
	}
	encrypted, err := addEncryption(ctx, o.Config, local, func(err error) {
		component(s.log, "encryption").Warn("encrypted objects cannot be read now", "error", err)
	})
	if err != nil {
		_ = local.Close() // nothing was served
		return err
	}
	st, err := addUpstreams(ctx, o.Config, encrypted, component(s.log, "cache"))
	if err != nil {
		_ = local.Close() // nothing was served
		return err
	}
	s.store.Store(&st)
	if s.root, err = s.root.keep(); err != nil {
		_ = st.Close()
		return err
	}
	err = s.serve(ctx, st, s3, side.Addr())
	s.console.set(draining)
	if closed := st.Close(); err == nil {
		err = closed
	}
	component(s.log, "node").Info("stopped")
	return err
}

// serve runs all parts of the server that need the store.
func (s *server) serve(ctx context.Context, st store, s3 net.Listener, side net.Addr) (err error) {
	c := s.Config
	log := component(s.log, "node")
	if c.TLS.Enabled() {
		cert, err := loadCertificate(c, time.Now())
		if err != nil {
			return err
		}
		if cert.made {
			log.Info("generated a certificate", "file", cert.certFile, "sha256", cert.fingerprint)
		}
		s.cert.Store(cert)
	}
	if s.audit, err = openAudit(s); err != nil {
		return err
	}
	defer func() {
		if e := s.audit.close(); err == nil {
			err = e
		}
	}()
	accounts, err := iam.Open(ctx, st, iam.Account{AccessKey: s.root.access, Secret: s.root.secret, Role: iam.RoleAdmin})
	if err != nil {
		return err
	}
	if s.Now != nil {
		accounts.UseClock(s.Now)
	}
	temporary, err := temporaryKeys(c, s.Now)
	if err != nil {
		return err
	}
	directories, err := expressOf(ctx, c, st)
	if err != nil {
		return err
	}
	targets, err := replicationTargets(c)
	if err != nil {
		return err
	}
	dispatcher, err := openEvents(ctx, s, st.journal(), st.id())
	if err != nil {
		return err
	}
	defer dispatcher.Close()
	logs, err := openAccessLogs(s, st, s.front.Load)
	if err != nil {
		return err
	}
	defer func() { _ = logs.Close() }() // each line was written with its own call
	var counts ktls.Counts
	inKernel := kernelTLS(c.TLS, log)
	front, err := s3api.New(s3api.Options{
		Express: directories, STS: temporary, Inside: s.web.inside(c.TLS.Enabled() && !inKernel),
		Store: st, Accounts: accounts, Listeners: []net.Listener{s3}, TLS: s.tls(), KernelTLS: inKernel, TLSCounts: &counts,
		Region: c.Region, Domains: c.Domains, ReplicationTargets: c.Targets(), Ownership: c.ObjectOwnership,
		ETag: func(bucket string) object.ETagKind { return object.ETagKind(c.ETagOf(bucket)) },
		Limits: s3api.Limits{Connections: c.Limits.Connections, Requests: c.Limits.Requests,
			HeaderBytes: int(c.Limits.HeaderBytes),
			Idle:        c.Limits.Idle, Header: c.Limits.Header, Stall: c.Limits.Stall},
		Drain: c.DrainTimeout, Observe: s.observe(), Audit: s.audit.s3(),
		AccessLog: logs.Add, FlushLog: func(bucket string) { _ = logs.Flush(ctx, bucket) }, EventTargets: eventTypes(c),
		Discovery: s.discover, Warm: warmOf(st), Log: component(s.log, "s3"),
	})
	if err != nil {
		return err
	}
	s.front.Store(front)
	gpudirect, err := s.openDoor(ctx, st, accounts, s.audit.door(front.Authorizer()))
	if err != nil {
		front.Close()
		return err
	}
	defer gpudirect.close()
	s.door.Store(gpudirect)
	gpudirect.say(s)
	members, err := s.startCluster(ctx, extentsOf(st))
	if err != nil {
		front.Close()
		return err
	}
	joinNeighbours(st, members)
	defer s.stopCluster(members)
	admin := &local{localIdentities: localIdentities{st, accounts}, store: st, accounts: accounts, door: gpudirect.status,
		scrub: &s.scrubs, close: func() error { return nil }}
	kept, err := s.metrics.watchLifecycle()
	if err != nil {
		return err
	}
	if s.data, err = newDataAdmin(c, diskOf(st), component(s.log, "lifecycle"), kept); err != nil {
		return err
	}
	replicator, err := newReplication(s, st, targets)
	if err != nil {
		return err
	}
	s.data.senders.events, s.data.senders.replicas = dispatcher.Status, replicator.Status
	adminSide := &adminService{s: s, admin: admin}
	if err := adminSide.start(ctx, st); err != nil {
		return err
	}
	defer adminSide.stop()
	if err := s.metrics.watch(st.stats); err != nil {
		return err
	}
	if err := s.metrics.watchEvents(st.journal(), dispatcher.Status, s.audit); err != nil {
		return err
	}
	if err := s.metrics.watchDoor(s.doorStats); err != nil {
		return err
	}
	if err := s.metrics.watchTLS(&counts); err != nil {
		return err
	}
	if err := s.metrics.watchCluster(s.clusterStatus); err != nil {
		return err
	}
	if err := s.metrics.watchCache(cacheStats(st)); err != nil {
		return err
	}

	detach, err := s.web.attach(ctx, st, accounts, front, admin)
	if err != nil {
		return err
	}
	defer detach()

	// Requests end after the drain; background work ends at once.
	serving, drain := context.WithCancel(context.WithoutCancel(ctx))
	defer drain()
	ended := make(chan error, 1)
	go func() { ended <- front.Serve(serving) }()
	shut := gpudirect.serve(serving)
	bg, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	background.Go(func() { s.scrubRegularly(bg, admin, st) })
	background.Go(func() { s.expireRegularly(bg, st) })
	background.Go(func() { s.data.lists.Run(bg) })
	if c.Lifecycle.Enabled {
		background.Go(func() { s.data.rules.Run(bg) })
	}
	background.Go(func() { replicator.Run(bg) })
	background.Go(func() { s.reloadRegularly(bg, s.Reload) })
	background.Go(func() { s.watchStore(bg, st, adminSide) })
	background.Go(func() { s.governMemory(bg) })
	background.Go(func() { s.audit.run(bg) })
	background.Go(func() { dispatcher.Run(bg) })
	background.Go(func() { logs.Run(bg) })
	defer func() {
		stop()
		background.Wait()
	}()

	s.console.set(ready)
	s.started(s3.Addr(), side)
	select {
	case err = <-ended: // a listener failed
		s.console.set(failed)
		ended <- nil
	case err = <-shut:
		s.console.set(failed)
		shut = nil
	case <-ctx.Done():
		s.console.set(draining)
		s.tell("STOPPING=1")
		log.Info("draining", "reason", fmt.Sprint(context.Cause(ctx)), "timeout", c.DrainTimeout.String())
	}
	go s.stopCluster(members) // other members stop asking this node; the deferred call waits for the end
	drain()                   // of both at the same time
	if e := <-ended; err == nil {
		err = e
	}
	if gpudirect.server != nil && shut != nil {
		if e := <-shut; err == nil {
			err = e
		}
	}
	return err
}

// schemeOf returns the URL scheme of the S3 address and the console address.
func schemeOf(c *config.Config) string {
	if c.TLS.Enabled() {
		return "https"
	}
	return "http"
}

// started tells the caller, the log and the service manager that requests are accepted.
func (s *server) started(s3, side net.Addr) {
	c := s.Config
	scheme := schemeOf(c)
	info := Started{
		Version: s.Version, PID: os.Getpid(), Region: c.Region, Data: c.Data, AccessKey: s.root.access,
		Endpoint: scheme + "://" + reachable(c.Address, s3), Console: scheme + "://" + reachable(c.ConsoleAddress, side),
	}
	if d := s.door.Load(); d != nil {
		info.GPUDirect = StartedDoor{Enabled: d.about.Served, Socket: d.about.Socket, Reason: d.about.Reason}
	}
	if s.root.file != "" {
		info.Keys = absolute(s.root.file)
		component(s.log, "node").Info("the administrator's keys are in a file of the store", "file", s.root.file,
			"access_key", s.root.access, "made", s.root.made)
	}
	if s.root.wellKnown {
		info.SecretKey = s.root.secret
		component(s.log, "node").Warn("the administrator's keys are the well-known default pair", "fix",
			"set NEBULAIO_ROOT_USER and NEBULAIO_ROOT_PASSWORD")
	}
	if cert := s.cert.Load(); cert != nil {
		info.Fingerprint = cert.fingerprint
		if c.TLS.Generate || cert.selfSigned() {
			info.CA = absolute(cert.certFile)
		}
	}
	if s.Started != nil {
		s.Started(info)
	}
	component(s.log, "node").Info("ready", "endpoint", info.Endpoint, "console", info.Console, "data", c.Data, "version",
		s.Version)
	s.tell("READY=1\nSTATUS=serving " + info.Endpoint)
}

// absolute returns a path as an absolute path, if the working directory is known.
func absolute(path string) string {
	if full, err := filepath.Abs(path); err == nil {
		return full
	}
	return path
}

func (s *server) tell(state string) {
	if err := notify(s.NotifySocket, state); err != nil {
		component(s.log, "node").Warn("notifying the service manager failed", "state", state, "error", err)
	}
}

// tls returns the TLS configuration of both addresses, or nil if the server uses plain HTTP. The console starts
// before the certificate is loaded. Until then TLS handshakes fail, so that a probe sees that the server is not
// ready.
func (s *server) tls() *tls.Config {
	if !s.Config.TLS.Enabled() {
		return nil
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if cert := s.cert.Load(); cert != nil {
			return &cert.pair, nil
		}
		return nil, errors.New("the server is starting")
	}}
}

// serveConsole serves the console until the returned function is called.
func (s *server) serveConsole(l net.Listener) (stop func()) {
	srv := newHTTP(s.console.handler(), component(s.log, "console"))
	srv.ReadTimeout = 2 * time.Minute
	l = limit(l, consoleConnections)
	if conf := s.tls(); conf != nil {
		l = tls.NewListener(l, conf)
	}
	return serveHTTP(srv, l, component(s.log, "console"))
}

// serveAdmin serves the administration socket until the returned function is called.
func (s *server) serveAdmin(a Admin) (stop func(), err error) {
	l, err := listenAdmin(s.Config.Data)
	if err != nil {
		return nil, err
	}
	var k *CacheAdmin
	if st := s.store.Load(); st != nil {
		k = cacheAdmin(*st)
	}
	log := component(s.log, "admin")
	return serveHTTP(newHTTP(s.audit.admin(s.data.handler(adminHandler(a, s.clusterStatus, k))), log), l, log), nil
}

func serveHTTP(srv *http.Server, l net.Listener, log *slog.Logger) (stop func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the listener failed", "address", l.Addr().String(), "error", err)
		}
	}()
	return func() {
		_ = srv.Close() // ends requests at once: operators can ask again
		<-done
	}
}

// listen opens a listener on an address of the configuration.
func listen(ctx context.Context, key, address string) (net.Listener, error) {
	var c net.ListenConfig
	l, err := c.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, &errs.Error{Kind: errs.IO, Op: "listen on", Name: address, Err: err, Fix: "end what uses it, or set " +
			key}
	}
	return l, nil
}

// reachable returns an address as a client on this machine would write it.
func reachable(asked string, got net.Addr) string {
	host, _, err := net.SplitHostPort(asked)
	if err != nil {
		return got.String()
	}
	_, port, err := net.SplitHostPort(got.String())
	if err != nil {
		return got.String()
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		if host, err = os.Hostname(); err != nil || host == "" {
			host = "127.0.0.1"
		}
	}
	return net.JoinHostPort(host, port)
}

// failure returns why the store accepts no more changes, or nil if it accepts them.
func (s *server) failure() error {
	if e := s.broken.Load(); e != nil {
		return *e
	}
	return nil
}

// refusing returns why the store accepts no new content now, or nil if it accepts new content.
func (s *server) refusing() error {
	if err := s.failure(); err != nil {
		return err
	}
	if st := s.store.Load(); st != nil {
		return (*st).writable(context.Background())
	}
	return nil
}

// Administer returns an Admin for the store in the configuration's data directory. If a server runs on the store, the
// Admin sends its requests to that server. If no server runs, Administer opens the store itself, and the store stays
// open until the Admin is closed. Administer never creates a store.
func Administer(ctx context.Context, c *config.Config) (Admin, error) {
	if conn, err := dialAdmin(ctx, c.Data); err == nil {
		_ = conn.Close()
		return newRemote(c.Data), nil
	}
	if err := storeExists(c.Data); err != nil {
		return nil, err
	}
	plain, err := openStore(ctx, c, events{})
	if err != nil {
		return nil, err
	}
	st, err := addEncryption(ctx, c, plain, func(error) {})
	if err != nil {
		_ = plain.Close()
		return nil, err
	}
	root, _ := rootCredentials(c) // no requests are served: any keys will do
	if root.file != "" {
		// The sessions of the operator are known only with the operator's secret.
		if root.access, root.secret, err = config.RootKeysIn(root.file); err != nil {
			root.access, root.secret = generatedUser, iam.NewSecret()
		}
	}
	accounts, err := iam.Open(ctx, st, iam.Account{AccessKey: root.access, Secret: root.secret, Role: iam.RoleAdmin})
	if err != nil {
		_ = st.Close()
		return nil, err
	}
	return &local{localIdentities: localIdentities{st, accounts}, store: st, accounts: accounts,
		door: func() Door { return closedDoor(c) }, scrub: new(sync.Mutex), close: st.Close}, nil
}

// LookAtDoor describes the GPUDirect door of the store in the configuration's data directory. If a server runs on
// the store, LookAtDoor asks that server. If no server runs, LookAtDoor describes the door from the configuration
// alone. LookAtDoor does not open the store.
func LookAtDoor(ctx context.Context, c *config.Config) (d Door, running bool, err error) {
	conn, err := dialAdmin(ctx, c.Data)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOTDIR):
		return closedDoor(c), false, nil
	case err != nil: // a server may still run there
		return Door{}, false, &errs.Error{Kind: errs.KindOf(err), Op: "ask the server", Name: c.Data, Err: err,
			Fix: "run it as the server's user, or as root"}
	}
	_ = conn.Close()
	r := newRemote(c.Data)
	defer r.Close()
	d, err = r.Door(ctx)
	return d, true, err
}

// closedDoor describes the door of a configuration while no server runs.
func closedDoor(c *config.Config) Door {
	d := Door{Settings: doorSettings(c), Notes: c.Notes(), Reason: "no server runs on " + c.Data,
		Fix: "start one: nebulaio server --gpudirect-enabled"}
	d.Socket, _ = doorPath(c) // stays empty if the working directory is not known
	return d
}
