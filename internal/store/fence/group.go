// SPDX-License-Identifier: Apache-2.0

package fence

import (
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// mostGrouped is the size in bytes from which no batch joins a group. Pebble treats very large batches in another way,
// and a large batch gains nothing from a group.
const mostGrouped = 1 << 20

// pending is a batch that waits for its commit.
type pending struct {
	b    *pebble.Batch
	then func()       // called after the commit; may be nil
	done chan<- error // gets the result; has room for one
}

// finish ends a batch with the result of its commit.
func (p pending) finish(err error) {
	if err == nil {
		err = p.b.Close()
	}
	if err == nil && p.then != nil {
		p.then()
	}
	p.done <- err
}

// group commits batches together. While a group is being committed, later batches gather to the next group. Batches
// of one group are independent: each caller holds the locks of the keys that its batch changes.
//
// A group becomes durable completely or not at all, because Pebble writes it as one record of its log. Compared with a
// commit for each batch, a group saves most of the work of Pebble's commit and one switch of goroutines per batch.
type group struct {
	mu      sync.Mutex
	waiting []pending
	running bool // whether a goroutine commits groups
}

// add hands a batch over. The result arrives at done. If the log fails, there is no result.
func (g *group) add(db *pebble.DB, p pending) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = append(g.waiting, p)
	if !g.running {
		g.running = true
		go g.run(db)
	}
}

// run commits groups until no batch waits.
func (g *group) run(db *pebble.DB) {
	for {
		some := g.take()
		if len(some) == 0 {
			return
		}
		g.commit(db, some)
	}
}

// take returns the batches of the next group. If none waits, run has to end.
func (g *group) take() []pending {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, size := 0, 0
	for n < len(g.waiting) {
		if size += g.waiting[n].b.Len(); size > mostGrouped && n > 0 {
			break
		}
		n++
	}
	some := g.waiting[:n:n]
	g.waiting = g.waiting[n:]
	if len(g.waiting) == 0 {
		g.waiting = nil
	}
	g.running = n > 0
	return some
}

// commit commits one group durably.
func (g *group) commit(db *pebble.DB, some []pending) {
	if len(some) == 1 {
		some[0].finish(db.Apply(some[0].b, pebble.Sync))
		return
	}
	all := db.NewBatch()
	var err error
	for i := range some {
		if err == nil {
			err = all.Apply(some[i].b, nil)
		}
	}
	if err == nil {
		err = db.Apply(all, pebble.Sync)
	}
	_ = all.Close() // after a commit it returns nil, and otherwise nothing was changed
	for i := range some {
		some[i].finish(err)
	}
}
