// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/nebulaio/nebulaio/internal/copying/journal"
	"github.com/nebulaio/nebulaio/test/effort"
)

// wire is a TCP proxy before a server. It counts the bytes of replies, and calls reached once when they are enough.
type wire struct {
	address string

	mu      sync.Mutex
	replied int64
	sent    int64
	at      int64 // of replied
	reached func()
	open    int // connections
	ended   *sync.Cond
}

func startWire(t *testing.T, server string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{address: "http://" + l.Addr().String()}
	w.ended = sync.NewCond(&w.mu)
	var group sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		group.Wait()
	})
	group.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			w.count(1)
			group.Go(func() {
				defer w.count(-1)
				w.serve(client, strings.TrimPrefix(server, "http://"))
			})
		}
	})
	return w
}

func (w *wire) serve(client net.Conn, server string) {
	defer client.Close()
	up, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer up.Close()
	var group sync.WaitGroup
	group.Go(func() {
		_, _ = io.Copy(counter{up, &w.sent, w, false}, client)
		up.Close()
	})
	_, _ = io.Copy(counter{client, &w.replied, w, true}, up)
	client.Close()
	group.Wait()
}

// counter counts what is written.
type counter struct {
	to    io.Writer
	n     *int64
	w     *wire
	fires bool
}

func (c counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.w.mu.Lock()
	*c.n += int64(n)
	var reached func()
	if c.fires && c.w.reached != nil && c.w.replied >= c.w.at {
		reached, c.w.reached = c.w.reached, nil
	}
	c.w.mu.Unlock()
	if reached != nil {
		reached()
	}
	return n, err
}

// after calls f when n more bytes of replies have passed; a nil f calls nothing.
func (w *wire) after(n int64, f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at, w.reached = w.replied+n, f
}

func (w *wire) replies() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.replied
}

// settled waits until all connections of killed commands have passed what they had sent. No command may be running.
func (w *wire) settled() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.open > 0 {
		w.ended.Wait()
	}
}

// count adds to the number of open connections.
func (w *wire) count(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open += n
	w.ended.Broadcast()
}

func (w *wire) requests() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent
}

// rig is a server with a bucket, and a proxy before it.
type rig struct {
	*wire
	dir  string
	m    *minio.Client
	vars map[string]string
}

