// SPDX-License-Identifier: Apache-2.0

package document

import (
	"encoding/base64"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// operator compares a value of a request with a value of a policy.
type operator struct {
	equal   func(given string, want *pattern) bool
	negated bool
	like    bool                    // values of the policy are patterns
	null    bool                    // the operator asks whether the key has a value
	check   func(value string) bool // whether the operator can compare a value of the policy; nil means that it always can
	want    string                  // the expected form of a value, for errors
}

func (o *operator) chars() func(string) []rune {
	if o.like {
		return wild
	}
	return func(s string) []rune { return []rune(s) }
}

// not returns the negation of an operator.
func not(o operator) operator {
	o.negated = true
	return o
}

var (
	stringEquals = operator{equal: func(given string, want *pattern) bool { return given == want.text() }}
	stringFold   = operator{equal: func(given string, want *pattern) bool { return strings.EqualFold(given, want.text()) }}
	stringLike   = operator{like: true, equal: func(given string, want *pattern) bool { return want.match(given) }}
	arnLike      = operator{like: true, equal: sameARN, check: isARN, want: "an ARN, such as arn:aws:s3:::BUCKET"}
	ipAddress    = operator{equal: inNetwork, check: isNetwork,
		want: "an address or a network, such as 10.0.0.0/8"}
	truth = operator{equal: func(given string, want *pattern) bool { return strings.EqualFold(given, want.text()) },
		check: isTruth, want: "true or false"}
	binary = operator{equal: sameBinary, check: isBase64, want: "base64"}
	null   = operator{null: true, check: isTruth, want: "true or false"}
)

// operators are the condition operators by name.
var operators = map[string]operator{
	"StringEquals": stringEquals, "StringNotEquals": not(stringEquals),
	"StringEqualsIgnoreCase": stringFold, "StringNotEqualsIgnoreCase": not(stringFold),
	"StringLike": stringLike, "StringNotLike": not(stringLike),
	"ArnEquals": arnLike, "ArnLike": arnLike, "ArnNotEquals": not(arnLike), "ArnNotLike": not(arnLike),
	"IpAddress": ipAddress, "NotIpAddress": not(ipAddress),
	"Bool": truth, "BinaryEquals": binary, "Null": null,

	"NumericEquals":            number(func(c int) bool { return c == 0 }),
	"NumericNotEquals":         not(number(func(c int) bool { return c == 0 })),
	"NumericLessThan":          number(func(c int) bool { return c < 0 }),
	"NumericLessThanEquals":    number(func(c int) bool { return c <= 0 }),
	"NumericGreaterThan":       number(func(c int) bool { return c > 0 }),
	"NumericGreaterThanEquals": number(func(c int) bool { return c >= 0 }),
	"DateEquals":               date(func(c int) bool { return c == 0 }),
	"DateNotEquals":            not(date(func(c int) bool { return c == 0 })),
	"DateLessThan":             date(func(c int) bool { return c < 0 }),
	"DateLessThanEquals":       date(func(c int) bool { return c <= 0 }),
	"DateGreaterThan":          date(func(c int) bool { return c > 0 }),
	"DateGreaterThanEquals":    date(func(c int) bool { return c >= 0 }),
}

// number returns an operator that compares numbers. The function is given the order of the request's value and the
// policy's value.
func number(holds func(order int) bool) operator {
	return operator{check: func(v string) bool { _, ok := numberOf(v); return ok }, want: "a number",
		equal: func(given string, want *pattern) bool {
			a, ok1 := numberOf(given)
			b, ok2 := numberOf(want.text())
			switch {
			case !ok1 || !ok2:
				return false
			case a < b:
				return holds(-1)
			case a > b:
				return holds(1)
			}
			return holds(0)
		}}
}

func numberOf(text string) (float64, bool) {
	f, err := strconv.ParseFloat(text, 64)
	return f, err == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
}

// date returns an operator that compares times.
func date(holds func(order int) bool) operator {
	return operator{check: func(v string) bool { _, ok := timeOf(v); return ok },
		want: "a time such as 2030-12-31T23:59:59Z, or seconds since 1970",
		equal: func(given string, want *pattern) bool {
			a, ok1 := timeOf(given)
			b, ok2 := timeOf(want.text())
			return ok1 && ok2 && holds(a.Compare(b))
		}}
}

// timeOf reads a time in one of the forms of ISO 8601 that AWS accepts, or seconds since 1970.
func timeOf(text string) (time.Time, bool) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04Z07:00", "2006-01-02T15Z07:00", "2006-01-02Z07:00",
		"2006-01-02", "2006-01"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, true
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > math.MaxUint32<<8 {
		return time.Time{}, false
	}
	return time.Unix(n, 0), true
}

func isTruth(v string) bool { return strings.EqualFold(v, "true") || strings.EqualFold(v, "false") }

func isBase64(v string) bool {
	_, err := base64.StdEncoding.DecodeString(v)
	return err == nil
}

func sameBinary(given string, want *pattern) bool {
	a, err1 := base64.StdEncoding.DecodeString(given)
	b, err2 := base64.StdEncoding.DecodeString(want.text())
	return err1 == nil && err2 == nil && string(a) == string(b)
}

func isNetwork(v string) bool {
	_, ok := networkOf(v)
	return ok
}

func networkOf(text string) (netip.Prefix, bool) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Masked(), true
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Prefix{}, false
	}
	a = a.Unmap().WithZone("")
	return netip.PrefixFrom(a, a.BitLen()), true
}

func inNetwork(given string, want *pattern) bool {
	a, err := netip.ParseAddr(given)
	network, ok := networkOf(want.text())
	return err == nil && ok && network.Contains(a.Unmap().WithZone(""))
}

func isARN(v string) bool {
	return strings.HasPrefix(v, "arn:") && strings.Count(v, ":") >= 5 || v == "*"
}

// sameARN compares the six parts of two ARNs one by one, so that a * does not match across parts.
func sameARN(given string, want *pattern) bool {
	chars := want.parts[0].chars
	if len(chars) == 1 && chars[0] == anyRun {
		return true
	}
	for i := range 6 {
		var piece string
		var like []rune
		if i == 5 {
			piece, like = given, chars
		} else {
			var ok1, ok2 bool
			piece, given, ok1 = strings.Cut(given, ":")
			like, chars, ok2 = cutRunes(chars, ':')
			if !ok1 || !ok2 {
				return false
			}
		}
		if p := (pattern{parts: []part{{chars: like}}}); !p.match(piece) {
			return false
		}
	}
	return true
}

func cutRunes(all []rune, sep rune) (before, after []rune, found bool) {
	for i, r := range all {
		if r == sep {
			return all[:i], all[i+1:], true
		}
	}
	return all, nil, false
}
