// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/internal/store/s3"
	"github.com/nebulaio/nebulaio/report"
)

// discoveryPath is the URL path at which an endpoint describes its door. It begins with ".", as no bucket's name
// does.
const discoveryPath = "/.nebulaio/gpudirect"

// maxDiscovery is the largest size of the answer in bytes, and discoveryTime the longest wait for it.
const (
	maxDiscovery  = 64 << 10
	discoveryTime = 5 * time.Second
	// retryAfter is the time after which the client looks again for a door that it could not use.
	retryAfter = 30 * time.Second
)

// discover asks the endpoint for its door. The request is signed, because a server answers only its own accounts.
func (c *Client) discover(ctx context.Context) (wire.Discovery, error) {
	const op = "look for door"
	endpoint := c.opt.Endpoint
	ctx, cancel := context.WithTimeout(ctx, discoveryTime)
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(endpoint, "/")+discoveryPath, nil)
		if err != nil {
			return wire.Discovery{}, errs.Wrap(op, endpoint, err)
		}
		if err := c.network.s3.Sign(ctx, req); err != nil {
			return wire.Discovery{}, errs.Wrap(op, endpoint, err)
		}
		resp, err := c.http.Do(req)
		if err != nil {
			return wire.Discovery{}, &errs.Error{Kind: errs.IO, Op: op, Name: endpoint, Err: err,
				Fix: "see whether the server runs and the endpoint is right"}
		}
		if resp.StatusCode != http.StatusOK {
			fault, again := c.network.s3.Refused(resp)
			if again { // at most once: then the server's clock is known
				continue
			}
			return wire.Discovery{}, undiscovered(endpoint, resp.Status, fault)
		}
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxDiscovery))
		_ = resp.Body.Close() // it was read
		if err != nil {
			return wire.Discovery{}, &errs.Error{Kind: errs.IO, Op: op, Name: endpoint, Err: err}
		}
		return parseDiscovery(body, endpoint)
	}
}

// undiscovered returns an error with the reason why an endpoint did not describe a door.
func undiscovered(endpoint, status string, f *s3.Fault) error {
	const op = "look for door"
	fix := ""
	switch f.Code {
	case "InvalidAccessKeyId", "SignatureDoesNotMatch":
		fix = "check the access key and the secret key"
	case "ExpiredToken", "InvalidToken":
		fix = "get new temporary keys, and give their session token too"
	case "RequestTimeTooSkewed":
		fix = "set this machine's clock"
	default:
		return errs.New(errs.Unsupported, op, endpoint, fmt.Sprintf("it answers %s: the server is not NebulaIO, or one "+
			"without a door", status)).
			WithFix("none needed: HTTP is used")
	}
	return errs.New(errs.Permission, op, endpoint, "it does not accept this client's signature: "+f.Error()).WithFix(fix)
}

func parseDiscovery(body []byte, endpoint string) (wire.Discovery, error) {
	const op = "look for door"
	var d wire.Discovery
	if err := json.Unmarshal(body, &d); err != nil {
		return wire.Discovery{}, errs.New(errs.Unsupported, op, endpoint,
			"its answer is not what a NebulaIO server says of its door").WithFix("none needed: HTTP is used")
	}
	switch {
	case d.Version != 1:
		return wire.Discovery{}, errs.New(errs.Unsupported, op, endpoint,
			fmt.Sprintf("it speaks of doors in version %d, expected 1",
				d.Version)).WithFix("use a client and a server of one release")
	case !d.Enabled:
		if d.Reason == "" {
			d.Reason = "the server's door is off"
		}
		if d.Fix == "" {
			d.Fix = "set gpudirect.enabled: true in the server's configuration"
		}
		return wire.Discovery{}, errs.New(errs.Unsupported, op, endpoint, d.Reason).WithFix(d.Fix)
	case !strings.HasPrefix(d.Socket, "/"):
		return wire.Discovery{}, errs.New(errs.Invalid, op, endpoint,
			fmt.Sprintf("it names the socket %q, expected an absolute path", d.Socket))
	}
	return d, nil
}

// way is the way to the server: the door or HTTP.
type way struct {
	door    *door // nil if HTTP is used
	refused *report.Refusal
	err     error // if not nil, the server cannot be used
	until   time.Time
}

// wayNow returns the way in use, or nil if it has to be looked for.
func (c *Client) wayNow() *way {
	w := c.way.Load()
	if w == nil || w.door == nil && time.Now().After(w.until) || w.door != nil && w.door.broken.Load() {
		return nil
	}
	return w
}

// find returns the way to the server: the door if it works, and HTTP with the reason otherwise. It fails if the door
// does not work and the options do not allow HTTP.
func (c *Client) find(ctx context.Context) (*way, error) {
	w := c.wayNow()
	if w == nil {
		c.finding.Lock()
		defer c.finding.Unlock()
		if w = c.wayNow(); w == nil {
			w = c.look(ctx)
			if ctx.Err() != nil && w.door == nil {
				return nil, errs.Wrap("look for door", c.opt.Endpoint, context.Cause(ctx))
			}
			if old := c.way.Swap(w); old != nil && old.door != nil {
				old.door.close() // the old door is broken, and nothing uses it
			}
		}
	}
	if w.err != nil {
		return nil, w.err
	}
	return w, nil
}

func (c *Client) look(ctx context.Context) *way {
	w := &way{until: time.Now().Add(retryAfter)}
	if c.opt.Door == doorOff {
		w.until = time.Now().Add(100 * 365 * 24 * time.Hour) // never look again
		w.refused = &report.Refusal{What: "door", On: c.opt.Endpoint, Reason: "door off was asked for",
			Fix: "leave the door on auto"}
		return w
	}
	on, path, store := c.opt.Endpoint, c.opt.Door, ""
	refuse := func(err error) *way {
		if c.opt.Door != doorAuto {
			w.err, w.until = errs.Wrap("use door", on, err), time.Now() // the next call looks again
			return w
		}
		w.refused = &report.Refusal{What: "door", On: on, Reason: reason(err), Fix: errs.FixOf(err)}
		return w
	}
	if c.opt.AccessKey == "" {
		return refuse(errs.New(errs.Permission, "log in at door", "",
			"the door takes no anonymous clients").WithFix("give an access key and a secret key"))
	}
	if c.opt.Door == doorAuto || c.opt.Door == doorRequire {
		d, err := c.discover(ctx)
		if err != nil {
			return refuse(err)
		}
		path, store = d.Socket, d.Store
	}
	on = path
	d, err := openDoor(ctx, path, store, c.opt.AccessKey, c.opt.SecretKey, c.opt.Agent)
	switch {
	case err == nil:
		w.door = d
		g := d.settings()
		// Running transfers keep their buffers.
		c.opt.Engine.Bound(g.BufferPoolSize, int(min(g.QueueDepth, math.MaxInt32)))
	case codeOf(err) == wire.CodeAccessDenied:
		w.err, w.until = err, time.Now() // a wrong key is wrong at every door; the next call may have another server
	default:
		return refuse(err)
	}
	return w
}

// reason returns the text of an error without its fix, which is a field of its own.
func reason(err error) string {
	text := err.Error()
	if fix := errs.FixOf(err); fix != "" {
		text = strings.Replace(text, " (fix: "+fix+")", "", 1)
	}
	return text
}
