// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/units"
)

func fsChecks() []check {
	return []check{
		{"fs.type", fsType}, {"fs.ext4.journal", ext4Journal}, {"fs.atime", fsAtime}, {"fs.discard", fsDiscard}, {"fs.xfs", fsXFS},
		{"fs.space", fsSpace}, {"dio.support", dioSupport}, {"dio.file", dioFile}, {"file.align", fileAlign},
		{"ct.udev", ctUdev}, {"fuse", fuse}, {"s3.mount", s3Mount}, {"lustre", lustre},
	}
}

const noPath = "no path was given"

func fsType(f *facts) []answer {
	if f.mount == nil {
		return skip(noPath)
	}
	t := f.mount.fstype
	text := t + " mounted at " + f.mount.point
	switch {
	case t == "xfs" || t == "ext4" || t == "virtiofs" || t == "nfs" || t == "nfs4" || t == "lustre" || t == "beegfs" || t == "wekafs" || t == "gpfs":
		return one(Pass, f.Target.Path, text)
	case f.gpu != nil:
		return one(Fail, f.Target.Path, text+": no direct route starts there")
	case t == "overlay":
		return one(Warn, f.Target.Path, text)
	}
	return one(Info, f.Target.Path, text)
}

func ext4Journal(f *facts) []answer {
	switch {
	case f.mount == nil || f.mount.fstype != "ext4":
		return skip("not on ext4")
	case f.gpu == nil:
		return skip("no GPU")
	}
	mode, set := f.mount.value("data")
	at := quote(f.mount.point)
	now, boot := "umount "+at+" && mount -o data=ordered "+quote(f.mount.source)+" "+at, "# add data=ordered to the options of "+at+" in /etc/fstab"
	if f.mount.point == "/" {
		now, boot = "# the root file system gets it at boot alone; or put the data on a file system of its own", "# add rootflags=data=ordered to the kernel command line"
	}
	a := answer{subject: f.mount.point}.with("now", now, "boot", boot)
	switch {
	case mode == "journal" || mode == "writeback":
		a.level, a.observed = Fail, "data="+mode
	case mode == "ordered":
		a.level, a.observed = Pass, "data=ordered"
	case !set:
		a.level, a.observed = Warn, "no data= among the mount options ("+strings.Join(f.mount.superOps, ",")+")"
		switch inEffect := f.ext4Data(); inEffect {
		case "":
		case "ordered":
			a.observed = "data=ordered is in effect, but not among the mount options (" + strings.Join(f.mount.superOps, ",") + ")"
		default:
			a.level, a.observed = Fail, "data="+inEffect+" by the file system's own default"
		}
	}
	return []answer{a}
}

// ext4Data is the journal mode in effect as the kernel lists it, empty where it
// does not.
func (f *facts) ext4Data() string {
	s, _ := f.text("/proc/fs/ext4/" + path.Base(f.mount.source) + "/options")
	for line := range strings.Lines(s) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "data="); ok {
			return v
		}
	}
	return ""
}

func fsAtime(f *facts) []answer {
	switch {
	case f.mount == nil:
		return skip(noPath)
	case f.mount.has("noatime"):
		return one(Pass, f.mount.point, "noatime")
	case f.mount.has("relatime"):
		return one(Info, f.mount.point, "relatime")
	case f.mount.has("ro"):
		return one(Pass, f.mount.point, "read-only")
	}
	return one(Warn, f.mount.point, "every read updates the access time")
}

func fsDiscard(f *facts) []answer {
	switch {
	case f.mount == nil:
		return skip(noPath)
	case f.mount.has("discard") && f.opt.Profile == Checkpoint:
		return one(Warn, f.mount.point, "discard")
	case f.mount.has("discard"):
		return one(Info, f.mount.point, "discard")
	}
	return one(Pass, f.mount.point, "no discard at each delete")
}

// fsXFS compares the stripe that XFS knows with that of the array below.
func fsXFS(f *facts) []answer {
	md := f.underneath("md")
	if f.mount == nil || f.mount.fstype != "xfs" || len(md) == 0 {
		return skip("not XFS on an md array")
	}
	chunk, ok := f.integer(block(md[0]) + "/md/chunk_size")
	if !ok || chunk == 0 {
		return skip("the array has no stripe")
	}
	s, _ := f.mount.value("sunit")
	unit, _ := strconv.ParseInt(s, 10, 64)
	text := fmt.Sprintf("stripe unit %d KiB, chunk of %s %d KiB", unit/2, md[0], chunk>>10)
	if unit*512 != chunk {
		return one(Warn, f.mount.point, text)
	}
	return one(Pass, f.mount.point, text)
}

