// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// place is the object or file that a URL or path names.
type place struct {
	path     string // path of a file; empty for an object
	endpoint string // empty if the options or the environment give it
	bucket   string
	key      string // may be empty if the key is a prefix
}

// String returns the name of the object or file for messages.
func (p place) String() string {
	if p.path != "" {
		return p.path
	}
	return "s3://" + p.bucket + "/" + p.key
}

// IsObjectURL reports whether name is the URL of an object and not the path of a file. The schemes of object URLs are
// "s3", "nebula" and, for TLS, "nebulas".
func IsObjectURL(name string) bool {
	scheme, _, ok := strings.Cut(name, "://")
	return ok && (scheme == "s3" || scheme == "nebula" || scheme == "nebulas")
}

// parseURL parses the URL of an object or the path of a file. Percent signs in keys are not decoded.
func parseURL(url string) (place, error) {
	if url == "" {
		return place{}, errs.New(errs.Invalid, "open", `""`,
			"is empty; expected s3://bucket/key, nebula://host:port/bucket/key or a path")
	}
	if !IsObjectURL(url) {
		return place{path: url}, nil
	}
	scheme, rest, _ := strings.Cut(url, "://")
	p := place{}
	if scheme != "s3" {
		var host string
		host, rest, _ = strings.Cut(rest, "/")
		if host == "" {
			return place{}, badURL(url, "names no host; expected "+scheme+"://host:port/bucket/key")
		}
		if p.endpoint = "http://" + host; scheme == "nebulas" {
			p.endpoint = "https://" + host
		}
	}
	if p.bucket, p.key, _ = strings.Cut(rest, "/"); p.bucket == "" {
		return place{}, badURL(url, "names no bucket; expected "+scheme+"://…bucket/key")
	}
	return p, nil
}

func badURL(url, msg string) error {
	return errs.New(errs.Invalid, "open", strconv.Quote(url), msg)
}

// object returns an error if p names a bucket without a key.
func (p place) object(url string) error {
	if p.path == "" && p.key == "" {
		return badURL(url, "names no object; expected a key behind the bucket")
	}
	return nil
}
