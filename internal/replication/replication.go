// SPDX-License-Identifier: Apache-2.0

// Package replication copies new versions of objects to buckets of other S3 servers, in order and once, as the journal
// of the store tells of them.
package replication

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/copying/versions"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/replication/rules"
)

// Store is what the replication needs of a store.
type Store interface {
	object.Buckets
	object.Objects
	object.Records
	object.Journal
}

// Options are the parts of a Worker.
type Options struct {
	Store   Store
	Targets map[string]*versions.Server // by the names of the configuration
	Log     *slog.Logger
	// Done, if not nil, is called after each version that was copied or has failed. Done may be called from several
	// goroutines.
	Done func(l rules.Link, bytes int64, failed bool)
	// Look is how often the settings of the buckets are read; 0 means one second.
	Look time.Duration
	// MostPause is the longest pause after a failure; 0 means 30 seconds.
	MostPause time.Duration
}

// Worker replicates the buckets of a store. The caller calls Run once.
type Worker struct {
	o Options

	mu    sync.Mutex
	links map[rules.Link]*link
}

// New returns a worker that does nothing before Run.
func New(o Options) *Worker {
	if o.Look == 0 {
		o.Look = time.Second
	}
	if o.MostPause == 0 {
		o.MostPause = 30 * time.Second
	}
	return &Worker{o: o, links: map[rules.Link]*link{}}
}

// Run replicates until ctx ends, and returns when all copies in progress have ended.
func (w *Worker) Run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	for {
		w.look(ctx, &group)
		select {
		case <-ctx.Done():
			return
		case <-time.After(w.o.Look):
		}
	}
}

// Status is the state of one way of replication since the server started.
type Status struct {
	rules.Link
	Replicated int64 // versions and delete markers that were copied
	Failed     int64 // versions that the target refused for good
	Tries      int64 // failed tries to reach the target
	LastError  string
	LastTry    time.Time // of the last error
	Healthy    bool      // whether the last try succeeded
}

// Status returns the states of the links that the worker serves, in no particular order.
func (w *Worker) Status() []Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []Status
	for _, l := range w.links {
		l.mu.Lock()
		all = append(all, l.st)
		l.mu.Unlock()
	}
	return all
}

// look starts the links that the settings of the buckets ask for, and ends the others.
func (w *Worker) look(ctx context.Context, group *sync.WaitGroup) {
	all, err := w.o.Store.ListBuckets(ctx)
	if err != nil {
		if ctx.Err() == nil {
			w.o.Log.Error("reading the buckets failed", "error", err)
		}
		return
	}
	want := map[rules.Link]bool{}
	for i := range all {
		c, _, err := rules.Read(&all[i])
		if err != nil {
			w.o.Log.Error("the replication of a bucket cannot be read", "bucket", all[i].Name, "error", err,
				"fix", "put the replication configuration again")
			continue
		}
		if c == nil {
			continue
		}
		for _, l := range c.Links(all[i].Name) {
			want[l] = true
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for l := range want {
		if w.links[l] != nil {
			continue
		}
		server, ok := w.o.Targets[l.Target]
		if !ok {
			w.o.Log.Error("a bucket is replicated to a target that the configuration does not have", "bucket", l.Bucket,
				"target", l.Target, "fix", "add replication."+l.Target+" to the configuration")
			server = nil
		}
		at := &link{w: w, Link: l, server: server, st: Status{Link: l, Healthy: ok}}
		if !ok {
			at.failed(errs.New(errs.NotFound, "replicate to", l.Target, "the configuration has no such target").
				WithFix("add replication." + l.Target + " to the configuration"))
		}
		ctx, cancel := context.WithCancel(ctx)
		at.cancel = cancel
		w.links[l] = at
		if server != nil {
			group.Go(func() { at.run(ctx) })
		}
	}
	for l, at := range w.links {
		if want[l] {
			continue
		}
		at.cancel()
		delete(w.links, l)
		if err := w.o.Store.ForgetJournal(ctx, l.Consumer()); err != nil && ctx.Err() == nil {
			w.o.Log.Error("the queue of an ended replication was not removed", "bucket", l.Bucket, "error", err)
		}
	}
}
