// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Largest number of bytes behind a * in all patterns of a policy. A comparison takes up to that many steps for each
// byte of a header or a key. The limit for keys is lower, because one request can delete 1,000 keys and each key is
// compared.
const (
	maxConditionPatterns = 2 << 10
	maxResourcePatterns  = 512
)

// valueKind is the set of types of a condition key's values. Every value is also text.
type valueKind int

const (
	asText   valueKind = 0
	asNumber valueKind = 1 << iota
	asDate
	asTruth
	asAddress
)

// conditionKeys lists the condition keys that versitygw sets for a request, with the types of their values.
// versitygw accepts more keys, but those never match.
var conditionKeys = map[string]valueKind{
	"aws:sourceip": asAddress, "aws:currenttime": asDate, "aws:epochtime": asDate | asNumber,
	"aws:securetransport": asTruth,
	"aws:useragent":       asText, "aws:referer": asText, "s3:prefix": asText, "s3:delimiter": asText,
	"s3:max-keys":  asNumber,
	"s3:x-amz-acl": asText, versionKey: asText,
}

// versionKey is the condition key of the version in a request.
const versionKey = "s3:versionid"

// operator describes a condition operator.
type operator struct {
	of    valueKind
	check func(value string) bool // whether this operator can compare the value
	want  string                  // the expected form of a value, for errors
	like  bool                    // values are patterns
}

// operatorOf returns the operator with a name such as ForAnyValue:StringLikeIfExists. versitygw refuses unknown
// operators too.
func operatorOf(name string) (operator, bool) {
	for _, set := range []string{"ForAllValues:", "ForAnyValue:"} {
		if rest, ok := strings.CutPrefix(name, set); ok {
			name = rest
			break
		}
	}
	if name == "Null" {
		return operator{of: asText, check: isTruth, want: "true or false"}, true
	}
	switch base := strings.TrimSuffix(name, "IfExists"); base {
	case "StringEquals", "StringNotEquals", "StringEqualsIgnoreCase", "StringNotEqualsIgnoreCase", "BinaryEquals":
		return operator{of: asText, check: func(string) bool { return true }}, true
	case "StringLike", "StringNotLike":
		return operator{of: asText, check: func(string) bool { return true }, like: true}, true
	case "Bool":
		return operator{of: asTruth, check: isTruth, want: "true or false"}, true
	case "IpAddress", "NotIpAddress":
		return operator{of: asAddress, check: func(string) bool { return true }}, true // versitygw checks addresses
	default:
		for prefix, op := range map[string]operator{
			"Numeric": {of: asNumber, check: isNumber, want: "a number"},
			"Date":    {of: asDate, check: isDate, want: "a time such as 2030-12-31T23:59:59Z, or seconds since 1970"},
		} {
			if how, ok := strings.CutPrefix(base, prefix); ok {
				switch how {
				case "Equals", "NotEquals", "LessThan", "LessThanEquals", "GreaterThan", "GreaterThanEquals":
					return op, true
				}
			}
		}
	}
	return operator{}, false
}

func isTruth(v string) bool { return strings.EqualFold(v, "true") || strings.EqualFold(v, "false") }

func isNumber(v string) bool {
	f, err := strconv.ParseFloat(v, 64)
	return err == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
}

// isDate reports whether versitygw can parse a value as a time. AWS also accepts shorter forms, such as a date
// without a time.
func isDate(v string) bool {
	_, err := time.Parse(time.RFC3339, v)
	return err == nil || isNumber(v)
}

