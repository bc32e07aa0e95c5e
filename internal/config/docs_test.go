// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/nebulaio/nebulaio/internal/config"
)

var update = flag.Bool("update", false, "write docs/config.md anew")

// TestTheDocumentationIsTheTable: docs/config.md says what the table of keys
// says. After a change of it: go test ./internal/config -update
func TestTheDocumentationIsTheTable(t *testing.T) {
	const path = "../../docs/config.md"
	want := document()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/config.md is not what the table of keys says: go test ./internal/config -update")
	}
}

func document() string {
	var b strings.Builder
	b.WriteString(`# Configuration of the server

` + "`nebulaio server`" + ` reads a YAML file (` + "`--config FILE` or `NEBULAIO_CONFIG`" +
		`), the environment and flags.
A flag wins over the environment, which wins over the file, which wins over the default.
A key that is not in this list, a value of another type and a key given twice are refused.
` + "`nebulaio config`" + ` prints each value, where it came from and what it means.

A dot stands for a level of the file:

` + "```yaml" + `
data: objects
address: 127.0.0.1:9000
tls:
  generate: true
limits:
  connections: 10000
etag_buckets:
  train-*: crc64nvme
` + "```" + `

Sizes are numbers with a unit (` + "`64MiB`, `1GB`" + `), durations too (` + "`500ms`, `30s`, `12h`" + `). In the
environment and in flags, lists are written with commas and maps as ` + "`name=value,name=value`" + `.
The address of a listener may have port 0; the first line on standard output tells which port it got.

| key | type | default | variable | flag | meaning |
|---|---|---|---|---|---|
`)
	for _, k := range config.Keys() {
		form, def, fl := string(k.Type), "", ""
		if len(k.Choices) > 0 && k.Type == config.Choice {
			form = strings.Join(k.Choices, ", ")
		}
		if k.Default != "" {
			def = "`" + k.Default + "`"
		}
		if k.Flag() != "" {
			fl = "`--" + k.Flag() + "`"
		}
		help := k.Help
		if k.Later {
			help += " Not in this version yet: only `false` is accepted."
		}
		if k.EnvOnly {
			help += " In the environment only."
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | `%s` | %s | %s |\n", k.Name, form, def, k.Env(), fl, help)
	}
	b.WriteString("\nThis page is made by `go test ./internal/config -update` and checked by the same test.\n")
	return b.String()
}
