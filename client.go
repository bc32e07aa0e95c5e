// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"
	"os"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/client"
)

// Words of the object API that are shared with the client below.
type (
	// ObjectRead asks for a range of an object in device memory.
	ObjectRead = client.Read
	// ObjectWrite asks for an object to be made of device memory.
	ObjectWrite = client.Write
	// PeerDst is a further destination of a read, on another device.
	PeerDst = client.Peer
	// ObjectInfo describes an object.
	ObjectInfo = client.Info
	// ObjectList asks for one page of a bucket, ObjectPage is that page.
	ObjectList = client.List
	ObjectPage = client.Page
	// ObjectReport tells how a read or write of objects went.
	ObjectReport = client.Report
	// ClientStatus is what a client knows of its server: door or why not, settings, counters.
	ClientStatus = client.Status
)

// ClientOptions say which server, as whom, and how. What is empty comes from
// the environment: NEBULAIO_ENDPOINT, AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL
// (else http://localhost:9000); NEBULAIO_ACCESS_KEY and NEBULAIO_SECRET_KEY, or
// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN; AWS_REGION
// (else us-east-1). Without any key, requests are anonymous.
type ClientOptions struct {
	Endpoint                           string
	AccessKey, SecretKey, SessionToken string
	Region                             string
	// Door is auto (the default: through the server's socket where it stands on
	// this host, else HTTP, and the report says why), require (an error instead of
	// HTTP), off, or the absolute path of the socket.
	Door string
	// Device is that of moves that name none: "auto" (the default), "host", "cuda" or "cuda:N".
	Device string
	// Connections is how many HTTP connections one transfer uses; 0 chooses.
	Connections int
	// CAFile has certificates to trust beside the system's; InsecureTLS trusts any.
	CAFile      string
	InsecureTLS bool
	// NoVerify takes bytes as they come instead of comparing them with the server's checksums.
	NoVerify bool
	// Timeout bounds the wait for the first byte of an HTTP reply, Retries how often a request is tried again; 0 chooses.
	Timeout time.Duration
	Retries int
}

// FromEnvironment fills in what is empty, as ClientOptions says, with the
// variables that get knows. NewClient does it with those of the process.
func (o ClientOptions) FromEnvironment(get func(string) string) ClientOptions {
	first := func(names ...string) string {
		for _, n := range names {
			if v := get(n); v != "" {
				return v
			}
		}
		return ""
	}
	if o.Endpoint == "" {
		if o.Endpoint = first("NEBULAIO_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"); o.Endpoint == "" {
			o.Endpoint = "http://localhost:9000"
		}
	}
	if o.AccessKey == "" && o.SecretKey == "" {
		// A key and its secret come from one place: two halves of different ones fit nowhere.
		if o.AccessKey, o.SecretKey = get("NEBULAIO_ACCESS_KEY"), get("NEBULAIO_SECRET_KEY"); o.AccessKey == "" {
			o.AccessKey, o.SecretKey, o.SessionToken = get("AWS_ACCESS_KEY_ID"), get("AWS_SECRET_ACCESS_KEY"), get("AWS_SESSION_TOKEN")
		}
	} else if o.SecretKey == "" {
		o.SecretKey = first("NEBULAIO_SECRET_KEY", "AWS_SECRET_ACCESS_KEY")
	}
	if o.Region == "" {
		if o.Region = first("AWS_REGION", "AWS_DEFAULT_REGION"); o.Region == "" {
			o.Region = "us-east-1"
		}
	}
	return o
}

// Client moves objects of one server between it and device memory. It connects
// on first use, and its methods are safe for concurrent use.
type Client struct {
	sys *System
	c   *client.Client
	opt ClientOptions
}

// NewClient makes a client; it does no I/O. The caller closes it before the system.
func (s *System) NewClient(o ClientOptions) (*Client, error) {
	o = o.FromEnvironment(os.Getenv)
	c, err := client.New(client.Options{Endpoint: o.Endpoint, AccessKey: o.AccessKey, SecretKey: o.SecretKey, SessionToken: o.SessionToken,
		Region: o.Region, Door: o.Door, Device: o.Device, Connections: o.Connections, CAFile: o.CAFile, InsecureTLS: o.InsecureTLS,
		NoVerify: o.NoVerify, Timeout: o.Timeout, Retries: o.Retries, Agent: "nebulaio/" + Version(),
		Devices: s.sys.Devices, Engine: s.sys.Engine})
	if err != nil {
		return nil, err
	}
	return &Client{sys: s, c: c, opt: o}, nil
}

