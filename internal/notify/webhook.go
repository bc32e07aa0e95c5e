// SPDX-License-Identifier: Apache-2.0

package notify

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// webhook posts each message to a URL.
type webhook struct {
	s      Settings
	client *http.Client
}

func newWebhook(s Settings, conf *tls.Config) *webhook {
	return &webhook{s: s, client: &http.Client{Timeout: s.Timeout, Transport: &http.Transport{TLSClientConfig: conf,
		Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 1, ForceAttemptHTTP2: true}}}
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
		return errs.Wrap(op, w.s.Name, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Nebulaio-Event-Id", m.ID)
	if w.s.Secret != "" {
		req.Header.Set("Authorization", w.s.Secret)
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return errs.Wrap(op, w.s.Name, err)
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	_ = resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return errs.New(errs.IO, op, w.s.Name, fmt.Sprintf("%s replied with status %s, expected 2xx", w.s.Address[0],
			resp.Status))
	}
	return nil
}

// Close implements Target.
func (w *webhook) Close() { w.client.CloseIdleConnections() }
