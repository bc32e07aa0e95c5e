// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/signer"
	"golang.org/x/sys/unix"

	"github.com/nebulaio/nebulaio/test/effort"
)

// watch samples the resident memory of a server until stop is called, and keeps the highest value of each phase.
type watch struct {
	t     *testing.T
	s     *server
	mu    sync.Mutex
	phase string
	began time.Time
	peak  int64
	quit  chan struct{}
	once  sync.Once
	done  chan struct{}
}

func watchMemory(t *testing.T, s *server) *watch {
	w := &watch{t: t, s: s, began: time.Now(), quit: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-w.quit:
				return
			case <-tick.C:
				now := s.resident(t)
				w.mu.Lock()
				w.peak = max(w.peak, now)
				w.mu.Unlock()
			}
		}
	}()
	return w
}

// next ends a phase, logs it, and returns its peak.
func (w *watch) next(phase string) int64 {
	now := w.s.resident(w.t)
	w.mu.Lock()
	defer w.mu.Unlock()
	peak := max(w.peak, now)
	w.t.Logf("%-22s %6.1f s: at most %d MiB, now %d MiB", w.phase, time.Since(w.began).Seconds(), peak>>20, now>>20)
	w.phase, w.began, w.peak = phase, time.Now(), 0
	return peak
}

// stop ends the samples. A server that is stopped before has no memory to sample.
func (w *watch) stop() {
	w.once.Do(func() { close(w.quit) })
	<-w.done
}

