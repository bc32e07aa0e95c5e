// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/plain"
	"github.com/nebulaio/nebulaio/internal/store/s3"
	"github.com/nebulaio/nebulaio/internal/units"
)

// call is one request to the upstream, with what errors need.
type call struct {
	op string
	of subject
	s3.Request
	// change means that the request changes something, so that its reply may take Options.Commit.
	change bool
	// assembles means that the upstream may have to copy content before it answers.
	assembles bool
	// raw means that an error reply is returned as the *s3.Fault that it is.
	raw bool
}

func (b *Bucket) name(q *call) string { return "s3://" + q.Bucket + "/" + q.Key }

// silence is the cause with which a request is cancelled because the upstream is silent.
type silence struct {
	d    time.Duration
	what string
}

func (s *silence) Error() string {
	return fmt.Sprintf("deadline: %s for %s", s.what, units.Duration(s.d))
}

// watch cancels a request if nothing moves for some time. A deadline that is moved to a later time costs no timer: the
// timer looks at the deadline when it fires.
type watch struct {
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	timer    *time.Timer // nil before the first deadline
	fires    time.Time   // when the timer fires; zero if it does not run
	deadline time.Time   // zero: there is none
	patience time.Duration
	what     string
}

// expect starts the deadline anew. With d = 0, there is no deadline until the next call.
func (w *watch) expect(d time.Duration, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d <= 0 {
		w.deadline = time.Time{}
		return
	}
	w.deadline, w.patience, w.what = time.Now().Add(d), d, what
	if w.fires.IsZero() || w.deadline.Before(w.fires) {
		w.fire(d)
	}
}

// fire sets the timer. The caller holds mu.
func (w *watch) fire(d time.Duration) {
	w.fires = time.Now().Add(d)
	if w.timer == nil {
		w.timer = time.AfterFunc(d, w.look)
		return
	}
	w.timer.Reset(d)
}

// look cancels the request if its deadline has passed.
func (w *watch) look() {
	w.mu.Lock()
	w.fires = time.Time{}
	left := time.Until(w.deadline)
	passed := !w.deadline.IsZero() && left <= 0
	if !w.deadline.IsZero() && !passed {
		w.fire(left)
	}
	why := &silence{w.patience, w.what}
	w.mu.Unlock()
	if passed {
		w.cancel(why)
	}
}

// end ends the watch for good.
func (w *watch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deadline = time.Time{}
	if w.timer != nil {
		w.timer.Stop()
	}
}

// reply is a successful reply with its body open. The caller must close it.
type reply struct {
	*http.Response
	b      *Bucket
	w      *watch
	number uint64
	end    func()
	once   sync.Once
	ctx    context.Context
	stall  time.Duration
}

// Read returns bytes of the body, and fails if the upstream is silent for too long.
func (r *reply) Read(p []byte) (int, error) {
	r.w.expect(r.stall, "no byte of the content came")
	n, err := r.Body.Read(p)
	r.w.expect(0, "")
	if err != nil && err != io.EOF {
		if cause := context.Cause(r.ctx); cause != nil {
			err = cause
		}
		if Silent(err) {
			r.b.breaker.failed(r.number, err)
		}
	}
	return n, err
}

// Close ends the request and frees its slot.
func (r *reply) Close() error {
	r.once.Do(func() {
		r.w.end()
		r.Body.Close()
		r.end()
	})
	return nil
}

// text reads the whole body, of at most limit bytes, and closes the reply.
func (r *reply) text(limit int64) ([]byte, error) {
	defer r.Close()
	body, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(body)) > limit {
		err = fmt.Errorf("the reply has more than %d bytes", limit)
	}
	return body, err
}

