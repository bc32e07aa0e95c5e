// SPDX-License-Identifier: Apache-2.0

// Package client moves objects between an object store's server and device memory. A client uses the server's door (a
// local socket) if the server runs on this host, and HTTP otherwise.
//
// A read through the door takes one round trip. The door sends descriptors of the object's file and the checksums of
// its blocks. The transfer engine in the client's process reads the file into device memory and compares each block
// with its checksum. The content of a small object, which the store keeps with the metadata, is sent inside the
// door's reply. A write through the door takes two round trips: the first one returns a file to write to, and the
// second one publishes the object.
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

// These constants are the values of Options.Door other than a path.
const (
	doorAuto    = "auto"
	doorRequire = "require"
	doorOff     = "off"
)

// Options name the server and the account, and configure the client.
type Options struct {
	// Endpoint is the server's S3 endpoint, such as "http://localhost:9000" or "host:port".
	Endpoint                           string
	AccessKey, SecretKey, SessionToken string
	Region                             string
	// Door is "auto" (the default), "require", "off", or the absolute path of the door's socket.
	Door string
	// Device is the default device of the client's reads and writes. If Device is empty, the device is chosen as for
	// "auto".
	Device string
	// Connections is the largest number of HTTP connections of one transfer; 0 means the default.
	Connections int
	CAFile      string // a PEM file of certificates to trust in addition to the system's
	InsecureTLS bool
	NoVerify    bool
	Timeout     time.Duration // the time without progress after which an HTTP request fails; 0 means the default
	Retries     int           // the largest number of retries of one HTTP request; 0 means the default
	Agent       string        // the name of this program in the server's log

	Devices device.Set
	// Engine is the transfer engine that moves the bytes.
	Engine *transfer.Engine
}

// settle checks the options and fills in defaults.
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

// Client reads and writes the objects of one server. A Client connects to the server when a connection is first
// needed. All methods of Client are safe for concurrent use.
type Client struct {
	opt  Options
	pid  int // the ID of the process that made the client
	http *http.Client

	way     atomic.Pointer[way]
	finding sync.Mutex

	network onNetwork
	counts  counts

	mu     sync.Mutex
	closed bool
	active sync.WaitGroup // calls and moves in progress

	reads   chan struct{} // a token for each read of a single object in progress
	windows chan struct{} // a token for each window of a batch in progress
	again   chan struct{} // the token of the one window that is opened again for lack of handles
}

// mostReads is the largest number of reads of single objects in progress. mostReads and windowsAtOnce bound the open
// descriptors, of which each object has two, and a large object that is not cached has a third during its transfer.
const mostReads = 128

// counts holds the values of Counters while the client runs.
type counts struct {
	doorReads, doorWrites, inlineReads, httpReads, httpWrites, bytesRead, bytesWritten, held atomic.Int64
}

// New checks the options and creates a client. New does no I/O except reading the CAFile.
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
		windows: make(chan struct{}, windowsAtOnce()), again: make(chan struct{}, 1)}, nil
}

// discoverer returns an HTTP client for the request that finds the door.
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

// enter registers a call, and fails if the client is closed. The caller calls leave when the call ends.
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

// Close waits for all reads and writes in progress, then closes the connections.
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

// Status returns the state of the connection to the server and the client's counters. If the client is not connected
// yet, Status connects it.
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

// urlOf returns the name of an object for messages.
func urlOf(bucket, key string) string { return "s3://" + bucket + "/" + key }

// checkName returns an error for a name that no object can have.
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
