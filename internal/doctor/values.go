// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/doctor/facts"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
)

// rule has the texts and thresholds of a check. They are data, so that texts, weights and thresholds change without
// code.
type rule struct {
	ID         string           `json:"id"`
	Title      string           `json:"title"`
	Why        string           `json:"why"`
	Expected   string           `json:"expected"`
	FixNow     string           `json:"fix_now"`
	FixBoot    string           `json:"fix_boot"`
	Reference  string           `json:"reference"`
	Cost       string           `json:"cost"`                  // "unknown", or a figure
	CostSource string           `json:"cost_source,omitempty"` // where the figure is from
	Weight     map[Profile]int  `json:"weight"`
	Values     map[string]value `json:"values,omitempty"`
}

// value is one threshold: a number, a version, or a list of words.
type value struct {
	Value    any             `json:"value"`
	Unit     string          `json:"unit,omitempty"` // bytes are printed as sizes
	Source   string          `json:"source"`         // "engineering default", or "cited: DOCUMENT"
	Profiles map[Profile]any `json:"profiles,omitempty"`
}

type ruleSet struct {
	Version int    `json:"version"`
	Rules   []rule `json:"rules"`
	byID    map[string]*rule
}

// placeholders lists the names in {=name}, a value for readers, and {#name}, a value for commands.
func placeholders(s string) []string {
	var names []string
	for part := range strings.SplitSeq(s, "{") {
		name, _, ok := strings.Cut(part, "}")
		if !ok || len(name) < 2 || name[0] != '=' && name[0] != '#' ||
			strings.Trim(name[1:], "abcdefghijklmnopqrstuvwxyz0123456789_") != "" {
			continue
		}
		names = append(names, name[1:])
	}
	return names
}

// parseRules parses a rules file strictly. An unknown field, a rule without a text, or a threshold without a source
// is an error that names it.
func parseRules(text string) (*ruleSet, error) {
	bad := func(name, what string) error {
		return errs.New(errs.Corrupt, "parse", "rules.json", name+" "+what)
	}
	var s ruleSet
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		return nil, &errs.Error{Kind: errs.Corrupt, Op: "parse", Name: "rules.json", Msg: "does not parse", Err: err}
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, bad("the file", "goes on after its end")
	}
	if s.Version < 1 || len(s.Rules) == 0 || len(s.Rules) > 1000 {
		return nil, bad("the file", fmt.Sprintf("has version %d and %d rules", s.Version, len(s.Rules)))
	}
	s.byID = make(map[string]*rule, len(s.Rules))
	for i := range s.Rules {
		r := &s.Rules[i]
		if _, twice := s.byID[r.ID]; twice || r.ID == "" {
			return nil, bad("the rule "+r.ID, "is there twice, or has no id")
		}
		if err := r.validate(bad); err != nil {
			return nil, err
		}
		s.byID[r.ID] = r
	}
	return &s, nil
}

func (r *rule) validate(bad func(name, what string) error) error {
	name := "the rule " + r.ID
	for what, v := range map[string]string{"title": r.Title, "why": r.Why, "expected": r.Expected,
		"reference": r.Reference, "cost": r.Cost} {
		if v == "" {
			return bad(name, "has no "+what)
		}
	}
	if (r.Cost == "unknown") != (r.CostSource == "") {
		return bad(name, "gives a cost without its source, or a source without a cost")
	}
	for _, p := range []Profile{Train, Infer, Checkpoint} {
		if w, ok := r.Weight[p]; !ok || w < 0 || w > 100 {
			return bad(name, "has no weight from 0 to 100 for "+string(p))
		}
	}
	if len(r.Weight) != 3 {
		return bad(name, "weighs a profile that does not exist")
	}
	for n, v := range r.Values {
		name := name + "'s value " + n
		kind := kindOf(v.Value)
		if kind == "" {
			return bad(name, "is no number, version or list of words")
		}
		if doc, cited := strings.CutPrefix(v.Source, "cited: "); v.Source != "engineering default" && (!cited || doc == "") {
			return bad(name, "has no source: engineering default, or cited: and the document")
		}
		for p, o := range v.Profiles {
			if p != Train && p != Infer && p != Checkpoint || kindOf(o) != kind {
				return bad(name, fmt.Sprintf("is of another kind for %q, or that is no profile", p))
			}
		}
	}
	for _, m := range placeholders(r.Why + r.Expected + r.FixNow + r.FixBoot) {
		if _, ok := r.Values[m]; !ok {
			return bad(name, "speaks of the value "+m+", which it does not have")
		}
	}
	return nil
}

// kindOf returns number, version or words; empty for any other value.
func kindOf(v any) string {
	switch v := v.(type) {
	case float64:
		if v >= 0 && v < 1<<53 {
			return "number"
		}
	case string:
		if facts.ParseVersion(v) != [3]int{} {
			return "version"
		}
	case []any:
		for _, w := range v {
			if s, ok := w.(string); !ok || s == "" {
				return ""
			}
		}
		if len(v) > 0 {
			return "words"
		}
	}
	return ""
}

// of returns the threshold for a profile.
func (v value) of(p Profile) any {
	if o, ok := v.Profiles[p]; ok {
		return o
	}
	return v.Value
}

// words replaces placeholders by a rule's thresholds.
func (r *rule) words(p Profile) *strings.Replacer {
	var pairs []string
	for _, n := range slices.Sorted(maps.Keys(r.Values)) {
		v := r.Values[n]
		text, raw := "", ""
		switch x := v.of(p).(type) {
		case float64:
			raw = strconv.FormatFloat(x, 'f', -1, 64)
			if text = raw; v.Unit == "bytes" {
				text = units.Bytes(int64(x))
			}
		case string:
			text, raw = x, x
		case []any:
			for i, w := range x {
				if i > 0 {
					text += ", "
				}
				text += fmt.Sprint(w)
			}
			raw = text
		}
		pairs = append(pairs, "{="+n+"}", text, "{#"+n+"}", raw)
	}
	return strings.NewReplacer(pairs...)
}

// value returns a threshold by rule and name. A missing threshold is recorded and ends the diagnosis, because a check
// against zero would be wrong.
func (f *exam) value(rule, name, kind string) any {
	if r, ok := f.rules.byID[rule]; ok {
		if v, ok := r.Values[name]; ok && kindOf(v.of(f.opt.Profile)) == kind {
			return v.of(f.opt.Profile)
		}
	}
	f.absent = append(f.absent, rule+"/"+name)
	return nil
}

// num returns a threshold that is a number.
func (f *exam) num(rule, name string) float64 {
	v, _ := f.value(rule, name, "number").(float64)
	return v
}

// whole returns a threshold that is a whole number.
func (f *exam) whole(rule, name string) int64 { return int64(f.num(rule, name)) }

// since returns a threshold that is a version.
func (f *exam) since(rule, name string) (v [3]int, text string) {
	text, _ = f.value(rule, name, "version").(string)
	return facts.ParseVersion(text), text
}

// list returns a threshold that is a list of words.
func (f *exam) list(rule, name string) []string {
	all, _ := f.value(rule, name, "words").([]any)
	out := make([]string, 0, len(all))
	for _, w := range all {
		if s, ok := w.(string); ok {
			out = append(out, s)
		}
	}
	return out
}
