// SPDX-License-Identifier: Apache-2.0

// Command misses compares reads of objects that a node does not have with reads from the upstream itself. MinIO and the
// node run on this machine. Each round reads new objects from MinIO, from the node and through a bare proxy, in
// changing order. The bare proxy shows what any server in between costs. `make bench-misses` runs the command.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nebulaio/nebulaio/test/upstreams"
	"github.com/nebulaio/nebulaio/test/upstreams/liar"
)

type options struct {
	nebulaio, work, out, profile string
	bare                         string // upstream of which this process is a bare proxy
	rounds, small                int
	size, part                   int64
	delays                       []time.Duration
}

func main() {
	o, err := parse(os.Args[1:])
	switch {
	case err != nil:
	case o.bare != "":
		err = serveBare(o.bare)
	default:
		err = run(context.Background(), o)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench-misses:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	var delays string
	f := flag.NewFlagSet("bench-misses", flag.ContinueOnError)
	f.StringVar(&o.nebulaio, "nebulaio", "bin/nebulaio", "path of the nebulaio program to measure")
	f.StringVar(&o.work, "work", "build/bench-misses-data",
		"directory for the data of the servers, which is removed after the run")
	f.StringVar(&o.out, "out", "", "JSON file for all figures; empty writes none")
	f.StringVar(&o.profile, "profile", "", "file for a CPU profile of the node")
	f.StringVar(&o.bare, "bare", "",
		"serve as a bare proxy of this URL until standard input ends; the command starts itself so")
	f.IntVar(&o.rounds, "rounds", 9, "number of rounds in which each row is measured")
	f.IntVar(&o.small, "small", 16, "number of objects of 8 MiB in each round, of which the median counts; 0 reads none")
	f.Int64Var(&o.size, "size", 256<<20, "size in bytes of the large object of each round")
	f.Int64Var(&o.part, "part", 16<<20, "size in bytes of the parts in which the large object is uploaded")
	f.StringVar(&delays, "delays", "0s,5ms,20ms",
		"times by which a proxy delays each reply of the upstream; 0s uses no proxy")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 || o.rounds < 1 || o.size < 1 || o.part < 5<<20 || o.small < 0 {
		return o,
			fmt.Errorf("unexpected %q: there are only flags, --rounds and --size are at least 1, --part is at least 5 MiB",
				f.Args())
	}
	for text := range strings.SplitSeq(delays, ",") {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			return o, fmt.Errorf("--delays has %q, expected times such as 5ms", text)
		}
		o.delays = append(o.delays, d)
	}
	return o, nil
}

// result is what the JSON file holds.
type result struct {
	Date    string   `json:"date"`
	Command string   `json:"command"`
	Machine string   `json:"machine"`
	Size    int64    `json:"size"`
	Rounds  int      `json:"rounds"`
	Rows    []figure `json:"rows"`
}

func run(ctx context.Context, o options) error {
	work, err := filepath.Abs(o.work)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(work, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(work)
	u, err := upstreams.Start(ctx, upstreams.MinIO, work)
	if err != nil {
		return err
	}
	defer u.Stop()
	all := &result{Date: time.Now().UTC().Format(time.DateOnly), Command: "bench-misses " + strings.Join(os.Args[1:], " "),
		Machine: thisMachine(), Size: o.size, Rounds: o.rounds}
	for _, delay := range o.delays {
		rows, err := measure(ctx, o, u, delay, filepath.Join(work, "node-"+delay.String()))
		if err != nil {
			return err
		}
		all.Rows = append(all.Rows, rows...)
	}
	fmt.Println(table(all.Rows))
	if o.out == "" {
		return nil
	}
	text, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(o.out, append(text, '\n'), 0o644)
}

// measure measures all rows with one delay. Reads from the upstream itself go through the same proxy as the node's.
func measure(ctx context.Context, o options, u *upstreams.Upstream, delay time.Duration, dir string) ([]figure, error) {
	endpoint := u.Endpoint
	if delay > 0 {
		p, err := liar.New(liar.Options{Upstream: u.Endpoint, Delay: delay, Plan: liar.Always(liar.Delay)})
		if err != nil {
			return nil, err
		}
		defer p.Close()
		endpoint = p.Endpoint
	}
	bucket := fmt.Sprintf("misses-%d", delay.Milliseconds())
	direct, err := newClient(u.Endpoint, endpoint, upstreams.Access, upstreams.Secret, bucket)
	if err != nil {
		return nil, err
	}
	if err := direct.makeBucket(ctx); err != nil {
		return nil, err
	}
	n, err := startNode(o, dir, endpoint, bucket)
	if err != nil {
		return nil, err
	}
	defer n.stop()
	near, err := newClient(n.endpoint, n.endpoint, user, password, bucket)
	if err != nil {
		return nil, err
	}
	b, err := startBare(endpoint)
	if err != nil {
		return nil, err
	}
	defer b.stop()
	through, err := newClient(u.Endpoint, b.endpoint, upstreams.Access, upstreams.Secret, bucket)
	if err != nil {
		return nil, err
	}
	m := &meter{o: o, direct: direct, near: near, through: through, node: n, delay: delay}
	for round := range o.rounds {
		if err := m.round(ctx, round); err != nil {
			return nil, err
		}
	}
	rows := m.rows
	slices.SortStableFunc(rows, func(a, b figure) int { return strings.Compare(a.Name, b.Name) })
	return rows, nil
}
