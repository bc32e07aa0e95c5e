// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

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
	s.stop()
	return nil, errors.New("the server has not said where it listens")
}

// stop stops the server.
func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.cmd.Wait()
}

// used is the processor time that the server has used.
type used struct{ all, user, system time.Duration }

// cpu returns the processor time that the server has used. The sum is exact to the nanosecond, its parts to 10 ms.
func (s *server) cpu() (u used, err error) {
	const ofProcess = 2 // CPUCLOCK_SCHED: the scheduler's count of all threads, ended ones too
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^s.cmd.Process.Pid<<3|ofProcess), &ts); err != nil {
		return u, fmt.Errorf("processor time of the server: %w", err)
	}
	u.all = time.Duration(ts.Nano())
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return u, err
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return u, fmt.Errorf("/proc/%d/stat has %d fields", s.cmd.Process.Pid, len(fields))
	}
	for i, at := range []*time.Duration{&u.user, &u.system} {
		ticks, err := strconv.ParseInt(fields[11+i], 10, 64)
		if err != nil {
			return u, err
		}
		*at = time.Duration(ticks) * time.Second / 100
	}
	return u, nil
}

// measure returns what the requests of a row cost.
func (s *server) measure(r *row, o *options) (cost, error) {
	work, err := r.bucket.prepare(r.method, o)
	if err != nil {
		return cost{}, err
	}
	defer work.close()
	before, err := s.cpu()
	if err != nil {
		return cost{}, err
	}
	begun := time.Now()
	if err := work.send(o.Requests / o.Streams); err != nil {
		return cost{}, err
	}
	seconds := time.Since(begun).Seconds()
	after, err := s.cpu()
	n := o.Requests / o.Streams * o.Streams
	each := func(d time.Duration) float64 { return d.Seconds() * 1e6 / float64(n) }
	return cost{Requests: n, Seconds: seconds, CPU: each(after.all - before.all), User: each(after.user - before.user),
		System: each(after.system - before.system)}, err
}

// profile writes a processor profile of the server while it answers the requests of a row.
func (s *server) profile(r *row, o *options) error {
	if err := os.MkdirAll(o.profile, 0o755); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		reply, err := http.Get(s.console + "/debug/pprof/profile?seconds=8")
		if err != nil {
			done <- err
			return
		}
		text, err := io.ReadAll(reply.Body)
		_ = reply.Body.Close() // it was read
		if err == nil {
			err = os.WriteFile(filepath.Join(o.profile, strings.ReplaceAll(r.name(), " ", "-")+".pprof"), text, 0o644)
		}
		done <- err
	}()
	work, err := r.bucket.prepare(r.method, o)
	if err != nil {
		return err
	}
	defer work.close()
	for {
		select {
		case err := <-done:
			return err
		default:
		}
		if err := work.send(50); err != nil {
			return err
		}
	}
}
