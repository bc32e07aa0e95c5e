// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// Kinds of the store's records.
const (
	recordKind = "account" // users
	keyKind    = "service-account"
	groupKind  = "group"
	policyKind = "policy"
)

// Service holds the accounts of one store, in the store's records and in memory. The parts of Service share one
// directory. All methods of Service are safe for concurrent use.
type Service struct {
	*directory
	groupBook
	policyBook
	keyBook
}

// Parts of a Service.
type (
	groupBook  struct{ *directory } // groups
	policyBook struct{ *directory } // policies, and where they are attached
	keyBook    struct{ *directory } // service accounts
)

// directory holds what the parts of a Service share.
type directory struct {
	records object.Records
	root    Account
	now     func() time.Time
	// generation counts the changes, so that callers know when to decide anew.
	generation atomic.Uint64
	subjects   sync.Map // holds *Subject by access key

	swept time.Time // when expired sessions were removed last; guarded by write

	write sync.Mutex // one change at a time, so that memory follows the records
	mu    sync.RWMutex
	all   map[string]Account // users by access key
	// keys holds service accounts and sessions by access key.
	keys     map[string]Account
	groups   map[string]Group
	policies map[string]Policy
}

// Open reads the accounts of a store. The parameter root is the operator's account, which always has the role admin.
// The root account is not stored in the records and cannot be changed.
func Open(ctx context.Context, records object.Records, root Account) (*Service, error) {
	root.Role = RoleAdmin
	if err := root.Validate(); err != nil {
		return nil, err
	}
	d := &directory{records: records, root: root, now: time.Now, all: map[string]Account{}, keys: map[string]Account{},
		groups: map[string]Group{}, policies: builtIn()}
	s := &Service{directory: d, groupBook: groupBook{d}, policyBook: policyBook{d}, keyBook: keyBook{d}}
	for _, read := range []func(context.Context) error{s.readUsers, s.readKeys, s.Sessions().read, s.readGroups,
		s.readPolicies} {
		if err := read(ctx); err != nil {
			return nil, err
		}
	}
	s.fillGroups()
	return s, nil
}

