// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
)

// Cache holds the settings of the cache of upstream buckets.
type Cache struct {
	Directory string // directory of the entries; empty means the directory cache of the data directory
	Capacity  int64  // largest size of all entries in bytes; 0 means a share of the file system
	HighMark  int    // per cent of Capacity at which eviction begins
	LowMark   int    // per cent of Capacity at which eviction ends
}

// Upstream holds the settings of one bucket that is kept by another S3 server.
type Upstream struct {
	Endpoint string
	Bucket   string // name of the bucket at Endpoint; empty means the name of the local bucket
	Prefix   string
	Region   string

	// AccessKeyEnv, SecretKeyEnv and SessionTokenEnv are the names of environment variables.
	AccessKeyEnv, SecretKeyEnv, SessionTokenEnv string
	// CredentialsFile and Profile select a profile of a credentials file of the AWS tools.
	CredentialsFile, Profile string
	AddressingStyle          string // where requests name the bucket: "path", or "virtual" for the host name
	CAFile                   string
	InsecureTLS              bool

	Validate     string // when a cached object is compared with the upstream: "always", "ttl" or "immutable"
	TTL          time.Duration
	Immutable    []string // patterns of keys that never change
	Write        string   // whether writes are allowed: "through" or "none"
	StaleIfError time.Duration
	FirstByte    time.Duration
	Stall        time.Duration // 0 means twice FirstByte, and at least 1 s
	Pin          []string      // patterns of keys that are not evicted
}

// BucketAt returns the name of the bucket at the endpoint for the local bucket with the given name.
func (u *Upstream) BucketAt(local string) string {
	if u.Bucket != "" {
		return u.Bucket
	}
	return local
}

// NeverChanges reports whether the settings declare that the object with the given key never changes.
func (u *Upstream) NeverChanges(key string) bool {
	return u.Validate == "immutable" || matchesAny(u.Immutable, key)
}

// Pinned reports whether the settings keep the object with the given key from being evicted.
func (u *Upstream) Pinned(key string) bool { return matchesAny(u.Pin, key) }

// matchesAny reports whether a key matches a pattern. A * of a pattern matches any text, also across slashes.
func matchesAny(patterns []string, key string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return wild(p, key) })
}

// wild reports whether text matches a pattern with * and ?. The time of wild is bounded by the product of both lengths.
func wild(pattern, text string) bool {
	p, t, star, back := 0, 0, -1, 0
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, back = p, t
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == text[t]):
			p++
			t++
		case star >= 0:
			back++
			p, t = star+1, back
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// anyBucket stands for the name of an upstream bucket in the names of keys.
const anyBucket = "BUCKET"

// mostUpstreams is the largest number of upstream buckets.
const mostUpstreams = 256

