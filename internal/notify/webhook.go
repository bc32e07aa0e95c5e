// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// mostAskedWait is the longest time for which a receiver can delay the next try by the header Retry-After.
const mostAskedWait = 10 * time.Minute

// webhook posts each message to a URL.
type webhook struct {
	s      Settings
	shown  string // the URL without secrets
	client *http.Client
	now    func() time.Time
}

func newWebhook(s Settings, conf *tls.Config) *webhook {
	return &webhook{s: s, shown: Shown(s.Address[0]), now: time.Now, client: &http.Client{Timeout: s.Timeout,
		Transport: &http.Transport{TLSClientConfig: conf, Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 1,
			ForceAttemptHTTP2: true}}}
}

// Send implements Target. A status of 2xx confirms a message.
func (w *webhook) Send(ctx context.Context, messages []Message) (int, error) {
	for i := range messages {
		if err := w.post(ctx, &messages[i]); err != nil {
			return i, err
		}
	}
	return len(messages), nil
}

func (w *webhook) post(ctx context.Context, m *Message) error {
	const op = "send event"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.s.Address[0], bytes.NewReader(m.Body))
	if err != nil {
		return errs.Wrap(op, w.s.Name, w.hide(err))
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Nebulaio-Event-Id", m.ID)
	if w.s.Secret != "" {
		req.Header.Set("Authorization", w.s.Secret)
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return errs.Wrap(op, w.s.Name, w.hide(err))
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	_ = resp.Body.Close()
	if resp.StatusCode/100 == 2 {
		return nil
	}
	err = errs.New(errs.IO, op, w.s.Name, fmt.Sprintf("%s replied with status %s, expected 2xx", w.shown, resp.Status))
	if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
		return &delayed{error: err, wait: retryAfter(resp.Header.Get("Retry-After"), w.now())}
	}
	return err
}

// hide removes the URL from an error of net/http, because the path or the query of a webhook can be a secret.
func (w *webhook) hide(err error) error {
	var u *url.Error
	if !errors.As(err, &u) {
		return err
	}
	return fmt.Errorf("%s %s: %w", u.Op, w.shown, u.Err)
}

// delayed is the error of a receiver that asks for a pause before the next try.
type delayed struct {
	error
	wait time.Duration
}

// Unwrap returns the error without its pause.
func (d *delayed) Unwrap() error { return d.error }

// askedWait returns the pause for which the receiver has asked, or 0.
func askedWait(err error) time.Duration {
	if d := (*delayed)(nil); errors.As(err, &d) {
		return d.wait
	}
	return 0
}

// retryAfter returns the pause of a header Retry-After, which is a number of seconds or a date, up to mostAskedWait.
// The result is 0 if the header is missing or wrong.
func retryAfter(header string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(header, 10, 31); err == nil {
		return min(time.Duration(n)*time.Second, mostAskedWait)
	}
	if at, err := http.ParseTime(header); err == nil {
		return min(max(at.Sub(now), 0), mostAskedWait)
	}
	return 0
}

// Close implements Target.
func (w *webhook) Close() { w.client.CloseIdleConnections() }
