// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/doctor/facts"
	"github.com/nebulaio/nebulaio/internal/units"
)

func fsChecks() []check {
	return []check{
		{"fs.type", fsType}, {"fs.ext4.journal", ext4Journal}, {"fs.atime", fsAtime}, {"fs.discard", fsDiscard}, {"fs.xfs",
			fsXFS},
		{"fs.space", fsSpace}, {"dio.support", dioSupport}, {"dio.file", dioFile}, {"file.align", fileAlign},
		{"ct.udev", ctUdev}, {"fuse", fuse}, {"s3.mount", s3Mount},
	}
}

func fsType(f *exam) []answer {
	if f.Mount == nil {
		return skip(noPath)
	}
	t := f.Mount.FSType
	text := t + " mounted at " + f.Mount.Point
	switch {
	case t == "xfs" || t == "ext4" || t == "virtiofs" || t == "nfs" || t == "nfs4" || t == "lustre" || t == "beegfs" ||
		t == "wekafs" || t == "gpfs":
		return one(Pass, f.Target.Path, text)
	case f.GPU != nil:
		return one(Fail, f.Target.Path, text+": this file system has no direct route")
	case t == "overlay":
		return one(Warn, f.Target.Path, text)
	}
	return one(Info, f.Target.Path, text)
}

func ext4Journal(f *exam) []answer {
	switch {
	case f.Mount == nil || f.Mount.FSType != "ext4":
		return skip("not on ext4")
	case f.GPU == nil:
		return skip(noGPU)
	}
	mode, set := f.Mount.Value("data")
	at := quote(f.Mount.Point)
	now, boot := "umount "+at+" && mount -o data=ordered "+quote(f.Mount.Source)+" "+at,
		"# add data=ordered to the options of "+at+" in /etc/fstab"
	if f.Mount.Point == "/" {
		now, boot = "# the root file system takes it only at boot; or put the data on another file system",
			"# add rootflags=data=ordered to the kernel command line"
	}
	a := answer{level: Fail, subject: f.Mount.Point, observed: "data=" + mode}
	inEffect, told := f.ext4Data()
	switch {
	case mode == "ordered":
		a.level = Pass
	case set:
	case inEffect == "ordered":
		a.observed = "data=ordered is in effect, but not among the mount options (" + strings.Join(f.Mount.Super, ",") + ")"
	case inEffect != "":
		a.observed = "data=" + inEffect + " by the file system's own default"
	case told:
		a.observed = "this ext4 has no journal, so that data=ordered cannot be among its mount options"
		now = "# unmounted: tune2fs -O has_journal " + quote(f.Mount.Source) + "; then mount it with data=ordered"
	default:
		a.observed = "no data= among the mount options (" + strings.Join(f.Mount.Super, ",") + ")"
	}
	return []answer{a.with("now", now, "boot", boot)}
}

// ext4Data returns the journal mode in effect as the kernel lists it. told is true if the kernel lists the options.
// Without a journal the options contain no mode.
func (f *exam) ext4Data() (mode string, told bool) {
	s, st := f.Text("/proc/fs/ext4/" + path.Base(f.Mount.Source) + "/options")
	for line := range strings.Lines(s) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "data="); ok {
			return v, true
		}
	}
	return "", st == facts.There
}

func fsAtime(f *exam) []answer {
	switch {
	case f.Mount == nil:
		return skip(noPath)
	case f.Mount.Has("noatime"):
		return one(Pass, f.Mount.Point, "noatime")
	case f.Mount.Has("relatime"):
		return one(Info, f.Mount.Point, "relatime")
	case f.Mount.Has("ro"):
		return one(Pass, f.Mount.Point, "read-only")
	}
	return one(Warn, f.Mount.Point, "every read updates the access time")
}

func fsDiscard(f *exam) []answer {
	switch {
	case f.Mount == nil:
		return skip(noPath)
	case f.Mount.Has("discard") && f.opt.Profile == Checkpoint:
		return one(Warn, f.Mount.Point, "discard")
	case f.Mount.Has("discard"):
		return one(Info, f.Mount.Point, "discard")
	}
	return one(Pass, f.Mount.Point, "no discard at each delete")
}

