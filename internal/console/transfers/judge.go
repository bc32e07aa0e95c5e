// SPDX-License-Identifier: Apache-2.0

package transfers

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/internal/gpudirect/wire"
	"github.com/nebulaio/nebulaio/internal/object"
	"github.com/nebulaio/nebulaio/internal/units"
)

// Request is a finished S3 request.
type Request struct {
	End       time.Time
	Duration  time.Duration
	Operation string
	Bucket    string
	Key       string
	Account   string
	Remote    string // address of the client
	Status    int
	Error     string // error code, or why the reply was cut short
	In, Out   int64
	Served    string // where the content of an upstream bucket came from; one of the Served constants of package object
	TLS       bool   // encrypted by this process
	Door      bool   // whether this host has a GPUDirect door
}

// small is the size in bytes below which the time of a request is mostly latency.
const small = 1 << 20

// moves has the direction of the S3 operations that move the content of an object.
func moves(operation string) string {
	switch operation {
	case "GetObject":
		return "read"
	case "PutObject", "UploadPart", "PostObject":
		return "write"
	}
	return ""
}

// moved reports whether a request moved the content of an object, or failed to.
func (r *Request) moved() bool {
	switch moves(r.Operation) {
	case "read":
		return r.Out > 0 || r.Status >= 400
	case "write":
		return r.In > 0 || r.Status >= 400
	}
	return false
}

// transfer describes a request that moved content.
func (r *Request) transfer() Transfer {
	t := Transfer{At: r.End, Seconds: r.Duration.Seconds(), Source: S3, Operation: r.Operation,
		Direction: moves(r.Operation), Bucket: r.Bucket, Key: r.Key, Objects: 1, Account: r.Account, Client: r.Remote,
		Status: r.Status, Error: r.Error, Routes: []Route{}, Stages: []Stage{}, Why: []Reason{}}
	if r.Status >= 400 {
		return t // the body of the reply is an error, no content
	}
	if t.Bytes = r.Out; t.Direction == "write" {
		t.Bytes = r.In
	}
	t.Rate = rate(t.Bytes, t.Seconds)
	t.Routes = append(t.Routes, Route{Route: s3Route(r), Device: "network", Bytes: t.Bytes})
	t.Stages = append(t.Stages, Stage{Stage: "total", Bytes: t.Bytes, Seconds: t.Seconds, Share: 1})
	t.Why = s3Reasons(r, t.Bytes)
	return t
}

func s3Route(r *Request) string {
	switch r.Served {
	case "":
		return "network"
	case object.ServedHit, object.ServedStale:
		return "cache"
	case object.ServedPeer:
		return "peer"
	}
	return "upstream"
}

func s3Reasons(r *Request, bytes int64) []Reason {
	all := []Reason{}
	if bytes < small {
		all = append(all, Reason{Text: fmt.Sprintf("%s is a small transfer: most of its time is latency, not bandwidth",
			units.Bytes(bytes)), Fix: "read many small objects at once, or pack them: nebulaio pack"})
	}
	if local(r.Remote) && r.Door {
		all = append(all, Reason{Text: "the client runs on this host and read through the network stack",
			Fix: "use the GPUDirect door: a NebulaIO client with this endpoint finds it by itself"})
	}
	if r.TLS {
		all = append(all, Reason{Text: "this server encrypted the bytes",
			Fix: "set tls.kernel to auto, and see nebulaio_tls_* of /metrics"})
	}
	if route := s3Route(r); route == "upstream" {
		all = append(all, Reason{Text: "the content came from the upstream server, because it was not in the cache",
			Fix: "warm the cache: nebulaio warm"})
	}
	return all
}

// local reports whether a client's address is one of this host's loopback.
func local(remote string) bool {
	a, err := netip.ParseAddrPort(remote)
	return err == nil && a.Addr().Unmap().IsLoopback()
}

// Report is a message of a client of the door with its transfers.
type Report struct {
	End         time.Time
	Account     string
	PID         int32
	Bucket, Key string
	Objects     int
	Committed   bool
	Parts       []wire.Report
}

