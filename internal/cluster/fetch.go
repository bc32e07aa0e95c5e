// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// errSlow means that a member sent no block in time.
var errSlow = errors.New("the member sent nothing in time")

// errLeft means that a member left the cluster while it was asked.
var errLeft = errors.New("the member has left the cluster")

// errUpstream means that the owner could not read from upstream. Another member would have to ask the same upstream.
var errUpstream = errors.New("the owner could not read from upstream")

// newClient returns the HTTP client for other members.
func (n *Node) newClient(s secure) *http.Client {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	d := &net.Dialer{Timeout: min(n.o.Limits.FirstBlock, n.o.Limits.FirstByte)}
	return &http.Client{
		Transport: &http.Transport{
			DialTLSContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
				if n.o.cut != nil && n.o.cut(addr) {
					return nil, errs.New(errs.IO, "connect to", addr, "the network is cut")
				}
				raw, err := d.DialContext(ctx, network, addr)
				if err != nil {
					return nil, err
				}
				return s.dial(ctx, raw)
			},
			Protocols:           &protocols,
			MaxIdleConnsPerHost: 16,
			IdleConnTimeout:     90 * time.Second,
			DisableCompression:  true,
			ReadBufferSize:      64 << 10,
			// A reply has a few short headers of our own.
			MaxResponseHeaderBytes: 16 << 10,
		},
		// Members never redirect.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Fetch asks the owners of the span's extent for its blocks, best first. Fetch returns after the first block has
// arrived, or fails. The caller closes the Extent. The end of ctx ends the Extent too.
//
// Fetch returns ErrOwner if this node is the best owner that can be asked, and ErrUnreachable if the owners gave
// nothing. In both cases the caller reads from upstream. Fetch does not check what a user may read; the caller does.
func (n *Node) Fetch(ctx context.Context, id object.Identity, span Span) (*Extent, error) {
	if err := span.Check(id); err != nil {
		return nil, err
	}
	e := &Extent{n: n, ctx: ctx, id: id, rest: span, owners: n.Owners(id, span.Extent)}
	if len(e.owners) == 0 {
		return nil, ErrOwner
	}
	if err := e.open(); err != nil {
		return nil, err
	}
	return e, nil
}

// Extent is a Blocks that comes from another member. Every block is compared with its checksum before Next returns
// the block. If the member fails in the middle, the Extent goes on with the second owner. If no owner is left, Next
// fails with ErrUnreachable, and the caller reads the rest from upstream.
type Extent struct {
	n      *Node
	ctx    context.Context
	id     object.Identity
	rest   Span     // blocks that Next has not returned yet
	owners []Member // members that were not asked yet
	err    error

	mu     sync.Mutex // guards now against Close
	now    *stream
	first  *Block // block that open has read
	closed bool
	from   string
}

// From returns the name of the member that gave the latest block.
func (e *Extent) From() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.from
}

// open asks the next owners until one gives the first block of rest.
func (e *Extent) open() error {
	var tried []string
	for len(e.owners) > 0 {
		m := e.owners[0]
		e.owners = e.owners[1:]
		if m.Self {
			return e.own(tried)
		}
		p := e.n.peers.of(m.Name)
		if !p.allow() {
			tried = append(tried, m.Name+" is not asked because of earlier failures")
			continue
		}
		s, b, err := e.n.openStream(e.ctx, m, p, e.id, e.rest)
		if err == nil {
			return e.take(m, s, b)
		}
		if e.ctx.Err() != nil {
			return errs.Wrap("fetch", e.id.Key, context.Cause(e.ctx))
		}
		e.n.o.Log.Debug("a member gave no block", "member", m.Name, "key", e.id.Key, "extent", e.rest.Extent, "error", err)
		tried = append(tried, m.Name+": "+errs.MessageOf(err))
		if errors.Is(err, errUpstream) {
			break
		}
	}
	return unreachable(e.id, tried)
}

// own returns the error for the case that this node is the next owner.
func (e *Extent) own(tried []string) error {
	if len(tried) == 0 && e.from == "" {
		return ErrOwner
	}
	return &errs.Error{Kind: errs.IO, Op: "fetch", Name: e.id.Key, Msg: strings.Join(tried, "; "), Err: ErrOwner}
}

