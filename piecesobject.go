// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"
	"errors"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/client"
	"github.com/nebulaio/nebulaio/internal/transfer"
	"github.com/nebulaio/nebulaio/report"
)

// objectWrite is a write of pieces to an object, and then of its checksums to another.
type objectWrite struct {
	m    *client.Move
	to   *Client // made for this write
	done chan struct{}
	err  error
}

// writeObject begins a write of sources to the object at url.
func (s *System) writeObject(ctx context.Context, url string, sources []transfer.Source, route report.Route,
	streams map[device.Device]uint64, o WriteOptions) (pieceWriter, error) {
	p, err := parseURL(url)
	if err == nil {
		err = p.object(url)
	}
	if err != nil {
		return nil, err
	}
	c := o.Client
	if p.endpoint != "" {
		c.Endpoint = p.endpoint
	}
	to, err := s.NewClient(c)
	if err != nil {
		return nil, err
	}
	// The system must not be closed between the object and its checksums.
	if err := s.sys.Enter("write", url); err != nil {
		return nil, errors.Join(err, to.Close())
	}
	m, err := to.c.StartWrite(ctx, client.Write{Bucket: p.bucket, Key: p.key, Route: route, Sources: sources, Sums: true,
		Streams: streams})
	if err != nil {
		s.sys.Leave()
		return nil, errors.Join(err, to.Close())
	}
	w := &objectWrite{m: m, to: to, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		defer s.sys.Leave()
		if w.err = m.Wait(); w.err == nil && !o.NoChecksums {
			w.err = w.putSums(ctx, p)
		}
		if err := to.Close(); w.err == nil {
			w.err = err
		}
	}()
	return w, nil
}

// putSums writes the checksums of the object to the object KEY.crc64nvme.
func (w *objectWrite) putSums(ctx context.Context, p place) error {
	text := w.m.Sums().Encode()
	m, err := w.to.c.StartWrite(ctx, client.Write{Bucket: p.bucket, Key: checksum.Path(p.key),
		Sources: []transfer.Source{{Len: int64(len(text)), Data: text}}})
	if err == nil {
		err = m.Wait()
	}
	if err != nil {
		return &errs.Error{Kind: errs.KindOf(err), Op: "write checksums of", Name: p.String(), Err: err,
			Msg: "the object itself is stored", Fix: "write it again, or remove both objects"}
	}
	return nil
}

func (w *objectWrite) Done() <-chan struct{} { return w.done }

func (w *objectWrite) Err() error {
	<-w.done
	return w.err
}

func (w *objectWrite) Progress() (done, total int64) { return w.m.Progress() }

func (w *objectWrite) Sums() *checksum.Sums {
	<-w.done
	if w.err != nil {
		return nil
	}
	return w.m.Sums()
}

func (w *objectWrite) Report() report.Report {
	<-w.done
	r := w.m.Report().Report
	if w.err != nil {
		r.Error = w.err.Error()
	}
	return r
}

func (w *objectWrite) describe(r *WriteReport) {
	o := w.m.Report()
	r.Via, r.ETag, r.Version = o.Via, o.ETag, o.Version
	r.OpenSeconds, r.CommitSeconds = o.OpenSeconds, o.CommitSeconds
}
