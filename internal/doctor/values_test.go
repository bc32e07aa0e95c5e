// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// used lists the values that the code asks for, as rule/name by kind.
func used(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{"num": "number", "whole": "number", "since": "version", "list": "words"}
	out := map[string]string{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) != 2 {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || kinds[sel.Sel.Name] == "" {
				return true
			}
			value, ok := call.Args[1].(*ast.BasicLit)
			if !ok {
				return true // whole hands its own arguments on
			}
			text, _ := strconv.Unquote(value.Value)
			rules := []string{"pcie.link.nvme", "pcie.link.gpu", "pcie.link.nic"} // one function judges all three
			if lit, ok := call.Args[0].(*ast.BasicLit); ok {
				id, _ := strconv.Unquote(lit.Value)
				rules = []string{id}
			}
			for _, id := range rules {
				out[id+"/"+text] = kinds[sel.Sel.Name]
			}
			return true
		})
	}
	return out
}

// TestEveryValueIsThereAndUsed holds the code against the rules file, both ways.
func TestEveryValueIsThereAndUsed(t *testing.T) {
	rules, err := parseRules(rulesJSON)
	if err != nil {
		t.Fatal(err)
	}
	asked := used(t)
	if len(asked) < 50 {
		t.Fatalf("only %d values are asked for: the search is broken", len(asked))
	}
	for name, kind := range asked {
		id, value, _ := strings.Cut(name, "/")
		r, ok := rules.byID[id]
		if !ok || kindOf(r.Values[value].Value) != kind {
			t.Errorf("the code asks for the %s %s, which rules.json does not have", kind, name)
		}
	}
	for _, r := range rules.Rules {
		for value := range r.Values {
			said := strings.Contains(r.Expected+r.Why+r.FixNow+r.FixBoot, "{="+value+"}") ||
				strings.Contains(r.Expected+r.Why+r.FixNow+r.FixBoot, "{#"+value+"}")
			if asked[r.ID+"/"+value] == "" && !said {
				t.Errorf("nothing uses the value %s/%s", r.ID, value)
			}
		}
	}
}

// TestAMissingValueIsAnError: judging by zero would be a lie.
func TestAMissingValueIsAnError(t *testing.T) {
	rules, err := parseRules(rulesJSON)
	if err != nil {
		t.Fatal(err)
	}
	delete(rules.byID["lim.nofile"].Values, "least")
	m := bare()
	if _, err := diagnose(rules, m.Record, m.meta, Options{GPU: 0}); err == nil ||
		!strings.Contains(err.Error(), "lim.nofile/least") {
		t.Errorf("got %v, want an error that names lim.nofile/least", err)
	}
}

func levelOf(r *Result, id string) Level {
	worst := Level("")
	for _, f := range r.Findings {
		if f.ID == id && (worst == "" || rank(f.Level) < rank(worst)) {
			worst = f.Level
		}
	}
	return worst
}

// TestTheFileDecides changes one value and nothing else.
func TestTheFileDecides(t *testing.T) {
	for _, c := range []struct {
		id, value    string
		to           any
		before, then Level
	}{
		{"lim.nofile", "least", 1 << 21, Pass, Warn},
		{"blk.readahead", "disk_kib", 8192, Pass, Warn},
		{"blk.max_sectors", "want_kib", 2048, Pass, Warn},
		{"nvme.temp", "margin_c", 50, Pass, Warn},
		{"fs.space", "used_pct", 40, Pass, Warn},
		{"drv.p2pdma_min", "driver", "600.1", Pass, Fail},
		{"p2p.model", "models", []any{"A100"}, Pass, Info}, // nvidia-fs is then the route
		{"lim.maps", "least", 1 << 30, Pass, Warn},
		{"gpu.rebar", "least", 1 << 45, Pass, Warn},
	} {
		m := bare()
		if l := levelOf(look(t, m, Options{GPU: 0}), c.id); l != c.before {
			t.Errorf("%s is %s before, want %s", c.id, l, c.before)
		}
		rules, err := parseRules(change(t, c.id, c.value, c.to))
		if err != nil {
			t.Fatal(err)
		}
		r, err := diagnose(rules, m.Record, m.meta, Options{GPU: 0})
		if err != nil {
			t.Fatal(err)
		}
		if l := levelOf(r, c.id); l != c.then {
			t.Errorf("%s is %s with %s at %v, want %s", c.id, l, c.value, c.to, c.then)
		}
	}
}

// change writes the rules file anew with one value changed.
func change(t *testing.T, id, name string, to any) string {
	t.Helper()
	var s ruleSet
	if err := json.Unmarshal([]byte(rulesJSON), &s); err != nil {
		t.Fatal(err)
	}
	for i := range s.Rules {
		if v, ok := s.Rules[i].Values[name]; ok && s.Rules[i].ID == id {
			v.Value = to
			s.Rules[i].Values[name] = v
			b, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}
	}
	t.Fatalf("no value %s/%s", id, name)
	return ""
}