func unreachable(id object.Identity, tried []string) error {
	return &errs.Error{Kind: errs.IO, Op: "fetch", Name: id.Key, Msg: strings.Join(tried, "; "), Err: ErrUnreachable}
}

// take makes s the stream of the Extent.
func (e *Extent) take(m Member, s *stream, b Block) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		s.close()
		return errs.New(errs.Closed, "fetch", e.id.Key, "the extent is closed")
	}
	e.now, e.first, e.from = s, &b, m.Name
	return nil
}

// Next implements Blocks.
func (e *Extent) Next() (Block, error) {
	if e.err != nil {
		return Block{}, e.err
	}
	b, err := e.next()
	if err != nil {
		e.err = err
		return Block{}, err
	}
	e.rest.First++
	e.rest.Count--
	return b, nil
}

func (e *Extent) next() (Block, error) {
	if e.rest.Count == 0 {
		return Block{}, e.finish()
	}
	e.mu.Lock()
	s, first := e.now, e.first
	e.first = nil
	e.mu.Unlock()
	if first != nil {
		return *first, nil
	}
	b, err := s.block()
	if err == nil {
		return b, nil
	}
	s.close()
	if e.ctx.Err() != nil {
		return Block{}, errs.Wrap("fetch", e.id.Key, context.Cause(e.ctx))
	}
	e.mu.Lock()
	closed := e.closed
	e.mu.Unlock()
	if closed {
		return Block{}, errs.New(errs.Closed, "fetch", e.id.Key, "the extent is closed")
	}
	if err := e.open(); err != nil {
		if errors.Is(err, ErrOwner) { // the rest is for the caller in both cases
			return Block{}, unreachable(e.id, []string{errs.MessageOf(err)})
		}
		return Block{}, err
	}
	return e.next()
}

// finish reads the end of the reply, so that the connection can be used again. A reply that goes on is a lie, but all
// blocks before its end were right.
func (e *Extent) finish() error {
	e.mu.Lock()
	s := e.now
	e.mu.Unlock()
	_, _ = s.block()
	return io.EOF
}

// Close implements Blocks. Close ends the request to the other member.
func (e *Extent) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.closed = true
		if e.now != nil {
			e.now.close()
		}
	}
	return nil
}

// stream is one request to one member.
type stream struct {
	n      *Node
	peer   *peer
	from   Member
	reply  *http.Response
	frames *frames
	cancel context.CancelCauseFunc
	ctx    context.Context
	outer  context.Context
	once   sync.Once
	came   atomic.Int64 // blocks that have arrived
	sign   timer        // ends the request if the member gives no sign
}

// openStream asks a member for blocks and reads the first one.
func (n *Node) openStream(ctx context.Context, m Member, p *peer, id object.Identity,
	span Span) (*stream, Block, error) {
	inner, cancel := context.WithCancelCause(ctx)
	s := &stream{n: n, peer: p, from: m, ctx: inner, cancel: cancel, outer: ctx}
	slow := func() { cancel(errSlow) }
	whole := n.o.after(n.o.Limits.FirstBlock, slow)
	defer whole.Stop()
	s.sign = n.o.after(n.o.Limits.FirstByte, slow)
	defer s.sign.Stop()
	go s.watch()
	b, err := s.start(id, span)
	if err != nil {
		err = s.failed(err)
		s.close()
		return nil, Block{}, err
	}
	p.answered()
	n.fetched.requests.Add(1)
	return s, b, nil
}

// watch ends the request if gossip finds that the member is gone and the member sends nothing for a short time. Without
// watch, the reader would wait for the time limits of a busy member.
func (s *stream) watch() {
	for {
		changed := s.n.members.watch()
		var tick <-chan time.Time
		if _, there := s.n.members.get(s.from.Name); !there {
			tick = time.After(min(s.n.o.Limits.FirstByte, s.n.o.Limits.NextBlock))
		}
		before := s.came.Load()
		select {
		case <-changed:
		case <-tick:
			if s.came.Load() == before {
				s.cancel(errLeft)
			}
		case <-s.ctx.Done():
			return
		}
	}
}

