// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/test/effort"
)

// startDoor starts a server with its door open and a bucket.
func startDoor(t *testing.T, data string, args ...string) *server {
	t.Helper()
	t.Setenv("NEBULAIO_GPUDIRECT_ENABLED", "true")
	s := start(t, data, args...)
	err := s.client(t).MakeBucket(context.Background(), plainBucket, minio.MakeBucketOptions{})
	if code := minio.ToErrorResponse(err).Code; err != nil && code != "BucketAlreadyOwnedByYou" {
		t.Fatal(err)
	}
	return s
}

func ptrOf(b []byte) nebulaio.Ptr { return nebulaio.Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// stamped returns content that identifies itself: the first 8 bytes are the version, and the others follow from it.
func stamped(version uint64, n int) []byte {
	rnd := rand.New(rand.NewPCG(version, 6))
	b := content(rnd, n)
	for i := range 8 {
		b[i] = byte(version >> (8 * i))
	}
	return b
}

// versionOf returns the version of content that stamped made, or an error that names the first wrong offset.
func versionOf(b []byte) (uint64, error) {
	if len(b) < 8 {
		return 0, fmt.Errorf("%d bytes", len(b))
	}
	var v uint64
	for i := range 8 {
		v |= uint64(b[i]) << (8 * i)
	}
	if want := stamped(v, len(b)); !bytes.Equal(want, b) {
		at := 0
		for at < len(b) && b[at] == want[at] {
			at++
		}
		return v, fmt.Errorf("says it is version %d and differs from it at byte %d of %d", v, at, len(b))
	}
	return v, nil
}

// child runs this test binary as a client in its own process; see TestMain.
func child(t *testing.T, s *server, role string, arg ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := exec.Command(os.Args[0], arg...)
	cmd.Env = append(os.Environ(), "NEBULAIO_DOOR_CHILD="+role, "NEBULAIO_ENDPOINT=http://"+s.address,
		"NEBULAIO_ACCESS_KEY="+user, "NEBULAIO_SECRET_KEY="+password)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, bufio.NewReader(out)
}

// doorChild is the work of a child until somebody ends it. The child prints each step on its own line.
func doorChild(role string, args []string) error {
	ctx := context.Background()
	sys, err := nebulaio.NewSystem(nebulaio.Options{Devices: "off"})
	if err != nil {
		return err
	}
	c, err := sys.NewClient(nebulaio.ClientOptions{Door: "require"})
	if err != nil {
		return err
	}
	if len(args) < 3 {
		return fmt.Errorf("%q: expected a key, a size and a first version", args)
	}
	key := args[0]
	size, err1 := strconv.Atoi(args[1])
	first, err2 := strconv.ParseUint(args[2], 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	for v := first; ; v++ {
		switch role {
		case "write":
			b := stamped(v, size)
			m, err := c.StartWrite(ctx, nebulaio.ObjectWrite{Bucket: plainBucket, Key: key, Src: ptrOf(b), Size: int64(size),
				Device: "host"})
			if err != nil {
				return err
			}
			fmt.Println("begun", v)
			for said := int64(-1); ; {
				if done, _ := m.Progress(); done != said {
					fmt.Println("at", done)
					said = done
				}
				select {
				case <-m.Done():
				default:
					continue
				}
				break
			}
			if err := m.Wait(); err != nil {
				fmt.Println("failed", v, err)
				return nil
			}
			runtime.KeepAlive(b) // the move knows its address alone
			fmt.Println("done", v)
		case "read":
			b := make([]byte, size)
			m, err := c.StartRead(ctx, nebulaio.ObjectRead{Bucket: plainBucket, Key: key, Size: -1, Dst: ptrOf(b),
				DstSize: int64(size), Device: "host"})
			if err != nil {
				fmt.Println("failed", err)
				return nil
			}
			fmt.Println("begun")
			if err := m.Wait(); err != nil {
				fmt.Println("failed", err)
				return nil
			}
			if _, err := versionOf(b); err != nil {
				fmt.Println("wrong", err)
				return nil
			}
			fmt.Println("whole")
		default:
			return fmt.Errorf("no role %q", role)
		}
	}
}

// stored reads an object over HTTP; nil if there is none.
func stored(t *testing.T, s *server, key string) []byte {
	t.Helper()
	body, _, _, err := s.client(t).GetObject(context.Background(), plainBucket, key, minio.GetObjectOptions{})
	if minio.ToErrorResponse(err).Code == "NoSuchKey" {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	b, err := io.ReadAll(body)
	if err != nil {
		t.Fatalf("read %s: %v", key, err)
	}
	return b
}

// settled waits until no trace of vanished clients is left: no draft, no held file, nothing in tmp/.
func settled(t *testing.T, s *server) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		out, code := run(t, "gpudirect", "status", "--data", s.data, "--json")
		var st struct {
			Door struct {
				Connections int   `json:"connections"`
				Handles     int   `json:"handles"`
				Drafts      int   `json:"drafts"`
				DraftBytes  int64 `json:"draft_bytes"`
			} `json:"door"`
		}
		if code != 0 || json.Unmarshal([]byte(out), &st) != nil {
			t.Fatalf("gpudirect status: exit %d\n%s", code, out)
		}
		left, err := os.ReadDir(filepath.Join(s.data, "tmp"))
		if err != nil {
			t.Fatal(err)
		}
		if st.Door.Handles == 0 && st.Door.Drafts == 0 && len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after 20 s: %s; %d files in tmp/", out, len(left))
		}
		time.Sleep(10 * time.Millisecond) // the server's own end of a connection has no other sign
	}
}

