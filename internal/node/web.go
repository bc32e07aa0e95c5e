// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	webconsole "github.com/nebulaio/nebulaio/internal/console"
	"github.com/nebulaio/nebulaio/internal/console/inside"
	"github.com/nebulaio/nebulaio/internal/console/machine"
	"github.com/nebulaio/nebulaio/internal/console/rates"
	"github.com/nebulaio/nebulaio/internal/console/transfers"
	"github.com/nebulaio/nebulaio/internal/console/ui"
	door "github.com/nebulaio/nebulaio/internal/gpudirect/server"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/s3api"
	"github.com/nebulaio/nebulaio/internal/s3api/policy"
)

// web is the web console of a server, with what it counts for the console's pages.
type web struct {
	s       *server
	console *webconsole.Console
	s3      *inside.Listener // on which the console asks the S3 front end
	ring    transfers.Ring
	meter   rates.Meter
	machine *machine.Machine
	// encrypts reports whether this process encrypts S3 replies, and doors whether there is a GPUDirect door.
	encrypts, doors bool
}

// newWeb returns the web console, or nil if the configuration turns it off.
func newWeb(s *server) *web {
	c := s.Config
	if !c.Console.Enabled {
		return nil
	}
	host, _ := os.Hostname() // a machine without a name is reached by its address
	paths := []string{absolute(c.Data)}
	if len(c.Upstream) > 0 && c.Cache.Directory != "" {
		paths = append(paths, absolute(c.Cache.Directory))
	}
	return &web{
		s: s,
		console: webconsole.New(webconsole.Options{Config: c, Version: s.Version, Pages: ui.Files(), Host: host,
			Exposed: !loopback(c.ConsoleAddress), Log: component(s.log, "console")}),
		s3:      inside.Listen(),
		machine: machine.New(machine.Options{Paths: paths, Env: os.Getenv}),
		doors:   c.GPUDirect.Enabled,
	}
}

// inside returns the listener of the console's requests to the S3 front end, or nil without a console. The parameter
// encrypts tells whether this process encrypts S3 replies.
func (w *web) inside(encrypts bool) net.Listener {
	if w == nil {
		return nil
	}
	w.encrypts = encrypts
	return w.s3
}

// observeRequest counts an S3 request for the console.
func (w *web) observeRequest(e *s3api.Event) {
	if w == nil {
		return
	}
	read, written := e.Out, e.In
	if e.Status >= 400 {
		read = 0
	}
	w.meter.Count(e.Account, read, written, e.Status >= 400 || e.Err != nil)
	q := transfers.Request{End: e.Time.Add(e.Duration), Duration: e.Duration, Operation: e.Operation, Bucket: e.Bucket,
		Key: e.Key, Account: e.Account, Remote: e.Remote, Status: e.Status, Error: e.Code, In: e.In, Out: e.Out,
		Served: e.Served, TLS: w.encrypts, Door: w.doors}
	if e.Err != nil {
		q.Error = e.Err.Error()
	}
	w.ring.AddRequest(&q)
}

// observeDoor returns the function that keeps the reports of the door's clients, or nil without a console.
func (w *web) observeDoor() func(door.Event) {
	if w == nil {
		return nil
	}
	return func(e door.Event) {
		w.ring.AddReport(&transfers.Report{End: time.Now(), Account: e.Account, PID: e.Peer.PID, Bucket: e.Bucket, Key: e.Key,
			Objects: e.Objects, Committed: e.Committed, Parts: e.Reports})
	}
}

// attach lets the console answer. The returned function ends the use of the parts.
func (w *web) attach(ctx context.Context, st store, accounts *iam.Service, front *s3api.Server,
	a *local) (func(), error) {
	if w == nil {
		return func() {}, nil
	}
	s := w.s
	endpoint, err := url.Parse(s.console.endpoint)
	if err != nil {
		return nil, err
	}
	counters := w.machine.Counters()
	w.console.Attach(webconsole.Parts{
		Context: ctx, Endpoint: endpoint, Accounts: accounts, S3: inside.NewCaller(w.s3, s.Config.Region),
		Judge: front.Authorizer(), Buckets: st.ListBuckets, Admin: consoleAdmin{a}, Transfers: &w.ring,
		Rates: rates.New(func() rates.Counters { return w.counters(counters) }), Machine: w.machine,
		Status: w.status(st), CheckPolicy: policy.Check,
	})
	return func() {
		_ = w.s3.Close() // it has no error
		if err := w.machine.Close(); err != nil {
			component(s.log, "console").Warn("closing the library of the GPUs failed", "error", err)
		}
	}, nil
}

