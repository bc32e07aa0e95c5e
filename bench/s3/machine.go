// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// machine describes the machine on which the figures were measured.
type machine struct {
	CPU        string `json:"cpu"`
	Cores      int    `json:"cores"`
	Kernel     string `json:"kernel"`
	FileSystem string `json:"file_system"`
}

func thisMachine(dir string) machine {
	m := machine{CPU: "unknown CPU", Cores: runtime.NumCPU(), Kernel: "?", FileSystem: "unknown file system"}
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.Kernel = strings.TrimSpace(string(text))
	}
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) == nil {
		known := map[int64]string{unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
			unix.TMPFS_MAGIC: "tmpfs", unix.OVERLAYFS_SUPER_MAGIC: "overlayfs"}
		m.FileSystem = known[int64(fs.Type)]
		if m.FileSystem == "" {
			m.FileSystem = fmt.Sprintf("file system %#x", fs.Type)
		}
	}
	return m
}
