// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// FSType is the type of the file system that holds an open file.
type FSType struct {
	Name   string `json:"name"`   // name of the type as in mount(8), or its magic number in hex
	Memory bool   `json:"memory"` // true if the file system keeps files in memory, without a disk
}

// fsType asks the kernel only for the magic number, which is quick. Some file systems share a magic number; Storage
// tells them apart by the mount table. fsType never fails: an unknown file system is named by its magic number.
func fsType(fd int) FSType {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return FSType{Name: "unknown"}
	}
	return typeOfMagic(uint64(uint32(st.Type)))
}

func typeOfMagic(magic uint64) FSType {
	if name, ok := memoryMagics[magic]; ok {
		return FSType{Name: name, Memory: true}
	}
	if name, ok := magics[magic]; ok {
		return FSType{Name: name}
	}
	return FSType{Name: fmt.Sprintf("0x%x", magic)}
}

// memoryMagics are the magic numbers of file systems that keep files in memory.
var memoryMagics = map[uint64]string{
	unix.TMPFS_MAGIC:     "tmpfs",
	unix.RAMFS_MAGIC:     "ramfs",
	unix.HUGETLBFS_MAGIC: "hugetlbfs",
}

// magics are the magic numbers of statfs(2). ext2, ext3 and ext4 have the same number. All file systems in user space
// (FUSE) have the same number.
var magics = map[uint64]string{
	unix.EXT4_SUPER_MAGIC:      "ext4",
	unix.XFS_SUPER_MAGIC:       "xfs",
	unix.BTRFS_SUPER_MAGIC:     "btrfs",
	unix.OVERLAYFS_SUPER_MAGIC: overlay,
	unix.NFS_SUPER_MAGIC:       "nfs",
	unix.FUSE_SUPER_MAGIC:      "fuse",
	unix.SQUASHFS_MAGIC:        "squashfs",
	unix.F2FS_SUPER_MAGIC:      "f2fs",
	unix.EROFS_SUPER_MAGIC_V1:  "erofs",
	unix.V9FS_MAGIC:            "9p",
	unix.CEPH_SUPER_MAGIC:      "ceph",
	unix.CIFS_SUPER_MAGIC:      "cifs",
	unix.SMB2_SUPER_MAGIC:      "smb3",
	unix.ISOFS_SUPER_MAGIC:     "iso9660",
	unix.MSDOS_SUPER_MAGIC:     "vfat",
	unix.EXFAT_SUPER_MAGIC:     "exfat",
	unix.NILFS_SUPER_MAGIC:     "nilfs2",
	unix.REISERFS_SUPER_MAGIC:  "reiserfs",
	unix.UDF_SUPER_MAGIC:       "udf",
	unix.CRAMFS_MAGIC:          "cramfs",
	unix.ECRYPTFS_SUPER_MAGIC:  "ecryptfs",
	unix.OCFS2_SUPER_MAGIC:     "ocfs2",
	unix.AFS_SUPER_MAGIC:       "afs",
	unix.SMB_SUPER_MAGIC:       "smbfs",
	0x2fc12fc1:                 "zfs",
	0xca451a4e:                 "bcachefs",
	0x0bd00bd0:                 "lustre",
	0x6a656a63:                 "virtiofs",
	0x47504653:                 "gpfs",
	0x19830326:                 "beegfs",
	0x01161970:                 "gfs2",
	0x3153464a:                 "jfs",
	0x7366746e:                 "ntfs3",
	0x5346544e:                 "ntfs",
	0x482b:                     "hfsplus",
	0x20030528:                 "orangefs",
	0x786f4256:                 "vboxsf",
	0xbacbacbc:                 "vmhgfs",
	0x61756673:                 "aufs",
	0x5a4f4653:                 "zonefs",
	0x73757245:                 "coda",
	0xaad7aaea:                 "panfs",
}
