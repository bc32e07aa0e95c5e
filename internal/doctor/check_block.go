// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"path"
	"strings"
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
func perDisk(f *facts, run func(disk) []answer) []answer {
	var out []answer
	for _, d := range f.disks {
		out = append(out, run(d)...)
	}
	if out == nil {
		return skip("no disk of this machine is under the path, or it does not have this setting")
	}
	return out
}

func blkPeer(f *facts) []answer {
	if !f.pair() {
		return skip(noPair)
	}
	return perDisk(f, func(d disk) []answer {
		switch {
		case d.Kind == "nvme" && d.PCI != "":
			return one(Pass, d.Name, "NVMe function "+d.PCI)
		case d.fabrics():
			return one(Info, d.Name, "NVMe without a PCI function: over fabrics")
		case d.Kind == "virtio":
			return one(Fail, d.Name, "a virtio disk is no PCI peer: its data is in the host's memory before the guest sees it")
		}
		return one(Fail, d.Name, d.Kind+" disk: no NVMe function that could be a peer of the GPU")
	})
}

// chosen is the word in brackets of "none [mq-deadline] kyber".
func chosen(s string) string {
	_, rest, ok := strings.Cut(s, "[")
	if !ok {
		return s
	}
	word, _, _ := strings.Cut(rest, "]")
	return word
}

func blkSched(f *facts) []answer {
	return perDisk(f, func(d disk) []answer {
		s, st := f.text(d.queue("scheduler"))
		rotates, _ := f.integer(d.queue("rotational"))
		now := chosen(s)
		switch {
		case st != there:
			return nil
		case d.Kind == "nvme" && now != "none":
			return []answer{answer{level: Warn, subject: d.Name, observed: now}.with("want", "none")}
		case d.Kind == "scsi" && rotates == 1 && now == "none":
			return []answer{answer{level: Warn, subject: d.Name, observed: now + " on a rotating disk"}.with("want", "mq-deadline")}
		}
		return one(Pass, d.Name, now)
	})
}

func blkReadahead(f *facts) []answer {
	name, least, file := f.top(), int64(1024), ""
	switch {
	case f.mount != nil && (strings.HasPrefix(f.mount.fstype, "nfs") || strings.HasPrefix(f.mount.fstype, "fuse")):
		name, least, file = f.mount.dev, 4096, "/sys/class/bdi/"+f.mount.dev+"/read_ahead_kb"
	case name != "":
		file = block(name) + "/queue/read_ahead_kb"
	}
	n, ok := f.integer(file)
	if file == "" || !ok {
		return skip("no readahead setting for this path")
	}
	if n < least {
		return []answer{answer{level: Warn, subject: name, observed: fmt.Sprintf("%d KiB", n)}.with("file", file, "want", fmt.Sprint(least))}
	}
	return one(Pass, name, fmt.Sprintf("%d KiB", n))
}

func blkMaxSectors(f *facts) []answer {
	return perDisk(f, func(d disk) []answer {
		now, ok1 := f.integer(d.queue("max_sectors_kb"))
		hw, ok2 := f.integer(d.queue("max_hw_sectors_kb"))
		if !ok1 || !ok2 {
			return nil
		}
		text := fmt.Sprintf("%d KiB, hardware takes %d KiB", now, hw)
		if want := min(hw, 1024); now < want {
			return []answer{answer{level: Warn, subject: d.Name, observed: text}.with("want", fmt.Sprint(want))}
		}
		return one(Pass, d.Name, text)
	})
}

func blkRequests(f *facts) []answer {
	return perDisk(f, func(d disk) []answer {
		n, ok := f.integer(d.queue("nr_requests"))
		s, _ := f.text(d.queue("scheduler"))
		switch {
		case !ok:
			return nil
		case n < 256 && chosen(s) != "none":
			return one(Warn, d.Name, fmt.Sprintf("%d with the scheduler %s", n, chosen(s)))
		}
		return one(Info, d.Name, fmt.Sprint(n))
	})
}

func blkAffinity(f *facts) []answer {
	return perDisk(f, func(d disk) []answer {
		var parts []string
		for _, n := range []string{"rq_affinity", "nomerges", "wbt_lat_usec"} {
			if v, st := f.text(d.queue(n)); st == there {
				parts = append(parts, n+"="+v)
			}
		}
		if parts == nil {
			return nil
		}
		return one(Info, d.Name, strings.Join(parts, " "))
	})
}

