// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/bench/record"
)

// inOrder fails when the texts do not follow one another.
func inOrder(t *testing.T, all string, texts ...string) {
	t.Helper()
	at := 0
	for _, s := range texts {
		i := strings.Index(all[at:], s)
		if i < 0 {
			t.Errorf("%q is missing, or before the one named before it", s)
			return
		}
		at += i + len(s)
	}
}

func TestRunsComeBeforeTraining(t *testing.T) {
	inOrder(t, htmlOf(t, suite()), `id="overview"`, `id="sweep-1"`, `id="sweep-2"`, `id="train"`, `id="limits"`,
		`id="runs"`, `id="reading"`)
	var b bytes.Buffer
	if err := WriteText(&b, suite()); err != nil {
		t.Fatal(err)
	}
	inOrder(t, b.String(), "verdict", "  run ", "How many workers are worth using?", "How many batches", "workload",
		"Limits of this machine", "  requests ")
	// Alone, it is what the page is about.
	page := htmlOf(t, training())
	inOrder(t, page, "</header>", `id="train"`, `id="limits"`)
	if strings.Contains(page, `id="overview"`) {
		t.Error("an overview of no runs")
	}
}

func TestOneSentenceIsTheHeadline(t *testing.T) {
	page := readable(t, suite())
	h1 := regexp.MustCompile(`(?s)<h1>(.*?)</h1>`).FindAllStringSubmatch(page, -1)
	if len(h1) != 1 || strings.Count(h1[0][1], ". ") != 0 ||
		!strings.HasPrefix(h1[0][1], "From storage: up to 4.32 GB/s, at the limit") {
		t.Errorf("the headline is %q", h1)
	}
	lead := regexp.MustCompile(`<p class="lead">(.*?)</p>`).FindAllStringSubmatch(page, -1)
	if want := judge(suite()).Sentences[1:]; len(lead) != len(want) || len(want) != 2 {
		t.Errorf("%d sentences lead, %d are to be said", len(lead), len(want))
	}
	if strings.Contains(page, "custom is held") || !strings.Contains(page,
		"The training-shaped run is held back by the accelerator") {
		t.Error("a workload without a name is called by it")
	}
	if s := trainSentence(training().Train); !strings.HasPrefix(s, "unet3d is ") {
		t.Errorf("a workload with a name is not: %s", s)
	}
}

func TestNoRunBeatsTheMachine(t *testing.T) {
	for _, c := range []struct {
		ratio     float64
		want, not string
	}{
		{0.73, "73 % of what storage read gives (4.00 GB/s)", "at the limit"},
		{0.94, "94 % of what", "at the limit"},
		{0.95, "at the limit of this machine (storage read, 4.00 GB/s)", "%"},
		{1.09, "at the limit of this machine (storage read, 4.00 GB/s)", "%"},
		{1.23, "above the stored limit (storage read, 4.00 GB/s): that limit is too low, measure it again", "%"},
	} {
		got := againstLimit(&record.Share{Name: "storage read", Ceiling: 4, Ratio: c.ratio, Spread: 0.02})
		if !strings.Contains(got, c.want) || strings.Contains(got, c.not) {
			t.Errorf("%v: %q", c.ratio, got)
		}
	}
	// A limit whose own rounds lie further apart is not called wrong.
	if s := (&record.Share{Ratio: 1.12, Spread: 0.15}); above(s) || tooLow(s) {
		t.Error("a share within the spread of its limit is doubted")
	}
	for ratio, want := range map[float64]bool{0.5: false, 1.05: false, 1.06: true, 1.5: true} {
		f := suite()
		f.Runs, f.Sweeps, f.Train = f.Runs[:2], nil, nil
		for i := range f.Runs {
			f.Runs[i].Share.Ratio = ratio
		}
		var text bytes.Buffer
		if err := WriteText(&text, f); err != nil {
			t.Fatal(err)
		}
		// In the table, in the plots' words and in the entry of the run.
		if n := strings.Count(htmlOf(t, f), aboveWords); want != (n >= 6) ||
			want != strings.Contains(text.String(), "A share of more than 1.05, or") {
			t.Errorf("%v: said %d times on the page, in text: %s", ratio, n, text.String())
		}
		if warned := slices.ContainsFunc(warnings(f), func(s string) bool {
			return strings.Contains(s,
				"limit is too low")
		}); warned != (ratio > limitTooLow) {
			t.Errorf("%v: warned %v", ratio, warned)
		}
	}
}

