// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	_ "embed"
	"strings"
	"unicode"
)

//go:embed rules.json
var rulesJSON string

// finding adds the rule's texts to an answer. Only findings of level FAIL and WARN get fixes.
func (r *rule) finding(a answer, p Profile) Finding {
	values := r.words(p)
	f := Finding{ID: r.ID, Title: r.Title, Subject: clean(a.subject), Level: a.level, Observed: clean(a.observed),
		Expected: strings.ReplaceAll(values.Replace(r.Expected), "{subject}", clean(a.subject)),
		Why:      values.Replace(r.Why), Reference: r.Reference, Cost: r.Cost, LostGBs: a.lost, weight: r.Weight[p]}
	if a.cost != "" {
		f.Cost = a.cost
	}
	if a.level != Fail && a.level != Warn { // what does not cost has none
		f.Cost, f.LostGBs = "unknown", 0
	}
	if a.level == Fail || a.level == Warn || a.level == Unknown {
		pairs := []string{"{subject}", quote(a.subject)}
		for k, v := range a.vars {
			switch k {
			case "acs", "nearer", "now", "boot", "or": // our own words around what is checked or quoted
			default:
				v = quote(v)
			}
			pairs = append(pairs, "{"+k+"}", v)
		}
		words := strings.NewReplacer(pairs...)
		f.FixNow, f.FixBoot = words.Replace(values.Replace(r.FixNow)), words.Replace(values.Replace(r.FixBoot))
		if cmd := a.vars["run"]; a.level == Unknown && cmd != "" {
			f.FixNow, f.FixBoot = "# as root: "+clean(cmd), ""
			if a.vars["who"] == "anyone" {
				f.FixNow = "# run: " + clean(cmd)
			}
		}
	}
	return f
}

// clean reduces a finding to one line of reasonable length, because observed values come from files that anyone may
// have written.
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

// quote quotes a word for a shell, because mount points and names in a capture may contain any text.
func quote(s string) string {
	safe := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_./:@%+=,-", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !safe(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(clean(s), "'", `'\''`) + "'"
}
