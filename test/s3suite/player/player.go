// SPDX-License-Identifier: Apache-2.0

// Package player runs versitygw's own suite of tests against an S3 server, in a process of its own.
package player

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/versity/versitygw/tests/integration"
)

const (
	// modeEnv makes the binary of a test play another part: the suite's client, or the command line that the suite
	// calls.
	modeEnv = "NEBULAIO_S3SUITE"
	onlyEnv = "NEBULAIO_S3SUITE_ONLY" // names of tests to run in place of all
	// atOnceEnv is the number of named tests that run at the same time.
	atOnceEnv = "NEBULAIO_S3SUITE_AT_ONCE"

	endpointEnv, accessEnv, secretEnv = modeEnv + "_ENDPOINT", modeEnv + "_ACCESS", modeEnv + "_SECRET"
)

// Region is the region for which the suite signs.
const Region = "us-east-1"

// Target is the server that the suite talks to, with the keys of its administrator.
type Target struct {
	Endpoint, Access, Secret string
	AtOnce                   int // number of named tests that run at the same time; 0 means 1
}

// Play plays the part that the environment names and reports whether there was one. TestMain calls Play first.
func Play() bool {
	switch os.Getenv(modeEnv) {
	case "client":
		n, _ := strconv.Atoi(os.Getenv(atOnceEnv)) // Run wrote it
		runSuite(Target{os.Getenv(endpointEnv), os.Getenv(accessEnv), os.Getenv(secretEnv), n}, os.Getenv(onlyEnv))
	case "admin":
		if err := admin(os.Args[1:]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	default:
		return false
	}
	return true
}

// Names returns the names of all tests of the suite that can be run alone, in order.
func Names() []string {
	var names []string
	for name := range integration.GetIntTests() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// runSuite runs the suite, or some of its tests, in this process. A panic in one test ends the process; the parent
// then sees tests that began and never ended.
func runSuite(target Target, only string) {
	conf := integration.NewS3Conf(integration.WithAccess(target.Access), integration.WithSecret(target.Secret),
		integration.WithRegion(Region),
		integration.WithEndpoint(target.Endpoint), integration.WithVersioningEnabled())
	if only != "" {
		runSome(strings.Split(only, ","), max(target.AtOnce, 1), conf)
		return
	}
	state := integration.NewTestState(context.Background(), conf, true)
	integration.TestFullFlow(state)
	state.Wait()
}

// runSome runs the named tests, n of them at the same time. Each test has buckets of its own.
func runSome(names []string, n int, conf *integration.S3Conf) {
	all := integration.GetIntTests()
	var wait sync.WaitGroup
	slots := make(chan struct{}, n)
	for _, name := range names {
		f, ok := all[name]
		if !ok {
			continue
		}
		slots <- struct{}{}
		wait.Go(func() {
			defer func() { <-slots }()
			runOne(name, f, conf)
		})
	}
	wait.Wait()
}

// runOne runs one test and prints what became of it. The test prints that too, but some tests print the names of
// others. A test that panics, because a server's reply lacks what the test expects, has failed.
func runOne(name string, f integration.IntTest, conf *integration.S3Conf) {
	var err error
	defer func() {
		if why := recover(); why != nil {
			err = fmt.Errorf("panic: %v", why)
		}
		if err == nil {
			fmt.Printf("\n%s %s\n", ended, name)
			return
		}
		why := strings.ReplaceAll(err.Error(), "\n", " ")
		if before, after, ok := strings.Cut(why, ": "); ok && strings.Contains(before, "_") &&
			!strings.Contains(before, " ") {
			why = after // behind the name that the test gives itself
		}
		fmt.Printf("\n%s %s: %s\n", ended, name, why)
	}()
	err = f(conf)
}

// ended begins a line about a test that has ended, with its name, and with a reason if it has failed.
const ended = "ENDED"

// Run runs the suite in its own process, with the command line that the suite calls. only names some tests, separated
// by commas, of which target.AtOnce run at the same time.
func Run(t *testing.T, target Target, only string) map[string]*Result {
	t.Helper()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\n%s=admin exec %q \"$@\"\n", modeEnv, self)
	if err := os.WriteFile(filepath.Join(dir, "versitygw"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Dir = dir
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "AWS_") }),
		modeEnv+"=client", endpointEnv+"="+target.Endpoint, accessEnv+"="+target.Access,
		secretEnv+"="+target.Secret, onlyEnv+"="+only, atOnceEnv+"="+strconv.Itoa(target.AtOnce),
		"AWS_EC2_METADATA_DISABLED=true", "HOME="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	results := read(bufio.NewScanner(out))
	if err := cmd.Wait(); err != nil {
		t.Errorf("the suite's process: %v\n%s", err, stderr.String())
	}
	return results
}

// Result is the outcome of the tests with one name; a few names stand for several tests.
type Result struct {
	Ran, Passed, Failed int
	Why                 string // of the last that failed

	ended bool // the result is final
}

// OK reports whether a test with the name passed and none failed. Ran may be too small: tests that run at the same time
// print lines into each other.
func (r *Result) OK() bool { return r != nil && r.Passed > 0 && r.Passed >= r.Ran && r.Failed == 0 }

// read collects the results that the suite prints.
func read(lines *bufio.Scanner) map[string]*Result {
	all := map[string]*Result{}
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		kind, rest, _ := strings.Cut(strip(lines.Text()), " ")
		if kind != "RUN" && kind != "PASS" && kind != "FAIL" && kind != ended {
			continue
		}
		name, why, failed := strings.Cut(strings.TrimSpace(rest), ":")
		r := all[name]
		if r == nil {
			r = &Result{}
			all[name] = r
		}
		switch {
		case kind == ended && failed:
			*r = Result{Ran: 1, Failed: 1, Why: strings.TrimSpace(why), ended: true}
		case kind == ended:
			*r = Result{Ran: 1, Passed: 1, ended: true}
		case r.ended: // another test with the same name in its output
		case kind == "RUN":
			r.Ran++
		case kind == "PASS":
			r.Passed++
		case kind == "FAIL":
			r.Failed++
			r.Why = strings.TrimSpace(why)
		}
	}
	return all
}

// strip removes the colours from a line.
func strip(s string) string {
	for {
		i := strings.Index(s, "\033[")
		if i < 0 {
			return s
		}
		j := strings.IndexByte(s[i:], 'm')
		if j < 0 {
			return s
		}
		s = s[:i] + s[i+j+1:]
	}
}
