// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/gofiber/fiber/v3"
	"github.com/valyala/fasthttp"
	"github.com/versity/versitygw/auth"
	vgwbackend "github.com/versity/versitygw/backend"
	"github.com/versity/versitygw/s3err"
)

// A request that deletes many objects is judged by a policy once for each of them. versitygw compares all conditions
// each time, although they are the same for the whole request, and knows no version, which is not. So the policy is
// prepared: conditions are judged once for the request, and those on the version by the backend for each object.

// deletesMany says whether a request deletes a list of objects.
func deletesMany(rctx *fasthttp.RequestCtx) bool {
	return rctx.IsPost() && rctx.QueryArgs().Has("delete")
}

// exactlyKey is where GetBucketPolicy finds that the backend asks, and deletionKey where it keeps what it has prepared.
const (
	exactlyKey  = "nebulaio-exactly"
	deletionKey = "nebulaio-deletion"
)

// exactly lets GetBucketPolicy know that the backend asks for one object, whose version the arguments name. What it
// returns takes that back.
func exactly(rctx *fasthttp.RequestCtx) (restore func()) {
	rctx.SetUserValue(exactlyKey, true)
	return func() { rctx.SetUserValue(exactlyKey, false) }
}

// preparedPolicy is a policy of which the conditions of a request have been judged.
type preparedPolicy struct {
	of *rules
	// list is what versitygw judges all objects by. Where a statement depends on the version, it allows the deletion
	// of versions, and object decides.
	list []byte
	// object is what one object is judged by. Its conditions are those on the version.
	object []byte
}

// deletionStatement is a statement of a policy as understood writes it.
type deletionStatement struct {
	Effect    string
	Principal json.RawMessage
	Action    json.RawMessage
	Resource  json.RawMessage
	Condition map[string]map[string]json.RawMessage `json:",omitempty"`
}

// deletionPolicy returns a policy as a request that deletes many objects is judged by it.
func (b *backend) deletionPolicy(rctx *fasthttp.RequestCtx, r *rules, policy []byte) ([]byte, error) {
	p, ok := rctx.UserValue(deletionKey).(*preparedPolicy)
	if !ok || p.of != r {
		request, ok := rctx.UserValue(requestKey).(fiber.Ctx)
		if !ok {
			return nil, s3err.GetAPIError(s3err.ErrAccessDenied) // no request came through the guard
		}
		var err error
		if p, err = b.prepare(request, r, policy); err != nil {
			return nil, err
		}
		rctx.SetUserValue(deletionKey, p)
	}
	if exact, _ := rctx.UserValue(exactlyKey).(bool); exact {
		return p.object, nil
	}
	return p.list, nil
}

// prepare judges the conditions of a policy for a request.
func (b *backend) prepare(request fiber.Ctx, r *rules, policy []byte) (*preparedPolicy, error) {
	var doc struct {
		Version   json.RawMessage `json:",omitempty"`
		Statement []deletionStatement
	}
	if err := json.Unmarshal(policy, &doc); err != nil {
		return nil, fmt.Errorf("prepare the policy of bucket %s: %w", r.of.Name, err)
	}
	defer named(request.RequestCtx(), "")()
	list, object := []deletionStatement{}, []deletionStatement{}
	for _, s := range doc.Statement {
		always, version := splitCondition(s.Condition)
		if always != nil && !b.holds(request, r.of.Name, s.Effect, always) {
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
			return nil, fmt.Errorf("prepare the policy of bucket %s: %w", r.of.Name, err)
		}
		s.Condition = nil
		if current != nil && b.holds(request, r.of.Name, s.Effect, version) {
			s.Action = current
			list = append(list, s)
		}
		if versions != nil && s.Effect == "Allow" {
			s.Action = versions
			list = append(list, s)
		}
	}
	out := &preparedPolicy{of: r}
	var err error
	if doc.Statement = list; err == nil {
		out.list, err = json.Marshal(doc)
	}
	if doc.Statement = object; err == nil {
		out.object, err = json.Marshal(doc)
	}
	return out, err
}

// splitCondition divides a condition into what is the same for a whole request, and what depends on the version. All
// parts of a condition have to hold, so each can be judged alone.
func splitCondition(c map[string]map[string]json.RawMessage) (always, version map[string]map[string]json.RawMessage) {
	put := func(to *map[string]map[string]json.RawMessage, op, key string, value json.RawMessage) {
		if *to == nil {
			*to = map[string]map[string]json.RawMessage{}
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

// deletionActions returns which of the actions that deletions ask for a statement speaks of: that on the current
// version, and those on versions. Nil means none.
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

// holds says whether a condition holds for a request. One that cannot be judged denies and allows nothing.
func (b *backend) holds(request fiber.Ctx, bucket, effect string, c map[string]map[string]json.RawMessage) bool {
	text, err := json.Marshal(c)
	if err != nil {
		return effect == "Deny"
	}
	// versitygw's own judgement is asked, with a policy of that condition alone.
	const statement = `{"Effect":%q,"Principal":"*","Action":"s3:*","Resource":%q,"Condition":%s}`
	arn := auth.ResourceArnPrefix + bucket
	policy := fmt.Sprintf(statement, effect, arn, text)
	if effect == "Deny" {
		policy += "," + fmt.Sprintf(statement, "Allow", arn, "{}")
	}
	alone := onePolicy{Backend: b, policy: []byte(`{"Statement":[` + policy + `]}`)}
	allowed := auth.VerifyPublicAccess(request, alone, auth.GetBucketTaggingAction, auth.PermissionRead, bucket, "") == nil
	return allowed == (effect == "Allow")
}

// onePolicy is a backend whose buckets have one policy.
type onePolicy struct {
	vgwbackend.Backend
	policy []byte
}

// GetBucketPolicy returns that policy.
func (p onePolicy) GetBucketPolicy(context.Context, string) ([]byte, error) { return p.policy, nil }
