// SPDX-License-Identifier: Apache-2.0

package node

import (
	"regexp"
	"strings"
	"testing"
)

// pointing finds words that point at another metric's text.
var pointing = regexp.MustCompile(`(?i)\b(these|those|the same|such|did not|they)\b`)

// TestEachHelpOfAMetricIsReadAlone checks the HELP text of every metric against our rules. A dashboard shows one text
// without the others, so each must be a complete phrase.
func TestEachHelpOfAMetricIsReadAlone(t *testing.T) {
	m := allMetrics(t)
	families, err := m.describe()
	if err != nil {
		t.Fatal(err)
	}
	if len(families) < 40 {
		t.Errorf("%d metrics were looked at", len(families))
	}
	for name, help := range families {
		complain := func(what string) { t.Errorf("%s: %q %s", name, help, what) }
		base := strings.TrimSuffix(name, "_total")
		switch {
		case strings.HasSuffix(base, "_bytes") && !strings.HasPrefix(help, "Bytes "):
			complain("does not begin with its unit, Bytes")
		case strings.HasSuffix(base, "_seconds") && !strings.Contains(strings.ToLower(help), "seconds"):
			complain("does not name its unit, seconds")
		}
		if !strings.HasSuffix(help, ".") || len(strings.Fields(help)) < 3 || strings.ToUpper(help[:1]) != help[:1] {
			complain("is no complete phrase with a period")
		}
		if word := pointing.FindString(help); word != "" {
			complain("points at another text with " + word)
		}
		if strings.Contains(name, "gpudirect") && !strings.Contains(help, "GPUDirect door") {
			complain("does not say that it is of the GPUDirect door")
		}
		if strings.HasPrefix(help, "1 ") && !strings.Contains(help, "else 0") && !strings.Contains(help, "; 0 if ") {
			complain("does not say when it is 0")
		}
	}
}

// describe returns the HELP texts of our own metrics by name.
func (m *metrics) describe() (map[string]string, error) {
	families, err := m.registry.Gather()
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "nebulaio_") {
			all[f.GetName()] = f.GetHelp()
		}
	}
	return all, nil
}