func fsSpace(f *facts) []answer {
	if f.Target == nil || f.Target.Total <= 0 {
		return skip("no path, or its size is not known")
	}
	used := 100 - 100*float64(f.Target.Available)/float64(f.Target.Total)
	text := fmt.Sprintf("%.0f %% used, %s free", used, units.Bytes(f.Target.Available))
	if used > 90 {
		return one(Warn, f.Target.Path, text)
	}
	return one(Pass, f.Target.Path, text)
}

func dioSupport(f *facts) []answer {
	if f.Target == nil {
		return skip(noPath)
	}
	t := f.Target
	align := fmt.Sprintf("kernel asks for memory %d, offset %d bytes", t.DirectMem, t.DirectOffset)
	switch {
	case t.DirectRead == "ok" && t.DirectMem > 0:
		return one(Pass, t.Path, "a read past the page cache was done; "+align)
	case t.DirectRead == "ok":
		return one(Pass, t.Path, "a read past the page cache was done")
	case strings.HasPrefix(t.DirectRead, "not tried") && f.mount != nil && (f.mount.fstype == "tmpfs" || f.mount.fstype == "ramfs"):
		return one(Fail, t.Path, f.mount.fstype+" is memory: nothing lies past the page cache")
	case strings.HasPrefix(t.DirectRead, "not tried"):
		return []answer{answer{level: Info, subject: t.Path, observed: t.DirectRead}}
	case t.DirectMem == 0 && t.DirectOffset == 0:
		return one(Fail, t.Path, "the kernel offers no O_DIRECT for this file")
	}
	return one(Fail, t.Path, t.DirectRead)
}

func dioFile(f *facts) []answer {
	t := f.Target
	switch {
	case t == nil || t.Dir:
		return skip("needs a file")
	case t.Allocated+1<<20 < t.Size && t.Allocated < t.Size/10*9:
		return one(Warn, t.Path, fmt.Sprintf("sparse or compressed: %s on disk for %s", units.Bytes(t.Allocated), units.Bytes(t.Size)))
	}
	return one(Pass, t.Path, "allocated whole")
}

func fileAlign(f *facts) []answer {
	t := f.Target
	switch {
	case t == nil || t.Dir:
		return skip("needs a file")
	case t.Size%4096 != 0:
		return one(Info, t.Path, fmt.Sprintf("%d bytes: the last %d go through a bounce buffer", t.Size, t.Size%4096))
	}
	return one(Pass, t.Path, fmt.Sprintf("%d bytes, whole pages", t.Size))
}

// ctUdev looks for what libcufile asks udev about the file's device.
func ctUdev(f *facts) []answer {
	switch {
	case !f.pair():
		return skip(noPair)
	case len(f.disks) == 0:
		return skip("the path is on no disk of this machine")
	}
	name := fmt.Sprintf("/run/udev/data/b%d:%d", f.Target.Major, f.Target.Minor)
	s, st := f.text(name)
	switch {
	case st == missing:
		return one(Fail, name, "not there")
	case st == denied:
		return []answer{answer{level: Unknown, subject: name, observed: "cannot be read"}.with("run", "cat "+name)}
	case !strings.Contains(s, "E:ID_FS_USAGE=filesystem") || !strings.Contains(s, "E:ID_FS_TYPE="):
		return one(Fail, name, "has no ID_FS_USAGE=filesystem or no ID_FS_TYPE")
	}
	return one(Pass, name, "names the file system")
}

func fuse(f *facts) []answer {
	if f.mount == nil || !strings.HasPrefix(f.mount.fstype, "fuse") {
		return skip("not on FUSE")
	}
	v, _ := f.mount.value("max_read")
	n, err := strconv.ParseInt(v, 10, 64)
	if err == nil && n < 1<<20 {
		return one(Warn, f.mount.point, "max_read="+v)
	}
	return one(Info, f.mount.point, f.mount.fstype+": data passes a process and the page cache")
}

func s3Mount(f *facts) []answer {
	if f.mount == nil {
		return skip(noPath)
	}
	for _, s := range []string{"mountpoint-s3", "s3fs", "goofys", "gcsfuse", "rclone"} {
		if strings.Contains(f.mount.fstype+" "+f.mount.source, s) {
			return one(Info, f.mount.point, f.mount.fstype+" from "+f.mount.source)
		}
	}
	return skip("not on an object store mount")
}

func lustre(f *facts) []answer {
	if f.mount == nil || f.mount.fstype != "lustre" {
		return skip("not on Lustre")
	}
	return []answer{answer{level: Unknown, subject: f.mount.point, observed: "stripes and client settings are told by its own tools"}.
		with("run", "lfs getstripe "+f.Target.Path+"; lctl get_param osc.*.max_rpcs_in_flight osc.*.max_pages_per_rpc; lfs df "+f.mount.point)}
}
