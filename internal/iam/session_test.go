// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/model"
)

const most = 100

// begin begins a session of a parent that lasts an hour.
func begin(t *testing.T, s *Service, parent string) Account {
	t.Helper()
	a, err := s.Sessions().Begin(t.Context(), Account{Parent: parent, Expires: s.Now().Add(time.Hour)}, most)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func addAlice(t *testing.T, s *Service) {
	t.Helper()
	if err := s.Add(t.Context(), Account{AccessKey: "alice", Secret: "alicesecret", Role: RoleUserPlus}); err != nil {
		t.Fatal(err)
	}
}

func TestSessionsLastUntilTheyExpire(t *testing.T) {
	store := model.New()
	s := open(t, store)
	addAlice(t, s)
	now := time.Now()
	s.UseClock(func() time.Time { return now })
	a := begin(t, s, "alice")
	if !strings.HasPrefix(a.AccessKey, SessionPrefix) || len(a.AccessKey) != 20 || len(a.Secret) != 40 ||
		len(a.Token) != 64 ||
		a.Role != RoleUserPlus || a.User() != "alice" || !a.Derived() {
		t.Errorf("%+v", a)
	}
	again := open(t, store) // after a restart
	again.UseClock(func() time.Time { return now })
	for _, s := range []*Service{s, again} {
		got, err := s.Authentic(a.AccessKey, a.Token)
		if err != nil || got.Secret != a.Secret || !got.Expires.Equal(a.Expires) {
			t.Errorf("%+v %v", got, err)
		}
		for _, token := range []string{"", "wrong", a.Token + "x"} {
			if _, err := s.Authentic(a.AccessKey, token); !errors.Is(err, ErrWrongToken) || !errs.Is(err, errs.Permission) {
				t.Errorf("token %q: %v", token, err)
			}
		}
		if _, err := s.Authentic("alice", a.Token); !errors.Is(err, ErrWrongToken) {
			t.Errorf("a token with the keys of a user: %v", err)
		}
		if _, err := s.User(a.AccessKey); !errors.Is(err, ErrNoSuchAccount) {
			t.Errorf("a session is a user: %v", err)
		}
	}
	now = now.Add(time.Hour)
	for _, s := range []*Service{s, again, open(t, store)} {
		s.UseClock(func() time.Time { return now })
		if _, err := s.Get(a.AccessKey); !errors.Is(err, ErrExpired) || !errors.Is(err, ErrNoSuchAccount) {
			t.Errorf("%v", err)
		}
	}
	begin(t, s, "alice") // removes what has expired
	names, err := store.RecordNames(t.Context(), sessionKind)
	if err != nil || len(names) != 1 || s.Sessions().Len() != 1 {
		t.Errorf("%v %v, %d in memory", names, err, s.Sessions().Len())
	}
}

func TestSessionsEndWithTheirUser(t *testing.T) {
	store := model.New()
	s := open(t, store)
	addAlice(t, s)
	a := begin(t, s, "alice")
	fed := begin(t, s, "oidc:company:alice")
	secret := "another-secret"
	if err := s.Update(t.Context(), "alice", Change{Secret: &secret}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(a.AccessKey); !errors.Is(err, ErrNoSuchAccount) {
		t.Errorf("after a new secret: %v", err)
	}
	a = begin(t, s, "alice")
	role := RoleUser
	if err := s.Update(t.Context(), "alice", Change{Role: &role}); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get(a.AccessKey); err != nil || got.Role != RoleUser {
		t.Errorf("after a new role: %v %v", got, err)
	}
	if err := s.Remove(t.Context(), "alice"); err != nil {
		t.Fatal(err)
	}
	addAlice(t, s) // does not inherit the sessions
	for _, s := range []*Service{s, open(t, store)} {
		if _, err := s.Get(a.AccessKey); !errors.Is(err, ErrNoSuchAccount) {
			t.Errorf("after the removal: %v", err)
		}
		if _, err := s.Get(fed.AccessKey); err != nil {
			t.Errorf("the session of somebody else: %v", err)
		}
	}
	if all := s.Sessions().List(""); len(all) != 1 || all[0].Parent != "oidc:company:alice" || all[0].Issued.IsZero() {
		t.Errorf("the sessions are %v", all)
	}
	if n, err := s.Sessions().End(t.Context(), "alice", fed.AccessKey); n != 0 || !errors.Is(err, ErrNoSuchAccount) {
		t.Errorf("the session of somebody else was ended: %d %v", n, err)
	}
	if n, err := s.Sessions().End(t.Context(), "oidc:company:alice", ""); n != 1 || err != nil {
		t.Errorf("%d %v", n, err)
	}
	if _, err := s.Sessions().Begin(t.Context(), Account{Parent: "nobody", Expires: time.Now().Add(time.Hour)},
		most); !errors.Is(err, ErrNoSuchAccount) {
		t.Errorf("%v", err)
	}
	if _, err := s.Sessions().Begin(t.Context(), Account{Parent: a.AccessKey, Expires: time.Now().Add(time.Hour)},
		most); !errors.Is(err, ErrNoSuchAccount) {
		t.Errorf("a session of a session: %v", err)
	}
}

func TestSessionsOfRootEndWithItsSecret(t *testing.T) {
	store := model.New()
	a := begin(t, open(t, store), root.AccessKey)
	if got, err := open(t, store).Get(a.AccessKey); err != nil || got.Role != RoleAdmin {
		t.Errorf("%v %v", got, err)
	}
	other, err := Open(t.Context(), store, Account{AccessKey: root.AccessKey, Secret: "another-secret"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Get(a.AccessKey); !errors.Is(err, ErrExpired) {
		t.Errorf("%v", err)
	}
}

func TestSessionsAreLimited(t *testing.T) {
	s := open(t, model.New())
	addAlice(t, s)
	var mu sync.Mutex
	var wg sync.WaitGroup
	made := 0
	for range 40 {
		wg.Go(func() {
			_, err := s.Sessions().Begin(t.Context(), Account{Parent: "alice", Expires: time.Now().Add(time.Hour)}, most)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				made++
			} else if !errors.Is(err, ErrTooManySessions) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if made != most/4 {
		t.Errorf("one user has %d of %d sessions", made, most)
	}
	for i := range most - most/4 {
		if _, err := s.Sessions().Begin(t.Context(), Account{Parent: "oidc:a:" + string(rune('A'+i%8)),
			Expires: time.Now().Add(time.Hour)}, most); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Sessions().Begin(t.Context(), Account{Parent: "oidc:a:z", Expires: time.Now().Add(time.Hour)},
		most); !errors.Is(err, ErrTooManySessions) {
		t.Errorf("%v", err)
	}
}

func TestWrongSessionsLeaveNothing(t *testing.T) {
	store := model.New()
	s := open(t, store)
	addAlice(t, s)
	for name, a := range map[string]Account{
		"no parent":  {Expires: time.Now().Add(time.Hour)},
		"no end":     {Parent: "alice"},
		"expired":    {Parent: "alice", Expires: time.Now().Add(-time.Hour)},
		"no policy":  {Parent: "alice", Expires: time.Now().Add(time.Hour), SessionPolicy: "{}"},
		"long texts": {Parent: "alice", Expires: time.Now().Add(time.Hour), Description: strings.Repeat("a", 300)},
	} {
		if _, err := s.Sessions().Begin(t.Context(), a, most); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	full := open(t, failing{store})
	if _, err := full.Sessions().Begin(t.Context(), Account{Parent: "alice", Expires: time.Now().Add(time.Hour)},
		most); !errors.Is(err, object.ErrNoSpace) {
		t.Errorf("%v", err)
	}
	if names, err := store.RecordNames(t.Context(), sessionKind); err != nil ||
		len(names)+s.Sessions().Len()+full.Sessions().Len() != 0 {
		t.Errorf("%v %v", names, err)
	}
}

func FuzzSessionRecords(f *testing.F) {
	f.Add([]byte(`{"access_key":"ASIAAAAAAAAAAAAAAAAA","secret":"12345678","role":"user","parent":"alice","token":"t"}`))
	f.Add([]byte(`{"access_key":"ASIAAAAAAAAAAAAAAAAA","expires":7}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		store := model.New()
		if err := store.PutRecord(t.Context(), sessionKind, "ASIAAAAAAAAAAAAAAAAA", raw); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), store, root); err != nil && !errs.Is(err, errs.Corrupt) {
			t.Fatal(err)
		}
	})
}
