// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/inventory"
	"github.com/nebulaio/nebulaio/internal/lifecycle"
	"github.com/nebulaio/nebulaio/internal/store/disk"
)

// LifecycleReport tells what the lifecycle rules of a bucket have done.
type LifecycleReport = lifecycle.Report

// LifecycleRun selects what RunLifecycle does.
type LifecycleRun struct {
	Bucket string `json:"bucket,omitempty"` // empty means all buckets with lifecycle rules
	DryRun bool   `json:"dry_run,omitempty"`
}

// DataAdmin administers the lifecycle rules, the quotas and the inventories of a store, and describes its queues.
// DataAdmin asks the running server, or opens the store itself.
type DataAdmin struct {
	store   *disk.Store
	rules   *lifecycle.Worker
	lists   *inventory.Worker
	senders senders
	remote  *remote // nil if this process has the store open
	close   func() error
}

// AdministerData returns a DataAdmin for the store in the configuration's data directory. If a server runs on the
// store, the DataAdmin asks the server. If no server runs, AdministerData opens the store. The caller closes the
// DataAdmin.
func AdministerData(ctx context.Context, c *config.Config) (*DataAdmin, error) {
	if conn, err := dialAdmin(ctx, c.Data); err == nil {
		_ = conn.Close()
		r := newRemote(c.Data)
		return &DataAdmin{remote: r, close: r.Close}, nil
	}
	if err := storeExists(c.Data); err != nil {
		return nil, err
	}
	st, err := openStore(ctx, c, events{})
	if err != nil {
		return nil, err
	}
	a, err := newDataAdmin(c, st.Store, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		_ = st.Close() // the error is the reason
		return nil, err
	}
	a.close = st.Close
	return a, nil
}

// newDataAdmin returns the DataAdmin of a store that this process has open. The parameter m may be nil.
func newDataAdmin(c *config.Config, st *disk.Store, log *slog.Logger, m *lifecycleMetrics) (*DataAdmin, error) {
	now, cal, warnings, err := dataClock()
	if err != nil {
		return nil, err
	}
	for _, w := range warnings {
		log.Warn(w)
	}
	o := lifecycle.Options{Store: st, Now: now, Calendar: cal, Rate: int64(c.Lifecycle.Rate), Log: log}
	if m != nil {
		o.Observe, o.Ended = m.observe, m.ended
	}
	return &DataAdmin{store: st, rules: lifecycle.New(o), lists: inventory.New(st, now, log), senders: senders{config: c},
		close: func() error { return nil }}, nil
}

// diskOf returns the store on disk below the upstream buckets.
func diskOf(st store) *disk.Store {
	switch st := st.(type) {
	case onDisk:
		return st.Store
	case sealedDisk:
		return st.on.Store
	case *withUpstreams:
		return st.on.on.Store
	}
	return nil
}

// Close closes the store that the DataAdmin has opened, or the connection to the server.
func (a *DataAdmin) Close() error { return a.close() }

// Running reports whether a server runs on the store.
func (a *DataAdmin) Running() bool { return a.remote != nil }

// Lifecycle returns the reports of all buckets that have lifecycle rules or had them.
func (a *DataAdmin) Lifecycle(ctx context.Context) ([]LifecycleReport, error) {
	if a.remote != nil {
		var all []LifecycleReport
		return all, a.remote.call(ctx, http.MethodGet, "/v1/lifecycle", nil, &all)
	}
	return lifecycle.Reports(ctx, a.store)
}

// RunLifecycle applies lifecycle rules now, and returns a report for each bucket. If progress is not nil, RunLifecycle
// calls it from time to time from one goroutine.
func (a *DataAdmin) RunLifecycle(ctx context.Context, ask LifecycleRun,
	progress func(LifecycleReport)) ([]LifecycleReport,
	error) {
	if a.remote != nil {
		return follow[LifecycleReport, []LifecycleReport](ctx, a.remote, "apply lifecycle rules", "/v1/lifecycle/run", ask,
			progress)
	}
	return a.rules.RunNow(ctx, ask.Bucket, ask.DryRun, progress)
}

// handler serves the DataAdmin over the administration socket, and passes all other requests to next.
func (a *DataAdmin) handler(next http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", next)
	mux.HandleFunc("GET /v1/lifecycle", func(w http.ResponseWriter, r *http.Request) {
		all, err := a.Lifecycle(r.Context())
		answer(w, all, err)
	})
	mux.HandleFunc("POST /v1/lifecycle/run", func(w http.ResponseWriter, r *http.Request) {
		var ask LifecycleRun
		if err := decodeBody(w, r, &ask); err != nil {
			answer(w, nil, err)
			return
		}
		stream(w, func(progress func(LifecycleReport)) ([]LifecycleReport, error) {
			return a.RunLifecycle(r.Context(), ask, progress)
		})
	})
	a.addQuotas(mux)
	a.addInventories(mux)
	a.addQueues(mux)
	return mux
}
