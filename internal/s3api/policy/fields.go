// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Overlooked is a fault in a policy that the S3 library versitygw does not notice, such as an unknown field.
type Overlooked string

// Error returns the description of the fault in the policy.
func (o Overlooked) Error() string { return string(o) }

func overlookedf(format string, args ...any) error { return Overlooked(fmt.Sprintf(format, args...)) }

// field is a member of a JSON object.
type field struct {
	name  string
	value json.RawMessage
}

// fieldsOf returns the members of a JSON object in order. A repeated name is an error, because JSON parsers differ
// in which of the two values they use.
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
		f := field{name: t.(string)} // a name in JSON is always a string
		if _, twice := seen[f.name]; twice {
			return nil, overlookedf("field %.64q is given twice", f.name)
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

// stringsOf reads a string or a non-empty list of strings.
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

// readableText returns an error if a text has the Unicode replacement character, by which the JSON decoder replaces
// invalid Unicode. Such a text would match other keys than its author meant.
func readableText(all ...string) error {
	for _, text := range all {
		if strings.ContainsRune(text, utf8.RuneError) {
			return overlookedf("%.128q has a part that is no Unicode", text)
		}
	}
	return nil
}
