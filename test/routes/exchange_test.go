// SPDX-License-Identifier: Apache-2.0

package routes_test

import (
	"math"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/nebulaio/nebulaio/internal/transfer/exchange"
	"github.com/nebulaio/nebulaio/internal/vfs"
	"github.com/nebulaio/nebulaio/report"
	"github.com/nebulaio/nebulaio/test/effort"
)

// friend announces a load of the whole file that shares memory with the others, and that nobody waits for. Other loads
// meet it at every byte, whenever they run. The memory holds two fifths of the file.
func (d *disk) friend(t *testing.T) {
	t.Helper()
	f, i := d.slow(t)
	x, err := exchange.Join(i, vfs.VersionOf(f), manySize*2/5)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(x.Leave)
	x.Done(math.MaxInt64)
}

// shareMemory starts four loads at once that share memory. The disk delivers the file once.
func (d *disk) shareMemory(t *testing.T) {
	d.chill(t)
	d.friend(t)
	var all []*loader
	for k := range 4 {
		all = append(all, newLoader(t, d.whole(k%2 == 1)))
	}
	before := fetched(t, d.disk)
	for _, l := range all {
		l.start()
	}
	var memory, others, forAll, direct int64
	for _, l := range all {
		r := l.finish(d.data)
		s := r.Files[0].Shared
		if s == nil || len(s.Processes) == 0 || s.Apart != "" {
			t.Fatalf("sharing %+v, want loads seen and joined", s)
		}
		if n := bytesBy(r, report.RouteTakenShared); n != s.MemoryBytes {
			t.Errorf("%d bytes by route and %d by sharing came from shared memory", n, s.MemoryBytes)
		}
		if n := bytesBy(r, report.FileRoutes()...); n != manySize {
			t.Errorf("the routes have %d bytes, want %d", n, manySize)
		}
		if !slices.ContainsFunc(r.Notes, func(n string) bool { return strings.Contains(n, "from memory shared with them") }) {
			t.Errorf("notes %q say nothing of shared memory", r.Notes)
		}
		memory, others, forAll = memory+s.MemoryBytes, others+s.MemoryBytes+s.CacheBytes, forAll+s.DiskBytes
		direct += bytesBy(r, report.RouteTakenDirect)
	}
	d.once(t, before)
	if forAll < manySize*9/10 || forAll > manySize*21/20 || others < 2*manySize {
		t.Errorf("%d bytes were read for all, and %d came from others, of 4 x %d", forAll, others, manySize)
	}
	// On a busy machine some loads fall behind, and the others use the page cache for them.
	if memory < manySize/10 || direct < manySize/10 {
		t.Errorf("%d bytes came from shared memory, %d were read into it, of 4 x %d", memory, direct, manySize)
	}
}

// midway starts three loads that share memory, and returns when the first of them has begun.
func (d *disk) midway(t *testing.T) (victim *loader, others []*loader) {
	t.Helper()
	d.chill(t)
	d.friend(t)
	victim = newLoader(t, d.whole(true))
	gpu := d.whole(false)
	gpu.GPU = true
	others = []*loader{newLoader(t, d.whole(false)), newLoader(t, gpu)}
	victim.start()
	for _, l := range others {
		l.start()
	}
	victim.line("begun")
	return victim, others
}

// killMember kills one of three loads while it runs. The others get all bytes.
func (d *disk) killMember(t *testing.T) {
	for range (effort.Rounds{Test: 1, CI: 3, Long: 10}).Of(t) {
		victim, others := d.midway(t)
		victim.kill()
		for _, l := range others {
			l.finish(d.data)
		}
	}
}

// stopMember stops one of three loads while it runs, and continues it when the others have ended. All get all bytes.
func (d *disk) stopMember(t *testing.T) {
	victim, others := d.midway(t)
	if err := victim.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for _, l := range others {
		l.finish(d.data)
	}
	if err := victim.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	victim.finish(d.data)
}
