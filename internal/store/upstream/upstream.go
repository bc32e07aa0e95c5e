// SPDX-License-Identifier: Apache-2.0

// Package upstream makes one bucket of another S3 server, or the keys with one prefix in it, available under the
// contracts of package object.
//
// Nothing is cached, and every call asks the other server (the upstream). A read names the content that it expects by
// an object.Identity, and each reply is compared with it. The package relies only on abilities of the upstream that
// were proven: see Capabilities. If the upstream does not answer, calls fail with ErrUnavailable within a deadline, and
// a breaker spares the upstream and the callers further attempts.
package upstream

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// Options are the address of an upstream bucket, the credentials for it and the limits of its use.
type Options struct {
	Endpoint string // URL of the upstream, "http://host:port" or "https://host"
	Bucket   string // name of the bucket on the upstream
	// Prefix begins the upstream's key of every object, and is no part of the key in calls; empty means the whole bucket.
	Prefix      string
	Region      string                 // region of signatures; empty means us-east-1
	Credentials s3.CredentialsProvider // nil means that requests are not signed
	VirtualHost bool                   // name the bucket in the host instead of the path
	CAFile      string                 // PEM file with additional certificate authorities
	InsecureTLS bool                   // accept any certificate

	// FirstByte is the longest time from a request without content to the first byte of its reply; 0 means 5 s.
	FirstByte time.Duration
	// Stall is the longest time in which neither side moves a byte of a body; 0 means twice FirstByte, and at least 1 s.
	// Time in which the caller does not read or supply bytes does not count.
	Stall time.Duration
	// Commit is the longest time from the last byte of a change to the first byte of its reply; 0 means three times
	// FirstByte. Completions of uploads and copies may take 30 s, because the upstream may have to copy content.
	Commit time.Duration
	// Concurrency is the largest number of requests at the same time; 0 means 128. Further requests wait for their turn
	// until their contexts end.
	Concurrency int
	// Breaker is the number of failures in a row after which the breaker opens; 0 means 5.
	Breaker int
	// Capabilities is the record that Bucket.Capabilities returned earlier. The zero record means that nothing is proven.
	Capabilities Capabilities
	// Learned, if not nil, is called with the new record after the capabilities changed. Learned runs on the goroutine
	// of the call that learned, and must not block.
	Learned func(Capabilities)
	// Clock returns the current time, for tests; nil means time.Now.
	Clock func() time.Time
}

// String returns the address without credentials.
func (o Options) String() string {
	return "upstream " + o.Endpoint + "/" + o.Bucket + "/" + o.Prefix
}

// LogValue returns the text of String for structured logs.
func (o Options) LogValue() slog.Value { return slog.StringValue(o.String()) }

// The Default constants are the values of fields of Options that are zero.
const (
	DefaultFirstByte   = 5 * time.Second
	DefaultConcurrency = 128
	DefaultBreaker     = 5
)

// shortestStall is the smallest Stall that is not set explicitly.
const shortestStall = time.Second

// assembleTime is the least time that completions and copies may take.
const assembleTime = 30 * time.Second

// Bucket is one bucket of an upstream, or the part of it below a prefix. The methods Stat and Fetch are for caches. The
// result of Through has the same objects under the contracts of package object. A Bucket is safe for concurrent use.
type Bucket struct {
	o       Options
	origin  string
	sender  *s3.Sender
	slots   chan struct{}
	breaker *breaker
	caps    atomic.Pointer[Capabilities]
	uploads *uploadMemory
	join    *checksum.Joiner
	now     func() time.Time
	seen    atomic.Bool // whether the bucket is known to exist
	probing chan struct{}
	// unprobed is the time of the last Probe that failed, in nanoseconds; 0: none has failed.
	unprobed atomic.Int64
	known    partMemory
	state    atomic.Pointer[versioningState]
}

