// SPDX-License-Identifier: Apache-2.0

package bottleneck

import (
	"cmp"
	"fmt"
	"slices"
)

// Shares of the time or of a limit from which on a resource holds a job back.
const (
	gpuBusy       = 0.85 // of the time: the GPU waits so little that only faster steps help
	fewMultis     = 0.30 // of the multiprocessors: kernels that only wait for other GPUs use no more
	linkFull      = 0.50 // of the nominal rate of a PCIe link: headers, gaps and pageable copies take the rest
	linkSaturated = 0.80 // of the nominal rate of a PCIe link: nothing but copies, whatever the driver says of the GPU
	netFull       = 0.75 // of the nominal rate of a network interface
	netUsed       = 0.25 // of the nominal rate: enough traffic to explain GPUs that wait
	diskBusy      = 0.80 // of the time, while threads wait for it
	diskFull      = 0.80 // of the highest rate that was measured
	pageLimit     = 0.85 // of the dirty pages at which writers have to wait
	writersWait   = 0.20 // of the time: writers wait for dirty pages
	processorsAll = 0.85 // of the usable processors
	threadAll     = 0.90 // of the time: one thread does all the work
	stopped       = 0.20 // of the time: the quota of the control group stops the job
	queueFull     = 0.50 // of the time: packets wait in the queue of an interface
	mostly        = 0.35 // of the time of a command: the largest of its waits, if it is at least so large
	requestsAll   = 0.70 // of the time: requests of a command that does little else are in flight
	inKernel      = 0.50 // of the processor time, with cacheReads: processors copy from the page cache
	cacheReads    = 0.20 // GB/s per used processor from the page cache
	threadReads   = 1.0  // GB/s from the page cache: enough to keep a thread busy with copies
	someCopies    = 0.15 // of the nominal rate of a PCIe link: copies from pageable memory reach no more
	hardlyTraffic = 1e-3 // GB/s
	working       = 0.05 // of the time: a GPU that is used at all
	fewLooks      = 8    // at a command: less is no basis for a verdict
)

// candidate is one resource that may hold the job back. Its score is its share over the share that counts.
type candidate struct {
	bound    Bound
	cause    Cause
	resource string
	score    float64
	why      string
}

// Judge says what holds a machine or a command back. Judge never returns an empty Bound, and always returns the four
// figures in the order of the constants FigureGPU to FigureCPU.
//
// A GPU that computes nearly all the time is the answer, unless copies fill its link and no meter tells kernels from
// copies. Next come the limits that a job can only reach by using them up: the CPU quota, the PCIe link and all
// processors. Only then do waits for storage and network count, because a job that is held back elsewhere waits for
// them as well.
//
// For a command that reaches none of these limits, the largest of three shares of its time decides. A thread runs, a
// thread waits for storage, or the command waits for the network.
func Judge(w Window) Verdict {
	v := Verdict{Figures: figuresOf(w)}
	if few := w.Waits != nil && w.Waits.Looks < fewLooks; few || !(w.Seconds > 0) {
		v.Bound = Unclear
		v.Why = fmt.Sprintf("the meters ran for only %s, which is too short for a verdict", dur(max(w.Seconds, 0)))
		return finished(v)
	}
	for _, rank := range [][]candidate{compute(w), append(copies(w), processors(w)...),
		slices.Concat(oneThread(w, mostly), storage(w), network(w)), slowCopies(w), starved(w)} {
		rank = slices.DeleteFunc(rank, func(c candidate) bool { return !(c.score >= 1) })
		if len(rank) == 0 {
			continue
		}
		// Of equal scores the first wins: candidates are listed from the most specific cause to the least.
		c := rank[0]
		for _, other := range rank[1:] {
			if other.score > c.score {
				c = other
			}
		}
		v.Bound, v.Cause, v.Resource, v.Why = c.bound, c.cause, c.resource, c.why
		return finished(v)
	}
	v.Bound = Nothing
	v.Why = "no GPU, link, disk, network interface or processor is near its limit, and nothing waits long for one"
	return finished(v)
}

// finished adds the advice and the next step to a verdict.
func finished(v Verdict) Verdict {
	v.Next = advice(v)
	v.Step = stepFor(v.Bound, v.Next)
	return v
}

// used returns the GPUs that do anything. A machine may have GPUs that the job does not use.
func used(w Window) (all []GPU) {
	for _, g := range w.GPUs {
		if g.Busy >= working || g.LinkGBps > 0 && g.PCIeGBps >= working*g.LinkGBps {
			all = append(all, g)
		}
	}
	return all
}

// mean returns the mean of the known values, or Unknown if there is none.
func mean(gpus []GPU, value func(GPU) float64) float64 {
	sum, n := 0.0, 0
	for _, g := range gpus {
		if v := value(g); v >= 0 {
			sum, n = sum+v, n+1
		}
	}
	if n == 0 {
		return Unknown
	}
	return sum / float64(n)
}

