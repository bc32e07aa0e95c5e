// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio/internal/abi"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Every job that was added is told of once, by several threads that ask too.
func TestQueueTellsEachJobOnce(t *testing.T) {
	var table abi.Table
	c := &caller{T: t}
	system, err := table.OpenSystem(`{"devices":"off"}`)
	c.must(err)
	path := filepath.Join(t.TempDir(), "f")
	c.must(os.WriteFile(path, make([]byte, 1000), 0o600))
	file, err := table.OpenFile(system, path, "r", `{"device":"host"}`)
	c.must(err)
	q := table.OpenQueue()
	if _, running, err := table.NextJob(q, 0); !running || err != nil {
		t.Errorf("an empty queue: running %v, %v", running, err)
	}
	const jobs, threads = 200, 4
	told := make(chan uint64, jobs)
	for range threads {
		go func() {
			for {
				h, running, err := table.NextJob(q, -1)
				if err != nil || running {
					return // the queue is released
				}
				told <- h
			}
		}()
	}
	open := map[uint64]bool{}
	for range jobs {
		job, err := table.StartMove(file, false, 0, 0, 0, 0, "") // nothing to move: ends at once
		c.must(err)
		open[job] = true
		c.must(table.QueueJob(q, job))
	}
	for range jobs {
		h := <-told
		if !open[h] {
			t.Fatalf("job %d was told of twice, or is none", h)
		}
		delete(open, h)
		c.must(table.Release(h))
	}
	c.must(table.Release(q))
	if _, _, err := table.NextJob(q, -1); !errs.Is(err, errs.Closed) {
		t.Error(err)
	}
	c.must(table.Release(file))
	c.must(table.Release(system))
}

func TestQueueRefuses(t *testing.T) {
	var table abi.Table
	q := table.OpenQueue()
	if err := table.QueueJob(q, q); !errs.Is(err, errs.Closed) {
		t.Error("a queue is no job:", err)
	}
	if err := table.QueueJob(99, q); !errs.Is(err, errs.Closed) {
		t.Error(err)
	}
	ended := make(chan error)
	go func() {
		_, _, err := table.NextJob(q, time.Hour)
		ended <- err
	}()
	if err := table.Release(q); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errs.Is(err, errs.Closed) {
		t.Error("a release wakes who waits:", err)
	}
}
