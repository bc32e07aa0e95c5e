// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"
	"os"
	"time"

	"github.com/nebulaio/nebulaio/internal/gpudirect/client"
	"github.com/nebulaio/nebulaio/report"
)

// ClientOptions choose the server, the access keys and the connection. Empty fields come from the environment:
//
//   - Endpoint: NEBULAIO_ENDPOINT, AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, else http://localhost:9000.
//   - AccessKey and SecretKey: NEBULAIO_ACCESS_KEY and NEBULAIO_SECRET_KEY, or AWS_ACCESS_KEY_ID and
//     AWS_SECRET_ACCESS_KEY with AWS_SESSION_TOKEN. Without keys, requests are anonymous.
//   - Region: AWS_REGION or AWS_DEFAULT_REGION, else us-east-1.
type ClientOptions struct {
	Endpoint                           string
	AccessKey, SecretKey, SessionToken string
	Region                             string
	// Door is the use of the server's local socket: "auto" (the default), "require", "off" or the socket's absolute path.
	// auto uses HTTP if the server is not on this host, and the report says why. require fails instead.
	Door string
	// Device is the default device of reads and writes: "auto" (the default), "host", "cuda" or "cuda:N".
	Device string
	// Connections is the number of HTTP connections of one transfer; 0 lets the client choose.
	Connections int
	// CAFile is a file of certificates to trust beside the system's.
	CAFile string
	// InsecureTLS trusts every certificate.
	InsecureTLS bool
	// NoVerify skips the comparison of each block with the server's checksum.
	NoVerify bool
	// Timeout bounds the wait for the first byte of an HTTP reply; 0 lets the client choose.
	Timeout time.Duration
	// Retries is the number of times that a failed HTTP request is repeated; 0 lets the client choose.
	Retries int
}

// FromEnvironment fills empty fields from environment variables, which get looks up. NewClient calls it with os.Getenv.
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
			o.AccessKey, o.SecretKey = get("AWS_ACCESS_KEY_ID"), get("AWS_SECRET_ACCESS_KEY")
			o.SessionToken = get("AWS_SESSION_TOKEN")
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

// settings returns the options as the client takes them.
func (o ClientOptions) settings() client.Options {
	return client.Options{Endpoint: o.Endpoint, AccessKey: o.AccessKey, SecretKey: o.SecretKey,
		SessionToken: o.SessionToken,
		Region:       o.Region, Door: o.Door, Device: o.Device, Connections: o.Connections, CAFile: o.CAFile,
		InsecureTLS: o.InsecureTLS,
		NoVerify:    o.NoVerify, Timeout: o.Timeout, Retries: o.Retries, Agent: "nebulaio/" + Version()}
}

// Client moves objects between one server and device memory. It connects on first use. All methods are safe for
// concurrent use.
type Client struct {
	sys *System
	c   *client.Client
	opt ClientOptions
}

// NewClient makes a client. It does not connect yet. The caller closes the client, then the system.
func (s *System) NewClient(o ClientOptions) (*Client, error) {
	o = o.FromEnvironment(os.Getenv)
	settings := o.settings()
	settings.Devices, settings.Engine = s.sys.Devices, s.sys.Engine
	c, err := client.New(settings)
	if err != nil {
		return nil, err
	}
	return &Client{sys: s, c: c, opt: o}, nil
}

// StartRead begins to read an object, or a range of it, into device memory and returns at once. The destination belongs
// to the move until it has ended. Invalid arguments fail here; every other error ends the move.
func (c *Client) StartRead(ctx context.Context, r ObjectRead) (*ObjectMove, error) {
	return move(c.c.StartRead(ctx, r.request()))
}

// StartReadMany begins to read many objects as one job and returns at once. The next objects are opened while others
// are read. The first object that fails ends the job, and its error names the object.
func (c *Client) StartReadMany(ctx context.Context, rs []ObjectRead) (*ObjectMove, error) {
	return move(c.c.StartReadMany(ctx, convert(rs, ObjectRead.request)))
}

// StartWrite begins to make an object of device memory and returns at once. The source belongs to the move until it has
// ended, and must not change. After success the object is whole, durable and visible. After an error it does not exist.
func (c *Client) StartWrite(ctx context.Context, w ObjectWrite) (*ObjectMove, error) {
	return move(c.c.StartWrite(ctx, w.request()))
}

// Stat returns the size, ETag and other properties of an object. An empty version means the current version. If the
// object does not exist, the error is of kind NotFound.
func (c *Client) Stat(ctx context.Context, bucket, key, version string) (ObjectInfo, error) {
	info, err := c.c.Stat(ctx, bucket, key, version)
	return ObjectInfo(info), err
}

// List lists one page of a bucket in order of keys.
func (c *Client) List(ctx context.Context, l ObjectList) (ObjectPage, error) {
	p, err := c.c.List(ctx, client.List(l))
	return ObjectPage{Objects: convert(p.Objects, func(i client.Info) ObjectInfo { return ObjectInfo(i) }),
		Prefixes: p.Prefixes, Truncated: p.Truncated, Next: p.Next}, err
}

// Status says what is known of the server: its door or why there is none, its settings, and the client's counters. It
// connects if needed.
func (c *Client) Status(ctx context.Context) ClientStatus { return statusOf(c.c.Status(ctx)) }

// Close waits for running moves and closes the connections. Close sources of the client first.
func (c *Client) Close() error { return c.c.Close() }

// ObjectMove is a read or write of objects under way. The context given at its start cancels it.
type ObjectMove struct {
	run     objectMover
	refused []report.Refusal // before the move began
}

// objectMover is the work behind an ObjectMove.
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

// Progress returns the bytes moved so far, and in all. The total is 0 until it is known.
func (m *ObjectMove) Progress() (done, total int64) { return m.run.Progress() }

// Report says how the move went. It blocks until the move has ended.
func (m *ObjectMove) Report() ObjectReport {
	r := m.run.Report()
	if len(m.refused) > 0 {
		r.Refusals = append(append([]report.Refusal{}, m.refused...), r.Refusals...)
	}
	return r
}
