// SPDX-License-Identifier: Apache-2.0

package abi_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/abi"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Handles are released while other threads use them: each call succeeds or says that the handle is closed, and none
// touches what is gone.
func TestReleaseDuringUse(t *testing.T) {
	path := tiny(t)
	memory, err := nebulaio.NewSystem(nebulaio.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	for range 10 {
		var table abi.Table
		system, err := table.OpenSystem("")
		if err != nil {
			t.Fatal(err)
		}
		model, err := table.OpenModel(system, path, `{"device":"host"}`)
		if err != nil {
			t.Fatal(err)
		}
		file, err := table.OpenFile(system, path, "r", `{"device":"host"}`)
		if err != nil {
			t.Fatal(err)
		}
		need, err := table.File(model, 0)
		if err != nil {
			t.Fatal(err)
		}
		queue := table.OpenQueue()
		var users sync.WaitGroup
		begun := make(chan struct{}, 4)
		for range 4 {
			mem, err := memory.Alloc(context.Background(), "host", need.DestSize)
			if err != nil {
				t.Fatal(err)
			}
			users.Go(func() {
				defer mem.Free()
				expect := func(err error) bool {
					if err != nil && !errs.Is(err, errs.Closed) && !errs.Is(err, errs.Cancelled) {
						t.Error(err)
					}
					return err == nil
				}
				var once sync.Once
				for good := true; good; once.Do(func() { begun <- struct{}{} }) {
					_, err := table.Describe(model)
					good = expect(err)
					_, err = table.FileSize(file)
					good = expect(err) && good
					if move, err := table.StartMove(file, false, mem.Ptr(), 100, 0, 0, ""); expect(err) {
						_, _, _, err = table.Wait(move, -1)
						expect(err)
						expect(table.Release(move))
					}
					if load, err := table.StartLoad(model, []nebulaio.Destination{{Ptr: mem.Ptr(), Size: mem.Size()}}, 0,
						""); expect(err) {
						expect(table.QueueJob(queue, load))
						_, _, err = table.NextJob(queue, 0)
						expect(err)
						_, _, _, err = table.Wait(load, time.Millisecond)
						expect(err)
						expect(table.Release(load))
					}
				}
			})
		}
		for range 4 {
			<-begun
		}
		for _, h := range []uint64{queue, file, model} {
			// A model that is being loaded is not released: it says so, and the handle stays good.
			for err := table.Release(h); err != nil; err = table.Release(h) {
				if !errs.Is(err, errs.Invalid) {
					t.Fatal(err)
				}
			}
			if err := table.Release(h); !errs.Is(err, errs.Closed) {
				t.Errorf("a second release: %v", err)
			}
		}
		users.Wait()
		if err := table.Release(system); err != nil {
			t.Error(err)
		}
	}
}

// A release that is refused leaves the handle good all the time, also for threads that use it meanwhile.
func TestARefusedReleaseLeavesTheHandleGood(t *testing.T) {
	var table abi.Table
	system, err := table.OpenSystem("")
	if err != nil {
		t.Fatal(err)
	}
	model, err := table.OpenModel(system, tiny(t), `{"device":"host"}`)
	if err != nil {
		t.Fatal(err)
	}
	selection, err := table.SelectModel(model, "")
	if err != nil {
		t.Fatal(err)
	}
	var users sync.WaitGroup
	users.Go(func() {
		for range 20000 {
			if err := table.Release(model); !errs.Is(err, errs.Invalid) {
				t.Error(err)
				return
			}
		}
	})
	users.Go(func() {
		for range 20000 {
			if _, _, err := table.Count(model); err != nil {
				t.Error(err)
				return
			}
		}
	})
	users.Wait()
	for _, h := range []uint64{selection, model, system} {
		if err := table.Release(h); err != nil {
			t.Error(err)
		}
	}
}
