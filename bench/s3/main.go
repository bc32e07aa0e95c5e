// SPDX-License-Identifier: Apache-2.0

// Command s3 compares S3 servers with each other and with a bare file server. All servers run in turn on this
// machine. The results are written as a table, as JSON and as a plot. `make bench-s3` runs the command.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	peers "github.com/nebulaio/nebulaio/test/upstreams/programs"
)

type options struct {
	nebulaio, before, peers, work, out string
	rounds, keys                       int
	scale                              float64
	only, skip                         *regexp.Regexp
	multipart                          bool
}

func main() {
	err := func() error {
		if len(os.Args) > 1 && os.Args[1] == "bare" {
			return runBare(os.Args[2:])
		}
		o, err := parse(os.Args[1:])
		if err != nil {
			return err
		}
		return run(o)
	}()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench-s3:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	var only, skip string
	f := flag.NewFlagSet("bench-s3", flag.ContinueOnError)
	f.StringVar(&o.nebulaio, "nebulaio", "bin/nebulaio",
		"path of the nebulaio program to measure; empty measures no nebulaio")
	f.StringVar(&o.before, "before", "", "path of an older nebulaio program, which is measured twice beside "+
		"the new one to compare the two")
	f.StringVar(&o.peers, "peers", "build/peers", "directory of the programs versitygw and MinIO, which are built "+
		"there if missing; empty measures neither")
	f.StringVar(&o.work, "work", "build/bench-s3/data",
		"directory for the data of the servers, which needs 12 GiB and is removed after the run")
	f.StringVar(&o.out, "out", "build/bench-s3", "directory for the results")
	f.IntVar(&o.rounds, "rounds", 5, "number of rounds in which each row of the result table is measured")
	f.IntVar(&o.keys, "keys", 0, "number of keys in one bucket, to measure listing the bucket and restarting "+
		"the server; 0 measures neither, 1000000 takes minutes")
	f.Float64Var(&o.scale, "scale", 1, "factor by which the number of requests per round is multiplied")
	f.StringVar(&only, "rows", "", "regular expression that selects the rows of the result table to measure, "+
		"such as 'multipart' or 'keys'")
	f.StringVar(&skip, "without", "", "regular expression that selects the servers not to measure")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected %q: there are only flags", f.Args())
	}
	if o.rounds < 1 || o.scale <= 0 || o.keys < 0 || o.keys%directories != 0 {
		return o, fmt.Errorf("--rounds is at least 1, --scale above 0, --keys a multiple of %d: got %d, %g, %d", directories,
			o.rounds, o.scale, o.keys)
	}
	var err error
	if o.only, err = regexp.Compile(only); err != nil {
		return o, fmt.Errorf("--rows: %w", err)
	}
	if skip == "" {
		skip = "^$"
	}
	if o.skip, err = regexp.Compile(skip); err != nil {
		return o, fmt.Errorf("--without: %w", err)
	}
	o.multipart = o.only.MatchString("multipart")
	if !o.only.MatchString("keys") {
		o.keys = 0
	}
	return o, nil
}

