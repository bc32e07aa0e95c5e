// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/doctor/facts"
)

func platformChecks() []check {
	return []check{{"virt", virt}, {"cpu.governor", cpuGovernor}, {"cpu.idle", cpuIdle}, {"cpu.load", cpuLoad}}
}

func virt(f *exam) []answer {
	if v := f.Virtual(); v != "" {
		return one(Info, "", v)
	}
	return one(Pass, "", "no hypervisor seen")
}

func cpuGovernor(f *exam) []answer {
	g, st := f.Text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
	text := g
	if hint, st := f.Text("/sys/devices/system/cpu/cpu0/cpufreq/energy_performance_preference"); st == facts.There {
		text += ", energy_performance_preference=" + hint
	}
	switch {
	case st != facts.There:
		return skip("no frequency control here")
	case g != "performance":
		return one(Warn, "cpu0", text)
	}
	return one(Pass, "cpu0", text)
}

func cpuIdle(f *exam) []answer {
	worst, name := int64(0), ""
	for _, dir := range f.Glob("/sys/devices/system/cpu/cpu0/cpuidle", "state*") {
		off, _ := f.Integer(dir + "/disable")
		if us, ok := f.Integer(dir + "/latency"); ok && off == 0 && us > worst {
			worst = us
			name, _ = f.Text(dir + "/name")
		}
	}
	switch {
	case name == "":
		return skip("no idle states here")
	case worst > f.whole("cpu.idle", "wake_us"):
		return one(Info, "cpu0", fmt.Sprintf("%s takes %d µs to wake from", name, worst))
	}
	return one(Pass, "cpu0", fmt.Sprintf("deepest state %s, %d µs", name, worst))
}

// cpuLoad reads pressure stall information.
func cpuLoad(f *exam) []answer {
	var out []answer
	for _, p := range []struct {
		name string
		most float64
	}{{"io", f.num("cpu.load", "io_pct")}, {"cpu", f.num("cpu.load", "cpu_pct")}} {
		s, st := f.Text("/proc/pressure/" + p.name)
		if st != facts.There {
			continue
		}
		_, rest, _ := strings.Cut(s, "avg10=")
		num, _, _ := strings.Cut(rest, " ")
		v, err := strconv.ParseFloat(num, 64)
		if err != nil {
			continue
		}
		level := Pass
		if v > p.most {
			level = Warn
		}
		out = append(out, answer{level: level, subject: p.name,
			observed: fmt.Sprintf("some task waited %.0f %% of the last 10 s", v)})
	}
	if out == nil {
		return skip("the kernel keeps no pressure information")
	}
	return out
}
