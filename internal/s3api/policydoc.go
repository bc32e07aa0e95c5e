// SPDX-License-Identifier: Apache-2.0

package s3api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/s3err"
)

// versitygw passes over what it does not know in a policy. Where the part that was passed over is a restriction,
// the bucket is more open than its policy says. So every policy is first read here, where nothing is passed over.

// maxPolicy bounds a bucket policy, as S3 does.
const maxPolicy = 20 << 10

// noPolicy is a policy that allows nothing.
const noPolicy = `{"Statement":[]}`

// everyoneDenied returns a policy that denies everything in a bucket to everybody.
func everyoneDenied(bucket string) []byte {
	return fmt.Appendf(nil, `{"Statement":[{"Effect":"Deny","Principal":"*","Action":"s3:*","Resource":[%q,%q]}]}`,
		auth.ResourceArnPrefix+bucket, keysARN(bucket, byBytes, "*"))
}

// policyDoc is a bucket policy.
type policyDoc struct {
	bucket     string
	version    json.RawMessage // nil: none is given
	statements []policyStatement
}

// policyStatement is one statement of a policy, or fault where it is not understood.
type policyStatement struct {
	effect     string
	principals []string // "*", access keys and ARNs, as they were written
	action     json.RawMessage
	resource   json.RawMessage
	condition  json.RawMessage // nil: none is given
	fault      error

	resourceWork, conditionWork int // bytes behind a * in its patterns
}

// parsePolicy reads the policy of a bucket. Statements that are not understood are returned with a fault. The error
// says why the document as a whole is not understood.
func parsePolicy(text []byte, bucket string) (*policyDoc, error) {
	fields, err := fieldsOf(text)
	if err != nil {
		return nil, err
	}
	doc := &policyDoc{bucket: bucket}
	var list json.RawMessage
	for _, f := range fields {
		switch f.name {
		case "Version":
			doc.version = f.value
		case "Id":
			if err := json.Unmarshal(f.value, new(string)); err != nil {
				return nil, fmt.Errorf("field Id has the value %.64s, expected a string", f.value)
			}
		case "Statement":
			list = f.value
		default:
			return nil, strangef("unknown field %.64q, expected Version, Id or Statement", f.name)
		}
	}
	if list == nil {
		return nil, strangef("missing required field Statement")
	}
	var raws []json.RawMessage
	if err := json.Unmarshal(list, &raws); err != nil || raws == nil {
		return nil, fmt.Errorf("field Statement has another value than a list of statements")
	}
	resources, conditions := 0, 0
	for i, raw := range raws {
		s, err := parseStatement(raw, bucket)
		resources, conditions = resources+s.resourceWork, conditions+s.conditionWork
		if err == nil && (resources > maxResourcePatterns || conditions > maxConditionPatterns) {
			err = strangef("the policy's patterns have too much text behind a *, expected at most %d bytes in Resource and %d in Condition",
				maxResourcePatterns, maxConditionPatterns)
		}
		if err != nil {
			s.fault = fmt.Errorf("statement %d: %w", i+1, err)
		}
		doc.statements = append(doc.statements, s)
	}
	return doc, nil
}

// parseStatement reads one statement. Where it fails, the statement has an effect if that much was understood.
func parseStatement(raw []byte, bucket string) (policyStatement, error) {
	var s policyStatement
	fields, err := fieldsOf(raw)
	if err != nil {
		return s, err
	}
	var unknown error
	var principal json.RawMessage
	for _, f := range fields {
		switch f.name {
		case "Sid":
			err = json.Unmarshal(f.value, new(string))
		case "Effect":
			if err = json.Unmarshal(f.value, &s.effect); err == nil && s.effect != "Allow" && s.effect != "Deny" {
				err = fmt.Errorf("expected Allow or Deny")
			}
		case "Principal":
			principal = f.value
		case "Action":
			s.action = f.value
		case "Resource":
			s.resource = f.value
		case "Condition":
			s.condition = f.value
		case "NotPrincipal", "NotAction", "NotResource":
			err = strange("this server does not support it")
		default:
			err = strange("unknown field, expected Sid, Effect, Principal, Action, Resource or Condition")
		}
		if err != nil && unknown == nil {
			unknown = fmt.Errorf("field %.64q: %w", f.name, err)
		}
		err = nil
	}
	switch {
	case unknown != nil:
		return s, unknown
	case s.effect == "":
		return s, strangef("missing required field Effect")
	case principal == nil:
		return s, strangef("missing required field Principal")
	case s.action == nil:
		return s, strangef("missing required field Action")
	case s.resource == nil:
		return s, strangef("missing required field Resource")
	}
	if s.principals, err = principalsOf(principal); err != nil {
		return s, fmt.Errorf("field Principal: %w", err)
	}
	if _, err = stringsOf(s.action); err != nil {
		return s, fmt.Errorf("field Action: %w", err)
	}
	if s.resourceWork, err = checkResources(s.resource, bucket); err != nil {
		return s, fmt.Errorf("field Resource: %w", err)
	}
	if s.conditionWork, err = checkCondition(s.condition); err != nil {
		return s, fmt.Errorf("field Condition: %w", err)
	}
	return s, nil
}

