// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam/document"
)

// mostKeys is the largest number of service accounts of one user, and maxDescription the largest length of a
// description.
const (
	mostKeys       = 1000
	maxDescription = 256
)

// NewAccessKey returns a random access key for a service account. No access key of a session begins as it does.
func NewAccessKey() string {
	var b [10]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the process instead
	return "NIOS" + base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b[:])
}

// Federated reports whether a parent is a person whom a login service has identified, and not a stored user. The name
// of such a parent contains a colon. Access keys contain no colon.
func Federated(parent string) bool { return strings.Contains(parent, ":") }

// derived returns a service account or a session with the role of its parent. The caller holds s.mu.
func (s *directory) derived(op, accessKey string) (Account, error) {
	a, ok := s.keys[accessKey]
	if !ok {
		return Account{}, missing(op, accessKey)
	}
	if !a.Expires.IsZero() && a.Expired(s.now()) {
		return Account{}, &errs.Error{Kind: errs.NotFound, Op: op, Name: strings.Clone(accessKey), Err: ErrExpired}
	}
	switch parent, stored := s.all[a.Parent]; {
	case stored:
		a.Role, a.Groups = parent.Role, parent.Groups
	case a.Parent == s.root.AccessKey:
		a.Role = s.root.Role
	case Federated(a.Parent):
		a.Role = RoleUser
	default:
		return Account{}, missing(op, accessKey)
	}
	return a, nil
}

// AddKey stores a new service account durably. The parent must be a user or root. AddKey fails with ErrNoSuchAccount if
// the parent does not exist, with ErrAccountExists if the access key is in use, and with kind Invalid if the session
// policy cannot be parsed.
func (s keyBook) AddKey(ctx context.Context, a Account) error {
	const op = "add service account"
	a.Role, a.Policies, a.Groups, a.Token, a.Claims, a.Issued = RoleUser, nil, nil, "", nil, time.Time{}
	if err := checkKey(op, a); err != nil {
		return err
	}
	if a.Expired(s.now()) {
		return errs.New(errs.Invalid, op, a.AccessKey,
			fmt.Sprintf("it ends at %s, expected a time in the future", a.Expires.UTC().Format(time.RFC3339)))
	}
	s.write.Lock()
	defer s.write.Unlock()
	if _, err := s.User(a.Parent); err != nil {
		return errs.Wrap(op, a.AccessKey, err)
	}
	if s.taken(a.AccessKey) {
		return &errs.Error{Kind: errs.Invalid, Op: op, Name: a.AccessKey, Err: ErrAccountExists}
	}
	if n := len(s.Keys(a.Parent)); n >= mostKeys {
		return errs.New(errs.Invalid, op, a.AccessKey,
			fmt.Sprintf("%s has %d service accounts, expected at most %d", a.Parent, n, mostKeys))
	}
	return s.putKey(ctx, a)
}

// KeyChange lists the fields of a service account that UpdateKey sets; a nil field is left unchanged. An empty
// SessionPolicy removes the limit, and the zero time removes the end.
type KeyChange struct {
	Secret        *string    `json:"secret,omitempty"`
	SessionPolicy *string    `json:"session_policy,omitempty"`
	Expires       *time.Time `json:"expires,omitempty"`
	Description   *string    `json:"description,omitempty"`
}

// UpdateKey changes a service account durably. UpdateKey also changes one that has expired. UpdateKey fails with
// ErrNoSuchAccount if there is none with this access key.
func (s keyBook) UpdateKey(ctx context.Context, accessKey string, c KeyChange) error {
	const op = "update service account"
	s.write.Lock()
	defer s.write.Unlock()
	a, err := s.key(op, accessKey)
	if err != nil {
		return err
	}
	if c.Secret != nil {
		a.Secret = strings.Clone(*c.Secret)
	}
	if c.SessionPolicy != nil {
		a.SessionPolicy = *c.SessionPolicy
	}
	if c.Expires != nil {
		a.Expires = *c.Expires
	}
	if c.Description != nil {
		a.Description = *c.Description
	}
	if err := checkKey(op, a); err != nil {
		return err
	}
	return s.putKey(ctx, a)
}

// RemoveKey removes a service account durably. RemoveKey fails with ErrNoSuchAccount if there is none with this access
// key.
func (s keyBook) RemoveKey(ctx context.Context, accessKey string) error {
	s.write.Lock()
	defer s.write.Unlock()
	a, err := s.key("remove service account", accessKey)
	if err != nil {
		return err
	}
	return s.dropKey(ctx, a.AccessKey)
}

// Keys returns the service accounts of a user, sorted by access key, including those that have expired.
func (s keyBook) Keys(parent string) []Account {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := []Account{}
	for _, a := range s.keys {
		if a.Parent == parent && a.Token == "" {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b Account) int { return strings.Compare(a.AccessKey, b.AccessKey) })
	return out
}

// key returns a service account even if it has expired.
func (s keyBook) key(op, accessKey string) (Account, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	a, ok := s.keys[accessKey]
	if !ok || a.Token != "" {
		return Account{}, missing(op, accessKey)
	}
	return a, nil
}

func (s keyBook) putKey(ctx context.Context, a Account) error {
	if err := s.putRecord(ctx, keyKind, a.AccessKey, a); err != nil {
		return err
	}
	s.mu.Lock()
	s.keys[a.AccessKey] = a
	s.mu.Unlock()
	s.changed()
	return nil
}

func (s keyBook) dropKey(ctx context.Context, accessKey string) error {
	if err := s.records.DeleteRecord(ctx, keyKind, accessKey); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.keys, accessKey)
	s.mu.Unlock()
	s.changed()
	return nil
}

// removeKeysOf removes the service accounts of a user.
func (s keyBook) removeKeysOf(ctx context.Context, parent string) error {
	for _, a := range s.Keys(parent) {
		if err := s.dropKey(ctx, a.AccessKey); err != nil {
			return err
		}
	}
	return nil
}

func (s keyBook) readKeys(ctx context.Context) error {
	return s.readRecords(ctx, keyKind, func(name string, raw []byte) error {
		var a Account
		if err := json.Unmarshal(raw, &a); err != nil {
			return errs.New(errs.Corrupt, "read service account", name, err.Error())
		}
		if err := checkKey("read service account", a); err != nil || a.AccessKey != name {
			return errs.New(errs.Corrupt, "read service account", name,
				fmt.Sprintf("the record is of %q: %v", a.AccessKey, err))
		}
		s.keys[name] = a
		return nil
	})
}

// checkKey returns an error of kind Invalid that describes the first invalid field of a service account.
func checkKey(op string, a Account) error {
	if err := a.Validate(); err != nil {
		return err
	}
	if a.Parent == "" {
		return errs.New(errs.Invalid, op, a.AccessKey, "it has no parent, expected the access key of a user")
	}
	if n := len(a.Description); n > maxDescription || !utf8.ValidString(a.Description) {
		return errs.New(errs.Invalid, op, a.AccessKey,
			fmt.Sprintf("the description has %d bytes, expected at most %d bytes of UTF-8", n, maxDescription))
	}
	if a.SessionPolicy == "" {
		return nil
	}
	if _, err := document.Parse([]byte(a.SessionPolicy)); err != nil {
		return errs.Wrap(op, a.AccessKey, err)
	}
	return nil
}
