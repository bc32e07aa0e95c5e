// SPDX-License-Identifier: Apache-2.0

// Command express compares small reads and writes of a directory bucket with those of an ordinary bucket, on one server and
// in one run. The output is the processor time of the server per request, and the ratio of the two kinds of bucket.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	program := flag.String("program", "bin/nebulaio", "the server to start")
	size := flag.Int("size", 4096, "bytes of an object")
	requests := flag.Int("requests", 4000, "requests of one round")
	rounds := flag.Int("rounds", 7, "rounds; each measures both kinds of bucket")
	profile := flag.String("profile", "", "directory for processor profiles of each row")
	flag.Parse()
	if err := run(*program, *size, *requests, *rounds, *profile); err != nil {
		fmt.Fprintln(os.Stderr, "express:", err)
		os.Exit(1)
	}
}

// server is a running server.
type server struct {
	cmd      *exec.Cmd
	endpoint string
	console  string
}

// start starts the server in a directory.
func start(program, dir string) (*server, error) {
	s := &server{cmd: exec.Command(program, "server", "--json", "--data", filepath.Join(dir, "data"), "--address",
		"127.0.0.1:0", "--console-address", "127.0.0.1:0", "--s3-express-enabled=true", "--pprof=true")}
	s.cmd.Env = append(os.Environ(), "NEBULAIO_ROOT_USER="+access, "NEBULAIO_ROOT_PASSWORD="+secret)
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var said struct{ Endpoint, Console string }
		if json.Unmarshal(lines.Bytes(), &said) == nil && said.Endpoint != "" {
			s.endpoint, s.console = said.Endpoint, said.Console
			go func() {
				for lines.Scan() {
				}
			}()
			return s, nil
		}
	}
	return nil, errors.New("the server has not said where it listens")
}

// stop stops the server.
func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.cmd.Wait()
}

// cpu returns the processor time that the server has used.
func (s *server) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100, nil
}

// row is one kind of request to one kind of bucket.
type row struct {
	name string
	do   func(i int) error
	cost []time.Duration // per request, one for each round
}

func run(program string, size, requests, rounds int, profile string) error {
	dir, err := os.MkdirTemp("", "express")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := start(program, dir)
	if err != nil {
		return err
	}
	defer s.stop()
	plain, err := newBucket(s.endpoint, "plain", false)
	if err != nil {
		return err
	}
	directory, err := newBucket(s.endpoint, "small--bench1--x-s3", true)
	if err != nil {
		return err
	}
	content := make([]byte, size)
	for i := range content {
		content[i] = byte(i * 7)
	}
	rows := []*row{}
	for _, b := range []*bucket{plain, directory} {
		rows = append(rows, &row{name: "PUT " + b.name, do: func(i int) error {
			return b.send(http.MethodPut, "k"+strconv.Itoa(i%256), content, http.StatusOK)
		}}, &row{name: "GET " + b.name, do: func(i int) error {
			return b.send(http.MethodGet, "k"+strconv.Itoa(i%256), nil, http.StatusOK)
		}})
	}
	for round := range rounds + 1 { // the first round warms up
		for _, r := range rows {
			cost, err := s.measure(r, requests)
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			if round > 0 {
				r.cost = append(r.cost, cost)
			}
		}
		slices.Reverse(rows) // so that neither is always first
	}
	report(rows, size, requests, rounds)
	if profile == "" {
		return nil
	}
	for _, r := range rows {
		if err := s.profile(r, requests, profile); err != nil {
			return err
		}
	}
	return nil
}

// measure returns the processor time of the server per request.
func (s *server) measure(r *row, requests int) (time.Duration, error) {
	before, err := s.cpu()
	if err != nil {
		return 0, err
	}
	for i := range requests {
		if err := r.do(i); err != nil {
			return 0, err
		}
	}
	after, err := s.cpu()
	return (after - before) / time.Duration(requests), err
}

// report prints the median of each row, and the ratios of the two kinds of bucket.
func report(rows []*row, size, requests, rounds int) {
	median := map[string]time.Duration{}
	fmt.Printf("%d bytes, %d requests a round, %d rounds, one connection\n\n", size, requests, rounds)
	fmt.Println("| request | server CPU per request (median) | rounds |")
	fmt.Println("|---|---|---|")
	slices.SortFunc(rows, func(a, b *row) int { return strings.Compare(a.name, b.name) })
	for _, r := range rows {
		slices.Sort(r.cost)
		median[r.name] = r.cost[len(r.cost)/2]
		fmt.Printf("| %s | %v | %v to %v |\n", r.name, median[r.name], r.cost[0], r.cost[len(r.cost)-1])
	}
	fmt.Println()
	for _, method := range []string{"GET", "PUT"} {
		fmt.Printf("%s: directory bucket / ordinary bucket = %.2f\n", method,
			float64(median[method+" small--bench1--x-s3"])/float64(median[method+" plain"]))
	}
}
