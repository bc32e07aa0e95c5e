// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/versity/versitygw/auth"
)

// versitygw evaluates the policy once for each object of a request that deletes many objects. Each time it
// evaluates all conditions, although most of them have the same result for the whole request. It also ignores the
// version of each object. PrepareDeletions therefore evaluates conditions once for the request, and leaves only
// conditions on the version for each object.

// Condition is the Condition element of a policy statement: values by operator and condition key.
type Condition map[string]map[string]json.RawMessage

// Deletions is the policy of a bucket, prepared for one request that deletes many objects. PrepareDeletions has
// already evaluated all conditions of the policy that do not depend on a version.
type Deletions struct {
	// List is the policy that decides whether the whole request to delete many objects is allowed. If an Allow
	// statement has a condition on the version, List allows the deletion of versions regardless of that condition.
	// The policy in Object then decides for each object.
	List []byte
	// Object is the policy that decides for each single object of the request. The policy in the field Object has no
	// conditions except conditions on the version.
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

// PrepareDeletions evaluates the conditions of a bucket's rewritten policy for a request that deletes many objects.
// The caller passes a function named holds, which returns whether a condition is true for the request. The arguments
// of the function named holds are the effect of the statement, Allow or Deny, and the condition.
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

// Alone returns a policy that tests a single condition: the decision of versitygw about this policy shows whether the
// condition is true. With effect Allow, the policy allows everything on the bucket if the condition is true. With
// effect Deny, the policy allows everything on the bucket if the condition is false. The second result of Alone is
// false if the condition cannot be encoded as JSON.
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

// splitCondition divides a condition into the part that is the same for a whole request and the part on the
// version. All parts of a condition have to be true, so each part can be evaluated separately.
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

// deletionActions returns the delete actions that a statement names: the action on the current version, and the
// actions on named versions. Nil means none.
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
