// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strconv"
	"strings"
)

func platformChecks() []check {
	return []check{{"virt", virt}, {"cpu.governor", cpuGovernor}, {"cpu.idle", cpuIdle}, {"cpu.load", cpuLoad}}
}

func virt(f *facts) []answer {
	if v := f.virtual(); v != "" {
		return one(Info, "", v)
	}
	return one(Pass, "", "no hypervisor seen")
}

func cpuGovernor(f *facts) []answer {
	g, st := f.text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
	switch {
	case st != there:
		return skip("no frequency control here")
	case g != "performance":
		return one(Warn, "cpu0", g)
	}
	return one(Pass, "cpu0", g)
}

func cpuIdle(f *facts) []answer {
	worst, name := int64(0), ""
	for _, dir := range glob(f.t, "/sys/devices/system/cpu/cpu0/cpuidle", "state*") {
		off, _ := f.integer(dir + "/disable")
		if us, ok := f.integer(dir + "/latency"); ok && off == 0 && us > worst {
			worst = us
			name, _ = f.text(dir + "/name")
		}
	}
	switch {
	case name == "":
		return skip("no idle states here")
	case worst > 50:
		return one(Info, "cpu0", fmt.Sprintf("%s takes %d µs to wake from", name, worst))
	}
	return one(Pass, "cpu0", fmt.Sprintf("deepest state %s, %d µs", name, worst))
}

// cpuLoad reads pressure stall information.
func cpuLoad(f *facts) []answer {
	var out []answer
	for _, p := range []struct {
		name string
		most float64
	}{{"io", 20}, {"cpu", 40}} {
		s, st := f.text("/proc/pressure/" + p.name)
		if st != there {
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
		out = append(out, answer{level: level, subject: p.name, observed: fmt.Sprintf("some task waited %.0f %% of the last 10 s", v)})
	}
	if out == nil {
		return skip("the kernel keeps no pressure information")
	}
	return out
}
