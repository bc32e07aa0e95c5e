// SPDX-License-Identifier: Apache-2.0

package channel

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// These constants are from the kernel's header linux/unix_diag.h.
const (
	diagRequest  = 24 // bytes of struct unix_diag_req
	diagMessage  = 16 // bytes of struct unix_diag_msg
	showPeer     = 4  // UDIAG_SHOW_PEER
	attrPeer     = 2  // UNIX_DIAG_PEER
	allStates    = 0xffffffff
	netlinkError = 2 // NLMSG_ERROR
)

// peerInode asks unix_diag for the inode of the socket that a socket of ours is connected to. The request names our
// socket by its inode and its cookie. The kernel reuses inode numbers, which have 32 bits, but never cookies. So the
// answer cannot be about another socket with the same inode number.
func peerInode(fd int) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
	if err != nil {
		return 0, fmt.Errorf("SO_COOKIE: %w", err)
	}
	answer, err := askDiag(question(uint32(st.Ino), cookie))
	if err != nil {
		return 0, err
	}
	return peerOf(answer, uint32(st.Ino))
}

// question returns the netlink message that asks for one socket and its peer.
func question(inode uint32, cookie uint64) []byte {
	le := binary.NativeEndian
	b := make([]byte, unix.NLMSG_HDRLEN+diagRequest)
	le.PutUint32(b[0:], uint32(len(b)))
	le.PutUint16(b[4:], unix.SOCK_DIAG_BY_FAMILY)
	le.PutUint16(b[6:], unix.NLM_F_REQUEST)
	le.PutUint32(b[8:], 1)
	q := b[unix.NLMSG_HDRLEN:]
	q[0] = unix.AF_UNIX
	le.PutUint32(q[4:], allStates)
	le.PutUint32(q[8:], inode)
	le.PutUint32(q[12:], showPeer)
	le.PutUint32(q[16:], uint32(cookie))
	le.PutUint32(q[20:], uint32(cookie>>32))
	return b
}

// askDiag sends one question to the kernel and returns its answer.
func askDiag(q []byte) ([]byte, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, fmt.Errorf("open a NETLINK_SOCK_DIAG socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	// Linux answers during the send. The timeout is for systems that emulate Linux.
	wait := unix.Timeval{Sec: 1}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		return nil, err
	}
	for {
		if err = unix.Sendto(fd, q, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	b := make([]byte, 4096)
	for {
		n, from, err := unix.Recvfrom(fd, b, 0)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		if k, ok := from.(*unix.SockaddrNetlink); !ok || k.Pid != 0 {
			continue // not from the kernel: any process may write to a netlink socket
		}
		return b[:n], nil
	}
}

// peerOf returns the peer's inode from the kernel's answer b about the socket inode.
func peerOf(b []byte, inode uint32) (uint64, error) {
	le := binary.NativeEndian
	if len(b) < unix.NLMSG_HDRLEN {
		return 0, errors.New("the answer is too short")
	}
	if n := le.Uint32(b); int64(n) < unix.NLMSG_HDRLEN || int64(n) > int64(len(b)) {
		return 0, fmt.Errorf("the answer says that it has %d bytes and has %d", n, len(b))
	} else {
		b = b[:n]
	}
	kind, body := le.Uint16(b[4:]), b[unix.NLMSG_HDRLEN:]
	if kind == netlinkError && len(body) >= 4 {
		return 0, unix.Errno(-int32(le.Uint32(body)))
	}
	if kind != unix.SOCK_DIAG_BY_FAMILY || len(body) < diagMessage || le.Uint32(body[4:]) != inode {
		return 0, errors.New("the answer is about something else")
	}
	for body = body[diagMessage:]; len(body) >= unix.SizeofRtAttr; {
		n := int(le.Uint16(body))
		if n < unix.SizeofRtAttr || n > len(body) {
			break
		}
		if le.Uint16(body[2:]) == attrPeer && n >= unix.SizeofRtAttr+4 {
			if peer := le.Uint32(body[unix.SizeofRtAttr:]); peer != 0 {
				return uint64(peer), nil
			}
			break // 0: not accepted yet
		}
		body = body[min((n+3)&^3, len(body)):]
	}
	return 0, errors.New("the answer names no peer")
}