func copyRig(t *testing.T) *rig {
	t.Helper()
	p := startServer(t, filepath.Join(t.TempDir(), "store"),
		[]string{"NEBULAIO_ROOT_USER=cli-user", "NEBULAIO_ROOT_PASSWORD=cli-password-1"})
	r := &rig{wire: startWire(t, p.Endpoint), dir: t.TempDir(), m: p.client("cli-user", "cli-password-1")}
	if err := r.m.MakeBucket(t.Context(), "box", minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
	r.vars = map[string]string{"NEBULAIO_ENDPOINT": r.address, "NEBULAIO_ACCESS_KEY": "cli-user",
		"NEBULAIO_SECRET_KEY": "cli-password-1", "XDG_CACHE_HOME": filepath.Join(r.dir, "cache"), "HOME": r.dir,
		"NEBULAIO_DOOR": "off"}
	return r
}

func (r *rig) path(name string) string { return filepath.Join(r.dir, name) }

func (r *rig) write(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := r.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func (r *rig) run(t *testing.T, args ...string) result {
	t.Helper()
	return run(t, args, env(r.vars))
}

// start starts a command in a process of its own.
func (r *rig) start(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(program, args...)
	for k, v := range r.vars {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

func noise(size int) []byte {
	b := make([]byte, size)
	src := rand.NewChaCha8([32]byte{byte(size), byte(size >> 8)})
	_, _ = src.Read(b) // which never fails
	return b
}

func sameBytes(t *testing.T, path string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%s has %d bytes that differ from the %d of the source", path, len(got), len(want))
	}
}

// mostAgain is what a kill may make a download read again.
const mostAgain = 16 << 20

// TestKilledDownloadGoesOn kills cp at random points. The file has its name only when it is whole, and each kill costs
// at most 16 MiB.
func TestKilledDownloadGoesOn(t *testing.T) {
	effort.Slow(t)
	r := copyRig(t)
	content := noise(200<<20 + 12345)
	put(t, r.m, "box", "big", content)
	dst := r.path("out/big")
	if err := os.Mkdir(r.path("out"), 0o777); err != nil {
		t.Fatal(err)
	}
	recorded := func() int64 { // bytes that a resume need not read again
		f, err := os.Open(r.path("out/.big.nebulaio-journal"))
		if err != nil {
			return 0
		}
		defer f.Close()
		_, _, sums, _, err := journal.Read(f)
		if err != nil {
			return 0
		}
		return int64(len(sums)) * journal.Block
	}
	rounds, worst := effort.Rounds{Test: 2, CI: 6}.Of(t), int64(0)
	for kills := 0; kills < rounds; {
		os.RemoveAll(r.path("out"))
		if err := os.Mkdir(r.path("out"), 0o777); err != nil {
			t.Fatal(err)
		}
		killed := 0
		for ; kills < rounds && killed < 8; kills++ {
			before, had := r.replies(), recorded()
			cmd := r.start(t, "cp", "s3://box/big", dst)
			dead := make(chan struct{})
			r.after(rand.Int64N(40<<20), func() {
				_ = cmd.Process.Kill()
				close(dead)
			})
			err := cmd.Wait()
			r.after(0, nil)
			if err == nil {
				break // it was done before
			}
			<-dead
			killed++
			if _, err := os.Stat(dst); err == nil {
				t.Fatal("the file has its name before it is whole")
			}
			again := r.replies() - before - (recorded() - had)
			if worst = max(worst, again); again > mostAgain {
				t.Errorf("kill %d: %d bytes have to be read again, expected at most %d", kills, again, mostAgain)
			}
		}
		r.run(t, "cp", "s3://box/big", dst).want(t, 0, "verified  crc64nvme")
		sameBytes(t, dst, content)
		if left, _ := filepath.Glob(r.path("out/.*")); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
	}
	t.Logf("%d kills, at most %d bytes read again for each", rounds, worst)
}

// TestKilledSyncGoesOn kills sync of many small objects.
func TestKilledSyncGoesOn(t *testing.T) {
	r := copyRig(t)
	for i := range 60 {
		put(t, r.m, "box", "many/"+strconv.Itoa(i%7)+"/"+strconv.Itoa(i), noise(700_000+i))
	}
	before, killed := r.replies(), 0
	for range (effort.Rounds{Test: 2, CI: 4}).Of(t) {
		cmd := r.start(t, "sync", "s3://box/many", r.path("out"))
		r.after(rand.Int64N(20<<20), func() { _ = cmd.Process.Kill() })
		if cmd.Wait() == nil {
			break
		}
		killed++
	}
	r.after(0, nil)
	r.run(t, "sync", "s3://box/many", r.path("out")).want(t, 0)
	for i := range 60 {
		sameBytes(t, r.path("out/"+strconv.Itoa(i%7)+"/"+strconv.Itoa(i)), noise(700_000+i))
	}
	if again := r.replies() - before - 60*700_000; killed > 0 && again/int64(killed) > mostAgain {
		t.Errorf("%d kills: %d bytes read again", killed, again)
	}
	if left, _ := filepath.Glob(r.path("out/.*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestKilledUploadGoesOn kills cp while it sends parts, after the reply that names the upload.
func TestKilledUploadGoesOn(t *testing.T) {
	r := copyRig(t)
	content := noise(100<<20 + 77)
	src := r.write(t, "big", content)
	killed := 0
	for range (effort.Rounds{Test: 2, CI: 4}).Of(t) {
		cmd := r.start(t, "cp", src, "s3://box/up", "--concurrency", "2")
		r.after(1800+rand.Int64N(1200), func() { _ = cmd.Process.Kill() })
		if cmd.Wait() == nil {
			break
		}
		killed++
	}
	r.after(0, nil)
	r.settled()
	before := r.requests()
	res := r.run(t, "cp", src, "s3://box/up", "--json")
	res.want(t, 0)
	j := decode[copyJSON](t, res)
	if sent := r.requests() - before; killed > 0 && (j.Resumed+j.Moved != j.Bytes || sent > j.Moved+1<<20) {
		t.Errorf("%d bytes were sent: %+v", sent, j)
	}
	t.Logf("%d kills, %d of %d bytes resumed", killed, j.Resumed, j.Bytes)
	wantObject(t, r.m, "box", "up", content)
	if left, _ := filepath.Glob(r.path("cache/nebulaio/uploads/*")); len(left) > 0 {
		t.Errorf("states of uploads are left: %q", left)
	}
	for u := range r.m.ListIncompleteUploads(t.Context(), "box", "", true) {
		t.Errorf("the upload of %s is left", u.Key)
	}
}

// TestReplacedObjectIsNeverMixed replaces the object while it is read.
func TestReplacedObjectIsNeverMixed(t *testing.T) {
	effort.Slow(t)
	r := copyRig(t)
	one, two := noise(48<<20), noise(48<<20 + 1)[:48<<20]
	for range 5 {
		put(t, r.m, "box", "k", one)
		dst := r.path("k")
		os.Remove(dst)
		replaced := make(chan struct{})
		r.after(1<<20+rand.Int64N(30<<20), func() {
			put(t, r.m, "box", "k", two)
			close(replaced)
		})
		res := r.run(t, "cp", "s3://box/k", dst, "--concurrency", "8")
		<-replaced
		if got, err := os.ReadFile(dst); err == nil && !bytes.Equal(got, one) && !bytes.Equal(got, two) {
			t.Fatal("the file is a mixture")
		} else if res.code == 0 && err != nil {
			t.Fatal(err)
		} else if res.code != 0 && !strings.Contains(res.stderr, "changed while it was being read") {
			t.Errorf("stderr: %s", res.stderr)
		}
		r.run(t, "cp", "s3://box/k", dst).want(t, 0)
		sameBytes(t, dst, two)
	}
}
