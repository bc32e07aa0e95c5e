// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam/document"
	"github.com/nebulaio/nebulaio/internal/store/model"
)

const readLogs = `{"Version":"2012-10-17","Statement":[{"Sid":"Logs","Effect":"Allow","Action":"s3:GetObject",` +
	`"Resource":"arn:aws:s3:::logs/*"}]}`

var getLog = document.Request{Action: "s3:GetObject", Resource: "arn:aws:s3:::logs/a"}

func addUser(t *testing.T, s *Service, name string) {
	t.Helper()
	if err := s.Add(t.Context(), Account{AccessKey: name, Secret: "long-enough", Role: RoleUser}); err != nil {
		t.Fatal(err)
	}
}

func verdictOf(t *testing.T, s *Service, accessKey string) Verdict {
	t.Helper()
	x, err := s.Subject(accessKey)
	if err != nil {
		t.Fatal(err)
	}
	return x.Decide(&getLog)
}

// TestGroupsAndPoliciesLast makes them, opens the store again, and finds the same decisions.
func TestGroupsAndPoliciesLast(t *testing.T) {
	store := model.New()
	s := open(t, store)
	ctx := t.Context()
	addUser(t, s, "alice")
	addUser(t, s, "bob")
	if err := s.PutPolicy(ctx, "logs", []byte(readLogs)); err != nil {
		t.Fatal(err)
	}
	if changed, err := s.AddMembers(ctx, "ops", "bob", "alice", "bob"); err != nil || !changed {
		t.Fatalf("%v %v", changed, err)
	}
	if changed, err := s.AddMembers(ctx, "ops", "alice"); err != nil || changed {
		t.Errorf("twice: %v %v", changed, err)
	}
	if changed, err := s.Attach(ctx, Holder{Group: "ops"}, "logs"); err != nil || !changed {
		t.Fatalf("%v %v", changed, err)
	}
	for _, s := range []*Service{s, open(t, store)} { // in memory, and after a restart
		if v := verdictOf(t, s, "alice"); v.Identity != document.Allow || v.By != "policy logs of group ops, statement Logs" {
			t.Errorf("%+v", v)
		}
		if a, err := s.Get("alice"); err != nil || !slices.Equal(a.Groups, []string{"ops"}) {
			t.Errorf("%+v %v", a, err)
		}
		if g, err := s.Group("ops"); err != nil || !slices.Equal(g.Members, []string{"alice", "bob"}) {
			t.Errorf("%+v %v", g, err)
		}
	}
	if changed, err := s.RemoveMembers(ctx, "ops", "alice", "nobody"); err != nil || !changed {
		t.Errorf("%v %v", changed, err)
	}
	if v := verdictOf(t, s, "alice"); v.Identity != document.None {
		t.Errorf("after leaving: %+v", v)
	}
	if err := s.RemovePolicy(ctx, "logs"); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), `"ops"`) {
		t.Errorf("an attached policy: %v", err)
	}
	if err := s.Remove(ctx, "bob"); err != nil {
		t.Fatal(err)
	}
	if g, err := open(t, store).Group("ops"); err != nil || len(g.Members) != 0 {
		t.Errorf("a removed user stays a member: %+v %v", g, err)
	}
	if err := s.RemoveGroup(ctx, "ops"); err != nil {
		t.Fatal(err)
	}
	if err := s.RemovePolicy(ctx, "logs"); err != nil {
		t.Error(err)
	}
	if _, err := open(t, store).Group("ops"); !errors.Is(err, ErrNoSuchGroup) || !errs.Is(err, errs.NotFound) {
		t.Errorf("%v", err)
	}
}

