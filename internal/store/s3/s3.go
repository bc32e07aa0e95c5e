// SPDX-License-Identifier: Apache-2.0

// Package s3 is a client for S3 servers, made for moving large content. A caller reads ranges directly from the socket,
// and the client sends parts directly from the caller's blocks of memory.
//
// If a read breaks off, the client resumes it at the byte reached, after a growing pause. Every read requests the
// version that the first reply named. A caller gets the bytes of one version, or an error.
package s3

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/nebulaio/nebulaio/internal/checksum"
	"github.com/nebulaio/nebulaio/internal/errs"
)

// Options are the address of the server, the credentials and the limits of a Client.
type Options struct {
	// Endpoint is the server's URL, "http://host:port" or "https://host".
	Endpoint string
	Region   string // region of the signature; empty means us-east-1; if a server names another region, the client uses it
	// AccessKey identifies the account; if it is empty, requests are not signed.
	AccessKey, SecretKey, SessionToken string
	// Credentials, if not nil, returns the keys for each request, and AccessKey, SecretKey and SessionToken are empty.
	Credentials CredentialsProvider
	// VirtualHost names the bucket in the host instead of the path, which Amazon's endpoints always get. A bucket whose
	// name has a dot or an underscore stays in the path.
	VirtualHost bool
	// Connections is the number of concurrent requests for one object; 0 means 16.
	Connections int
	// CAFile is a PEM file with additional certificate authorities for TLS servers.
	CAFile      string
	InsecureTLS bool // accept any certificate
	// Timeout is the longest time without any traffic on a connection; 0 means 30 s.
	Timeout time.Duration
	// Retries is how often a failed request is repeated without any progress; 0 means 5, negative means never.
	Retries int
	// SignBodies signs the content over plain HTTP too, for servers that require it. With SignBodies, an object that
	// is too large for one request needs TLS.
	SignBodies bool
}

// The Default constants are the values of fields of Options that are not set.
const (
	DefaultConnections = 16
	DefaultTimeout     = 30 * time.Second
	DefaultRetries     = 5
	DefaultRegion      = "us-east-1"
	mostConnections    = 256
	mostRetries        = 100
)

// Client sends requests to one S3 endpoint. A Client is safe for concurrent use.
type Client struct {
	o      Options
	base   *url.URL
	http   *http.Client
	signer *v4.Signer
	creds  aws.Credentials
	join   *checksum.Joiner

	skew   atomic.Int64 // nanoseconds that the server's clock is ahead of ours
	rtt    atomic.Int64 // nanoseconds of the shortest round trip to the server; 0: not known
	slowed atomic.Int64 // replies that asked the client to slow down
	noSums atomic.Bool  // the server refuses our checksums because it does not know them
	// noBatch means that the server deletes objects only one by one.
	noBatch atomic.Bool

	mu      sync.Mutex
	regions map[string]string // of buckets with a known region

	// wait replaces the pause before a retry in tests.
	wait func(ctx context.Context, d time.Duration) error
}

