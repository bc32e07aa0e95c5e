// SPDX-License-Identifier: Apache-2.0

// Package programs builds other projects' S3 servers, which tests and benchmarks run beside ours.
package programs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Program is an S3 server of another project. A Program is built from its own module and never linked, because MinIO's
// licence is AGPL.
type Program struct{ Name, Package, Version string }

// Versitygw is the gateway whose front end NebulaIO also uses.
func Versitygw() Program {
	return Program{"versitygw", "github.com/versity/versitygw/cmd/versitygw", "v1.8.0"}
}

// MinIO is the last public version of MinIO. The build of MinIO takes about six minutes on two cores.
func MinIO() Program {
	return Program{"minio", "github.com/minio/minio", "v0.0.0-20260212201848-7aac2a2c5b7c"}
}

// Rclone is a transfer client that the benchmark of transfers runs beside ours.
func Rclone() Program {
	return Program{"rclone", "github.com/rclone/rclone", "v1.75.1"}
}

// ByName returns the program with that name.
func ByName(name string) (Program, error) {
	for _, p := range []Program{Versitygw(), MinIO(), Rclone()} {
		if p.Name == name {
			return p, nil
		}
	}
	return Program{}, fmt.Errorf("%q is no program to build: expected versitygw, minio or rclone", name)
}

// Build returns the path of the program below dir, and builds the program if it is missing. The first build takes
// minutes and runs with the lowest priority. Two builds of one program wait for each other.
func (p Program) Build(dir string, say func(string, ...any)) (string, error) {
	dir, err := filepath.Abs(filepath.Join(dir, p.Version))
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, p.Name)
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "."+p.Name+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("locking %s: %w", lock.Name(), err)
	}
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	say("building %s %s, once; this takes minutes", p.Name, p.Version)
	stage, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(stage)
	cmd := exec.Command("nice", "-n", "19", "go", "install", p.Package+"@"+p.Version)
	cmd.Dir = os.TempDir() // outside of our module
	cmd.Env = append(os.Environ(), "GOBIN="+stage)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s %s: %w\n%s", p.Name, p.Version, err, out)
	}
	return program, os.Rename(filepath.Join(stage, p.Name), program)
}
