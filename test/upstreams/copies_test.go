// SPDX-License-Identifier: Apache-2.0

package upstreams_test

import (
	"bytes"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/test/upstreams"
	"github.com/nebulaio/nebulaio/test/upstreams/liar"
)

// TestKilledCopies kills `nebulaio cp` at random bytes of a download and starts it again. The file is byte-equal in the
// end, and each kill costs at most 16 MiB that are read again.
func TestKilledCopies(t *testing.T) {
	u := upstream(t, upstreams.MinIO)
	bucket, size := newBucket(t, u), 96<<20+777
	data := content(90, size)
	upload(t, u, bucket, "big", data)
	var limit, passed atomic.Int64
	var kill atomic.Pointer[func()]
	p := proxied(t, u, liar.Options{Passed: func(r *http.Request, _ int64) {
		if r.Method == http.MethodGet && passed.Add(64<<10) > limit.Load() {
			if f := kill.Swap(nil); f != nil {
				(*f)()
			}
		}
	}})
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(tempDir(t), "file")
	random := rand.New(rand.NewPCG(18, 90))
	kills, rounds, want := 0, 0, sizeOf(t, "NEBULAIO_UPSTREAMS_COPIES", 10)
	var worst int64
	for kills < want {
		rounds++
		_ = os.Remove(target)
		before, here := p.Counts().Bodies, 0
		for done := false; !done; {
			passed.Store(0)
			limit.Store(random.Int64N(int64(size) / 2))
			cmd := exec.Command(path, "cp", "s3://"+bucket+"/big", target)
			cmd.Env = copyEnv(p.Endpoint)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var killed sync.WaitGroup
			killed.Add(1)
			f := func() { _ = cmd.Process.Kill(); killed.Done() }
			if here < 3 {
				kill.Store(&f)
			}
			err := cmd.Wait()
			if kill.Swap(nil) == nil && here < 3 {
				killed.Wait()
				if err != nil {
					here++
					continue
				}
			}
			if err != nil {
				t.Fatalf("cp after %d kills: %v\n%s", here, err, out.String())
			}
			done = true
		}
		got, err := os.ReadFile(target)
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("round %d: %d bytes that differ: %v", rounds, len(got), err)
		}
		again := p.Counts().Bodies - before - int64(size)
		if here > 0 {
			worst = max(worst, again/int64(here))
		}
		if again > int64(here)*(16<<20) {
			t.Errorf("round %d: %d bytes were read again after %d kills, expected at most 16 MiB for each", rounds, again, here)
		}
		kills += here
	}
	t.Logf("%d kills in %d downloads of %d bytes: byte-equal, at most %.1f MiB read again for a kill", kills, rounds, size,
		float64(worst)/(1<<20))
}

// TestCopiesThroughLies downloads through a proxy that lies. Each `nebulaio cp` must end with the right file or an
// error and no file.
func TestCopiesThroughLies(t *testing.T) {
	u := upstream(t, upstreams.MinIO)
	bucket := newBucket(t, u)
	data := content(91, 20<<20+1)
	putSummed(t, u, bucket, "key", data)
	p := proxied(t, u, liar.Options{Delay: time.Millisecond,
		Content: func(string) ([]byte, bool) { return data, true }})
	target := filepath.Join(tempDir(t), "file")
	right, failed := 0, 0
	for round := range sizeOf(t, "NEBULAIO_UPSTREAMS_COPIES", 10) {
		p.SetPlan(liar.Random(uint64(round), 0.15, liar.Without(liar.HangBody, liar.HangHeader)...))
		_ = os.Remove(target)
		out, code := command(t, copyEnv(p.Endpoint), "cp", "s3://"+bucket+"/key", target)
		got, err := os.ReadFile(target)
		switch {
		case code == 0 && (err != nil || !bytes.Equal(got, data)):
			t.Errorf("round %d: cp succeeded with %d bytes that differ (%v):\n%s", round, len(got), err, out)
		case code != 0 && err == nil:
			t.Errorf("round %d: cp failed with %d and left a file of %d bytes:\n%s", round, code, len(got), out)
		case code == 0:
			right++
		default:
			failed++
		}
	}
	t.Logf("%d right, %d errors; the proxy: %v", right, failed, p.Counts().Faults)
}
