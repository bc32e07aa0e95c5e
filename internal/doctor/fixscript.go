// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// phase orders fixes: the fabric's drivers come before GPUDirect Storage, old
// packages go before new ones come, configuration follows what it configures.
func phase(id string) int {
	switch {
	case id == "drv.open", id == "drv.p2pdma_min", id == "gpu.present", strings.HasPrefix(id, "p2p.") && id != "p2p.cufile":
		return 1
	case id == "nvfs.modules", id == "ofed", id == "peermem":
		return 2
	case id == "nvfs.loaded", id == "nvfs.version", id == "cufile.lib":
		return 4
	case id == "nvfs.devnodes", strings.HasPrefix(id, "cufile."), id == "p2p.cufile":
		return 5
	case strings.HasPrefix(id, "fs."), strings.HasPrefix(id, "nfs."), strings.HasPrefix(id, "ct."), id == "dio.support":
		return 6
	case strings.HasPrefix(id, "blk."), strings.HasPrefix(id, "md."):
		return 7
	}
	return 8
}

// purge is the step between the fabric's drivers and a new installation.
const purge = `# GPUDirect Storage comes after the fabric's drivers (Debian's package names).
# Remove every older package of GPUDirect Storage before installing it again.
dpkg-query -W -f '${Package}\n' 'gds-tools-*' 'libcufile-*' nvidia-fs nvidia-fs-dkms 'nvidia-gds*' 2>/dev/null | xargs -r apt-get purge -y
apt-get install -y nvidia-gds
`

// WriteFixScript writes the fixes of a result as a shell script to review. It
// ends at its first command until a person removes that line.
func WriteFixScript(w io.Writer, r *Result) {
	var todo []Finding
	for _, f := range r.Findings {
		if f.Level == Fail || f.Level == Warn {
			todo = append(todo, f)
		}
	}
	slices.SortStableFunc(todo, func(a, b Finding) int { return cmp.Compare(phase(a.ID), phase(b.ID)) })
	fmt.Fprintf(w, "#!/bin/sh\n# Fixes proposed by nebulaio doctor for %s. Nothing was changed.\n# Read every line; then remove the next one.\necho 'read this script first' >&2; exit 1\nset -e\n", cmp.Or(clean(r.Path.Path), "this machine"))
	if len(todo) == 0 {
		fmt.Fprintln(w, "\n# Nothing to fix.")
		return
	}
	reinstall := slices.ContainsFunc(todo, func(f Finding) bool { return f.ID == "nvfs.loaded" || f.ID == "nvfs.version" || f.ID == "nvfs.modules" })
	fmt.Fprintln(w, "\n# ---- now ----")
	for _, f := range todo {
		if reinstall && phase(f.ID) >= 4 {
			fmt.Fprintf(w, "\n%s", purge)
			reinstall = false
		}
		writeBlock(w, f, f.FixNow)
	}
	if reinstall {
		fmt.Fprintf(w, "\n%s", purge)
	}
	fmt.Fprintln(w, "\n# ---- for the next boot ----")
	for _, f := range todo {
		if f.FixBoot != "" {
			writeBlock(w, f, f.FixBoot)
		}
	}
}

// writeBlock writes one fix: commands as they are, words as comments.
func writeBlock(w io.Writer, f Finding, fix string) {
	fmt.Fprintf(w, "\n# %s %s: %s\n", f.Level, f.ID, f.Observed)
	if f.Subject != "" {
		fmt.Fprintf(w, "#   on %s\n", f.Subject)
	}
	if fix == "" {
		fix = "# nothing to do before the next boot"
	}
	fmt.Fprintln(w, fix)
}
