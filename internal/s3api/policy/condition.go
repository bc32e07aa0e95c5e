// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/iam/document"
)

// Largest number of bytes behind a * in all patterns of a policy. A comparison takes up to that many steps for each
// byte of a header or a key. The limit for keys is lower, because one request can delete 1,000 keys and each key is
// compared.
const (
	maxConditionPatterns = 2 << 10
	maxResourcePatterns  = 512
)

// Condition is the Condition element of a policy statement: values by operator and condition key.
type Condition map[string]map[string]json.RawMessage

// kinds are the condition keys that operators other than those for text can compare, by the beginning of the operator.
// A denial by another key would never apply. The values of tags may be numbers and dates.
var kinds = map[string][]string{
	"Date": {"aws:currenttime", "aws:epochtime", "s3:object-lock-retain-until-date", "s3:existingobjecttag/",
		"s3:requestobjecttag/"},
	"Numeric": {"s3:max-keys", "aws:epochtime", "s3:existingobjecttag/", "s3:requestobjecttag/"},
	"Bool":    {"aws:securetransport", "s3:existingobjecttag/", "s3:requestobjecttag/"},
	"Ip":      {"aws:sourceip"}, "NotIp": {"aws:sourceip"}, "Arn": {"aws:principalarn", "aws:sourcearn"},
}

// parseConditions parses the element Condition of a statement.
func parseConditions(raw json.RawMessage, variables bool) (*document.Conditions, error) {
	parsed, err := document.ParseConditions(raw, variables)
	if err != nil {
		return nil, err // if versitygw refuses the condition too, its message is the one of AWS
	}
	var c Condition
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, Overlooked(err.Error())
	}
	for operator, keys := range c {
		base := operator[strings.IndexByte(operator, ':')+1:]
		for kind, known := range kinds {
			if !strings.HasPrefix(base, kind) {
				continue
			}
			for key := range keys {
				if !slices.ContainsFunc(known, func(k string) bool { return strings.HasPrefix(strings.ToLower(key), k) }) {
					return nil, overlookedf("condition operator %.64q cannot compare %.64q", operator, key)
				}
			}
		}
	}
	return parsed, nil
}

// gatewayKeys are the condition keys that versitygw accepts in a new policy.
var gatewayKeys = map[string]struct{}{
	"aws:sourceip": {}, "aws:currenttime": {}, "aws:epochtime": {}, "aws:securetransport": {}, "aws:useragent": {},
	"aws:referer": {}, "aws:username": {}, "aws:userid": {}, "s3:prefix": {}, "s3:delimiter": {}, "s3:max-keys": {},
	"s3:x-amz-acl": {}, "s3:versionid": {},
}

// spellCondition removes the conditions of a statement that versitygw does not know, and reports whether it removed
// any. Package document has its own check of all conditions.
func spellCondition(statement map[string]json.RawMessage) bool {
	var c Condition
	raw, ok := statement["Condition"]
	if !ok || json.Unmarshal(raw, &c) != nil {
		return false
	}
	if _, err := document.ParseConditions(raw, true); err != nil {
		return false // versitygw refuses the condition, or Check does
	}
	changed := false
	for operator, keys := range c {
		for key := range keys {
			if _, ok := gatewayKeys[strings.ToLower(key)]; !ok || strings.Contains(operator, "Arn") {
				delete(keys, key)
				changed = true
			}
		}
		if len(keys) == 0 {
			delete(c, operator)
		}
	}
	spelled, err := json.Marshal(c)
	if err != nil || !changed {
		return false
	}
	statement["Condition"] = spelled
	if len(c) == 0 {
		delete(statement, "Condition")
	}
	return true
}

// ofObject reports whether a condition depends on the object or the version of a request.
func ofObject(c Condition) bool {
	for _, keys := range c {
		for key := range keys {
			if key = strings.ToLower(key); key == "s3:versionid" || strings.HasPrefix(key, "s3:existingobjecttag/") {
				return true
			}
		}
	}
	return false
}

// resolvable is a rewritten policy whose conditions can be resolved for a request.
type resolvable struct {
	Version   json.RawMessage `json:",omitempty"`
	Statement []resolvableStatement
}

