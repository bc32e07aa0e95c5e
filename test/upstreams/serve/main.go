// SPDX-License-Identifier: Apache-2.0

// Command serve starts one of the upstreams of the tests, such as `go run ./test/upstreams/serve minio`. The command
// prints a line of JSON when the server answers, and ends the server when its standard input ends. With -prepare, the
// command installs or builds the named servers, all at the same time, and ends.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/nebulaio/nebulaio/test/upstreams"
	"github.com/nebulaio/nebulaio/test/upstreams/programs"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "serve:", err)
		os.Exit(1)
	}
}

func run() error {
	dir := flag.String("dir", "", "directory for the server's data; empty means a temporary directory, removed at the end")
	build := flag.Bool("build", false, "build the named program, print its path and end")
	prepare := flag.Bool("prepare", false,
		"install or build the named servers and end; one that cannot be had here is no failure")
	flag.Parse()
	if *prepare {
		return prepareAll(flag.Args())
	}
	if flag.NArg() != 1 {
		return fmt.Errorf("unexpected %q: expected one of minio, versitygw, moto or ceph", flag.Args())
	}
	name := flag.Arg(0)
	if *build {
		p, err := programs.ByName(name)
		if err != nil {
			return err
		}
		path, err := p.Build(filepath.Join(upstreams.Root(), "build/peers"), func(format string, args ...any) {
			fmt.Fprintf(os.Stderr, format+"\n", args...)
		})
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(map[string]string{"path": path, "version": p.Version})
	}
	if *dir == "" {
		made, err := os.MkdirTemp("", "upstream-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(made)
		*dir = made
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	u, err := upstreams.Start(ctx, upstreams.Kind(name), *dir)
	if err != nil {
		return err
	}
	defer u.Stop()
	if err := json.NewEncoder(os.Stdout).Encode(map[string]string{"endpoint": u.Endpoint,
		"access_key": upstreams.Access, "secret_key": upstreams.Secret, "region": upstreams.Region}); err != nil {
		return err
	}
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); stop() }()
	<-ctx.Done()
	return nil
}

// prepareAll installs or builds servers at the same time, because one build waits for the processor while the other
// servers come from the network. It says how long each took.
func prepareAll(kinds []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	failures := make([]error, len(kinds))
	var group sync.WaitGroup
	for i, kind := range kinds {
		group.Go(func() {
			began := time.Now()
			err := upstreams.Prepare(ctx, upstreams.Kind(kind))
			took := time.Since(began).Round(time.Second)
			switch {
			case errors.Is(err, upstreams.ErrMissing):
				fmt.Printf("%s is left out, and its tests will be skipped: %v\n", kind, err)
			case err != nil:
				failures[i] = err
			default:
				fmt.Printf("%s is ready after %s\n", kind, took)
			}
		})
	}
	group.Wait()
	return errors.Join(failures...)
}