// New returns a Bucket and sends nothing yet. New fails with kind Invalid for invalid options. If CAFile cannot be
// read, the error has the kind of the read error.
func New(o Options) (*Bucket, error) {
	const op = "configure upstream"
	if o.Bucket == "" || strings.ContainsAny(o.Bucket, "/?#%\x00") || len(o.Bucket) > 255 {
		return nil, errs.New(errs.Invalid, op, fmt.Sprintf("bucket %q", o.Bucket), "expected the name of a bucket")
	}
	if len(o.Prefix) > object.MaxKey-1 {
		return nil, errs.New(errs.Invalid, op, o.Bucket,
			fmt.Sprintf("a prefix of %d bytes, expected at most %d", len(o.Prefix), object.MaxKey-1))
	}
	for _, d := range []struct {
		name  string
		value *time.Duration
		usual time.Duration
	}{{"first byte", &o.FirstByte, DefaultFirstByte}, {"stall", &o.Stall, 0}, {"commit", &o.Commit, 0}} {
		if *d.value < 0 {
			return nil, errs.New(errs.Invalid, op, o.Bucket,
				fmt.Sprintf("deadline %s of %s, expected a positive time, or 0 for the default", d.name, *d.value))
		}
		if *d.value == 0 {
			*d.value = d.usual
		}
	}
	if o.Stall == 0 {
		o.Stall = max(2*o.FirstByte, shortestStall)
	}
	if o.Commit == 0 {
		o.Commit = 3 * o.FirstByte
	}
	if o.Concurrency == 0 {
		o.Concurrency = DefaultConcurrency
	}
	if o.Concurrency < 1 || o.Concurrency > 10_000 {
		return nil, errs.New(errs.Invalid, op, o.Bucket,
			fmt.Sprintf("concurrency %d, expected 1 to 10000", o.Concurrency))
	}
	if o.Breaker == 0 {
		o.Breaker = DefaultBreaker
	}
	if o.Breaker < 1 {
		return nil, errs.New(errs.Invalid, op, o.Bucket,
			fmt.Sprintf("breaker of %d failures, expected 1 or more", o.Breaker))
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	sender, err := s3.NewSender(s3.SenderOptions{Endpoint: o.Endpoint, Region: o.Region, Credentials: o.Credentials,
		VirtualHost: o.VirtualHost, CAFile: o.CAFile, InsecureTLS: o.InsecureTLS, Connections: min(o.Concurrency, 256),
		Dial: o.FirstByte, Direct: true})
	if err != nil {
		return nil, errs.Wrap(op, o.Bucket, err)
	}
	b := &Bucket{o: o, sender: sender, origin: sender.Endpoint() + "/" + o.Bucket + "/" + o.Prefix,
		slots: make(chan struct{}, o.Concurrency), breaker: newBreaker(o.Breaker, o.Clock), uploads: newUploadMemory(),
		probing: make(chan struct{}, 1),
		join:    checksum.NewJoiner(), now: o.Clock}
	caps := o.Capabilities
	b.caps.Store(&caps)
	return b, nil
}

// Origin returns the endpoint, the bucket and the prefix as one text. Two Buckets with equal Origin have the same
// objects.
func (b *Bucket) Origin() string { return b.origin }

// String returns the Origin.
func (b *Bucket) String() string { return b.origin }

// State describes the breaker.
func (b *Bucket) State() State { return b.breaker.state() }

// Close closes idle connections. Calls in progress go on.
func (b *Bucket) Close() error {
	b.sender.Close()
	return nil
}

// Through returns the objects of b under the contracts of package object. The parameter `name` is the name of the
// bucket in requests and results, which can differ from its name on the upstream. The function settings returns the
// settings for a Judge; nil means that there are none.
func (b *Bucket) Through(name string, settings func(context.Context) (*object.Bucket, error)) *Through {
	if settings == nil {
		settings = func(context.Context) (*object.Bucket, error) { return &object.Bucket{Name: name}, nil }
	}
	return &Through{b: b, name: name, settings: settings}
}

// Through is a bucket of an upstream under the contracts object.Objects, object.Lister and object.Uploads. Calls that
// name another bucket fail with object.ErrNoSuchBucket.
//
// A call that the upstream cannot do, or was not proven to do, fails with an object.Refusal of status 501. For example,
// a change with a Condition fails if the upstream cannot check the Condition and make the change in one step. A Judge
// is asked before the change is visible. The Judge sees no removed version, because the upstream itself protects the
// versions that it has locked.
type Through struct {
	b        *Bucket
	name     string
	settings func(context.Context) (*object.Bucket, error)
}

var (
	_ object.Objects = (*Through)(nil)
	_ object.Lister  = (*Through)(nil)
	_ object.Uploads = (*Through)(nil)
)

// path returns the upstream's key of an object.
func (b *Bucket) path(key string) string { return b.o.Prefix + key }

// label returns the name of an object in messages.
func (b *Bucket) label(key string) string { return "s3://" + b.o.Bucket + "/" + b.o.Prefix + key }

// Versioning returns the versioning state of the upstream's bucket. An upstream without versioning is in the state
// object.VersioningOff.
func (b *Bucket) Versioning(ctx context.Context) (object.Versioning, error) { return b.versioning(ctx) }
