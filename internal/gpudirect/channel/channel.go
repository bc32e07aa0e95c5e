// SPDX-License-Identifier: Apache-2.0

// Package channel asks the kernel what is at the other end of a connection to the door, so that a login cannot be
// relayed.
//
// A proof of the secret alone can be relayed: a listener in the middle hands the server's challenge to a client and the
// client's proof to the server. So the proof also names the server's end of the client's own connection. Behind a relay
// that is the relay's end, and the server finds that it is not its own.
package channel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
)

// Peer names the other end of a client's connection after the server has accepted it. It asks the kernel for the inode
// of the other socket. If the kernel does not tell, it asks for the process that listens. If neither is known, no login
// is safe, and Peer fails with kind Unsupported and both reasons.
func Peer(fd int) (wire.Binding, error) {
	b, bySocket := PeerSocket(fd)
	if bySocket == nil {
		return b, nil
	}
	b, byProcess := PeerProcess(fd)
	if byProcess == nil {
		return b, nil
	}
	return wire.Binding{}, &errs.Error{Kind: errs.Unsupported, Op: "name the other end of", Name: "the door's connection",
		Msg: "the kernel does not tell it, so a relayed login could not be seen", Err: errors.Join(bySocket, byProcess),
		Fix: "load the kernel module unix_diag and allow AF_NETLINK sockets (RestrictAddressFamilies=, seccomp), or use " +
			"Linux 6.9"}
}

// PeerSocket names the other end by its socket's inode number, which is the same in every namespace.
func PeerSocket(fd int) (wire.Binding, error) {
	inode, err := peerInode(fd)
	if err != nil {
		return wire.Binding{}, fmt.Errorf("ask unix_diag for the peer: %w", err)
	}
	return wire.Binding{Kind: wire.BindSocket, ID: inode}, nil
}

// PeerProcess names the other end by the process that listens: by its inode number in pidfs, which is never used again.
func PeerProcess(fd int) (wire.Binding, error) {
	pidfd, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err != nil {
		return wire.Binding{}, fmt.Errorf("ask for SO_PEERPIDFD: %w", err)
	}
	return process(pidfd)
}

// Own names the server's end of an accepted connection in the way that the client chose.
func Own(fd int, kind uint8) (wire.Binding, error) {
	switch kind {
	case wire.BindSocket:
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return wire.Binding{}, err
		}
		return wire.Binding{Kind: kind, ID: st.Ino}, nil
	case wire.BindProcess:
		pidfd, err := unix.PidfdOpen(unix.Getpid(), 0)
		if err != nil {
			return wire.Binding{}, fmt.Errorf("pidfd_open: %w", err)
		}
		return process(pidfd)
	}
	return wire.Binding{}, errs.New(errs.Invalid, "name the own end of", "the door's connection",
		fmt.Sprintf("binding %d, expected %d (socket) or %d (process)", kind, wire.BindSocket, wire.BindProcess))
}

// pidfs is the file system of pidfds since Linux 6.9. Before, all pidfds share one inode.
const pidfs = 0x50494446

// process names a process by its pidfd, which it closes.
func process(pidfd int) (wire.Binding, error) {
	defer func() { _ = unix.Close(pidfd) }()
	var fs unix.Statfs_t
	if err := unix.Fstatfs(pidfd, &fs); err != nil {
		return wire.Binding{}, err
	}
	if int64(fs.Type) != pidfs {
		return wire.Binding{}, errors.New("pidfds have no inodes of their own before Linux 6.9")
	}
	var st unix.Stat_t
	if err := unix.Fstat(pidfd, &st); err != nil {
		return wire.Binding{}, err
	}
	return wire.Binding{Kind: wire.BindProcess, ID: st.Ino}, nil
}

// User returns the user at the other end, as this process's user namespace numbers users. On a client's socket that is
// the user of the listening process, and on a server's socket the user of the process that connected.
func User(fd int) (uid uint32, err error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, err
	}
	return cred.Uid, nil
}