// TestALongListIsClosed also holds the entries to what must be seen of each
// run without opening it.
func TestALongListIsClosed(t *testing.T) {
	f := suite()
	f.Runs[2].Routes = []record.Route{{Route: "cufile_compat", Bytes: 1 << 30}}
	f.Runs[2].Settings.Memory = "cufile"
	page := readable(t, f)
	if strings.Contains(page, "<details class=\"run\" id=\"run-1\" open") ||
		strings.Count(page, "<details") != len(f.Runs) {
		t.Error("a list of many runs is open")
	}
	heads := regexp.MustCompile(`(?s)<summary>(.*?)</summary>`).FindAllStringSubmatch(page, -1)
	if len(heads) != len(f.Runs) {
		t.Fatalf("%d entries of %d runs", len(heads), len(f.Runs))
	}
	seen := map[string]bool{}
	for i, m := range heads {
		r := &f.Runs[i]
		for _, want := range []string{newRow(f, i).GBps, takenNames(r), shortMeasured(r)} {
			if !strings.Contains(m[1], want) {
				t.Errorf("%q is not in %s", want, m[1])
			}
		}
		if r.Share != nil && !strings.Contains(m[1], percent(r.Share.Ratio)) || strings.Contains(m[1], "<svg") ||
			strings.Count(m[1], "<p") != 1 {
			t.Errorf("no share, or more than two lines: %s", m[1])
		}
		head := regexp.MustCompile(`<h3>(.*?)</h3>`).FindStringSubmatch(m[1])[1]
		if seen[head] {
			t.Errorf("two runs are called %q", head)
		}
		seen[head] = true
	}
	if !strings.Contains(heads[2][1], "not the requested route") || !seen["workers: 16, from the page cache"] {
		t.Error("a closed entry hides what went wrong, or which point it is")
	}
	if !strings.Contains(htmlOf(t, wrong()), `id="run-1" open`) {
		t.Error("a single run is closed")
	}
	if m := regexp.MustCompile(`(?s)<summary>.*?</summary>`).FindString(htmlOf(t, wrong())); strings.Count(m,
		"wrong data") != 1 {
		t.Errorf("wrong data is not said once: %s", m)
	}
}

func TestOverviewLeavesSweepsToTheirPlots(t *testing.T) {
	if o := newOverview(suite()); len(o.Rows) != 8 || o.More != 13 {
		t.Errorf("%d runs, %d more", len(o.Rows), o.More)
	}
	// Points over names are shown while there is room, then left to their sweep.
	f := suite()
	names := record.Sweep{Axis: "memory"}
	for i := range 6 {
		names.Points = append(names.Points, record.SweepPoint{Label: "m", Run: i})
	}
	f.Sweeps = append(f.Sweeps, names)
	if o := newOverview(f); len(o.Rows) != 8 {
		t.Errorf("%d runs", len(o.Rows))
	}
	for range overviewRows {
		f.Runs = append(f.Runs, f.Runs[7])
	}
	if o := newOverview(f); len(o.Rows) != 2+overviewRows {
		t.Errorf("%d runs", len(o.Rows))
	}
	f.Sweeps = []record.Sweep{{Unit: "count", Points: []record.SweepPoint{{Run: 0}, {Run: 1}}}}
	f.Runs = f.Runs[:2]
	if o := newOverview(f); len(o.Rows) != 1 || o.Rows[0].ID != "run-2" {
		t.Errorf("not the best: %+v", o.Rows)
	}
}

func TestSweepOfTrainingShowsUtilisation(t *testing.T) {
	page := readable(t, suite())
	at := strings.Index(page, `id="sweep-2"`)
	part := page[at : at+strings.Index(page[at:], "</section>")]
	for _, want := range []string{">utilisation</th>", `<td class="num">56 %</td>`, `<td class="num">99.9 %</td>`,
		"1.36 GB/s"} {
		if !strings.Contains(part, want) {
			t.Errorf("%q is not in the table", want)
		}
	}
	if at := strings.Index(page, `id="sweep-1"`); strings.Contains(page[at:at+strings.Index(page[at:], "</section>")],
		"utilisation") {
		t.Error("utilisation of runs that have none")
	}
}
