// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"path"
	"strings"

	"github.com/nebulaio/nebulaio/internal/doctor/facts"
	"github.com/nebulaio/nebulaio/internal/units"
)

func blockChecks() []check {
	return []check{
		{"blk.peer", blkPeer}, {"blk.sched", blkSched}, {"blk.readahead", blkReadahead}, {"blk.max_sectors", blkMaxSectors},
		{"blk.nr_requests", blkRequests}, {"blk.affinity", blkAffinity}, {"blk.queues", blkQueues}, {"blk.lbs", blkLBS},
		{"nvme.health", nvmeHealth}, {"nvme.temp", nvmeTemp}, {"nvme.fw", nvmeFW},
		{"md.state", mdState}, {"md.chunk", mdChunk}, {"md.align", mdAlign}, {"dm.crypt", dmCrypt},
	}
}

// perDisk runs a check on each disk under the path.
func perDisk(f *exam, run func(facts.Disk) []answer) []answer {
	var out []answer
	for _, d := range f.Disks {
		out = append(out, run(d)...)
	}
	if out == nil {
		return skip("the path is not on a local disk, or the disk does not have this setting")
	}
	return out
}

func blkPeer(f *exam) []answer {
	if !f.Pair() {
		return skip(noPair)
	}
	return perDisk(f, func(d facts.Disk) []answer {
		switch {
		case d.Kind == "nvme" && d.PCI != "":
			return one(Pass, d.Name, "NVMe function "+d.PCI)
		case d.Fabrics():
			return one(Info, d.Name, "NVMe over fabrics, without a PCI function")
		case d.Kind == "virtio":
			return one(Fail, d.Name, "a virtio disk is not a PCI peer: its data passes through the host's memory")
		}
		return one(Fail, d.Name, d.Kind+" disk: no NVMe function that could be a peer of the GPU")
	})
}

func blkSched(f *exam) []answer {
	return perDisk(f, func(d facts.Disk) []answer {
		s, st := f.Text(d.Queue("scheduler"))
		rotates, _ := f.Integer(d.Queue("rotational"))
		now := facts.Chosen(s)
		switch {
		case st != facts.There:
			return nil
		case d.Kind == "nvme" && now != "none":
			return []answer{answer{level: Warn, subject: d.Name, observed: now}.with("want", "none")}
		case d.Kind == "virtio" && now != "none":
			return one(Info, d.Name, now+": the host schedules again; none saves the lock and the merging in the guest")
		case d.Kind == "scsi" && rotates == 1 && now == "none":
			return []answer{answer{level: Warn, subject: d.Name, observed: now + " on a rotating disk"}.with("want",
				"mq-deadline")}
		}
		return one(Pass, d.Name, now)
	})
}

func blkReadahead(f *exam) []answer {
	name, least, file := f.Top(), f.whole("blk.readahead", "disk_kib"), ""
	switch {
	case f.Mount != nil && (f.NFS() || strings.HasPrefix(f.Mount.FSType, "fuse")):
		name, least, file = f.Mount.Dev, f.whole("blk.readahead",
			"network_kib"), "/sys/class/bdi/"+f.Mount.Dev+"/read_ahead_kb"
	case name != "":
		file = facts.Block(name) + "/queue/read_ahead_kb"
	}
	n, ok := f.Integer(file)
	if file == "" || !ok {
		return skip("no readahead setting for this path")
	}
	if n < least {
		return []answer{answer{level: Warn, subject: name, observed: fmt.Sprintf("%d KiB", n)}.with("file", file, "want",
			fmt.Sprint(least))}
	}
	return one(Pass, name, fmt.Sprintf("%d KiB", n))
}

func blkMaxSectors(f *exam) []answer {
	return perDisk(f, func(d facts.Disk) []answer {
		now, ok1 := f.Integer(d.Queue("max_sectors_kb"))
		hw, ok2 := f.Integer(d.Queue("max_hw_sectors_kb"))
		if !ok1 || !ok2 {
			return nil
		}
		text := fmt.Sprintf("%d KiB, hardware takes %d KiB", now, hw)
		if hw == 1<<31-1 {
			text = fmt.Sprintf("%d KiB, hardware has no limit", now)
		}
		if want := min(hw, f.whole("blk.max_sectors", "want_kib")); now < want {
			return []answer{answer{level: Warn, subject: d.Name, observed: text}.with("want", fmt.Sprint(want))}
		}
		return one(Pass, d.Name, text)
	})
}

