// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// ownVersion is the Version element of a policy that this package creates.
const ownVersion = "2012-10-17"

// plainJSON returns v as JSON without escapes for <, > and &. Such escapes could make a policy exceed MaxSize even
// if a statement is removed.
func plainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func sidOf(raw json.RawMessage) string {
	var s struct{ Sid string }
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s.Sid
}

// rawDocument is a bucket policy with the original text of its statements.
type rawDocument struct {
	version, id json.RawMessage
	statements  []json.RawMessage
}

func split(text []byte) (*rawDocument, error) {
	fields, err := fieldsOf(text)
	if err != nil {
		return nil, err
	}
	doc := &rawDocument{}
	for _, f := range fields {
		switch f.Name {
		case "Version":
			doc.version = f.Value
		case "Id":
			doc.id = f.Value
		case "Statement":
			if err := json.Unmarshal(f.Value, &doc.statements); err != nil {
				return nil, err
			}
		}
	}
	return doc, nil
}

// editPolicy replaces the statements of a bucket's policy. If no statement is left, the policy is removed. The new
// policy must pass the same checks as a policy that a client puts.
func editPolicy(bk *object.Bucket, root string, edit func([]json.RawMessage) ([]json.RawMessage, error)) (changed bool,
	err error) {
	const op, fix = "change the policy of", "read it with aws s3api get-bucket-policy, and put one without that part"
	old := bk.Settings[Setting]
	doc := &rawDocument{version: json.RawMessage(`"` + ownVersion + `"`)}
	if old != nil {
		if fault := Check(old, bk.Name); fault != nil {
			return false, errs.New(errs.Invalid, op, bk.Name, "the policy that it has is not understood: "+
				fault.Error()).WithFix(fix)
		}
		if doc, err = split(old); err != nil {
			return false, errs.New(errs.Invalid, op, bk.Name, err.Error()).WithFix(fix)
		}
	}
	before := slices.Clone(doc.statements)
	if doc.statements, err = edit(doc.statements); err != nil {
		return false, errs.Wrap(op, bk.Name, err)
	}
	if slices.EqualFunc(before, doc.statements, func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }) {
		return false, nil
	}
	if len(doc.statements) == 0 {
		delete(bk.Settings, Setting)
		return true, nil
	}
	text, err := plainJSON(struct {
		Version   json.RawMessage `json:",omitempty"`
		ID        json.RawMessage `json:"Id,omitempty"`
		Statement []json.RawMessage
	}{doc.version, doc.id, doc.statements})
	if err != nil {
		return false, errs.Wrap(op, bk.Name, err)
	}
	if len(text) > MaxSize {
		return false, errs.New(errs.Invalid, op, bk.Name,
			fmt.Sprintf("the policy would have %d bytes, expected at most %d", len(text), MaxSize)).
			WithFix("revoke grants that nobody needs, or grant several users by one statement of your own")
	}
	if fault := Check(text, bk.Name); fault != nil {
		return false, errs.New(errs.Invalid, op, bk.Name, fault.Error()).WithFix(fix)
	}
	parsed, err := parse(text, bk.Name)
	if err == nil {
		_, _, err = parsed.rewrite(root)
	}
	if err != nil {
		return false, errs.New(errs.Invalid, op, bk.Name, err.Error()).WithFix(fix)
	}
	if bk.Settings == nil {
		bk.Settings = map[string][]byte{}
	}
	bk.Settings[Setting] = text
	return true, nil
}
