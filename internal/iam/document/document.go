// SPDX-License-Identifier: Apache-2.0

// Package document parses and evaluates identity policies: JSON documents in the policy language of AWS that allow or
// deny actions. An identity policy applies to the users and groups to which it is attached.
package document

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// MaxSize is the largest size of a policy in bytes.
const MaxSize = 20 << 10

const (
	version2012 = "2012-10-17"
	version2008 = "2008-10-17"
	// mostStatements is the largest number of statements of a policy.
	mostStatements = 256
	// mostPatternWork is the largest number of bytes behind a * in all patterns of a policy. A comparison takes up to that
	// many steps for each byte of a key, and one request can delete 1,000 keys.
	mostPatternWork = 2 << 10
)

// Decision is the result of a policy for one request.
type Decision int

// A policy decides None if no statement applies. A statement that denies wins over statements that allow.
const (
	None Decision = iota
	Allow
	Deny
)

// String returns the decision as a word.
func (d Decision) String() string {
	switch d {
	case Allow:
		return "allow"
	case Deny:
		return "deny"
	}
	return "none"
}

// Request holds what policies compare.
type Request struct {
	Action   string // such as s3:GetObject
	Resource string // ARN, such as arn:aws:s3:::bucket/key
	// Value returns the values of a condition key of the request. The name of the key is in lower case. Value returns nil
	// if the request has no value for the key. If Value is nil, the request has no values at all.
	Value func(name string) []string
}

func (r *Request) value(name string) []string {
	if r.Value == nil {
		return nil
	}
	return r.Value(name)
}

// Policy is a parsed policy. A Policy never changes, and is safe for concurrent use.
type Policy struct {
	statements []statement
	uniform    bool
	actions    []string
	keys       map[string]struct{}
}

// Parse parses a policy. Parse fails with kind Invalid if this server does not understand a part of the policy, because
// an ignored restriction would allow too much. The error names the first such part.
func Parse(text []byte) (*Policy, error) {
	p, err := parse(text)
	if err != nil {
		return nil, errs.New(errs.Invalid, "read", "the policy", err.Error())
	}
	return p, nil
}

func parse(text []byte) (*Policy, error) {
	if len(text) > MaxSize {
		return nil, fmt.Errorf("it has %d bytes, expected at most %d", len(text), MaxSize)
	}
	fields, err := FieldsOf(text)
	if err != nil {
		return nil, err
	}
	version := version2008
	var list json.RawMessage
	for _, f := range fields {
		switch f.Name {
		case "Version":
			if json.Unmarshal(f.Value, &version) != nil || version != version2012 && version != version2008 {
				return nil, fmt.Errorf("field Version is %.64s, expected %q or %q", f.Value, version2012, version2008)
			}
		case "Id", "ID":
			if json.Unmarshal(f.Value, new(string)) != nil {
				return nil, fmt.Errorf("field %s is %.64s, expected a string", f.Name, f.Value)
			}
		case "Statement":
			list = f.Value
		default:
			return nil, fmt.Errorf("unknown field %.64q, expected Version, Id or Statement", f.Name)
		}
	}
	raws, err := statementsOf(list)
	if err != nil {
		return nil, err
	}
	p := &Policy{uniform: true, keys: map[string]struct{}{}}
	work := 0
	for i, raw := range raws {
		s, err := parseStatement(raw, version == version2012)
		if err != nil {
			return nil, fmt.Errorf("statement %d: %w", i+1, err)
		}
		if work += s.work(); work > mostPatternWork {
			return nil, fmt.Errorf("statement %d: the patterns of the policy have %d bytes behind a *, expected at most %d",
				i+1, work, mostPatternWork)
		}
		p.uniform = p.uniform && s.uniform()
		p.actions = append(p.actions, s.actionNames...)
		s.addKeys(p.keys)
		p.statements = append(p.statements, s)
	}
	return p, nil
}

// statementsOf returns the statements of the field Statement, which holds one statement or a list.
func statementsOf(raw json.RawMessage) ([]json.RawMessage, error) {
	if len(raw) > 0 && raw[0] == '{' {
		return []json.RawMessage{raw}, nil
	}
	var list []json.RawMessage
	if raw == nil || json.Unmarshal(raw, &list) != nil || len(list) == 0 {
		return nil, fmt.Errorf("field Statement is %.64s, expected a statement or a list of statements", orNothing(raw))
	}
	if len(list) > mostStatements {
		return nil, fmt.Errorf("%d statements, expected at most %d", len(list), mostStatements)
	}
	return list, nil
}

func orNothing(raw json.RawMessage) string {
	if raw == nil {
		return "missing"
	}
	return string(raw)
}

// Decide returns the decision of the policy for a request.
func (p *Policy) Decide(r *Request) Decision {
	d, _ := p.Explain(r)
	return d
}

// Explain returns the decision of the policy for a request, and the Sid of the statement that decided. The Sid is empty
// if the statement has none, or if no statement applies.
func (p *Policy) Explain(r *Request) (Decision, string) {
	out, sid := None, ""
	for i := range p.statements {
		s := &p.statements[i]
		if out == Allow && s.effect == Allow || !s.applies(r) {
			continue
		}
		if out, sid = s.effect, s.sid; out == Deny {
			break
		}
	}
	return out, sid
}

// Uniform reports whether the policy gives the same decision for all keys, addresses and times. A uniform policy has no
// conditions and no variables, and all its resources are all objects of all buckets.
func (p *Policy) Uniform() bool { return p.uniform }

// Keys returns the names of the condition keys that the policy compares or uses as variables, in lower case and in
// order.
func (p *Policy) Keys() []string { return slices.Sorted(maps.Keys(p.keys)) }

// Actions returns the actions that the policy names, as they are written.
func (p *Policy) Actions() []string { return slices.Clone(p.actions) }

// Unknown returns the actions of S3 in the policy that match none of the given actions. AWS accepts such an action, and
// it has no effect here.
func (p *Policy) Unknown(known []string) []string {
	var out []string
	for _, name := range p.actions {
		like := compile(strings.ToLower(name))
		if !strings.HasPrefix(strings.ToLower(name), "s3:") || slices.Contains(out, name) ||
			slices.ContainsFunc(known, func(a string) bool { return like.match(strings.ToLower(a)) }) {
			continue
		}
		out = append(out, name)
	}
	return out
}
