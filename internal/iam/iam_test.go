// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/model"
)

var root = Account{AccessKey: "operator", Secret: "operatorsecret"}

func open(t *testing.T, r object.Records) *Service {
	t.Helper()
	s, err := Open(t.Context(), r, root)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAccountsLastAndAreFound(t *testing.T) {
	store := model.New()
	s := open(t, store)
	a := Account{AccessKey: "alice", Secret: "alicesecret", Role: RoleUser, UserID: 7}
	if err := s.Add(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if err := s.Add(t.Context(), a); !errors.Is(err, ErrAccountExists) {
		t.Errorf("twice: %v", err)
	}
	if err := s.Add(t.Context(), Account{AccessKey: root.AccessKey, Secret: "anothersecret",
		Role: RoleUser}); !errors.Is(err, ErrAccountExists) {
		t.Errorf("root's key: %v", err)
	}
	secret, role := "anothersecret", RoleAdmin
	if err := s.Update(t.Context(), "alice", Change{Secret: &secret, Role: &role}); err != nil {
		t.Fatal(err)
	}
	want := Account{AccessKey: "alice", Secret: secret, Role: RoleAdmin, UserID: 7}
	for _, s := range []*Service{s, open(t, store)} { // in memory, and after a restart
		if got, err := s.Get("alice"); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%#v %v", got, err)
		}
		if got, err := s.Get(root.AccessKey); err != nil || got.Role != RoleAdmin || got.Secret != root.Secret {
			t.Errorf("root: %#v %v", got, err)
		}
		if got := s.List(); len(got) != 1 || !reflect.DeepEqual(got[0], want) {
			t.Errorf("%v", got)
		}
	}
	if err := s.Remove(t.Context(), "alice"); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Service{s, open(t, store)} {
		if _, err := s.Get("alice"); !errors.Is(err, ErrNoSuchAccount) || !errs.Is(err, errs.NotFound) {
			t.Errorf("%v", err)
		}
	}
	if err := s.Remove(t.Context(), "alice"); !errors.Is(err, ErrNoSuchAccount) {
		t.Errorf("%v", err)
	}
	if err := s.Update(t.Context(), "alice", Change{}); !errors.Is(err, ErrNoSuchAccount) {
		t.Errorf("%v", err)
	}
}

func TestRootStays(t *testing.T) {
	s := open(t, model.New())
	secret := "anothersecret"
	if err := s.Update(t.Context(), root.AccessKey, Change{Secret: &secret}); !errs.Is(err, errs.Invalid) {
		t.Errorf("%v", err)
	}
	if err := s.Remove(t.Context(), root.AccessKey); !errs.Is(err, errs.Invalid) {
		t.Errorf("%v", err)
	}
	if _, err := Open(t.Context(), model.New(), Account{AccessKey: "operator", Secret: "short"}); !errs.Is(err,
		errs.Invalid) {
		t.Errorf("%v", err)
	}
}

func TestBadAccountsAreNamed(t *testing.T) {
	good := Account{AccessKey: "alice", Secret: "alicesecret", Role: RoleUser}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Account){
		"2 characters":    func(a *Account) { a.AccessKey = "al" },
		"129 characters":  func(a *Account) { a.AccessKey = strings.Repeat("a", 129) },
		"'/' at 2":        func(a *Account) { a.AccessKey = "al/ce" },
		"',' at 2":        func(a *Account) { a.AccessKey = "al,ce" },
		"7 characters":    func(a *Account) { a.Secret = "1234567" },
		"257 characters":  func(a *Account) { a.Secret = strings.Repeat("s", 257) },
		"at 8":            func(a *Account) { a.Secret = "12345678 9" },
		`role is "owner"`: func(a *Account) { a.Role = "owner" },
	} {
		a := good
		change(&a)
		if err := a.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %q", err, want)
		}
	}
}

func TestSecretsAreNotShown(t *testing.T) {
	a := Account{AccessKey: "alice", Secret: "alicesecret", Role: RoleUser}
	for _, text := range []string{fmt.Sprint(a), fmt.Sprintf("%v %+v %#v %s", a, a, a, a)} {
		if strings.Contains(text, a.Secret) {
			t.Error(text)
		}
	}
	if a, b := NewSecret(), NewSecret(); a == b || len(a) != 32 ||
		(Account{AccessKey: "abc", Secret: a, Role: RoleUser}).Validate() != nil {
		t.Errorf("%q %q", a, b)
	}
}

func TestOnlyOneOfManyMakesAnAccount(t *testing.T) {
	s := open(t, model.New())
	var wg sync.WaitGroup
	var mu sync.Mutex
	made := 0
	for range 50 {
		wg.Go(func() {
			err := s.Add(context.Background(), Account{AccessKey: "alice", Secret: NewSecret(), Role: RoleUser})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				made++
			} else if !errors.Is(err, ErrAccountExists) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if made != 1 {
		t.Errorf("%d made it", made)
	}
}

// failing is records that take nothing.
type failing struct{ object.Records }

func (failing) PutRecord(context.Context, string, string, []byte) error { return object.ErrNoSpace }
func (failing) DeleteRecord(context.Context, string, string) error      { return object.ErrReadOnly }

func TestMemoryFollowsTheRecords(t *testing.T) {
	store := model.New()
	if err := open(t, store).Add(t.Context(), Account{AccessKey: "alice", Secret: "alicesecret",
		Role: RoleUser}); err != nil {
		t.Fatal(err)
	}
	s := open(t, failing{store})
	if err := s.Add(t.Context(), Account{AccessKey: "bob", Secret: "bobssecret", Role: RoleUser}); !errors.Is(err,
		object.ErrNoSpace) {
		t.Errorf("%v", err)
	}
	if _, err := s.Get("bob"); err == nil {
		t.Error("bob is there though nothing was written")
	}
	if err := s.Remove(t.Context(), "alice"); !errors.Is(err, object.ErrReadOnly) {
		t.Errorf("%v", err)
	}
	if _, err := s.Get("alice"); err != nil {
		t.Errorf("alice is gone though nothing was removed: %v", err)
	}
}

func FuzzRecordsAreNotTrusted(f *testing.F) {
	good, _ := json.Marshal(Account{AccessKey: "alice", Secret: "alicesecret", Role: RoleUser})
	f.Add("alice", good)
	f.Add("alice", []byte(`{"access_key":"bob"}`))
	f.Add("alice", []byte(`{`))
	f.Fuzz(func(t *testing.T, name string, raw []byte) {
		a, err := decode(name, raw)
		if err == nil && (a.AccessKey != name || a.Validate() != nil) {
			t.Fatalf("%q %#v", name, a)
		}
		if err != nil && !errs.Is(err, errs.Corrupt) {
			t.Fatalf("%v", err)
		}
	})
}
