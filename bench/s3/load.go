// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"
)

// sample is the result of one measurement of one target.
type sample struct {
	Ops       int64   `json:"ops"`
	Bytes     int64   `json:"bytes"` // bytes of request or reply bodies
	Seconds   float64 `json:"seconds"`
	ServerCPU float64 `json:"server_cpu_seconds"`
	ClientCPU float64 `json:"client_cpu_seconds"`
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
}

// rate returns operations per second.
func (s sample) rate() float64 { return per(float64(s.Ops), s.Seconds) }

// megabytes returns the rate in MB/s, with a million bytes to the MB.
func (s sample) megabytes() float64 { return per(float64(s.Bytes)/1e6, s.Seconds) }

// cpuPerOp returns the server's CPU time per operation, in microseconds.
func (s sample) cpuPerOp() float64 { return per(s.ServerCPU*1e6, float64(s.Ops)) }

// cpuPerGiB returns the server's CPU time per GiB, in seconds.
func (s sample) cpuPerGiB() float64 { return per(s.ServerCPU, float64(s.Bytes)/(1<<30)) }

func per(a, b float64) float64 {
	if b <= 0 {
		return 0
	}
	return a / b
}

// load sends the requests in work and measures t. Each list of work has its own connection and is sent in order. When
// the clock starts, the connections are open and the requests are signed.
func load(t *target, work [][]request) (sample, error) {
	streams := make([]*stream, len(work))
	for i := range streams {
		streams[i] = t.stream()
		defer streams[i].close()
		if err := streams[i].do(t.probe(), nil); err != nil {
			return sample{}, fmt.Errorf("%s: %w", t.name, err)
		}
	}
	latencies := make([][]time.Duration, len(work))
	failures := make([]error, len(work))
	var s sample
	for i, list := range work {
		latencies[i] = make([]time.Duration, 0, len(list))
		s.Ops += int64(len(list))
		for _, r := range list {
			s.Bytes += int64(len(r.body)) + max(r.size, 0)
		}
	}
	before, err := t.cpu()
	if err != nil {
		return sample{}, err
	}
	own := ownCPU()
	start := time.Now()
	var wg sync.WaitGroup
	for i := range work {
		wg.Go(func() {
			last := time.Now()
			for _, r := range work[i] {
				if failures[i] = streams[i].do(r, nil); failures[i] != nil {
					return
				}
				now := time.Now()
				latencies[i] = append(latencies[i], now.Sub(last))
				last = now
			}
		})
	}
	wg.Wait()
	s.Seconds = time.Since(start).Seconds()
	after, err := t.cpu()
	if err := errors.Join(append(failures, err)...); err != nil {
		return sample{}, fmt.Errorf("%s: %w", t.name, err)
	}
	s.ServerCPU, s.ClientCPU = after-before, ownCPU()-own
	all := slices.Concat(latencies...)
	slices.Sort(all)
	s.P50, s.P99 = milliseconds(percentile(all, 50)), milliseconds(percentile(all, 99))
	return s, nil
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1e3 }

// ownCPU returns the CPU time of this process in seconds.
func ownCPU() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
