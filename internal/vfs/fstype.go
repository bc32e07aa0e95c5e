// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// FSType is the file system below an open file.
type FSType struct {
	Name   string `json:"name"`   // as mount(8) spells it, or the magic number in hex
	Memory bool   `json:"memory"` // files live in memory and have no disk below
}

// fsType never fails: an unknown file system is named by its magic number.
func fsType(fd int) FSType {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return FSType{Name: "unknown"}
	}
	switch st.Type {
	case unix.EXT4_SUPER_MAGIC:
		return FSType{Name: "ext4"}
	case unix.XFS_SUPER_MAGIC:
		return FSType{Name: "xfs"}
	case unix.BTRFS_SUPER_MAGIC:
		return FSType{Name: "btrfs"}
	case unix.TMPFS_MAGIC:
		return FSType{Name: "tmpfs", Memory: true}
	case unix.RAMFS_MAGIC:
		return FSType{Name: "ramfs", Memory: true}
	case unix.HUGETLBFS_MAGIC:
		return FSType{Name: "hugetlbfs", Memory: true}
	case unix.OVERLAYFS_SUPER_MAGIC:
		return FSType{Name: "overlayfs"}
	case unix.NFS_SUPER_MAGIC:
		return FSType{Name: "nfs"}
	case unix.FUSE_SUPER_MAGIC:
		return FSType{Name: "fuse"}
	case unix.SQUASHFS_MAGIC:
		return FSType{Name: "squashfs"}
	case unix.F2FS_SUPER_MAGIC:
		return FSType{Name: "f2fs"}
	case 0x2fc12fc1:
		return FSType{Name: "zfs"}
	case 0x0bd00bd0:
		return FSType{Name: "lustre"}
	case 0x6a656a63:
		return FSType{Name: "virtiofs"}
	}
	return FSType{Name: fmt.Sprintf("0x%x", uint64(st.Type))}
}
