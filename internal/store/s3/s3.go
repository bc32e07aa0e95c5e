// SPDX-License-Identifier: Apache-2.0

// Package s3 is a client of any S3 endpoint, made for moving large content: ranged
// reads that a caller takes straight off the socket, and parts that go onto it from the
// caller's own blocks.
//
// What breaks on the way is taken up again where it broke off, with a pause
// that grows, and every read asks for the version that the first reply named: a
// caller gets the bytes of one version or one error.
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

// Options say where the server is and who asks.
type Options struct {
	// Endpoint is the server's URL, "http://host:port" or "https://host".
	Endpoint string
	Region   string // default us-east-1; a server that names another one is believed
	// AccessKey empty asks without a signature, as anybody.
	AccessKey, SecretKey, SessionToken string
	// Connections is how many requests at once carry one object; default 16.
	Connections int
	// CAFile holds further certificates, in PEM, that servers may be signed by.
	CAFile      string
	InsecureTLS bool // takes any certificate
	// Timeout is for how long nothing may move on a connection; default 30 s.
	Timeout time.Duration
	// Retries is how often what fails is tried again without any progress; default 5, negative never.
	Retries int
	// SignBodies makes the content part of the signature over plain HTTP too, for
	// servers that insist. Objects larger than one request need TLS then.
	SignBodies bool
}

// Defaults and bounds of Options.
const (
	DefaultConnections = 16
	DefaultTimeout     = 30 * time.Second
	DefaultRetries     = 5
	DefaultRegion      = "us-east-1"
	mostConnections    = 256
	mostRetries        = 100
)

// Client talks to one endpoint. It is safe for concurrent use.
type Client struct {
	o      Options
	base   *url.URL
	http   *http.Client
	signer *v4.Signer
	creds  aws.Credentials
	join   *checksum.Joiner

	skew   atomic.Int64 // nanoseconds that the server's clock is ahead
	noSums atomic.Bool  // the server refuses checksums that it does not know

	mu      sync.Mutex
	regions map[string]string // of buckets that told theirs

	// wait, in tests, stands for the pause before a repetition.
	wait func(ctx context.Context, d time.Duration) error
}

// New returns a client; it connects with the first request. Kind Invalid for
// options that make no sense, NotFound and others for a CAFile that cannot be read.
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

// Sign signs a request without a body that some other client sends to the endpoint. It is signed for
// DefaultRegion, which every server of ours accepts for requests that come before a client knows the region.
// Without credentials it does nothing.
func (c *Client) Sign(ctx context.Context, r *http.Request) error {
	if c.creds.AccessKeyID == "" {
		return nil
	}
	r.Header.Set("X-Amz-Content-Sha256", emptyHash)
	at := time.Now().Add(time.Duration(c.skew.Load()))
	return errs.Wrap("sign request for", r.URL.Path, c.signer.SignHTTP(ctx, c.creds, r, emptyHash, "s3", DefaultRegion,
		at))
}

// Refused reads the refusal of a request that Sign has signed, and closes its body. again says that this clock
// differs from the server's: a request that is signed anew goes by the server's clock.
func (c *Client) Refused(r *http.Response) (f *Fault, again bool) {
	f = faultOf(r)
	return f, f.Code == "RequestTimeTooSkewed" && !f.date.IsZero() && c.skew.CompareAndSwap(0, int64(time.Until(f.date)))
}

// Close closes connections that carry nothing. Objects and uploads are ended before.
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

// mostRegions bounds what servers can make a client remember.
const mostRegions = 1000

// learnRegion reports whether the region of a bucket was another one so far.
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

// URL is how an object is named in messages.
func URL(bucket, key string) string {
	if key == "" {
		return "s3://" + bucket
	}
	return "s3://" + bucket + "/" + key
}
