// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/versity/versitygw/auth"
)

// A request that deletes many objects is judged by the policy once for each object. versitygw compares all conditions
// each time, although most are the same for the whole request. It also ignores the version of each object. So the
// policy is prepared: conditions are judged once for the request, and those on the version once for each object.

// Condition is the condition of a statement: values by operator and condition key.
type Condition map[string]map[string]json.RawMessage

// Deletions is a policy whose conditions have been judged for one request that deletes many objects.
type Deletions struct {
	// List is the policy for all objects. If a statement depends on the version, List allows the deletion of versions,
	// and Object decides.
	List []byte
	// Object is the policy for one object. It has only the conditions on the version.
	Object []byte
}

// deletionStatement is a statement of a rewritten policy.
type deletionStatement struct {
	Effect    string
	Principal json.RawMessage
	Action    json.RawMessage
	Resource  json.RawMessage
	Condition Condition `json:",omitempty"`
}

// PrepareDeletions judges the conditions of a rewritten policy of a bucket. holds reports whether a condition holds for
// the request. For an Allow and for a Deny it is asked separately: see Alone.
func PrepareDeletions(policy []byte, bucket string, holds func(effect string, c Condition) bool) (*Deletions, error) {
	var doc struct {
		Version   json.RawMessage `json:",omitempty"`
		Statement []deletionStatement
	}
	if err := json.Unmarshal(policy, &doc); err != nil {
		return nil, fmt.Errorf("prepare the policy of bucket %s: %w", bucket, err)
	}
	list, object := []deletionStatement{}, []deletionStatement{}
	for _, s := range doc.Statement {
		always, version := splitCondition(s.Condition)
		if always != nil && !holds(s.Effect, always) {
			continue
		}
		s.Condition = version
		object = append(object, s)
		if version == nil {
			list = append(list, s)
			continue
		}
		current, versions, err := deletionActions(s.Action)
		if err != nil {
			return nil, fmt.Errorf("prepare the policy of bucket %s: %w", bucket, err)
		}
		s.Condition = nil
		if current != nil && holds(s.Effect, version) {
			s.Action = current
			list = append(list, s)
		}
		if versions != nil && s.Effect == "Allow" {
			s.Action = versions
			list = append(list, s)
		}
	}
	out := &Deletions{}
	var err error
	if doc.Statement = list; err == nil {
		out.List, err = json.Marshal(doc)
	}
	if doc.Statement = object; err == nil {
		out.Object, err = json.Marshal(doc)
	}
	return out, err
}

// Alone returns a policy of a bucket that allows everybody everything on the bucket itself, if and only if a condition
// holds (Allow) or does not hold (Deny). It returns false for a condition that cannot be written.
func Alone(bucket, effect string, c Condition) ([]byte, bool) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, false
	}
	const statement = `{"Effect":%q,"Principal":"*","Action":"s3:*","Resource":%q,"Condition":%s}`
	arn := auth.ResourceArnPrefix + bucket
	policy := fmt.Sprintf(statement, effect, arn, text)
	if effect == "Deny" {
		policy += "," + fmt.Sprintf(statement, "Allow", arn, "{}")
	}
	return []byte(`{"Statement":[` + policy + `]}`), true
}

// splitCondition divides a condition into the part that is the same for a whole request, and the part on the version.
// All parts of a condition have to hold, so each can be judged alone.
func splitCondition(c Condition) (always, version Condition) {
	put := func(to *Condition, op, key string, value json.RawMessage) {
		if *to == nil {
			*to = Condition{}
		}
		if (*to)[op] == nil {
			(*to)[op] = map[string]json.RawMessage{}
		}
		(*to)[op][key] = value
	}
	for op, keys := range c {
		for key, value := range keys {
			if strings.EqualFold(key, versionKey) {
				put(&version, op, key, value)
			} else {
				put(&always, op, key, value)
			}
		}
	}
	return always, version
}

// deletionActions returns which actions of a deletion a statement names: the one on the current version, and those on
// named versions. Nil means none.
func deletionActions(raw json.RawMessage) (current, versions json.RawMessage, err error) {
	patterns, err := stringsOf(raw)
	if err != nil {
		return nil, nil, err
	}
	matching := func(actions ...auth.Action) (json.RawMessage, error) {
		var found []auth.Action
		for _, a := range actions {
			for _, p := range patterns {
				if a.Match(auth.Action(p)) {
					found = append(found, a)
					break
				}
			}
		}
		if found == nil {
			return nil, nil
		}
		return json.Marshal(found)
	}
	if current, err = matching(auth.DeleteObjectAction); err != nil {
		return nil, nil, err
	}
	versions, err = matching(auth.DeleteObjectVersionAction, auth.BypassGovernanceRetentionAction)
	return current, versions, err
}
