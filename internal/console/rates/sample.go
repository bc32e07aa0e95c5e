// SPDX-License-Identifier: Apache-2.0

package rates

import "time"

// Sample has the rates of one second.
type Sample struct {
	At     time.Time     `json:"at"`
	S3     Traffic       `json:"s3"`
	Routes []RouteRate   `json:"routes"`
	Disks  []DiskRate    `json:"disks"`
	GPUs   []GPUState    `json:"gpus"`
	Door   Door          `json:"door"`
	CPU    float64       `json:"cpu"` // processors that the server used on average
	Memory int64         `json:"memory"`
	users  map[string]S3 // differences by access key
	span   float64
}

// Traffic has the rates of S3 requests, in bytes and requests per second.
type Traffic struct {
	Read        float64 `json:"read"`
	Written     float64 `json:"written"`
	Requests    float64 `json:"requests"`
	Errors      float64 `json:"errors"`
	InFlight    int64   `json:"in_flight"`
	Connections int64   `json:"connections"`
}

// RouteRate is the rate of one route of the door's clients, as the clients reported it.
type RouteRate struct {
	Direction string  `json:"direction"`
	Route     string  `json:"route"`
	Device    string  `json:"device"`
	Rate      float64 `json:"rate"`
}

// DiskRate has the rates of one disk.
type DiskRate struct {
	Name    string  `json:"name"`
	Read    float64 `json:"read"`
	Written float64 `json:"written"`
	Busy    float64 `json:"busy"`
}

// GPUState has the state of one GPU. A field is null if it is not known.
type GPUState struct {
	Index      int      `json:"index"`
	Busy       *float64 `json:"busy"`
	MemoryUsed *int64   `json:"memory_used"`
	Received   *float64 `json:"pcie_rx"`
	Sent       *float64 `json:"pcie_tx"`
}

// For returns what a user who is no administrator sees of a sample: the user's own S3 traffic.
func (s *Sample) For(accessKey string) *Sample {
	d := s.users[accessKey]
	return &Sample{At: s.At, Routes: []RouteRate{}, Disks: []DiskRate{}, GPUs: []GPUState{}, S3: d.rates(s.span)}
}

func (d S3) rates(span float64) Traffic {
	return Traffic{Read: per(d.Read, span), Written: per(d.Written, span), Requests: per(d.Requests, span),
		Errors: per(d.Errors, span), InFlight: d.InFlight, Connections: d.Connections}
}

// minus returns the growth of the totals, and the numbers of the later moment.
func (d S3) minus(b S3) S3 {
	d.Read, d.Written = grown(b.Read, d.Read), grown(b.Written, d.Written)
	d.Requests, d.Errors = grown(b.Requests, d.Requests), grown(b.Errors, d.Errors)
	return d
}

// grown returns the growth of a total, or 0 if the total became smaller because its device was replaced.
func grown(before, now int64) int64 { return max(0, now-before) }

func per(n int64, span float64) float64 { return float64(n) / span }

// between returns the rates between two readings of the counters.
func between(at time.Time, since time.Duration, a, b *Counters) *Sample {
	span := since.Seconds()
	s := &Sample{At: at, span: span, S3: b.S3.minus(a.S3).rates(span), Routes: []RouteRate{}, Disks: []DiskRate{},
		GPUs: []GPUState{}, Door: b.Door, CPU: max(0, (b.CPU-a.CPU)/span), Memory: b.Memory, users: map[string]S3{}}
	for name, now := range b.Users {
		if d := now.minus(a.Users[name]); d != (S3{}) {
			s.users[name] = d
		}
	}
	s.routes(a.Moved, b.Moved)
	s.disks(a.Disks, b.Disks)
	for _, g := range b.GPUs {
		s.GPUs = append(s.GPUs, GPUState{Index: g.Index, Busy: known(g.Busy), MemoryUsed: known(g.MemoryUsed),
			Received: known(g.Received), Sent: known(g.Sent)})
	}
	return s
}

func (s *Sample) routes(a, b []Moved) {
	type route struct{ direction, route, device string }
	was := map[route]int64{}
	for _, m := range a {
		was[route{m.Direction, m.Route, m.Device}] = m.Bytes
	}
	for _, m := range b {
		if n := grown(was[route{m.Direction, m.Route, m.Device}], m.Bytes); n > 0 {
			s.Routes = append(s.Routes, RouteRate{m.Direction, m.Route, m.Device, per(n, s.span)})
		}
	}
}

func (s *Sample) disks(a, b []Disk) {
	was := map[string]Disk{}
	for _, d := range a {
		was[d.Name] = d
	}
	for _, d := range b {
		w, ok := was[d.Name]
		if !ok {
			continue
		}
		busy := max(0, min(1, (d.Busy-w.Busy).Seconds()/s.span))
		s.Disks = append(s.Disks, DiskRate{d.Name, per(grown(w.Read, d.Read), s.span),
			per(grown(w.Written, d.Written), s.span), busy})
	}
}

func known[T int64 | float64](v T) *T {
	if v < 0 {
		return nil
	}
	return &v
}
