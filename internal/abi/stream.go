// SPDX-License-Identifier: Apache-2.0

package abi

import (
	"context"
	"fmt"
	"time"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// SelectModel is nebulaio_model_select.
func (t *Table) SelectModel(model uint64, options string) (uint64, error) {
	s, err := get[*source](t, model, "model")
	if err != nil {
		return 0, err
	}
	var o modelOptions
	if err := decode(options, &o); err != nil {
		return 0, err
	}
	so, err := o.selection()
	if err != nil {
		return 0, err
	}
	sel, err := s.Select(so)
	if err != nil {
		return 0, err
	}
	return t.put(&source{Source: sel}), nil
}

// LoadReady is nebulaio_load_ready. LoadReady returns true for running if the timeout passed before the number of
// ready tensors exceeded the parameter named known.
func (t *Table) LoadReady(h, known uint64, timeout time.Duration) (ready uint64, running bool, err error) {
	j, err := get[*job](t, h, "load")
	if err != nil {
		return 0, false, err
	}
	l, ok := j.work.(*nebulaio.LoadJob)
	if !ok {
		return 0, false, errs.New(errs.Invalid, "wait for what is ready", fmt.Sprint(h), "is a job that is not a load")
	}
	ctx := context.Background()
	if timeout >= 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	// No load has more tensors than an int can count.
	k := int(min(known, 1<<62))
	n, err := l.Ready(ctx, k)
	if err != nil {
		select {
		case <-l.Done(): // the load has ended: its result counts, even if the time ran out too
			n, err = l.Ready(context.Background(), k)
		default:
			return uint64(n), true, nil
		}
	}
	return uint64(n), false, err
}

// StartChecksums is nebulaio_checksum_start.
func (t *Table) StartChecksums(model uint64) (uint64, error) {
	s, err := get[*source](t, model, "model")
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	c := s.StartChecksums(ctx)
	return t.put(&job{work: c, report: func() any { return c.Report() }, cancel: cancel}), nil
}
