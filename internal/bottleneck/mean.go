// SPDX-License-Identifier: Apache-2.0

package bottleneck

// Mean returns one window that covers all the given windows. Each value is the mean over their time. Windows in which a
// value is unknown are left out of its mean. The field Waits of the result is nil.
func Mean(windows []Window) Window {
	out := Window{Missing: map[string]string{}}
	for _, w := range windows {
		out.Seconds += w.Seconds
		for name, why := range w.Missing {
			out.Missing[name] = why
		}
		if w.CPU.Group != "" {
			out.CPU.Group = w.CPU.Group
		}
	}
	of := func(value func(Window) float64) float64 { return over(windows, value) }
	out.CPU.Used = max(of(func(w Window) float64 { return w.CPU.Used }), 0)
	out.CPU.Usable = max(of(func(w Window) float64 { return w.CPU.Usable }), 0)
	out.CPU.Kernel = max(of(func(w Window) float64 { return w.CPU.Kernel }), 0)
	out.CPU.Busiest = of(func(w Window) float64 { return w.CPU.Busiest })
	out.CPU.Throttled = of(func(w Window) float64 { return w.CPU.Throttled })
	out.CPU.Pressure = of(func(w Window) float64 { return w.CPU.Pressure })
	out.Memory.HitGBps = max(of(func(w Window) float64 { return w.Memory.HitGBps }), 0)
	out.Memory.DirtyShare = max(of(func(w Window) float64 { return w.Memory.DirtyShare }), 0)
	out.Memory.WriteGBps = max(of(func(w Window) float64 { return w.Memory.WriteGBps }), 0)
	out.Memory.IOPressure = of(func(w Window) float64 { return w.Memory.IOPressure })

	out.GPUs = each(windows, func(w Window) []GPU { return w.GPUs }, func(g GPU) string { return g.Name },
		func(name string, of func(func(GPU) float64) float64) GPU {
			return GPU{Name: name, Busy: of(func(g GPU) float64 { return g.Busy }),
				Active:   of(func(g GPU) float64 { return g.Active }),
				PCIeGBps: max(of(func(g GPU) float64 { return g.PCIeGBps }), 0),
				LinkGBps: max(of(func(g GPU) float64 { return g.LinkGBps }), 0)}
		})
	out.Network = each(windows, func(w Window) []Interface { return w.Network },
		func(i Interface) string { return i.Name },
		func(name string, of func(func(Interface) float64) float64) Interface {
			return Interface{Name: name, GBps: max(of(func(i Interface) float64 { return i.GBps }), 0),
				LinkGBps: max(of(func(i Interface) float64 { return i.LinkGBps }), 0),
				Queued:   of(func(i Interface) float64 { return i.Queued })}
		})
	out.Disks = devices(windows, func(w Window) []Device { return w.Disks })
	out.Servers = devices(windows, func(w Window) []Device { return w.Servers })
	return out
}

func devices(windows []Window, list func(Window) []Device) []Device {
	return each(windows, list, func(d Device) string { return d.Name },
		func(name string, of func(func(Device) float64) float64) Device {
			d := Device{Name: name, GBps: max(of(func(d Device) float64 { return d.GBps }), 0),
				Reads:     max(of(func(d Device) float64 { return d.Reads }), 0),
				Writes:    max(of(func(d Device) float64 { return d.Writes }), 0),
				Busy:      max(of(func(d Device) float64 { return d.Busy }), 0),
				Depth:     max(of(func(d Device) float64 { return d.Depth }), 0),
				LimitGBps: max(of(func(d Device) float64 { return d.LimitGBps }), 0)}
			// The mean latency of a request is not the mean over the time: requests of busy windows count more.
			if n := d.Reads + d.Writes; n > 0 {
				d.Latency = max(of(func(d Device) float64 { return d.Latency * (d.Reads + d.Writes) }), 0) / n
			}
			return d
		})
}

// over returns the mean of a value over the time of the windows, or Unknown if no window knows it.
func over(windows []Window, value func(Window) float64) float64 {
	total, seconds := 0.0, 0.0
	for _, w := range windows {
		if v := value(w); v >= 0 {
			weight := max(w.Seconds, 1e-9) // a window without duration counts for a moment
			total, seconds = total+v*weight, seconds+weight
		}
	}
	if seconds == 0 {
		return Unknown
	}
	return total / seconds
}

// each makes one mean of all resources with the same name, in the order in which the names come first.
func each[T any](windows []Window, list func(Window) []T, name func(T) string,
	mean func(name string, of func(func(T) float64) float64) T) (out []T) {
	seen := map[string]bool{}
	for _, w := range windows {
		for _, t := range list(w) {
			if seen[name(t)] {
				continue
			}
			seen[name(t)] = true
			out = append(out, mean(name(t), func(value func(T) float64) float64 {
				return over(windows, func(w Window) float64 {
					for _, other := range list(w) {
						if name(other) == name(t) {
							return value(other)
						}
					}
					return Unknown
				})
			}))
		}
	}
	return out
}
