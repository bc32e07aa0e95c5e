// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/s3api/sts"
)

// Session describes temporary keys without their secret and without their token.
type Session struct {
	AccessKey string `json:"access_key"`
	// User is the user of the session, or oidc:PROVIDER:NAME for a person whom a login service has identified.
	User   string `json:"user"`
	Source string `json:"source"` // AssumeRole or AssumeRoleWithWebIdentity
	Role   string `json:"role,omitempty"`
	Name   string `json:"name,omitempty"` // RoleSessionName of the request
	// Issued is the time when the session began; zero for a session of an earlier release.
	Issued        time.Time `json:"issued,omitzero"`
	Expires       time.Time `json:"expires"`
	SessionPolicy bool      `json:"session_policy"` // whether a session policy narrows the rights of the keys
}

// sessionEnd is the request body of EndSessions.
type sessionEnd struct {
	User      string `json:"user"`
	AccessKey string `json:"access_key,omitempty"`
}

// sessionsEnded is the reply to EndSessions.
type sessionsEnded struct {
	Ended int `json:"ended"`
}

// Sessions implements Identities.
func (l localIdentities) Sessions(_ context.Context, user string) ([]Session, error) {
	out := []Session{}
	for _, a := range l.accounts.Sessions().List(user) {
		s := Session{AccessKey: a.AccessKey, User: a.Parent, Source: sts.AssumeRole, Issued: a.Issued, Expires: a.Expires,
			SessionPolicy: a.SessionPolicy != ""}
		if iam.Federated(a.Parent) {
			s.Source = sts.AssumeRoleWithWebIdentity
		}
		s.Role, s.Name, _ = strings.Cut(a.Description, "/")
		out = append(out, s)
	}
	if len(out) > 0 || user == "" {
		return out, nil
	}
	return out, l.hasUser("list the sessions of", user)
}

// EndSessions implements Identities.
func (l localIdentities) EndSessions(ctx context.Context, user, accessKey string) (int, error) {
	const op = "end the sessions of"
	n, err := l.accounts.Sessions().End(ctx, user, accessKey)
	switch {
	case err != nil && accessKey != "":
		return n, &errs.Error{Kind: errs.KindOf(err), Op: op, Name: user, Err: err,
			Fix: "list the sessions with nebulaio user session list"}
	case err != nil:
		return n, errs.Wrap(op, user, err)
	case n == 0:
		return n, l.hasUser(op, user)
	}
	return n, nil
}

// hasUser returns an error if there is no such user. A person whom a login service has identified is no stored user.
func (l localIdentities) hasUser(op, user string) error {
	if iam.Federated(user) {
		return nil
	}
	if _, err := l.accounts.User(user); err != nil {
		return &errs.Error{Kind: errs.KindOf(err), Op: op, Name: user, Err: err,
			Fix: "list the accounts with nebulaio user list"}
	}
	return nil
}

// addSessions serves sessions over the administration socket.
func addSessions(mux *http.ServeMux, a Identities) {
	at(mux, "GET /v1/sessions", func(r *http.Request) (any, error) {
		return a.Sessions(r.Context(), r.URL.Query().Get("user"))
	})
	on(mux, "POST /v1/sessions/end", func(r *http.Request, in sessionEnd) (any, error) {
		n, err := a.EndSessions(r.Context(), in.User, in.AccessKey)
		return sessionsEnded{n}, err
	})
}

// Sessions implements Identities.
func (r remoteIdentities) Sessions(ctx context.Context, user string) ([]Session, error) {
	var out []Session
	err := r.of.call(ctx, http.MethodGet, "/v1/sessions?"+url.Values{"user": {user}}.Encode(), nil, &out)
	return out, err
}

// EndSessions implements Identities.
func (r remoteIdentities) EndSessions(ctx context.Context, user, accessKey string) (int, error) {
	var out sessionsEnded
	err := r.of.call(ctx, http.MethodPost, "/v1/sessions/end", sessionEnd{user, accessKey}, &out)
	return out.Ended, err
}
