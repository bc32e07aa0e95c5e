// SPDX-License-Identifier: Apache-2.0

package abi

import (
	"context"
	"fmt"
	"time"

	"github.com/nebulaio/nebulaio"
	"github.com/nebulaio/nebulaio/internal/errs"
)

type clientOptions struct {
	Endpoint     string `json:"endpoint"`
	AccessKey    string `json:"access_key"`
	SecretKey    string `json:"secret_key"`
	SessionToken string `json:"session_token"`
	Region       string `json:"region"`
	Door         string `json:"door"`
	Device       string `json:"device"`
	Connections  int    `json:"connections"`
	Verify       *bool  `json:"verify"`
	CAFile       string `json:"ca_file"`
	InsecureTLS  bool   `json:"insecure_tls"`
	TimeoutMS    int64  `json:"timeout_ms"`
	Retries      int    `json:"retries"`
}

// OpenClient is nebulaio_client_open.
func (t *Table) OpenClient(system uint64, options string) (uint64, error) {
	s, err := get[*nebulaio.System](t, system, "system")
	if err != nil {
		return 0, err
	}
	var o clientOptions
	if err := decode(options, &o); err != nil {
		return 0, err
	}
	co, err := o.client()
	if err != nil {
		return 0, err
	}
	c, err := s.NewClient(co)
	if err != nil {
		return 0, err
	}
	return t.put(c), nil
}

// client converts the options to those of the Go library.
func (o *clientOptions) client() (nebulaio.ClientOptions, error) {
	const day = 24 * 60 * 60 * 1000
	if o.TimeoutMS < 0 || o.TimeoutMS > day {
		return nebulaio.ClientOptions{}, errs.New(errs.Invalid, "read options", "timeout_ms",
			fmt.Sprintf("is %d; expected 0 to %d", o.TimeoutMS, day))
	}
	return nebulaio.ClientOptions{Endpoint: o.Endpoint, AccessKey: o.AccessKey, SecretKey: o.SecretKey,
		SessionToken: o.SessionToken,
		Region:       o.Region, Door: o.Door, Device: o.Device, Connections: o.Connections, NoVerify: no(o.Verify),
		CAFile:      o.CAFile,
		InsecureTLS: o.InsecureTLS, Timeout: time.Duration(o.TimeoutMS) * time.Millisecond, Retries: o.Retries}, nil
}

// no reports whether an option that is true by default was turned off.
func no(v *bool) bool { return v != nil && !*v }

// OpenClientModel is nebulaio_client_model_open.
func (t *Table) OpenClientModel(client uint64, bucket, key, options string) (uint64, error) {
	c, err := get[*nebulaio.Client](t, client, "client")
	if err != nil {
		return 0, err
	}
	var o modelOptions
	if err := decode(options, &o); err != nil {
		return 0, err
	}
	mo, err := o.source("s3://" + bucket + "/" + key)
	if err != nil {
		return 0, err
	}
	src, err := c.OpenSource(context.Background(), bucket, key, mo)
	if err != nil {
		return 0, err
	}
	return t.put(&source{Source: src}), nil
}

type readOptions struct {
	Route  nebulaio.Route       `json:"route"`
	Cache  nebulaio.CachePolicy `json:"cache"`
	Verify *bool                `json:"verify"`
}

