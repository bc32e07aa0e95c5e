// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"net/http"
	"net/url"

	"github.com/nebulaio/nebulaio/internal/iam"
)

// Requests and replies of Identities.
type (
	policyPut struct {
		Name string `json:"name"`
		Text string `json:"text"`
	}
	policyNotes struct {
		Unknown []string `json:"unknown"`
	}
	attachment struct {
		iam.Holder
		Policies []string `json:"policies"`
	}
	membership struct {
		Users []string `json:"users"`
	}
)

// on serves a request with a JSON body at a pattern of the administration socket.
func on[In any](mux *http.ServeMux, pattern string, f func(r *http.Request, in In) (any, error)) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		var in In
		if err := decodeBody(w, r, &in); err != nil {
			answer(w, nil, err)
			return
		}
		out, err := f(r, in)
		answer(w, out, err)
	})
}

// at serves a request without a body at a pattern of the administration socket.
func at(mux *http.ServeMux, pattern string, f func(r *http.Request) (any, error)) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		out, err := f(r)
		answer(w, out, err)
	})
}

// addIdentities serves policies, groups and service accounts.
func addIdentities(mux *http.ServeMux, a Identities) {
	at(mux, "GET /v1/policies", func(r *http.Request) (any, error) { return a.Policies(r.Context()) })
	on(mux, "POST /v1/policies", func(r *http.Request, in policyPut) (any, error) {
		unknown, err := a.PutPolicy(r.Context(), in.Name, in.Text)
		return policyNotes{unknown}, err
	})
	at(mux, "DELETE /v1/policies/{name}", func(r *http.Request) (any, error) {
		return struct{}{}, a.RemovePolicy(r.Context(), r.PathValue("name"))
	})
	on(mux, "POST /v1/attach", func(r *http.Request, in attachment) (any, error) {
		changed, err := a.Attach(r.Context(), in.Holder, in.Policies)
		return grantChange{changed}, err
	})
	on(mux, "POST /v1/detach", func(r *http.Request, in attachment) (any, error) {
		changed, err := a.Detach(r.Context(), in.Holder, in.Policies)
		return grantChange{changed}, err
	})
	on(mux, "POST /v1/policy-test", func(r *http.Request, in Question) (any, error) {
		return a.TestPolicy(r.Context(), in)
	})
	at(mux, "GET /v1/groups", func(r *http.Request) (any, error) { return a.Groups(r.Context()) })
	on(mux, "POST /v1/groups/{name}/join", func(r *http.Request, in membership) (any, error) {
		changed, err := a.AddMembers(r.Context(), r.PathValue("name"), in.Users)
		return grantChange{changed}, err
	})
	on(mux, "POST /v1/groups/{name}/leave", func(r *http.Request, in membership) (any, error) {
		changed, err := a.RemoveMembers(r.Context(), r.PathValue("name"), in.Users)
		return grantChange{changed}, err
	})
	at(mux, "DELETE /v1/groups/{name}", func(r *http.Request) (any, error) {
		return struct{}{}, a.RemoveGroup(r.Context(), r.PathValue("name"))
	})
	addSessions(mux, a)
	at(mux, "GET /v1/users/{key}/keys", func(r *http.Request) (any, error) {
		return a.Keys(r.Context(), r.PathValue("key"))
	})
	on(mux, "POST /v1/keys", func(r *http.Request, in iam.Account) (any, error) {
		return struct{}{}, a.AddKey(r.Context(), in)
	})
	on(mux, "PATCH /v1/keys/{key}", func(r *http.Request, in iam.KeyChange) (any, error) {
		return struct{}{}, a.UpdateKey(r.Context(), r.PathValue("key"), in)
	})
	at(mux, "DELETE /v1/keys/{key}", func(r *http.Request) (any, error) {
		return struct{}{}, a.RemoveKey(r.Context(), r.PathValue("key"))
	})
}

