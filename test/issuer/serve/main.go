// SPDX-License-Identifier: Apache-2.0

// Command serve runs an OpenID Connect issuer for tests on a free port. Command serve prints the URL of the issuer as a
// line of JSON, and ends when its standard input ends.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/nebulaio/nebulaio/test/issuer"
)

func main() {
	algorithm := flag.String("alg", "RS256", "signature of the first key: RS256, PS256, ES256 or EdDSA")
	address := flag.String("address", "127.0.0.1:0", "HOST:PORT to listen on")
	flag.Parse()
	if err := run(*address, *algorithm); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(address, algorithm string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	url := "http://" + l.Addr().String()
	i, err := issuer.New(url, algorithm)
	if err != nil {
		return err
	}
	line, err := json.Marshal(map[string]string{"issuer": url})
	if err != nil {
		return err
	}
	fmt.Println(string(line))
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // ends with the test that started this program
		_ = l.Close()
	}()
	srv := &http.Server{Handler: i, ReadHeaderTimeout: 10 * time.Second}
	if err := srv.Serve(l); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
