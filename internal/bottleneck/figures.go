// SPDX-License-Identifier: Apache-2.0

package bottleneck

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/units"
)

// figuresOf returns the four figures behind a verdict.
func figuresOf(w Window) []Figure {
	all := []Figure{gpuFigure(w), networkFigure(w), storageFigure(w), cpuFigure(w)}
	for i, f := range all {
		if why, missing := w.Missing[f.Name]; missing {
			all[i].Share, all[i].Text = Unknown, why
		}
		all[i].Share = min(all[i].Share, 1)
	}
	return all
}

func gpuFigure(w Window) Figure {
	f := Figure{Name: FigureGPU, Share: Unknown, Text: "no GPU was found"}
	if len(w.GPUs) == 0 {
		return f
	}
	gpus := used(w)
	if len(gpus) == 0 {
		return Figure{Name: FigureGPU, Text: fmt.Sprintf("%s idle", are(len(w.GPUs), namesOf(w.GPUs)))}
	}
	f.Share = mean(gpus, func(g GPU) float64 { return g.Busy })
	f.Text = fmt.Sprintf("%s %s kernels %s of the time", namesOf(gpus), verb(len(gpus), "runs", "run"), percent(f.Share))
	if active := mean(gpus, func(g GPU) float64 { return g.Active }); active >= 0 {
		f.Text += fmt.Sprintf(", on %s of the multiprocessors", percent(active))
	}
	top := slices.MaxFunc(gpus, func(a, b GPU) int {
		return cmp.Compare(ratio(a.PCIeGBps, a.LinkGBps), ratio(b.PCIeGBps, b.LinkGBps))
	})
	if top.LinkGBps > 0 {
		f.Text += fmt.Sprintf("; copies use %s of %s of PCIe", rate(top.PCIeGBps), rate(top.LinkGBps))
	}
	return f
}

func networkFigure(w Window) Figure {
	f := Figure{Name: FigureNetwork, Text: "hardly any traffic"}
	var parts []string
	if w.Waits != nil {
		f.Share = w.Waits.Network
		parts = append(parts, fmt.Sprintf("waited for %s of the time", percent(f.Share)))
	}
	if top, ok := busiestInterface(w); ok {
		if share := max(ratio(top.GBps, top.LinkGBps), top.Queued); w.Waits == nil {
			f.Share = share
		}
		text := fmt.Sprintf("%s carries %s", top.Name, rate(top.GBps))
		if top.LinkGBps > 0 {
			text += " of " + rate(top.LinkGBps)
		}
		parts = append(parts, text)
	}
	if len(parts) > 0 {
		f.Text = strings.Join(parts, "; ")
	}
	return f
}

func storageFigure(w Window) Figure {
	f := Figure{Name: FigureStorage, Text: "no disk is busy"}
	var parts []string
	if w.Waits != nil {
		f.Share = w.Waits.Storage
		parts = append(parts, fmt.Sprintf("waited for %s of the time, %s read, %s written", percent(f.Share),
			rate(w.Waits.ReadGBps), rate(w.Waits.WriteGBps)))
	}
	if d, ok := busiest(append(slices.Clone(w.Disks), w.Servers...)); ok {
		if w.Waits == nil {
			f.Share = d.Busy
		}
		parts = append(parts, fmt.Sprintf("%s busy %s of the time, %s, %s per request", d.Name, percent(d.Busy),
			rate(d.GBps), dur(d.Latency)))
	}
	if len(parts) > 0 {
		f.Text = strings.Join(parts, "; ")
	}
	return f
}

func cpuFigure(w Window) Figure {
	p := w.CPU
	f := Figure{Name: FigureCPU, Share: ratio(p.Used, p.Usable),
		Text: fmt.Sprintf("%.1f of %.1f usable processors", p.Used, p.Usable)}
	if p.Usable <= 0 {
		f.Share, f.Text = Unknown, fmt.Sprintf("%.1f processors", p.Used)
	}
	if p.Busiest >= 0 {
		f.Text += fmt.Sprintf("; the busiest thread runs %s of the time", percent(p.Busiest))
	}
	if p.Starved >= working {
		f.Text += fmt.Sprintf("; ready without a processor %s of the time", percent(p.Starved))
	}
	if p.Throttled > 0 {
		f.Text += fmt.Sprintf("; the control group stops them in %s of its periods", percent(p.Throttled))
	}
	return f
}

// ratio returns value over limit, or 0 if the limit is not known.
func ratio(value, limit float64) float64 {
	if limit <= 0 || math.IsNaN(value) {
		return 0
	}
	return value / limit
}

func percent(share float64) string {
	if share < 0 || math.IsNaN(share) {
		return "an unknown share"
	}
	return fmt.Sprintf("%.0f %%", min(share, 1)*100)
}

func rate(gbps float64) string { return units.Rate(max(gbps, 0)) }

func dur(seconds float64) string {
	return units.Duration(time.Duration(seconds * float64(time.Second)))
}

func namesOf(gpus []GPU) string {
	if len(gpus) == 1 {
		return gpus[0].Name
	}
	return fmt.Sprintf("%d GPUs", len(gpus))
}

func verb(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func are(n int, what string) string { return what + " " + verb(n, "is", "are") }