// StartRead begins to read an object, or a range of it, into device memory and
// returns at once. The destination belongs to the move until it has ended.
// Arguments that cannot work fail here, everything else fails the move.
func (c *Client) StartRead(ctx context.Context, r ObjectRead) (*ObjectMove, error) {
	return move(c.c.StartRead(ctx, r))
}

// StartReadMany begins to read many objects as one job: they are opened in
// windows, and the next window is opened while one is read. The first object
// that fails ends the job, and its error names it.
func (c *Client) StartReadMany(ctx context.Context, rs []ObjectRead) (*ObjectMove, error) {
	return move(c.c.StartReadMany(ctx, rs))
}

// StartWrite begins to make an object of device memory and returns at once. The
// source belongs to the move, and does not change, until it has ended. Without an
// error the object is then whole, durable and visible; else there is no trace of it.
func (c *Client) StartWrite(ctx context.Context, w ObjectWrite) (*ObjectMove, error) {
	return move(c.c.StartWrite(ctx, w))
}

// Stat describes an object; an empty version is the current one. Kind NotFound.
func (c *Client) Stat(ctx context.Context, bucket, key, version string) (ObjectInfo, error) {
	return c.c.Stat(ctx, bucket, key, version)
}

// List lists one page of a bucket in order of keys.
func (c *Client) List(ctx context.Context, l ObjectList) (ObjectPage, error) { return c.c.List(ctx, l) }

// Status tells what is known of the server: door or why not, its settings, and
// counters. It connects where that was not done yet.
func (c *Client) Status(ctx context.Context) ClientStatus { return c.c.Status(ctx) }

// Close waits for moves that run and ends the connections. Sources that OpenModel gave are closed before.
func (c *Client) Close() error { return c.c.Close() }

// OpenModel reads and checks the headers of a model in a bucket: a .safetensors
// object, an index, or a prefix. The caller closes the source, before the client.
// Further models of o are keys, or URLs, of the same bucket.
func (c *Client) OpenModel(ctx context.Context, bucket, key string, o ModelOptions) (*Source, error) {
	if o.Device == "" {
		o.Device = c.opt.Device
	}
	more := make([]string, len(o.More))
	for i, name := range o.More {
		more[i] = name
		if !IsObjectURL(name) {
			continue
		}
		p, err := parseURL(name)
		if err != nil {
			return nil, err
		}
		if p.bucket != bucket || p.endpoint != "" && p.endpoint != c.opt.Endpoint {
			return nil, errs.New(errs.Invalid, "open model", name, "lies elsewhere than s3://"+bucket+"/"+key+"; expected models of one bucket").WithFix("open each by itself")
		}
		more[i] = p.key
	}
	o.More = more
	return c.sys.openModel(ctx, key, c.c.Tree(bucket, o.Device), o)
}

// ObjectMove is a read or write of objects under way. It is cancelled through
// the context given at its start.
type ObjectMove struct{ run objectMover }

// objectMover is what runs behind an ObjectMove.
type objectMover interface {
	Done() <-chan struct{}
	Wait() error
	Progress() (done, total int64)
	Report() ObjectReport
}

func move(m *client.Move, err error) (*ObjectMove, error) {
	if err != nil {
		return nil, err
	}
	return &ObjectMove{run: m}, nil
}

// Done is closed when the move has ended and its memory is the caller's again.
func (m *ObjectMove) Done() <-chan struct{} { return m.run.Done() }

// Wait blocks until the move has ended and returns its error.
func (m *ObjectMove) Wait() error { return m.run.Wait() }

// Progress is the bytes moved so far, and in all; the latter is 0 until it is known.
func (m *ObjectMove) Progress() (done, total int64) { return m.run.Progress() }

// Report tells how the move went; it blocks until Done.
func (m *ObjectMove) Report() ObjectReport { return m.run.Report() }