func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func run(o options) (err error) {
	work, err := filepath.Abs(o.work)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(work, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(work)
	all, err := programs(o)
	if err != nil {
		return err
	}
	res := &result{Date: time.Now().UTC().Format(time.DateOnly), Command: "make bench-s3 ARGS='" +
		strings.Join(os.Args[1:], " ") + "'", Machine: thisMachine(work),
		Versions: versions(all), Rounds: o.rounds, Memory: map[string]int64{}}
	data, err := content()
	if err != nil {
		return err
	}
	rows := slices.DeleteFunc(rows(), func(r row) bool { return !o.only.MatchString(r.Name) })
	sizes := map[int64]bool{}
	for i := range rows {
		if !rows[i].put {
			sizes[rows[i].object] = true
		}
		rows[i].ops = max(int(float64(rows[i].ops)*o.scale), rows[i].streams)
	}
	for _, t := range all {
		say("starting %s", t.name)
		if err := t.start(work); err != nil {
			return err
		}
		defer t.stop(syscall.SIGKILL)
		if err := fill(t, data, sizes); err != nil {
			return err
		}
		res.Targets = append(res.Targets, t.name)
	}
	if err := measureRows(res, all, rows, data, o.rounds); err != nil {
		return err
	}
	for _, t := range all {
		if o.multipart && (t.name == "nebulaio" || t.name == "versitygw" || t.name == "minio") {
			say("multipart uploads, %s", t.name)
			c, err := measureCompletion(t, data, min(o.rounds, 3))
			if err != nil {
				return err
			}
			res.Completions = append(res.Completions, c)
		}
	}
	for _, t := range all {
		if way := t.tlsWay(); way != "" {
			res.Versions[t.name] += ", " + way
		}
		res.Memory[t.name] = t.peakMemory()
		if o.keys > 0 && t.name == "nebulaio" {
			if res.Keys, err = measureKeys(t, work, o.keys, say); err != nil {
				return err
			}
		}
	}
	res.Claims = res.claims()
	res.Comparisons = res.compare()
	if err := res.write(o.out); err != nil {
		return err
	}
	fmt.Print(res.markdown())
	say("written to %s", o.out)
	return nil
}

// programs finds or builds the servers to measure.
func programs(o options) ([]*target, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var paths [4]string
	for i, program := range map[int]string{0: o.nebulaio, 3: o.before} {
		if program == "" {
			continue
		}
		if paths[i], err = filepath.Abs(program); err != nil {
			return nil, err
		}
		if _, err := os.Stat(paths[i]); err != nil {
			return nil, fmt.Errorf("%w: make build makes it", err)
		}
	}
	if o.peers != "" {
		for i, p := range []peers.Program{peers.Versitygw(), peers.MinIO()} {
			if o.skip.MatchString(p.Name) {
				continue
			}
			if paths[i+1], err = p.Build(o.peers, say); err != nil {
				return nil, err
			}
		}
	}
	all := slices.DeleteFunc(targets(self, paths[0], paths[1], paths[2], paths[3]),
		func(t *target) bool { return o.skip.MatchString(t.name) })
	if len(all) == 0 {
		return nil, errors.New("--without leaves no target")
	}
	return all, nil
}

func versions(all []*target) map[string]string {
	out := map[string]string{}
	for _, t := range all {
		switch argv := t.argv(t, ""); {
		case strings.HasPrefix(t.name, "nebulaio"), isBefore(t.name):
			text, err := exec.Command(argv[0], "--version").Output()
			if err != nil {
				text = []byte("unknown")
			}
			out[t.name] = strings.TrimSpace(string(text))
		case t.name == peers.Versitygw().Name:
			out[t.name] = peers.Versitygw().Version
		case t.name == peers.MinIO().Name:
			out[t.name] = peers.MinIO().Version
		}
	}
	return out
}

// measureRows runs all rows in each round. Within a row the targets take turns, and each round begins with another
// target.
func measureRows(res *result, all []*target, rows []row, data []byte, rounds int) error {
	for _, r := range rows {
		res.Rows = append(res.Rows, &rowResult{Name: r.Name, ByBytes: r.byBytes, Put: r.put, Samples: map[string][]sample{}})
	}
	for round := range rounds {
		for i, r := range rows {
			say("round %d of %d: %s", round+1, rounds, r.Name)
			for j := range all {
				t := all[(j+round)%len(all)]
				if r.only != nil && !slices.Contains(r.only, t.name) && !isBefore(t.name) {
					continue
				}
				s, err := r.measure(t, data, round)
				if err != nil {
					return fmt.Errorf("%s: %w", r.Name, err)
				}
				samples := res.Rows[i].Samples
				samples[t.name] = append(samples[t.name], s)
				if t.name == tlsName && r.Name == tlsRow {
					alone, err := encrypt(data, s.Bytes)
					if err != nil {
						return err
					}
					res.Rows[i].Cipher = append(res.Rows[i].Cipher, alone)
				}
				if t.name == sseName && r.Name == tlsRow {
					alone, err := decrypt(data, s.Bytes)
					if err != nil {
						return err
					}
					res.Rows[i].Decryption = append(res.Rows[i].Decryption, alone)
				}
			}
		}
	}
	return nil
}
