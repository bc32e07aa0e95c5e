// SPDX-License-Identifier: Apache-2.0

package vfs

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Byte numbers of the locks that offer memory: offerBase, then the process in the bits above fdBits, then the file
// descriptor. As those of an Interest, they are the protocol between processes: do not change them.
const (
	offerBase = loadBase + 1<<59
	fdBits    = 16
	offersEnd = offerBase + 1<<(pidBits+fdBits)
)

// Offer is a file descriptor of memory that a process shares with other loads of a file.
type Offer struct{ PID, FD int }

// Offer announces that other loads of the file may open the file descriptor fd of this process. The announcement ends
// with Withdraw, with Close, or with the process.
func (i *Interest) Offer(fd int) error {
	if fd >= 1<<fdBits {
		return errs.New(errs.Unsupported, "offer memory to other loads of", i.f.path,
			"its file descriptor is too large").WithFix("keep fewer files open")
	}
	return errs.Wrap("offer memory to other loads of", i.f.path, i.lock(unix.F_RDLCK, offered(fd), 1))
}

// Withdraw ends the announcement of Offer.
func (i *Interest) Withdraw(fd int) { _ = i.lock(unix.F_UNLCK, offered(fd), 1) }

func offered(fd int) int64 { return offerBase + int64(os.Getpid()&pidMask)<<fdBits + int64(fd) }

// Offers returns the offers of other loads of the file, at most 256.
func (i *Interest) Offers() (all []Offer) {
	i.others(offerBase, offersEnd, func(at int64) bool {
		at -= offerBase
		all = append(all, Offer{PID: int(at >> fdBits), FD: int(at & (1<<fdBits - 1))})
		return len(all) < mostProcesses
	})
	return all
}

// Loading reports whether another load of the file runs in the process with this id.
func (i *Interest) Loading(pid int) bool {
	at := loadBase + int64(pid&pidMask)
	_, _, ok := i.other(at, at+1)
	return ok
}

// Version identifies the content of a file: every write changes it. CTime is 0 if the change time tells nothing.
type Version struct {
	Size         int64
	MTime, CTime int64 // in nanoseconds
}

// VersionOf returns the version of a file that Open found, or that a later check accepted.
func VersionOf(f *File) Version {
	v := Version{Size: f.size, MTime: f.mtime.UnixNano()}
	if s := f.state.Load(); s != nil {
		v.CTime = s.ctime
	}
	return v
}
