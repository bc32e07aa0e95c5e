// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	signing "github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
)

// logged is a log that a test reads while the server writes.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestRunServesUntilItsContextEnds runs a server in this process, where the
// race detector sees it.
func TestRunServesUntilItsContextEnds(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	socket := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	c := settings(t, map[string]string{"data": dir, "address": "127.0.0.1:0", "console_address": "127.0.0.1:0",
		"access_log": "true", "etag_buckets": "fast-*=crc64nvme"})
	ctx, stop := context.WithCancelCause(t.Context())
	log := &logged{}
	started := make(chan Started, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{Config: c, Version: "test", Log: log, NotifySocket: socket,
			Started: func(s Started) { started <- s }})
	}()
	var info Started
	select {
	case info = <-started:
	case err := <-ended:
		t.Fatal(err)
	}
	client, err := minio.New(strings.TrimPrefix(info.Endpoint, "http://"),
		&minio.Options{Creds: signing.NewStaticV4(info.AccessKey, info.SecretKey, ""), Region: info.Region})
	if err != nil {
		t.Fatal(err)
	}
	content := strings.Repeat("0123456789", 30000)
	for bucket, md5 := range map[string]bool{"plain": true, "fast-one": false} {
		if err := client.MakeBucket(ctx, bucket, minio.MakeBucketOptions{}); err != nil {
			t.Fatal(err)
		}
		up, err := client.PutObject(ctx, bucket, "key", strings.NewReader(content), int64(len(content)),
			minio.PutObjectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if isMD5 := len(up.ETag) == 32; isMD5 != md5 {
			t.Errorf("%s: ETag %s", bucket, up.ETag)
		}
		o, err := client.GetObject(ctx, bucket, "key", minio.GetObjectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(o)
		_ = o.Close()
		if err != nil || string(got) != content {
			t.Errorf("%s: %d bytes, %v", bucket, len(got), err)
		}
	}
	admin, err := Administer(ctx, c)
	if err != nil || !admin.Running() {
		t.Fatalf("%v", err)
	}
	if s, err := admin.Stats(ctx); err != nil || s.Objects != 2 || s.Buckets != 2 {
		t.Errorf("%+v, %v", s, err)
	}
	if r, err := admin.Scrub(ctx, 0, nil); err != nil || !r.Clean() || r.Objects != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	_ = admin.Close()
	resp, err := http.Get(info.Console + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if !strings.Contains(string(text), `nebulaio_s3_requests_total{code="200",operation="PutObject"} 2`) ||
		!strings.Contains(string(text), "nebulaio_store_objects 2") {
		t.Error("the metrics do not tell what was done")
	}

	stop(errors.New("enough"))
	if err := <-ended; err != nil {
		t.Error(err)
	}
	var states []string
	buf := make([]byte, 256)
	for range 2 {
		n, err := manager.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		states = append(states, string(buf[:n]))
	}
	if !strings.HasPrefix(states[0], "READY=1\n") || states[1] != "STOPPING=1" {
		t.Errorf("%q", states)
	}
	for _, want := range []string{`"component":"access"`, `"operation":"PutObject"`, `"reason":"enough"`,
		`"msg":"stopped"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %s in the log:\n%s", want, log)
		}
	}
}

func TestAFailedStoreIsNotReadyAndSaysWhy(t *testing.T) {
	log := &logged{}
	s := &server{log: newLog(log, "info", "json", false), metrics: newMetrics("1", gauges{none, none})}
	c := &console{store: s.failure, metrics: s.metrics}
	c.set(ready)
	e := s.events()
	e.background(errors.New("later"))
	if code, _ := get(t, c.handler(), "/readyz"); code != 200 {
		t.Errorf("%d after work in the background failed", code)
	}
	e.damage(object.Damage{Ref: object.Ref{Bucket: "b", Key: "k"}, File: "f", Off: 7, N: 8, What: "checksum"})
	e.failed(errors.New("the disk is gone"))
	if code, text := get(t, c.handler(), "/readyz"); code != 503 || !strings.Contains(text, "the disk is gone") {
		t.Errorf("%d %s", code, text)
	}
	if _, text := get(t, c.handler(), "/metrics"); !strings.Contains(text, "nebulaio_store_failed 1") ||
		!strings.Contains(text, `nebulaio_store_damage_total{what="checksum"} 1`) {
		t.Error("the metrics do not tell")
	}
	for _, want := range []string{`"msg":"damage"`, `"bucket":"b"`, `"offset":7`, `"file":"f"`, "the disk is gone",
		"later"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no %s in %s", want, log)
		}
	}
}

// records keeps records in memory.
type records struct {
	object.Records
	mu  sync.Mutex
	all map[string][]byte
}

func (r *records) PutRecord(_ context.Context, kind, name string, value []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all[kind+"/"+name] = value
	return nil
}

func (r *records) Record(_ context.Context, kind, name string) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if v, ok := r.all[kind+"/"+name]; ok {
		return v, nil
	}
	return nil, object.Fail("read record", name, object.ErrNoSuchRecord, "")
}

// scrubs is an Admin that only scrubs, and tells of it.
type scrubs struct {
	fakeAdmin
	did chan int64
}

func (s *scrubs) Scrub(_ context.Context, rate int64, _ func(ScrubProgress)) (ScrubReport, error) {
	s.did <- rate
	return s.report, s.err
}

func TestScrubsComeWhenTheyAreDue(t *testing.T) {
	log := &logged{}
	s := &server{Options: Options{Config: settings(t, map[string]string{"scrub.interval": "24h", "scrub.rate": "7"})},
		log: newLog(log, "info", "json", false), metrics: newMetrics("1", gauges{none, none})}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	// The last one is two days ago: one is due now, and then none for a day.
	kept := &records{all: map[string][]byte{}}
	if err := noteScrub(ctx, kept, time.Now().Add(-48*time.Hour)); err != nil {
		t.Fatal(err)
	}
	a := &scrubs{did: make(chan int64)}
	a.report = ScrubReport{Damaged: 1}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.scrubRegularly(ctx, a, kept)
	}()
	if rate := <-a.did; rate != 7 {
		t.Errorf("rate %d", rate)
	}
	for {
		last, err := lastScrub(ctx, kept)
		if err != nil {
			t.Fatal(err)
		}
		if time.Since(last) < time.Hour {
			break
		}
	}
	stop()
	<-done
	if !strings.Contains(log.String(), "scrub found damage") {
		t.Error(log)
	}
	// A store that was never scrubbed begins its interval now.
	fresh := &records{all: map[string][]byte{}}
	ctx, stop = context.WithCancel(t.Context())
	done = make(chan struct{})
	go func() {
		defer close(done)
		s.scrubRegularly(ctx, a, fresh)
	}()
	for {
		if at, err := lastScrub(ctx, fresh); err != nil {
			t.Fatal(err)
		} else if !at.IsZero() {
			break
		}
	}
	stop()
	<-done
}

func TestOneScrubAtATime(t *testing.T) {
	l := &local{scrub: new(sync.Mutex)}
	l.scrub.Lock()
	if _, err := l.Scrub(t.Context(), 0, nil); !errs.Is(err, errs.Invalid) {
		t.Errorf("%v", err)
	}
}