// New returns a client, which connects only with the first request. New fails with kind Invalid for invalid options. If
// CAFile cannot be read, the error has the kind of the read error, such as NotFound.
func New(o Options) (*Client, error) {
	const op = "configure S3 client"
	base, err := url.Parse(o.Endpoint)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.RawQuery != "" ||
		base.User != nil {
		return nil, errs.New(errs.Invalid, op, "endpoint "+strconv.Quote(o.Endpoint),
			"is no URL of a server; expected http://host:port or https://host")
	}
	base.Path = strings.TrimSuffix(base.Path, "/")
	if o.Region == "" {
		o.Region = DefaultRegion
	}
	if o.Connections == 0 {
		o.Connections = DefaultConnections
	}
	if o.Connections < 1 || o.Connections > mostConnections {
		return nil, errs.New(errs.Invalid, op, fmt.Sprintf("connections=%d", o.Connections),
			fmt.Sprintf("is out of range; expected 1 to %d", mostConnections))
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Timeout < 0 {
		return nil, errs.New(errs.Invalid, op, "timeout="+o.Timeout.String(),
			"is negative; expected a time, or 0 for the default")
	}
	if o.Retries == 0 {
		o.Retries = DefaultRetries
	}
	o.Retries = min(max(o.Retries, 0), mostRetries)
	if o.AccessKey == "" && o.SecretKey != "" || o.AccessKey != "" && o.SecretKey == "" {
		return nil, errs.New(errs.Invalid, op, "credentials",
			"have an access key or a secret key alone; expected both, or neither to ask as anybody")
	}
	if o.Credentials != nil && o.AccessKey != "" {
		return nil, errs.New(errs.Invalid, op, "credentials", "are given as keys and as a provider; expected one of them")
	}
	t, err := newTransport(o)
	if err != nil {
		return nil, err
	}
	return &Client{o: o, base: base, regions: map[string]string{}, wait: pause, join: checksum.NewJoiner(),
		http: &http.Client{Transport: t, CheckRedirect: func(*http.Request,
			[]*http.Request) error {
			return http.ErrUseLastResponse
		}},
		signer: v4.NewSigner(func(s *v4.SignerOptions) { s.DisableURIPathEscaping = true }),
		creds:  aws.Credentials{AccessKeyID: o.AccessKey, SecretAccessKey: o.SecretKey, SessionToken: o.SessionToken},
	}, nil
}

// Sign signs a request without a body that another HTTP client sends to the endpoint. The signature is for
// DefaultRegion, which a NebulaIO server accepts for requests of clients that do not know the region yet. Without
// credentials, Sign does nothing.
func (c *Client) Sign(ctx context.Context, r *http.Request) error {
	keys, err := c.keys(ctx)
	if err != nil || keys.AccessKeyID == "" {
		return err
	}
	r.Header.Set("X-Amz-Content-Sha256", emptyHash)
	at := time.Now().Add(time.Duration(c.skew.Load()))
	return errs.Wrap("sign request for", r.URL.Path, c.signer.SignHTTP(ctx, keys, r, emptyHash, "s3", DefaultRegion, at))
}

// keys returns the credentials for the next request. Empty ones mean that the request is not signed.
func (c *Client) keys(ctx context.Context) (aws.Credentials, error) {
	if c.o.Credentials == nil {
		return c.creds, nil
	}
	k, err := c.o.Credentials(ctx)
	if err != nil {
		return aws.Credentials{}, &sourceError{err} // the provider has retried, and its error says what to do
	}
	return aws.Credentials{AccessKeyID: k.AccessKey, SecretAccessKey: k.SecretKey, SessionToken: k.SessionToken}, nil
}

// Refused reads the error reply to a request that Sign signed, and closes the body of the reply. The result again is
// true if the server refused the request because of a wrong local clock; the next Sign uses the server's clock.
func (c *Client) Refused(r *http.Response) (f *Fault, again bool) {
	f = faultOf(r)
	return f, f.Code == "RequestTimeTooSkewed" && !f.date.IsZero() && c.skew.CompareAndSwap(0, int64(time.Until(f.date)))
}

// Close closes idle connections. The caller must end all Objects and Uploads before it calls Close.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

func (c *Client) secure() bool { return c.base.Scheme == "https" }

func (c *Client) region(bucket string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r, ok := c.regions[bucket]; ok {
		return r
	}
	return c.o.Region
}

// mostRegions limits the regions that a client remembers.
const mostRegions = 1000

// learnRegion records the region of a bucket, and reports whether it was another one before.
func (c *Client) learnRegion(bucket, region string) bool {
	if region == "" || len(region) > 64 || c.region(bucket) == region {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.regions) >= mostRegions {
		clear(c.regions)
	}
	c.regions[bucket] = region
	return true
}

// URL returns the name of an object in messages, s3://bucket/key.
func URL(bucket, key string) string {
	if key == "" {
		return "s3://" + bucket
	}
	return "s3://" + bucket + "/" + key
}