func blkRequests(f *exam) []answer {
	return perDisk(f, func(d facts.Disk) []answer {
		n, ok := f.Integer(d.Queue("nr_requests"))
		s, _ := f.Text(d.Queue("scheduler"))
		switch {
		case !ok:
			return nil
		case n < f.whole("blk.nr_requests", "least") && facts.Chosen(s) != "none":
			return one(Warn, d.Name, fmt.Sprintf("%d with the scheduler %s", n, facts.Chosen(s)))
		}
		return one(Info, d.Name, fmt.Sprint(n))
	})
}

func blkAffinity(f *exam) []answer {
	return perDisk(f, func(d facts.Disk) []answer {
		var parts []string
		for _, n := range []string{"rq_affinity", "nomerges", "wbt_lat_usec"} {
			if v, st := f.Text(d.Queue(n)); st == facts.There {
				parts = append(parts, n+"="+v)
			}
		}
		if parts == nil {
			return nil
		}
		return one(Info, d.Name, strings.Join(parts, " "))
	})
}

func blkQueues(f *exam) []answer {
	return perDisk(f, func(d facts.Disk) []answer {
		n := len(f.Glob(facts.Block(d.Name)+"/mq", "[0-9]*"))
		enough := min(f.CPUs, int(f.whole("blk.queues", "enough")))
		text := fmt.Sprintf("hardware queues: %d for %d CPUs", n, f.CPUs)
		if poll, ok := f.Integer("/sys/module/nvme/parameters/poll_queues"); ok && d.Kind == "nvme" {
			text += fmt.Sprintf(", %d of them polled", poll)
		}
		switch {
		case n == 0:
			return nil
		case n < enough && d.Kind == "nvme":
			return one(Warn, d.Name, text)
		case n < enough && d.Kind == "virtio":
			return one(Info, d.Name, text+"; the host decides how many")
		}
		return one(Pass, d.Name, text)
	})
}

func blkLBS(f *exam) []answer {
	return perDisk(f, func(d facts.Disk) []answer {
		l, ok1 := f.Integer(d.Queue("logical_block_size"))
		p, ok2 := f.Integer(d.Queue("physical_block_size"))
		if !ok1 || !ok2 {
			return nil
		}
		return one(Info, d.Name, fmt.Sprintf("logical %d, physical %d bytes", l, p))
	})
}

func nvmeHealth(f *exam) []answer {
	return perDisk(f, func(d facts.Disk) []answer {
		if d.Kind != "nvme" {
			return nil
		}
		if s, _ := f.Text("/sys/class/nvme/" + d.Controller() + "/state"); s != "" && s != "live" {
			return one(Fail, d.Controller(), "its controller is "+s)
		}
		if h, ok := f.NVMe[d.Controller()]; ok {
			return []answer{f.judgeHealth(d.Controller(), h)}
		}
		return []answer{unknown(d.Controller(), "the health log needs a command to the drive",
			"nvme smart-log /dev/"+d.Controller())}
	})
}

// judgeHealth judges a drive's health log. A critical warning means that data is at risk; other signs mean that the
// drive is wearing out.
func (f *exam) judgeHealth(name string, h facts.Health) answer {
	a := answer{level: Pass, subject: name,
		observed: fmt.Sprintf("%d %% of its life used, %d %% spare, %d media errors, %d minutes too hot", h.Used, h.Spare,
			h.MediaErrors, h.HotMinutes)}
	switch {
	case h.Critical != 0:
		a.level, a.observed = Fail, fmt.Sprintf("critical warning %#02x; ", h.Critical)+a.observed
	case int64(h.Used) > f.whole("nvme.health", "used_pct"), h.Spare < h.SpareThreshold, h.MediaErrors > 0:
		a.level = Warn
	}
	return a
}

