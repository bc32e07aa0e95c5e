// SPDX-License-Identifier: Apache-2.0

// Package s3suite runs versitygw's own full-flow suite against the S3 front end and the store on disk.
package s3suite

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/versity/versitygw/tests/integration"

	"github.com/nebulaio/nebulaio/internal/iam"
	"github.com/nebulaio/nebulaio/internal/s3api"
)

const (
	access, secret, region = "rootaccess", "rootsecretkey", "us-east-1"
	// modeEnv makes this binary play another part: the suite's client, or the command line that the suite calls.
	modeEnv     = "NEBULAIO_S3SUITE"
	endpointEnv = "NEBULAIO_S3SUITE_ENDPOINT"
	onlyEnv     = "NEBULAIO_S3SUITE_ONLY" // names of tests to run one after the other, in place of all
)

func TestMain(m *testing.M) {
	switch os.Getenv(modeEnv) {
	case "client":
		runSuite(os.Getenv(endpointEnv), os.Getenv(onlyEnv))
		return
	case "admin":
		if err := admin(os.Args[1:]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// runSuite runs the suite, or some of its tests, in this process. A panic in one test ends the process; the parent
// then sees tests that began and never ended.
func runSuite(endpoint, only string) {
	conf := integration.NewS3Conf(integration.WithAccess(access), integration.WithSecret(secret),
		integration.WithRegion(region),
		integration.WithEndpoint(endpoint), integration.WithVersioningEnabled())
	if only != "" {
		all := integration.GetIntTests()
		for name := range strings.SplitSeq(only, ",") {
			if f, ok := all[name]; ok {
				_ = f(conf) // it prints what became of it
			}
		}
		return
	}
	state := integration.NewTestState(context.Background(), conf, true)
	integration.TestFullFlow(state)
	state.Wait()
}

// serve starts the front end over a store in a temporary directory and returns its URL.
func serve(t *testing.T) string {
	t.Helper()
	store := openStore(t)
	accounts, err := iam.Open(t.Context(), store, iam.Account{AccessKey: access, Secret: secret})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := s3api.New(s3api.Options{Store: store, Accounts: accounts, Listeners: []net.Listener{l}, Region: region,
		Admin: true, Drain: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if err := store.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return "http://" + l.Addr().String()
}

// TestFullFlow runs the suite in its mode for gateways with versions. The other mode is for gateways that lock
// objects without versions, which S3 does not allow.
//
// A few tests of the suite have time limits of seconds. A test that fails while dozens of others run is therefore run
// again alone.
func TestFullFlow(t *testing.T) {
	endpoint := serve(t)
	all := client(t, endpoint, "")
	var again []string
	for name, r := range all {
		if _, known := expected[name]; !known && r.passed < r.ran {
			again = append(again, name)
		}
	}
	if len(again) > 0 && len(again) <= maxAgain {
		for name, r := range client(t, endpoint, strings.Join(again, ",")) {
			if r.passed == r.ran {
				t.Logf("%s failed and passed when run alone: %s", name, all[name].why)
				all[name].passed = all[name].ran
			}
		}
	}
	judge(t, all)
}

// maxAgain is the largest number of tests that are run again. More failures are no accident.
const maxAgain = 8

// client runs the suite in its own process, with the command line that the suite calls.
func client(t *testing.T, endpoint, only string) map[string]*result {
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
		modeEnv+"=client", endpointEnv+"="+endpoint, onlyEnv+"="+only, "AWS_EC2_METADATA_DISABLED=true", "HOME="+dir)
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

// result is the outcome of the tests with one name; a few names stand for several tests.
type result struct {
	ran, passed int
	why         string // of the last that failed
}

// read collects the results that the suite prints.
func read(lines *bufio.Scanner) map[string]*result {
	all := map[string]*result{}
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		kind, rest, _ := strings.Cut(strip(lines.Text()), " ")
		if kind != "RUN" && kind != "PASS" && kind != "FAIL" {
			continue
		}
		name, why, _ := strings.Cut(strings.TrimSpace(rest), ":")
		r := all[name]
		if r == nil {
			r = &result{}
			all[name] = r
		}
		switch kind {
		case "RUN":
			r.ran++
		case "PASS":
			r.passed++
		case "FAIL":
			r.why = strings.TrimSpace(why)
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