func checkClean(t *testing.T, data string) {
	t.Helper()
	if out, code := run(t, "store", "check", "--data", data); code != 0 {
		t.Fatalf("store check: exit %d\n%s", code, out)
	}
}

// TestClientKilledInMidWrite kills clients at any step of a write. An acknowledged object must exist, any other must
// be complete or missing, and no files may be left over.
func TestClientKilledInMidWrite(t *testing.T) {
	effort.Slow(t)
	s := startDoor(t, t.TempDir())
	const size = 9<<20 + 4097
	rounds, acked, started := effort.Rounds{Test: 6, CI: 25, Long: 100}.Of(t), uint64(0), 0
	rnd := rand.New(rand.NewPCG(6, 1))
	for round := range rounds {
		first := uint64(round)*1000 + 1
		cmd, lines := child(t, s, "write", "victim", strconv.Itoa(size), strconv.FormatUint(first, 10))
		last := uint64(0)
		for left := 1 + rnd.IntN(40); left > 0; left-- {
			line, err := lines.ReadString('\n')
			if err != nil {
				t.Fatalf("round %d: the client ended: %v", round, err)
			}
			word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
			switch word {
			case "begun":
				started++
			case "done":
				last, _ = strconv.ParseUint(rest, 10, 64)
			case "failed":
				t.Fatalf("round %d: %s", round, line)
			}
		}
		_ = cmd.Process.Kill()
		// What was said before the end counts too.
		for {
			line, err := lines.ReadString('\n')
			if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "done "); ok {
				last, _ = strconv.ParseUint(rest, 10, 64)
			}
			if err != nil {
				break
			}
		}
		_ = cmd.Wait()
		acked = max(acked, last)
		b := stored(t, s, "victim")
		if b == nil && acked == 0 {
			continue
		}
		v, err := versionOf(b)
		if err != nil || len(b) != size {
			t.Fatalf("round %d: %d bytes: %v", round, len(b), err)
		}
		if v < acked {
			t.Fatalf("round %d: version %d is there, version %d was acknowledged", round, v, acked)
		}
	}
	settled(t, s)
	// A few may be of objects that were read before they had their last place, and are kept open for the next reader.
	if left := draftsOpen(t, s); len(left) > 3 {
		t.Errorf("the server still has open: %v", left)
	}
	t.Logf("%d rounds, %d writes begun, version %d acknowledged last", rounds, started, acked)
	s.stop(t)
	checkClean(t, s.data)
}

