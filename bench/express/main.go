// SPDX-License-Identifier: Apache-2.0

// Command express compares small reads and writes of a directory bucket with those of an ordinary bucket, on one server
// and in one run. The output is the processor time of the server per request, and the ratio of the two kinds of bucket
// in each round.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Names of the two buckets.
const (
	ordinary  = "plain"
	directory = "small--bench1--x-s3"
)

// options are the flags of the command.
type options struct {
	Program  string `json:"-"`
	Size     int    `json:"size"`
	Streams  int    `json:"streams"`
	Requests int    `json:"requests"`
	Rounds   int    `json:"rounds"`
	profile  string
	out      string
}

func main() {
	var o options
	flag.StringVar(&o.Program, "program", "bin/nebulaio", "the server to start")
	flag.IntVar(&o.Size, "size", 4096, "bytes of an object")
	flag.IntVar(&o.Streams, "streams", 64, "connections that send requests at the same time")
	flag.IntVar(&o.Requests, "requests", 20000, "requests of one measurement")
	flag.IntVar(&o.Rounds, "rounds", 9, "rounds; each measures both kinds of bucket")
	flag.StringVar(&o.profile, "profile", "", "directory for processor profiles of each row")
	flag.StringVar(&o.out, "out", "", "JSON file for all figures")
	flag.Parse()
	if err := o.run(); err != nil {
		fmt.Fprintln(os.Stderr, "express:", err)
		os.Exit(1)
	}
}

// row is one kind of request to one kind of bucket.
type row struct {
	method string
	bucket *bucket
	costs  []cost // one for each round
}

func (r *row) name() string { return r.method + " " + r.bucket.name }

func (o *options) run() error {
	if o.Size < 1 || o.Streams < 1 || o.Requests < o.Streams || o.Rounds < 1 {
		return errors.New("-size, -streams and -rounds are at least 1, and -requests is at least -streams")
	}
	dir, err := os.MkdirTemp("", "express")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := start(o.Program, dir)
	if err != nil {
		return err
	}
	defer s.stop()
	rows, err := o.rows(s)
	if err != nil {
		return err
	}
	load := loadAverage()
	for round := range o.Rounds + 1 { // the first round warms up
		for _, r := range rows {
			c, err := s.measure(r, o)
			if err != nil {
				return fmt.Errorf("%s: %w", r.name(), err)
			}
			if round > 0 {
				r.costs = append(r.costs, c)
			}
		}
		turn(rows)
	}
	load += " before, " + loadAverage() + " after"
	slices.SortFunc(rows, func(a, b *row) int { return strings.Compare(a.name(), b.name()) })
	report(os.Stdout, o, rows, load)
	if err := o.write(rows, load); err != nil {
		return err
	}
	if o.profile == "" {
		return nil
	}
	for _, r := range rows {
		if err := s.profile(r, o); err != nil {
			return err
		}
	}
	return nil
}

// rows creates the buckets, and returns the rows. Rows that are compared are neighbours, so that a disturbance meets
// both.
func (o *options) rows(s *server) ([]*row, error) {
	var buckets []*bucket
	for _, name := range []string{ordinary, directory} {
		b, err := newBucket(s.endpoint, name)
		if err != nil {
			return nil, err
		}
		buckets = append(buckets, b)
	}
	var rows []*row
	for _, method := range []string{http.MethodPut, http.MethodGet} {
		for _, b := range buckets {
			rows = append(rows, &row{method: method, bucket: b})
		}
	}
	return rows, nil
}

// turn changes which of two compared rows is first.
func turn(rows []*row) {
	for i := 0; i+1 < len(rows); i += 2 {
		rows[i], rows[i+1] = rows[i+1], rows[i]
	}
}

// loadAverage returns the load of the machine in the last minute.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}

// write writes all figures as JSON.
func (o *options) write(rows []*row, load string) error {
	if o.out == "" {
		return nil
	}
	figures := struct {
		Date  string            `json:"date"`
		Cores int               `json:"cores"`
		Load  string            `json:"load_of_one_minute"`
		Run   *options          `json:"run"`
		Rows  map[string][]cost `json:"rows"`
	}{time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), load, o, map[string][]cost{}}
	for _, r := range rows {
		figures.Rows[r.name()] = r.costs
	}
	text, err := json.MarshalIndent(figures, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(o.out), 0o755); err != nil {
		return err
	}
	return os.WriteFile(o.out, append(text, '\n'), 0o644)
}
