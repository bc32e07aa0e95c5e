// SPDX-License-Identifier: Apache-2.0

// Package config reads the server's configuration from a YAML file, the environment and flags. The function Keys
// lists all settings, and a Config records the source of each value.
//
// If a setting has several values, a flag wins over the environment, the environment over the file, and the file over
// the default. Load refuses an unknown key, a value of the wrong type and a key that is given twice. The error of
// Load names the file and line, the value and the most similar known key. Load refuses most settings that would have
// no effect. Config.Notes lists the few accepted settings that have less effect than their values say.
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

// Config holds the settings of the server. A Config is read-only after Load has returned it.
type Config struct {
	Data           string
	Address        string
	ConsoleAddress string
	Region         string
	Console        Console
	// Domains are the host names of virtual-hosted requests. If Domains is empty, only path-style requests are
	// accepted.
	Domains []string

	RootUser                string // access key of the administrator; empty if not set (see GenerateRootKeys)
	RootPassword            string
	AllowDefaultCredentials bool
	// GenerateRootKeys makes the first start of a store generate the administrator's keys if RootUser and
	// RootPassword are empty. If RootUser and RootPassword are empty and GenerateRootKeys is false, the server uses
	// the well-known default keys.
	GenerateRootKeys bool

	VerifyReads string // when a read compares content with its checksums: "first", "always" or "never"
	ETag        string // kind of ETag for new buckets: "md5" or "crc64nvme"
	ETagBuckets map[string]string
	// ObjectOwnership is the S3 object ownership of a new bucket whose creator names none.
	ObjectOwnership string
	InlineSize      int64
	MemoryLimit     int64

	TLS    TLS
	Limits Limits

	DrainTimeout time.Duration
	Scrub        Scrub
	Uploads      Uploads
	Lifecycle    Lifecycle

	LogLevel  string // lowest level of logged messages: "debug", "info", "warn" or "error"
	LogFormat string // format of the log: "auto", "text" or "json"
	AccessLog bool
	PProf     bool

	GPUDirect  GPUDirect
	S3Express  S3Express
	Encryption Encryption
	Cluster    Cluster
	RDMA       bool

	Cache Cache
	// Upstream holds the settings of the buckets that other S3 servers keep, by the names of the local buckets.
	Upstream map[string]*Upstream

	STS STS
	// OIDC holds the settings of the OpenID Connect providers, by their names.
	OIDC map[string]*OIDC
	// Replication holds the settings of the targets of bucket replication, by their names.
	Replication map[string]*Replication

	Audit  Audit
	Events Events
	// EventTarget holds the settings of the receivers of event notifications, by their names.
	EventTarget map[string]*EventTarget

	sources map[string]Source
}

// Console holds the settings of the web console.
type Console struct {
	Enabled        bool
	AllowPlainHTTP bool
	Hosts          []string // names under which browsers reach the console over plain HTTP
	Benchmarks     string   // directory with results of nebulaio bench; empty means none
}

// TLS names the certificate of the S3 address and the console address. Without a certificate, the S3 address and the
// console address use plain HTTP.
type TLS struct {
	Cert, Key string
	Generate  bool
	Hosts     []string
	Kernel    string // where replies are encrypted: "auto" or "off"
}

// Enabled reports whether the server uses TLS.
func (t TLS) Enabled() bool { return t.Generate || t.Cert != "" }

// Limits bound the number of S3 connections and requests, the size of request headers and the time that clients may
// take.
type Limits struct {
	Connections int
	Requests    int
	HeaderBytes int64
	Idle        time.Duration
	Header      time.Duration
	Stall       time.Duration
}

// Scrub configures the background scrub, which reads all content and compares it with its checksums.
type Scrub struct {
	Interval time.Duration // time between two scrubs; 0 means no background scrubs
	Rate     int64         // largest number of bytes that the scrub reads per second; 0 means no limit
}

// Uploads configures the expiry of multipart uploads that get no new parts.
type Uploads struct {
	// Expire is the time from the last part, or from the beginning of an upload without parts, to the abort of the
	// upload; 0 means never.
	Expire time.Duration
}