// checkResources refuses resources that can never be one of the bucket's. It returns what comparing them takes.
func checkResources(raw []byte, bucket string) (work int, err error) {
	names, err := stringsOf(raw)
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		rest, ok := strings.CutPrefix(name, auth.ResourceArnPrefix)
		if !ok {
			return 0, fmt.Errorf("%.128q, expected %s%s or %s%s/KEY", name, auth.ResourceArnPrefix, bucket, auth.ResourceArnPrefix, bucket)
		}
		of, _, _ := strings.Cut(rest, "/")
		if match, err := path.Match(of, bucket); of != bucket && (!match || err != nil || strings.ContainsAny(of, `[\`)) {
			return 0, fmt.Errorf("%.128q speaks of another bucket than %q", name, bucket)
		}
		if strings.Contains(rest, "${") {
			return 0, strangef("%.128q has a variable, which this server does not support", name)
		}
		work += patternWork(rest)
	}
	return work, nil
}

// strange says that a policy has a field too many or too few, which versitygw passes over.
type strange string

func (s strange) Error() string { return string(s) }

func strangef(format string, args ...any) error { return strange(fmt.Sprintf(format, args...)) }

// field is a member of a JSON object.
type field struct {
	name  string
	value json.RawMessage
}

// fieldsOf returns the members of a JSON object in order. A name that comes twice is an error: every reader would
// take another one.
func fieldsOf(raw []byte) ([]field, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("%.64q, expected a JSON object", raw)
	}
	var out []field
	seen := map[string]struct{}{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("no valid JSON: %w", err)
		}
		f := field{name: t.(string)} // the decoder allows no other name
		if _, twice := seen[f.name]; twice {
			return nil, strangef("field %.64q is given twice", f.name)
		}
		seen[f.name] = struct{}{}
		if err := d.Decode(&f.value); err != nil {
			return nil, fmt.Errorf("no valid JSON: %w", err)
		}
		out = append(out, f)
	}
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("no valid JSON: %w", err)
	}
	if d.More() {
		return nil, fmt.Errorf("something follows the JSON object")
	}
	return out, nil
}

// stringsOf reads a string or a list of strings that is not empty.
func stringsOf(raw []byte) ([]string, error) {
	var one string
	if json.Unmarshal(raw, &one) == nil && string(raw) != "null" {
		return []string{one}, readableText(one)
	}
	var many []string
	if err := json.Unmarshal(raw, &many); err != nil || len(many) == 0 {
		return nil, fmt.Errorf("%.64s, expected a string or a list of strings", raw)
	}
	return many, readableText(many...)
}

// readableText refuses text that JSON has replaced a part of, since that was no Unicode: it would be compared with
// something else than was written.
func readableText(all ...string) error {
	for _, text := range all {
		if strings.ContainsRune(text, utf8.RuneError) {
			return strangef("%.128q has a part that is no Unicode", text)
		}
	}
	return nil
}

// principalsOf reads a Principal: "*", or {"AWS": …}. Names that stand alone are taken as versitygw takes them.
func principalsOf(raw []byte) ([]string, error) {
	if t := bytes.TrimSpace(raw); len(t) > 0 && t[0] == '{' {
		kinds, err := fieldsOf(raw)
		if err != nil {
			return nil, err
		}
		for _, k := range kinds {
			if k.name != "AWS" {
				return nil, strangef("unknown field %.64q, expected AWS", k.name)
			}
		}
		if len(kinds) == 0 {
			return nil, strangef("missing required field AWS")
		}
		raw = kinds[0].value
	}
	names, err := stringsOf(raw)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if _, _, err := principalOf(name); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// principalOf returns the access key that a principal names. whole says that it names an account of AWS as a
// whole, as arn:aws:iam::123456789012:root does, which is all accounts of this server.
func principalOf(name string) (access string, whole bool, err error) {
	arn, ok := strings.CutPrefix(name, "arn:")
	if !ok {
		if name == "" {
			return "", false, fmt.Errorf("an empty principal, expected an access key")
		}
		return name, false, nil
	}
	bad := fmt.Errorf("principal %.128q, expected *, an access key, "+
		"arn:aws:iam::123456789012:user/ACCESS-KEY or arn:aws:iam::123456789012:root", name)
	parts := strings.SplitN(arn, ":", 5)
	if len(parts) != 5 || parts[0] != "aws" && !strings.HasPrefix(parts[0], "aws-") || parts[1] != "iam" || parts[2] != "" ||
		len(parts[3]) != 12 || !digits(parts[3]) {
		return "", false, bad
	}
	if parts[4] == "root" {
		return "", true, nil
	}
	user, ok := strings.CutPrefix(parts[4], "user/")
	user = user[strings.LastIndexByte(user, '/')+1:] // IAM lets users have a path before their name
	if !ok || user == "" || strings.ContainsAny(user, "*?") {
		return "", false, bad
	}
	return user, false, nil
}

func digits(s string) bool { return strings.Trim(s, "0123456789") == "" }

// understood returns the policy as versitygw judges by it, with access keys for principals and with actions and
// resources in the form that it compares as S3 does. It also returns the first fault
// that was found. sealed says that a restriction was not understood: then the policy denies what it denies, and
// allows nothing.
func (p *policyDoc) understood(root string) (text []byte, sealed bool, fault error) {
	type statement struct {
		Effect    string
		Principal map[string][]string
		Action    json.RawMessage
		Resource  json.RawMessage
		Condition json.RawMessage `json:",omitempty"`
	}
	out := struct {
		Version   json.RawMessage `json:",omitempty"`
		Statement []statement
	}{Version: p.version, Statement: []statement{}}
	for i := range p.statements {
		s := &p.statements[i]
		if s.fault == nil {
			action, err := comparedActions(s.action)
			resource, failed := comparedResources(s.resource, p.bucket)
			if err != nil || failed != nil {
				return []byte(noPolicy), true, errors.Join(err, failed) // both have been read before
			}
			out.Statement = append(out.Statement, statement{
				Effect: s.effect, Principal: map[string][]string{"AWS": s.accounts(root)},
				Action: action, Resource: resource, Condition: s.condition,
			})
			continue
		}
		if fault == nil {
			fault = s.fault
		}
		sealed = sealed || s.effect != "Allow"
	}
	if sealed {
		out.Statement = slices.DeleteFunc(out.Statement, func(s statement) bool { return s.Effect == "Allow" })
	}
	text, err := json.Marshal(out)
	if err == nil {
		_, err = auth.ParsePolicyDocument(text)
	}
	if err != nil {
		return []byte(noPolicy), true, err
	}
	return text, sealed, fault
}

// accounts returns the access keys that a statement speaks of. An AWS account as a whole delegates where it is
// allowed something, so that root alone, who may do everything, is meant; denied, everybody is.
func (s *policyStatement) accounts(root string) []string {
	out := make([]string, 0, len(s.principals))
	for _, name := range s.principals {
		access, whole, err := principalOf(name)
		switch {
		case err != nil: // checked when it was read
		case whole && s.effect == "Deny":
			return []string{"*"}
		case whole:
			out = append(out, root)
		default:
			out = append(out, access)
		}
	}
	return out
}

// policyFault says why a policy is not accepted, nil where its form is understood.
func policyFault(text []byte, bucket string) error {
	if len(text) > maxPolicy {
		return strangef("the policy has %d bytes, expected at most %d", len(text), maxPolicy)
	}
	doc, err := parsePolicy(text, bucket)
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

// malformed refuses a policy in S3's words.
func malformed(fault error) s3err.S3Error {
	what := fault.Error()
	return refusal(http.StatusBadRequest, "MalformedPolicy", strings.ToUpper(what[:1])+what[1:])
}
