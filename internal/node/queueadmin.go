// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/nebulaio/nebulaio/internal/config"
	"github.com/nebulaio/nebulaio/internal/errs"
	sending "github.com/nebulaio/nebulaio/internal/notify"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/replication"
	"github.com/nebulaio/nebulaio/internal/replication/rules"
)

// Queue describes the changes that wait for one target. The queue is on the disk, and survives the end of the server.
type Queue struct {
	Waiting   int64     `json:"waiting"`
	Limit     int64     `json:"limit"` // largest number of waiting changes: events.queue_limit
	Full      bool      `json:"full"`  // whether the next change makes the server drop the oldest one
	Oldest    time.Time `json:"oldest,omitzero"`
	OldestAge float64   `json:"oldest_age_seconds"` // 0 if nothing waits
	Lost      int64     `json:"lost"`               // changes that were dropped because the queue was full
	LastLost  time.Time `json:"last_lost,omitzero"`
}

// EventTarget is the state of a target of event notifications.
type EventTarget struct {
	Target  string   `json:"target"`
	Type    string   `json:"type,omitempty"`    // webhook, nats or kafka; empty if the target is not configured
	Address []string `json:"address,omitempty"` // without secrets
	Queue
	SinceStart *EventCounts `json:"since_start,omitempty"` // nil if no server sends to the target
}

// EventCounts counts what a server has sent to a target of event notifications since the server started.
type EventCounts struct {
	Delivered int64 `json:"delivered"` // events that the target has confirmed
	Failures  int64 `json:"failures"`  // failed tries
	LastProblem
}

// LastProblem is the last error of a target.
type LastProblem struct {
	Healthy     bool      `json:"healthy"` // whether the last try succeeded
	LastError   string    `json:"last_error,omitempty"`
	LastErrorAt time.Time `json:"last_error_at,omitzero"`
}

// ReplicationLink is the state of the replication of a bucket to a bucket of a target.
type ReplicationLink struct {
	Bucket   string `json:"bucket"`
	Target   string `json:"target"`             // name in the server's configuration
	To       string `json:"to"`                 // bucket at the target
	Endpoint string `json:"endpoint,omitempty"` // without secrets; empty if the target is not configured
	Queue
	SinceStart *ReplicationCounts `json:"since_start,omitempty"` // nil if no server replicates the bucket
}

// ReplicationCounts counts what a server has replicated since the server started.
type ReplicationCounts struct {
	Replicated int64 `json:"replicated"` // versions and delete markers that were copied
	Failed     int64 `json:"failed"`     // versions that the target refused for good
	Failures   int64 `json:"failures"`   // failed tries to reach the target
	LastProblem
}

// senders are the parts of a running server that empty queues. Each function is nil without a server.
type senders struct {
	config   *config.Config
	events   func() []sending.Status
	replicas func() []replication.Status
}

// queuesOf returns the queues of the journal by the names of their consumers.
func (a *DataAdmin) queuesOf(ctx context.Context) (func(consumer string) Queue, []object.JournalQueue, error) {
	all, err := a.store.JournalQueues(ctx)
	if err != nil {
		return nil, nil, err
	}
	now, limit := time.Now(), a.senders.config.Events.JournalLimit
	return func(consumer string) Queue {
		q := Queue{Limit: limit}
		i := slices.IndexFunc(all, func(j object.JournalQueue) bool { return j.Consumer == consumer })
		if i < 0 {
			return q
		}
		q.Waiting, q.Oldest, q.Lost, q.LastLost = all[i].Waiting, all[i].Oldest, all[i].Lost, all[i].LastLost
		q.Full = q.Waiting >= limit
		if !q.Oldest.IsZero() {
			q.OldestAge = max(now.Sub(q.Oldest), 0).Seconds()
		}
		return q
	}, all, nil
}

