// SPDX-License-Identifier: Apache-2.0

// Package channel asks the kernel which socket or process is at the other end of a connection to the door. Client and
// server use package channel to detect relayed logins.
//
// If a client proved only that it knows the secret, another process could relay that proof to the server. A relay is
// a process that passes the server's challenge to a client, and the client's proof to the server. To detect a relay,
// the client's proof also names the socket or process at the other end of the client's connection. If a relay is
// between client and server, the proof names the relay, and the server refuses the login.
package channel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
)

// Peer identifies the server's end of the client's connection fd, which the server has already accepted. Peer first
// asks the kernel for the inode of the other socket (PeerSocket). If the kernel does not return the inode, Peer asks
// for the listening process (PeerProcess). If PeerSocket and PeerProcess both fail, no login is safe, and Peer fails
// with kind Unsupported and both reasons.
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

// PeerSocket identifies the other end of connection fd by the inode number of its socket. The inode number of a
// socket is the same in every namespace.
func PeerSocket(fd int) (wire.Binding, error) {
	inode, err := peerInode(fd)
	if err != nil {
		return wire.Binding{}, fmt.Errorf("ask unix_diag for the peer: %w", err)
	}
	return wire.Binding{Kind: wire.BindSocket, ID: inode}, nil
}

// PeerProcess identifies the other end of connection fd by the pidfs inode number of the listening process. The
// kernel never reuses a pidfs inode number.
func PeerProcess(fd int) (wire.Binding, error) {
	pidfd, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err != nil {
		return wire.Binding{}, fmt.Errorf("ask for SO_PEERPIDFD: %w", err)
	}
	return process(pidfd)
}

// Own identifies the server's end of the accepted connection fd, by kind wire.BindSocket or wire.BindProcess as the
// client chose.
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

// process returns the binding of a process by its pidfd, and closes the pidfd.
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

// User returns the user ID of the process at the other end of the connection fd, as seen from this process's user
// namespace. On a client's socket, User returns the user of the listening process. On a server's socket, User returns
// the user of the process that connected.
func User(fd int) (uid uint32, err error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, err
	}
	return cred.Uid, nil
}
