// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	_ "embed"
	"encoding/json"
	"strings"
	"unicode"

	"github.com/nebulaio/nebulaio/internal/errs"
)

//go:embed rules.json
var rulesJSON string

// rule is the text of a check; it is data, so that words and weights change
// without code.
type rule struct {
	ID        string          `json:"id"`
	Title     string          `json:"title"`
	Why       string          `json:"why"`
	Expected  string          `json:"expected"`
	FixNow    string          `json:"fix_now"`
	FixBoot   string          `json:"fix_boot"`
	Reference string          `json:"reference"`
	Cost      string          `json:"cost"`
	Weight    map[Profile]int `json:"weight"`
}

type ruleSet struct {
	Version int    `json:"version"`
	Rules   []rule `json:"rules"`
	byID    map[string]rule
}

func loadRules() (*ruleSet, error) {
	var s ruleSet
	if err := json.Unmarshal([]byte(rulesJSON), &s); err != nil {
		return nil, errs.Wrap("parse", "rules.json", err)
	}
	s.byID = make(map[string]rule, len(s.Rules))
	for _, r := range s.Rules {
		if _, twice := s.byID[r.ID]; twice {
			return nil, errs.New(errs.Other, "parse", "rules.json", "the rule "+r.ID+" is there twice")
		}
		s.byID[r.ID] = r
	}
	return &s, nil
}

// finding gives an answer the words of its rule. Fixes belong to findings that
// ask for one.
func (r rule) finding(a answer, p Profile) Finding {
	f := Finding{ID: r.ID, Title: r.Title, Subject: clean(a.subject), Level: a.level, Observed: clean(a.observed), Expected: strings.ReplaceAll(r.Expected, "{subject}", clean(a.subject)),
		Why: r.Why, Reference: r.Reference, Cost: r.Cost, weight: r.Weight[p]}
	if a.cost != "" {
		f.Cost = a.cost
	}
	if f.Cost == "" {
		f.Cost = "unknown"
	}
	if a.level == Fail || a.level == Warn || a.level == Unknown {
		pairs := []string{"{subject}", quote(a.subject)}
		for k, v := range a.vars {
			switch k {
			case "acs", "nearer", "drop", "now", "boot": // our own words around what is checked or quoted
			default:
				v = quote(v)
			}
			pairs = append(pairs, "{"+k+"}", v)
		}
		words := strings.NewReplacer(pairs...)
		f.FixNow, f.FixBoot = words.Replace(r.FixNow), words.Replace(r.FixBoot)
		if cmd := a.vars["run"]; a.level == Unknown && cmd != "" {
			f.FixNow, f.FixBoot = "# as root: "+clean(cmd), ""
		}
	}
	return f
}

// clean keeps one finding on one line of reasonable length: what is observed
// comes from files that anyone may have written.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if r != ' ' && !unicode.IsPrint(r) && !unicode.IsSpace(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(strings.Join(strings.Fields(s), " "), "?"))
	if len(s) > 400 {
		s = strings.ToValidUTF8(s[:400], "") + "…"
	}
	return s
}

// quote makes a word safe for a shell: mount points and names of a capture are
// anyone's text.
func quote(s string) string {
	safe := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_./:@%+=,-", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !safe(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(clean(s), "'", `'\''`) + "'"
}
