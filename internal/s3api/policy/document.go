// SPDX-License-Identifier: Apache-2.0

// Package policy reads the access rules of a bucket: its policy, the grants in the policy, and the ACL that applies
// if there is no policy.
//
// The S3 library versitygw evaluates policies, but ignores parts of a policy that it does not know. If versitygw
// ignores a restriction in a policy, the bucket is more open than its policy says. Package policy refuses a new
// policy that has an unknown part, and rewrites every policy so that versitygw makes the same decisions as S3.
package policy

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/versity/versitygw/auth"

	"github.com/nebulaio/nebulaio/internal/iam/document"
)

// MaxSize is the largest size of a bucket policy in bytes, as in S3.
const MaxSize = 20 << 10

// allowNothing is a policy that allows nothing.
const allowNothing = `{"Statement":[]}`

// denyEveryone returns a policy that denies everything in a bucket to everybody.
func denyEveryone(bucket string) []byte {
	return fmt.Appendf(nil, `{"Statement":[{"Effect":"Deny","Principal":"*","Action":"s3:*","Resource":[%q,%q]}]}`,
		auth.ResourceArnPrefix+bucket, keysARN(bucket, byBytes, "*"))
}

// bucketPolicy is a parsed bucket policy.
type bucketPolicy struct {
	bucket     string
	version    json.RawMessage // nil if the field is missing
	statements []statement
}

// statement is one statement of a policy. fault says why the server does not understand the statement, or is nil.
type statement struct {
	effect     string
	principals []string // "*", access keys and ARNs, as in the policy
	services   []string // service principals, such as logging.s3.amazonaws.com
	action     json.RawMessage
	resource   json.RawMessage
	condition  json.RawMessage // nil if the field is missing
	fault      error

	// notPrincipal, notAction and notResource report that the statement names what it does not cover.
	notPrincipal, notAction, notResource bool

	resourceWork, conditionWork int // number of bytes behind a * in the statement's patterns
}

// variables reports whether the version of the policy language has variables such as ${aws:username}.
func (p *bucketPolicy) variables() bool { return string(p.version) == `"`+ownVersion+`"` }

// parse reads the policy of a bucket. A statement that the server does not understand is returned with its fault.
// The error says why the document as a whole is not understood.
func parse(text []byte, bucket string) (*bucketPolicy, error) {
	fields, err := fieldsOf(text)
	if err != nil {
		return nil, err
	}
	doc := &bucketPolicy{bucket: bucket}
	var list json.RawMessage
	for _, f := range fields {
		switch f.Name {
		case "Version":
			doc.version = f.Value
		case "Id":
			if err := json.Unmarshal(f.Value, new(string)); err != nil {
				return nil, fmt.Errorf("field Id has the value %.64s, expected a string", f.Value)
			}
		case "Statement":
			list = f.Value
		default:
			return nil, overlookedf("unknown field %.64q, expected Version, Id or Statement", f.Name)
		}
	}
	if list == nil {
		return nil, overlookedf("missing required field Statement")
	}
	var raws []json.RawMessage
	if err := json.Unmarshal(list, &raws); err != nil || raws == nil {
		return nil, fmt.Errorf("field Statement has another value than a list of statements")
	}
	resources, conditions := 0, 0
	for i, raw := range raws {
		s, err := parseStatement(raw, bucket, doc.variables())
		resources, conditions = resources+s.resourceWork, conditions+s.conditionWork
		if err == nil && (resources > maxResourcePatterns || conditions > maxConditionPatterns) {
			err = overlookedf("the policy's patterns have too much text behind a *, expected at most %d bytes in Resource "+
				"and %d in Condition",
				maxResourcePatterns, maxConditionPatterns)
		}
		if err != nil {
			s.fault = fmt.Errorf("statement %d: %w", i+1, err)
		}
		doc.statements = append(doc.statements, s)
	}
	return doc, nil
}

// parseStatement reads one statement. If parseStatement fails, the returned statement still has its effect, if the
// effect is valid.
func parseStatement(raw []byte, bucket string, variables bool) (statement, error) {
	var s statement
	fields, err := fieldsOf(raw)
	if err != nil {
		return s, err
	}
	var unknown error
	var principal json.RawMessage
	for _, f := range fields {
		switch f.Name {
		case "Sid":
			err = json.Unmarshal(f.Value, new(string))
		case "Effect":
			if err = json.Unmarshal(f.Value, &s.effect); err == nil && s.effect != "Allow" && s.effect != "Deny" {
				err = fmt.Errorf("expected Allow or Deny")
			}
		case "Principal", "NotPrincipal":
			principal, s.notPrincipal, err = oneOf(principal, f)
		case "Action", "NotAction":
			s.action, s.notAction, err = oneOf(s.action, f)
		case "Resource", "NotResource":
			s.resource, s.notResource, err = oneOf(s.resource, f)
		case "Condition":
			s.condition = f.Value
		default:
			err = Overlooked("unknown field, expected Sid, Effect, Principal, NotPrincipal, Action, NotAction, Resource, " +
				"NotResource or Condition")
		}
		if err != nil && unknown == nil {
			unknown = fmt.Errorf("field %.64q: %w", f.Name, err)
		}
		err = nil
	}
	switch {
	case unknown != nil:
		return s, unknown
	case s.effect == "":
		return s, overlookedf("missing required field Effect")
	case principal == nil:
		return s, overlookedf("missing required field Principal or NotPrincipal")
	case s.notPrincipal && s.effect == "Allow":
		return s, overlookedf("field NotPrincipal with the effect Allow, expected Deny: name those who may in Principal")
	case s.action == nil:
		return s, overlookedf("missing required field Action or NotAction")
	case s.resource == nil:
		return s, overlookedf("missing required field Resource or NotResource")
	}
	if s.principals, s.services, err = principalsOf(principal); err != nil {
		return s, fmt.Errorf("field %s: %w", fieldName("Principal", s.notPrincipal), err)
	}
	if err = checkActions(s.action, s.notAction); err != nil {
		return s, fmt.Errorf("field %s: %w", fieldName("Action", s.notAction), err)
	}
	if s.resourceWork, err = checkResources(s.resource, bucket); err != nil {
		return s, fmt.Errorf("field %s: %w", fieldName("Resource", s.notResource), err)
	}
	if s.condition != nil {
		conditions, err := parseConditions(s.condition, variables)
		if err != nil {
			return s, fmt.Errorf("field Condition: %w", err)
		}
		s.conditionWork = conditions.Work()
	}
	return s, nil
}