func compute(w Window) []candidate {
	gpus := used(w)
	busy := mean(gpus, func(g GPU) float64 { return g.Busy })
	active := mean(gpus, func(g GPU) float64 { return g.Active })
	if busy < gpuBusy || active < fewMultis && copiesOnly(gpus) {
		return nil
	}
	c := candidate{bound: Compute, resource: namesOf(gpus), score: busy / gpuBusy,
		why: fmt.Sprintf("%s %s kernels %s of the time", namesOf(gpus), verb(len(gpus), "runs", "run"), percent(busy))}
	if active < 0 || active >= fewMultis {
		return []candidate{c}
	}
	// Kernels of collective communication occupy a GPU and wait on few of its multiprocessors.
	for _, i := range w.Network {
		if share := ratio(i.GBps, i.LinkGBps); share >= netUsed || i.Queued >= queueFull {
			return []candidate{{bound: Communication, resource: i.Name, score: 1, why: fmt.Sprintf("%s, but only %s of "+
				"the multiprocessors have work, while %s carries %s: the kernels wait for other GPUs", c.why,
				percent(active), i.Name, rate(i.GBps))}}
		}
	}
	c.why += fmt.Sprintf(", on only %s of the multiprocessors", percent(active))
	return []candidate{c}
}

// copiesOnly reports whether copies fill the link of a GPU. The driver then calls the GPU busy even if no kernel runs.
func copiesOnly(gpus []GPU) bool {
	return slices.ContainsFunc(gpus, func(g GPU) bool { return ratio(g.PCIeGBps, g.LinkGBps) >= linkSaturated })
}

func copies(w Window) (all []candidate) {
	for _, g := range w.GPUs {
		share := ratio(g.PCIeGBps, g.LinkGBps)
		if !(share > 0) {
			continue
		}
		c := candidate{bound: Copy, resource: g.Name, score: share / linkFull, why: fmt.Sprintf(
			"the PCIe link of %s carries %s of %s, while ", g.Name, rate(g.PCIeGBps), rate(g.LinkGBps))}
		if share >= linkSaturated && g.Busy >= gpuBusy {
			c.why += fmt.Sprintf("the driver calls it busy %s of the time, copies included", percent(g.Busy))
		} else {
			c.why += fmt.Sprintf("kernels run %s of the time", percent(g.Busy))
		}
		all = append(all, c)
	}
	return all
}

// slowCopies returns copies that are far from the limit of their link, for jobs in which nothing else stands out.
func slowCopies(w Window) (all []candidate) {
	for _, c := range copies(w) {
		c.score *= linkFull / someCopies
		all = append(all, c)
	}
	return all
}

func processors(w Window) (all []candidate) {
	p := w.CPU
	share := ratio(p.Used, p.Usable)
	if p.Throttled >= stopped {
		// The quota is the cause even if it leaves all processors busy: its score is above theirs.
		all = append(all, candidate{bound: CPU, cause: Throttled, resource: p.Group, score: 1 +
			max(p.Throttled, share)/processorsAll, why: fmt.Sprintf("the CPU quota of control group %s stops it in %s of its "+
			"periods; %.1f processors are busy", p.Group, percent(p.Throttled), p.Used)})
	}
	busy := candidate{bound: CPU, score: share / processorsAll, why: fmt.Sprintf("%.1f of %.1f usable processors are busy",
		p.Used, p.Usable)}
	if copiesFromCache(w) {
		busy.cause = PageCache
		busy.why += fmt.Sprintf(", mostly in the kernel, and %s come from the page cache", rate(w.Memory.HitGBps))
	}
	all = append(all, busy)
	if w.Waits == nil && p.Busiest >= threadAll && w.Memory.HitGBps >= threadReads {
		all = append(all, candidate{bound: CPU, cause: PageCache, score: p.Busiest / threadAll, why: fmt.Sprintf(
			"one thread runs %s of the time, and %s come from the page cache", percent(p.Busiest), rate(w.Memory.HitGBps))})
	}
	return append(all, oneThread(w, threadAll)...)
}

// starved returns a command that cannot run because other programs have the processors.
func starved(w Window) []candidate {
	p := w.CPU
	return []candidate{{bound: CPU, cause: OtherPrograms, score: p.Starved / mostly, why: fmt.Sprintf(
		"other programs have the processors: a thread is ready to run and does not %s of the time", percent(p.Starved))}}
}

// copiesFromCache reports whether the processors mostly copy bytes from the page cache.
func copiesFromCache(w Window) bool {
	return w.Memory.HitGBps >= cacheReads*max(w.CPU.Used, 1) && w.CPU.Kernel >= inKernel*w.CPU.Used
}

// oneThread returns the busiest thread of a command. limit is the share from which on it counts.
func oneThread(w Window, limit float64) []candidate {
	p := w.CPU
	// A thread that waits for a GPU may spin, so that one busy thread means nothing beside a GPU at work.
	if w.Waits == nil || p.Busiest < 0 || len(used(w)) > 0 {
		return nil
	}
	c := candidate{bound: CPU, cause: OneThread, score: p.Busiest / limit, why: fmt.Sprintf(
		"one thread runs %s of the time, and %.1f of %.1f usable processors are busy", percent(p.Busiest), p.Used, p.Usable)}
	if copiesFromCache(w) {
		c.cause = PageCache
		c.why += fmt.Sprintf(", mostly in the kernel, while %s come from the page cache", rate(w.Memory.HitGBps))
	}
	return []candidate{c}
}

