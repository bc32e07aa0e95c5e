// SPDX-License-Identifier: Apache-2.0

package channel

import (
	"encoding/binary"
	"net"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
)

// pair is a connection over a listener's socket: the client's end and the accepted one.
func pair(t testing.TB) (client, server int) {
	t.Helper()
	dir := t.TempDir()
	name := filepath.Join(dir, "s")
	l, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(l) })
	if err := unix.Bind(l, &unix.SockaddrUnix{Name: name}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(l, 1); err != nil {
		t.Fatal(err)
	}
	if client, err = unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(client) })
	if err := unix.Connect(client, &unix.SockaddrUnix{Name: name}); err != nil {
		t.Fatal(err)
	}
	if _, err := peerInode(client); err == nil {
		t.Error("a connection that nobody has accepted has a peer")
	}
	if server, _, err = unix.Accept(l); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(server) })
	return client, server
}

// TestBothEndsNameTheSameOne: what the client sees of its peer is what the server knows of itself, in each way.
func TestBothEndsNameTheSameOne(t *testing.T) {
	client, server := pair(t)
	_, another := pair(t)
	for name, ask := range map[string]func(int) (wire.Binding, error){"socket": PeerSocket, "process": PeerProcess,
		"either": Peer} {
		seen, err := ask(client)
		if err != nil {
			if name == "process" {
				t.Logf("this kernel cannot: %v", err)
				continue
			}
			t.Fatalf("%s: %v", name, err)
		}
		own, err := Own(server, seen.Kind)
		if err != nil || own != seen || own.ID == 0 {
			t.Errorf("%s: the client sees %+v, the server knows %+v, %v", name, seen, own, err)
		}
		if other, _ := Own(another, seen.Kind); seen.Kind == wire.BindSocket && other == seen {
			t.Errorf("%s: another connection has the same name", name)
		}
	}
	if _, err := Own(server, 9); err == nil {
		t.Error("a way that is not known is taken")
	}
	if uid, err := User(client); err != nil || int(uid) != unix.Geteuid() {
		t.Errorf("uid %d, %v", uid, err)
	}
}

// TestSocketsWithoutAPeer name none.
func TestSocketsWithoutAPeer(t *testing.T) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if b, err := Peer(fd); err == nil {
		t.Errorf("%+v", b)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) {
		if b, err := Peer(int(fd)); err == nil {
			t.Errorf("%+v", b)
		}
	})
}

// FuzzAnswer: no answer makes peerOf fail in another way than with an error.
func FuzzAnswer(f *testing.F) {
	good := make([]byte, unix.NLMSG_HDRLEN+diagMessage+8)
	binary.NativeEndian.PutUint32(good, uint32(len(good)))
	binary.NativeEndian.PutUint16(good[4:], unix.SOCK_DIAG_BY_FAMILY)
	binary.NativeEndian.PutUint32(good[unix.NLMSG_HDRLEN+4:], 7)
	attr := good[unix.NLMSG_HDRLEN+diagMessage:]
	binary.NativeEndian.PutUint16(attr, 8)
	binary.NativeEndian.PutUint16(attr[2:], attrPeer)
	binary.NativeEndian.PutUint32(attr[4:], 9)
	f.Add(good)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		peer, err := peerOf(b, 7)
		if err == nil && (peer == 0 || peer > 1<<32-1) {
			t.Errorf("peer %d", peer)
		}
	})
	if peer, err := peerOf(good, 7); err != nil || peer != 9 {
		f.Errorf("peer %d, %v", peer, err)
	}
}

// BenchmarkPeer is what a login pays for its binding.
func BenchmarkPeer(b *testing.B) {
	client, _ := pair(b)
	for b.Loop() {
		if _, err := Peer(client); err != nil {
			b.Fatal(err)
		}
	}
}