// oneOf returns the value of a field and whether its name begins with Not. oneOf returns an error if the statement has
// the field's counterpart, such as Action beside NotAction, whose value is given.
func oneOf(given json.RawMessage, f document.Field) (value json.RawMessage, negated bool, err error) {
	name, negated := strings.CutPrefix(f.Name, "Not")
	if given != nil {
		return given, negated, overlookedf("the statement has both %s and Not%s, expected one of them", name, name)
	}
	return f.Value, negated, nil
}

// fieldName returns the name of a field, with Not before the name if the field is negated.
func fieldName(name string, negated bool) string {
	if negated {
		return "Not" + name
	}
	return name
}

// checkActions returns an error if actions cannot be read. An action that the server does not know is an error in
// NotAction, because the statement would cover more than its author meant. In Action, versitygw refuses it.
func checkActions(raw []byte, negated bool) error {
	names, err := stringsOf(raw)
	if err != nil || !negated {
		return err
	}
	for _, name := range names {
		if actionsLike(name) == nil {
			return overlookedf("action %.128q, expected an action of S3 such as s3:GetObject, s3:Get* or s3:*", name)
		}
	}
	return nil
}

// checkResources returns an error if a resource cannot be in the bucket. work is the cost of comparing the
// resources: see patternWork.
func checkResources(raw []byte, bucket string) (work int, err error) {
	names, err := stringsOf(raw)
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		rest, ok := strings.CutPrefix(name, auth.ResourceArnPrefix)
		if !ok {
			return 0, fmt.Errorf("%.128q, expected %s%s or %s%s/KEY", name, auth.ResourceArnPrefix, bucket,
				auth.ResourceArnPrefix, bucket)
		}
		of, _, _ := strings.Cut(rest, "/")
		if match, err := path.Match(of, bucket); of != bucket && (!match || err != nil || strings.ContainsAny(of, `[\`)) {
			return 0, fmt.Errorf("%.128q speaks of another bucket than %q", name, bucket)
		}
		if strings.Contains(rest, "${") {
			return 0, overlookedf("%.128q has a variable, which this server does not support", name)
		}
		work += patternWork(rest)
	}
	return work, nil
}

// rewrite returns the policy in the form that versitygw evaluates: principals are access keys, and match.go
// describes the form of actions and resources. not.go describes the form of NotPrincipal, NotAction and NotResource.
// Statements that name only services are left out. fault is the first fault of a statement. sealed reports that the
// server does not understand a restriction; the returned policy then keeps its Deny statements and has no Allow
// statements.
func (p *bucketPolicy) rewrite(root string) (text []byte, sealed bool, fault error) {
	out := resolvable{Version: p.version, Statement: []resolvableStatement{}}
	for i := range p.statements {
		s := &p.statements[i]
		if s.fault == nil {
			r, covers, err := s.rewrite(p.bucket)
			if err == nil && covers && r.nameAccounts(s, root) {
				out.Statement = append(out.Statement, r)
			}
			if err != nil {
				return []byte(allowNothing), true, err // cannot happen: parse has checked the statement
			}
			continue
		}
		if fault == nil {
			fault = s.fault
		}
		sealed = sealed || s.effect != "Allow"
	}
	if sealed {
		out.Statement = slices.DeleteFunc(out.Statement, func(s resolvableStatement) bool { return s.Effect == "Allow" })
	}
	text, err := json.Marshal(out)
	if err == nil {
		_, err = auth.ParsePolicyDocument(text)
	}
	if err != nil {
		return []byte(allowNothing), true, err
	}
	return text, sealed, fault
}

// Check returns an error if the text of a bucket policy is too large, or if this server does not understand a part of
// the policy.
func Check(text []byte, bucket string) error {
	if len(text) > MaxSize {
		return overlookedf("the policy has %d bytes, expected at most %d", len(text), MaxSize)
	}
	doc, err := parse(text, bucket)
	if err != nil {
		return err
	}
	for i := range doc.statements {
		if doc.statements[i].fault != nil {
			return doc.statements[i].fault
		}
	}
	return nil
}
