// SPDX-License-Identifier: Apache-2.0

package document

import (
	"encoding/json"
	"fmt"
	"strings"
)

// statement is one statement of a policy.
type statement struct {
	sid         string
	effect      Decision
	actionNames []string
	actions     []pattern
	resources   []pattern
	// notActions and notResources report that the statement names what it does not cover.
	notActions, notResources bool
	conditions               []condition
}

func parseStatement(raw []byte, variables bool) (statement, error) {
	var s statement
	fields, err := FieldsOf(raw)
	if err != nil {
		return s, err
	}
	var actions, resources []string
	for _, f := range fields {
		switch f.Name {
		case "Sid":
			err = json.Unmarshal(f.Value, &s.sid)
		case "Effect":
			s.effect, err = effectOf(f.Value)
		case "Action", "NotAction":
			if actions != nil {
				return s, fmt.Errorf("both Action and NotAction, expected one of them")
			}
			s.notActions = f.Name == "NotAction"
			actions, err = stringsOf(f.Value)
		case "Resource", "NotResource":
			if resources != nil {
				return s, fmt.Errorf("both Resource and NotResource, expected one of them")
			}
			s.notResources = f.Name == "NotResource"
			resources, err = stringsOf(f.Value)
		case "Condition":
			s.conditions, err = conditionsOf(f.Value, variables, knownKey)
		case "Principal", "NotPrincipal":
			err = fmt.Errorf("a policy of a user or group names no principal: it applies to those to whom it is attached")
		default:
			err = fmt.Errorf("unknown field, expected Sid, Effect, Action, NotAction, Resource, NotResource or Condition")
		}
		if err != nil {
			return s, fmt.Errorf("field %.64q: %w", f.Name, err)
		}
	}
	switch {
	case s.effect == None:
		return s, fmt.Errorf("missing required field Effect")
	case actions == nil:
		return s, fmt.Errorf("missing required field Action or NotAction")
	}
	if s.actionNames, err = actions, s.readActions(actions); err != nil {
		return s, err
	}
	return s, s.readResources(resources, variables)
}

func effectOf(raw []byte) (Decision, error) {
	switch string(raw) {
	case `"Allow"`:
		return Allow, nil
	case `"Deny"`:
		return Deny, nil
	}
	return None, fmt.Errorf("%.64s, expected Allow or Deny", raw)
}

// readActions reads actions such as s3:Get*. An action of another service is accepted, and has no effect.
func (s *statement) readActions(names []string) error {
	for _, name := range names {
		service, action, ok := strings.Cut(name, ":")
		if name != "*" && (!ok || service == "" || action == "" || strings.Trim(strings.ToLower(name),
			"abcdefghijklmnopqrstuvwxyz0123456789-*?:") != "" || strings.Contains(action, ":")) {
			return fmt.Errorf("action %.128q, expected * or SERVICE:ACTION, such as s3:GetObject", name)
		}
		s.actions = append(s.actions, compile(strings.ToLower(name)))
	}
	return nil
}

func (s *statement) readResources(names []string, variables bool) error {
	if names == nil {
		for _, name := range s.actionNames {
			if name == "*" || s.notActions || strings.HasPrefix(strings.ToLower(name), "s3") {
				return fmt.Errorf("missing required field Resource or NotResource")
			}
		}
		// Statements about other services, such as admin:*, may leave out their resources.
		s.resources = []pattern{compile("*")}
		return nil
	}
	for _, name := range names {
		if strings.Trim(name, "*") != "" && (!strings.HasPrefix(name, "arn:") || strings.Count(name, ":") < 5) {
			return fmt.Errorf("resource %.128q, expected * or an ARN such as arn:aws:s3:::BUCKET/KEY", name)
		}
		p, err := compileWith(name, variables)
		if err != nil {
			return fmt.Errorf("resource %.128q: %w", name, err)
		}
		s.resources = append(s.resources, p)
	}
	return nil
}

// applies reports whether a request has the action, the resource and the conditions of the statement.
func (s *statement) applies(r *Request) bool {
	return s.covers(r.Action) && s.reaches(r) && s.holds(r)
}

func (s *statement) covers(action string) bool {
	action = strings.ToLower(action)
	for i := range s.actions {
		if s.actions[i].match(action) {
			return !s.notActions
		}
	}
	return s.notActions
}

func (s *statement) reaches(r *Request) bool {
	for i := range s.resources {
		p, resolved := s.resources[i].resolve(r)
		if !resolved {
			if s.notResources && s.effect == Allow {
				return false // without the value, nobody can tell what the statement leaves out
			}
			continue
		}
		if p.match(r.Resource) {
			return !s.notResources
		}
	}
	return s.notResources
}

func (s *statement) holds(r *Request) bool {
	for i := range s.conditions {
		if !s.conditions[i].holds(r) {
			return false
		}
	}
	return true
}

// work returns the number of bytes behind a * in the patterns of the statement.
func (s *statement) work() int {
	n := 0
	for i := range s.resources {
		n += s.resources[i].work()
	}
	for i := range s.conditions {
		n += s.conditions[i].work()
	}
	return n
}

// uniform reports whether the statement treats all keys and clients alike.
func (s *statement) uniform() bool {
	if len(s.conditions) > 0 || s.notResources {
		return false
	}
	for i := range s.resources {
		if !s.resources[i].everything() {
			return false
		}
	}
	return true
}

// addKeys adds the condition keys of the statement to a set.
func (s *statement) addKeys(to map[string]struct{}) {
	add := func(p *pattern) {
		for i := range p.parts {
			if name := p.parts[i].variable; name != "" {
				to[name] = struct{}{}
			}
		}
	}
	for i := range s.resources {
		add(&s.resources[i])
	}
	for i := range s.conditions {
		to[s.conditions[i].key] = struct{}{}
		for j := range s.conditions[i].values {
			add(&s.conditions[i].values[j])
		}
	}
}