// draftsOpen lists the server's descriptors for files in tmp/, the folder of drafts.
func draftsOpen(t *testing.T, s *server) (left []string) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid)
	fds, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		to, err := os.Readlink(filepath.Join(dir, fd.Name()))
		if err == nil && strings.HasPrefix(to, filepath.Join(s.data, "tmp")+"/") {
			left = append(left, to)
		}
	}
	return left
}

// TestServerKilledInMidRead checks that a client with descriptors can finish its read without the server.
func TestServerKilledInMidRead(t *testing.T) {
	data := t.TempDir()
	const size = 24 << 20
	for round := range (effort.Rounds{Test: 2, CI: 5}).Of(t) {
		s := startDoor(t, data)
		b := stamped(uint64(round)+1, size)
		if _, err := s.client(t).PutObject(context.Background(), plainBucket, "big", bytes.NewReader(b), size, "", "",
			minio.PutObjectOptions{}); err != nil {
			t.Fatal(err)
		}
		_, lines := child(t, s, "read", "big", strconv.Itoa(size), "1")
		for range 3 + 2*round { // ends behind a "begun"
			line, err := lines.ReadString('\n')
			if err != nil || strings.HasPrefix(line, "wrong") || strings.HasPrefix(line, "failed") {
				t.Fatalf("%q %v", line, err)
			}
		}
		s.kill()
		// The read under way ends whole; the next one says that the server is gone.
		line, err := lines.ReadString('\n')
		if err != nil || strings.TrimSpace(line) != "whole" {
			t.Fatalf("round %d: the read under way ended with %q %v", round, line, err)
		}
		for strings.TrimSpace(line) == "whole" || strings.TrimSpace(line) == "begun" {
			if line, err = lines.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		if !strings.HasPrefix(line, "failed") {
			t.Fatalf("round %d: without a server: %q", round, line)
		}
		checkClean(t, data)
	}
}

// TestServerKilledInMidCommit checks that an acknowledged commit survives, and that any other object is complete or
// missing.
func TestServerKilledInMidCommit(t *testing.T) {
	effort.Slow(t)
	data := t.TempDir()
	rounds := effort.Rounds{Test: 2, CI: 8, Long: 100}.Of(t)
	const clients, size = 4, 1<<20 + 17
	acked := map[string]uint64{}
	rnd := rand.New(rand.NewPCG(6, 2))
	for round := range rounds {
		s := startDoor(t, data)
		var mu sync.Mutex
		var wg sync.WaitGroup
		enough := make(chan struct{})
		left := 5 + rnd.IntN(60)
		for i := range clients {
			key := "k" + strconv.Itoa(i)
			_, lines := child(t, s, "write", key, strconv.Itoa(size), strconv.Itoa(round*100000+1))
			wg.Go(func() {
				for {
					line, err := lines.ReadString('\n')
					mu.Lock()
					if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "done "); ok {
						acked[key], _ = strconv.ParseUint(rest, 10, 64)
					}
					if left--; left == 0 {
						close(enough)
					}
					mu.Unlock()
					if err != nil || strings.HasPrefix(line, "failed") {
						return
					}
				}
			})
		}
		<-enough
		s.kill()
		wg.Wait()
		s = startDoor(t, data)
		for i := range clients {
			key := "k" + strconv.Itoa(i)
			b := stored(t, s, key)
			if b == nil && acked[key] == 0 {
				continue
			}
			v, err := versionOf(b)
			if err != nil || v < acked[key] {
				t.Fatalf("round %d: %s: %d bytes of version %d, version %d was acknowledged: %v", round, key, len(b), v, acked[key],
					err)
			}
		}
		settled(t, s)
		s.stop(t)
		checkClean(t, data)
	}
	t.Logf("acknowledged last: %v", acked)
}

