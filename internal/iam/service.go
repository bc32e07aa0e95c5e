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

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// recordKind is the kind of the store's records that hold accounts.
const recordKind = "account"

// Service holds the accounts of one store, in the store's records and in memory. All methods of Service are safe for
// concurrent use.
type Service struct {
	records object.Records
	root    Account

	write sync.Mutex // one change at a time, so that memory follows the records
	mu    sync.RWMutex
	all   map[string]Account
}

// Open reads the accounts of a store. The parameter root is the operator's account, which always has the role admin.
// The root account is not stored in the records and cannot be changed.
func Open(ctx context.Context, records object.Records, root Account) (*Service, error) {
	root.Role = RoleAdmin
	if err := root.Validate(); err != nil {
		return nil, err
	}
	names, err := records.RecordNames(ctx, recordKind)
	if err != nil {
		return nil, err
	}
	s := &Service{records: records, root: root, all: make(map[string]Account, len(names))}
	for _, name := range names {
		raw, err := records.Record(ctx, recordKind, name)
		if err != nil {
			return nil, err
		}
		a, err := decode(name, raw)
		if err != nil {
			return nil, err
		}
		s.all[name] = a
	}
	return s, nil
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
func (s *Service) Root() Account { return s.root }

// Get returns the account with this access key, or ErrNoSuchAccount. Get also finds the root account. Get does no I/O
// and keeps no reference to accessKey.
func (s *Service) Get(accessKey string) (Account, error) {
	if accessKey == s.root.AccessKey {
		return s.root, nil
	}
	s.mu.RLock()
	a, ok := s.all[accessKey]
	s.mu.RUnlock()
	if !ok {
		return Account{}, missing("get account", accessKey)
	}
	return a, nil
}

// List returns all accounts except root, sorted by access key.
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
	s.write.Lock()
	defer s.write.Unlock()
	if _, err := s.Get(a.AccessKey); err == nil {
		return &errs.Error{Kind: errs.Invalid, Op: "add account", Name: a.AccessKey, Err: ErrAccountExists}
	}
	return s.put(ctx, a)
}

// Update changes an account durably. Update fails with ErrNoSuchAccount if the account does not exist, and with kind
// Invalid if it is root.
func (s *Service) Update(ctx context.Context, accessKey string, c Change) error {
	s.write.Lock()
	defer s.write.Unlock()
	if err := s.notRoot("update account", accessKey); err != nil {
		return err
	}
	a, err := s.Get(accessKey)
	if err != nil {
		return err
	}
	a = c.apply(a)
	a.Secret = strings.Clone(a.Secret)
	if err := a.Validate(); err != nil {
		return err
	}
	return s.put(ctx, a)
}

// Remove removes an account durably. Remove does not delete the buckets of the removed account. Remove fails with
// ErrNoSuchAccount if the account does not exist, and with kind Invalid if it is root.
func (s *Service) Remove(ctx context.Context, accessKey string) error {
	s.write.Lock()
	defer s.write.Unlock()
	if err := s.notRoot("remove account", accessKey); err != nil {
		return err
	}
	a, err := s.Get(accessKey)
	if err != nil {
		return err
	}
	if err := s.records.DeleteRecord(ctx, recordKind, a.AccessKey); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.all, a.AccessKey)
	s.mu.Unlock()
	return nil
}

func (s *Service) put(ctx context.Context, a Account) error {
	raw, err := json.Marshal(a)
	if err != nil {
		return errs.New(errs.Other, "write account", a.AccessKey, err.Error())
	}
	if err := s.records.PutRecord(ctx, recordKind, a.AccessKey, raw); err != nil {
		return err
	}
	s.mu.Lock()
	s.all[a.AccessKey] = a
	s.mu.Unlock()
	return nil
}

func (s *Service) notRoot(op, accessKey string) error {
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
