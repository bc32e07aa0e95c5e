// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/iam/document"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/s3api"
)

// Identities administers the policies, groups and service accounts of a store.
type Identities interface {
	// Policies lists all policies with the users and groups to which they are attached.
	Policies(ctx context.Context) ([]PolicyUse, error)
	// PutPolicy stores a policy, and replaces the policy of the same name. The result unknown lists actions of S3 in the
	// policy that no request to this server has. PutPolicy fails with kind Invalid if the policy cannot be understood.
	PutPolicy(ctx context.Context, name, text string) (unknown []string, err error)
	// RemovePolicy removes a policy. RemovePolicy fails with iam.ErrNoSuchPolicy, and with kind Invalid if the policy is
	// attached or built in.
	RemovePolicy(ctx context.Context, name string) error
	// Attach attaches policies to a user or a group, and reports whether something changed. Attach fails with
	// iam.ErrNoSuchPolicy, iam.ErrNoSuchAccount or iam.ErrNoSuchGroup.
	Attach(ctx context.Context, to iam.Holder, policies []string) (changed bool, err error)
	// Detach detaches policies from a user or a group, and reports whether something changed.
	Detach(ctx context.Context, from iam.Holder, policies []string) (changed bool, err error)
	// Groups lists all groups.
	Groups(ctx context.Context) ([]iam.Group, error)
	// AddMembers adds users to a group, makes the group if needed, and reports whether something changed. AddMembers fails
	// with iam.ErrNoSuchAccount.
	AddMembers(ctx context.Context, group string, users []string) (changed bool, err error)
	// RemoveMembers removes users from a group, and reports whether something changed. RemoveMembers fails with
	// iam.ErrNoSuchGroup.
	RemoveMembers(ctx context.Context, group string, users []string) (changed bool, err error)
	// RemoveGroup removes a group. RemoveGroup fails with iam.ErrNoSuchGroup.
	RemoveGroup(ctx context.Context, group string) error
	// Keys lists the service accounts of a user without their secrets. Keys fails with iam.ErrNoSuchAccount.
	Keys(ctx context.Context, user string) ([]Key, error)
	// AddKey adds a service account. AddKey fails with iam.ErrNoSuchAccount if its parent does not exist, and with
	// iam.ErrAccountExists if the access key is in use.
	AddKey(ctx context.Context, a iam.Account) error
	// UpdateKey changes a service account. UpdateKey fails with iam.ErrNoSuchAccount.
	UpdateKey(ctx context.Context, accessKey string, c iam.KeyChange) error
	// RemoveKey removes a service account. RemoveKey fails with iam.ErrNoSuchAccount.
	RemoveKey(ctx context.Context, accessKey string) error
	// Sessions lists the sessions of temporary keys that have not expired, without their secrets. If user is not empty,
	// Sessions lists those of one user, and fails with iam.ErrNoSuchAccount if the user does not exist.
	Sessions(ctx context.Context, user string) ([]Session, error)
	// EndSessions ends the sessions of a user durably, and returns how many there were. If accessKey is not empty,
	// EndSessions ends one session, and fails with iam.ErrNoSuchAccount if the user has no such session.
	EndSessions(ctx context.Context, user, accessKey string) (int, error)
	// TestPolicy tells whether a request would be allowed, and what decides. TestPolicy fails with iam.ErrNoSuchAccount or
	// object.ErrNoSuchBucket.
	TestPolicy(ctx context.Context, q Question) (Answer, error)
}

// Question asks whether an account may do something.
type Question = s3api.Question

// Answer is the decision on a Question, with its reason.
type Answer = s3api.Answer

// localIdentities administers a store that this process holds open.
type localIdentities struct {
	store    object.Store
	accounts *iam.Service
}

// PolicyUse describes a policy and where it is attached.
type PolicyUse struct {
	Name    string   `json:"name"`
	Text    string   `json:"text"`
	BuiltIn bool     `json:"built_in"`
	Users   []string `json:"users"`
	Groups  []string `json:"groups"`
}

