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

// patience is the longest time that the client waits for an answer. A commit may take longer, because it waits for
// the disk.
const (
	patience       = 30 * time.Second
	commitPatience = 15 * time.Minute
)

// conn is one connection to the door after its handshake. It carries one request at a time, and the requester holds
// mu.
type conn struct {
	mu       turn
	s        *socket
	out      []byte
	last     uint32 // number of the last request
	greeting *wire.Greeting
	bind     func(fd int) (wire.Binding, error) // identifies the server's end of the connection: channel.Peer

	dead   atomic.Bool
	held   atomic.Int64 // number of open handles
	drafts atomic.Int64 // number of open drafts
	slow   atomic.Int64 // number of commits that wait for the disk or for mu
	used   atomic.Int64 // time of the last use, in nanoseconds of the door's clock
}

// turn is a lock with a timeout.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

// Lock waits without a time limit until the connection's lock is free, and takes it.
func (t turn) Lock() { t <- struct{}{} }

// Unlock releases the connection's lock.
func (t turn) Unlock() { <-t }

// TryLock takes the connection's lock if it is free, and reports whether it did.
func (t turn) TryLock() bool {
	select {
	case t <- struct{}{}:
		return true
	default:
		return false
	}
}

// lockWithin waits for the lock for at most d, or until the context ends, and reports whether it took the lock.
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

// lostError means that the connection ended before a request was answered.
type lostError struct {
	cause    error
	answered bool // a part of the answer had arrived
}

func (e *lostError) Error() string { return "the connection to the door was lost: " + e.cause.Error() }
func (e *lostError) Unwrap() error { return e.cause }

// gone marks the cause of a lost connection inside an error.
type gone struct{ error }

func (g gone) Unwrap() error { return g.error }

// wasLost reports whether err is due to a lost connection, not to a cancellation or a refusal by the server.
func wasLost(err error) bool {
	var g gone
	return errors.As(err, &g) && errs.KindOf(err) == errs.IO
}

// CodeError is an error that the door returned, with its code.
type CodeError struct {
	Code string // the door's error code, one of the Code constants of package wire
	err  *errs.Error
}

// Error returns the door's error message.
func (e *CodeError) Error() string { return e.err.Error() }

// Unwrap returns the wrapped errs.Error, so that errs.KindOf finds the kind of the error.
func (e *CodeError) Unwrap() error { return e.err }

// Is reports whether the server's disk is full and target is syscall.ENOSPC.
func (e *CodeError) Is(target error) bool {
	return e.Code == wire.CodeNoSpace && target == syscall.ENOSPC
}

// refusal converts an error of the door's protocol to a CodeError.
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

// asking is a request with the function that receives the answer.
type asking struct {
	op, name string
	req      wire.Message
	patience time.Duration
	// each receives one packet of the answer. It owns the descriptors from then on, even if it fails. If each fails,
	// ask returns the error after the rest of the answer has arrived.
	each func(m wire.Message, fds []int) error
	// stay makes ask wait for the answer even if the context ends, because the outcome must be known.
	stay bool
	// sent, if not nil, is called when the request has been sent.
	sent func()
}

// ask sends a request and receives its answer. The caller holds c.mu. If the connection fails, it is dead afterwards,
// and the error is a *lostError.
func (c *conn) ask(ctx context.Context, a asking) error {
	if err := ctx.Err(); err != nil && !a.stay {
		return errs.Wrap(a.op, a.name, context.Cause(ctx))
	}
	c.last++
	if c.last == 0 {
		c.last = 1 // 0 is reserved for messages about the connection
	}
	var err error
	if c.out, err = wire.Append(c.out[:0], wire.Header{Request: c.last}, a.req); err != nil {
		return errs.Wrap(a.op, a.name, err)
	}
	if err := c.s.send(c.out); err != nil {
		// Before a server ends a connection, it sends the reason, which may still be unread.
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

// endless returns an error if an answer has too many packets or takes too long. While packets keep coming, take
// itself does not check the time.
func (c *conn) endless(ctx context.Context, a asking, packets int, deadline time.Time) error {
	switch {
	case packets == 0:
		return nil
	case packets >= wire.MaxItems: // each packet has at least one object
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

// take receives one packet. If the context ends first, take fails, unless the connection has a draft or stay is set.
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

// lose closes the connection and returns a *lostError. The caller holds c.mu.
func (c *conn) lose(cause error, answered bool) error {
	c.shut()
	return &lostError{cause: cause, answered: answered}
}

// shut closes the connection. The caller holds c.mu.
func (c *conn) shut() {
	if c.dead.CompareAndSwap(false, true) {
		c.s.close()
	}
}

// shake performs the handshake, in which client and server authenticate each other, and returns the ID of the store.
// If store is not empty, the server's store must have this ID.
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
	// This comes after the Challenge: now the server has accepted the connection, and its end has an identity.
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