// TestWriterLeft checks that the server refuses to commit an object while its client can still write to it, and says
// what to do.
func TestWriterLeft(t *testing.T) {
	s := startDoor(t, t.TempDir())
	b := stamped(7, 3<<20+5)
	keep := map[string]func(fds []int) (release func()){
		"the descriptor": func(fds []int) func() {
			return func() { closeAll(fds) }
		},
		"a duplicate": func(fds []int) func() {
			dup, err := unix.Dup(fds[0])
			if err != nil {
				t.Fatal(err)
			}
			closeAll(fds)
			return func() { _ = unix.Close(dup) }
		},
		"a descriptor in flight": func(fds []int) func() {
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := unix.Sendmsg(pair[0], []byte{0}, unix.UnixRights(fds[0]), nil, 0); err != nil {
				t.Fatal(err)
			}
			closeAll(fds)
			return func() { closeAll(pair[:]) }
		},
	}
	keep["a mapping"] = func(fds []int) func() {
		m, err := unix.Mmap(fds[0], 0, 4096, unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			// A description that cannot be read cannot be mapped: nothing to keep but itself.
			if !errors.Is(err, unix.EACCES) {
				t.Fatal(err)
			}
			return func() { closeAll(fds) }
		}
		closeAll(fds)
		return func() { _ = unix.Munmap(m) }
	}
	for name, how := range keep {
		t.Run(name, func(t *testing.T) {
			d, err := dialDoor(s, user, password)
			if err != nil {
				t.Fatal(err)
			}
			defer d.close()
			handle, fds := createRaw(t, d, "kept", b)
			release := how(fds)
			_, _, err = d.ask(sealOf(handle, b))
			var de doorError
			if !errors.As(err, &de) || de.said.Code != "WriterLeft" || de.said.Fix == "" {
				t.Fatalf("commit with %s kept: %v", name, err)
			}
			if stored(t, s, "kept") != nil {
				t.Fatal("the object is visible")
			}
			release()
			m, _, err := d.ask(sealOf(handle, b))
			if err != nil {
				t.Fatalf("commit after %s was let go: %v", name, err)
			}
			if etag := m.(*wire.Committed).ETag; !strings.Contains(etag, "-") {
				t.Errorf("ETag %q looks like an MD5", etag)
			}
			if got := stored(t, s, "kept"); !bytes.Equal(got, b) {
				t.Fatalf("%d bytes are not what was written", len(got))
			}
			if err := s.client(t).RemoveObject(context.Background(), plainBucket, "kept",
				minio.RemoveObjectOptions{}); err != nil {
				t.Fatal(err)
			}
		})
	}
	settled(t, s)
}

