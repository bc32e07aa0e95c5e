// SPDX-License-Identifier: Apache-2.0

// Package config is the server's configuration: one table of keys, read from a
// YAML file, the environment and flags, with the source of each value.
//
// A flag wins over the environment, which wins over the file, which wins over the default. Load refuses a key that is
// not in the table, a value of another type and a key given twice. The error names the place, the value and the nearest
// known key. A setting without effect is refused, too. A few such settings are common in files of other systems: Load
// accepts them, and Notes says that they have no effect.
package config

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/units"
)

// Config holds the settings of the server. Load makes it; it is not changed afterwards.
type Config struct {
	Data           string
	Address        string
	ConsoleAddress string
	Region         string
	Domains        []string // of virtual-hosted requests; none: only path-style ones

	RootUser                string // both empty: the well-known default pair
	RootPassword            string
	AllowDefaultCredentials bool
	GenerateRootKeys        bool // both empty: a pair of the store's own instead, made at its first start

	VerifyReads string // first, always, never
	ETag        string // md5, crc64nvme
	ETagBuckets map[string]string
	InlineSize  int64
	MemoryLimit int64

	TLS    TLS
	Limits Limits

	DrainTimeout time.Duration
	Scrub        Scrub
	Uploads      Uploads

	LogLevel  string // debug, info, warn, error
	LogFormat string // auto, text, json
	AccessLog bool
	PProf     bool

	GPUDirect       GPUDirect
	S3Express, RDMA bool

	sources map[string]Source
}

// TLS says which certificate both addresses answer with; none: plain HTTP.
type TLS struct {
	Cert, Key string
	Generate  bool
	Hosts     []string
}

// Enabled reports whether the server speaks TLS.
func (t TLS) Enabled() bool { return t.Generate || t.Cert != "" }

// Limits bound the connections, requests and times that clients can take up.
type Limits struct {
	Connections int
	Requests    int
	HeaderBytes int64
	Idle        time.Duration
	Header      time.Duration
	Stall       time.Duration
}

// Scrub holds how often and how fast all content is read and checked.
type Scrub struct {
	Interval time.Duration // 0: never by itself
	Rate     int64         // bytes a second; 0: as fast as it goes
}

// Uploads holds when the server aborts multipart uploads that get no more parts.
type Uploads struct {
	Expire time.Duration // after the last part, or the beginning; 0: never
}

// GPUDirect holds the settings of the door for GPUDirect clients.
type GPUDirect struct {
	Enabled         bool
	Socket          string // empty: gpudirect.sock in the data directory
	BufferPoolSize  int64
	EnableAsync     bool
	DeviceIDs       []string // numbers; see Devices
	MaxTransferSize int64    // largest range that the door grants as one transfer, in bytes
	EnableP2P       bool
	QueueDepth      int
	IdleTimeout     time.Duration
	MaxConnections  int
	MaxHandles      int
	MaxDraftBytes   int64
	ReadOnlyMount   bool // where the server may make one
}

// Devices returns the indices of the GPUs that clients may use. None means all.
func (g GPUDirect) Devices() []int {
	var all []int
	for _, text := range g.DeviceIDs {
		if n, err := strconv.Atoi(text); err == nil { // the table lets nothing else in
			all = append(all, n)
		}
	}
	return all
}

// Bounds that clients of the door have of their own. A larger setting of the door has no effect on them.
const (
	// ClientPoolSize is the staging memory that the engine of a client uses at most, if its caller has not chosen a size.
	ClientPoolSize = 128 * mib
	// ClientQueueDepth is the number of direct reads in flight that the engine of a client uses at most, likewise.
	ClientQueueDepth = 16
)

// NoRDMA says why rdma.enabled has no effect in this version.
const NoRDMA = "there is no RDMA transport in this version: clients on other hosts move objects over TCP, those on " +
	"this host through the GPUDirect door"

// Notes returns one sentence for each setting that was accepted and has less effect than its value says. Each begins
// with the name of its key. A default that has less effect is documented, and gets no note.
func (c *Config) Notes() []string {
	var all []string
	if c.RDMA {
		all = append(all, "rdma.enabled is true, and "+NoRDMA)
	}
	chosen := func(key string) bool { return c.Source(key).Origin != FromDefault }
	g := &c.GPUDirect
	if g.BufferPoolSize > ClientPoolSize && chosen("gpudirect.buffer_pool_size") {
		all = append(all, fmt.Sprintf("gpudirect.buffer_pool_size is %s, but clients use at most %s unless they choose a "+
			"size themselves",
			units.Bytes(g.BufferPoolSize), units.Bytes(ClientPoolSize)))
	}
	if g.QueueDepth > ClientQueueDepth && chosen("gpudirect.queue_depth") {
		all = append(all, fmt.Sprintf("gpudirect.queue_depth is %d, but clients use at most %d unless they choose a depth "+
			"themselves",
			g.QueueDepth, ClientQueueDepth))
	}
	return all
}

// Origin is where a value came from.
type Origin string

// The origins, weakest first.
const (
	FromDefault Origin = "default"
	FromFile    Origin = "file"
	FromEnv     Origin = "environment"
	FromFlag    Origin = "flag"
)

// Source is where a value came from. Where is its exact place: file:line, the name of a variable or of a flag, or empty
// for a default.
type Source struct {
	Origin Origin `json:"origin"`
	Where  string `json:"where,omitempty"`
}

// String is the source in words.
func (s Source) String() string {
	switch s.Origin {
	case FromFile, FromFlag:
		return s.Where
	case FromEnv:
		return "$" + s.Where
	}
	return string(FromDefault)
}

// Value is one key with its value and the value's source.
type Value struct {
	Key    Key
	Text   string // as it would be written; masked where the key is secret
	Source Source
}

// Values lists every key with its value, in the order of the table.
func (c *Config) Values() []Value {
	var all []Value
	for _, f := range table() {
		v := Value{Key: f.Key, Text: render(f.bind(c)), Source: c.Source(f.Name)}
		if f.Secret && v.Text != "" {
			v.Text = "********"
		}
		all = append(all, v)
	}
	return all
}

// Source returns where the value of a key came from.
func (c *Config) Source(name string) Source {
	if s, ok := c.sources[name]; ok {
		return s
	}
	return Source{Origin: FromDefault}
}

// ETagOf returns the kind of ETag for a new bucket of this name. The longest pattern of etag_buckets that matches the
// name decides, and etag if none matches. Of two patterns of the same length, the first in byte order decides.
func (c *Config) ETagOf(bucket string) string {
	patterns := make([]string, 0, len(c.ETagBuckets))
	for p := range c.ETagBuckets {
		patterns = append(patterns, p)
	}
	slices.SortFunc(patterns, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	for _, p := range patterns {
		if ok, err := path.Match(p, bucket); err == nil && ok {
			return c.ETagBuckets[p]
		}
	}
	return c.ETag
}
