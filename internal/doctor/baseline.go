// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/json"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Change is one finding whose level differs between an earlier and the current result. From is empty if the earlier
// result has no such finding, and To if the current one has none.
type Change struct {
	ID       string `json:"id"`
	Subject  string `json:"subject"`
	From     Level  `json:"from,omitempty"`
	To       Level  `json:"to,omitempty"`
	Observed string `json:"observed"`
}

// Diff lists the changes between two results. A list without changes is empty, never nil.
type Diff struct {
	Better []Change `json:"better"`
	Worse  []Change `json:"worse"`
	New    []Change `json:"new"`  // findings of level FAIL, WARN or UNKNOWN that only the current result has
	Gone   []Change `json:"gone"` // findings of level FAIL, WARN or UNKNOWN that only the earlier result has
}

// ParseResult parses the JSON output of an earlier run. Content that is not a result has the error kind Corrupt, and
// a result of a newer version the kind Unsupported.
func ParseResult(name string, b []byte) (*Result, error) {
	var r Result
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, &errs.Error{Kind: errs.Corrupt, Op: "read baseline", Name: name, Msg: "is not a result of doctor --json",
			Err: err}
	}
	if r.Version < 1 || r.Findings == nil {
		return nil, errs.New(errs.Corrupt, "read baseline", name, "is not a result of doctor --json")
	}
	if r.Version > Version {
		return nil, errs.New(errs.Unsupported, "read baseline", name, "is of a newer version").WithFix("update nebulaio")
	}
	return &r, nil
}

// Compare returns the changes from before to now. Findings are matched by ID and subject.
func Compare(before, now *Result) Diff {
	d := Diff{Better: []Change{}, Worse: []Change{}, New: []Change{}, Gone: []Change{}}
	type key struct{ id, subject string }
	asks := func(l Level) bool { return rank(l) <= rank(Unknown) }
	old := map[key]Finding{}
	for _, f := range before.Findings {
		old[key{f.ID, f.Subject}] = f
	}
	seen := map[key]bool{}
	for _, f := range now.Findings {
		k := key{f.ID, f.Subject}
		seen[k] = true
		o, was := old[k]
		c := Change{ID: f.ID, Subject: f.Subject, From: o.Level, To: f.Level, Observed: f.Observed}
		switch {
		case !was && asks(f.Level):
			d.New = append(d.New, c)
		case !was || o.Level == f.Level || !asks(o.Level) && !asks(f.Level):
		case rank(f.Level) > rank(o.Level):
			d.Better = append(d.Better, c)
		default:
			d.Worse = append(d.Worse, c)
		}
	}
	for _, f := range before.Findings {
		if !seen[key{f.ID, f.Subject}] && asks(f.Level) {
			d.Gone = append(d.Gone, Change{ID: f.ID, Subject: f.Subject, From: f.Level, Observed: f.Observed})
		}
	}
	return d
}