// TestServiceAccounts: they have the rights of their parent, within their policy, until they end.
func TestServiceAccounts(t *testing.T) {
	store := model.New()
	s := open(t, store)
	ctx := t.Context()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	s.now = func() time.Time { return now }
	addUser(t, s, "alice")
	if _, err := s.Attach(ctx, Holder{User: "alice"}, "readwrite"); err != nil {
		t.Fatal(err)
	}
	key := Account{AccessKey: "backup", Secret: "long-enough", Parent: "alice", SessionPolicy: readLogs,
		Expires: now.Add(time.Hour), Role: RoleAdmin, Policies: []string{"readwrite"}}
	if err := s.AddKey(ctx, key); err != nil {
		t.Fatal(err)
	}
	again := open(t, store)
	again.now = s.now
	for _, s := range []*Service{s, again} {
		a, err := s.Get("backup")
		if err != nil || a.User() != "alice" || a.Role != RoleUser || !a.Derived() {
			t.Fatalf("%+v %v", a, err)
		}
		if v := verdictOf(t, s, "backup"); v.Identity != document.Allow || v.Session != document.Allow {
			t.Errorf("%+v", v)
		}
	}
	x, err := s.Subject("backup")
	if err != nil {
		t.Fatal(err)
	}
	if v := x.Decide(&document.Request{Action: "s3:PutObject", Resource: "arn:aws:s3:::logs/a"}); v.Identity !=
		document.Allow || v.Session != document.None || v.By != "the session policy" {
		t.Errorf("%+v", v)
	}
	admin := RoleAdmin
	if err := s.Update(ctx, "alice", Change{Role: &admin}); err != nil {
		t.Fatal(err)
	}
	if a, err := s.Get("backup"); err != nil || a.Role != RoleAdmin {
		t.Errorf("the role of the parent: %+v %v", a, err)
	}
	if _, err := s.User("backup"); !errors.Is(err, ErrNoSuchAccount) {
		t.Errorf("a service account is no user: %v", err)
	}
	if err := s.Update(ctx, "backup", Change{Role: &admin}); !errors.Is(err, ErrNoSuchAccount) {
		t.Errorf("%v", err)
	}
	if err := s.Add(ctx, Account{AccessKey: "backup", Secret: "long-enough", Role: RoleUser}); !errors.Is(err,
		ErrAccountExists) {
		t.Errorf("a user with the key of a service account: %v", err)
	}
	now = now.Add(time.Hour)
	if _, err := s.Subject("backup"); !errors.Is(err, ErrExpired) || !errors.Is(err, ErrNoSuchAccount) {
		t.Errorf("after its end: %v", err)
	}
	if all := s.Keys("alice"); len(all) != 1 || !all[0].Expired(now) {
		t.Errorf("%v", all)
	}
	never := time.Time{}
	if err := s.UpdateKey(ctx, "backup", KeyChange{Expires: &never}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get("backup"); err != nil {
		t.Errorf("without an end: %v", err)
	}
	if err := s.Remove(ctx, "alice"); err != nil {
		t.Fatal(err)
	}
	addUser(t, s, "alice")
	for _, s := range []*Service{s, open(t, store)} {
		if _, err := s.Get("backup"); !errors.Is(err, ErrNoSuchAccount) {
			t.Errorf("a later user of the same name has the service account: %v", err)
		}
	}
}

// TestBadIdentitiesAreNamed refuses each of them with its offending value, and leaves nothing behind.
func TestBadIdentitiesAreNamed(t *testing.T) {
	store := model.New()
	s := open(t, store)
	ctx := t.Context()
	addUser(t, s, "alice")
	key := func(change func(*Account)) error {
		a := Account{AccessKey: "backup", Secret: "long-enough", Parent: "alice"}
		change(&a)
		return s.AddKey(ctx, a)
	}
	attach := func(h Holder, policy string) error {
		_, err := s.Attach(ctx, h, policy)
		return err
	}
	join := func(group string, users ...string) error {
		_, err := s.AddMembers(ctx, group, users...)
		return err
	}
	for want, err := range map[string]error{
		"no such account":        key(func(a *Account) { a.Parent = "nobody" }),
		"it has no parent":       key(func(a *Account) { a.Parent = "" }),
		`"s3:Get Object"`:        key(func(a *Account) { a.SessionPolicy = strings.Replace(readLogs, "GetO", "Get O", 1) }),
		"a time in the future":   key(func(a *Account) { a.Expires = time.Unix(1, 0) }),
		"257 bytes":              key(func(a *Account) { a.Description = strings.Repeat("d", 257) }),
		"4 characters":           key(func(a *Account) { a.Secret = "abcd" }),
		"exists already":         key(func(a *Account) { a.AccessKey = "alice" }),
		"no such policy":         attach(Holder{User: "alice"}, "missing"),
		"no such group":          attach(Holder{Group: "missing"}, "readonly"),
		"a user or a group":      attach(Holder{User: "alice", Group: "x"}, "readonly"),
		"operator's account":     attach(Holder{User: root.AccessKey}, "readonly"),
		"everything already":     join("ops", root.AccessKey),
		`'/' at 1`:               join("a/b"),
		"0 characters":           join(""),
		"is built in":            s.PutPolicy(ctx, "readonly", []byte(readLogs)),
		"expected a JSON object": s.PutPolicy(ctx, "logs", []byte("x")),
		"no parent, session": s.Add(ctx, Account{AccessKey: "carol", Secret: "long-enough", Role: RoleUser,
			Parent: "alice"}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, expected %q", err, want)
		}
	}
	if err := s.Remove(ctx, "alice"); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{recordKind, keyKind, groupKind, policyKind} {
		if names, err := store.RecordNames(ctx, kind); err != nil || len(names) != 0 {
			t.Errorf("%s: %q %v stay behind", kind, names, err)
		}
	}
}

// TestBuiltInPolicies parses them.
func TestBuiltInPolicies(t *testing.T) {
	if all := builtIn(); len(all) != 3 {
		t.Errorf("%d policies", len(all))
	}
}

// TestADecisionIsNeverOlderThanItsPolicy changes a policy while others decide by it. After PutPolicy has returned,
// nobody decides by the old policy.
func TestADecisionIsNeverOlderThanItsPolicy(t *testing.T) {
	s := open(t, model.New())
	ctx, stop := context.WithCancel(t.Context())
	addUser(t, s, "alice")
	put := func(i int) {
		text := strings.Replace(readLogs, `"Logs"`, fmt.Sprintf(`"S%d"`, i), 1)
		if err := s.PutPolicy(context.Background(), "logs", []byte(text)); err != nil {
			t.Error(err)
		}
	}
	put(0)
	if _, err := s.Attach(ctx, Holder{User: "alice"}, "logs"); err != nil {
		t.Fatal(err)
	}
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for ctx.Err() == nil {
				if x, err := s.Subject("alice"); err != nil || x.Decide(&getLog).Identity != document.Allow {
					t.Error(err)
				}
			}
		})
	}
	for i := range 200 {
		put(i)
		if v := verdictOf(t, s, "alice"); v.By != fmt.Sprintf("policy logs, statement S%d", i) {
			t.Errorf("after policy %d: %s", i, v.By)
		}
	}
	stop()
	readers.Wait()
}
