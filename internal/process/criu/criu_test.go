// SPDX-License-Identifier: Apache-2.0

package criu

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// asCRIU makes the test's program behave as criu; its value says how.
const asCRIU = "NEBULAIO_TEST_AS_CRIU"

func TestMain(m *testing.M) {
	if how := os.Getenv(asCRIU); how != "" {
		os.Exit(pretend(how, os.Args[1:]))
	}
	os.Exit(m.Run())
}

// files are the images of the pretended criu.
func files() map[string][]byte {
	big := make([]byte, 3<<20)
	for i := range big {
		big[i] = byte(i / 251)
	}
	return map[string][]byte{"inventory.img": []byte("inventory"), "pages-1.img": big, "empty.img": {}}
}

// pretend speaks criu's side of the protocol.
func pretend(how string, args []string) int {
	value := func(name string) string { return args[slices.Index(args, name)+1] }
	switch {
	case slices.Contains(args, "--version"):
		fmt.Println("Version: 9.8.7")
		return 0
	case args[0] == "check":
		if how == "unfit" {
			fmt.Println("Error (criu/vdso.c:381): vdso: Unexpected area\nError (criu/x.c:1): vdso: Unexpected area")
			return 1
		}
		return 0
	}
	dir := value("--images-dir")
	log := func(text string) { _ = os.WriteFile(filepath.Join(dir, "log"), []byte(text), 0o600) }
	if how == "refuses" {
		log("(00.1) Error (criu/tty.c:3): Found dangling tty, consider --shell-job\n")
		return 1
	}
	socket := serveSocket
	if args[0] == "dump" {
		socket = captureSocket
	}
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: filepath.Join(dir, socket), Net: "unix"})
	if err != nil {
		log(err.Error())
		return 3
	}
	if args[0] == "dump" {
		err = pretendDump(c, how)
	} else {
		err = pretendRestore(c, dir)
	}
	if err != nil {
		log("Error (criu/img.c:7): " + err.Error())
		return 1
	}
	return 0
}

