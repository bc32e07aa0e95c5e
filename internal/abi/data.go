// SPDX-License-Identifier: Apache-2.0

package abi

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/errs"
)

type dataOptions struct {
	Format    string        `json:"format"`
	Block     int           `json:"block"`
	MaxSample int64         `json:"max_sample"`
	Verify    bool          `json:"verify"`
	SkipBad   bool          `json:"skip_bad"`
	Client    clientOptions `json:"client"`
}

// opening is the work of a data handle: the data, once its indexes have been read.
type opening struct {
	asking
	data *nebulaio.Data
}

// Feeds has the functions of training data, which share the handles of a Table.
type Feeds struct{ *Table }

// StartData is nebulaio_data_open_start. The handle is both the job and the data.
func (t Feeds) StartData(system uint64, sources []string, options string) (uint64, error) {
	s, err := get[*nebulaio.System](t.Table, system, "system")
	if err != nil {
		return 0, err
	}
	var o dataOptions
	if err := decode(options, &o); err != nil {
		return 0, err
	}
	client, err := o.Client.client()
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	w := &opening{asking: asking{done: make(chan struct{})}}
	go func() {
		defer close(w.done)
		w.data, w.err = s.OpenData(ctx, sources, nebulaio.DataOptions{Format: o.Format, Block: o.Block,
			MaxSample: o.MaxSample, Verify: o.Verify, SkipBad: o.SkipBad, Client: client})
	}()
	describe := func() any {
		if w.data == nil {
			return nil
		}
		return w.data.Info()
	}
	return t.put(&job{work: w, report: describe, cancel: cancel}), nil
}

// data returns the data of a handle that nebulaio_wait has waited for.
func (t Feeds) data(h uint64) (*nebulaio.Data, error) {
	j, err := get[*job](t.Table, h, "data set")
	if err != nil {
		return nil, err
	}
	w, ok := j.work.(*opening)
	if !ok {
		return nil, errs.New(errs.Closed, "use handle", fmt.Sprint(h), "is not an open data set")
	}
	select {
	case <-w.done:
	default:
		return nil, errs.New(errs.Invalid, "use data set", fmt.Sprint(h), "it is still being opened").
			WithFix("call nebulaio_wait first")
	}
	return w.data, w.err
}

// closeData cancels an opening and closes its data. It fails with kind Invalid while loaders are open.
func (w *opening) closeData(cancel context.CancelCauseFunc) error {
	cancel(context.Canceled)
	<-w.done
	if w.data == nil {
		return nil
	}
	return w.data.Close()
}

// Sample is nebulaio_data_sample.
func (t Feeds) Sample(data, number uint64) ([]byte, error) {
	d, err := t.data(data)
	if err != nil {
		return nil, err
	}
	s, err := d.Sample(int64(min(number, 1<<62)))
	if err != nil {
		return nil, err
	}
	return json.Marshal(s)
}

// Keys is nebulaio_data_keys.
func (t Feeds) Keys(data uint64, samples []int64) ([]byte, error) {
	d, err := t.data(data)
	if err != nil {
		return nil, err
	}
	keys, err := d.Keys(samples)
	if err != nil {
		return nil, err
	}
	return json.Marshal(keys)
}

// part is the bytes of one part of a sample, which a report returns as they are.
type part []byte

// StartSampleRead is nebulaio_data_read_start.
func (t Feeds) StartSampleRead(data, number uint64, column string) (uint64, error) {
	d, err := t.data(data)
	if err != nil {
		return 0, err
	}
	return ask(t.Table, func(ctx context.Context) (any, error) {
		b, err := d.Read(ctx, int64(min(number, 1<<62)), column)
		return part(b), err
	}), nil
}
