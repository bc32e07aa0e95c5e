// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/iam"
)

// people are accounts in memory.
type people map[string]iam.Account

func (p people) Get(key string) (iam.Account, error) {
	a, ok := p[key]
	if !ok {
		return iam.Account{}, iam.ErrNoSuchAccount
	}
	return a, nil
}

// clock is a clock that a test moves.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func open() (*Table, people, *clock) {
	all := people{"alice": {AccessKey: "alice", Secret: "alice-secret", Role: iam.RoleUser}}
	k := &clock{at: time.Unix(1000, 0)}
	return New(all, k.now), all, k
}

func logIn(t *testing.T, s *Table) string {
	t.Helper()
	token, _, err := s.LogIn("alice", "alice-secret", "192.0.2.1")
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestASessionLastsWhileItIsUsed(t *testing.T) {
	s, _, k := open()
	token := logIn(t, s)
	for range 24 { // up to the longest lifetime
		k.pass(Idle - time.Second)
		if _, err := s.Find(token); err != nil {
			t.Fatalf("%v at %v", err, k.now())
		}
		if k.now().Sub(time.Unix(1000, 0)) > Lifetime-Idle {
			break
		}
	}
	k.pass(Lifetime)
	if _, err := s.Find(token); !errors.Is(err, ErrNone) {
		t.Errorf("%v after the longest lifetime", err)
	}
}

func TestLookingIsNoUse(t *testing.T) {
	s, _, k := open()
	token := logIn(t, s)
	for range 3 {
		k.pass(Idle / 3)
		if _, err := s.Look(token); err != nil && k.now().Before(time.Unix(1000, 0).Add(Idle)) {
			t.Fatal(err)
		}
	}
	if _, err := s.Look(token); !errors.Is(err, ErrNone) {
		t.Errorf("%v", err)
	}
}

func TestASessionEndsWithItsAccount(t *testing.T) {
	s, all, _ := open()
	for name, change := range map[string]func(){
		"a new secret": func() {
			all["alice"] = iam.Account{AccessKey: "alice", Secret: "another-secret",
				Role: iam.RoleUser}
		},
		"removed": func() { delete(all, "alice") },
	} {
		all["alice"] = iam.Account{AccessKey: "alice", Secret: "alice-secret", Role: iam.RoleUser}
		token := logIn(t, s)
		one, err := s.Find(token)
		if err != nil {
			t.Fatal(err)
		}
		change()
		s.Sweep()
		select {
		case <-one.Done:
		default:
			t.Errorf("%s: the session goes on", name)
		}
		if _, err := s.Find(token); !errors.Is(err, ErrNone) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestARoleChangesAtOnce(t *testing.T) {
	s, all, _ := open()
	token := logIn(t, s)
	all["alice"] = iam.Account{AccessKey: "alice", Secret: "alice-secret", Role: iam.RoleAdmin}
	if one, err := s.Find(token); err != nil || one.Account.Role != iam.RoleAdmin {
		t.Errorf("%v %v", one.Account, err)
	}
}

func TestTheOldestSessionMakesRoom(t *testing.T) {
	s, _, k := open()
	first := logIn(t, s)
	for range Most {
		k.pass(time.Millisecond)
		logIn(t, s)
	}
	if s.Len() != Most {
		t.Errorf("%d sessions", s.Len())
	}
	if _, err := s.Find(first); !errors.Is(err, ErrNone) {
		t.Errorf("%v", err)
	}
}

func TestWrongKeysAreCountedByAddressAndKey(t *testing.T) {
	s, _, k := open()
	fails := func(access, from string) error {
		_, _, err := s.LogIn(access, "wrong", from)
		return err
	}
	var many *TooMany
	for range perAddress {
		if err := fails("alice", "192.0.2.1"); !errors.Is(err, ErrKeys) {
			t.Fatal(err)
		}
	}
	if err := fails("bob", "192.0.2.1"); !errors.As(err, &many) || many.After != window {
		t.Errorf("%v", err)
	}
	if err := fails("alice", "192.0.2.2"); !errors.Is(err, ErrKeys) {
		t.Errorf("another address: %v", err)
	}
	k.pass(window)
	if _, _, err := s.LogIn("alice", "alice-secret", "192.0.2.1"); err != nil {
		t.Errorf("after the window: %v", err)
	}
	for i := range perKey {
		if err := fails("alice", fmt.Sprintf("198.51.100.%d", i)); !errors.Is(err, ErrKeys) {
			t.Fatalf("%d: %v", i, err)
		}
	}
	if _, _, err := s.LogIn("alice", "alice-secret", "203.0.113.1"); !errors.As(err, &many) {
		t.Errorf("many addresses: %v", err)
	}
}

func TestOneNetworkOfIPv6IsOneAddress(t *testing.T) {
	s, _, _ := open()
	var many *TooMany
	for i := range perAddress + 1 {
		_, _, err := s.LogIn("nobody", "wrong", fmt.Sprintf("2001:db8:0:1::%x", i))
		if late := i == perAddress; late != errors.As(err, &many) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

func TestParallelTriesAreNotMoreThanTheLimit(t *testing.T) {
	s, _, _ := open()
	var wg sync.WaitGroup
	var mu sync.Mutex
	compared := 0
	for range 4 * perAddress {
		wg.Go(func() {
			if _, _, err := s.LogIn("alice", "wrong", "192.0.2.1"); errors.Is(err, ErrKeys) {
				mu.Lock()
				defer mu.Unlock()
				compared++
			}
		})
	}
	wg.Wait()
	if compared != perAddress {
		t.Errorf("%d wrong keys were compared", compared)
	}
}

func TestTheGuardStaysSmall(t *testing.T) {
	g := newGuard(func() time.Time { return time.Unix(0, 0) })
	for i := range mostGuarded/2 + 50 { // two entries each
		if err := g.try(fmt.Sprint("key", i), fmt.Sprint("address", i)); err != nil {
			t.Fatal(err)
		}
	}
	if len(g.all) > mostGuarded {
		t.Errorf("%d entries", len(g.all))
	}
}