func TestAProfileHasItsOwnThreshold(t *testing.T) {
	m := bare()
	m.meta.Target.Available = m.meta.Target.Total / 100 * 15
	if a, b := levelOf(look(t, m, Options{GPU: 0, Profile: Train}),
		"fs.space"), levelOf(look(t, m, Options{GPU: 0, Profile: Checkpoint}), "fs.space"); a != Pass || b != Warn {
		t.Errorf("85 %% used is %s for train and %s for checkpoint, want PASS and WARN", a, b)
	}
	m.meta.NoFile = 10000
	if a, b := levelOf(look(t, m, Options{GPU: 0, Profile: Train}),
		"lim.nofile"), levelOf(look(t, m, Options{GPU: 0, Profile: Infer}), "lim.nofile"); a != Warn || b != Pass {
		t.Errorf("10000 files are %s for train and %s for infer, want WARN and PASS", a, b)
	}
	for _, f := range look(t, m, Options{GPU: 0, Profile: Infer}).Findings {
		if f.ID == "lim.nofile" && f.Expected != "8192 or more" {
			t.Errorf("the words say %q for infer", f.Expected)
		}
	}
}

func TestBadRulesFiles(t *testing.T) {
	good := `{"version":1,"rules":[{"id":"a","title":"t","why":"w","expected":"{=n}","fix_now":"","fix_boot":"","reference":"r","cost":"unknown","weight":{"train":1,"infer":1,"checkpoint":1},"values":{"n":{"value":1,"source":"engineering default"}}}]}`
	if _, err := parseRules(good); err != nil {
		t.Fatal(err)
	}
	for what, swap := range map[string][2]string{
		"an unknown word":           {`"fix_boot"`, `"fixboot"`},
		"no title":                  {`"title":"t"`, `"title":""`},
		"no version":                {`"version":1`, `"version":0`},
		"no weight":                 {`,"checkpoint":1`, ``},
		"a weight out of range":     {`"checkpoint":1`, `"checkpoint":101`},
		"another profile":           {`"checkpoint":1`, `"checkpoint":1,"game":1`},
		"a value without a source":  {`"engineering default"`, `""`},
		"a citation of nothing":     {`"engineering default"`, `"cited: "`},
		"a value of no kind":        {`"value":1`, `"value":true`},
		"a negative value":          {`"value":1`, `"value":-1`},
		"an empty list":             {`"value":1`, `"value":[]`},
		"a profile of another kind": {`"value":1`, `"value":1,"profiles":{"train":"6.1"}`},
		"no such profile":           {`"value":1`, `"value":1,"profiles":{"game":2}`},
		"words about no value":      {`{=n}`, `{=m}`},
		"a cost without a source":   {`"cost":"unknown"`, `"cost":"3 GB/s"`},
		"a source without a cost":   {`"cost":"unknown"`, `"cost":"unknown","cost_source":"x"`},
		"two rules of one id":       {`"rules":[`, `"rules":[` + good[strings.Index(good, "[")+1:len(good)-2] + ","},
		"more after the end":        {`}}}]}`, `}}}]}{}`},
	} {
		bad := strings.Replace(good, swap[0], swap[1], 1)
		if bad == good {
			t.Fatalf("%s: nothing was changed", what)
		}
		if _, err := parseRules(bad); errs.KindOf(err) != errs.Corrupt {
			t.Errorf("%s: %v, want corrupt", what, err)
		}
	}
}

// TestCostsAreMeasuredOrCited: a figure comes from lanes, from a limit, or from
// a document; everything else is unknown, and says so.
func TestCostsAreMeasuredOrCited(t *testing.T) {
	rules, err := parseRules(rulesJSON)
	if err != nil {
		t.Fatal(err)
	}
	computed := map[string]bool{"pcie.link.nvme": true, "pcie.link.gpu": true, "pcie.link.nic": true,
		"pcie.shared_uplink": true, "cg.io": true}
	given := 0
	for _, s := range situations {
		r := look(t, s.make(), s.opt)
		b, err := json.Marshal(r.Findings)
		if err != nil {
			t.Fatal(err)
		}
		var findings []map[string]any
		if err := json.Unmarshal(b, &findings); err != nil {
			t.Fatal(err)
		}
		for _, f := range findings {
			id, cost := f["id"].(string), f["cost"].(string)
			if cost == "" {
				t.Errorf("%s: %s has no cost, not even unknown", s.name, id)
			}
			if cost != "unknown" {
				given++
				if !computed[id] && rules.byID[id].CostSource == "" {
					t.Errorf("%s: %s costs %q by nobody's word", s.name, id, cost)
				}
			} else if f["lost_gbs"] != nil {
				t.Errorf("%s: %s loses %v at an unknown cost", s.name, id, f["lost_gbs"])
			}
		}
	}
	if given < 3 {
		t.Errorf("only %d costs are given", given)
	}
}

// TestTheOrderIsByLevelThenLoss: a known loss goes before a heavier rule whose
// loss is unknown, a larger one before a smaller.
func TestTheOrderIsByLevelThenLoss(t *testing.T) {
	all := []Finding{{ID: "a", Level: Warn, weight: 99}, {ID: "b", Level: Warn, LostGBs: 1, weight: 1},
		{ID: "c", Level: Fail}, {ID: "d", Level: Warn, LostGBs: 7}, {ID: "e", Level: Warn, weight: 99}}
	order(all)
	got := ""
	for _, f := range all {
		got += f.ID
	}
	if got != "cdbae" {
		t.Errorf("the order is %s, want cdbae", got)
	}
}

func FuzzRules(f *testing.F) {
	f.Add(`{"version":1,"rules":[{"id":"a","values":{"n":{"value":[1],"source":"cited: x"}}}]}`)
	f.Add(rulesJSON)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseRules(text)
		if err != nil {
			return
		}
		for i := range s.Rules {
			for _, p := range []Profile{Train, Infer, Checkpoint} {
				s.Rules[i].finding(answer{level: Warn, subject: "x", observed: "y"}, p)
			}
		}
	})
}
