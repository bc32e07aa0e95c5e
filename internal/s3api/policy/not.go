// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/versity/versitygw/auth"
)

// versitygw does not know the fields NotPrincipal, NotAction and NotResource. So we rewrite them:
//
//   - NotAction becomes patterns for the known actions that it does not name.
//   - NotPrincipal exists only in statements that deny. Such a statement denies to everybody, and Resolve removes the
//     statement for the accounts that NotPrincipal names.
//   - NotResource becomes the bucket, if NotResource does not name the bucket, and keys. Which keys depends on the
//     request: Resolve adds all keys if NotResource does not name the key of the request, and no keys otherwise.
//
// Before Resolve, a statement that denies covers all keys, and a statement that allows covers none. If Resolve does not
// know the key of a request, the statement stays so.

// everybody is the Principal element of a statement for everybody.
var everybody = json.RawMessage(`"*"`)

// rewrite returns a statement in the form that versitygw evaluates, without its principals. covers is false if the
// statement covers no action.
func (s *statement) rewrite(bucket string) (out resolvableStatement, covers bool, err error) {
	out = resolvableStatement{Effect: s.effect, Condition: s.condition}
	if out.Action, err = comparableActions(s.action); err != nil {
		return out, false, err
	}
	if s.notAction {
		if out.Action, err = otherActions(s.action); err != nil || out.Action == nil {
			return out, false, err
		}
	}
	if out.Resource, err = comparableResources(s.resource, bucket); err != nil || !s.notResource {
		return out, err == nil, err
	}
	if err := json.Unmarshal(out.Resource, &out.NotResource); err != nil {
		return out, false, fmt.Errorf("read the rewritten resources of bucket %s: %w", bucket, err)
	}
	out.placeKeys(bucket, s.effect == "Deny")
	return out, true, nil
}

// nameAccounts sets the principals of a rewritten statement to the accounts that the statement names. nameAccounts
// returns false if the statement names only services.
func (r *resolvableStatement) nameAccounts(s *statement, root string) bool {
	accounts := s.accounts(root)
	if s.notPrincipal {
		r.Principal, r.NotPrincipal = everybody, &accounts
		return true
	}
	if len(accounts) == 0 {
		return false
	}
	text, err := json.Marshal(map[string][]string{"AWS": accounts})
	r.Principal = text
	return err == nil // texts alone
}

// otherActions returns patterns for all known actions that no given action matches, or nil if there are none. A pattern
// such as s3:Put* stands for many actions, so that the rewritten policy stays short.
func otherActions(raw json.RawMessage) (json.RawMessage, error) {
	names, err := stringsOf(raw)
	if err != nil {
		return nil, err
	}
	var named []string
	for _, name := range names {
		for _, a := range actionsLike(name) {
			if a == auth.AllActions {
				return nil, nil
			}
			named = append(named, string(a))
		}
	}
	known := KnownActions()
	slices.Sort(known)
	out := besides(nil, known, named, len("s3:"))
	if len(out) == 0 {
		return nil, nil
	}
	return json.Marshal(out)
}

// besides appends patterns to a list. The patterns match those of the known actions that are not among the named
// actions. The known actions are sorted, and have their first n bytes in common.
func besides(to, known, named []string, n int) []string {
	if len(known) == 0 {
		return to
	}
	start := known[0][:n]
	if !slices.ContainsFunc(named, func(a string) bool { return strings.HasPrefix(a, start) }) {
		return append(to, start+"*")
	}
	if known[0] == start {
		if !slices.Contains(named, start) {
			to = append(to, start)
		}
		known = known[1:]
	}
	for len(known) > 0 {
		next := known[0][n]
		end := slices.IndexFunc(known, func(a string) bool { return a[n] != next })
		if end < 0 {
			end = len(known)
		}
		to = besides(to, known[:end], named, n+1)
		known = known[end:]
	}
	return to
}

// placeKeys sets the resources of a rewritten statement with NotResource: the bucket, unless NotResource names the
// bucket, and all keys if keys is true.
func (r *resolvableStatement) placeKeys(bucket string, keys bool) {
	var out []string
	if !slices.Contains(r.NotResource, auth.ResourceArnPrefix+bucket) {
		out = append(out, auth.ResourceArnPrefix+bucket)
	}
	if keys {
		out = append(out, keysARN(bucket, byBytes, "*"))
	}
	if out == nil {
		out = []string{keysARN(bucket, byBytes, "")} // a key is never empty
	}
	r.setResources(out)
}

// setResources sets the resources of a rewritten statement.
func (r *resolvableStatement) setResources(arns []string) {
	text, err := json.Marshal(arns)
	if err != nil {
		return // cannot happen: texts alone
	}
	r.Resource = text
}

// coversKey reports whether a rewritten statement with NotResource covers a key. The comparison is the one of
// versitygw.
func (r *resolvableStatement) coversKey(bucket, key string) bool {
	named := auth.Resources{}
	for _, arn := range r.NotResource {
		if named.Add(arn) != nil {
			return r.Effect == "Deny" // cannot happen: comparableResources wrote it
		}
	}
	return !named.FindMatch(bucket+"/"+Comparable(bucket, key), Comparable)
}

// sparesAccount reports whether a rewritten statement has NotPrincipal, which names the account. A request without an
// account is never named.
func (r *resolvableStatement) sparesAccount(account string) bool {
	return r.NotPrincipal != nil && (slices.Contains(*r.NotPrincipal, "*") ||
		account != "" && slices.Contains(*r.NotPrincipal, account))
}

// spellNegations gives fields such as NotAction a form that versitygw accepts, and reports whether there are any.
// versitygw then checks the names of accounts and actions. The statement gets all resources of the bucket and no
// condition, because every statement with such a field covers an action that fits.
func spellNegations(statement map[string]json.RawMessage, bucket string) bool {
	changed := false
	for _, name := range []string{"Principal", "Action", "Resource"} {
		negated, ok := statement["Not"+name]
		if _, both := statement[name]; !ok || both {
			continue // Check refuses a statement with both
		}
		delete(statement, "Not"+name)
		statement[name], changed = negated, true
		if name == "Principal" {
			continue
		}
		var all resolvableStatement
		all.setResources([]string{auth.ResourceArnPrefix + bucket, auth.ResourceArnPrefix + bucket + "/*"})
		delete(statement, "NotResource")
		delete(statement, "Condition")
		statement["Resource"] = all.Resource
	}
	return changed
}
