// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
)

// patience is how long an answer may take; a commit waits for the disk.
const (
	patience       = 30 * time.Second
	commitPatience = 15 * time.Minute
)

// conn is one connection to the door after its handshake. One request is on it
// at a time; whoever asks holds mu.
type conn struct {
	mu       turn
	s        *socket
	out      []byte
	last     uint32 // number of the last request
	greeting *wire.Greeting
	bind     func(fd int) (wire.Binding, error) // names the server's end: channel.Peer

	dead   atomic.Bool
	held   atomic.Int64 // handles that are open
	drafts atomic.Int64 // drafts that are open
	slow   atomic.Int64 // commits that wait for the disk, or for their turn
	used   atomic.Int64 // when it was used last, in nanoseconds of the door's clock
}

// turn is a lock that a waiter can give up.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// Lock waits for as long as it takes.
func (t turn) Lock() { t <- struct{}{} }

// Unlock lets the next one in.
func (t turn) Unlock() { <-t }

// TryLock does not wait.
func (t turn) TryLock() bool {
	select {
	case t <- struct{}{}:
		return true
	default:
		return false
	}
}

// lockWithin waits for a while, unless the context ends.
func (t turn) lockWithin(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case t <- struct{}{}:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// lostError says that the connection ended before a request was answered.
type lostError struct {
	cause    error
	answered bool // something of the answer had come
}

func (e *lostError) Error() string { return "the connection to the door was lost: " + e.cause.Error() }
func (e *lostError) Unwrap() error { return e.cause }

// gone marks, inside an error, what a lost connection was lost by.
type gone struct{ error }

func (g gone) Unwrap() error { return g.error }

// wasLost says whether something failed because a connection ended, and not
// because the caller or the server wanted it so.
func wasLost(err error) bool {
	var g gone
	return errors.As(err, &g) && errs.KindOf(err) == errs.IO
}

// CodeError is a refusal of the door with its code.
type CodeError struct {
	Code string // see package wire
	err  *errs.Error
}

// Error is the refusal in words.
func (e *CodeError) Error() string { return e.err.Error() }

// Unwrap gives the error its kind.
func (e *CodeError) Unwrap() error { return e.err }

// Is lets errors.Is find the system's own error for a full disk of the server.
func (e *CodeError) Is(target error) bool {
	return e.Code == wire.CodeNoSpace && target == syscall.ENOSPC
}

// refusal makes an error of what the door says.
func refusal(op, name string, e *wire.Error) error {
	kind := errs.Other
	for _, k := range errs.Kinds() {
		if uint8(k) == e.Kind {
			kind = k
		}
	}
	msg := e.Message
	if msg == "" {
		msg = e.Code
	}
	return &CodeError{Code: e.Code, err: errs.New(kind, op, name, msg).WithFix(e.Fix)}
}

func codeOf(err error) string {
	var c *CodeError
	if errors.As(err, &c) {
		return c.Code
	}
	return ""
}

// asking is a request and where its answer goes.
type asking struct {
	op, name string
	req      wire.Message
	patience time.Duration
	// each takes one packet of the answer with its descriptors, which are its own
	// from then on, whatever it returns. An error of it is returned after the rest of the answer has come.
	each func(m wire.Message, fds []int) error
	// stay keeps waiting when the context ends: the outcome must be known.
	stay bool
	// sent, if not nil, is called when the server may have begun to act.
	sent func()
}

// ask sends a request and takes its answer; c.mu is held. A connection that
// fails is dead afterwards, and the error a *lostError.
func (c *conn) ask(ctx context.Context, a asking) error {
	if err := ctx.Err(); err != nil && !a.stay {
		return errs.Wrap(a.op, a.name, context.Cause(ctx))
	}
	c.last++
	if c.last == 0 {
		c.last = 1 // 0 is the connection's own
	}
	var err error
	if c.out, err = wire.Append(c.out[:0], wire.Header{Request: c.last}, a.req); err != nil {
		return errs.Wrap(a.op, a.name, err)
	}
	if err := c.s.send(c.out); err != nil {
		// A server that ends a connection says why before; it may lie there unread.
		if _, m, fds, rerr := c.take(ctx, time.Now().Add(slice), true); rerr == nil {
			closeAll(fds)
			if e, ok := m.(*wire.Error); ok {
				err = refusal(a.op, a.name, e)
			}
		}
		return c.lose(err, false)
	}
	if a.sent != nil {
		a.sent()
	}
	if a.patience == 0 {
		a.patience = patience
	}
	deadline := time.Now().Add(a.patience)
	var failed error
	for packets := 0; ; packets++ {
		answered := packets > 0
		var h wire.Header
		var m wire.Message
		var fds []int
		err := c.endless(ctx, a, packets, deadline)
		if err == nil {
			h, m, fds, err = c.take(ctx, deadline, a.stay)
		}
		if err != nil {
			if errs.Is(err, errs.Cancelled) {
				c.lose(err, answered)
				return errs.Wrap(a.op, a.name, err)
			}
			return c.lose(err, answered)
		}
		if e, ok := m.(*wire.Error); ok {
			closeAll(fds)
			if h.Request != c.last {
				return c.lose(refusal(a.op, a.name, e), answered)
			}
			return errors.Join(failed, refusal(a.op, a.name, e))
		}
		if h.Request != c.last {
			closeAll(fds)
			return c.lose(errs.New(errs.Invalid, "read door message", m.Type().String(),
				fmt.Sprintf("answers request %d, expected %d", h.Request, c.last)), answered)
		}
		if failed == nil && a.each != nil {
			failed = a.each(m, fds)
		} else {
			closeAll(fds)
		}
		if h.Flags&wire.FlagMore == 0 {
			return failed
		}
		if r, ok := m.(*wire.Opened); !ok || len(r.Items) == 0 {
			return c.lose(errors.Join(failed, errs.New(errs.Invalid, "read door message", m.Type().String(),
				"says that more follows, which only an Opened with objects may")), true)
		}
	}
}

// endless ends an answer that goes on for too long. A server that sends packet after packet would never let take look
// up.
func (c *conn) endless(ctx context.Context, a asking, packets int, deadline time.Time) error {
	switch {
	case packets == 0:
		return nil
	case packets >= wire.MaxItems: // each has an object at least
		return errs.New(errs.Invalid, "read door message", "Opened",
			fmt.Sprintf("came %d times for one request, expected at most %d", packets, wire.MaxItems))
	case ctx.Err() != nil && !a.stay && c.drafts.Load() == 0:
		return errs.Wrap("wait for the door", "", context.Cause(ctx))
	case time.Now().After(deadline):
		return tooSlow()
	}
	return nil
}

func tooSlow() error {
	return errs.New(errs.IO, "wait for the door", "",
		"it did not answer in time").WithFix("look at the server's log; restart it if it hangs")
}

// take receives one packet. When the context ends first, the connection is
// given up, unless a draft hangs on it or the caller must stay.
func (c *conn) take(ctx context.Context, deadline time.Time, stay bool) (wire.Header, wire.Message, []int, error) {
	for {
		b, fds, err := c.s.receive()
		if err == errSlow {
			if ctx.Err() != nil && !stay && c.drafts.Load() == 0 {
				return wire.Header{}, nil, nil, errs.Wrap("wait for the door", "", context.Cause(ctx))
			}
			if time.Now().After(deadline) {
				return wire.Header{}, nil, nil, tooSlow()
			}
			continue
		}
		if err != nil {
			return wire.Header{}, nil, nil, err
		}
		h, m, err := wire.Decode(b)
		if err == nil && int(h.Descriptors) != len(fds) {
			err = errs.New(errs.Invalid, "read door message", h.Type.String(),
				fmt.Sprintf("tells of %d descriptors and came with %d", h.Descriptors, len(fds)))
		}
		if err != nil {
			closeAll(fds)
			return h, nil, nil, err
		}
		return h, m, fds, nil
	}
}

// lose gives the connection up; c.mu is held.
func (c *conn) lose(cause error, answered bool) error {
	c.shut()
	return &lostError{cause: cause, answered: answered}
}

// shut ends the connection; c.mu is held.
func (c *conn) shut() {
	if c.dead.CompareAndSwap(false, true) {
		c.s.close()
	}
}

// shake proves both sides to each other. store, if not empty, is what the
// server's own endpoint calls itself.
func (c *conn) shake(ctx context.Context, path, store, accessKey, secret, agent string) (string, error) {
	const op = "log in at door"
	var ch *wire.Challenge
	if err := c.s.listener(path); err != nil {
		return "", err
	}
	err := c.ask(ctx, asking{op: op, name: path, req: &wire.Hello{Min: wire.MinVersion, Max: wire.Version, Agent: agent},
		patience: wire.ChallengeTime, each: func(m wire.Message, fds []int) error {
			closeAll(fds)
			got, ok := m.(*wire.Challenge)
			if !ok {
				return unexpected(m, "Challenge")
			}
			ch = got
			return nil
		}})
	if err != nil {
		return "", err
	}
	if ch.Version < wire.MinVersion || ch.Version > wire.Version {
		return "", errs.New(errs.Unsupported, op, path,
			fmt.Sprintf("the server speaks version %d, expected %d to %d", ch.Version, wire.MinVersion,
				wire.Version)).WithFix("use a client and a server of one release")
	}
	if store != "" && ch.Store != store {
		return "", errs.New(errs.Invalid, op, path, fmt.Sprintf("behind the socket is the store %q, the endpoint's is %q",
			ch.Store, store)).
			WithFix("two servers share a path: give each a gpudirect.socket of its own")
	}
	p := &wire.Proof{AccessKey: accessKey}
	if _, err := rand.Read(p.Nonce[:]); err != nil {
		return "", errs.Wrap(op, path, err)
	}
	// Only now: the server has accepted the connection, and its end has a name.
	if p.Binding, err = c.bind(c.s.fd); err != nil {
		return "", errs.Wrap(op, path, err)
	}
	p.MAC = wire.ClientMAC(secret, ch, p)
	err = c.ask(ctx, asking{op: op, name: path, req: p, each: func(m wire.Message, fds []int) error {
		closeAll(fds)
		got, ok := m.(*wire.Greeting)
		if !ok {
			return unexpected(m, "Greeting")
		}
		c.greeting = got
		return nil
	}})
	if err != nil {
		return "", err
	}
	if !wire.EqualMAC(c.greeting.MAC, wire.ServerMAC(secret, ch, p)) {
		return "", errs.New(errs.Permission, op, path,
			"who listens there does not know the secret of "+accessKey+
				": it is not the server").WithFix("find out which process owns the socket")
	}
	c.s.takeDescriptors(true)
	return ch.Store, nil
}

func unexpected(m wire.Message, want string) error {
	return errs.New(errs.Invalid, "read door message", m.Type().String(),
		"came where "+want+" is expected").WithFix("use a client and a server of one release")
}
