// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"context"
	"os"
	"time"

	"github.com/nebulaio/nebulaio/internal/gpudirect/client"
	"github.com/nebulaio/nebulaio/report"
)

// ClientOptions choose the server, the access keys and the connection settings of a Client. Empty fields of
// ClientOptions are filled from environment variables:
//
//   - Endpoint: NEBULAIO_ENDPOINT, AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, else http://localhost:9000.
//   - AccessKey and SecretKey: NEBULAIO_ACCESS_KEY and NEBULAIO_SECRET_KEY, or AWS_ACCESS_KEY_ID and
//     AWS_SECRET_ACCESS_KEY with AWS_SESSION_TOKEN. Without keys, requests are anonymous.
//   - Region: AWS_REGION or AWS_DEFAULT_REGION, else us-east-1.
type ClientOptions struct {
	Endpoint                           string
	AccessKey, SecretKey, SessionToken string
	Region                             string
	// Door chooses whether the client uses the door, a Unix socket that a server offers to clients on the same host.
	// Door is "auto" (the default), "require", "off" or the absolute path of the socket. If Door is "auto" and the
	// server offers no door, the client uses HTTP, and the report gives the reason. If Door is "require" and the
	// server offers no door, every read and write of the client fails.
	Door string
	// Device is the default device for reads and writes: "auto" (the default), "host", "cuda" or "cuda:N".
	Device string
	// Connections is the number of HTTP connections that one transfer uses; 0 lets the client choose.
	Connections int
	// CAFile is the path of a PEM file with CA certificates to trust in addition to those of the operating system.
	CAFile string
	// InsecureTLS makes the client accept every server certificate.
	InsecureTLS bool
	// If NoVerify is set, the client does not compare the blocks that it reads with the server's checksums.
	NoVerify bool
	// Timeout is the longest time that an HTTP connection may be idle during a request; 0 lets the client choose.
	Timeout time.Duration
	// Retries is the number of times that a failed HTTP request is repeated; 0 lets the client choose.
	Retries int
}

// FromEnvironment fills empty fields of the options from environment variables. The parameter `get` is the function
// that returns the value of an environment variable. NewClient calls FromEnvironment with os.Getenv.
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
		// The access key and its secret come from the same pair of variables: a mixed pair would never be valid.
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

// settings converts the options to those of the internal client.
func (o ClientOptions) settings() client.Options {
	return client.Options{Endpoint: o.Endpoint, AccessKey: o.AccessKey, SecretKey: o.SecretKey,
		SessionToken: o.SessionToken,
		Region:       o.Region, Door: o.Door, Device: o.Device, Connections: o.Connections, CAFile: o.CAFile,
		InsecureTLS: o.InsecureTLS,
		NoVerify:    o.NoVerify, Timeout: o.Timeout, Retries: o.Retries, Agent: "nebulaio/" + Version()}
}

// Client moves objects between one server and device memory. A client connects at its first request. All methods of a
// client are safe for concurrent use.
type Client struct {
	sys *System
	c   *client.Client
	opt ClientOptions
}

// NewClient returns a client without connecting to the server. The caller must close the client before it closes the
// System.
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

// StartRead begins to read an object, or a range of it, into device memory and returns at once. The caller must not
// use the destination memory until the read has ended. StartRead itself fails for invalid arguments and after Close;
// ObjectMove.Wait returns all other errors.
func (c *Client) StartRead(ctx context.Context, r ObjectRead) (*ObjectMove, error) {
	return move(c.c.StartRead(ctx, r.request()))
}

// StartReadMany begins to read many objects as one job and returns at once. The client opens the next objects while it
// reads earlier ones. The first error ends the job; the text of the error names the object that failed.
func (c *Client) StartReadMany(ctx context.Context, rs []ObjectRead) (*ObjectMove, error) {
	return move(c.c.StartReadMany(ctx, convert(rs, ObjectRead.request)))
}

// StartWrite begins to write an object from device memory and returns at once. The source memory must not change until
// the write has ended. After a successful write the object is complete, durable and visible. After a failed write the
// new object does not exist.
func (c *Client) StartWrite(ctx context.Context, w ObjectWrite) (*ObjectMove, error) {
	return move(c.c.StartWrite(ctx, w.request()))
}

// Stat returns the size, ETag and other properties of an object. If `version` is empty, Stat describes the current
// version of the object. If the object does not exist, the error is of kind NotFound.
func (c *Client) Stat(ctx context.Context, bucket, key, version string) (ObjectInfo, error) {
	info, err := c.c.Stat(ctx, bucket, key, version)
	return ObjectInfo(info), err
}

// List returns one page of a bucket's objects, sorted by key.
func (c *Client) List(ctx context.Context, l ObjectList) (ObjectPage, error) {
	p, err := c.c.List(ctx, client.List(l))
	return ObjectPage{Objects: convert(p.Objects, func(i client.Info) ObjectInfo { return ObjectInfo(i) }),
		Prefixes: p.Prefixes, Truncated: p.Truncated, Next: p.Next}, err
}

// Delete removes an object. A missing object is no error. In a bucket with versions, Delete hides the object and keeps
// its versions. Delete always goes over HTTP, because the door only reads and writes.
func (c *Client) Delete(ctx context.Context, bucket, key string) error {
	return c.c.Delete(ctx, bucket, key)
}

// Status returns the path of the server's door (or the reason why there is none), the server's settings and the
// client's counters. Status connects to the server if the client has no connection yet.
func (c *Client) Status(ctx context.Context) ClientStatus { return statusOf(c.c.Status(ctx)) }

// Close waits for running reads and writes and closes the connections. Every Source that the client opened must be
// closed before the client.
func (c *Client) Close() error { return c.c.Close() }

// ObjectMove is a running read or write of objects. The context that was given to the Start method cancels the read
// or write.
type ObjectMove struct {
	run     objectMover
	refused []report.Refusal // refusals from before the move began
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

// Done returns a channel that is closed when the read or write has ended and the caller may use the memory again.
func (m *ObjectMove) Done() <-chan struct{} { return m.run.Done() }

// Wait blocks until the read or write has ended and returns its error.
func (m *ObjectMove) Wait() error { return m.run.Wait() }

// Progress returns the number of bytes moved so far, and the total number of bytes to move. The total number of bytes
// is 0 until the client knows the size of the object.
func (m *ObjectMove) Progress() (done, total int64) { return m.run.Progress() }

// Report blocks until the read or write has ended and returns its report.
func (m *ObjectMove) Report() ObjectReport {
	r := m.run.Report()
	if len(m.refused) > 0 {
		r.Refusals = append(append([]report.Refusal{}, m.refused...), r.Refusals...)
	}
	return r
}