func (s *stream) start(id object.Identity, span Span) (Block, error) {
	ask := "https://" + s.from.Address + blocksPath + "?" + encodeRequest(id, span)
	ctx := httptrace.WithClientTrace(s.ctx, &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error {
		s.sign.Reset(s.n.o.Limits.FirstByte)
		return nil
	}})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, ask, nil)
	if err != nil {
		return Block{}, err
	}
	if s.reply, err = s.n.http.Do(req); err != nil { //nolint:bodyclose // close closes it
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // without the long URL
		}
		return Block{}, errs.Wrap("ask", s.from.Address, err)
	}
	s.sign.Stop()
	if err := s.checkReply(replyBytes(id, span)); err != nil {
		return Block{}, err
	}
	s.frames = newFrames(s.reply.Body, id, span)
	if err := s.frames.header(); err != nil {
		return Block{}, err
	}
	return s.read()
}

// checkReply compares the status and the header of the reply with the request.
func (s *stream) checkReply(expected int64) error {
	if name := s.reply.Header.Get(memberHeader); name != s.from.Name {
		return errs.New(errs.IO, "ask", s.from.Name,
			fmt.Sprintf("the member at %s has the name %.128q", s.from.Address, name))
	}
	switch s.reply.StatusCode {
	case http.StatusOK:
		if s.reply.ContentLength != expected {
			return lie("the reply has %d bytes; expected %d", s.reply.ContentLength, expected)
		}
		return nil
	case http.StatusServiceUnavailable, http.StatusNotFound:
		return refusal{s.text(), nil}
	case http.StatusBadGateway:
		return refusal{s.text(), errUpstream}
	}
	return errs.New(errs.IO, "ask", s.from.Name, fmt.Sprintf("status %d: %s", s.reply.StatusCode, s.text()))
}

// text returns the text of a refusal.
func (s *stream) text() string {
	b, _ := io.ReadAll(io.LimitReader(s.reply.Body, 512))
	return strings.TrimSpace(strings.ToValidUTF8(string(b), "?"))
}

// refusal is an answer of a healthy member that has no blocks to give.
type refusal struct {
	text  string
	cause error
}

func (r refusal) Error() string { return r.text }

func (r refusal) Unwrap() error { return r.cause }

// failed records a failure with the peer and returns its cause.
func (s *stream) failed(err error) error {
	var r refusal
	switch {
	case s.outer.Err() != nil || errs.Is(context.Cause(s.ctx), errs.Closed): // the caller has ended the request
		s.peer.idle()
		return err
	case errors.As(err, &r):
		s.peer.idle()
		s.n.fetched.refused.Add(1)
		return err
	}
	if cause := context.Cause(s.ctx); cause != nil {
		err = cause
	}
	lied := errs.Is(err, errs.Corrupt)
	s.n.fetched.errors.Add(1)
	if lied {
		s.n.fetched.wrong.Add(1)
		s.n.o.Log.Warn("a member sent wrong bytes, and is not asked for a while", "member", s.from.Name, "address",
			s.from.Address, "time", s.n.o.Limits.Distrust.String(), "error", err)
	}
	s.peer.bad(errs.MessageOf(err), lied)
	return err
}

// block reads the next block within the time limit.
func (s *stream) block() (Block, error) {
	timer := time.AfterFunc(s.n.o.Limits.NextBlock, func() { s.cancel(errSlow) })
	defer timer.Stop()
	b, err := s.read()
	if err != nil && err != io.EOF {
		err = s.failed(err)
	}
	return b, err
}

func (s *stream) read() (Block, error) {
	b, err := s.frames.block()
	if err == nil {
		s.came.Add(1)
		s.peer.gave(len(b.Data))
		s.n.fetched.blocks.Add(1)
		s.n.fetched.bytes.Add(int64(len(b.Data)))
	}
	return b, err
}

// close ends the request. A connection whose reply was read to its end is used again.
func (s *stream) close() {
	s.once.Do(func() {
		s.cancel(errs.New(errs.Closed, "", "", "the request is closed"))
		if s.reply != nil {
			_ = s.reply.Body.Close()
		}
	})
}