// StartObjectReads is nebulaio_object_read_start. The options "route", "cache" and "verify" apply to all reads that
// one call of StartObjectReads starts.
func (t *Table) StartObjectReads(client uint64, reads []nebulaio.ObjectRead, options string) (uint64, error) {
	c, err := get[*nebulaio.Client](t, client, "client")
	if err != nil {
		return 0, err
	}
	var o readOptions
	if err := decode(options, &o); err != nil {
		return 0, err
	}
	for i := range reads {
		r := &reads[i]
		if r.Off < 0 || r.DstSize < 0 || r.Size < -1 {
			return 0, errs.New(errs.Invalid, "read object", r.Bucket+"/"+r.Key,
				fmt.Sprintf("%d bytes at offset %d into %d bytes; expected offset and capacity below 2^63 and a size of -1 or more",
					r.Size, uint64(r.Off), uint64(r.DstSize)))
		}
		r.Route, r.Cache, r.HasStream, r.NoVerify = o.Route, o.Cache, true, no(o.Verify)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	var m *nebulaio.ObjectMove
	if len(reads) == 1 {
		m, err = c.StartRead(ctx, reads[0])
	} else {
		m, err = c.StartReadMany(ctx, reads)
	}
	return t.moving(m, err, cancel)
}

type describeOptions struct {
	ContentType string            `json:"content_type"`
	Metadata    map[string]string `json:"metadata"`
	IfMatch     string            `json:"if_match"`
	IfNoneMatch string            `json:"if_none_match"`
}

type writeOptions struct {
	describeOptions
	Route nebulaio.Route `json:"route"`
}

// StartObjectWrite is nebulaio_object_write_start. The options of StartObjectWrite set the route of the write, and
// the content type, metadata and conditions of the object.
func (t *Table) StartObjectWrite(client uint64, w nebulaio.ObjectWrite, options string) (uint64, error) {
	c, err := get[*nebulaio.Client](t, client, "client")
	if err != nil {
		return 0, err
	}
	var o writeOptions
	if err := decode(options, &o); err != nil {
		return 0, err
	}
	if w.Size < 0 {
		return 0, errs.New(errs.Invalid, "write object", w.Bucket+"/"+w.Key,
			fmt.Sprintf("%d bytes; expected less than 2^63", uint64(w.Size)))
	}
	w.Route, w.HasStream = o.Route, true
	w.ContentType, w.Metadata, w.IfMatch, w.IfNoneMatch = o.ContentType, o.Metadata, o.IfMatch, o.IfNoneMatch
	ctx, cancel := context.WithCancelCause(context.Background())
	m, err := c.StartWrite(ctx, w)
	return t.moving(m, err, cancel)
}

// moving returns the handle of a started move, or the error of its start.
func (t *Table) moving(m *nebulaio.ObjectMove, err error, cancel context.CancelCauseFunc) (uint64, error) {
	if err != nil {
		cancel(nil)
		return 0, err
	}
	return t.put(&job{work: m, report: func() any { return m.Report() }, cancel: cancel}), nil
}

// asking is a query to a server in progress.
type asking struct {
	done   chan struct{}
	answer any
	err    error
}

func (a *asking) Done() <-chan struct{}         { return a.done }
func (a *asking) Wait() error                   { <-a.done; return a.err }
func (a *asking) Progress() (done, total int64) { return 0, 0 }

// ask starts a job that asks question. The report of the job is the answer, or null if the job failed.
func ask(t *Table, question func(context.Context) (any, error)) uint64 {
	ctx, cancel := context.WithCancelCause(context.Background())
	a := &asking{done: make(chan struct{})}
	go func() {
		defer close(a.done)
		if a.answer, a.err = question(ctx); a.err != nil {
			a.answer = nil
		}
	}()
	return t.put(&job{work: a, report: func() any { return a.answer }, cancel: cancel})
}

// StartStat is nebulaio_object_stat_start.
func (t *Table) StartStat(client uint64, bucket, key, version string) (uint64, error) {
	c, err := get[*nebulaio.Client](t, client, "client")
	if err != nil {
		return 0, err
	}
	return ask(t, func(ctx context.Context) (any, error) { return c.Stat(ctx, bucket, key, version) }), nil
}

// StartDelete is nebulaio_object_delete_start.
func (t *Table) StartDelete(client uint64, bucket, key string) (uint64, error) {
	c, err := get[*nebulaio.Client](t, client, "client")
	if err != nil {
		return 0, err
	}
	return ask(t, func(ctx context.Context) (any, error) {
		return struct {
			Bucket string `json:"bucket"`
			Key    string `json:"key"`
		}{bucket, key}, c.Delete(ctx, bucket, key)
	}), nil
}

type listOptions struct {
	Prefix    string `json:"prefix"`
	Delimiter string `json:"delimiter"`
	After     string `json:"after"`
	Limit     int    `json:"limit"`
}

// StartList is nebulaio_object_list_start.
func (t *Table) StartList(client uint64, bucket, options string) (uint64, error) {
	c, err := get[*nebulaio.Client](t, client, "client")
	if err != nil {
		return 0, err
	}
	var o listOptions
	if err := decode(options, &o); err != nil {
		return 0, err
	}
	if o.Limit < 0 {
		return 0, errs.New(errs.Invalid, "read options", "limit", fmt.Sprintf("is %d; expected 0 or more", o.Limit))
	}
	l := nebulaio.ObjectList{Bucket: bucket, Prefix: o.Prefix, Delimiter: o.Delimiter, After: o.After, Limit: o.Limit}
	return ask(t, func(ctx context.Context) (any, error) { return c.List(ctx, l) }), nil
}

// StartStatus is nebulaio_client_status_start.
func (t *Table) StartStatus(client uint64) (uint64, error) {
	c, err := get[*nebulaio.Client](t, client, "client")
	if err != nil {
		return 0, err
	}
	return ask(t, func(ctx context.Context) (any, error) { return c.Status(ctx), nil }), nil
}