// EventTargets returns the states of the targets of event notifications: those of the configuration, and those for
// which events wait although the configuration does not have them.
func (a *DataAdmin) EventTargets(ctx context.Context) ([]EventTarget, error) {
	if a.remote != nil {
		var all []EventTarget
		return all, a.remote.call(ctx, http.MethodGet, "/v1/events", nil, &all)
	}
	queue, queues, err := a.queuesOf(ctx)
	if err != nil {
		return nil, err
	}
	all := []EventTarget{}
	for _, name := range a.senders.config.EventTargets() {
		t := a.senders.config.EventTarget[name]
		one := EventTarget{Target: name, Type: t.Type, Queue: queue(sending.Consumer(name))}
		for _, address := range t.Address {
			one.Address = append(one.Address, sending.Shown(address))
		}
		all = append(all, one)
	}
	for _, q := range queues {
		name, ok := targetOfQueue(q.Consumer)
		known := slices.ContainsFunc(all, func(t EventTarget) bool { return t.Target == name })
		if ok && !known && (q.Waiting > 0 || q.Lost > 0) {
			all = append(all, EventTarget{Target: name, Queue: queue(q.Consumer)})
		}
	}
	if a.senders.events == nil {
		return all, nil
	}
	for _, s := range a.senders.events() {
		i := slices.IndexFunc(all, func(t EventTarget) bool { return t.Target == s.Target })
		if i >= 0 {
			all[i].SinceStart = &EventCounts{Delivered: s.Delivered, Failures: s.Failures,
				LastProblem: LastProblem{s.Healthy, s.LastError, s.LastTry}}
		}
	}
	return all, nil
}

// Replication returns the states of all replicated buckets, ordered by bucket, target and destination. If bucket is not
// empty, Replication returns those of one bucket, and fails with kind NotFound if the bucket is not replicated.
func (a *DataAdmin) Replication(ctx context.Context, bucket string) ([]ReplicationLink, error) {
	all, err := a.replication(ctx)
	if err != nil || bucket == "" {
		return all, err
	}
	all = slices.DeleteFunc(all, func(l ReplicationLink) bool { return l.Bucket != bucket })
	if len(all) == 0 {
		return nil, errs.New(errs.NotFound, "show the replication of", bucket, "no enabled replication rule has this bucket").
			WithFix("list the replicated buckets with nebulaio replication status")
	}
	return all, nil
}

// replication returns the states of all replicated buckets.
func (a *DataAdmin) replication(ctx context.Context) ([]ReplicationLink, error) {
	if a.remote != nil {
		var all []ReplicationLink
		return all, a.remote.call(ctx, http.MethodGet, "/v1/replication", nil, &all)
	}
	buckets, err := a.store.ListBuckets(ctx)
	if err != nil {
		return nil, err
	}
	queue, _, err := a.queuesOf(ctx)
	if err != nil {
		return nil, err
	}
	counts := map[rules.Link]*ReplicationCounts{}
	if a.senders.replicas != nil {
		for _, s := range a.senders.replicas() {
			counts[s.Link] = &ReplicationCounts{Replicated: s.Replicated, Failed: s.Failed, Failures: s.Tries,
				LastProblem: LastProblem{s.Healthy, s.LastError, s.LastTry}}
		}
	}
	all := []ReplicationLink{}
	for i := range buckets {
		c, _, err := rules.Read(&buckets[i])
		if err != nil {
			return nil, &errs.Error{Kind: errs.Corrupt, Op: "read the replication of", Name: buckets[i].Name, Err: err,
				Fix: "put the replication configuration again"}
		}
		if c == nil {
			continue
		}
		for _, l := range c.Links(buckets[i].Name) {
			one := ReplicationLink{Bucket: l.Bucket, Target: l.Target, To: l.To, Queue: queue(l.Consumer()),
				SinceStart: counts[l]}
			if t := a.senders.config.Replication[l.Target]; t != nil {
				one.Endpoint = sending.Shown(t.Endpoint)
			}
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(x, y ReplicationLink) int {
		return cmp.Or(cmp.Compare(x.Bucket, y.Bucket), cmp.Compare(x.Target, y.Target), cmp.Compare(x.To, y.To))
	})
	return all, nil
}

// addQueues serves the states of queues over the administration socket.
func (a *DataAdmin) addQueues(mux *http.ServeMux) {
	at(mux, "GET /v1/events", func(r *http.Request) (any, error) { return a.EventTargets(r.Context()) })
	at(mux, "GET /v1/replication", func(r *http.Request) (any, error) { return a.replication(r.Context()) })
}
