// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"maps"
	"slices"
	"strings"
)

// claim returns the value of a claim. If no claim has the name, the dots in the name lead to a claim inside of a claim.
func claim(all map[string]any, name string) (any, bool) {
	if v, ok := all[name]; ok || name == "" {
		return v, ok && name != ""
	}
	outer, inner, ok := strings.Cut(name, ".")
	if !ok {
		return nil, false
	}
	next, ok := all[outer].(map[string]any)
	if !ok {
		return nil, false
	}
	return claim(next, inner)
}

// nameIn returns the value of a claim that has to be one name.
func nameIn(all map[string]any, name string) (string, error) {
	v, ok := claim(all, name)
	text, isText := v.(string)
	switch {
	case !ok:
		return "", fail(ErrRejected, "it has no claim %s", name)
	case !isText || text == "":
		return "", fail(ErrRejected, "its claim %s is no text", name)
	case len(text) > maxName:
		return "", fail(ErrRejected, "its claim %s has %d bytes; expected %d at most", name, len(text), maxName)
	case strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\ufffd' }):
		return "", fail(ErrRejected, "its claim %s has control characters", name)
	}
	return text, nil
}

// namesIn returns the names in a claim: a list of texts, or one text with commas. A missing claim has no names.
func namesIn(all map[string]any, name string) ([]string, error) {
	v, ok := claim(all, name)
	if !ok || v == nil {
		return nil, nil
	}
	var names []string
	switch v := v.(type) {
	case string:
		names = strings.Split(v, ",")
	case []any:
		for _, item := range v {
			text, ok := item.(string)
			if !ok {
				return nil, fail(ErrRejected, "its claim %s has an item that is no text", name)
			}
			names = append(names, text)
		}
	default:
		return nil, fail(ErrRejected, "its claim %s is neither a text nor a list of texts", name)
	}
	out := names[:0]
	for _, n := range names {
		if n = strings.TrimSpace(n); n != "" && len(n) <= maxName {
			out = append(out, n)
		}
	}
	if len(out) > maxNames {
		return nil, fail(ErrRejected, "its claim %s has %d names; expected %d at most", name, len(out), maxNames)
	}
	return unique(out), nil
}

// Limits of the claims in an Identity.
const (
	maxClaims     = 32
	maxClaimBytes = 2048
)

// textsIn returns the claims that are texts or lists of texts, by their names in lower case. The claims about the user
// come first, so that others are left out if there are too many.
func textsIn(all map[string]any) map[string][]string {
	first := []string{"sub", "iss", "aud", "azp", "email", "preferred_username", "name"}
	rest := slices.DeleteFunc(slices.Sorted(maps.Keys(all)), func(n string) bool { return slices.Contains(first, n) })
	out, size := map[string][]string{}, 0
	for _, name := range append(first, rest...) {
		var texts []string
		switch v := all[name].(type) {
		case string:
			texts = []string{v}
		case []any:
			for _, item := range v {
				if text, ok := item.(string); ok {
					texts = append(texts, text)
				}
			}
		}
		lower, bytes := strings.ToLower(name), len(name)
		for _, text := range texts {
			bytes += len(text)
		}
		if _, twice := out[lower]; len(texts) == 0 || twice || len(out) >= maxClaims || size+bytes > maxClaimBytes {
			continue
		}
		out[lower], size = texts, size+bytes
	}
	return out
}

// unique returns the names in order, each once.
func unique(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}