// remoteIdentities administers a store through the server that runs on it.
type remoteIdentities struct{ of *remote }

// Policies implements Identities.
func (r remoteIdentities) Policies(ctx context.Context) ([]PolicyUse, error) {
	var out []PolicyUse
	err := r.of.call(ctx, http.MethodGet, "/v1/policies", nil, &out)
	return out, err
}

// PutPolicy implements Identities.
func (r remoteIdentities) PutPolicy(ctx context.Context, name, text string) ([]string, error) {
	var notes policyNotes
	err := r.of.call(ctx, http.MethodPost, "/v1/policies", policyPut{name, text}, &notes)
	return notes.Unknown, err
}

// RemovePolicy implements Identities.
func (r remoteIdentities) RemovePolicy(ctx context.Context, name string) error {
	return r.of.call(ctx, http.MethodDelete, "/v1/policies/"+url.PathEscape(name), nil, nil)
}

// Attach implements Identities.
func (r remoteIdentities) Attach(ctx context.Context, to iam.Holder, policies []string) (bool, error) {
	return r.change(ctx, "/v1/attach", attachment{to, policies})
}

// Detach implements Identities.
func (r remoteIdentities) Detach(ctx context.Context, from iam.Holder, policies []string) (bool, error) {
	return r.change(ctx, "/v1/detach", attachment{from, policies})
}

// change posts a request that may change something, and returns whether it did.
func (r remoteIdentities) change(ctx context.Context, path string, body any) (bool, error) {
	var c grantChange
	err := r.of.call(ctx, http.MethodPost, path, body, &c)
	return c.Changed, err
}

// Groups implements Identities.
func (r remoteIdentities) Groups(ctx context.Context) ([]iam.Group, error) {
	var out []iam.Group
	err := r.of.call(ctx, http.MethodGet, "/v1/groups", nil, &out)
	return out, err
}

// AddMembers implements Identities.
func (r remoteIdentities) AddMembers(ctx context.Context, group string, users []string) (bool, error) {
	return r.change(ctx, "/v1/groups/"+url.PathEscape(group)+"/join", membership{users})
}

// RemoveMembers implements Identities.
func (r remoteIdentities) RemoveMembers(ctx context.Context, group string, users []string) (bool, error) {
	return r.change(ctx, "/v1/groups/"+url.PathEscape(group)+"/leave", membership{users})
}

// RemoveGroup implements Identities.
func (r remoteIdentities) RemoveGroup(ctx context.Context, group string) error {
	return r.of.call(ctx, http.MethodDelete, "/v1/groups/"+url.PathEscape(group), nil, nil)
}

// Keys implements Identities.
func (r remoteIdentities) Keys(ctx context.Context, user string) ([]Key, error) {
	var out []Key
	err := r.of.call(ctx, http.MethodGet, "/v1/users/"+url.PathEscape(user)+"/keys", nil, &out)
	return out, err
}

// AddKey implements Identities.
func (r remoteIdentities) AddKey(ctx context.Context, a iam.Account) error {
	return r.of.call(ctx, http.MethodPost, "/v1/keys", a, nil)
}

// UpdateKey implements Identities.
func (r remoteIdentities) UpdateKey(ctx context.Context, accessKey string, c iam.KeyChange) error {
	return r.of.call(ctx, http.MethodPatch, "/v1/keys/"+url.PathEscape(accessKey), c, nil)
}

// RemoveKey implements Identities.
func (r remoteIdentities) RemoveKey(ctx context.Context, accessKey string) error {
	return r.of.call(ctx, http.MethodDelete, "/v1/keys/"+url.PathEscape(accessKey), nil, nil)
}

// TestPolicy implements Identities.
func (r remoteIdentities) TestPolicy(ctx context.Context, q Question) (Answer, error) {
	var out Answer
	err := r.of.call(ctx, http.MethodPost, "/v1/policy-test", q, &out)
	return out, err
}
