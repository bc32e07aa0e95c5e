// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/json"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Change is one finding that has different levels in an earlier and the current diagnosis. From is the earlier level
// and To the current level; the level is empty if a diagnosis lacks the finding.
type Change struct {
	ID       string `json:"id"`
	Subject  string `json:"subject"`
	From     Level  `json:"from,omitempty"`
	To       Level  `json:"to,omitempty"`
	Observed string `json:"observed"`
}

// Diff lists the changes between two diagnoses of a machine. A list in a Diff is empty, never nil, if it has no
// entries.
type Diff struct {
	Better []Change `json:"better"`
	Worse  []Change `json:"worse"`
	New    []Change `json:"new"`  // findings of level FAIL, WARN or UNKNOWN that are new in the current diagnosis
	Gone   []Change `json:"gone"` // findings of level FAIL, WARN or UNKNOWN that only the earlier diagnosis has
}

// ParseResult parses the JSON output of an earlier diagnosis. If the content is not a diagnosis, the error has the
// kind Corrupt; if it is of a newer version, the kind Unsupported.
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

// Compare returns the changes from the earlier diagnosis before to the later diagnosis now. Compare matches the
// findings of the two diagnoses by ID and subject.
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
