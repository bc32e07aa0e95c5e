// SPDX-License-Identifier: Apache-2.0

package nebulaio

import (
	"strconv"
	"strings"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// place is what a URL names: an object of an endpoint, or a path.
type place struct {
	path     string // not empty: a file of this machine
	endpoint string // empty: that of the options or the environment
	bucket   string
	key      string // may be empty where a prefix is meant
}

// String is the object's name in messages.
func (p place) String() string {
	if p.path != "" {
		return p.path
	}
	return "s3://" + p.bucket + "/" + p.key
}

// IsObjectURL reports whether a name is the URL of an object ("s3://bucket/key", "nebula://host:port/bucket/key" or, by
// TLS, "nebulas://host:port/bucket/key"). Any other name is a path.
func IsObjectURL(name string) bool {
	scheme, _, ok := strings.Cut(name, "://")
	return ok && (scheme == "s3" || scheme == "nebula" || scheme == "nebulas")
}

// parseURL tells objects from paths. Keys are taken as they stand: nothing in
// them is decoded.
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

// object is p with a key, or an error.
func (p place) object(url string) error {
	if p.path == "" && p.key == "" {
		return badURL(url, "names no object; expected a key behind the bucket")
	}
	return nil
}