// resolvableStatement is a statement of a rewritten policy. versitygw ignores the fields NotPrincipal and NotResource,
// which Resolve evaluates.
type resolvableStatement struct {
	Effect    string
	Principal json.RawMessage
	Action    json.RawMessage
	Resource  json.RawMessage
	Condition json.RawMessage `json:",omitempty"`
	// NotPrincipal holds the access keys to which the statement does not apply. nil means that Principal decides.
	NotPrincipal *[]string `json:",omitempty"`
	// NotResource holds the resources that the statement does not cover, in the form of comparableResources.
	NotResource []string `json:",omitempty"`
}

// compileConditions compiles the conditions of a policy, by their text as the rewritten policy has it.
func (r *Rules) compileConditions(doc *bucketPolicy) {
	for i := range doc.statements {
		s := &doc.statements[i]
		r.ObjectConditions = r.ObjectConditions || s.notResource
		if s.condition == nil {
			continue
		}
		if r.conditions == nil {
			r.conditions = map[string]*document.Conditions{}
		}
		if c, err := document.ParseConditions(s.condition, doc.variables()); err == nil {
			r.conditions[textOf(s.condition)] = c
		}
		var c Condition
		r.ObjectConditions = r.ObjectConditions || json.Unmarshal(s.condition, &c) != nil || ofObject(c)
	}
}

// textOf returns a JSON text as json.Marshal writes it.
func textOf(raw json.RawMessage) string {
	text, err := json.Marshal(raw)
	if err != nil {
		return string(raw) // no valid JSON, which parse refuses
	}
	return string(text)
}

// Asked is what the requester of an operation asks for, as far as Resolve compares it with a policy.
type Asked struct {
	// Account is the access key of the user, or empty for a request without an account.
	Account string
	// Key is the key of the request's object. If Key is empty, no statement with NotResource allows anything on keys, and
	// each such statement that denies covers all keys.
	Key string
	// Request holds the values of condition keys.
	Request *document.Request
	// Many reports that the request names many objects. Statements that depend on the object are then resolved in favour
	// of the request, and the caller asks again for each object.
	Many bool
}

// Resolve returns a rewritten policy of r for one request. The returned policy has the statements whose conditions hold
// and whose NotPrincipal does not name the account. The conditions themselves and NotPrincipal are left out. A
// statement with NotResource gets the resources that versitygw then compares with the request.
func (r *Rules) Resolve(text []byte, asked Asked) ([]byte, error) {
	var doc resolvable
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("resolve the policy of bucket %s: %w", r.Of.Name, err)
	}
	kept := make([]resolvableStatement, 0, len(doc.Statement))
	for _, s := range doc.Statement {
		if s.sparesAccount(asked.Account) || s.Condition != nil && !r.holds(&s, asked.Request, asked.Many) {
			continue
		}
		switch {
		case s.NotResource == nil:
		case asked.Many:
			s.placeKeys(r.Of.Name, s.Effect == "Allow")
		case asked.Key != "":
			s.placeKeys(r.Of.Name, s.coversKey(r.Of.Name, asked.Key))
		}
		s.Condition, s.NotPrincipal, s.NotResource = nil, nil, nil
		kept = append(kept, s)
	}
	doc.Statement = kept
	return json.Marshal(doc)
}

// holds reports whether a statement with a condition applies to a request. A condition that cannot be evaluated makes a
// Deny apply and an Allow not apply.
func (r *Rules) holds(s *resolvableStatement, request *document.Request, many bool) bool {
	c, ok := r.conditions[textOf(s.Condition)]
	if !ok {
		return s.Effect == "Deny"
	}
	if many {
		var parsed Condition
		if json.Unmarshal(s.Condition, &parsed) != nil || ofObject(parsed) {
			return s.Effect == "Allow"
		}
	}
	return c.Hold(request)
}

// patternWork returns the number of bytes behind the first * of a pattern. Each byte of a text may be compared that
// many times.
func patternWork(pattern string) int {
	_, rest, _ := strings.Cut(pattern, "*")
	return len(rest) - strings.Count(rest, "*")
}