// Key describes a service account without its secret.
type Key struct {
	AccessKey   string `json:"access_key"`
	User        string `json:"user"`
	Policy      string `json:"policy,omitempty"` // the JSON of the policy that limits the service account
	Description string `json:"description,omitempty"`
	// Expires is the time from which on the keys are refused; the zero time means never.
	Expires time.Time `json:"expires,omitzero"`
	Expired bool      `json:"expired,omitempty"`
}

// Policies implements Identities.
func (l localIdentities) Policies(context.Context) ([]PolicyUse, error) {
	out := []PolicyUse{}
	for _, p := range l.accounts.Policies() {
		u := PolicyUse{Name: p.Name, Text: p.Text, BuiltIn: p.BuiltIn}
		u.Users, u.Groups = l.accounts.AttachedTo(p.Name)
		out = append(out, u)
	}
	return out, nil
}

// PutPolicy implements Identities.
func (l localIdentities) PutPolicy(ctx context.Context, name, text string) ([]string, error) {
	if err := l.accounts.PutPolicy(ctx, name, []byte(text)); err != nil {
		return nil, err
	}
	p, err := document.Parse([]byte(text))
	if err != nil {
		return nil, err
	}
	return p.Unknown(s3api.KnownActions()), nil
}

// RemovePolicy implements Identities.
func (l localIdentities) RemovePolicy(ctx context.Context, name string) error {
	return l.accounts.RemovePolicy(ctx, name)
}

// Attach implements Identities.
func (l localIdentities) Attach(ctx context.Context, to iam.Holder, policies []string) (bool, error) {
	return l.accounts.Attach(ctx, to, policies...)
}

// Detach implements Identities.
func (l localIdentities) Detach(ctx context.Context, from iam.Holder, policies []string) (bool, error) {
	return l.accounts.Detach(ctx, from, policies...)
}

// Groups implements Identities.
func (l localIdentities) Groups(context.Context) ([]iam.Group, error) {
	return l.accounts.Groups(), nil
}

// AddMembers implements Identities.
func (l localIdentities) AddMembers(ctx context.Context, group string, users []string) (bool, error) {
	return l.accounts.AddMembers(ctx, group, users...)
}

// RemoveMembers implements Identities.
func (l localIdentities) RemoveMembers(ctx context.Context, group string, users []string) (bool, error) {
	return l.accounts.RemoveMembers(ctx, group, users...)
}

// RemoveGroup implements Identities.
func (l localIdentities) RemoveGroup(ctx context.Context, group string) error {
	return l.accounts.RemoveGroup(ctx, group)
}

// Keys implements Identities.
func (l localIdentities) Keys(_ context.Context, user string) ([]Key, error) {
	if _, err := l.accounts.User(user); err != nil {
		return nil, &errs.Error{Kind: errs.KindOf(err), Op: "list the service accounts of", Name: user, Err: err,
			Fix: "list the accounts with nebulaio user list"}
	}
	out, now := []Key{}, time.Now()
	for _, a := range l.accounts.Keys(user) {
		out = append(out, Key{AccessKey: a.AccessKey, User: a.Parent, Policy: a.SessionPolicy, Description: a.Description,
			Expires: a.Expires, Expired: a.Expired(now)})
	}
	return out, nil
}

// AddKey implements Identities.
func (l localIdentities) AddKey(ctx context.Context, a iam.Account) error {
	return l.accounts.AddKey(ctx, a)
}

// UpdateKey implements Identities.
func (l localIdentities) UpdateKey(ctx context.Context, accessKey string, c iam.KeyChange) error {
	return l.accounts.UpdateKey(ctx, accessKey, c)
}

// RemoveKey implements Identities.
func (l localIdentities) RemoveKey(ctx context.Context, accessKey string) error {
	return l.accounts.RemoveKey(ctx, accessKey)
}

// TestPolicy implements Identities.
func (l localIdentities) TestPolicy(ctx context.Context, q Question) (Answer, error) {
	return s3api.Explain(ctx, l.store, l.accounts, q)
}
