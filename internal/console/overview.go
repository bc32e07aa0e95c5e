// SPDX-License-Identifier: Apache-2.0

package console

import (
	"context"
	"fmt"
	"time"

	"github.com/nebulaio/nebulaio/internal/errs"
	"github.com/nebulaio/nebulaio/internal/units"
)

// Status returns the state of the server. All functions are set and safe for concurrent use.
type Status struct {
	Health   func() Health
	Capacity func(context.Context) (Capacity, error)
	Door     func() Door
	// Connections and InFlight return the numbers of S3 connections and of S3 requests in progress.
	Connections, InFlight func() int64
	// Upstreams returns the state of each upstream as a list that JSON can encode, or nil.
	Upstreams func() any
	// Cluster and Cache return their state as values that JSON can encode.
	Cluster func() any
	Cache   func(context.Context) (any, error)
	// Warnings returns messages about the configuration.
	Warnings func() []string
}

// Health is the state of the server as /readyz shows it.
type Health struct {
	Ready  bool   `json:"ready"`
	State  string `json:"state"`
	Reads  bool   `json:"reads"`
	Writes bool   `json:"writes"`
	Reason string `json:"reason"`
}

// Capacity has the sizes of the store. A field is -1 if it is not known.
type Capacity struct {
	Bytes       int64 `json:"bytes"`
	Objects     int64 `json:"objects"`
	Versions    int64 `json:"versions"`
	Buckets     int64 `json:"buckets"`
	Uploads     int64 `json:"uploads"`
	UploadBytes int64 `json:"upload_bytes"`
	FreeBytes   int64 `json:"free_bytes"`
	TotalBytes  int64 `json:"total_bytes"`
	Damage      int64 `json:"damage"` // damaged blocks found since the start
}

// Door is the state of the GPUDirect door.
type Door struct {
	Served       bool   `json:"served"`
	Reason       string `json:"reason"`
	Fix          string `json:"fix"`
	Socket       string `json:"socket"`
	Connections  int64  `json:"connections"`
	Handles      int64  `json:"handles"`
	Drafts       int64  `json:"drafts"`
	Writes       bool   `json:"writes"`
	WritesReason string `json:"writes_reason"`
	WritesFix    string `json:"writes_fix"`
}

// warning is a message for the operator.
type warning struct {
	Level  string `json:"level"` // "fail", "warn" or "info"
	Title  string `json:"title"`
	Detail string `json:"detail"`
	Fix    string `json:"fix"`
	Page   string `json:"page"`
}

// overviewReply is the first page. Users who are no administrators see the health alone.
type overviewReply struct {
	Version   string    `json:"version"`
	Started   time.Time `json:"started"`
	Uptime    float64   `json:"uptime_seconds"`
	Health    Health    `json:"health"`
	Capacity  *Capacity `json:"capacity"`
	Door      *Door     `json:"door"`
	S3        *s3Reply  `json:"s3"`
	Upstreams any       `json:"upstreams"`
	Warnings  []warning `json:"warnings"`
}

type s3Reply struct {
	Endpoint    string `json:"endpoint"`
	Connections int64  `json:"connections"`
	InFlight    int64  `json:"in_flight"`
}

// overview answers GET overview.
func (c serverPage) overview() (any, error) {
	out := overviewReply{Version: c.opts.Version, Started: c.started, Uptime: c.opts.Now().Sub(c.started).Seconds(),
		Health: c.Status.Health(), Upstreams: []any{}, Warnings: []warning{}}
	if !c.admin() {
		out.Health.Reason = "" // it can name files of the server
		return out, nil
	}
	capacity, err := c.Status.Capacity(c.r.Context())
	if err != nil {
		out.Warnings = append(out.Warnings, warning{Level: "fail", Title: "the store does not tell its size",
			Detail: errs.MessageOf(err), Fix: errs.FixOf(err), Page: "overview"})
	} else {
		out.Capacity = &capacity
	}
	door := c.Status.Door()
	out.Door = &door
	out.S3 = &s3Reply{c.Endpoint.String(), c.Status.Connections(), c.Status.InFlight()}
	if all := c.Status.Upstreams(); all != nil {
		out.Upstreams = all
	}
	out.Warnings = append(out.Warnings, c.warnings(out.Health, out.Capacity, &door)...)
	return out, nil
}

// nearlyFull is the share of free space below which the overview warns.
const nearlyFull = 0.05

// warnings returns what an operator should look at, the worst first.
func (c serverPage) warnings(h Health, size *Capacity, door *Door) []warning {
	var all []warning
	if !h.Ready {
		all = append(all, warning{"fail", "the server is " + h.State, h.Reason, "see the server's log", "overview"})
	}
	if size != nil && size.Damage > 0 {
		all = append(all, warning{"fail", fmt.Sprintf("%d damaged blocks were found", size.Damage),
			"content differs from its checksums", "see the server's log, and run nebulaio store scrub", "overview"})
	}
	for _, f := range c.Machine.Failures() {
		all = append(all, warning{"fail", f.Title, f.Observed, f.FixNow, "machine"})
	}
	if size != nil && size.FreeBytes >= 0 && size.TotalBytes > 0 &&
		float64(size.FreeBytes) < nearlyFull*float64(size.TotalBytes) {
		all = append(all, warning{"warn", "the disk is nearly full",
			fmt.Sprintf("%s of %s are free", units.Bytes(size.FreeBytes), units.Bytes(size.TotalBytes)),
			"delete objects or old versions, or add space", "buckets"})
	}
	if door.Served && !door.Writes {
		all = append(all, warning{"warn", "clients cannot create objects through the door", door.WritesReason,
			door.WritesFix, "overview"})
	}
	if !door.Served {
		all = append(all, warning{"info", "the GPUDirect door is not served", door.Reason, door.Fix, "config"})
	}
	for _, text := range c.Status.Warnings() {
		all = append(all, warning{"warn", "a setting deserves a look", text, "", "config"})
	}
	return all
}
