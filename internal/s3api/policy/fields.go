// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nebulaio/nebulaio/internal/iam/document"
)

// Overlooked is a fault in a policy that the S3 library versitygw does not notice, such as an unknown field.
type Overlooked string

// Error returns the description of the fault in the policy.
func (o Overlooked) Error() string { return string(o) }

func overlookedf(format string, args ...any) error { return Overlooked(fmt.Sprintf(format, args...)) }

// overlooked returns a fault as Overlooked if it is one that parsers of JSON do not notice, versitygw's among them.
func overlooked(err error) error {
	var fault document.Ambiguous
	if errors.As(err, &fault) {
		return Overlooked(fault)
	}
	return err
}

// fieldsOf returns the members of a JSON object in order. A repeated name is an error.
func fieldsOf(raw []byte) ([]document.Field, error) {
	fields, err := document.FieldsOf(raw)
	return fields, overlooked(err)
}

// scalarsOf reads a string, a number or a boolean, or a non-empty list of them, as texts.
func scalarsOf(raw []byte) ([]string, error) {
	values, err := document.ScalarsOf(raw)
	return values, overlooked(err)
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

// readableText returns an error if a text has a part that is no Unicode.
func readableText(all ...string) error { return overlooked(document.Readable(all...)) }
