// SPDX-License-Identifier: Apache-2.0

package console

import (
	"net"
	"net/netip"
	"net/url"
	"time"

	"github.com/nebulaio/nebulaio/internal/store/s3"
)

// share answers POST buckets/{bucket}/share with a presigned URL of the S3 address. The URL has the rights of the user,
// and ends with them.
func (c objectPage) share() (any, error) {
	var in struct {
		Key     string `json:"key"`
		Version string `json:"version"`
		Seconds int64  `json:"seconds"`
	}
	if err := c.decode(&in); err != nil {
		return nil, err
	}
	if in.Seconds < 1 || in.Seconds > int64(s3.MaxPresign/time.Second) {
		return nil, invalid("seconds is out of range; expected 1 to 604800", "")
	}
	// A link that the user may not read would fail for everybody.
	if _, err := c.head(in.Key, in.Version); err != nil {
		return nil, err
	}
	now := c.opts.Now()
	expires := time.Duration(in.Seconds) * time.Second
	if end := c.user.Account.Expires; !end.IsZero() && end.Before(now.Add(expires)) {
		expires = max(end.Sub(now).Truncate(time.Second), time.Second) // a link ends with the keys that signed it
	}
	keys := s3.Credentials{AccessKey: c.user.Account.AccessKey, SecretKey: c.user.Account.Secret,
		SessionToken: c.user.Account.Token}
	link, err := s3.PresignGet(c.r.Context(), shareEndpoint(c.Endpoint, c.r.Host), c.name(), in.Key, in.Version, keys,
		c.opts.Config.Region, now, expires)
	if err != nil {
		return nil, err
	}
	return map[string]any{"url": link, "expires": now.Add(expires)}, nil
}

// shareEndpoint returns the S3 address as the user's machine can reach it. If the user reached the console under an IP
// address and the S3 address has a host name, that IP address is used. Other names are not taken from the request.
func shareEndpoint(endpoint *url.URL, host string) *url.URL {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	own := endpoint.Hostname()
	if _, err := netip.ParseAddr(own); err == nil || own == "localhost" {
		return endpoint // the server listens on one address
	}
	if _, err := netip.ParseAddr(name); err != nil || endpoint.Scheme == "https" {
		return endpoint // a certificate holds for the name
	}
	u := *endpoint
	u.Host = net.JoinHostPort(name, endpoint.Port())
	return &u
}
