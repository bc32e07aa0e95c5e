// SPDX-License-Identifier: Apache-2.0

// Package client moves objects between a server and device memory: through the
// server's door where it stands on this host, by HTTP elsewhere.
//
// Through the door a read is one round trip: the server passes descriptors of
// the object's file with the sums of its blocks, and this process's own engine
// reads them into device memory and compares each block. An object that lies
// with the metadata comes inside the reply. A write is a round trip for a file to
// write into, the engine's blocks, and a round trip that publishes it.
package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nebulaio/nebulaio/internal/device"
	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/store/s3"
	"github.com/nebulaio/nebulaio/internal/transfer"
)

// Values of Options.Door beside a path.
const (
	doorAuto    = "auto"
	doorRequire = "require"
	doorOff     = "off"
)

// Options say which server, as whom, and how.
type Options struct {
	// Endpoint is the S3 endpoint: "http://localhost:9000", or "host:port".
	Endpoint                           string
	AccessKey, SecretKey, SessionToken string
	Region                             string
	// Door is auto (the default), require, off, or the absolute path of the socket.
	Door string
	// Device is that of moves that name none; empty: auto.
	Device string
	// Connections is how many HTTP connections a transfer may use; 0 chooses.
	Connections int
	CAFile      string // certificates to trust beside the system's
	InsecureTLS bool
	NoVerify    bool
	Timeout     time.Duration // for which nothing moves on an HTTP connection; 0 chooses
	Retries     int           // of one HTTP request; 0 chooses
	Agent       string        // names this program in the server's log

	Devices device.Set
	// Engine moves the bytes.
	Engine *transfer.Engine
}

// settle checks the options and fills in what is empty.
func (o Options) settle() (Options, error) {
	const op = "make client"
	if !strings.Contains(o.Endpoint, "://") {
		o.Endpoint = "http://" + o.Endpoint
	}
	u, err := url.Parse(o.Endpoint)
	if err == nil && u.User != nil {
		return o, errs.New(errs.Invalid, op, "endpoint "+strconv.Quote(u.Redacted()),
			"has a user's name in it; expected http://host:port, https://host or host:port").
			WithFix("give the access key and the secret key by themselves")
	}
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" {
		return o, errs.New(errs.Invalid, op, "endpoint "+strconv.Quote(o.Endpoint),
			"is no URL of a server; expected http://host:port, https://host or host:port")
	}
	o.Endpoint = strings.TrimSuffix(o.Endpoint, "/")
	if (o.AccessKey == "") != (o.SecretKey == "") {
		return o, errs.New(errs.Invalid, op, o.Endpoint,
			"an access key or a secret key is given alone; expected both, or neither to ask as anybody")
	}
	if o.Door == "" {
		o.Door = doorAuto
	}
	if o.Door != doorAuto && o.Door != doorRequire && o.Door != doorOff && !strings.HasPrefix(o.Door, "/") {
		return o, errs.New(errs.Invalid, op, "door "+strconv.Quote(o.Door),
			"is not known; expected auto, require, off or the absolute path of a socket")
	}
	if o.Connections < 0 || o.Retries < 0 || o.Timeout < 0 {
		return o, errs.New(errs.Invalid, op, o.Endpoint,
			fmt.Sprintf("connections %d, retries %d, timeout %s; expected 0 or more of each", o.Connections, o.Retries,
				o.Timeout))
	}
	return o, nil
}

// Client is a connection to a server, made when it is first needed. Its methods
// are safe for concurrent use.
type Client struct {
	opt  Options
	pid  int // of the process that made it
	http *http.Client

	way     atomic.Pointer[way]
	finding sync.Mutex

	network onNetwork
	counts  counts

	mu     sync.Mutex
	closed bool
	active sync.WaitGroup // moves that run

	reads   chan struct{} // a token for each read of one object under way
	windows chan struct{} // and for each window of batches
}

// mostReads bounds the reads of single objects that have begun, windowsOpen the
// windows of all batches: each object has two descriptors, and a program that
// starts a thousand reads at once has no more of them than any other.
const (
	mostReads   = 128
	windowsOpen = windowsOpening + windowsRunning
)

// counts are Counters as they grow.
type counts struct {
	doorReads, doorWrites, inlineReads, httpReads, httpWrites, bytesRead, bytesWritten, held atomic.Int64
}

