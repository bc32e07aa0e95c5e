// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/channel"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
)

// door is the client's side of one socket: a few connections, made when needed, and the messages to send in the
// background.
type door struct {
	path, store                 string
	accessKey, secretKey, agent string
	began                       time.Time // the zero of the door's clock

	mu     sync.Mutex
	conns  []*conn
	making int // connections that are being made
	turn   int
	enough time.Time // no further connection is made before this time
	closed bool

	greeting atomic.Pointer[wire.Greeting]
	broken   atomic.Bool // no connection is left, and a new one failed
	made     atomic.Int64
	remade   atomic.Int64

	post post
	tend sync.WaitGroup
	quit chan struct{}
}

// maxConns is the largest number of connections of one client. Each carries one request at a time. Requests are
// short, except for commits.
const maxConns = 8

// openDoor makes the first connection, so that errors are known at once.
func openDoor(ctx context.Context, path, store, accessKey, secretKey, agent string) (*door, error) {
	d := &door{path: path, store: store, accessKey: accessKey, secretKey: secretKey, agent: agent, began: time.Now(),
		quit: make(chan struct{})}
	d.post.wake, d.post.flush = make(chan struct{}, 1), make(chan flushing)
	d.post.gather.Store(int64(gatherFor))
	c, found, err := d.connect(ctx)
	if err != nil {
		return nil, err
	}
	d.store = found // later connections must lead to the same store
	d.conns = []*conn{c}
	c.mu.Unlock()
	d.tend.Go(d.deliver)
	d.tend.Go(d.keep)
	return d, nil
}

func (d *door) now() int64 { return int64(time.Since(d.began)) }

// connect makes a connection, with its mu locked, and returns the ID of the server's store.
func (d *door) connect(ctx context.Context) (*conn, string, error) {
	s, err := dial(d.path, patience)
	if err != nil {
		return nil, "", err
	}
	c := &conn{s: s, mu: newTurn(), bind: channel.Peer}
	c.mu.Lock()
	store, err := c.shake(ctx, d.path, d.store, d.accessKey, d.secretKey, d.agent)
	if err != nil {
		c.shut()
		var lost *lostError
		if errors.As(err, &lost) {
			err = errs.Wrap("log in at door", d.path, lost.cause)
		}
		return nil, "", err
	}
	d.greeting.Store(c.greeting)
	d.made.Add(1)
	c.used.Store(d.now())
	return c, store, nil
}

// take returns an idle connection, makes a new one, or waits for one. The mu of the connection is locked. fresh
// reports whether the connection is new.
func (d *door) take(ctx context.Context) (c *conn, fresh bool, err error) {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil, false, errs.New(errs.Closed, "use door", d.path, "the client is closed")
	}
	kept := d.conns[:0]
	for _, c := range d.conns {
		if !c.dead.Load() {
			kept = append(kept, c)
		}
	}
	clear(d.conns[len(kept):])
	d.conns = kept
	for _, c := range d.conns {
		if c.mu.TryLock() {
			if !c.dead.Load() {
				d.mu.Unlock()
				return c, false, nil
			}
			c.mu.Unlock()
		}
	}
	if len(d.conns) == 0 || len(d.conns)+d.making < maxConns && time.Now().After(d.enough) {
		d.making++
		d.mu.Unlock()
		c, _, err := d.connect(ctx)
		d.mu.Lock()
		d.making--
		if err == nil && d.closed {
			c.shut()
			c.mu.Unlock()
			err = errs.New(errs.Closed, "use door", d.path, "the client is closed")
		} else if err == nil {
			d.conns = append(d.conns, c)
		} else if slices.ContainsFunc(d.conns, func(c *conn) bool { return !c.dead.Load() }) {
			// The server accepts no further connection, or has stopped. The existing connections are enough, or will
			// report it.
			d.enough = time.Now().Add(enoughFor)
			d.mu.Unlock()
			if ctx.Err() != nil {
				return nil, false, err
			}
			return d.take(ctx)
		} else if d.making == 0 {
			d.broken.Store(true) // otherwise the last connection that is being made decides
		}
		d.mu.Unlock()
		return c, true, err
	}
	c = d.next()
	d.mu.Unlock()
	// The wait is short, because another connection may be free sooner.
	if !c.mu.lockWithin(ctx, waitForOne) {
		if ctx.Err() != nil {
			return nil, false, errs.Wrap("use door", d.path, context.Cause(ctx))
		}
		return d.take(ctx)
	}
	if c.dead.Load() {
		c.mu.Unlock()
		return d.take(ctx)
	}
	return c, false, nil
}

