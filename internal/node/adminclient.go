// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
)

// maxAdminAnswer is the largest reply in bytes that is read from a running server.
const maxAdminAnswer = 64 << 20

// remote administers a store through the server that runs on it.
type remote struct {
	remoteIdentities
	dir  string
	http *http.Client
}

func newRemote(dir string) *remote {
	r := &remote{dir: dir, http: &http.Client{Transport: &http.Transport{
		DialContext:     func(ctx context.Context, _, _ string) (net.Conn, error) { return dialAdmin(ctx, dir) },
		MaxIdleConns:    1,
		MaxConnsPerHost: 2,
	}}}
	r.remoteIdentities = remoteIdentities{r}
	return r
}

// Users implements Admin.
func (r *remote) Users(ctx context.Context) ([]User, error) {
	var users []User
	return users, r.call(ctx, http.MethodGet, "/v1/users", nil, &users)
}

// AddUser implements Admin.
func (r *remote) AddUser(ctx context.Context, a iam.Account) error {
	return r.call(ctx, http.MethodPost, "/v1/users", a, nil)
}

// UpdateUser implements Admin.
func (r *remote) UpdateUser(ctx context.Context, accessKey string, c iam.Change) error {
	return r.call(ctx, http.MethodPatch, "/v1/users/"+url.PathEscape(accessKey),
		userChange{Secret: c.Secret, Role: c.Role}, nil)
}

// RemoveUser implements Admin.
func (r *remote) RemoveUser(ctx context.Context, accessKey string) error {
	return r.call(ctx, http.MethodDelete, "/v1/users/"+url.PathEscape(accessKey), nil, nil)
}

// Stats implements Admin.
func (r *remote) Stats(ctx context.Context) (Stats, error) {
	var s Stats
	return s, r.call(ctx, http.MethodGet, "/v1/stats", nil, &s)
}

// Door implements Admin.
func (r *remote) Door(ctx context.Context) (Door, error) {
	var d Door
	err := r.call(ctx, http.MethodGet, "/v1/gpudirect", nil, &d)
	return d, err
}

// Scrub implements Admin. Scrub asks the server to run the scrub, and receives its progress as a stream.
func (r *remote) Scrub(ctx context.Context, rate int64, progress func(ScrubProgress)) (ScrubReport, error) {
	return follow[ScrubProgress, ScrubReport](ctx, r, "scrub", "/v1/scrub", map[string]int64{"rate": rate}, progress)
}

// Running returns true, because the server has accepted a connection.
func (r *remote) Running() bool { return true }

// Close closes the connection to the server.
func (r *remote) Close() error {
	r.http.CloseIdleConnections()
	return nil
}

func (r *remote) send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var src io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, errs.Wrap("ask the server on", r.dir, err)
		}
		src = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://nebulaio"+path, src)
	if err != nil {
		return nil, errs.Wrap("ask the server on", r.dir, err)
	}
	resp, err := r.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, errs.Wrap("ask the server on", r.dir, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	var failed struct {
		Error *problem `json:"error"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAdminBody)).Decode(&failed); err != nil || failed.Error == nil {
		return nil, errs.New(errs.Other, "ask the server on", r.dir, "the answer was "+resp.Status)
	}
	return nil, failed.Error.err()
}

func (r *remote) call(ctx context.Context, method, path string, body, into any) error {
	resp, err := r.send(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if into == nil {
		return nil
	}
	return errs.Wrap("read the server's answer", path,
		json.NewDecoder(io.LimitReader(resp.Body, maxAdminAnswer)).Decode(into))
}