// send sends a request once. If the status is 2xx or 304, send returns the reply. Otherwise, send returns an error of
// package object, a Refusal, or an error that wraps ErrUnavailable. If the context ends, send returns at once.
func (b *Bucket) send(ctx context.Context, q *call) (*reply, error) {
	name := b.name(q)
	release := func() {
		if q.Body != nil {
			_ = q.Body.Close()
		}
	}
	if ctx.Err() != nil {
		release()
		return nil, cancelled(ctx, q.op, name)
	}
	select {
	case b.slots <- struct{}{}:
	default:
		select {
		case b.slots <- struct{}{}:
		case <-ctx.Done():
			release()
			return nil, cancelled(ctx, q.op, name)
		}
	}
	number, err := b.breaker.enter()
	if err != nil {
		<-b.slots
		release()
		return nil, unavailable(q.op, name, &unsent{err.Error()})
	}
	// The context of the request has no parent. net/http can use a context after the request has ended, and contexts of
	// the front end do not live that long.
	own, cancel := context.WithCancelCause(context.Background())
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	w := &watch{cancel: cancel}
	end := func() {
		w.end()
		stop()
		cancel(context.Canceled)
		<-b.slots
	}
	switch {
	case q.Body != nil && q.Size > 0:
		q.Body = &sentBody{ReadCloser: q.Body, w: w, stall: b.o.Stall, commit: b.o.Commit}
		w.expect(b.o.FirstByte, "the upstream took no byte of the content")
	default:
		w.expect(b.patience(q), "no byte of the reply came")
	}
	resp, err := b.sender.Send(own, &q.Request) //nolint:bodyclose // reply.Close closes it
	w.expect(0, "")
	if err == nil {
		b.breaker.succeeded(number)
		stall := b.o.Stall
		if q.change || q.assembles { // the reply can begin before the change is done
			stall = max(stall, b.patience(q))
		}
		return &reply{Response: resp, b: b, w: w, number: number, end: end, ctx: own, stall: stall}, nil
	}
	end()
	return nil, b.failure(ctx, q, number, err)
}

// patience returns how long the first byte of a reply may take.
func (b *Bucket) patience(q *call) time.Duration {
	switch {
	case q.assembles:
		return max(b.o.Commit, assembleTime)
	case q.change || q.Body != nil:
		return b.o.Commit
	}
	return b.o.FirstByte
}

// failure translates the error of a request, and tells the breaker.
func (b *Bucket) failure(ctx context.Context, q *call, number uint64, err error) error {
	name := b.name(q)
	if f := faultOf(err); f != nil {
		switch {
		case f.Status == http.StatusBadGateway, f.Status == http.StatusGatewayTimeout,
			f.Status == http.StatusServiceUnavailable && f.Code != "SlowDown":
			b.breaker.failed(number, f)
			return unavailable(q.op, name, f)
		}
		b.breaker.succeeded(number)
		if q.raw {
			return f
		}
		return refused(q.op, name, f, q.of)
	}
	if ctx.Err() != nil {
		b.breaker.left(number)
		return cancelled(ctx, q.op, name)
	}
	var src *sourceError
	if errors.As(err, &src) {
		b.breaker.left(number)
		return src.err
	}
	var own *errs.Error
	if errors.As(err, &own) { // credentials, signature: nothing was sent
		b.breaker.left(number)
		return &errs.Error{Kind: own.Kind, Op: q.op, Name: name, Err: &failed{sentinel: ErrUnavailable, cause: err,
			refusal: &object.Refusal{Kind: own.Kind, Status: http.StatusServiceUnavailable, Code: "ServiceUnavailable",
				Message: "This server has no credentials for the upstream."}}}
	}
	what := explain(err)
	b.breaker.failed(number, what)
	return unavailable(q.op, name, what)
}

// unsent is a failure before the upstream had the request, so that nothing was changed.
type unsent struct{ text string }

func (u *unsent) Error() string { return u.text }

// explain says in plain words why a connection failed.
func explain(err error) error {
	var s *silence
	var dns *net.DNSError
	switch {
	case errors.As(err, &s):
		return err
	case errors.Is(err, syscall.ECONNREFUSED):
		return &unsent{"the connection was refused"}
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return errors.New("the connection was reset")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the connection was closed before the reply was complete")
	case errors.As(err, &dns):
		return &unsent{"the name " + plain.Text(dns.Name) + " has no address: " + plain.Text(dns.Err)}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errors.New("the connection was not made in time")
	}
	return errors.New(plain.Text(err.Error()))
}

// sourceError is a failure of the caller's body, which is not the upstream's fault.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

// sentBody is the body of a request. Its deadline runs while the upstream has bytes to take, not while the caller has
// to supply bytes.
type sentBody struct {
	io.ReadCloser
	w             *watch
	stall, commit time.Duration
}

func (s *sentBody) Read(p []byte) (int, error) {
	s.w.expect(0, "")
	n, err := s.ReadCloser.Read(p)
	switch {
	case err == io.EOF:
		s.w.expect(s.commit, "no byte of the reply came after the content was sent")
	case err != nil:
		err = &sourceError{err}
	default:
		s.w.expect(s.stall, "the upstream took no byte of the content")
	}
	return n, err
}
