// SPDX-License-Identifier: Apache-2.0

// Command nebulaio loads model files into GPU memory, reports how the bytes travelled, and serves an object store.
package main

import (
	"os"

	"github.com/nebulaio/nebulaio/internal/boot"
	"github.com/nebulaio/nebulaio/internal/cli"
)

func main() {
	boot.OwnRuntime()
	os.Exit(cli.Main(cli.Process()))
}