// GPUDirect holds the settings of the door, the local socket for GPUDirect clients.
type GPUDirect struct {
	Enabled         bool
	Socket          string // path of the door's socket; empty means gpudirect.sock in the data directory
	BufferPoolSize  int64
	EnableAsync     bool
	DeviceIDs       []string // indices of the GPUs that door clients may use, as decimal numbers; see Devices
	MaxTransferSize int64    // largest range of an object in bytes that the door grants as one transfer
	EnableP2P       bool
	QueueDepth      int
	IdleTimeout     time.Duration
	MaxConnections  int
	MaxHandles      int
	MaxDraftBytes   int64
	ReadOnlyMount   bool // whether door clients get files through a read-only mount, if the server may make one
}

// Devices returns the indices of the GPUs that clients of the door may use. If Devices returns an empty list, clients
// may use all GPUs.
func (g GPUDirect) Devices() []int {
	var all []int
	for _, text := range g.DeviceIDs {
		if n, err := strconv.Atoi(text); err == nil { // Load accepts only numbers
			all = append(all, n)
		}
	}
	return all
}

// ClientPoolSize and ClientQueueDepth are the default limits of door clients. A setting of the door that is larger
// than the default limit has no effect on a client.
const (
	// ClientPoolSize is the largest amount of staging memory, in bytes, of a door client that has not chosen a size
	// itself.
	ClientPoolSize = 128 * mib
	// ClientQueueDepth is the largest number of direct reads that a door client has in flight if it has not chosen a
	// depth itself.
	ClientQueueDepth = 16
)

// NoRDMA explains why the setting rdma.enabled has no effect in this version.
const NoRDMA = "there is no RDMA transport in this version: clients on other hosts move objects over TCP, those on " +
	"this host through the GPUDirect door"

// Notes returns one sentence for each accepted setting that has less effect than its value says. Each sentence that
// Notes returns begins with the name of the setting. Notes returns no sentence for a setting that has its default
// value.
func (c *Config) Notes() []string {
	var all []string
	if c.RDMA {
		all = append(all, "rdma.enabled is true, and "+NoRDMA)
	}
	all = append(all, c.expressNotes()...)
	all = append(all, c.auditNotes()...)
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

// Origin is the kind of source of a setting's value: default, file, environment or flag.
type Origin string

// The origins of a setting's value, in the order of rising priority: default, file, environment, flag.
const (
	FromDefault Origin = "default"
	FromFile    Origin = "file"
	FromEnv     Origin = "environment"
	FromFlag    Origin = "flag"
)

// Source describes the source of a setting's value. The field Where is FILE:LINE, the name of an environment
// variable, or the name of a flag. The field Where is empty if the value is the default.
type Source struct {
	Origin Origin `json:"origin"`
	Where  string `json:"where,omitempty"`
}

// String returns the source of a setting as text for messages, such as "$NEBULAIO_DATA" or "default".
func (s Source) String() string {
	switch s.Origin {
	case FromFile, FromFlag:
		return s.Where
	case FromEnv:
		return "$" + s.Where
	}
	return string(FromDefault)
}

// Value is one setting with its value and the source of the value.
type Value struct {
	Key    Key
	Text   string // value of the setting as a user would write it; masked if the setting is secret
	Source Source
}

// Values lists every setting with its value, in the order of Keys. The settings of each upstream bucket and of each
// other name follow, in the order of NamedKeys.
func (c *Config) Values() []Value {
	var all []Value
	fields := table()
	for _, g := range namedGroups() {
		for _, name := range g.names(c) {
			fields = append(fields, g.of(name)...)
		}
	}
	for _, f := range fields {
		v := Value{Key: f.Key, Text: render(f.bind(c)), Source: c.Source(f.Name)}
		if f.Secret && v.Text != "" {
			v.Text = "********"
		}
		all = append(all, v)
	}
	return all
}

// Source returns the source of the value of the setting with the given key.
func (c *Config) Source(name string) Source {
	if s, ok := c.sources[name]; ok {
		return s
	}
	return Source{Origin: FromDefault}
}

// ETagOf returns the kind of ETag for a new bucket with the given name. The longest matching pattern of the setting
// etag_buckets decides; if no pattern matches, the setting etag decides. Among matching patterns of the same
// length, the first in byte order decides.
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