func request(c net.Conn, name string) error {
	b := append([]byte{nameField}, binary.AppendUvarint(nil, uint64(len(name)))...)
	b = append(b, name...)
	_, err := c.Write(append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

// sendPipe sends one end of a new pipe and returns the other.
func sendPipe(c *net.UnixConn, theirs int) (*os.File, error) {
	var p [2]int
	if err := unix.Pipe(p[:]); err != nil {
		return nil, err
	}
	_, _, err := c.WriteMsgUnix([]byte{0}, unix.UnixRights(p[theirs]), nil)
	unix.Close(p[theirs])
	return os.NewFile(uintptr(p[1-theirs]), "pipe"), err
}

func pretendDump(c *net.UnixConn, how string) error {
	if how == "garbles" {
		_, err := c.Write([]byte{255, 255, 255, 255})
		if err == nil {
			_, err = io.Copy(io.Discard, c) // until the streamer closes the connection
		}
		return errors.Join(err, errors.New("broken pipe"))
	}
	// All files are open at the same time, as criu's are.
	open := map[string]*os.File{}
	for name := range files() {
		if err := request(c, name); err != nil {
			return err
		}
		f, err := sendPipe(c, 0)
		if err != nil {
			return err
		}
		open[name] = f
	}
	for name, f := range open {
		if _, err := f.Write(files()[name]); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return c.Close()
}

func pretendRestore(c *net.UnixConn, dir string) error {
	for _, name := range []string{"missing.img", "pages-1.img", "inventory.img", "empty.img"} {
		if err := request(c, name); err != nil {
			return err
		}
		reply := make([]byte, 6)
		if _, err := io.ReadFull(c, reply); err != nil {
			return err
		}
		want, there := files()[name]
		if !bytes.Equal(reply, []byte{2, 0, 0, 0, 8, map[bool]byte{true: 1}[there]}) {
			return fmt.Errorf("%s: reply %v", name, reply)
		}
		if !there {
			continue
		}
		f, err := sendPipe(c, 1)
		if err != nil {
			return err
		}
		if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, want) {
			return fmt.Errorf("%s: %d bytes, %w", name, len(got), err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "pid"), []byte("4321\n"), 0o600); err != nil {
		return err
	}
	return c.Close()
}

// program returns a criu that is this test's program.
func program(t *testing.T, how string) *Program {
	t.Helper()
	path := filepath.Join(t.TempDir(), "criu")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\nGORACE=atexit_sleep_ms=0 %s='%s' exec '%s' \"$@\"\n", asCRIU, how, self)
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	p, err := Find(t.Context(), path)
	if err != nil || p.Version != "9.8.7" {
		t.Fatalf("%+v, %v", p, err)
	}
	return p
}

// received keeps the images of a dump.
type received struct {
	mu   sync.Mutex
	all  map[string][]byte
	fail error
}

func (r *received) Receive(name string, from io.Reader) error {
	if r.fail != nil && name == "pages-1.img" {
		_, _ = io.CopyN(io.Discard, from, 1000)
		return r.fail
	}
	b, err := io.ReadAll(from)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all[name] = b
	return err
}

var anyUser = []string{"--unprivileged"}

func TestDumpReceivesAllImages(t *testing.T) {
	temporary, err := os.MkdirTemp("", "t")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(temporary)
	t.Setenv("TMPDIR", temporary)
	out := &received{all: map[string][]byte{}}
	var log bytes.Buffer
	if err := program(t, "works").Dump(t.Context(), DumpOptions{PID: 7, Args: anyUser, Log: &log}, out); err != nil {
		t.Fatalf("%v\n%s", err, &log)
	}
	for name, want := range files() {
		if !bytes.Equal(out.all[name], want) {
			t.Errorf("%s has %d bytes, expected %d", name, len(out.all[name]), len(want))
		}
	}
	if len(out.all) != len(files()) {
		t.Errorf("%d files", len(out.all))
	}
	if left, err := filepath.Glob(filepath.Join(temporary, "nebulaio-criu-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	t.Setenv("TMPDIR", "/tmp/"+strings.Repeat("long/", 20))
	if got := shortFolder(); got != "/tmp" {
		t.Errorf("the folder of the socket is %s", got)
	}
}

func TestDumpsThatFail(t *testing.T) {
	full := errs.New(errs.IO, "write", "x", "no space")
	if err := program(t, "works").Dump(t.Context(), DumpOptions{PID: 7, Args: anyUser},
		&received{all: map[string][]byte{}, fail: full}); !errors.Is(err, full) {
		t.Errorf("a full disk: %v", err)
	}
	var log bytes.Buffer
	err := program(t, "refuses").Dump(t.Context(), DumpOptions{PID: 7, Args: anyUser, Log: &log}, &received{})
	if err == nil || !strings.Contains(err.Error(), "dangling tty") || !strings.Contains(errs.FixOf(err), "--shell-job") ||
		!strings.Contains(log.String(), "tty.c") {
		t.Errorf("%v", err)
	}
	if err := program(t, "garbles").Dump(t.Context(), DumpOptions{PID: 7, Args: anyUser}, &received{}); err == nil ||
		!strings.Contains(err.Error(), "4294967295 bytes") {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("SIGINT")
	cancel(cause)
	if err := program(t, "works").Dump(ctx, DumpOptions{PID: 7, Args: anyUser}, &received{}); !errs.Is(err,
		errs.Cancelled) ||
		!errors.Is(err, cause) {
		t.Errorf("%v", err)
	}
}

// sent has the images of a restore.
type sent struct{ fail error }

func (s sent) Has(name string) bool { _, ok := files()[name]; return ok }
func (s sent) Send(_ context.Context, name string, w io.Writer) error {
	if s.fail != nil {
		return s.fail
	}
	_, err := w.Write(files()[name])
	return err
}

func TestRestoreSendsWhatCRIUWants(t *testing.T) {
	p := program(t, "works")
	if pid, err := p.Restore(t.Context(), RestoreOptions{Args: anyUser}, sent{}); pid != 4321 || err != nil {
		t.Errorf("%d, %v", pid, err)
	}
	bad := errs.New(errs.Corrupt, "read", "x", "damaged")
	if pid, err := p.Restore(t.Context(), RestoreOptions{Args: anyUser}, sent{bad}); pid != 0 || !errors.Is(err, bad) {
		t.Errorf("%d, %v", pid, err)
	}
}

func TestFindAndCheck(t *testing.T) {
	if _, err := Find(t.Context(), filepath.Join(t.TempDir(), "criu")); !errs.Is(err, errs.Unsupported) ||
		!strings.Contains(errs.FixOf(err), "apt install criu") {
		t.Errorf("%v", err)
	}
	other := filepath.Join(t.TempDir(), "criu")
	if err := os.WriteFile(other, []byte("#!/bin/sh\necho hello\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(t.Context(), other); !errs.Is(err, errs.Unsupported) || !strings.Contains(err.Error(), "hello") {
		t.Errorf("%v", err)
	}
	if err := os.WriteFile(other, []byte("#!/bin/sh\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Find(t.Context(), other); !errs.Is(err, errs.Unsupported) {
		t.Errorf("%v", err)
	}
	if err := program(t, "works").Check(t.Context()); err != nil {
		t.Error(err)
	}
	err := program(t, "unfit").Check(t.Context())
	if !errs.Is(err, errs.Unsupported) || strings.Count(err.Error(), "Unexpected area") != 1 ||
		!strings.Contains(errs.FixOf(err), "newer criu") {
		t.Errorf("%v", err)
	}
	if os.Geteuid() != 0 {
		if err := Allowed("dump", "7", nil); !errs.Is(err, errs.Permission) {
			t.Errorf("%v", err)
		}
	}
}

func TestRequestsThatAreWrong(t *testing.T) {
	for name, b := range map[string][]byte{
		"too long":      {0, 0, 1, 0},
		"cut":           {9, 0, 0, 0, nameField},
		"no field":      {2, 0, 0, 0, 0x12, 0},
		"empty":         {0, 0, 0, 0},
		"wrong length":  {3, 0, 0, 0, nameField, 7, 'a'},
		"no length":     {2, 0, 0, 0, nameField, 0x80},
		"bytes behind":  {4, 0, 0, 0, nameField, 1, 'a', 'b'},
		"cut in header": {1, 0},
	} {
		if got, err := readRequest(bytes.NewReader(b)); err == nil || errors.Is(err, io.EOF) && name != "cut in header" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, err := readRequest(bytes.NewReader(nil)); err != io.EOF {
		t.Errorf("%v", err)
	}
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte{nameField, 1, 'a'})
	f.Add([]byte{nameField, 0x80, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		name, err := parseRequest(b)
		if err != nil {
			return
		}
		again := append([]byte{nameField}, binary.AppendUvarint(nil, uint64(len(name)))...)
		// A length may be written with more bytes than it needs.
		if got, err := parseRequest(append(again, name...)); err != nil || got != name {
			t.Errorf("%q, %v", got, err)
		}
	})
}