// New checks the options; it does no I/O but for reading a CAFile.
func New(o Options) (*Client, error) {
	o, err := o.settle()
	if err != nil {
		return nil, err
	}
	h, err := discoverer(o)
	if err != nil {
		return nil, err
	}
	n, err := newNetwork(o)
	if err != nil {
		return nil, err
	}
	return &Client{opt: o, pid: os.Getpid(), http: h, network: n, reads: make(chan struct{}, mostReads),
		windows: make(chan struct{}, windowsOpen)}, nil
}

// discoverer is an HTTP client for the one small request that finds the door.
func discoverer(o Options) (*http.Client, error) {
	conf, err := s3.ClientTLS(o.CAFile, o.InsecureTLS)
	if err != nil {
		return nil, err
	}
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: conf, DisableKeepAlives: true,
		MaxResponseHeaderBytes: 64 << 10}
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request,
		[]*http.Request) error {
		return http.ErrUseLastResponse
	}}, nil
}

// enter counts a call in; leave is called at its end.
func (c *Client) enter(op, name string) (leave func(), err error) {
	if os.Getpid() != c.pid {
		return nil, errs.New(errs.Invalid, op, name,
			"this process is a fork of the one that made the client, and has neither its threads nor its connections").
			WithFix("make the client after the fork, or start the child with spawn instead of fork")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errs.New(errs.Closed, op, name, "the client is closed")
	}
	c.active.Add(1)
	return c.active.Done, nil
}

// Close waits for moves that run and ends the connections.
func (c *Client) Close() error {
	c.mu.Lock()
	was := c.closed
	c.closed = true
	c.mu.Unlock()
	if was {
		return nil
	}
	if os.Getpid() != c.pid {
		return nil // the parent's connections are not ours to end
	}
	c.active.Wait()
	if w := c.way.Swap(nil); w != nil && w.door != nil {
		w.door.close()
	}
	c.http.CloseIdleConnections()
	return c.network.close()
}

// device opens the device of a move.
func (c *Client) device(ctx context.Context, id string) (device.Device, error) {
	if id == "" {
		id = c.opt.Device
	}
	return c.opt.Devices.Open(ctx, id)
}

// Status tells what is known of the server; it connects where that was not done yet.
func (c *Client) Status(ctx context.Context) Status {
	s := Status{Endpoint: c.opt.Endpoint}
	leave, err := c.enter("look at", c.opt.Endpoint)
	if err == nil {
		defer leave()
		var w *way
		if w, err = c.find(ctx); err == nil {
			s.Refusal = w.refused
			if d := w.door; d != nil {
				s.Door, s.Store = d.path, d.store
				g := d.settings()
				s.Settings = &Settings{BufferPoolSize: g.BufferPoolSize, MaxTransferSize: g.MaxTransferSize,
					QueueDepth: int(g.QueueDepth), Async: g.Async, P2P: g.P2P,
					Devices: append([]uint32{}, g.Devices...), Writes: g.Writes, WritesWhy: g.WritesWhy,
					Notes: append([]string(nil), g.Notes...)}
				s.Counters.Connections, s.Counters.Reconnections = d.made.Load(), d.remade.Load()
			}
		}
	}
	if err != nil {
		s.Error = err.Error()
	}
	k := &s.Counters
	for _, x := range []struct {
		to   *int64
		from *atomic.Int64
	}{{&k.DoorReads, &c.counts.doorReads}, {&k.DoorWrites, &c.counts.doorWrites},
		{&k.InlineReads, &c.counts.inlineReads}, {&k.HTTPReads, &c.counts.httpReads},
		{&k.HTTPWrites, &c.counts.httpWrites}, {&k.BytesRead, &c.counts.bytesRead},
		{&k.BytesWritten, &c.counts.bytesWritten}, {&k.HandlesHeld, &c.counts.held}} {
		*x.to = x.from.Load()
	}
	return s
}

// url names an object in messages.
func urlOf(bucket, key string) string { return "s3://" + bucket + "/" + key }

// checkName refuses names that no object has.
func checkName(op, bucket, key string) error {
	switch {
	case bucket == "":
		return errs.New(errs.Invalid, op, urlOf(bucket, key), "no bucket is named")
	case key == "":
		return errs.New(errs.Invalid, op, urlOf(bucket, key), "no key is named")
	case len(key) > 1024:
		return errs.New(errs.Invalid, op, urlOf(bucket, key[:64]+"…"),
			fmt.Sprintf("the key has %d bytes, expected at most 1024", len(key)))
	}
	return nil
}