func blkQueues(f *facts) []answer {
	return perDisk(f, func(d disk) []answer {
		n := len(glob(f.t, block(d.Name)+"/mq", "[0-9]*"))
		switch {
		case n == 0:
			return nil
		case d.Kind == "nvme" && n < min(f.CPUs, 16):
			return one(Warn, d.Name, fmt.Sprintf("%d hardware queues for %d CPUs", n, f.CPUs))
		}
		return one(Pass, d.Name, fmt.Sprintf("%d hardware queues for %d CPUs", n, f.CPUs))
	})
}

func blkLBS(f *facts) []answer {
	return perDisk(f, func(d disk) []answer {
		l, ok1 := f.integer(d.queue("logical_block_size"))
		p, ok2 := f.integer(d.queue("physical_block_size"))
		if !ok1 || !ok2 {
			return nil
		}
		return one(Info, d.Name, fmt.Sprintf("logical %d, physical %d bytes", l, p))
	})
}

func nvmeHealth(f *facts) []answer {
	return perDisk(f, func(d disk) []answer {
		if d.Kind != "nvme" {
			return nil
		}
		return []answer{answer{level: Unknown, subject: d.controller(), observed: "the health log needs a command to the drive"}.with("run", "nvme smart-log /dev/"+d.controller())}
	})
}

func nvmeTemp(f *facts) []answer {
	return perDisk(f, func(d disk) []answer {
		for _, h := range glob(f.t, "/sys/class/nvme/"+d.controller(), "hwmon*") {
			now, ok1 := f.integer(h + "/temp1_input")
			most, ok2 := f.integer(h + "/temp1_max")
			if !ok1 || !ok2 {
				continue
			}
			text := fmt.Sprintf("%d °C, warns at %d °C", now/1000, most/1000)
			if now >= most-5000 {
				return one(Warn, d.controller(), text)
			}
			return one(Pass, d.controller(), text)
		}
		return nil
	})
}

func nvmeFW(f *facts) []answer {
	seen, names := map[string]string{}, []string{}
	for _, d := range f.disks {
		if v, st := f.text("/sys/class/nvme/" + d.controller() + "/firmware_rev"); st == there && d.Kind == "nvme" {
			if _, known := seen[v]; !known {
				names = append(names, d.controller()+" "+v)
			}
			seen[v] = d.Name
		}
	}
	switch {
	case len(f.disks) < 2 || len(names) == 0:
		return skip("needs several NVMe disks under one path")
	case len(names) > 1:
		return one(Warn, f.top(), strings.Join(names, ", "))
	}
	return one(Pass, f.top(), names[0])
}

func mdState(f *facts) []answer {
	var out []answer
	for _, md := range f.underneath("md") {
		dir := block(md) + "/md/"
		level, _ := f.text(dir + "level")
		sync, _ := f.text(dir + "sync_action")
		gone, _ := f.integer(dir + "degraded")
		a := answer{level: Pass, subject: md, observed: level + " " + sync}
		switch {
		case gone > 0:
			a.level, a.observed = Fail, fmt.Sprintf("%s, %d members missing", level, gone)
		case sync != "" && sync != "idle" && sync != "frozen":
			a.level = Warn
		}
		out = append(out, a)
	}
	if out == nil {
		return skip("no md array under the path")
	}
	return out
}

func mdChunk(f *facts) []answer {
	var out []answer
	for _, md := range f.underneath("md") {
		n, ok := f.integer(block(md) + "/md/chunk_size")
		if !ok || n == 0 {
			continue
		}
		level := Pass
		if n < 128<<10 || n > 1<<20 {
			level = Warn
		}
		out = append(out, answer{level: level, subject: md, observed: fmt.Sprintf("%d KiB", n>>10)})
	}
	if out == nil {
		return skip("no striped md array under the path")
	}
	return out
}

func mdAlign(f *facts) []answer {
	return perDisk(f, func(d disk) []answer {
		if d.part == "" {
			return nil
		}
		start, ok := f.integer(block(d.part) + "/start")
		switch {
		case !ok:
			return nil
		case start*512%(1<<20) != 0:
			return one(Warn, d.part, fmt.Sprintf("starts at sector %d, not on a MiB", start))
		}
		return one(Pass, d.part, fmt.Sprintf("starts at sector %d", start))
	})
}

func dmCrypt(f *facts) []answer {
	for _, dm := range f.underneath("dm-") {
		id, _ := f.text(block(dm) + "/dm/uuid")
		if strings.HasPrefix(id, "CRYPT-") {
			name, _ := f.text(block(dm) + "/dm/name")
			return one(Fail, path.Join("/dev/mapper", name), "encrypted by dm-crypt: the CPU decrypts every byte")
		}
	}
	if len(f.disks) == 0 {
		return skip("no disk of this machine is under the path")
	}
	return one(Pass, f.top(), "no dm-crypt")
}
