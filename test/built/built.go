// SPDX-License-Identifier: Apache-2.0

// Package built finds the command nebulaio for tests that start it, and builds it where make has not.
package built

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Variable is the environment variable by which make names the command that it has built.
const Variable = "NEBULAIO_CLI"

// Command returns the path of the command: the file that NEBULAIO_CLI names, or one that Command builds in folder.
func Command(folder string) (string, error) {
	if given := os.Getenv(Variable); given != "" {
		// go test keeps results of tests until a file changes that they looked at.
		if _, err := os.Stat(given); err != nil {
			return "", fmt.Errorf("%s names a file that cannot be used: %w (fix: make build)", Variable, err)
		}
		return given, nil
	}
	return Program(folder, "cmd/nebulaio")
}

// Program builds the program of a folder of this module into folder, and returns its path.
func Program(folder, source string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	// As above: a result must not outlive the sources of the program that it is about.
	for _, dir := range []string{source, "internal"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(_ string, _ fs.DirEntry, err error) error { return err })
		if err != nil {
			return "", err
		}
	}
	out := filepath.Join(folder, filepath.Base(source))
	cmd := exec.Command("go", "build", "-o", out, "./"+source)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // as make builds it, so that Go finds what is compiled already
	if !strings.Contains(os.Getenv("GOFLAGS"), "-pgo") {
		cmd.Args = append(cmd.Args[:2:2], append([]string{"-pgo=off"}, cmd.Args[2:]...)...)
	}
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./%s: %w\n%s", source, err, text)
	}
	return out, nil
}

// Root returns the folder of the module: the nearest one above the working directory that has a go.mod.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		above := filepath.Dir(dir)
		if above == dir {
			return "", fmt.Errorf("no go.mod above the working directory (fix: run the test in a checkout)")
		}
		dir = above
	}
}
