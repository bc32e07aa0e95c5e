// SPDX-License-Identifier: Apache-2.0

package abi

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// work is the operation of a job handle, such as a load, a save, or a read or write of a file.
type work interface {
	Done() <-chan struct{}
	Wait() error
	Progress() (done, total int64)
}

// job is the handle of an operation. Its report is rendered once, because callers ask for its length first.
type job struct {
	work
	report func() any // called when the work has ended
	cancel context.CancelCauseFunc
	once   sync.Once
	text   []byte
	err    error
}

// expiry returns a channel that receives after timeout, or never if timeout is negative.
func expiry(timeout time.Duration) <-chan time.Time {
	if timeout < 0 {
		return nil
	}
	return time.After(timeout)
}

// Wait is nebulaio_wait. If Wait returns running as true, the timeout passed before the job had ended.
func (t *Table) Wait(h uint64, timeout time.Duration) (running bool, done, total int64, err error) {
	j, err := get[*job](t, h, "job")
	if err != nil {
		return false, 0, 0, err
	}
	expired := expiry(timeout)
	select {
	case <-j.Done():
	case <-expired:
		select {
		case <-j.Done(): // the job and the timer ended together: the job counts
		default:
			done, total = j.Progress()
			return true, done, total, nil
		}
	}
	done, total = j.Progress()
	return false, done, total, j.work.Wait()
}

// Cancel is nebulaio_cancel.
func (t *Table) Cancel(h uint64) error {
	j, err := get[*job](t, h, "job")
	if err != nil {
		return err
	}
	j.cancel(context.Canceled)
	return nil
}

// Report is nebulaio_report.
func (t *Table) Report(h uint64) ([]byte, error) {
	j, err := get[*job](t, h, "job")
	if err != nil {
		return nil, err
	}
	select {
	case <-j.Done():
	default:
		return nil, errs.New(errs.Invalid, "report", fmt.Sprint(h), "the job is still running").WithFix("wait for it first")
	}
	j.once.Do(func() { j.text, j.err = j.render() })
	return j.text, j.err
}

// render returns the report of a job as text.
func (j *job) render() ([]byte, error) {
	r := j.report()
	if b, ok := r.(part); ok {
		return b, nil
	}
	return json.Marshal(r)
}
