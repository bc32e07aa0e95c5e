// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// part is one section of a fix script. The sections follow the order of a working installation. Conflicting packages
// are removed first, drivers of the fabric come before GPUDirect Storage, and configuration follows the package that
// it configures.
type part struct {
	title string
	holds func(id string) bool
}

func parts() []part {
	in := func(ids ...string) func(string) bool { return func(id string) bool { return slices.Contains(ids, id) } }
	return []part{
		{"driver and fabric: before GPUDirect Storage", in("gpu.present", "drv.open", "drv.p2pdma_min", "drv.cuda", "ofed",
			"nvfs.modules", "peermem")},
		{"GPUDirect Storage", in("nvfs.loaded", "nvfs.version", "cufile.lib", "p2p.model")},
		{"cufile.json, module options, device nodes", func(id string) bool {
			return strings.HasPrefix(id, "cufile.") || strings.HasPrefix(id, "p2p.") || id == "nvfs.devnodes"
		}},
		{"the path: file system, mount, disks", func(id string) bool {
			for _, p := range []string{"fs.", "nfs.", "dio.", "blk.", "md.", "dm.", "nvme.", "fuse", "lustre", "sunrpc",
				"ct.udev"} {
				if strings.HasPrefix(id, p) {
					return true
				}
			}
			return false
		}},
		{"the machine", func(string) bool { return true }},
	}
}

// purge removes the packages that must be gone before GPUDirect Storage is installed again.
const purge = `# The versions must match: remove every older package of GPUDirect Storage
# before it is installed again (Debian's names). For review, as it removes:
# dpkg-query -W -f '${Package}\n' 'gds-tools-*' 'libcufile-*' nvidia-fs nvidia-fs-dkms 'nvidia-gds*' 2>/dev/null | xargs -r apt-get purge -y
`

// fabric comes before GPUDirect Storage, which builds against it.
const fabric = `
# DOCA, or MLNX_OFED 5.3 or newer with --with-nvmf --with-nfsrdma --enable-gds,
# belongs here, where local NVMe, NVMe over fabrics or NFS is to go through
# nvidia-fs: GPUDirect Storage builds against it, and comes after.
`

// guard stops the script if a person has not yet installed the drivers of the fabric.
const guard = "command -v ofed_info >/dev/null || { echo 'install DOCA or MLNX_OFED first: see above' >&2; exit 1; }\n"

// install appears once in the script, however many findings ask for it.
const install = "apt-get install -y nvidia-gds"

// WriteFixScript writes the fixes of a diagnosis as a shell script for review. The first command line of the script
// exits, so the script changes nothing until a person removes that line. In the script, commands that remove, format,
// unmount or restart are always commented out.
func WriteFixScript(w io.Writer, r *Result) {
	var todo []Finding
	for _, f := range r.Findings {
		if f.Level == Fail || f.Level == Warn {
			todo = append(todo, f)
		}
	}
	fmt.Fprintf(w, "#!/bin/sh\n# Fixes proposed by nebulaio doctor for %s. Nothing was changed.\n# Read every line; "+
		"then remove the next one.\necho 'read this script first' >&2; exit 1\nset -eu\n",
		cmp.Or(clean(r.Path.Path), "this machine"))
	if len(todo) == 0 {
		fmt.Fprintln(w, "\n# Nothing to fix.")
		return
	}
	head := func(title string) { fmt.Fprintf(w, "\n# ==== %s ====\n", title) }
	var again []string
	hookless := false // the storage driver has to be replaced first
	for _, f := range todo {
		hookless = hookless || f.ID == "nvfs.modules" || f.ID == "nvfs.loaded" && strings.Contains(f.FixNow, "DOCA")
		if slices.Contains([]string{"nvfs.loaded", "nvfs.version", "nvfs.modules", "cufile.lib"}, f.ID) {
			again = append(again, f.ID)
		}
	}
	if again != nil {
		head("packages that conflict")
		fmt.Fprintf(w, "\n# for %s\n%s", strings.Join(again, ", "), purge)
	}
	boot := false
	for i, p := range parts() {
		var mine []Finding
		todo = slices.DeleteFunc(todo, func(f Finding) bool {
			if p.holds(f.ID) {
				mine = append(mine, f)
				return true
			}
			return false
		})
		installs := i == 1 && again != nil
		if len(mine) == 0 && (again == nil || i > 1) {
			continue
		}
		head(p.title)
		if i == 0 && again != nil {
			fmt.Fprint(w, fabric)
		}
		if installs {
			fmt.Fprintf(w, "\n# for %s\n", strings.Join(again, ", "))
			if hookless {
				fmt.Fprint(w, guard)
			}
			fmt.Fprintln(w, install)
		}
		for _, f := range mine {
			writeBlock(w, f, installs)
			boot = boot || f.FixBoot != "" || strings.Contains(f.FixNow, "reboot") || strings.Contains(f.FixNow, "next boot")
		}
	}
	if boot {
		head("restart")
		fmt.Fprint(w, "\n# What is for the next boot takes effect after a restart:\n# reboot\n")
	}
	head("verify")
	verify := "nebulaio doctor"
	if r.Path.Path != "" {
		verify += " " + quote(r.Path.Path)
	}
	if r.GPU != nil && r.GPU.Index >= 0 {
		verify += fmt.Sprintf(" --gpu %d", r.GPU.Index)
	}
	fmt.Fprintf(w, "\n%s\n", verify)
}

// writeBlock writes the fixes of one finding: commands unchanged, prose as comments. installed means that the script
// installs GPUDirect Storage further up.
func writeBlock(w io.Writer, f Finding, installed bool) {
	fmt.Fprintf(w, "\n# %s %s: %s\n", f.Level, f.ID, f.Observed)
	if f.Subject != "" {
		fmt.Fprintf(w, "#   on %s\n", f.Subject)
	}
	now := f.FixNow
	if installed {
		now = strings.TrimPrefix(strings.TrimPrefix(now, install), " && ")
	}
	if now != "" {
		fmt.Fprintln(w, held(now))
	}
	if f.FixBoot != "" {
		fmt.Fprintf(w, "# for the next boot:\n%s\n", held(f.FixBoot))
	}
}

// held turns a command that destroys, removes, unmounts or restarts into a comment. One such command in a chain turns
// the whole line into a comment.
func held(fix string) string {
	if strings.HasPrefix(fix, "#") {
		return fix
	}
	command, _, _ := strings.Cut(fix, " # ")
	words := strings.FieldsFunc(command, func(r rune) bool { return strings.ContainsRune(" \t;&|()'\"", r) })
	for i, w := range words {
		switch w {
		case "mount", "umount", "purge", "remove", "rm", "rmmod", "mv", "dd", "reboot", "shutdown", "wipefs", "parted",
			"tune2fs", "format", "migrate", "mkfs":
			return "# review first: " + fix
		case "modprobe", "mdadm":
			if i+1 < len(words) && (words[i+1] == "-r" || words[i+1] == "--create") {
				return "# review first: " + fix
			}
		}
		if strings.HasPrefix(w, "mkfs.") {
			return "# review first: " + fix
		}
	}
	return fix
}
