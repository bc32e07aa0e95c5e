// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"syscall"
	"time"
)

// listing is one kind of page, measured in a small and in a large bucket.
type listing struct {
	Name  string `json:"name"`
	Small page   `json:"small"`
	Large page   `json:"large"`
	// Ratio is the server's CPU time per page in the large bucket, over that in the small one.
	Ratio float64 `json:"ratio"`
}

// page is the cost of one kind of page in one bucket.
type page struct {
	Keys    int     `json:"keys"`
	Entries int     `json:"entries"`
	P50     float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
	CPU     float64 `json:"server_cpu_us"`
}

// manyKeys is the cost of a bucket with many keys.
type manyKeys struct {
	Keys      int       `json:"keys"`
	LoadRate  float64   `json:"load_per_second"`
	Walk      float64   `json:"walk_seconds"` // time to list all pages of the large bucket in order
	WalkPages int       `json:"walk_pages"`
	Listings  []listing `json:"listings"`
	// from the start of the process after kill -9 to the first answer
	Restart []float64 `json:"restart_seconds"`
}

const (
	pageEntries = 1000
	directories = 1000
	smallBucket = "keys-small"
	largeBucket = "keys-large"
	smallCount  = 10_000
)

// keyName puts key i of n into one of a thousand directories under one common prefix.
func keyName(i, n int) string {
	each := max(n/directories, 1)
	return fmt.Sprintf("all/d%04d/k%07d", i/each, i%each)
}

// pages returns the kinds of page. Each has the same number of entries in both buckets.
func pages() []struct {
	name    string
	query   url.Values
	entries int
} {
	return []struct {
		name    string
		query   url.Values
		entries int
	}{
		{"first page", url.Values{}, pageEntries},
		{"page in the middle", url.Values{"start-after": {"all/d0500/"}}, pageEntries},
		{"prefix", url.Values{"prefix": {"all/d05"}}, pageEntries},
		{"prefix and delimiter: 1000 common prefixes", url.Values{"prefix": {"all/"}, "delimiter": {"/"}}, directories},
		{"delimiter: all keys under one common prefix", url.Values{"delimiter": {"/"}}, 1},
	}
}

// measureKeys fills two buckets of t, lists them, and kills and restarts t.
func measureKeys(t *target, work string, count int, say func(string, ...any)) (*manyKeys, error) {
	m := &manyKeys{Keys: count}
	for _, b := range []struct {
		name  string
		count int
	}{{smallBucket, smallCount}, {largeBucket, count}} {
		say("writing %d keys", b.count)
		took, err := writeKeys(t, b.name, b.count, 64)
		if err != nil {
			return nil, err
		}
		m.LoadRate = float64(b.count) / took.Seconds()
	}
	say("restarting")
	for range 3 { // before the listings too, so that these begin with what a fresh process knows
		t.stop(syscall.SIGKILL)
		start := time.Now()
		if err := t.start(work); err != nil {
			return nil, err
		}
		m.Restart = append(m.Restart, time.Since(start).Seconds())
	}
	for _, p := range pages() {
		l := listing{Name: p.name}
		for _, b := range []struct {
			name string
			keys int
			out  *page
		}{{smallBucket, smallCount, &l.Small}, {largeBucket, count, &l.Large}} {
			got, err := measurePage(t, b.name, p.query, p.entries, 300)
			if err != nil {
				return nil, fmt.Errorf("%s: list, %s: %w", t.name, p.name, err)
			}
			got.Keys = b.keys
			*b.out = got
		}
		l.Ratio = per(l.Large.CPU, l.Small.CPU)
		m.Listings = append(m.Listings, l)
	}
	say("listing all keys in pages")
	start := time.Now()
	seen, n, err := walk(t, largeBucket)
	if err != nil {
		return nil, err
	}
	if seen != count {
		return nil, fmt.Errorf("%s: %d keys were listed, %d were written", t.name, seen, count)
	}
	m.Walk, m.WalkPages = time.Since(start).Seconds(), n
	return m, nil
}

func (t *target) signIn(name, method, key string, query url.Values, want int) request {
	path := "/" + name
	if key != "" {
		path += "/" + key
	}
	return prepare(method, t.host, presign(rootKeys, time.Now(), method, t.host, path, query), nil, want, -1)
}

func writeKeys(t *target, name string, count, streams int) (time.Duration, error) {
	first := t.stream()
	defer first.close()
	if err := first.do(t.signIn(name, http.MethodPut, "", nil, http.StatusOK), nil); err != nil {
		return 0, err
	}
	start := time.Now()
	err := overStreams(t, count, streams, func(s *stream, i int) error {
		return s.do(t.signIn(name, http.MethodPut, keyName(i, count), nil, http.StatusOK), nil)
	})
	return time.Since(start), err
}

// list is the part of a list reply that the benchmark uses.
type list struct {
	Contents              []struct{ Key string }
	CommonPrefixes        []struct{ Prefix string }
	NextContinuationToken string
	IsTruncated           bool
}

func listPage(s *stream, t *target, name string, query url.Values) (list, error) {
	q := url.Values{"list-type": {"2"}, "max-keys": {fmt.Sprint(pageEntries)}}
	for k, v := range query {
		q[k] = v
	}
	var body []byte
	if err := s.do(t.signIn(name, http.MethodGet, "", q, http.StatusOK),
		func(p []byte) { body = append(body, p...) }); err != nil {
		return list{}, err
	}
	var l list
	err := xml.Unmarshal(body, &l)
	return l, err
}

// measurePage requests the same page n times over one connection. The first answer is parsed and counted, the others
// are only timed.
func measurePage(t *target, name string, query url.Values, entries, n int) (page, error) {
	s := t.stream()
	defer s.close()
	l, err := listPage(s, t, name, query)
	if err != nil {
		return page{}, err
	}
	p := page{Entries: len(l.Contents) + len(l.CommonPrefixes)}
	if p.Entries != entries {
		return p, fmt.Errorf("%d entries, expected %d", p.Entries, entries)
	}
	q := url.Values{"list-type": {"2"}, "max-keys": {fmt.Sprint(pageEntries)}}
	for k, v := range query {
		q[k] = v
	}
	r := t.signIn(name, http.MethodGet, "", q, http.StatusOK)
	work := make([]request, n)
	for i := range work {
		work[i] = r
	}
	got, err := load(t, [][]request{work})
	p.P50, p.P99, p.CPU = got.P50, got.P99, got.cpuPerOp()
	return p, err
}

// walk lists a bucket from its first page to its last.
func walk(t *target, name string) (keys, pages int, err error) {
	s := t.stream()
	defer s.close()
	query := url.Values{}
	for {
		l, err := listPage(s, t, name, query)
		if err != nil {
			return keys, pages, err
		}
		keys += len(l.Contents)
		pages++
		if !l.IsTruncated {
			return keys, pages, nil
		}
		if l.NextContinuationToken == "" {
			return keys, pages, errors.New("a page is truncated and names no next one")
		}
		query.Set("continuation-token", l.NextContinuationToken)
	}
}
