// SPDX-License-Identifier: Apache-2.0

package abi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
)

const optionsFix = "see nebulaio.h for the keys and their types"

// decode reads the options of a call strictly into a struct. Options are one JSON object, or "" for none. Every key
// is spelled as in the header and given once. Errors contain the key and the expected form, and the options unless
// they may hold a secret.
func decode(text string, into any) error {
	if text == "" {
		return nil
	}
	err := read(text, into)
	if e, ok := err.(*errs.Error); ok && !holdsSecrets(reflect.TypeOf(into).Elem()) {
		e.Name = text
		if len(text) > mostShown {
			e.Name = strings.ToValidUTF8(text[:mostShown], "") + "…"
		}
	}
	return err
}

// mostShown is the largest number of bytes of the options in an error.
const mostShown = 400

// holdsSecrets reports whether options of type t can contain the secret key of a server.
func holdsSecrets(t reflect.Type) bool {
	fields := map[string]reflect.Type{}
	keysOf(t, fields)
	return t == reflect.TypeFor[clientOptions]() || fields["client"] != nil
}

func read(text string, into any) error {
	d := json.NewDecoder(strings.NewReader(text))
	var raw json.RawMessage
	if err := d.Decode(&raw); err != nil {
		return badOption("", "options are not JSON: "+err.Error())
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return badOption("", "options have more than one JSON value; expected one object")
	}
	if raw[0] != '{' {
		return badOption("", "options are "+kindOf(raw)+`; expected an object, such as {"key": value}, or no text`)
	}
	if err := checkKeys("", raw, reflect.TypeOf(into).Elem()); err != nil {
		return err
	}
	err := json.Unmarshal(raw, into)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return badOption(fmt.Sprintf("%q", wrong.Field), "is "+wrong.Value+"; expected "+formOf(wrong.Type))
	}
	if err != nil {
		return badOption("", err.Error())
	}
	return nil
}

func badOption(what, why string) error {
	return errs.New(errs.Invalid, "read options", "", strings.TrimSpace(what+" "+why)).WithFix(optionsFix)
}

// checkKeys compares the keys of every object in raw with those of its type. encoding/json alone accepts keys in any
// case, and uses the last of several equal keys.
func checkKeys(at string, raw json.RawMessage, t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	isList, isObject := t.Kind() == reflect.Slice && raw[0] == '[', raw[0] == '{' &&
		(t.Kind() == reflect.Struct || t.Kind() == reflect.Map)
	if !isList && !isObject {
		return nil // json.Unmarshal returns the error
	}
	var fields map[string]reflect.Type
	if t.Kind() == reflect.Struct {
		fields = map[string]reflect.Type{}
		keysOf(t, fields)
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	_, _ = d.Token() // the bracket
	seen := map[string]bool{}
	for i := 0; d.More(); i++ {
		name, value := fmt.Sprintf("%s[%d]", at, i), reflect.Type(nil)
		if isObject {
			token, err := d.Token()
			if err != nil {
				return badOption("", err.Error())
			}
			key := token.(string)
			if name = key; at != "" {
				name = at + "." + key
			}
			if seen[key] {
				return badOption(fmt.Sprintf("%.80q", name), "is given twice; expected once")
			}
			seen[key] = true
			if fields != nil {
				if value = fields[key]; value == nil {
					return badOption(fmt.Sprintf("%.80q", name), "is not a key; expected one of "+strings.Join(sorted(fields), ", "))
				}
			}
		}
		if value == nil {
			value = t.Elem()
		}
		var next json.RawMessage
		if err := d.Decode(&next); err != nil {
			return badOption("", err.Error())
		}
		if err := checkKeys(name, next, value); err != nil {
			return err
		}
	}
	return nil
}

// keysOf collects the keys of a struct and of its embedded structs.
func keysOf(t reflect.Type, into map[string]reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			keysOf(f.Type, into)
		} else if key, _, _ := strings.Cut(f.Tag.Get("json"), ","); key != "" {
			into[key] = f.Type
		}
	}
}

func sorted(fields map[string]reflect.Type) []string {
	var out []string
	for key := range fields {
		out = append(out, key)
	}
	slices.Sort(out)
	return out
}

// kindOf returns the kind of a JSON value in words.
func kindOf(raw json.RawMessage) string {
	switch raw[0] {
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 'n':
		return "null"
	case 't', 'f':
		return "a bool"
	}
	return "a number"
}

// formOf returns in words the JSON form of a Go type.
func formOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return formOf(t.Elem())
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Uint64:
		return "a whole number of at least 0"
	}
	return "a whole number"
}