// upstreamFields returns the settings of the upstream bucket with the given name.
func upstreamFields(bucket string) []field {
	at := func(pick func(*Upstream) any) func(*Config) any {
		return func(c *Config) any { return pick(c.Upstream[bucket]) }
	}
	day := int64(24 * time.Hour)
	return []field{
		{Key: Key{Name: "endpoint", Type: Text,
			Help: "URL of the S3 server that keeps the objects of the bucket, such as https://s3.example.com. Each " +
				"upstream bucket needs an endpoint."},
			bind: at(func(u *Upstream) any { return &u.Endpoint }), check: endpoint},
		{Key: Key{Name: "bucket", Type: Text,
			Help: "Name of the bucket at the endpoint. If bucket is not set, the bucket has the same name at the endpoint."},
			bind: at(func(u *Upstream) any { return &u.Bucket }), check: bucketName},
		{Key: Key{Name: "prefix", Type: Text,
			Help: "Beginning of the keys at the endpoint that belong to the bucket. Clients of this server see the keys " +
				"without the prefix."},
			bind: at(func(u *Upstream) any { return &u.Prefix })},
		{Key: Key{Name: "region", Type: Text, Default: "us-east-1",
			Help: "Region for which requests to the endpoint are signed."},
			bind: at(func(u *Upstream) any { return &u.Region }), check: region},
		{Key: Key{Name: "access_key_env", Type: Text,
			Help: "Name of the environment variable that holds the access key for the endpoint; requires " +
				"secret_key_env. Without credentials, requests to the endpoint are not signed."},
			bind: at(func(u *Upstream) any { return &u.AccessKeyEnv }), check: variableName},
		{Key: Key{Name: "secret_key_env", Type: Text,
			Help: "Name of the environment variable that holds the secret key for the endpoint."},
			bind: at(func(u *Upstream) any { return &u.SecretKeyEnv }), check: variableName},
		{Key: Key{Name: "session_token_env", Type: Text,
			Help: "Name of the environment variable that holds the session token for the endpoint."},
			bind: at(func(u *Upstream) any { return &u.SessionTokenEnv }), check: variableName},
		{Key: Key{Name: "credentials_file", Type: Text,
			Help: "File with profiles of credentials in the format of the AWS tools. The server reads the file at its start."},
			bind: at(func(u *Upstream) any { return &u.CredentialsFile })},
		{Key: Key{Name: "profile", Type: Text,
			Help: "Profile of credentials_file that holds the credentials for the endpoint. If profile is set without " +
				"credentials_file, the file is ~/.aws/credentials of the server's user."},
			bind: at(func(u *Upstream) any { return &u.Profile })},
		{Key: Key{Name: "addressing_style", Type: Choice, Default: "path", Choices: []string{"path", "virtual"},
			Help: "How requests name the bucket at the endpoint: in the path (path), or in front of the host name of the " +
				"endpoint (virtual). Endpoints of Amazon always get the bucket in the host name."},
			bind: at(func(u *Upstream) any { return &u.AddressingStyle })},
		{Key: Key{Name: "ca_file", Type: Text,
			Help: "PEM file with additional certificate authorities for the endpoint."},
			bind: at(func(u *Upstream) any { return &u.CAFile })},
		{Key: Key{Name: "insecure_tls", Type: Bool, Default: "false",
			Help: "Accept any TLS certificate of the endpoint. Only for tests: anybody between this server and the " +
				"endpoint can then change the content."},
			bind: at(func(u *Upstream) any { return &u.InsecureTLS })},
		{Key: Key{Name: "validate", Type: Choice, Default: "always", Choices: []string{"always", "ttl", "immutable"},
			Help: "When a cached object is compared with the endpoint: at each open (always), if the last comparison is " +
				"older than the setting ttl (ttl), or never (immutable). A read of a named version is never compared, " +
				"because a version never changes."},
			bind: at(func(u *Upstream) any { return &u.Validate })},
		{Key: Key{Name: "ttl", Type: Duration, Default: "1m", Min: 0, Max: 365 * day,
			Help: "Age of the last comparison up to which validate: ttl serves a cached object without a request to the " +
				"endpoint."},
			bind: at(func(u *Upstream) any { return &u.TTL })},
		{Key: Key{Name: "immutable", Type: List,
			Help: "Patterns with * and ? of keys whose objects never change. Objects that match a pattern are treated as " +
				"with validate: immutable."},
			bind: at(func(u *Upstream) any { return &u.Immutable }), check: keyPattern},
		{Key: Key{Name: "write", Type: Choice, Default: "through", Choices: []string{"through", "none"},
			Help: "Whether clients may change objects of the bucket. With through, a change succeeds when the endpoint " +
				"has confirmed it. With none, changes are refused."},
			bind: at(func(u *Upstream) any { return &u.Write })},
		{Key: Key{Name: "stale_if_error", Type: Duration, Default: "24h", Min: 0, Max: 3650 * day,
			Help: "Age of the last comparison up to which cached objects are served while the endpoint does not answer. " +
				"A stale reply has the header x-nebulaio-cache: stale. Objects that never change have no limit."},
			bind: at(func(u *Upstream) any { return &u.StaleIfError })},
		{Key: Key{Name: "first_byte", Type: Duration, Default: "5s", Min: int64(100 * time.Millisecond),
			Max: int64(10 * time.Minute),
			Help: "Time in which the endpoint must begin its reply. After that time the request fails. A cached object is " +
				"served as stale after a fifth of that time, if stale_if_error allows it."},
			bind: at(func(u *Upstream) any { return &u.FirstByte })},
		{Key: Key{Name: "stall", Type: Duration, Default: "0s", Min: 0, Max: int64(10 * time.Minute),
			Help: "Time in which further bytes of a reply or a request must pass between this server and the endpoint. " +
				"After that time a read or a write fails. 0 means twice first_byte, and at least 1s."},
			bind: at(func(u *Upstream) any { return &u.Stall })},
		{Key: Key{Name: "pin", Type: List,
			Help: "Patterns with * and ? of keys whose cached objects are not evicted."},
			bind: at(func(u *Upstream) any { return &u.Pin }), check: keyPattern},
	}
}

