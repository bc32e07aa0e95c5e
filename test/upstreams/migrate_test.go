// SPDX-License-Identifier: Apache-2.0

package upstreams_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/nebulaio/nebulaio/test/upstreams"
	"github.com/nebulaio/nebulaio/test/upstreams/liar"
)

// migrated is the report of `nebulaio migrate --json`, as far as the tests read it.
type migrated struct {
	Buckets []struct {
		Name     string
		Settings []string
		Notes    []struct{ Name, Why string }
		Failures []struct{ Key, Error string }
	}
	Total struct{ Keys, Versions, Markers, Bytes, Present, Parted, Twice, Kept, Resumed, Failed int64 }
}

// TestMigrationFromMinIO migrates a MinIO with versions, locks and settings, while clients go on writing to it. The
// command is killed at random requests and started again. In the end both servers are equal, and nothing but reads has
// reached MinIO.
func TestMigrationFromMinIO(t *testing.T) {
	needsUpstreams(t)
	objects, kills := sizeOf(t, "NEBULAIO_UPSTREAMS_MIGRATED", 300), sizeOf(t, "NEBULAIO_UPSTREAMS_MIGRATION_KILLS", 4)
	u, err := upstreams.Start(t.Context(), upstreams.MinIO, tempDir(t)) // its own: all its buckets are migrated
	if err != nil {
		skipOrFail(t, err)
	}
	defer u.Stop()
	source := &population{t: t, c: direct(t, u), random: rand.New(rand.NewPCG(22, 4))}
	source.make(objects)
	k := &migrationKiller{}
	p := proxied(t, u, liar.Options{Passed: k.passed, Plan: k.plan})
	dir := tempDir(t)
	n := startNode(t, dir, "")
	m := &migration{t: t, args: []string{"migrate", p.Endpoint, "--source-access-key", upstreams.Access, "--endpoint",
		"http://" + n.host, "--access-key", user, "--json", "--journal", filepath.Join(dir, "journal.json")}}

	dry, code := m.run(append(m.args, "--dry-run")...)
	if code != 0 || dry.Total.Versions == 0 {
		t.Fatalf("the dry run ended with %d and %+v", code, dry.Total)
	}
	if all, err := n.client(t).ListBuckets(t.Context()); err != nil || len(all) != 0 {
		t.Fatalf("after the dry run there are %d buckets (%v)", len(all), err)
	}
	// Each kill comes after a part of the requests that are left.
	copied := dry.Total.Versions + dry.Total.Markers
	for i := range kills {
		m.killAfter(k, 1+source.random.Int64N(max(2, 3*copied/int64(kills))))
		source.change(5, fmt.Sprintf("while-%d", i)) // MinIO goes on serving
	}
	before := source.snapshot(source.c)
	end, code := m.run(m.args...)
	if code != 0 || end.Total.Failed != 0 {
		t.Fatalf("the last run ended with %d and %+v", code, end)
	}
	if n := k.killed.Load(); n != int64(kills) {
		t.Errorf("%d runs were killed, expected %d", n, kills)
	}
	// The last run went on where a killed one ended; another one finds what was written before that place meanwhile.
	again, code := m.run(m.args...)
	if code != 0 {
		t.Fatalf("the run after the last ended with %d and %+v", code, again)
	}
	if idle, code := m.run(m.args...); code != 0 || idle.Total.Versions+idle.Total.Markers != 0 || idle.Total.Kept != 0 {
		t.Errorf("a run with nothing to do ended with %d and %+v", code, idle.Total)
	}
	source.equal(before, source.snapshot(source.c), "MinIO before and after")
	source.compare(n.client(t), before)
	for method, count := range p.Counts().Methods {
		if method != http.MethodGet && method != http.MethodHead {
			t.Errorf("%d requests with %s reached MinIO, expected reads alone", count, method)
		}
	}
	if t.Failed() {
		return
	}
	keys := map[string]bool{}
	for _, v := range before {
		keys[v.bucket+"/"+v.key] = true
	}
	t.Logf("%d objects with %d versions and delete markers, %d kills: MinIO and NebulaIO are equal by listing, content, "+
		"metadata, tags and locks; the last runs copied %d and %d", len(keys), len(before), kills,
		end.Total.Versions+end.Total.Markers, again.Total.Versions+again.Total.Markers)
}

// migration runs the command under test.
type migration struct {
	t    *testing.T
	args []string
}

func migrationEnv() []string {
	return append(nodeEnv(), "NEBULAIO_SECRET_KEY="+password, "NEBULAIO_SOURCE_SECRET_KEY="+upstreams.Secret)
}

// run runs the command to its end.
func (m *migration) run(args ...string) (migrated, int) {
	m.t.Helper()
	path, err := binary()
	if err != nil {
		m.t.Fatal(err)
	}
	cmd := exec.CommandContext(m.t.Context(), path, args...)
	cmd.Env = migrationEnv()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if _, ok := err.(*exec.ExitError); err != nil && !ok {
		m.t.Fatal(err)
	}
	var r migrated
	if err := json.Unmarshal(out, &r); err != nil || strings.Contains(string(out), `"error"`) && r.Buckets == nil {
		m.t.Fatalf("the command said %q and %q: %v", out, stderr.String(), err)
	}
	if stderr.Len() > 0 {
		m.t.Logf("the command said: %s", stderr.String())
	}
	return r, cmd.ProcessState.ExitCode()
}

// killAfter starts the command and kills it after so many requests to the source.
func (m *migration) killAfter(k *migrationKiller, requests int64) {
	m.t.Helper()
	path, err := binary()
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(m.t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, path, m.args...)
	cmd.Env = migrationEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var once sync.Once
	k.arm(requests, func() {
		once.Do(func() {
			if cmd.Process.Kill() == nil {
				k.killed.Add(1)
			}
		})
	})
	defer k.arm(0, nil)
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed, or has ended before: the count tells
}

// migrationKiller kills the command at a request to the source or at a piece of a body.
type migrationKiller struct {
	mu     sync.Mutex
	left   int64
	kill   func()
	killed atomic.Int64
}

func (k *migrationKiller) arm(left int64, kill func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.left, k.kill = left, kill
}

func (k *migrationKiller) event() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.kill == nil {
		return
	}
	if k.left--; k.left <= 0 {
		k.kill()
		k.kill = nil
	}
}

func (k *migrationKiller) passed(*http.Request, int64) { k.event() }

func (k *migrationKiller) plan(*http.Request) liar.Fault {
	k.event()
	return liar.Honest
}
