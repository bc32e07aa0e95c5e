// SPDX-License-Identifier: Apache-2.0

package rates

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestRatesAreDifferencesPerSecond(t *testing.T) {
	a := &Counters{S3: S3{Read: 100, Requests: 1}, Users: map[string]S3{"alice": {Read: 100}},
		Moved: []Moved{{"read", "direct", "cuda:0", 1000}},
		Disks: []Disk{{"sda", 0, 0, 0}, {"gone", 5, 5, 0}}, CPU: 1}
	b := &Counters{S3: S3{Read: 300, Written: 50, Requests: 5, Errors: 1, InFlight: 2, Connections: 3},
		Users: map[string]S3{"alice": {Read: 150}, "bob": {Read: 50}},
		Moved: []Moved{{"read", "direct", "cuda:0", 5000}, {"read", "buffered", "host", 0}},
		Disks: []Disk{{"sda", 4096, 2048, time.Second}, {"new", 9, 9, 0}},
		GPUs:  []GPU{{Index: 0, Busy: 0.5, MemoryUsed: -1, Received: 7, Sent: -1}}, CPU: 2, Memory: 99}
	s := between(time.Unix(10, 0), 2*time.Second, a, b)
	if s.S3 != (Traffic{Read: 100, Written: 25, Requests: 2, Errors: 0.5, InFlight: 2, Connections: 3}) {
		t.Errorf("%+v", s.S3)
	}
	if fmt.Sprint(s.Routes) != "[{read direct cuda:0 2000}]" || fmt.Sprint(s.Disks) != "[{sda 2048 1024 0.5}]" ||
		s.CPU != 0.5 || s.Memory != 99 {
		t.Errorf("%+v", s)
	}
	text, err := json.Marshal(s.GPUs)
	if err != nil || string(text) != `[{"index":0,"busy":0.5,"memory_used":null,"pcie_rx":7,"pcie_tx":null}]` {
		t.Errorf("%s %v", text, err)
	}
	alice, err := json.Marshal(s.For("alice"))
	if err != nil || !strings.Contains(string(alice), `"read":25`) || strings.Contains(string(alice), "sda") {
		t.Errorf("%s %v", alice, err)
	}
	if nobody := s.For("nobody"); nobody.S3 != (Traffic{}) {
		t.Errorf("%+v", nobody.S3)
	}
}

func TestATotalThatShrinksIsNoRate(t *testing.T) {
	s := between(time.Unix(1, 0), time.Second, &Counters{Disks: []Disk{{"sda", 10, 10, time.Hour}}},
		&Counters{Disks: []Disk{{"sda", 5, 20, 0}}})
	if fmt.Sprint(s.Disks) != "[{sda 0 10 0}]" {
		t.Errorf("%+v", s.Disks)
	}
}

func TestOnlyTheLastSamplesAreKept(t *testing.T) {
	s := New(func() Counters { return Counters{} })
	for i := range Most + 11 {
		s.sample(time.Unix(int64(i), 0), Counters{})
	}
	if len(s.samples) != Most || s.samples[0].At != time.Unix(11, 0) {
		t.Errorf("%d from %v", len(s.samples), s.samples[0].At)
	}
}

func TestWatchersGetSamplesWhileTheyWatch(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var m Meter
	s := New(func() Counters {
		m.Count("alice", 1, 2, true)
		total, users := m.Counts()
		return Counters{S3: total, Users: users}
	})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			past, next, stop := s.Watch(ctx)
			defer stop()
			if len(past) > 0 && past[0].At.IsZero() {
				t.Error("a sample without a time")
			}
			if one := <-next; one.S3.Requests <= 0 || one.For("alice").S3.Errors <= 0 {
				t.Errorf("%+v", one)
			}
		})
	}
	wg.Wait()
	cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.watchers) != 0 {
		t.Errorf("%d watchers", len(s.watchers))
	}
}

func TestTheMeterStaysSmall(t *testing.T) {
	var m Meter
	for i := range mostUsers + 10 {
		m.Count(fmt.Sprint("user", i), 1, 0, false)
	}
	m.Count("", 1, 0, false)
	total, users := m.Counts()
	if len(users) != mostUsers || total.Requests != mostUsers+11 {
		t.Errorf("%d users, %d requests", len(users), total.Requests)
	}
}