// cacheFields returns the settings of the cache of upstream buckets.
func cacheFields() []field {
	return []field{
		{Key: Key{Name: "cache.directory", Type: Text,
			Help: "Directory of the cache of upstream buckets, best on a local NVMe disk. If cache.directory is not set, " +
				"the cache is the directory cache of the data directory. A new cache directory is created at the start."},
			bind: func(c *Config) any { return &c.Cache.Directory }},
		{Key: Key{Name: "cache.capacity", Type: Size, Default: "0", Min: 0, Max: 1 << 20 * gib,
			Help: "Largest size in bytes of all cached objects together. 0 means four fifths of the file system of the " +
				"cache directory."},
			bind: func(c *Config) any { return &c.Cache.Capacity }},
		{Key: Key{Name: "cache.high_watermark", Type: Number, Default: "90", Min: 1, Max: 100,
			Help: "Per cent of cache.capacity at which the server begins to evict objects from the cache."},
			bind: func(c *Config) any { return &c.Cache.HighMark }},
		{Key: Key{Name: "cache.low_watermark", Type: Number, Default: "85", Min: 1, Max: 100,
			Help: "Per cent of cache.capacity at which the server stops to evict objects from the cache."},
			bind: func(c *Config) any { return &c.Cache.LowMark }},
	}
}

// Upstreams returns the names of the upstream buckets in order.
func (c *Config) Upstreams() []string { return namesOf(c.Upstream) }

// checkUpstreams checks settings of upstream buckets and the cache that depend on each other.
func (c *Config) checkUpstreams(bad func(name, msg, fix string) error) error {
	if c.Cache.LowMark > c.Cache.HighMark {
		return bad("cache.low_watermark", fmt.Sprintf("is %d and cache.high_watermark is %d", c.Cache.LowMark,
			c.Cache.HighMark), "give the low watermark a smaller number")
	}
	for _, name := range c.Upstreams() {
		u, key := c.Upstream[name], func(s string) string { return "upstream." + name + "." + s }
		switch {
		case u.Endpoint == "":
			return errs.New(errs.Invalid, "read configuration", key("endpoint"),
				"is not set").WithFix("set the URL of the S3 server that keeps the bucket " + name)
		case (u.AccessKeyEnv == "") != (u.SecretKeyEnv == ""):
			return errs.New(errs.Invalid, "read configuration", "upstream."+name,
				"only one of access_key_env and secret_key_env is set").WithFix("set both or none")
		case u.SessionTokenEnv != "" && u.AccessKeyEnv == "":
			return bad(key("session_token_env"), "is set and access_key_env is not", "set both")
		case u.AccessKeyEnv != "" && (u.CredentialsFile != "" || u.Profile != ""):
			return bad(key("access_key_env"), "is set, and credentials_file or profile too", "leave one of them out")
		}
	}
	return nil
}

func endpoint(s string) string {
	const expected = "expected http://host:port or https://host"
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return "is no URL of a server; " + expected
	case u.User != nil:
		return "has a user name or a password in it; " + expected
	case u.RawQuery != "" || u.Fragment != "":
		return "has a query or a fragment; " + expected
	}
	return ""
}

// bucketName refuses names that no S3 server accepts as the name of a bucket.
func bucketName(s string) string {
	if len(s) < 3 || len(s) > 63 || strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '.'
	}) || strings.ContainsRune("-.", rune(s[0])) || strings.ContainsRune("-.", rune(s[len(s)-1])) ||
		strings.Contains(s, "..") {
		return "is no name of a bucket; expected 3 to 63 letters in lower case, digits, dashes and dots"
	}
	return ""
}

func variableName(s string) string {
	if s == "" || len(s) > 128 || s[0] >= '0' && s[0] <= '9' || strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_'
	}) {
		return "is no name of an environment variable; expected letters, digits and _, such as UPSTREAM_SECRET_KEY"
	}
	return ""
}

func keyPattern(s string) string {
	if s == "" || path.IsAbs(s) {
		return "is no pattern of keys; expected letters with * and ?, such as models/*"
	}
	return ""
}