// fsXFS compares the stripe geometry of XFS with that of the array below.
func fsXFS(f *exam) []answer {
	md := f.Underneath("md")
	if f.Mount == nil || f.Mount.FSType != "xfs" || len(md) == 0 {
		return skip("not XFS on an md array")
	}
	chunk, ok := f.Integer(facts.Block(md[0]) + "/md/chunk_size")
	if !ok || chunk == 0 {
		return skip("the array has no stripe")
	}
	number := func(name string) int64 { // in sectors of 512 bytes
		s, _ := f.Mount.Value(name)
		n, _ := strconv.ParseInt(s, 10, 64)
		return n
	}
	unit, width := number("sunit"), number("swidth")
	text := fmt.Sprintf("stripe unit %d KiB, width %d KiB; chunk of %s %d KiB", unit/2, width/2, md[0], chunk>>10)
	level, _ := f.Text(facts.Block(md[0]) + "/md/level")
	members, _ := f.Integer(facts.Block(md[0]) + "/md/raid_disks")
	whole := level != "raid0" || members <= 0 || width == 0 || width*512 == chunk*members
	if !whole {
		text += fmt.Sprintf(" on %d disks", members)
	}
	if unit*512 != chunk || !whole {
		return one(Warn, f.Mount.Point, text)
	}
	return one(Pass, f.Mount.Point, text)
}

func fsSpace(f *exam) []answer {
	if f.Target == nil || f.Target.Total <= 0 {
		return skip("no path, or its size is not known")
	}
	used := 100 - 100*float64(f.Target.Available)/float64(f.Target.Total)
	text := fmt.Sprintf("%.0f %% used, %s free", used, units.Bytes(f.Target.Available))
	switch {
	case f.Target.Available == 0 && f.opt.Profile == Checkpoint:
		return one(Fail, f.Target.Path, text+": no checkpoint can be written")
	case used > f.num("fs.space", "used_pct"):
		return one(Warn, f.Target.Path, text)
	}
	return one(Pass, f.Target.Path, text)
}

func dioSupport(f *exam) []answer {
	if f.Target == nil {
		return skip(noPath)
	}
	t := f.Target
	align := fmt.Sprintf("kernel asks for memory %d, offset %d bytes", t.DirectMem, t.DirectOffset)
	switch {
	case t.DirectRead == "ok" && t.DirectMem > 0:
		return one(Pass, t.Path, "a direct read succeeded; "+align)
	case t.DirectRead == "ok":
		return one(Pass, t.Path, "a direct read succeeded")
	case strings.HasPrefix(t.DirectRead, "not tried") && f.Mount != nil &&
		(f.Mount.FSType == "tmpfs" || f.Mount.FSType == "ramfs"):
		return one(Fail, t.Path, f.Mount.FSType+" is in memory: there is no storage to read directly")
	case strings.HasPrefix(t.DirectRead, "not tried"):
		return []answer{answer{level: Info, subject: t.Path, observed: t.DirectRead}}
	case t.DirectMem == 0 && t.DirectOffset == 0:
		return one(Fail, t.Path, "the kernel offers no O_DIRECT for this file")
	}
	return one(Fail, t.Path, t.DirectRead)
}