// moved reports whether a client reported bytes in one direction.
func (r *Report) moved(write bool) bool {
	return slices.ContainsFunc(r.Parts, func(p wire.Report) bool {
		return p.Write == write && p.Stage == "total" && p.Bytes > 0
	})
}

// transfer adds up the parts of a report in one direction. Parts of the stage "total" have the routes and the time of
// the whole, and the other parts the times of the stages. A client adds up what it moves within about a second, so one
// transfer can stand for several objects.
func (r *Report) transfer(write bool) Transfer {
	t := Transfer{At: r.End, Source: Door, Operation: "Open", Direction: "read", Bucket: r.Bucket, Key: r.Key,
		Objects: r.Objects, Account: r.Account, Client: fmt.Sprintf("process %d", r.PID),
		Routes: []Route{}, Stages: []Stage{}}
	if write {
		t.Operation, t.Direction = "Create", "write"
		if r.Committed {
			t.Operation = "Commit"
		}
	}
	for i := range r.Parts {
		p := &r.Parts[i]
		switch {
		case p.Write != write:
		case p.Stage == "total":
			t.Bytes += p.Bytes
			t.Seconds += p.Time.Seconds()
			t.route(p)
		default:
			t.stage(p)
		}
	}
	for i := range t.Stages {
		if t.Seconds > 0 {
			t.Stages[i].Share = min(1, t.Stages[i].Seconds/t.Seconds)
		}
	}
	t.Rate = rate(t.Bytes, t.Seconds)
	t.Limit = limitOf(t.Stages)
	t.Why = doorReasons(t.Routes)
	return t
}

func (t *Transfer) stage(p *wire.Report) {
	i := slices.IndexFunc(t.Stages, func(s Stage) bool { return s.Stage == p.Stage })
	if i < 0 {
		t.Stages = append(t.Stages, Stage{Stage: p.Stage})
		i = len(t.Stages) - 1
	}
	t.Stages[i].Bytes += p.Bytes
	t.Stages[i].Seconds += p.Time.Seconds()
}

func (t *Transfer) route(p *wire.Report) {
	i := slices.IndexFunc(t.Routes, func(r Route) bool { return r.Route == p.Route && r.Device == p.Device })
	if i < 0 {
		t.Routes = append(t.Routes, Route{Route: p.Route, Device: p.Device})
		i = len(t.Routes) - 1
	}
	t.Routes[i].Bytes += p.Bytes
}

// limitOf returns the stage that was busy for the largest share of the transfer, or nil if no stage was timed.
func limitOf(all []Stage) *Limit {
	var most *Stage
	for i := range all {
		if most == nil || all[i].Seconds > most.Seconds {
			most = &all[i]
		}
	}
	if most == nil || most.Seconds == 0 {
		return nil
	}
	return &Limit{Stage: most.Stage, Share: most.Share,
		Text: fmt.Sprintf("the stage %s was busy for %.0f %% of the time, longer than every other stage", most.Stage,
			100*most.Share)}
}

// doorReasons says of each route that is slower than a direct one why it is.
func doorReasons(routes []Route) []Reason {
	all := []Reason{}
	add := func(text, fix string) {
		if !slices.ContainsFunc(all, func(r Reason) bool { return r.Text == text }) {
			all = append(all, Reason{text, fix})
		}
	}
	for _, r := range routes {
		gpu := strings.HasPrefix(r.Device, "cuda")
		switch r.Route {
		case "buffered", "buffered_unproven":
			add("bytes were read from storage through the page cache, which costs a copy",
				"see why O_DIRECT was refused: nebulaio doctor")
		case "cufile_compat":
			add("cuFile read in its compatibility mode, through host memory", "nebulaio doctor names the first obstacle")
		case "socket":
			add("content came through the socket of the door instead of an open file",
				"use objects that are larger than inline_size")
		case "network":
			add("content came over the network instead of the door", "run the client on the host of the server")
		case "direct", "direct_unproven", "page_cache", "shared_memory":
			if gpu {
				add("bytes went to the GPU through pinned host memory, with one copy",
					"nebulaio doctor says whether a direct route is possible")
			}
		}
	}
	return all
}

func rate(bytes int64, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return float64(bytes) / seconds
}
