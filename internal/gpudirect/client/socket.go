// SPDX-License-Identifier: Apache-2.0

package client

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/channel"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
)

// socket is one packet connection to a door. Its calls block in the kernel, because a wakeup there takes half as long
// as one by the runtime's poller. An open takes only a few microseconds.
type socket struct {
	fd  int
	in  []byte
	oob []byte
	// iov and msg are the arguments of recvmsg. They are reused, so that repeated calls allocate nothing.
	iov unix.Iovec
	msg unix.Msghdr
}

// take calls recvmsg once.
func (s *socket) take(how int) (n, oobn, flags int, err error) {
	s.iov.Base = &s.in[0]
	s.iov.SetLen(len(s.in))
	s.msg = unix.Msghdr{Iov: &s.iov, Control: &s.oob[0]}
	s.msg.SetIovlen(1)
	s.msg.SetControllen(len(s.oob))
	got, _, errno := unix.Syscall(unix.SYS_RECVMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&s.msg)), uintptr(how))
	if errno != 0 {
		return 0, 0, 0, errno
	}
	return int(got), int(s.msg.Controllen), int(s.msg.Flags), nil
}

// slice is the time that one receive waits before it returns errSlow.
const slice = 200 * time.Millisecond

// spin is the time that a receive polls before it sleeps. Most answers arrive sooner than a sleeping thread is woken.
const spin = 50 * time.Microsecond

// longestPath is the largest length of a socket's path in bytes.
const longestPath = 107

// dial connects to the socket at path.
func dial(path string, patience time.Duration) (*socket, error) {
	const op = "connect to door"
	if len(path) > longestPath {
		return nil, errs.New(errs.Invalid, op, path, fmt.Sprintf("the path has %d bytes, expected at most %d", len(path),
			longestPath)).
			WithFix("set gpudirect.socket of the server to a shorter path")
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, errs.Wrap(op, path, err)
	}
	s := &socket{fd: fd}
	wait := unix.NsecToTimeval(patience.Nanoseconds())
	err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait)
	if err == nil {
		look := unix.NsecToTimeval(slice.Nanoseconds())
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &look)
	}
	if err == nil {
		// A message has at most 128 KiB and must fit into the buffer as a whole.
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 2*wire.MaxMessage)
	}
	s.takeDescriptors(false)
	for err == nil {
		if err = unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != unix.EINTR {
			break
		}
		err = nil
	}
	if err != nil {
		s.close()
		e := &errs.Error{Kind: errs.KindOf(err), Op: op, Name: path, Err: err}
		switch {
		case errors.Is(err, unix.ENOENT):
			e.Kind, e.Fix = errs.NotFound, "run the client on the server's host and give it the directory of the socket, or "+
				"set its door to the path under which the socket is mounted"
		case errors.Is(err, unix.ECONNREFUSED):
			e.Kind, e.Fix = errs.IO, "no server listens there: start it, with gpudirect.enabled"
		case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
			e.Kind, e.Fix = errs.Permission, "let this user pass through the directory of the socket, or set "+
				"gpudirect.socket of the server to a path that it can reach"
		case errors.Is(err, unix.EPROTOTYPE):
			e.Kind, e.Fix = errs.Invalid, "this is another kind of socket: name that of gpudirect.socket"
		}
		return nil, e
	}
	s.in, s.oob = make([]byte, wire.MaxMessage+1), make([]byte, unix.CmsgSpace(4*wire.MaxDescriptors))
	return s, nil
}

// listener returns an error if an unexpected user listens on the socket. Expected users are root, this process's
// user, and the owner of the socket's file. User IDs are those of this user namespace. An owner from outside the
// namespace appears as the overflow user, and so does the listener.
func (s *socket) listener(path string) error {
	const op = "log in at door"
	uid, err := channel.User(s.fd)
	if err != nil {
		return errs.Wrap(op, path, err)
	}
	if uid == 0 || int(uid) == os.Geteuid() {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return errs.Wrap(op, path, err)
	}
	if st.Uid != uid {
		return errs.New(errs.Permission, op, path,
			fmt.Sprintf("user %d listens there; expected root, this user (%d) or the owner of the socket's file (%d)", uid,
				os.Geteuid(), st.Uid)).
			WithFix("find out which process owns the socket")
	}
	return nil
}

// takeDescriptors makes the kernel accept or refuse descriptors that are sent to this socket, from Linux 6.16 on. A
// listener could send descriptors before it has authenticated itself. Closing one can take as long as its sender
// wants (a TCP socket with SO_LINGER).
func (s *socket) takeDescriptors(yes bool) {
	v := 0
	if yes {
		v = 1
	}
	// Older kernels lack the option and accept descriptors.
	_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_PASSRIGHTS, v)
}

// send sends one packet.
func (s *socket) send(b []byte) error {
	for {
		_, err := unix.SendmsgN(s.fd, b, nil, nil, unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return err
		}
	}
}

// errSlow is returned by receive when a slice of time has passed.
var errSlow = errors.New("nothing came yet")

// receive waits for a packet, for at most slice. The packet is valid until the next call. The caller owns the
// descriptors.
func (s *socket) receive() (b []byte, fds []int, err error) {
	var n, oobn, flags int
	how := unix.MSG_CMSG_CLOEXEC | unix.MSG_DONTWAIT
	for began := time.Now(); ; {
		n, oobn, flags, err = s.take(how)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN && how&unix.MSG_DONTWAIT != 0:
			if time.Since(began) > spin {
				how &^= unix.MSG_DONTWAIT
			}
			continue
		}
		break
	}
	switch {
	case err == unix.EAGAIN:
		return nil, nil, errSlow
	case err != nil:
		return nil, nil, err
	}
	if oobn > 0 {
		if fds, err = descriptorsOf(s.oob[:oobn]); err != nil {
			return nil, nil, err
		}
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		closeAll(fds)
		if flags&unix.MSG_CTRUNC != 0 {
			return nil, nil, errs.New(errs.IO, "receive", "descriptors",
				"some did not fit into this process").WithFix("raise the limit of open files (ulimit -n), or read fewer objects " +
				"at once")
		}
		return nil, nil, errs.New(errs.Invalid, "receive", "a packet",
			fmt.Sprintf("is longer than %d bytes", wire.MaxMessage))
	}
	if n == 0 {
		closeAll(fds)
		return nil, nil, io.EOF
	}
	return s.in[:n], fds, nil
}

// descriptorsOf returns the descriptors in control messages.
func descriptorsOf(oob []byte) ([]int, error) {
	all, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var out []int
	for i := range all {
		if all[i].Header.Level != unix.SOL_SOCKET || all[i].Header.Type != unix.SCM_RIGHTS {
			continue
		}
		fds, err := unix.ParseUnixRights(&all[i])
		if err != nil {
			closeAll(out)
			return nil, err
		}
		out = append(out, fds...)
	}
	return out, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		if fd >= 0 {
			_ = unix.Close(fd) // nothing was written, or the write is abandoned
		}
	}
}

func (s *socket) close() {
	if s.fd >= 0 {
		_ = unix.Close(s.fd)
		s.fd = -1
	}
}
