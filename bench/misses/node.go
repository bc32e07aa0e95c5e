// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/nebulaio/nebulaio/test/upstreams"
)

// Keys of the node.
const user, password = "bench-user", "bench-password"

// node is a running `nebulaio server` with one upstream bucket.
type node struct {
	program, dir, endpoint, bucket string
	cmd                            *exec.Cmd
}

func startNode(o options, dir, endpoint, bucket string) (*node, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	program, err := filepath.Abs(o.nebulaio)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "config.yaml")
	config := fmt.Sprintf("upstream:\n  %s:\n    endpoint: %s\n    access_key_env: UPSTREAM_ACCESS_KEY\n"+
		"    secret_key_env: UPSTREAM_SECRET_KEY\n", bucket, endpoint)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	n := &node{program: program, dir: dir, bucket: bucket}
	n.cmd = n.command("server", "--config", file, "--data", n.data(), "--address", "127.0.0.1:0", "--console-address",
		"127.0.0.1:0", "--json")
	if o.profile != "" {
		n.cmd.Args = append(n.cmd.Args, "--pprof")
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	n.cmd.Stderr = log
	out, err := n.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := n.cmd.Start(); err != nil {
		return nil, err
	}
	var said struct {
		Endpoint string `json:"endpoint"`
		Console  string `json:"console"`
	}
	lines := bufio.NewReader(out)
	first, err := lines.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(first, &said)
	}
	if err != nil {
		n.stop()
		return nil, fmt.Errorf("the node said %q: %w", first, err)
	}
	go func() { _, _ = lines.WriteTo(log) }()
	n.endpoint = said.Endpoint
	if o.profile != "" {
		go n.profile(said.Console, o.profile)
	}
	return n, nil
}

func (n *node) data() string { return filepath.Join(n.dir, "data") }

func (n *node) command(args ...string) *exec.Cmd {
	cmd := exec.Command(n.program, args...)
	cmd.Env = append(os.Environ(), "NEBULAIO_ROOT_USER="+user, "NEBULAIO_ROOT_PASSWORD="+password,
		"UPSTREAM_ACCESS_KEY="+upstreams.Access, "UPSTREAM_SECRET_KEY="+upstreams.Secret)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// profile writes a CPU profile of the node.
func (n *node) profile(console, file string) {
	resp, err := http.Get(console + "/debug/pprof/profile?seconds=20")
	if err != nil {
		fmt.Fprintln(os.Stderr, "no profile of the node:", err)
		return
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil {
		err = os.WriteFile(file, text, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "no profile of the node:", err)
	}
}

// evict removes an object from the cache, after the disk has taken all of it.
func (n *node) evict(key string) error {
	for quiet, tries := 0, 0; quiet < 2 && tries < 100; time.Sleep(50 * time.Millisecond) {
		out, err := n.command("cache", "ls", n.bucket+"/"+key, "--json", "--data", n.data()).CombinedOutput()
		if err != nil {
			return fmt.Errorf("nebulaio cache ls: %w: %s", err, out)
		}
		var all struct {
			Entries []struct {
				Whole    bool   `json:"whole"`
				Verified string `json:"verified"`
				ETag     string `json:"etag"`
			} `json:"entries"`
		}
		if err := json.Unmarshal(out, &all); err != nil {
			return fmt.Errorf("nebulaio cache ls: %w: %s", err, out)
		}
		quiet, tries = quiet+1, tries+1
		for _, e := range all.Entries { // an ETag that is an MD5 is compared in the background
			if !e.Whole || e.Verified != "md5" && !strings.Contains(e.ETag, "-") {
				quiet = 0
			}
		}
	}
	if out, err := n.command("cache", "evict", n.bucket+"/"+key, "--data", n.data()).CombinedOutput(); err != nil {
		return fmt.Errorf("nebulaio cache evict: %w: %s", err, out)
	}
	return nil
}

func (n *node) stop() {
	_ = n.cmd.Process.Signal(syscall.SIGTERM)
	_ = n.cmd.Wait()
}
