// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/bench/record"
)

// FuzzRender shows whatever Parse takes: nothing panics, plots stay XML, and a
// file compared with itself has lost nothing.
func FuzzRender(f *testing.F) {
	for _, file := range []*record.File{stopped(), wrong(), hostOnly(), training()} {
		b, err := json.Marshal(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"schema":1,"tool":"nebulaio bench","runs":[{"series":[{"at":1e14,"gbps":1e15},{"at":1e15}]},{"latency":{"buckets":[{"up_to":1e-300,"count":9223372036854775807}]}}],
		"sweeps":[{"unit":"count","points":[{"x":0,"run":1},{"x":1e15,"run":0}]},{"points":[{"run":0}]}],"train":{"trace":[{},{},{"end":1e15}]}}`))
	f.Add([]byte(`{"schema":1,"tool":"nebulaio bench","train":{}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := record.Parse("fuzz", b)
		if err != nil {
			return
		}
		var page bytes.Buffer
		for _, write := range []func(io.Writer, *record.File) error{WriteText, WriteCSV, WriteHTML} {
			page.Reset()
			if err := write(&page, file); err != nil {
				t.Fatal(err)
			}
		}
		for _, svg := range plots(page.String()) {
			if err := xml.Unmarshal([]byte(svg), new(struct{})); err != nil || strings.Contains(svg, `"NaN`) {
				t.Fatalf("%v: %s", err, svg)
			}
		}
		c := Compare(file, file)
		if c.Worst != 0 || math.IsNaN(c.Mean) || len(c.OnlyA)+len(c.OnlyB) != 0 {
			t.Fatalf("compared with itself: %+v", c)
		}
		if err := WriteComparison(io.Discard, c); err != nil {
			t.Fatal(err)
		}
	})
}