// dioFile judges the layout of the file on the disk, from the file system's own answer if there is one.
func dioFile(f *exam) []answer {
	t := f.Target
	if t == nil || t.Dir {
		return skip("needs a file")
	}
	var bad, note []string
	l := t.Layout
	sparse := t.Allocated+f.whole("dio.file", "slack") < t.Size &&
		float64(t.Allocated) < float64(t.Size)*f.num("dio.file", "allocated_ratio")
	switch {
	case l != nil && l.Hole >= 0:
		bad = append(bad, fmt.Sprintf("a hole at %s", units.Bytes(l.Hole)))
	case sparse:
		bad = append(bad, fmt.Sprintf("sparse or compressed: %s on disk for %s", units.Bytes(t.Allocated),
			units.Bytes(t.Size)))
	}
	if l != nil {
		for _, name := range l.Flags {
			if name != "dax" {
				bad = append(bad, name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(l.Odd)) {
			text := fmt.Sprintf("%d %s extents", l.Odd[name], name)
			if name == "shared" || name == "delayed" { // read in place all the same
				note = append(note, text)
			} else {
				bad = append(bad, text)
			}
		}
		most := t.Size/max(f.whole("dio.file", "extent"), 1) + 1
		if text := fmt.Sprintf("%d extents", l.Extents); int64(l.Extents) > most {
			bad = append(bad, fmt.Sprintf("%s for %s", text, units.Bytes(t.Size)))
		} else if l.Extents >= 0 {
			note = append([]string{text}, note...)
		}
	}
	if bad != nil {
		return one(Warn, t.Path, strings.Join(bad, ", "))
	}
	return one(Pass, t.Path, strings.Join(append([]string{"allocated whole"}, note...), ", "))
}

func fileAlign(f *exam) []answer {
	t, align := f.Target, f.whole("file.align", "align")
	switch {
	case t == nil || t.Dir || align <= 0:
		return skip("needs a file")
	case t.Size%align != 0:
		return one(Info, t.Path, fmt.Sprintf("%d bytes: the last %d go through a bounce buffer", t.Size, t.Size%align))
	}
	return one(Pass, t.Path, fmt.Sprintf("%d bytes, whole pages", t.Size))
}

// ctUdev checks that udev has the properties of the file's device that libcufile asks for.
func ctUdev(f *exam) []answer {
	switch {
	case !f.Pair():
		return skip(noPair)
	case len(f.Disks) == 0:
		return skip("the path is not on a local disk")
	}
	name := fmt.Sprintf("/run/udev/data/b%d:%d", f.Target.Major, f.Target.Minor)
	s, st := f.Text(name)
	a := answer{level: Fail, subject: name}.with("now",
		"systemctl start systemd-udevd && udevadm trigger --action=change --subsystem-match=block && udevadm settle", "boot",
		"systemctl enable systemd-udevd")
	if f.Container() != "" {
		a = a.with("now", "# start the container with -v /run/udev:/run/udev:ro", "boot", "")
	}
	switch {
	case st == facts.Missing:
		a.observed = "not there"
	case st == facts.Denied:
		return []answer{unknown(name, "cannot be read", "cat "+name)}
	case !strings.Contains(s, "E:ID_FS_USAGE=filesystem") || !strings.Contains(s, "E:ID_FS_TYPE="):
		a.observed = "has no ID_FS_USAGE=filesystem or no ID_FS_TYPE"
	default:
		return one(Pass, name, "names the file system")
	}
	return []answer{a}
}

func fuse(f *exam) []answer {
	if f.Mount == nil || !strings.HasPrefix(f.Mount.FSType, "fuse") {
		return skip("not on FUSE")
	}
	v, set := f.Mount.Value("max_read")
	n, err := strconv.ParseInt(v, 10, 64)
	switch {
	case err == nil && n < f.whole("fuse", "max_read"):
		return one(Warn, f.Mount.Point, "max_read="+v)
	case !set:
		return one(Info, f.Mount.Point,
			f.Mount.FSType+": data passes a process and the page cache; max_read is not among the mount options")
	}
	return one(Info, f.Mount.Point, f.Mount.FSType+": data passes a process and the page cache; max_read="+v)
}

func s3Mount(f *exam) []answer {
	if f.Mount == nil {
		return skip(noPath)
	}
	for _, s := range []string{"mountpoint-s3", "s3fs", "goofys", "gcsfuse", "rclone"} {
		if strings.Contains(f.Mount.FSType+" "+f.Mount.Source, s) {
			return one(Info, f.Mount.Point, f.Mount.FSType+" from "+f.Mount.Source)
		}
	}
	return skip("not on an object store mount")
}
