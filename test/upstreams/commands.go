// SPDX-License-Identifier: Apache-2.0

package upstreams

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/nebulaio/nebulaio/test/upstreams/programs"
)

// Prepare installs or builds a server, so that Start needs only seconds. The error wraps ErrMissing if the server's
// packages cannot be installed here.
func Prepare(ctx context.Context, kind Kind) error {
	var err error
	switch kind {
	case MinIO:
		_, err = build(programs.MinIO())
	case Versitygw:
		_, err = build(programs.Versitygw())
	case Moto:
		_, err = moto(ctx)
	case Ceph:
		err = ceph(ctx)
	default:
		return unknown(kind)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	return nil
}

func unknown(kind Kind) error {
	return fmt.Errorf("%q is no server: expected %s, %s, %s or %s", kind, MinIO, Versitygw, Moto, Ceph)
}

// commandOf returns the command line and the environment of a server, and installs or builds the server first.
func commandOf(ctx context.Context, kind Kind, data string, ports []string) (argv, env []string, err error) {
	host := "127.0.0.1:" + ports[0]
	switch kind {
	case MinIO:
		program, err := build(programs.MinIO())
		if err != nil {
			return nil, nil, err
		}
		return []string{program, "server", "--quiet", "--address", host, "--console-address", "127.0.0.1:" + ports[1], data},
			[]string{"MINIO_ROOT_USER=" + Access, "MINIO_ROOT_PASSWORD=" + Secret, "MINIO_UPDATE=off",
				"MINIO_BROWSER=off"}, nil
	case Versitygw:
		program, err := build(programs.Versitygw())
		if err != nil {
			return nil, nil, err
		}
		// The gateway keeps versions beside the data, and accounts in a directory of their own.
		versions, accounts := data+".versions", data+".iam"
		for _, dir := range []string{versions, accounts} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return nil, nil, err
			}
		}
		return []string{program, "--port", host, "--keep-alive", "--quiet", "--iam-dir", accounts, "posix",
				"--versioning-dir", versions, data},
			[]string{"ROOT_ACCESS_KEY=" + Access, "ROOT_SECRET_KEY=" + Secret}, nil
	case Moto:
		program, err := moto(ctx)
		if err != nil {
			return nil, nil, err
		}
		return []string{program, "-H", "127.0.0.1", "-p", ports[0]}, nil, nil
	case Ceph:
		if err := ceph(ctx); err != nil {
			return nil, nil, err
		}
		return slices.Concat(inNamespace, []string{"bash", filepath.Join(Root(), "test/upstreams/ceph.sh"), data, ports[1],
			ports[2], ports[0], Access, Secret}), nil, nil
	}
	return nil, nil, unknown(kind)
}

func build(p programs.Program) (string, error) {
	return p.Build(filepath.Join(Root(), "build/peers"), func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, format+"\n", args...)
	})
}

// moto makes the environment of moto once and returns the path of its server.
func moto(ctx context.Context) (string, error) {
	venv := filepath.Join(Root(), ".venv-moto")
	python := os.Getenv("PYTHON")
	if python == "" {
		python = "python3"
	}
	cmd := exec.CommandContext(ctx, "bash", filepath.Join(Root(), "test/setup/venv.sh"), python, venv,
		filepath.Join(Root(), "test/upstreams/requirements.txt"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("making %s: %w\n%s", venv, err, out)
	}
	return filepath.Join(venv, "bin/moto_server"), nil
}

// inNamespace is the beginning of a command line that runs in a pid namespace of its own, with a /proc of its own.
var inNamespace = []string{"unshare", "--pid", "--fork", "--mount-proc", "--kill-child"}

// ceph installs Ceph's packages. They are Debian's, and both their installation and a pid namespace need root.
func ceph(ctx context.Context) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: Ceph runs in a pid namespace, which needs root", ErrMissing)
	}
	// A container may withhold the right to make namespaces from root.
	if out, err := exec.CommandContext(ctx, inNamespace[0],
		append(inNamespace[1:], "true")...).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: Ceph runs in a pid namespace, which cannot be made here: %w\n%s", ErrMissing, err, out)
	}
	cmd := exec.CommandContext(ctx, "bash", filepath.Join(Root(), "test/setup/ceph.sh"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: Ceph's packages could not be installed: %w\n%s", ErrMissing, err, out)
	}
	return nil
}
