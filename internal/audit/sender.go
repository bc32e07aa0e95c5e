// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Webhook is where a Sender sends lines.
type Webhook struct {
	URL    string
	Token  string // value of the Authorization header; empty means none
	Client *http.Client
	// Retry is the time after a failed request; it doubles up to a minute.
	Retry time.Duration
	// Failed, if not nil, is called after each failed request.
	Failed func(error)
}

// Sender sends the lines of a Log to a webhook, in order and at least once. The files of the log are its queue: lines
// that were not sent yet are sent after a restart.
type Sender struct {
	l *Log
	w Webhook

	sent   atomic.Int64
	failed atomic.Int64
}

const (
	// batchLines and batchBytes limit one request.
	batchLines = 500
	batchBytes = 1 << 20
	// maxLine is the largest length of a line, in bytes.
	maxLine  = 1 << 20
	maxRetry = time.Minute
)

// NewSender returns a Sender, which begins where an earlier Sender of the same log has ended.
func NewSender(l *Log, w Webhook) (*Sender, error) {
	if w.Client == nil {
		w.Client = &http.Client{Timeout: 30 * time.Second}
	}
	if w.Retry <= 0 {
		w.Retry = time.Second
	}
	b, err := os.ReadFile(l.sentPath())
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, errs.Wrap("open audit log", l.sentPath(), err)
	default:
		var at struct{ Number, Offset int64 }
		if json.Unmarshal(b, &at) == nil && at.Number >= 0 && at.Offset >= 0 {
			l.sent = position{at.Number, at.Offset}
		}
	}
	l.mu.Lock()
	l.sender = true
	l.mu.Unlock()
	return &Sender{l: l, w: w}, nil
}

// Sent returns the number of lines that the webhook has confirmed, and the number of failed requests.
func (s *Sender) Sent() (lines, failures int64) { return s.sent.Load(), s.failed.Load() }

func (l *Log) sentPath() string { return l.o.Path + ".sent" }

// Run sends lines until ctx ends or the log is closed.
func (s *Sender) Run(ctx context.Context) {
	wait := s.w.Retry
	for ctx.Err() == nil {
		batch, next, err := s.l.after(s.l.position(), batchLines)
		if err == nil && len(batch) == 0 && next == s.l.position() {
			if !s.l.wait(ctx) {
				return
			}
			continue
		}
		if err == nil && len(batch) > 0 {
			err = s.post(ctx, batch)
		}
		if err == nil {
			err = s.l.mark(next)
		}
		if err == nil {
			s.sent.Add(int64(bytes.Count(batch, []byte{'\n'})))
			wait = s.w.Retry
			continue
		}
		if ctx.Err() != nil {
			return
		}
		s.failed.Add(1)
		if s.w.Failed != nil {
			s.w.Failed(err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
		wait = min(2*wait, maxRetry)
	}
}

// post sends lines in one request, as JSON objects with line breaks between them.
func (s *Sender) post(ctx context.Context, batch []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.w.URL, bytes.NewReader(batch))
	if err != nil {
		return errs.Wrap("send audit log", s.w.URL, err)
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	if s.w.Token != "" {
		req.Header.Set("Authorization", s.w.Token)
	}
	resp, err := s.w.Client.Do(req)
	if err != nil {
		return errs.Wrap("send audit log", s.w.URL, err)
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	_ = resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return errs.New(errs.IO, "send audit log", s.w.URL, fmt.Sprintf("status %s, expected 2xx", resp.Status))
	}
	return nil
}

func (l *Log) position() position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent
}

// mark records durably up to where lines were sent.
func (l *Log) mark(p position) error {
	b, err := json.Marshal(struct{ Number, Offset int64 }{p.number, p.offset})
	if err == nil {
		err = os.WriteFile(l.sentPath()+".tmp", b, 0o640)
	}
	if err == nil {
		err = os.Rename(l.sentPath()+".tmp", l.sentPath())
	}
	if err != nil {
		return errs.Wrap("send audit log", l.sentPath(), err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = p
	return nil
}

// wait waits until a line is written. It returns false if ctx has ended or the log is closed.
func (l *Log) wait(ctx context.Context) bool {
	l.mu.Lock()
	if l.file == nil {
		l.mu.Unlock()
		return false
	}
	if l.sent.number >= l.number && l.sent.offset < l.size || l.sent.number < l.number && l.size > 0 {
		l.mu.Unlock()
		return true
	}
	if l.grown == nil {
		l.grown = make(chan struct{})
	}
	grown := l.grown
	l.mu.Unlock()
	select {
	case <-ctx.Done():
		return false
	case <-grown:
		return true
	}
}

// after returns whole lines behind a position, and the position behind them.
func (l *Log) after(p position, limit int) ([]byte, position, error) {
	f, p, last, err := l.openAt(p)
	if err != nil {
		return nil, p, errs.Wrap("read audit log", l.o.Path, err)
	}
	defer func() { _ = f.Close() }() // nothing was written through it
	batch, err := lines(f, p.offset, limit)
	if err != nil {
		return nil, p, errs.Wrap("read audit log", f.Name(), err)
	}
	if len(batch) == 0 && !last {
		return nil, position{p.number + 1, 0}, nil
	}
	return batch, position{p.number, p.offset + int64(len(batch))}, nil
}

// openAt opens the file of a position, and reports whether it is the newest one. If the file was removed, openAt opens
// the oldest one after it. The lock keeps the files from being rotated meanwhile.
func (l *Log) openAt(p position) (f *os.File, at position, newest bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.number > l.number || p.number == l.number && p.offset > l.size {
		p = position{l.number, 0} // the files are not those of the position
	}
	if p.number < l.number {
		numbers, err := l.rotated()
		if err != nil {
			return nil, p, false, err
		}
		i, found := slices.BinarySearch(numbers, p.number)
		if !found {
			p = position{l.number, 0}
			if i < len(numbers) {
				p.number = min(numbers[i], l.number)
			}
		}
	}
	newest = p.number == l.number
	path := l.o.Path
	if !newest {
		path = l.pathOf(p.number)
	}
	f, err = os.Open(path)
	return f, p, newest, err
}

// lines reads at most limit whole lines from an offset on.
func lines(f *os.File, offset int64, limit int) ([]byte, error) {
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, err
	}
	in := bufio.NewReaderSize(f, 64<<10)
	var batch []byte
	for range limit {
		line, err := in.ReadSlice('\n')
		for errors.Is(err, bufio.ErrBufferFull) && len(line) > 0 && len(batch) < maxLine {
			batch = append(batch, line...)
			line, err = in.ReadSlice('\n')
		}
		if errors.Is(err, io.EOF) {
			if i := bytes.LastIndexByte(batch, '\n'); i+1 < len(batch) {
				batch = batch[:i+1] // the beginning of a line that is not complete
			}
			return batch, nil
		}
		if err != nil {
			return nil, err
		}
		if batch = append(batch, line...); len(batch) > batchBytes {
			break
		}
	}
	return batch, nil
}