// requests sends n signed requests over some connections and reads the answers.
func requests(ctx context.Context, s *server, n, streams int, make func(i int) (*http.Request, error)) error {
	transport := &http.Transport{MaxIdleConnsPerHost: streams, DisableCompression: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var all sync.WaitGroup
	for range streams {
		all.Go(func() {
			for failed.Load() == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				err := func() error {
					req, err := make(i)
					if err != nil {
						return err
					}
					req.Header.Set("X-Amz-Content-Sha256", "UNSIGNED-PAYLOAD")
					resp, err := client.Do(signer.SignV4(*req, user, password, "", "us-east-1").WithContext(ctx))
					if err != nil {
						return err
					}
					defer resp.Body.Close()
					text, err := io.ReadAll(resp.Body)
					if err == nil && resp.StatusCode >= 300 {
						err = fmt.Errorf("%s %s: %s: %s", req.Method, req.URL, resp.Status, text)
					}
					return err
				}()
				if err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	all.Wait()
	if e := failed.Load(); e != nil {
		return *e
	}
	return nil
}

// memoryKey returns the key of object i: long, and under a thousand prefixes.
func memoryKey(i int) string { return fmt.Sprintf("data/set-%04d/shard/sample-%09d.bin", i%1000, i) }

// TestMemory checks that many small objects, a listing of all of them and 2,000 idle connections stay within
// memory_limit. The server must give the memory back within a minute.
//
// NEBULAIO_MEMORY_OBJECTS sets the number of objects, and the server then uses its default limit.
// NEBULAIO_MEMORY_ARGS adds arguments for the server. NEBULAIO_MEMORY_PROFILE=FILE writes a heap profile after the
// listing.
func TestMemory(t *testing.T) {
	effort.Slow(t)
	objects, limit, args := 20_000, int64(128<<20), []string{"--memory-limit", "128MiB"}
	if n := effort.Number(t, "NEBULAIO_MEMORY_OBJECTS", 0); n > 0 {
		objects, limit, args = n, 256<<20, nil
	}
	args = append(args, strings.Fields(os.Getenv("NEBULAIO_MEMORY_ARGS"))...)
	s := start(t, t.TempDir(), append(args, "--pprof")...)
	c := bucketOn(t, s, "memory")
	w := watchMemory(t, s)
	defer w.stop()
	within := func(phase string, peak int64) {
		t.Helper()
		if peak > limit {
			t.Errorf("%s took %d MiB, the limit is %d MiB", phase, peak>>20, limit>>20)
		}
	}
	w.next("put")
	body := bytes.Repeat([]byte("memory! "), 128)
	began := time.Now()
	if err := requests(t.Context(), s, objects, 48, func(i int) (*http.Request, error) {
		body := append([]byte(strconv.Itoa(i)), body...)[:len(body)]
		return http.NewRequest(http.MethodPut, "http://"+s.address+"/memory/"+memoryKey(i), bytes.NewReader(body))
	}); err != nil {
		t.Fatal(err)
	}
	t.Logf("%.0f PUT/s", float64(objects)/time.Since(began).Seconds())
	within("putting the objects", w.next("list"))

	began = time.Now()
	seen, token := 0, ""
	for {
		r, err := c.ListObjectsV2("memory", "", "", token, "", 1000)
		if err != nil {
			t.Fatal(err)
		}
		seen += len(r.Contents)
		if token = r.NextContinuationToken; !r.IsTruncated {
			break
		}
	}
	if seen != objects {
		t.Errorf("listed %d objects, expected %d", seen, objects)
	}
	t.Logf("%.0f keys listed a second", float64(seen)/time.Since(began).Seconds())
	within("listing the objects", w.next("idle connections"))
	if path := os.Getenv("NEBULAIO_MEMORY_PROFILE"); path != "" {
		saveHeap(t, s, path)
	}

	conns := idleConnections(t, s, 2000)
	within("2000 idle connections", w.next("give back"))
	for _, c := range conns {
		_ = c.Close()
	}
	// What is left a minute later: the program and caches that are still of use, no more than three quarters of the limit.
	deadline := time.After(time.Minute)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for now := s.resident(t); now > limit/4*3; now = s.resident(t) {
		select {
		case <-deadline:
			t.Errorf("a minute after the load %d MiB are resident, expected at most %d MiB", now>>20, limit/4*3>>20)
			w.next("end")
			return
		case <-tick.C:
		}
	}
	w.next("end")
}

// idleConnections opens connections that have each sent one request and then wait.
func idleConnections(t *testing.T, s *server, n int) []net.Conn {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur < uint64(n)+200 {
		limit.Cur = min(limit.Max, uint64(n)+200)
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
	}
	var all []net.Conn
	for range n {
		c, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := fmt.Fprintf(c, "GET /memory/none HTTP/1.1\r\nHost: %s\r\n\r\n", s.address); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		all = append(all, c)
	}
	return all
}

func saveHeap(t *testing.T, s *server, path string) {
	t.Helper()
	resp, err := http.Get(s.console + "/debug/pprof/heap")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := io.Copy(f, resp.Body); err != nil {
		t.Fatal(err)
	}
}

// TestSmallMemoryLimit tests the lowest accepted limit with long keys, large uploads and slow readers. TestMemory
// tests many objects and idle connections.
func TestSmallMemoryLimit(t *testing.T) {
	s := start(t, t.TempDir(), "--memory-limit", "128MiB")
	c := bucketOn(t, s, "small")
	w := watchMemory(t, s)
	defer w.stop()
	within := func(phase string, peak int64) {
		t.Helper()
		if peak > 128<<20 {
			t.Errorf("%s took %d MiB, the limit is 128 MiB", phase, peak>>20)
		}
	}
	w.next("long keys")
	long := strings.Repeat("k", 200)
	name := func(i int) string { return fmt.Sprintf("%s/%s/%s/%s/%06d", long, long, long, long, i) }
	if err := requests(t.Context(), s, 3000, 16, func(i int) (*http.Request, error) {
		return http.NewRequest(http.MethodPut, "http://"+s.address+"/small/"+name(i), strings.NewReader("x"))
	}); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		r, err := c.ListObjectsV2("small", long[:100], "", "", "", 1000)
		if err != nil || len(r.Contents) != 1000 {
			t.Fatalf("%d keys listed, %v", len(r.Contents), err)
		}
		if r, err := c.ListObjectsV2("small", long+"/", "", "", "/", 1000); err != nil || len(r.CommonPrefixes) != 1 {
			t.Fatalf("%d common prefixes, %v", len(r.CommonPrefixes), err)
		}
	}
	within("long keys", w.next("upload"))
	big := bytes.Repeat([]byte("0123456789abcdef"), 9<<20) // 144 MiB, more than the limit
	if _, err := c.Client.PutObject(t.Context(), "small", "big", bytes.NewReader(big), int64(len(big)),
		minio.PutObjectOptions{PartSize: 16 << 20, NumThreads: 4}); err != nil {
		t.Fatal(err)
	}
	within("a large upload", w.next("slow readers"))
	var slow []net.Conn
	for range 100 {
		conn, err := net.Dial("tcp", s.address)
		if err != nil {
			t.Fatal(err)
		}
		slow = append(slow, conn)
		head, _ := presign(t, c, http.MethodGet, "small", "big", -1)
		if _, err := io.WriteString(conn, head); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
	}
	mustServe(t, c, "small", "big", big)
	within("slow readers", w.next("end"))
	for _, conn := range slow {
		_ = conn.Close()
	}
	w.stop()
	s.stop(t)
}