// TestHeldObject checks that an object held by a client keeps its bytes and its name when it is overwritten or
// deleted.
func TestHeldObject(t *testing.T) {
	s := startDoor(t, t.TempDir())
	c := s.client(t)
	ctx := context.Background()
	old := stamped(1, 2<<20)
	put := func(b []byte) {
		if _, err := c.PutObject(ctx, plainBucket, "held", bytes.NewReader(b), int64(len(b)), "", "",
			minio.PutObjectOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	put(old)
	d, err := dialDoor(s, user, password)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	m, fds, err := d.ask(&wire.Open{Want: wire.WantBuffered, Device: wire.Device{Index: -1},
		Items: []wire.OpenItem{{Bucket: plainBucket, Key: "held", N: -1}}})
	if err != nil || len(fds) != 1 {
		t.Fatalf("open: %v, %d descriptors", err, len(fds))
	}
	defer closeAll(fds)
	put(stamped(2, 2<<20))
	if err := c.RemoveObject(ctx, plainBucket, "held", minio.RemoveObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(old))
	if n, err := unix.Pread(fds[0], got, 0); n != len(old) || err != nil || !bytes.Equal(got, old) {
		t.Fatalf("the old bytes are gone: %d, %v", n, err)
	}
	name := func() string {
		text, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fds[0]))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if n := name(); strings.HasSuffix(n, "(deleted)") {
		t.Fatalf("the file has lost its name while it is held: %s", n)
	}
	out, code := run(t, "store", "stats", "--data", s.data, "--json")
	var st map[string]any
	if code != 0 || json.Unmarshal([]byte(out), &st) != nil || !strings.Contains(out, "held") {
		t.Fatalf("store stats: exit %d\n%s", code, out)
	}
	if _, _, err := d.ask(&wire.Close{Handles: []uint64{m.(*wire.Opened).Items[0].Handle}}); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(20 * time.Second)
	for !strings.HasSuffix(name(), "(deleted)") {
		if time.Now().After(deadline) {
			t.Fatal("the file keeps its name though nobody holds it")
		}
		time.Sleep(5 * time.Millisecond) // removal happens behind the reply
	}
}

// TestDoorRefuses checks that wrong requests get a clear error and that the server keeps running.
func TestDoorRefuses(t *testing.T) {
	t.Setenv("NEBULAIO_LOG_LEVEL", "debug")
	s := startDoor(t, t.TempDir())
	ctx := context.Background()
	out, code := run(t, "user", "add", "guest", "--data", s.data, "--json")
	var guest struct {
		Secret string `json:"secret_key"`
	}
	if err := json.Unmarshal([]byte(out), &guest); code != 0 || err != nil || guest.Secret == "" {
		t.Fatalf("user add: exit %d, %v\n%s", code, err, out)
	}
	if _, err := s.client(t).PutObject(ctx, plainBucket, "o", strings.NewReader("hello"), 5, "", "",
		minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := dialDoor(s, user, "wrong"); err == nil || !strings.Contains(err.Error(), "AccessDenied") {
		t.Errorf("a wrong secret: %v", err)
	}
	if _, err := dialDoor(s, "nobody", password); err == nil || !strings.Contains(err.Error(), "AccessDenied") {
		t.Errorf("an unknown access key: %v", err)
	}
	d, err := dialDoor(s, "guest", guest.Secret)
	if err != nil {
		t.Fatal(err)
	}
	defer d.close()
	open := func(bucket, key string) string {
		m, fds, err := d.ask(&wire.Open{Want: wire.WantBuffered | wire.WantInline, Device: wire.Device{Index: -1},
			Items: []wire.OpenItem{{Bucket: bucket, Key: key, N: -1}}})
		closeAll(fds)
		if err != nil {
			t.Fatal(err)
		}
		if e := m.(*wire.Opened).Items[0].Err; e != nil {
			return e.Code
		}
		return "ok"
	}
	if got := open(plainBucket, "o"); got != "AccessDenied" {
		t.Errorf("a forbidden object: %s", got)
	}
	if _, fds, err := d.ask(&wire.Create{Bucket: plainBucket, Key: "n", Size: 1, Device: wire.Device{Index: -1},
		Want: wire.WantBuffered}); err == nil || !strings.Contains(err.Error(), "AccessDenied") {
		t.Errorf("a forbidden create: %v, %d descriptors", err, len(fds))
	}
	if out, code := run(t, "gpudirect", "status", "--data", s.data); code != 0 || !strings.Contains(out, "AccessDenied") {
		t.Errorf("gpudirect status, exit %d:\n%s", code, out)
	}
	// Who looks for it finds in the log what was handed out, committed and refused.
	root, err := dialDoor(s, user, password)
	if err != nil {
		t.Fatal(err)
	}
	handle, fds := createRaw(t, root, "logged", []byte("content"))
	closeAll(fds)
	if _, _, err := root.ask(sealOf(handle, []byte("content"))); err != nil {
		t.Fatal(err)
	}
	if _, fds, err = root.ask(&wire.Open{Want: wire.WantBuffered, Device: wire.Device{Index: -1},
		Items: []wire.OpenItem{{Bucket: plainBucket, Key: "logged", N: -1}}}); err != nil {
		t.Fatal(err)
	}
	closeAll(fds)
	root.close() // who holds something is waited for
	s.stop(t)
	for _, want := range []string{"draft begun", "committed", "handed out", "\"refused\"", "client logged in",
		"a login was refused"} {
		if !strings.Contains(s.log.String(), want) {
			t.Errorf("the log does not say %q", want)
		}
	}
}
