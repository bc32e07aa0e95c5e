// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/iam/document"
)

// Policy is a named policy that can be attached to users and groups.
type Policy struct {
	Name string `json:"name"`
	// Text is the policy as JSON.
	Text string `json:"text"`
	// BuiltIn reports that the policy is part of the server, and cannot be changed.
	BuiltIn bool `json:"built_in,omitempty"`

	parsed *document.Policy
}

// Texts of the built-in policies.
const (
	readOnlyText = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:Get*","s3:List*"],` +
		`"Resource":"arn:aws:s3:::*"}]}`
	writeOnlyText = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":["s3:PutObject",` +
		`"s3:AbortMultipartUpload","s3:ListMultipartUploadParts"],"Resource":"arn:aws:s3:::*"}]}`
	readWriteText = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"arn:aws:s3:::*"}]}`
)

// builtIn returns the policies that every store has. They have the names that operators of MinIO know.
func builtIn() map[string]Policy {
	out := map[string]Policy{}
	for name, text := range map[string]string{"readonly": readOnlyText, "writeonly": writeOnlyText,
		"readwrite": readWriteText} {
		p, err := document.Parse([]byte(text))
		if err != nil {
			continue // cannot happen: TestBuiltInPolicies parses them
		}
		out[name] = Policy{Name: name, Text: text, BuiltIn: true, parsed: p}
	}
	return out
}

// Policies returns all policies, sorted by name.
func (s policyBook) Policies() []Policy {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := slices.Collect(maps.Values(s.policies))
	slices.SortFunc(out, func(a, b Policy) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Policy returns the policy with this name, or ErrNoSuchPolicy.
func (s policyBook) Policy(name string) (Policy, error) { return s.policy("get policy", name) }

func (s policyBook) policy(op, name string) (Policy, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p, ok := s.policies[name]
	if !ok {
		return Policy{}, noPolicy(op, name)
	}
	return p, nil
}

func noPolicy(op, name string) error {
	return &errs.Error{Kind: errs.NotFound, Op: op, Name: strings.Clone(name), Err: ErrNoSuchPolicy,
		Fix: "list the policies with nebulaio policy list"}
}

// PutPolicy stores a policy durably, and replaces the policy of the same name. A change has effect at once for
// everybody to whom the policy is attached. PutPolicy fails with kind Invalid if the policy cannot be parsed or is
// built in.
func (s policyBook) PutPolicy(ctx context.Context, name string, text []byte) error {
	const op = "put policy"
	if err := checkName(op, name); err != nil {
		return err
	}
	parsed, err := document.Parse(text)
	if err != nil {
		return errs.Wrap(op, name, err)
	}
	s.write.Lock()
	defer s.write.Unlock()
	if err := s.notBuiltIn(op, name); err != nil {
		return err
	}
	p := Policy{Name: strings.Clone(name), Text: string(text), parsed: parsed}
	if err := s.putRecord(ctx, policyKind, p.Name, p); err != nil {
		return err
	}
	s.mu.Lock()
	s.policies[p.Name] = p
	s.mu.Unlock()
	s.changed()
	return nil
}

// RemovePolicy removes a policy durably. RemovePolicy fails with ErrNoSuchPolicy, and with kind Invalid if the policy
// is built in or attached to a user or a group.
func (s policyBook) RemovePolicy(ctx context.Context, name string) error {
	const op = "remove policy"
	s.write.Lock()
	defer s.write.Unlock()
	p, err := s.policy(op, name)
	if err != nil {
		return err
	}
	if err := s.notBuiltIn(op, name); err != nil {
		return err
	}
	if users, groups := s.AttachedTo(name); len(users)+len(groups) > 0 {
		return errs.New(errs.Invalid, op, name, fmt.Sprintf("it is attached to users %q and groups %q", users, groups)).
			WithFix("detach it first with nebulaio policy detach")
	}
	if err := s.records.DeleteRecord(ctx, policyKind, p.Name); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.policies, p.Name)
	s.mu.Unlock()
	s.changed()
	return nil
}

func (s policyBook) notBuiltIn(op, name string) error {
	if p, err := s.Policy(name); err == nil && p.BuiltIn {
		return errs.New(errs.Invalid, op, name, "it is built in and cannot be changed").
			WithFix("put a policy of another name")
	}
	return nil
}

// AttachedTo returns the users and the groups to which a policy is attached, in order.
func (s policyBook) AttachedTo(policy string) (users, groups []string) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, a := range s.all {
		if slices.Contains(a.Policies, policy) {
			users = append(users, a.AccessKey)
		}
	}
	for _, g := range s.groups {
		if slices.Contains(g.Policies, policy) {
			groups = append(groups, g.Name)
		}
	}
	slices.Sort(users)
	slices.Sort(groups)
	return users, groups
}

// Holder is a user or a group to which policies are attached. Exactly one field of a Holder is set.
type Holder struct {
	User  string `json:"user,omitempty"`
	Group string `json:"group,omitempty"`
}

// Attach attaches policies to a user or a group durably, and reports whether something changed. Attach fails with
// ErrNoSuchPolicy, ErrNoSuchAccount or ErrNoSuchGroup, and then changes nothing.
func (s policyBook) Attach(ctx context.Context, to Holder, policies ...string) (changed bool, err error) {
	const op = "attach policy"
	s.write.Lock()
	defer s.write.Unlock()
	if err := s.havePolicies(op, to.User+to.Group, policies); err != nil {
		return false, err
	}
	return s.editPolicies(ctx, op, to, func(now []string) []string { return union(now, policies) })
}

// Detach detaches policies from a user or a group durably, and reports whether something changed. A policy that is not
// attached is no error. Detach fails with ErrNoSuchAccount or ErrNoSuchGroup.
func (s policyBook) Detach(ctx context.Context, from Holder, policies ...string) (changed bool, err error) {
	s.write.Lock()
	defer s.write.Unlock()
	return s.editPolicies(ctx, "detach policy", from, func(now []string) []string { return without(now, policies) })
}

// editPolicies changes the policies of a user or a group. The caller holds s.write.
func (s policyBook) editPolicies(ctx context.Context, op string, of Holder,
	edit func([]string) []string) (bool, error) {
	switch {
	case (of.User == "") == (of.Group == ""):
		return false, errs.New(errs.Invalid, op, of.User+of.Group, "expected a user or a group")
	case of.Group != "":
		g, err := s.group(op, of.Group)
		if err != nil {
			return false, err
		}
		policies := edit(g.Policies)
		if slices.Equal(policies, g.Policies) {
			return false, nil
		}
		g.Policies = policies
		return true, s.putGroup(ctx, g)
	}
	if err := s.notRoot(op, of.User); err != nil {
		return false, err
	}
	a, err := s.User(of.User)
	if err != nil {
		return false, err
	}
	policies := edit(a.Policies)
	if slices.Equal(policies, a.Policies) {
		return false, nil
	}
	a.Policies = policies
	return true, s.put(ctx, a)
}

// havePolicies returns ErrNoSuchPolicy if one of the policies does not exist.
func (s policyBook) havePolicies(op, name string, policies []string) error {
	for _, p := range policies {
		if _, err := s.Policy(p); err != nil {
			return errs.Wrap(op, name, err)
		}
	}
	return nil
}

func (s policyBook) readPolicies(ctx context.Context) error {
	return s.readRecords(ctx, policyKind, func(name string, raw []byte) error {
		var p Policy
		err := json.Unmarshal(raw, &p)
		if err == nil && p.Name != name {
			err = fmt.Errorf("the record is of %q", p.Name)
		}
		if err == nil {
			p.parsed, err = document.Parse([]byte(p.Text))
		}
		if err != nil {
			return errs.New(errs.Corrupt, "read policy", name, errs.MessageOf(err))
		}
		s.policies[name] = p
		return nil
	})
}
