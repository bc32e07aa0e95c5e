// SPDX-License-Identifier: Apache-2.0

package pack

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

const (
	statPiece = 256 // number of files that one goroutine examines at a time
	statters  = 16  // number of goroutines that examine files: on a cold cache, each of them waits for the disk
)

// child is an entry of a directory.
type child struct {
	inode uint64
	kind  byte
	name  string
}

// List walks the folder. Links to files count as files. Links to folders are not followed, because they can form a
// circle.
func (d *folder) List(ctx context.Context) ([]Entry, []Bad, error) {
	var all []Entry
	var odd []Bad
	for dirs := []string{""}; len(dirs) > 0; {
		if ctx.Err() != nil {
			return nil, nil, errs.Wrap("list", d.path, context.Cause(ctx))
		}
		dir := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		fd, err := unix.Open(filepath.Join(d.path, dir), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err == unix.EACCES && dir != "" {
			odd = append(odd, Bad{dir, "the folder cannot be read: " + err.Error()})
			continue
		}
		if err != nil {
			return nil, nil, errs.Wrap("list", filepath.Join(d.path, dir), err)
		}
		children, err := readDirectory(fd)
		if err == nil {
			var below []string
			below, err = examine(ctx, fd, dir, children, &all, &odd)
			dirs = append(dirs, below...)
		}
		unix.Close(fd)
		if err != nil {
			return nil, nil, errs.Wrap("list", filepath.Join(d.path, dir), err)
		}
	}
	return all, odd, nil
}

// readDirectory returns the entries of a directory.
func readDirectory(fd int) ([]child, error) {
	const inodeAt, lengthAt, kindAt, nameAt = 0, 16, 18, 19 // the fields of linux_dirent64
	var all []child
	buf := make([]byte, 256<<10)
	for {
		n, err := unix.Getdents(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return all, err
		}
		for rest := buf[:n]; len(rest) > nameAt; {
			length := int(binary.NativeEndian.Uint16(rest[lengthAt:]))
			if length <= nameAt || length > len(rest) {
				return nil, errs.New(errs.IO, "", "", "the file system returned a damaged directory entry")
			}
			name := rest[nameAt:length]
			if end := bytes.IndexByte(name, 0); end >= 0 {
				name = name[:end]
			}
			if s := string(name); s != "." && s != ".." {
				all = append(all, child{binary.NativeEndian.Uint64(rest[inodeAt:]), rest[kindAt], s})
			}
			rest = rest[length:]
		}
	}
}

// examine finds the size and the time of each file, in the order of inodes, because file systems keep inodes in that
// order on disk. The result is the folders below.
func examine(ctx context.Context, fd int, dir string, children []child, all *[]Entry, odd *[]Bad) ([]string, error) {
	slices.SortFunc(children, func(a, b child) int { return cmp.Compare(a.inode, b.inode) })
	found := make([]unix.Stat_t, len(children))
	fails := make([]error, len(children))
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(statters, 1+len(children)/statPiece) {
		group.Go(func() {
			for ctx.Err() == nil {
				from := int(next.Add(statPiece)) - statPiece
				if from >= len(children) {
					return
				}
				for i := from; i < min(from+statPiece, len(children)); i++ {
					if children[i].kind != unix.DT_DIR {
						fails[i] = statAt(fd, children[i].name, &found[i])
					}
				}
			}
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var below []string
	for i, c := range children {
		name := c.name
		if dir != "" {
			name = dir + "/" + c.name
		}
		st := &found[i]
		switch kind := st.Mode & unix.S_IFMT; {
		case c.kind == unix.DT_DIR, fails[i] == nil && kind == unix.S_IFDIR && c.kind == unix.DT_UNKNOWN:
			below = append(below, name)
		case fails[i] != nil && c.kind != unix.DT_LNK:
			return nil, errs.Wrap("examine", path.Base(name), fails[i])
		case fails[i] != nil:
			*odd = append(*odd, Bad{name, "the link leads nowhere: " + fails[i].Error()})
		case kind == unix.S_IFDIR:
			*odd = append(*odd, Bad{name, "it is a link to a folder, and links to folders are not followed"})
		case kind != unix.S_IFREG:
			*odd = append(*odd, Bad{name, "it is no regular file"})
		default:
			*all = append(*all, Entry{Name: name, Size: st.Size, Stamp: uint64(st.Mtim.Nano())})
		}
	}
	return below, nil
}

// statAt examines a file, and what a link leads to.
func statAt(fd int, name string, st *unix.Stat_t) error {
	for {
		if err := unix.Fstatat(fd, name, st, 0); err != unix.EINTR {
			return err
		}
	}
}

// ours reports whether a file is one of our own that is no part of a pack.
func ours(name string) bool { return strings.HasPrefix(path.Base(name), hidden) }
