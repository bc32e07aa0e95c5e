// SPDX-License-Identifier: Apache-2.0

package document

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Ambiguous is a fault in a policy that other parsers of JSON do not notice, such as a name that is given twice.
// Parsers differ in what they make of such a policy.
type Ambiguous string

// Error returns the description of the fault.
func (a Ambiguous) Error() string { return string(a) }

func ambiguousf(format string, args ...any) error { return Ambiguous(fmt.Sprintf(format, args...)) }

// Field is a member of a JSON object.
type Field struct {
	Name  string
	Value json.RawMessage
}

// FieldsOf returns the members of a JSON object in order. A repeated name is an Ambiguous fault.
func FieldsOf(raw []byte) ([]Field, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("%.64q, expected a JSON object", raw)
	}
	var out []Field
	seen := map[string]struct{}{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("no valid JSON: %w", err)
		}
		f := Field{Name: t.(string)} // a name in JSON is always a string
		if _, twice := seen[f.Name]; twice {
			return nil, ambiguousf("field %.64q is given twice", f.Name)
		}
		seen[f.Name] = struct{}{}
		if err := d.Decode(&f.Value); err != nil {
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

// stringsOf reads a string or a non-empty list of strings.
func stringsOf(raw []byte) ([]string, error) {
	var one string
	if json.Unmarshal(raw, &one) == nil && string(raw) != "null" {
		return []string{one}, Readable(one)
	}
	var many []string
	if json.Unmarshal(raw, &many) != nil || len(many) == 0 || bytes.Contains(raw, []byte("null")) && hasNull(raw) {
		return nil, fmt.Errorf("%.64s, expected a string or a list of strings", raw)
	}
	return many, Readable(many...)
}

// hasNull reports whether a list has the element null, which the decoder takes for an empty string.
func hasNull(raw []byte) bool {
	var list []*string
	if json.Unmarshal(raw, &list) != nil {
		return true
	}
	for _, s := range list {
		if s == nil {
			return true
		}
	}
	return false
}

// ScalarsOf reads a string, a number or a boolean, or a non-empty list of them, as texts.
func ScalarsOf(raw []byte) ([]string, error) {
	list := []json.RawMessage{raw}
	if len(raw) > 0 && raw[0] == '[' {
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, err
		}
		if len(list) == 0 {
			return nil, ambiguousf("the list of values is empty")
		}
	}
	out := make([]string, len(list))
	for i, v := range list {
		switch {
		case len(v) > 0 && v[0] == '"':
			if err := json.Unmarshal(v, &out[i]); err != nil {
				return nil, err
			}
		case len(v) == 0 || v[0] == '{' || v[0] == '[' || string(v) == "null":
			return nil, fmt.Errorf("%.64s, expected a string, a number or a boolean", v)
		default:
			out[i] = string(v)
		}
	}
	return out, Readable(out...)
}

// Readable returns an Ambiguous fault if a text has the Unicode replacement character, by which the JSON decoder
// replaces invalid Unicode. A text with replaced characters would match other keys than its author meant.
func Readable(all ...string) error {
	for _, text := range all {
		if strings.ContainsRune(text, utf8.RuneError) {
			return ambiguousf("%.128q has a part that is no Unicode", text)
		}
	}
	return nil
}
