// SPDX-License-Identifier: Apache-2.0

package document

import (
	"fmt"
	"strings"
)

// quantifier says how a condition treats a key with several values.
type quantifier int

const (
	single    quantifier = iota
	allValues            // ForAllValues: each value of the request matches a value of the policy
	anyValue             // ForAnyValue: at least one value of the request matches a value of the policy
)

// condition is the comparison of one condition key.
type condition struct {
	key      string // in lower case
	operator operator
	quant    quantifier
	ifExists bool
	values   []pattern
}

// conditionsOf reads the field Condition: operators, each with condition keys, each with values. The function known
// reports whether a statement may compare a condition key.
func conditionsOf(raw []byte, variables bool, known func(key string) bool) ([]condition, error) {
	operators, err := FieldsOf(raw)
	if err != nil {
		return nil, err
	}
	var out []condition
	for _, o := range operators {
		keys, err := FieldsOf(o.Value)
		if err != nil {
			return nil, fmt.Errorf("%.64q: %w", o.Name, err)
		}
		if len(keys) == 0 {
			return nil, fmt.Errorf("%.64q has no condition key", o.Name)
		}
		seen := map[string]struct{}{}
		for _, k := range keys {
			c, err := conditionOf(o.Name, k, variables, known)
			if err != nil {
				return nil, err
			}
			if _, twice := seen[c.key]; twice {
				return nil, fmt.Errorf("condition key %.64q is given twice", k.Name)
			}
			seen[c.key] = struct{}{}
			out = append(out, c)
		}
	}
	return out, nil
}

func conditionOf(name string, k Field, variables bool, known func(key string) bool) (condition, error) {
	c := condition{key: strings.ToLower(k.Name)}
	base := name
	if rest, ok := strings.CutPrefix(base, "ForAllValues:"); ok {
		base, c.quant = rest, allValues
	} else if rest, ok := strings.CutPrefix(base, "ForAnyValue:"); ok {
		base, c.quant = rest, anyValue
	}
	if rest, ok := strings.CutSuffix(base, "IfExists"); ok && rest != "Null" {
		base, c.ifExists = rest, true
	}
	op, ok := operators[base]
	if !ok {
		return c, fmt.Errorf("condition operator %.64q is not one that this server knows", name)
	}
	c.operator = op
	if !known(c.key) {
		return c, fmt.Errorf("condition key %.64q is not one that this server knows", k.Name)
	}
	values, err := ScalarsOf(k.Value)
	if err != nil {
		return c, fmt.Errorf("condition key %.64q: %w", k.Name, err)
	}
	for _, v := range values {
		p, err := compileParts(v, variables, op.chars())
		if err != nil {
			return c, fmt.Errorf("condition key %.64q: %w", k.Name, err)
		}
		if fixed := len(p.parts) == 1 && p.parts[0].variable == ""; fixed && op.check != nil && !op.check(v) {
			return c, fmt.Errorf("condition key %.64q: the value %.128q, expected %s for %s", k.Name, v, op.want, name)
		}
		c.values = append(c.values, p)
	}
	return c, nil
}

// holds reports whether a request fulfils the condition.
func (c *condition) holds(r *Request) bool {
	given := r.value(c.key)
	if c.operator.null {
		return c.matches("null", r) == (len(given) == 0)
	}
	if len(given) == 0 {
		// AWS: without a value, a comparison is false, and the negation of a comparison is true.
		return c.ifExists || c.quant == allValues || c.operator.negated && c.quant != anyValue
	}
	switch c.quant {
	case allValues:
		return c.every(given, r)
	case anyValue:
		return c.some(given, r)
	}
	// Without a quantifier, a key with several values is read so that a negation is the opposite of its comparison.
	if c.operator.negated {
		return c.every(given, r)
	}
	return c.some(given, r)
}

func (c *condition) every(given []string, r *Request) bool {
	for _, v := range given {
		if c.matches(v, r) == c.operator.negated {
			return false
		}
	}
	return true
}

func (c *condition) some(given []string, r *Request) bool {
	for _, v := range given {
		if c.matches(v, r) != c.operator.negated {
			return true
		}
	}
	return false
}

// matches reports whether a value of the request equals one of the policy's values, before a negation.
func (c *condition) matches(given string, r *Request) bool {
	for i := range c.values {
		want, ok := c.values[i].resolve(r)
		if !ok {
			continue
		}
		if c.operator.null {
			if strings.EqualFold(want.text(), "true") {
				return true
			}
			continue
		}
		if c.operator.equal(given, &want) {
			return true
		}
	}
	return false
}

func (c *condition) work() int {
	n := 0
	for i := range c.values {
		n += c.values[i].work()
	}
	return n
}

// Conditions is a parsed element Condition. Conditions never change, and are safe for concurrent use.
type Conditions struct {
	all  []condition
	work int
}

// ParseConditions parses an element Condition of a bucket's policy. If variables is true, values may have variables
// such as ${aws:username}. ParseConditions fails if an operator, a key or a value is not one that this server
// understands.
func ParseConditions(raw []byte, variables bool) (*Conditions, error) {
	all, err := conditionsOf(raw, variables, func(key string) bool { return knownKey(key) || serviceKeys[key] })
	if err != nil {
		return nil, err
	}
	c := &Conditions{all: all}
	for i := range all {
		c.work += all[i].work()
	}
	return c, nil
}

// Hold reports whether a request fulfils all conditions.
func (c *Conditions) Hold(r *Request) bool {
	for i := range c.all {
		if !c.all[i].holds(r) {
			return false
		}
	}
	return true
}

// Work returns the number of bytes behind a * in the patterns. Each byte of a value may be compared that many times.
func (c *Conditions) Work() int { return c.work }
