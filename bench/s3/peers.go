// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// peer is another S3 server to compare with. It is built as a separate program from its own module and never linked,
// because MinIO's licence is AGPL.
type peer struct{ name, pkg, version string }

var (
	versitygwPeer = peer{"versitygw", "github.com/versity/versitygw/cmd/versitygw", "v1.8.0"}
	minioPeer     = peer{"minio", "github.com/minio/minio", "v0.0.0-20260212201848-7aac2a2c5b7c"}
)

// build returns the peer's program in dir, and builds it if it is missing. The first build takes minutes and runs
// with the lowest priority.
func (p peer) build(dir string, say func(string, ...any)) (string, error) {
	dir, err := filepath.Abs(filepath.Join(dir, p.version))
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, p.name)
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	say("building %s %s, once; this takes minutes", p.name, p.version)
	cmd := exec.Command("nice", "-n", "19", "go", "install", p.pkg+"@"+p.version)
	cmd.Dir = os.TempDir() // outside of our module
	cmd.Env = append(os.Environ(), "GOBIN="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s %s: %w\n%s", p.name, p.version, err, out)
	}
	return program, nil
}