// consoleAdmin is the administration of accounts for the console.
type consoleAdmin struct{ *local }

// Rights implements webconsole.Admin.
func (a consoleAdmin) Rights(ctx context.Context, accessKey string) (webconsole.Rights, error) {
	x, err := a.Access(ctx, accessKey)
	return webconsole.Rights{Owns: x.Owns, Grants: x.Grants, Policies: x.Policies}, err
}

// counters reads all counters for the live charts of the console.
func (w *web) counters(machine *machine.Counters) rates.Counters {
	s := w.s
	total, users := w.meter.Counts()
	total.InFlight, total.Connections = int64(s.inFlight()), int64(s.connections())
	c := rates.Counters{S3: total, Users: users, Disks: machine.Disks(), GPUs: machine.GPUs()}
	if d, ok := s.doorStats(); ok {
		c.Door = rates.Door{Connections: d.Connections, Handles: d.Handles, Drafts: d.Drafts}
		for _, m := range d.Moved {
			if m.Stage == "total" { // the other stages are parts of the same bytes
				c.Moved = append(c.Moved, rates.Moved{Direction: m.Direction, Route: m.Route, Device: m.Device, Bytes: m.Bytes})
			}
		}
	}
	var use unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &use) == nil {
		c.CPU = time.Duration(use.Utime.Nano() + use.Stime.Nano()).Seconds()
	}
	c.Memory = residentMemory()
	return c
}

// residentMemory returns the resident memory of this process in bytes, or 0 if the kernel does not tell.
func residentMemory() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// status returns the functions with which the console reads the state of the server.
func (w *web) status(st store) webconsole.Status {
	s := w.s
	return webconsole.Status{
		Health: func() webconsole.Health {
			h := s.console.health()
			return webconsole.Health{Ready: h.Ready, State: string(h.State), Reads: h.Reads, Writes: h.Writes, Reason: h.Reason}
		},
		Capacity:    func(ctx context.Context) (webconsole.Capacity, error) { return capacityOf(ctx, st, s.Config.Data) },
		Door:        w.door,
		Connections: func() int64 { return int64(s.connections()) },
		InFlight:    func() int64 { return int64(s.inFlight()) },
		Upstreams: func() any {
			if all := healthOf(st); all != nil {
				return all
			}
			return nil
		},
		Cluster: func() any { return s.clusterStatus() },
		Cache: func(ctx context.Context) (any, error) {
			a := cacheAdmin(st)
			if a == nil {
				return map[string]any{"enabled": false, "reason": "the configuration names no upstream bucket"}, nil
			}
			stats, err := a.Stats(ctx)
			return struct {
				Enabled bool `json:"enabled"`
				CacheStats
			}{true, stats}, err
		},
		Warnings: func() []string { return append(append([]string{}, s.Warnings...), s.Config.Notes()...) },
	}
}

func capacityOf(ctx context.Context, st store, data string) (webconsole.Capacity, error) {
	x, err := st.stats(ctx)
	if err != nil {
		return webconsole.Capacity{}, err
	}
	c := webconsole.Capacity{Bytes: x.Bytes, Objects: x.Objects, Versions: x.Versions, Buckets: x.Buckets,
		Uploads: x.Uploads, UploadBytes: x.UploadBytes, FreeBytes: x.FreeBytes, TotalBytes: -1, Damage: x.Damage}
	var fs unix.Statfs_t
	if unix.Statfs(filepath.Clean(data), &fs) == nil {
		c.TotalBytes = int64(fs.Blocks) * fs.Bsize
	}
	return c, nil
}

func (w *web) door() webconsole.Door {
	d := w.s.door.Load()
	if d == nil {
		return webconsole.Door{Reason: "the server is starting", Fix: "look again"}
	}
	x := d.status()
	out := webconsole.Door{Served: x.Served, Reason: x.Reason, Fix: x.Fix, Socket: x.Socket, Writes: x.Writes,
		WritesReason: x.WritesReason, WritesFix: x.WritesFix}
	if x.Stats != nil {
		out.Connections, out.Handles, out.Drafts = x.Stats.Connections, x.Stats.Handles, x.Stats.Drafts
	}
	return out
}

// browser reports whether a person opened a page in a browser, and no script or probe.
func browser(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }
