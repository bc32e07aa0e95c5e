// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/test/effort"
)

// lingering makes a TCP socket whose close waits for an hour, as long as its peer reads nothing. reset ends that.
func lingering(t *testing.T) (fd int, reset func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	to := &unix.SockaddrInet4{Port: l.Addr().(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}}
	if err := errors.Join(unix.Connect(fd, to), unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER,
		&unix.Linger{Onoff: 1, Linger: 3600})); err != nil {
		t.Fatal(err)
	}
	peer, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	for junk := make([]byte, 1<<20); ; {
		if _, err := unix.SendmsgN(fd, junk, nil, nil, unix.MSG_DONTWAIT); err == unix.EAGAIN {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return fd, func() { _ = peer.(*net.TCPConn).SetLinger(0); _ = peer.Close() }
}

// pester connects and sends Hello with a socket that lingers, before the server looks: the server's copy is the last
// one.
func (d *door) pester(t *testing.T) (reset func()) {
	t.Helper()
	fd, reset := lingering(t)
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	c := d.dial()
	b, _ := wire.Append(nil, wire.Header{Request: 1}, &wire.Hello{Min: wire.MinVersion, Max: wire.Version})
	if _, _, err := c.c.WriteMsgUnix(b, unix.UnixRights(fd), nil); err != nil {
		t.Fatal(err)
	}
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
	return reset
}

// TestTheKernelRefusesDescriptors: who sends some gets EPERM, at the login and behind it, and the server never has
// them.
func TestTheKernelRefusesDescriptors(t *testing.T) {
	d := serve(t, nil)
	probe, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(probe) }()
	if unix.SetsockoptInt(probe, unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 0) != nil {
		t.Skip("the kernel cannot refuse them: that takes Linux 6.16")
	}
	for name, c := range map[string]*wireConn{"before the login": d.dial(), "after the login": d.login()} {
		b, _ := wire.Append(nil, wire.Header{Request: 9}, &wire.Ping{})
		if _, _, err := c.c.WriteMsgUnix(b, unix.UnixRights(probe), nil); !errors.Is(err, syscall.EPERM) {
			t.Errorf("%s: %v, expected EPERM", name, err)
		}
	}
}

// TestSocketsThatLingerKeepFewThreads: where the kernel cannot refuse descriptors, each that a stranger sends can keep
// a thread of the server for as long as the stranger wants. Their number is bounded, others are served, and the server
// stops.
func TestSocketsThatLingerKeepFewThreads(t *testing.T) {
	effort.Slow(t)
	d := serveOn(t, takesDescriptors, func(o *Options) {
		o.Drain = 50 * time.Millisecond
		o.Limits.Connections, o.Limits.Logins, o.Limits.UserConnections, o.Limits.Send = 64, 1, 2, 2*time.Second
	})
	var resets []func()
	defer func() {
		for _, reset := range resets {
			reset()
		}
	}()
	books := func() (u user) {
		d.s.mu.Lock()
		defer d.s.mu.Unlock()
		for _, one := range d.s.crowd.users {
			u = *one
		}
		return u
	}
	// Each login gives way to the next one and does not end.
	for i := range mostLeaving + 1 {
		resets = append(resets, d.pester(t))
		waitFor(t, func() bool { u := books(); return u.leaving == i && u.logins == 1 })
	}
	// From now on the user is refused, by whom nobody waits for.
	for range 3 {
		resets = append(resets, d.pester(t))
		waitFor(t, func() bool { return d.s.Stats().Refused[wire.CodeTooManyConnections] > 0 })
	}
	if u := books(); u.leaving != mostLeaving || u.conns != 1 {
		t.Errorf("%+v", u)
	}
	if e := d.dial().ended(); e == nil || e.Code != wire.CodeTooManyConnections {
		t.Errorf("one more: %+v", e)
	}
	ended := make(chan error, 1)
	go func() { ended <- d.stop() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the server does not stop")
	}
	for _, reset := range resets {
		reset()
	}
	d.s.nobodyLeft(t)
}