// readRecords calls f with each record of a kind.
func (s *directory) readRecords(ctx context.Context, kind string, f func(name string, raw []byte) error) error {
	names, err := s.records.RecordNames(ctx, kind)
	if err != nil {
		return err
	}
	for _, name := range names {
		raw, err := s.records.Record(ctx, kind, name)
		if err != nil {
			return err
		}
		if err := f(name, raw); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) readUsers(ctx context.Context) error {
	return s.readRecords(ctx, recordKind, func(name string, raw []byte) error {
		a, err := decode(name, raw)
		if err != nil {
			return err
		}
		s.all[name] = a
		return nil
	})
}

func decode(name string, raw []byte) (Account, error) {
	var a Account
	if err := json.Unmarshal(raw, &a); err != nil {
		return a, errs.New(errs.Corrupt, "read account", name, err.Error())
	}
	if a.AccessKey != name {
		return a, errs.New(errs.Corrupt, "read account", name, fmt.Sprintf("the record is of %q", a.AccessKey))
	}
	if err := a.Validate(); err != nil {
		return a, errs.New(errs.Corrupt, "read account", name, err.Error())
	}
	return a, nil
}

// Root returns the operator's account.
func (s *directory) Root() Account { return s.root }

// Generation returns a number that grows with each change of a user, a group, a policy or a service account. A decision
// that was made in an earlier generation may be wrong now.
func (s *directory) Generation() uint64 { return s.generation.Load() }

// changed lets all callers decide anew.
func (s *directory) changed() {
	s.generation.Add(1)
	s.subjects.Clear()
}

// Get returns the account with this access key, or ErrNoSuchAccount. Get also finds the root account, service accounts
// and sessions. A service account and a session have the role of their parent. Get fails with ErrExpired if the keys
// have expired, and with ErrNoSuchAccount if the parent was removed. Get does no I/O and keeps no reference to
// accessKey.
func (s *directory) Get(accessKey string) (Account, error) {
	if accessKey == s.root.AccessKey {
		return s.root, nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if a, ok := s.all[accessKey]; ok {
		return a, nil
	}
	return s.derived("get account", accessKey)
}

// User returns the user with this access key, or ErrNoSuchAccount. User finds the root account, but no service accounts
// and no sessions.
func (s *directory) User(accessKey string) (Account, error) {
	a, err := s.Get(accessKey)
	if err == nil && a.Derived() {
		return Account{}, missing("get user", accessKey)
	}
	return a, err
}

// List returns all users except root, sorted by access key.
func (s *Service) List() []Account {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := slices.Collect(maps.Values(s.all))
	slices.SortFunc(out, func(a, b Account) int { return strings.Compare(a.AccessKey, b.AccessKey) })
	return out
}

// Add stores a new account durably. Add fails with ErrAccountExists if an account, including root, already has the
// access key.
func (s *Service) Add(ctx context.Context, a Account) error {
	a.AccessKey, a.Secret = strings.Clone(a.AccessKey), strings.Clone(a.Secret)
	if err := a.Validate(); err != nil {
		return err
	}
	if a.Derived() || a.SessionPolicy != "" || a.Token != "" || !a.Expires.IsZero() || len(a.Groups) > 0 {
		return errs.New(errs.Invalid, "add account", a.AccessKey,
			"a user has no parent, session policy, token, end or groups")
	}
	s.write.Lock()
	defer s.write.Unlock()
	if err := s.havePolicies("add account", a.AccessKey, a.Policies); err != nil {
		return err
	}
	if s.taken(a.AccessKey) {
		return &errs.Error{Kind: errs.Invalid, Op: "add account", Name: a.AccessKey, Err: ErrAccountExists}
	}
	return s.put(ctx, a)
}

// Update changes an account durably. A new secret ends the sessions of the account. Update fails with ErrNoSuchAccount
// if the account does not exist, and with kind Invalid if it is root.
func (s *Service) Update(ctx context.Context, accessKey string, c Change) error {
	s.write.Lock()
	defer s.write.Unlock()
	if err := s.notRoot("update account", accessKey); err != nil {
		return err
	}
	a, err := s.User(accessKey)
	if err != nil {
		return err
	}
	a = c.apply(a)
	a.Secret = strings.Clone(a.Secret)
	if err := a.Validate(); err != nil {
		return err
	}
	if c.Secret != nil {
		// Who changes a secret wants to lock out everybody who knew the old one.
		if _, err := s.Sessions().endOf(ctx, a.AccessKey); err != nil {
			return err
		}
	}
	return s.put(ctx, a)
}

// Remove removes a user durably, with its service accounts, its sessions and its memberships in groups. Remove does not
// delete the buckets of the removed user. Remove fails with ErrNoSuchAccount if the user does not exist, and with kind
// Invalid if it is root.
func (s *Service) Remove(ctx context.Context, accessKey string) error {
	s.write.Lock()
	defer s.write.Unlock()
	if err := s.notRoot("remove account", accessKey); err != nil {
		return err
	}
	a, err := s.User(accessKey)
	if err != nil {
		return err
	}
	// The user goes last: if a removal fails, the user is still there and can be removed again.
	if err := s.removeKeysOf(ctx, a.AccessKey); err != nil {
		return err
	}
	if _, err := s.Sessions().endOf(ctx, a.AccessKey); err != nil {
		return err
	}
	if err := s.leaveGroups(ctx, a.AccessKey); err != nil {
		return err
	}
	if err := s.records.DeleteRecord(ctx, recordKind, a.AccessKey); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.all, a.AccessKey)
	s.mu.Unlock()
	s.changed()
	return nil
}

func (s *directory) put(ctx context.Context, a Account) error {
	stored := a
	stored.Groups = nil // the groups hold their members
	if err := s.putRecord(ctx, recordKind, a.AccessKey, stored); err != nil {
		return err
	}
	s.mu.Lock()
	s.all[a.AccessKey] = a
	s.mu.Unlock()
	s.changed()
	return nil
}

func (s *directory) putRecord(ctx context.Context, kind, name string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return errs.New(errs.Other, "write "+kind, name, err.Error())
	}
	return s.records.PutRecord(ctx, kind, name, raw)
}

// taken reports whether an account, including root, has an access key. Keys that have expired are taken, too.
func (s *directory) taken(accessKey string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, user := s.all[accessKey]
	_, key := s.keys[accessKey]
	return user || key || accessKey == s.root.AccessKey
}

func (s *directory) notRoot(op, accessKey string) error {
	if accessKey != s.root.AccessKey {
		return nil
	}
	return errs.New(errs.Invalid, op, accessKey, "this is the operator's account, which is set where the server is "+
		"started")
}

func missing(op, accessKey string) error {
	name := strings.Clone(accessKey)
	return &errs.Error{Kind: errs.NotFound, Op: op, Name: name, Err: ErrNoSuchAccount}
}