// checkCondition returns an error if versitygw would misread a condition, or if a condition can never be true. work
// is the cost of comparing the patterns: see patternWork.
func checkCondition(raw []byte) (work int, err error) {
	if raw == nil {
		return 0, nil
	}
	operators, err := fieldsOf(raw)
	if err != nil {
		return 0, err
	}
	for _, o := range operators {
		keys, err := fieldsOf(o.value)
		if err != nil {
			return 0, fmt.Errorf("%.64q: %w", o.name, err)
		}
		if len(keys) == 0 {
			return 0, overlookedf("%.64q has no condition key", o.name)
		}
		seen := map[string]struct{}{}
		for _, k := range keys {
			name := strings.ToLower(k.name)
			if _, ok := conditionKeys[name]; !ok {
				return 0, fmt.Errorf("condition key %.64q is not one that this server knows", k.name)
			}
			if _, twice := seen[name]; twice {
				return 0, overlookedf("condition key %.64q is given twice", k.name)
			}
			seen[name] = struct{}{}
			n, err := checkComparison(o.name, k)
			if err != nil {
				return 0, err
			}
			work += n
		}
	}
	return work, nil
}

// checkComparison returns an error if the operator cannot compare the values. A Deny statement with such a
// condition would never apply.
func checkComparison(name string, key field) (work int, err error) {
	op, ok := operatorOf(name)
	if !ok {
		return 0, fmt.Errorf("condition operator %.64q is not one that this server knows", name)
	}
	if op.of != asText && conditionKeys[strings.ToLower(key.name)]&op.of == 0 {
		return 0, overlookedf("condition operator %.64q cannot compare %.64q", name, key.name)
	}
	values, err := scalarsOf(key.value)
	if err != nil {
		return 0, fmt.Errorf("condition key %.64q: %w", key.name, err)
	}
	for _, v := range values {
		switch {
		case strings.Contains(v, "${"):
			return 0, overlookedf("condition key %.64q: %.128q has a variable, which this server does not support", key.name, v)
		case !op.check(v):
			return 0, overlookedf("condition key %.64q: the value %.128q, expected %s for %s", key.name, v, op.want, name)
		case op.like:
			work += patternWork(v)
		}
	}
	return work, nil
}

// scalarsOf reads a string, a number or a boolean, or a non-empty list of them.
func scalarsOf(raw []byte) ([]string, error) {
	list := []json.RawMessage{raw}
	if len(raw) > 0 && raw[0] == '[' {
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, err
		}
		if len(list) == 0 {
			return nil, overlookedf("the list of values is empty")
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
	return out, readableText(out...)
}

// patternWork returns the number of bytes behind the first * of a pattern. Each byte of a text may be compared that
// many times.
func patternWork(pattern string) int {
	_, rest, _ := strings.Cut(pattern, "*")
	return len(rest) - strings.Count(rest, "*")
}

// CompareStars rewrites the conditions of a policy for a request that has values with up to run characters * in a row.
// If a value has a *, versitygw takes the wildcard * of a pattern for that character, and a Deny may not apply.
// CompareStars writes run+1 wildcards for each one, so that at least one stays a wildcard.
func CompareStars(text []byte, run int) ([]byte, error) {
	var document map[string]json.RawMessage
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	var statements []map[string]json.RawMessage
	if err := json.Unmarshal(document["Statement"], &statements); err != nil {
		return nil, err
	}
	for _, s := range statements {
		if s["Condition"] == nil {
			continue
		}
		var operators map[string]map[string]json.RawMessage
		if err := json.Unmarshal(s["Condition"], &operators); err != nil {
			return nil, err
		}
		for name, keys := range operators {
			if op, ok := operatorOf(name); !ok || !op.like {
				continue
			}
			for key, raw := range keys {
				values, err := scalarsOf(raw)
				if err != nil {
					return nil, err
				}
				for i := range values {
					values[i] = strings.ReplaceAll(values[i], "*", strings.Repeat("*", run+1))
				}
				if keys[key], err = json.Marshal(values); err != nil {
					return nil, err
				}
			}
		}
		var err error
		if s["Condition"], err = json.Marshal(operators); err != nil {
			return nil, err
		}
	}
	var err error
	if document["Statement"], err = json.Marshal(statements); err != nil {
		return nil, err
	}
	return json.Marshal(document)
}
