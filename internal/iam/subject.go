// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam/document"
)

// Actions that roles allow, in lower case.
const (
	createBucket = "s3:createbucket"
	listBuckets  = "s3:listallmybuckets"
)

// Subject is everything about an account that decides whether its requests are allowed. A Subject never changes.
type Subject struct {
	// Account is the account that signs the requests.
	Account Account
	// Policies are the policies of the user and of its groups.
	Policies []Attached
	// Boundary is the session policy, which limits everything that the account may do; nil means no limit.
	Boundary *document.Policy

	uniform bool
	keys    map[string]struct{}
	of      uint64 // the generation of the Service
}

// Attached is a policy with the group through which a user has it.
type Attached struct {
	Name   string
	Group  string // empty if the policy is attached to the user
	Policy *document.Policy
}

// Subject returns the subject of an account. Subject fails with the errors of Get, and with kind Corrupt if the session
// policy cannot be parsed. Subject does no I/O.
func (s *Service) Subject(accessKey string) (*Subject, error) {
	now := s.Generation()            // before everything that a change could replace meanwhile
	account, err := s.Get(accessKey) // every time, because keys expire
	if err != nil {
		return nil, err
	}
	if known, ok := s.subjects.Load(accessKey); ok && known.(*Subject).of == now {
		return known.(*Subject), nil
	}
	x := &Subject{Account: account, uniform: true, keys: map[string]struct{}{}, of: now}
	s.mu.RLock()
	x.attach(s, s.policiesOf(account), "")
	for _, name := range account.Groups {
		x.attach(s, s.groups[name].Policies, name)
	}
	s.mu.RUnlock()
	if account.SessionPolicy != "" {
		if x.Boundary, err = document.Parse([]byte(account.SessionPolicy)); err != nil {
			return nil, errs.New(errs.Corrupt, "read the session policy of", account.AccessKey, errs.MessageOf(err))
		}
		x.note(x.Boundary)
	}
	s.subjects.Store(account.AccessKey, x)
	return x, nil
}

// policiesOf returns the names of the policies that are attached to the user of an account. The caller holds s.mu.
func (s *directory) policiesOf(a Account) []string {
	if parent, ok := s.all[a.Parent]; ok {
		return parent.Policies
	}
	return a.Policies
}

// attach adds policies by name. A session can name a policy that does not exist any more; such a policy allows nothing.
func (x *Subject) attach(s *Service, names []string, group string) {
	for _, name := range names {
		if p, ok := s.policies[name]; ok {
			x.Policies = append(x.Policies, Attached{Name: name, Group: group, Policy: p.parsed})
			x.note(p.parsed)
		}
	}
}

func (x *Subject) note(p *document.Policy) {
	x.uniform = x.uniform && p.Uniform()
	for _, k := range p.Keys() {
		x.keys[k] = struct{}{}
	}
}

// Plain reports whether only the role decides: the account has neither policies nor a session policy.
func (x *Subject) Plain() bool { return len(x.Policies) == 0 && x.Boundary == nil }

// Uniform reports whether the policies of the subject give the same decision for all keys, addresses and times.
func (x *Subject) Uniform() bool { return x.uniform }

// Compares reports whether a policy of the subject compares a condition key that f reports true for.
func (x *Subject) Compares(f func(key string) bool) bool {
	for k := range x.keys {
		if f(k) {
			return true
		}
	}
	return false
}

// Verdict is what role and policies of a subject say about a request.
type Verdict struct {
	// Identity is the decision of the role and of the attached policies.
	Identity document.Decision
	// Session is the decision of the session policy. Session is Allow if there is none.
	Session document.Decision
	// By names what decided: a policy, a group's policy, the role or the session policy. By is empty if nothing applies.
	By string
}

// Denied reports whether a statement denies the request.
func (v Verdict) Denied() bool { return v.Identity == document.Deny || v.Session == document.Deny }

// Decide returns the verdict on a request. A statement that denies wins over all that allow.
func (x *Subject) Decide(r *document.Request) Verdict {
	v := Verdict{Identity: document.None, Session: document.Allow}
	if x.RoleAllows(r.Action) {
		v.Identity, v.By = document.Allow, "role "+string(x.Account.Role)
	}
	for i := range x.Policies {
		p := &x.Policies[i]
		switch d, sid := p.Policy.Explain(r); d {
		case document.Deny:
			return Verdict{Identity: document.Deny, Session: v.Session, By: p.describe(sid)}
		case document.Allow:
			if v.Identity == document.None {
				v.Identity, v.By = document.Allow, p.describe(sid)
			}
		case document.None:
		}
	}
	if x.Boundary == nil {
		return v
	}
	if v.Session = x.Boundary.Decide(r); v.Session != document.Allow {
		v.By = "the session policy"
	}
	return v
}

// RoleAllows reports whether the role alone allows an action. The role admin allows everything. The role userplus
// allows to create buckets. Every role allows a user to list its own buckets.
func (x *Subject) RoleAllows(action string) bool {
	switch action = strings.ToLower(action); x.Account.Role {
	case RoleAdmin:
		return true
	case RoleUserPlus:
		return action == createBucket || action == listBuckets
	case RoleUser:
		return action == listBuckets
	}
	return false
}

func (a *Attached) describe(sid string) string {
	out := "policy " + a.Name
	if a.Group != "" {
		out += " of group " + a.Group
	}
	if sid != "" {
		out += ", statement " + sid
	}
	return out
}