func storage(w Window) (all []candidate) {
	if w.Waits != nil {
		c := candidate{bound: Storage, score: w.Waits.Storage / mostly, why: fmt.Sprintf("the command waits for "+
			"storage %s of the time, and reads %s and writes %s", percent(w.Waits.Storage), rate(w.Waits.ReadGBps),
			rate(w.Waits.WriteGBps))}
		if d, ok := busiest(append(slices.Clone(w.Disks), w.Servers...)); ok {
			c.resource, c.cause = d.Name, Disk
			if slices.Contains(w.Servers, d) {
				c.cause = RemoteStorage
			}
			c.why += fmt.Sprintf("; %s is busy %s of the time", d.Name, percent(d.Busy))
		}
		if c.cause == Disk && dirty(w) {
			c.cause = Writeback
		}
		return append(all, c, inFlight(w, c))
	}
	pressure := w.Memory.IOPressure
	if d, ok := busiest(w.Disks); ok && dirty(w) {
		all = append(all, candidate{bound: Storage, cause: Writeback, resource: d.Name, score: 1 + max(d.Busy, 0)/diskBusy,
			why: fmt.Sprintf("dirty pages are at %s of their limit, so that writers wait; %s writes %s",
				percent(w.Memory.DirtyShare), d.Name, rate(w.Memory.WriteGBps))})
	}
	for _, kind := range []struct {
		devices []Device
		cause   Cause
	}{{w.Disks, Disk}, {w.Servers, RemoteStorage}} {
		for _, d := range kind.devices {
			waited := d.Busy
			if pressure >= 0 {
				waited = min(d.Busy, pressure)
			}
			why := fmt.Sprintf("%s is busy %s of the time with %s, and a request takes %s", d.Name, percent(d.Busy),
				rate(d.GBps), dur(d.Latency))
			score := waited / diskBusy
			if full := ratio(d.GBps, d.LimitGBps) / diskFull; full > score && d.Busy >= diskBusy {
				score = full
				why = fmt.Sprintf("%s gives %s of at most %s", d.Name, rate(d.GBps), rate(d.LimitGBps))
			}
			all = append(all, candidate{bound: Storage, cause: kind.cause, resource: d.Name, score: score, why: why})
		}
	}
	return all
}

// inFlight judges storage by the requests of the command that are in flight, for threads that sleep too shortly to be
// seen waiting. c is the candidate whose disk was found.
func inFlight(w Window, c candidate) candidate {
	d, ok := busiest(w.Disks)
	if !ok {
		return candidate{}
	}
	share := d.Busy * min(ratio(w.Waits.ReadGBps+w.Waits.WriteGBps, d.GBps), 1)
	return candidate{bound: Storage, cause: c.cause, resource: d.Name, score: share / requestsAll, why: fmt.Sprintf(
		"requests of the command are in flight on %s %s of the time; it reads %s and writes %s", d.Name, percent(share),
		rate(w.Waits.ReadGBps), rate(w.Waits.WriteGBps))}
}

// dirty reports whether writers have to wait until dirty pages are written.
func dirty(w Window) bool {
	return w.Memory.DirtyShare >= pageLimit && (w.Memory.IOPressure < 0 || w.Memory.IOPressure >= writersWait)
}

func network(w Window) (all []candidate) {
	busiest := ""
	if i, ok := busiestInterface(w); ok {
		busiest = i.Name
	}
	if w.Waits != nil {
		all = append(all, candidate{bound: Communication, resource: busiest, score: w.Waits.Network / mostly,
			why: fmt.Sprintf("the command waits for the network %s of the time", percent(w.Waits.Network))})
	}
	for _, i := range w.Network {
		score, why := ratio(i.GBps, i.LinkGBps)/netFull, fmt.Sprintf("%s carries %s of %s", i.Name, rate(i.GBps),
			rate(i.LinkGBps))
		if queued := i.Queued / queueFull; queued > score {
			score, why = queued, fmt.Sprintf("packets wait in the queue of %s %s of the time, which carries %s", i.Name,
				percent(i.Queued), rate(i.GBps))
		}
		all = append(all, candidate{bound: Communication, resource: i.Name, score: score, why: why})
	}
	return all
}

// busiestInterface returns the network interface with most traffic. It returns false if there is hardly any.
func busiestInterface(w Window) (Interface, bool) {
	if len(w.Network) == 0 {
		return Interface{}, false
	}
	i := slices.MaxFunc(w.Network, func(a, b Interface) int { return cmp.Compare(a.GBps, b.GBps) })
	return i, i.GBps >= hardlyTraffic
}

// busiest returns the device that was busy for most of the time. It returns false if none was.
func busiest(all []Device) (Device, bool) {
	if len(all) == 0 {
		return Device{}, false
	}
	d := slices.MaxFunc(all, func(a, b Device) int { return cmp.Compare(a.Busy, b.Busy) })
	return d, d.Busy > working
}
