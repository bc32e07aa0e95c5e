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
)

// Group is a set of users who share policies. The slices of a Group are sorted, shared and must not be changed.
type Group struct {
	Name     string   `json:"name"`
	Members  []string `json:"members"`
	Policies []string `json:"policies"`
}

// maxName is the largest length of the name of a group or a policy.
const maxName = 128

// checkName returns an error of kind Invalid if a text cannot name a group or a policy.
func checkName(op, name string) error {
	if n := len(name); n < 1 || n > maxName {
		return errs.New(errs.Invalid, op, name, fmt.Sprintf("the name has %d characters, expected 1 to %d", n, maxName))
	}
	for i := range len(name) {
		if c := name[i]; !keyByte(c) && c != '=' {
			return errs.New(errs.Invalid, op, name, fmt.Sprintf("the name has %q at %d, expected letters, digits and ._@+=-", c,
				i))
		}
	}
	return nil
}

// Groups returns all groups, sorted by name.
func (s groupBook) Groups() []Group {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := slices.Collect(maps.Values(s.groups))
	slices.SortFunc(out, func(a, b Group) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Group returns the group with this name, or ErrNoSuchGroup.
func (s groupBook) Group(name string) (Group, error) { return s.group("get group", name) }

func (s *directory) group(op, name string) (Group, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	g, ok := s.groups[name]
	if !ok {
		return Group{}, &errs.Error{Kind: errs.NotFound, Op: op, Name: strings.Clone(name), Err: ErrNoSuchGroup,
			Fix: "list the groups with nebulaio group list"}
	}
	return g, nil
}

// AddMembers adds users to a group durably, and creates the group if it does not exist. If there are no users,
// AddMembers only creates the group. The result changed reports whether the group is new or has new members. If one of
// the users does not exist, AddMembers changes nothing and fails with ErrNoSuchAccount.
func (s groupBook) AddMembers(ctx context.Context, name string, users ...string) (changed bool, err error) {
	const op = "add to group"
	if err := checkName(op, name); err != nil {
		return false, err
	}
	s.write.Lock()
	defer s.write.Unlock()
	for _, u := range users {
		if u == s.root.AccessKey {
			return false, errs.New(errs.Invalid, op, name,
				fmt.Sprintf("%s is the operator's account, which may do everything already", u))
		}
		if _, err := s.User(u); err != nil {
			return false, errs.Wrap(op, name, err)
		}
	}
	g, err := s.Group(name)
	if err != nil {
		g = Group{Name: strings.Clone(name), Members: []string{}, Policies: []string{}}
	}
	members := union(g.Members, users)
	if err == nil && len(members) == len(g.Members) {
		return false, nil
	}
	g.Members = members
	return true, s.putGroup(ctx, g)
}

// RemoveMembers removes users from a group durably, and reports whether something changed. RemoveMembers
// fails with ErrNoSuchGroup.
func (s groupBook) RemoveMembers(ctx context.Context, name string, users ...string) (changed bool, err error) {
	s.write.Lock()
	defer s.write.Unlock()
	g, err := s.group("remove from group", name)
	if err != nil {
		return false, err
	}
	members := without(g.Members, users)
	if len(members) == len(g.Members) {
		return false, nil
	}
	g.Members = members
	return true, s.putGroup(ctx, g)
}

// RemoveGroup removes a group durably. Its users stay. RemoveGroup fails with ErrNoSuchGroup.
func (s groupBook) RemoveGroup(ctx context.Context, name string) error {
	s.write.Lock()
	defer s.write.Unlock()
	g, err := s.group("remove group", name)
	if err != nil {
		return err
	}
	if err := s.records.DeleteRecord(ctx, groupKind, g.Name); err != nil {
		return err
	}
	s.mu.Lock()
	delete(s.groups, g.Name)
	s.mu.Unlock()
	s.regroup()
	return nil
}

func (s *directory) putGroup(ctx context.Context, g Group) error {
	if err := s.putRecord(ctx, groupKind, g.Name, g); err != nil {
		return err
	}
	s.mu.Lock()
	s.groups[g.Name] = g
	s.mu.Unlock()
	s.regroup()
	return nil
}

// regroup lets users and callers see a change of groups.
func (s *directory) regroup() {
	s.mu.Lock()
	s.fillGroups()
	s.mu.Unlock()
	s.changed()
}

// fillGroups sets the groups of all users. The caller holds s.mu, or nobody else knows s.
func (s *directory) fillGroups() {
	of := map[string][]string{}
	for _, g := range s.groups {
		for _, m := range g.Members {
			of[m] = append(of[m], g.Name)
		}
	}
	for name, a := range s.all {
		a.Groups = of[name]
		slices.Sort(a.Groups)
		s.all[name] = a
	}
}

// leaveGroups removes a user from all groups.
func (s groupBook) leaveGroups(ctx context.Context, user string) error {
	for _, g := range s.Groups() {
		if !slices.Contains(g.Members, user) {
			continue
		}
		g.Members = without(g.Members, []string{user})
		if err := s.putGroup(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

func (s groupBook) readGroups(ctx context.Context) error {
	return s.readRecords(ctx, groupKind, func(name string, raw []byte) error {
		var g Group
		if err := json.Unmarshal(raw, &g); err != nil || g.Name != name {
			return errs.New(errs.Corrupt, "read group", name, fmt.Sprintf("the record is of %q: %v", g.Name, err))
		}
		s.groups[name] = g
		return nil
	})
}

// union returns the sorted union of two lists.
func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, x := range b {
		out = append(out, strings.Clone(x))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// without returns the elements of a that are not in b.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(x string) bool { return slices.Contains(b, x) })
}