// enoughFor is the time for which no further connection is tried after one failed, while others exist.
const enoughFor = time.Second

// waitForOne is the time to wait for a busy connection before all connections are checked again.
const waitForOne = 5 * time.Millisecond

// next returns the connection to wait for, in turn. It avoids connections that a commit keeps busy, if others exist.
// The caller holds d.mu.
func (d *door) next() *conn {
	for range d.conns {
		d.turn++
		if c := d.conns[d.turn%len(d.conns)]; c.slow.Load() == 0 {
			return c
		}
	}
	return d.conns[d.turn%len(d.conns)]
}

// ask sends a request over any connection and returns that connection. If the server has already closed the
// connection, because it was idle or because the server was restarted, ask tries another one. A second try is safe,
// because the server undoes these requests when their connection ends.
func (d *door) ask(ctx context.Context, a asking) (*conn, error) {
	for try := 0; ; try++ {
		c, fresh, err := d.take(ctx)
		if err != nil {
			return nil, err
		}
		err = c.ask(ctx, a)
		c.used.Store(d.now())
		c.mu.Unlock()
		var lost *lostError
		if !errors.As(err, &lost) {
			return c, err
		}
		if fresh || lost.answered || try >= maxConns || ctx.Err() != nil || errs.Is(lost.cause, errs.Invalid) {
			return nil, d.lost(a, lost)
		}
		d.remade.Add(1)
	}
}

// askOn sends a request over the connection c, to which a handle or a draft belongs.
func (d *door) askOn(ctx context.Context, c *conn, a asking) error {
	c.mu.Lock()
	if c.dead.Load() {
		c.mu.Unlock()
		return d.lost(a, &lostError{cause: errs.New(errs.IO, "", "", "the server ended it")})
	}
	err := c.ask(ctx, a)
	c.used.Store(d.now())
	c.mu.Unlock()
	var lost *lostError
	if errors.As(err, &lost) {
		return d.lost(a, lost)
	}
	return err
}

func (d *door) lost(a asking, lost *lostError) error {
	e := &errs.Error{Kind: errs.IO, Op: a.op, Name: a.name, Msg: "the connection to the door " + d.path + " was lost",
		Err: gone{lost.cause}}
	if k := errs.KindOf(lost.cause); k == errs.Cancelled || codeOf(lost.cause) != "" {
		e.Kind = k
	}
	if errs.FixOf(lost.cause) == "" {
		e.Fix = "see whether the server runs, and try again"
	}
	return e
}

// settings returns the server's settings from the last Greeting.
func (d *door) settings() *wire.Greeting { return d.greeting.Load() }

// keep sends a Ping on idle connections that have handles or drafts. It closes other idle connections before the
// server does.
func (d *door) keep() {
	idle := d.settings().Idle
	if idle <= 0 {
		return
	}
	tick := time.NewTicker(max(idle/4, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-d.quit:
			return
		case <-tick.C:
		}
		d.mu.Lock()
		all := append([]*conn(nil), d.conns...)
		d.mu.Unlock()
		for _, c := range all {
			silent := time.Duration(d.now() - c.used.Load())
			if silent < idle/4 || !c.mu.TryLock() {
				continue
			}
			switch holds := c.held.Load()+c.drafts.Load() > 0; {
			case c.dead.Load():
			case holds:
				// An error is found at the next use.
				_ = c.ask(context.Background(), asking{op: "keep", name: d.path, req: &wire.Ping{}})
				c.used.Store(d.now())
			case silent > idle/2:
				c.shut()
			}
			c.mu.Unlock()
		}
	}
}

// close sends the remaining messages and closes the connections.
func (d *door) close() {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return
	}
	d.closed = true
	d.mu.Unlock()
	close(d.quit)
	d.tend.Wait()
	d.mu.Lock()
	all := d.conns
	d.conns = nil
	d.mu.Unlock()
	for _, c := range all {
		c.mu.Lock()
		c.shut()
		c.mu.Unlock()
	}
}

// handle is an open object at the server.
type handle struct {
	d  *door
	c  *conn
	id uint64
}