// nvmeTemp reads the temperature sensor that every user may read. Newer kernels keep it one directory further down.
func nvmeTemp(f *exam) []answer {
	return perDisk(f, func(d facts.Disk) []answer {
		at := "/sys/class/nvme/" + d.Controller()
		for _, h := range append(f.Glob(at, "hwmon[0-9]*"), f.Glob(at+"/hwmon", "hwmon*")...) {
			now, ok1 := f.Integer(h + "/temp1_input")
			most, ok2 := f.Integer(h + "/temp1_max")
			if !ok1 || !ok2 {
				continue
			}
			text := fmt.Sprintf("%d °C, warns at %d °C", now/1000, most/1000)
			if now >= most-f.whole("nvme.temp", "margin_c")*1000 {
				return one(Warn, d.Controller(), text)
			}
			return one(Pass, d.Controller(), text)
		}
		return nil
	})
}

func nvmeFW(f *exam) []answer {
	seen, names := map[string]string{}, []string{}
	for _, d := range f.Disks {
		if v, st := f.Text("/sys/class/nvme/" + d.Controller() + "/firmware_rev"); st == facts.There && d.Kind == "nvme" {
			if _, known := seen[v]; !known {
				names = append(names, d.Controller()+" "+v)
			}
			seen[v] = d.Name
		}
	}
	switch {
	case len(f.Disks) < 2 || len(names) == 0:
		return skip("needs several NVMe disks under one path")
	case len(names) > 1:
		return one(Warn, f.Top(), strings.Join(names, ", "))
	}
	return one(Pass, f.Top(), names[0])
}

func mdState(f *exam) []answer {
	var out []answer
	for _, md := range f.Underneath("md") {
		dir := facts.Block(md) + "/md/"
		level, _ := f.Text(dir + "level")
		sync, _ := f.Text(dir + "sync_action")
		gone, _ := f.Integer(dir + "degraded")
		a := answer{level: Pass, subject: md, observed: level + " " + sync}
		switch {
		case gone > 0:
			a.level, a.observed = Fail, fmt.Sprintf("%s, %d members missing", level, gone)
		case sync != "" && sync != "idle" && sync != "frozen":
			a.level, a.observed = Warn, level+", "+sync+" is running"
			if done, st := f.Text(dir + "sync_completed"); st == facts.There && done != "none" {
				a.observed += ", " + done + " sectors"
			}
		}
		out = append(out, a)
	}
	if out == nil {
		return skip("no md array under the path")
	}
	return out
}

func mdChunk(f *exam) []answer {
	var out []answer
	for _, md := range f.Underneath("md") {
		n, ok := f.Integer(facts.Block(md) + "/md/chunk_size")
		if !ok || n == 0 {
			continue
		}
		level := Pass
		if n < f.whole("md.chunk", "least") || n > f.whole("md.chunk", "most") {
			level = Warn
		}
		out = append(out, answer{level: level, subject: md, observed: fmt.Sprintf("%d KiB", n>>10)})
	}
	if out == nil {
		return skip("no striped md array under the path")
	}
	return out
}

func mdAlign(f *exam) []answer {
	align := f.whole("md.align", "align")
	return perDisk(f, func(d facts.Disk) []answer {
		if d.Part == "" || align <= 0 {
			return nil
		}
		start, ok := f.Integer(facts.Block(d.Part) + "/start")
		switch {
		case !ok:
			return nil
		case start*512%align != 0:
			return one(Warn, d.Part, fmt.Sprintf("starts at sector %d, not on a multiple of %s", start, units.Bytes(align)))
		}
		return one(Pass, d.Part, fmt.Sprintf("starts at sector %d", start))
	})
}

func dmCrypt(f *exam) []answer {
	for _, dm := range f.Underneath("dm-") {
		id, _ := f.Text(facts.Block(dm) + "/dm/uuid")
		if strings.HasPrefix(id, "CRYPT-") {
			name, _ := f.Text(facts.Block(dm) + "/dm/name")
			return one(Fail, path.Join("/dev/mapper", name), "encrypted by dm-crypt: the CPU decrypts every byte")
		}
	}
	if len(f.Disks) == 0 {
		return skip("the path is not on a local disk")
	}
	return one(Pass, f.Top(), "no dm-crypt")
}
