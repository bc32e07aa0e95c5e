// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"html"
	"strings"
)

// plot draws one panel per row and figure: a bar for each target's median, and a line from the lowest to the highest
// round.
func plot(r *result) string {
	const (
		panelWidth, bar, labels, gap = 540, 16, 130, 24
		columns                      = 2
	)
	var body strings.Builder
	y := 40
	for _, row := range r.Rows {
		height := 0
		for column, m := range []struct {
			name   string
			better string
			values func(string) []float64
		}{{rateName(row), "more is better", row.rate}, {cpuName(row), "less is better", row.cpu}} {
			x := column * panelWidth
			fmt.Fprintf(&body, "<text x='%d' y='%d' class='h'>%s</text>\n", x+gap, y,
				html.EscapeString(row.Name+" — "+m.name+", "+m.better))
			top := 0.0
			for _, t := range r.Targets {
				top = max(top, spreadOf(m.values(t)).Max)
			}
			line := 0
			for _, t := range r.Targets {
				v := m.values(t)
				if len(v) == 0 || top <= 0 {
					continue
				}
				s := spreadOf(v)
				at := y + 10 + line*(bar+4)
				scale := float64(panelWidth-labels-gap-70) / top
				left := float64(x + gap + labels)
				class := "o"
				if strings.HasPrefix(t, "nebulaio") {
					class = "n"
				} else if strings.HasPrefix(t, "bare") {
					class = "b"
				}
				fmt.Fprintf(&body, "<text x='%.0f' y='%d' class='l'>%s</text>", left-6, at+12, html.EscapeString(t))
				fmt.Fprintf(&body, "<rect x='%.1f' y='%d' width='%.1f' height='%d' class='%s'/>", left, at,
					max(s.Median*scale, 0.5), bar, class)
				fmt.Fprintf(&body, "<line x1='%.1f' x2='%.1f' y1='%d' y2='%d'/>", left+s.Min*scale, left+s.Max*scale, at+bar/2,
					at+bar/2)
				fmt.Fprintf(&body, "<text x='%.1f' y='%d' class='v'>%s</text>\n", left+s.Max*scale+4, at+12, number(s.Median))
				line++
			}
			height = max(height, line*(bar+4))
		}
		y += height + 44
	}
	return fmt.Sprintf("<svg xmlns='http://www.w3.org/2000/svg' width='%d' height='%d' viewBox='0 0 %[1]d %[2]d' "+
		"font-family='sans-serif' font-size='12'>\n"+
		"<style>.h{font-weight:bold;fill:#222}.l{text-anchor:end;fill:#444}.v{fill:#222}.n{fill:#5b4bc4}.b{fill:#9aa3ad}.o{fill:#d9a441}line{stroke:#222;stroke-width:1.5}</style>\n"+
		"<rect width='100%%' height='100%%' fill='#fff'/>\n%s</svg>\n", columns*panelWidth+gap, y, body.String())
}

func rateName(r *rowResult) string {
	if r.ByBytes {
		return "MB/s"
	}
	return "requests/s"
}

func cpuName(r *rowResult) string {
	if r.ByBytes {
		return "server CPU s/GiB"
	}
	return "server CPU µs/request"
}
