// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/channel"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
)

// logIn connects to a socket and logs in, naming the server's end in one way.
func logIn(path string, bind func(int) (wire.Binding, error)) error {
	s, err := dial(path, patience)
	if err != nil {
		return err
	}
	c := &conn{s: s, mu: newTurn(), bind: bind}
	c.mu.Lock()
	defer c.shut()
	_, err = c.shake(context.Background(), path, testStore, testKey, testSecret, "test")
	return err
}

// TestARelayedLoginIsRefused: a listener that passes a login on to the server is not taken for the client, and gets
// nothing.
func TestARelayedLoginIsRefused(t *testing.T) {
	r := newRig(t, false)
	r.put("k", content(1, 4096))
	if err := logIn(r.socket, channel.PeerSocket); err != nil {
		t.Fatalf("without a relay: %v", err)
	}
	var greeted atomic.Int64
	relay := r.middle(false, func(fromClient bool, h wire.Type) bool {
		if !fromClient && h == wire.TypeGreeting {
			greeted.Add(1)
		}
		return false
	})
	before := r.door.Stats()
	if err := logIn(relay, channel.PeerSocket); codeOf(err) != wire.CodeRelayed || errs.FixOf(err) == "" {
		t.Errorf("through a relay: %v", err)
	}
	// A relay that changes what the client saw breaks the MAC.
	lying := func(fd int) (wire.Binding, error) {
		b, err := channel.PeerSocket(fd)
		b.ID++
		return b, err
	}
	if err := logIn(relay, lying); err == nil {
		t.Error("a made-up end is believed")
	}
	for _, b := range []wire.Binding{{}, {Kind: 3, ID: 1}, {Kind: 255}} {
		if err := logIn(r.socket, func(int) (wire.Binding, error) { return b, nil }); codeOf(err) != wire.CodeBadMessage {
			t.Errorf("binding %+v: %v", b, err)
		}
	}
	after := r.door.Stats()
	if greeted.Load() != 0 || after.Logins != before.Logins ||
		after.Refused[wire.CodeRelayed] != before.Refused[wire.CodeRelayed]+2 {
		t.Errorf("%d greetings, %d logins more, refused %v", greeted.Load(), after.Logins-before.Logins, after.Refused)
	}
	// The client goes over HTTP then, and says why.
	c := r.client(func(o *Options) { o.Door = relay })
	if _, _, err := r.read(c, Read{Key: "k", Size: -1}, 4096); err == nil ||
		!strings.Contains(err.Error(), "not connected to this server") {
		t.Errorf("%v", err)
	}
}

// TestWithoutABindingThereIsNoLogin: a client whose kernel tells nothing of its peer sends no proof.
func TestWithoutABindingThereIsNoLogin(t *testing.T) {
	r := newRig(t, false)
	none := errs.New(errs.Unsupported, "name the other end of", "it", "no module").WithFix("load it")
	err := logIn(r.socket, func(int) (wire.Binding, error) { return wire.Binding{}, none })
	if !errs.Is(err, errs.Unsupported) || errs.FixOf(err) != "load it" || r.door.Stats().Logins != 0 {
		t.Errorf("%v", err)
	}
}

// TestOldAndNewDoNotMix: a server of version 1 is refused, whether it says so or pretends.
func TestOldAndNewDoNotMix(t *testing.T) {
	for name, answer := range map[string]wire.Message{
		"an old server": &wire.Error{Kind: uint8(errs.Unsupported), Code: wire.CodeVersion,
			Message: "the client speaks versions 2 to 2, the server 1 to 1",
			Fix:     "use a client and a server of the same release"},
		"a false server": &wire.Challenge{Version: 1, Store: testStore},
	} {
		path, l := listenUnix(t)
		go func() {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			b := make([]byte, wire.MaxMessage)
			if n, err := c.Read(b); err == nil {
				h, _, _ := wire.Decode(b[:n])
				b, _ = wire.Append(b[:0], wire.Header{Request: h.Request}, answer)
				_, _ = c.Write(b)
			}
			_, _ = c.Read(b) // until the client has left
			_ = c.Close()
		}()
		if err := logIn(path, channel.Peer); !errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), "version") ||
			errs.FixOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAStrangerThatListensIsRefused: the socket's file is of one user and the listener of another.
func TestAStrangerThatListensIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("to be another user takes root")
	}
	path := filepath.Join(t.TempDir(), "s")
	l, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(l) }()
	if err := unix.Bind(l, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	// The system call itself changes the user of one thread alone.
	runtime.LockOSThread()
	keep := ^uintptr(0)
	_, _, no := unix.RawSyscall(unix.SYS_SETRESUID, keep, 4711, keep)
	err = unix.Listen(l, 1)
	if _, _, back := unix.RawSyscall(unix.SYS_SETRESUID, keep, 0, keep); back != 0 {
		t.Fatal(back) // the thread is not unlocked, and ends with the test
	}
	runtime.UnlockOSThread()
	if no != 0 || err != nil {
		t.Fatal(no, err)
	}
	if err := os.Chown(path, 4711, 4711); err != nil {
		t.Fatal(err)
	}
	s, err := dial(path, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if err := s.listener(path); err != nil {
		t.Errorf("the owner of the file listens: %v", err)
	}
	if err := os.Chown(path, 4712, 4712); err != nil {
		t.Fatal(err)
	}
	if err := s.listener(path); !errs.Is(err, errs.Permission) || !strings.Contains(err.Error(), "4711") ||
		!strings.Contains(err.Error(), "4712") {
		t.Errorf("%v", err)
	}
}

// TestLoginsFromOtherNamespaces: a client in user, PID, network and mount namespaces of its own logs in, in each way,
// and a relay is seen from there too.
func TestLoginsFromOtherNamespaces(t *testing.T) {
	r := newRig(t, false)
	relay := r.middle(false, func(bool, wire.Type) bool { return false })
	apart := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
		unix.CLONE_NEWNS | unix.CLONE_NEWIPC,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
	_, noPidfs := channel.Own(0, wire.BindProcess)
	for _, way := range []string{"socket", "process"} {
		if way == "process" && noPidfs != nil {
			t.Logf("this kernel has no pidfs: %v", noPidfs)
			continue
		}
		for where, attr := range map[string]*syscall.SysProcAttr{"beside": nil, "apart": apart} {
			for socket, want := range map[string]string{r.socket: "in", relay: wire.CodeRelayed} {
				if socket == relay && way == "process" {
					continue // this relay is of the server's own process
				}
				cmd := helper(t, "login", socket, way)
				cmd.SysProcAttr = attr
				out, err := cmd.Output()
				if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EINVAL) {
					t.Skipf("the kernel refuses namespaces: %v", err)
				}
				if got := strings.TrimSpace(string(out)); got != want {
					t.Errorf("%s, by %s, relay %v: %q, %v; expected %q", where, way, socket == relay, got, err, want)
				}
			}
		}
	}
}

// TestARelayOfAnotherProcess is seen by the process that listens, where that is what a client goes by.
func TestARelayOfAnotherProcess(t *testing.T) {
	if _, err := channel.Own(0, wire.BindProcess); err != nil {
		t.Skipf("this kernel has no pidfs: %v", err)
	}
	r := newRig(t, false)
	path := filepath.Join(t.TempDir(), "relay")
	cmd := helper(t, "relay", path, r.socket)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close(); _ = cmd.Wait() }()
	said := make([]byte, 256)
	if n, _ := out.Read(said); string(said[:n]) != "listens\n" {
		t.Fatalf("the relay said %q", said[:n])
	}
	for name, bind := range map[string]func(int) (wire.Binding, error){"socket": channel.PeerSocket,
		"process": channel.PeerProcess} {
		if err := logIn(path, bind); codeOf(err) != wire.CodeRelayed ||
			!strings.Contains(err.Error(), fmt.Sprint(cmd.Process.Pid)) {
			t.Errorf("%s: %v; expected the relay's process %d", name, err, cmd.Process.Pid)
		}
	}
}

// helper runs this program as another process: see TestHelper.
func helper(t *testing.T, do, path, more string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHelper$")
	cmd.Env = append(os.Environ(), "DOOR_DO="+do, "DOOR_PATH="+path, "DOOR_MORE="+more)
	return cmd
}

// TestHelper is what other tests run in processes of their own.
func TestHelper(t *testing.T) {
	if os.Getenv("DOOR_DO") == "" {
		t.Skip("runs for other tests")
	}
	help(t)
	os.Exit(0) // without the words of the testing package
}

func help(t *testing.T) {
	path, more := os.Getenv("DOOR_PATH"), os.Getenv("DOOR_MORE")
	switch os.Getenv("DOOR_DO") {
	case "login":
		bind := channel.PeerSocket
		if more == "process" {
			bind = channel.PeerProcess
		}
		said := "in"
		if err := logIn(path, bind); err != nil {
			if said = codeOf(err); said == "" {
				said = err.Error()
			}
		}
		fmt.Println(said)
	case "relay":
		at := (&rig{t: t, socket: more}).middle(false, func(bool, wire.Type) bool { return false })
		defer os.RemoveAll(filepath.Dir(at))
		if err := os.Symlink(at, path); err != nil {
			fmt.Println(err)
			break
		}
		fmt.Println("listens")
		_, _ = os.Stdin.Read(make([]byte, 1))
	}
}
