// SPDX-License-Identifier: Apache-2.0

package ktls

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// enable gives the write keys of a connection to the kernel. If it fails, the connection is as before.
func enable(s Socket, k *keys) error {
	info := k.info()
	defer clear(info)
	return control(s, func(fd int) error {
		if err := unix.SetsockoptString(fd, unix.SOL_TCP, unix.TCP_ULP, "tls"); err != nil {
			return err
		}
		return unix.SetsockoptString(fd, unix.SOL_TLS, tlsTX, string(info))
	})
}

func control(s syscall.Conn, f func(fd int) error) error {
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = f(int(fd)) })
	return errors.Join(err, failed)
}

// tries is how often awake asks again before it waits.
const tries = 16

// awake is a socket on which no wakeup is lost. The kernel's TLS may report a full socket when everything was
// acknowledged a moment before, and then no event follows: TCP itself handles that case, and TLS does not. So awake
// asks whether the socket can be written before it waits for an event.
type awake struct{ syscall.RawConn }

func (a awake) Write(f func(uintptr) bool) error {
	return a.RawConn.Write(func(fd uintptr) bool {
		for range tries {
			if f(fd) {
				return true
			}
			ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
			if n, err := unix.Poll(ready, 0); err == nil && n == 0 {
				return false // an event follows
			}
		}
		return false
	})
}

// writeAwake writes p to a connection in the kernel.
func (c *Conn) writeAwake(p []byte) (n int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return c.socket.Write(p) // only in tests: this socket encrypts by itself
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		for n < len(p) && failed == nil {
			k, err := unix.Write(int(fd), p[n:])
			switch {
			case err == nil:
				n += k
			case err == unix.EAGAIN:
				return false
			case err != unix.EINTR:
				failed = os.NewSyscallError("write", err)
			}
		}
		return true
	})
	return n, errors.Join(err, failed)
}

// alert is the record type of alerts.
const alert = 21

// closeNotify sends the alert close_notify through the kernel, without waiting for room in the socket. The peer notices
// the end of the connection without the alert too.
func closeNotify(s Socket) {
	oob := make([]byte, unix.CmsgSpace(1)) // struct cmsghdr: a length of 8 bytes, a level and a type of 4
	binary.NativeEndian.PutUint64(oob, uint64(unix.CmsgLen(1)))
	binary.NativeEndian.PutUint32(oob[8:], unix.SOL_TLS)
	binary.NativeEndian.PutUint32(oob[12:], setRecordType)
	oob[unix.CmsgLen(0)] = alert
	_ = control(s, func(fd int) error {
		_, err := unix.SendmsgN(fd, []byte{1, 0}, oob, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		return err
	})
}

// Probe returns nil if the kernel can encrypt TLS connections, or the reason why not and what to do. Probe opens a
// connection to itself on loopback for the test.
func Probe() error {
	const op = "encrypt TLS in the kernel"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return errs.Wrap(op, "", err)
	}
	defer l.Close()
	there, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return errs.Wrap(op, "", err)
	}
	defer there.Close()
	c, _ := cipherOf(tls.TLS_AES_128_GCM_SHA256)
	k, err := newKeys(c, make([]byte, 32))
	if err != nil {
		return errs.Wrap(op, "", err)
	}
	switch err := enable(there.(*net.TCPConn), &k); {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOENT):
		return errs.New(errs.Unsupported, op, "", "the kernel has no tls module").WithFix("modprobe tls")
	default:
		return errs.New(errs.Unsupported, op, "", fmt.Sprintf("the kernel refuses AES-GCM for TLS 1.3: %v", err)).
			WithFix("use Linux 5.1 or newer with the modules tls and gcm")
	}
}
