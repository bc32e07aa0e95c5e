// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"time"
)

// bare is a reverse proxy of Go's standard library in front of the upstream, in a process of its own. It does nothing
// but pass requests on, so its first byte is the least that any server between client and upstream needs.
type bare struct {
	endpoint string
	cmd      *exec.Cmd
	stdin    io.Closer // the process ends when it is closed
}

func startBare(upstream string) (*bare, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	b := &bare{cmd: exec.Command(program, "--bare", upstream)}
	b.cmd.Stderr = os.Stderr
	if b.stdin, err = b.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := b.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.stop()
		return nil, fmt.Errorf("starting the bare proxy: %w", err)
	}
	b.endpoint = strings.TrimSpace(line)
	return b, nil
}

func (b *bare) stop() {
	_ = b.stdin.Close()
	_ = b.cmd.Wait() // its end was asked for
}

// serveBare passes requests on to the upstream until standard input ends. It prints its URL first.
func serveBare(upstream string) error {
	target, err := url.Parse(upstream)
	if err != nil {
		return err
	}
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host // which the signature covers
	}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s\n", l.Addr())
	server := &http.Server{Handler: proxy, ReadHeaderTimeout: time.Minute}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // nothing is sent: only the end counts
		_ = server.Close()
	}()
	if err := server.Serve(l); err != http.ErrServerClosed {
		return err
	}
	return nil
}
